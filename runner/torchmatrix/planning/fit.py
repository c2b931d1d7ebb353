"""Check whether a stack, a workload or a set of GPUs fits this machine; each no has a reason and a fix. Pure."""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from torchmatrix.facts.operations import MICRO
from torchmatrix.machine import vendors
from torchmatrix.machine.host import Gpu, Host
from torchmatrix.matrix import catalog, checks
from torchmatrix.matrix.factors import BF16_MASTER, IN_FLOAT8, NVFP4, RUNTIMES_BY_NAME, Runtime
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.stacks import Stack, architecture_of, without_igpu
from torchmatrix.matrix.workloads import Workload
from torchmatrix.planning.fit_gpu import Why, nearest_stack, why_not_architecture, why_not_driver
from torchmatrix.planning.fit_gpu import why_not_host_memory as why_not_host_memory
from torchmatrix.planning.fit_gpu import why_not_memory as why_not_memory

# Runtimes: can one run this workload on this stack?


def why_not_runtime(stack: Stack, workload: Workload, host: Host) -> Why | None:
    """Return why the runtime of `workload` can't run it, or why its library's packages aren't known; None if it can."""
    name = workload.factors["runtime"]
    if name is None:
        return _why_not_extra(stack, workload)
    runtime = RUNTIMES_BY_NAME[str(name)]
    return (
        _why_not_device(stack, runtime, host)
        or _why_not_runtime_precision(workload, runtime)
        or (None if runtime.of_torch else _why_not_exported(workload, runtime))
        or _why_not_extra(stack, workload)
    )


def _why_not_device(stack: Stack, runtime: Runtime, host: Host) -> Why | None:
    if stack.accelerator not in (*runtime.accelerators, "any"):
        listed = " or ".join(
            {"cpu": "CPU", "cuda": "CUDA", "rocm": "ROCm", "xpu": "XPU"}[accelerator] for accelerator in runtime.accelerators
        )
        return Why(reason=f"runtime {runtime.name} needs a {listed} stack", fix="narrow the workload: stacks = […]")
    if runtime.in_images and stack.source == "wheels":
        reason = f"runtime {runtime.name} needs TensorRT, whose libraries are no wheels of a package index"
        return Why(reason=reason, fix="use an image that holds it, such as nvcr.io/nvidia/pytorch")
    oldest, beyond = catalog.version_key(runtime.capability or "0"), catalog.version_key(runtime.beyond or "1000")
    known = [catalog.version_key(gpu.capability) for gpu in host.gpus if gpu.capability and host.vendor == "nvidia"]
    if any(not oldest <= capability < beyond for capability in known):
        upwards = f"and before {runtime.beyond}" if runtime.beyond else "or newer"
        reason = f"runtime {runtime.name} needs an NVIDIA GPU of compute capability {runtime.capability} {upwards}"
        return Why(reason=reason, fix="use another runtime")
    return None


def _why_not_runtime_precision(workload: Workload, runtime: Runtime) -> Why | None:
    on_cpu = workload.device == "cpu"
    can = runtime.on_cpu if on_cpu else runtime.on_gpu
    if workload.precision in can:
        return None
    place = "a CPU" if on_cpu else "a GPU"
    if not can:
        return Why(reason=f"runtime {runtime.name} doesn't run on {place}", fix="use another runtime")
    return Why(
        reason=f"runtime {runtime.name} doesn't compute in {workload.precision} on {place}", fix=f"use {' or '.join(can)}"
    )


def _why_not_exported(workload: Workload, runtime: Runtime) -> Why | None:
    """Return why a runtime can't run the workload from a graph exported once, in eval mode, without gradients; else None."""
    if workload.mode == "generate":
        return Why(reason=f"runtime {runtime.name} has no cache of keys and values", fix="use eager or a runtime of torchao")
    if workload.compile:
        return Why(reason=f"runtime {runtime.name} compiles by itself, without torch.compile", fix="leave compile out")
    if not workload.factors["eval"]:
        return Why(reason=f"runtime {runtime.name} runs models in eval mode only", fix="leave eval out")
    if workload.factors["grad"] != "no_grad":
        return Why(reason=f"runtime {runtime.name} never records gradients, whatever grad says", fix="leave grad out")
    return None


def _why_not_extra(stack: Stack, workload: Workload) -> Why | None:
    name = checks.without_packages(stack, workload)
    if name is None:
        return None
    reason = f"no packages of {name} are known for torch {stack.torch}+{stack.variant} and Python {stack.python}"
    fix = "choose stacks that have some (images/catalog.toml, [[extras]]), or name them: packages = […]"
    return Why(reason=reason, fix=fix)


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """The place where the engine in use keeps what it builds, and the bytes free there.

    `larger`: what to do to build on a larger disk.
    """

    place: str
    free_bytes: int
    larger: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Prerequisites:
    """What is available to run with. All collections but `unreachable` (index URLs) contain names of stacks.

    `containers`: is a container engine chosen? `how_to_have_containers`: what to do if not. `built`: stacks that are built;
    `stored`: built stacks and stacks whose layers are on disk, so that building takes little space. `unbuildable`: why
    nothing else can be built here.
    `unreachable`: indexes that don't answer. `pythonless`: stacks whose Python this machine neither has nor can download.
    `disk`: None if its free space is unknown; then it isn't checked. `nodes`: how many machines like this one there are.
    `elsewhere`: the engine isn't known to run on this machine.
    """

    containers: bool
    how_to_have_containers: str = "start a container engine"
    built: Collection[str] = frozenset()
    stored: Collection[str] = frozenset()
    unbuildable: str = ""
    unreachable: Collection[str] = frozenset()
    pythonless: Collection[str] = frozenset()
    disk: Disk | None = None
    nodes: int = 1
    elsewhere: bool = False


def why_not_mixed(gpus: tuple[Gpu, ...]) -> Why | None:
    """Return why a set with different GPU models can't be used, or None."""
    names = sorted({gpu.name for gpu in gpus})
    if len(names) < 2:
        return None
    reason = f"mixes GPU models ({', '.join(names)}): a scale factor over them is meaningless"
    return Why(reason=reason, fix="list GPUs of one model in [gpus] lists, or allow it: [gpus] mixed = true")


def why_not_nodes(wanted: int, there: int) -> Why | None:
    """Return why a set needs more nodes than there are, or None."""
    if wanted <= there:
        return None
    if there == 1:
        return Why(reason=f"needs {wanted} nodes of a cluster", fix="run it on one: torchmatrix run --engine slurm")
    reason = f"needs {wanted} nodes; the cluster has {there} of this kind that can be used"
    return Why(reason=reason, fix="lower nodes in the matrix, or allow more: [slurm] nodes in the settings")


def why_not_slices(gpus: tuple[Gpu, ...]) -> Why | None:
    """Return why a set of several devices with a MIG slice among them can't be used, or None."""
    if len(gpus) < 2 or not any(gpu.slice_of for gpu in gpus):
        return None
    reason = "has a MIG slice among several GPUs: slices can't reach each other's memory, and NCCL doesn't join them"
    return Why(reason=reason, fix="measure slices one by one: [gpus] counts = [1], each = true")


def why_not_stack(stack: Stack, matrix: Matrix, host: Host, prerequisites: Prerequisites) -> Why | None:
    """Return why this machine can't run this stack, whatever the device set, or None."""
    return _why_not_machine(stack, host) or _why_not_accelerator(stack, matrix, host) or _why_not_engine(stack, prerequisites)


_WITH_XCCL = (2, 8)
"""The first PyTorch whose ranks on Intel GPUs can talk."""


def why_not_gpus(stack: Stack, on: Host, host: Host) -> Why | None:
    """Return why the driver or a GPU of a set doesn't run this stack, or None. `on`: `host` with the set's GPUs only."""
    return why_not_driver(stack, on) or why_not_architecture(stack, on, host.gpus)


def why_not_several(stack: Stack, gpus: int) -> Why | None:
    """Return why so many Intel GPUs can't run the stack, or None: only XCCL lets their ranks talk."""
    if stack.accelerator != "xpu" or gpus < 2 or not stack.torch or catalog.version_key(stack.torch) >= _WITH_XCCL:
        return None
    reason = f"torch {stack.torch} has no XCCL, by which ranks on Intel GPUs talk: 2.8 and newer have it"
    return Why(reason=reason, fix="use a newer torch for several GPUs")


def suited(stack: Stack, host: Host) -> tuple[int, ...]:
    """Return the places of the GPUs that run the stack."""
    return tuple(place for place, gpu in enumerate(host.gpus) if not why_not_gpus(stack, replace(host, gpus=(gpu,)), host))


def why_not_supplied(stack: Stack, prerequisites: Prerequisites) -> Why | None:
    """Return why this stack can't be built here for want of an index, a Python or disk space, or None."""
    return (
        _why_not_built(stack, prerequisites)
        or _why_not_index(stack, prerequisites)
        or _why_not_python(stack, prerequisites)
        or _why_not_disk(stack, prerequisites)
    )


def _why_not_machine(stack: Stack, host: Host) -> Why | None:
    """Return why this machine can't run the stack's pinned wheels, or NVIDIA's image for integrated GPUs; else None."""
    pinned = [architecture_of(requirement) for index in stack.indexes for requirement in index.requirements]
    alien = next((architecture for architecture in pinned if architecture and architecture != host.architecture), None)
    if alien:
        return Why(reason=f"its wheels are for {alien}; this machine is {host.architecture}", fix="pin those for this machine")
    other = without_igpu(stack.image or "")
    if other is None or host.architecture != "x86_64":
        return None
    reason = f"{stack.image} is for integrated GPUs (Jetson, IGX Orin: aarch64); this machine is {host.architecture}"
    return Why(reason=reason, fix=f'use the image for other GPUs: image = "{other}"')


def _why_not_accelerator(stack: Stack, matrix: Matrix, host: Host) -> Why | None:
    have = host.gpus_in_words
    for vendor in vendors.VENDORS.values():
        if stack.accelerator == vendor.accelerator and host.vendor != vendor.name:
            fix = f"run it on a machine with {vendor.ready}"
            return Why(reason=f"needs {vendor.gpu}; this machine has {have}", fix=fix + _suggest_stack(stack, host))
    if stack.accelerator == "cpu" and host.gpus and matrix.cpus_when == "no-gpu":
        return Why(reason="CPU stacks run only where there is no GPU", fix='to run them here too: [cpus] when = "always"')
    return None


def _suggest_stack(stack: Stack, host: Host) -> str:
    """Name the nearest stack that runs on all GPUs, else on the first GPU for which there is one."""
    hosts = (host, *(replace(host, gpus=(gpu,)) for gpu in host.gpus))
    near = next((near for on in hosts if (near := nearest_stack(stack, on))), None)
    return f"; for this machine: {near}" if near else ""


def _why_not_engine(stack: Stack, prerequisites: Prerequisites) -> Why | None:
    if stack.source == "image" and not prerequisites.containers:
        reason = f"{stack.image} is a container image, and no container engine is in use"
        return Why(reason=reason, fix=f"{prerequisites.how_to_have_containers}, and don't use --engine local")
    if stack.source == "interpreter" and prerequisites.elsewhere:
        reason = "is an interpreter of this machine, and the container engine runs on another one"
        return Why(reason=reason, fix="a run is about one machine: measure it with --engine local")
    return None


def _why_not_built(stack: Stack, prerequisites: Prerequisites) -> Why | None:
    if not prerequisites.unbuildable or stack.source == "interpreter" or stack.name in prerequisites.built:
        return None
    fix = "build it with the same --engine where Docker answers, in a TORCHMATRIX_CACHE that both machines share"
    return Why(reason=f"isn't built, and {prerequisites.unbuildable}", fix=fix)


def _why_not_index(stack: Stack, prerequisites: Prerequisites) -> Why | None:
    if stack.name in prerequisites.built or not stack.indexes:
        return None
    if all(index.url in prerequisites.unreachable for index in stack.indexes):
        reason = f"can't be built: no answer from {', '.join(index.url for index in stack.indexes)}"
        return Why(
            reason=reason, fix='check the network and the proxy settings, or name a mirror: index = "URL" in the [[stack]]'
        )
    return None


def _why_not_python(stack: Stack, prerequisites: Prerequisites) -> Why | None:
    if stack.name not in prerequisites.pythonless:
        return None
    wanted = f"{stack.python} (or {stack.python_range})" if stack.python_range else stack.python
    reason = f"this machine has no Python {wanted}, and uv can't download it"
    return Why(reason=reason, fix=f"install Python {stack.python} or let uv reach its downloads, or use a container engine")


def _why_not_disk(stack: Stack, prerequisites: Prerequisites) -> Why | None:
    needed = least_disk_bytes(stack)
    if (
        prerequisites.disk is None
        or needed is None
        or stack.name in prerequisites.stored
        or prerequisites.disk.free_bytes >= needed
    ):
        return None
    free = prerequisites.disk.free_bytes / 2**30
    reason = f"takes at least {needed / 2**30:.0f} GiB on disk; {prerequisites.disk.place} has {free:.1f} GiB free"
    fix = f"free space (torchmatrix clean lists what it can remove), or {prerequisites.disk.larger}"
    return Why(reason=reason, fix=fix)


def least_disk_bytes(stack: Stack) -> int | None:
    """Return the bytes on disk that building the stack takes at least, by catalog.toml's rough table; None without an entry."""
    gib = None
    if stack.source == "wheels":
        gib = catalog.load().wheels_gib[stack.accelerator]
    elif stack.image and (image := catalog.vendor_images(stack.image)):
        gib = image.gib
    return None if gib is None else int(gib * 2**30)


def why_not_workload(stack: Stack, workload: Workload, host: Host) -> Why | None:
    """Return why this stack can't run this workload, or None. `host`: the machine with the GPUs of a device set only."""
    if why := _why_not_precision(stack, workload, host):
        return why
    if workload.device == "cpu" and workload.factors["compile_mode"] == "reduce-overhead":
        reason = "compile_mode reduce-overhead records CUDA graphs, which need a GPU"
        return Why(reason=reason, fix="on a CPU use default or max-autotune")
    if workload.compile and stack.source == "wheels" and (why := _why_not_compile(stack)):
        return why
    if why := _why_not_model(stack, workload):
        return why
    if workload.trains and workload.optimizer == "adamw-fused" and (why := _why_not_fused(stack, workload)):
        return why
    if workload.parallel == "fsdp" and (why := _why_not_sharded(stack, workload)):
        return why
    if workload.parallel == "tp" and (why := _why_not_split(stack, workload)):
        return why
    return why_not_runtime(stack, workload, host)


_OPERANDS = ("fp32", "tf32", "half", "bf16-weights", "fp8", NVFP4)
"""The precisions that are a type of operands."""


def _why_not_operation(workload: Workload) -> Why | None:
    if workload.device == "cpu" and workload.model in ("host-copy", "peer-copy"):
        return Why(reason=f"{workload.model} needs a GPU", fix="on CPUs measure copy and send-receive")
    if workload.precision not in _OPERANDS:
        reason = f"precision {workload.precision} is one of models: an operation has operands of one type"
        return Why(reason=reason, fix=f"use {', '.join(_OPERANDS)}")
    return None


def _why_not_model(stack: Stack, workload: Workload) -> Why | None:
    """Return why the model can't be built as requested: its sequences are too long, or the stack's transformers is too old."""
    model = workload.own.as_model() if workload.own else catalog.find(workload.model)
    length = workload.factors["sequence_length"]
    if workload.mode == "generate" and not (model and model.generates):
        return Why(
            reason=f"{workload.model} can't generate", fix="use a model whose items are tokens, such as llama-3.2-1b-shape"
        )
    if workload.mode == "generate" and workload.precision in ("amp", "amp-bf16"):
        reason = f"precision {workload.precision} would give keys and values of a cache two types"
        return Why(reason=reason, fix="use fp32, half or bf16-weights")
    if model is None:
        return None
    output = workload.factors["output_length"]
    if model.positions and (length or 0) + (output or 0) > model.positions:
        asked = f"sequence_length {length} and output_length {output} are" if output else f"sequence_length {length} is"
        reason = f"{asked} more than the {model.positions} positions of {model.name}"
        return Why(reason=reason, fix=f"use at most {model.positions} tokens in all")
    release = catalog.load().releases.get(stack.torch or "") if stack.source == "wheels" else None
    needed = max(model.transformers or "0", _GENERATES if workload.mode == "generate" else "0", key=catalog.version_key)
    if release and model.library == "transformers" and catalog.version_key(release.transformers) < catalog.version_key(needed):
        what = f"{model.name} in mode {workload.mode}" if needed == _GENERATES else model.name
        reason = f"{what} needs transformers {needed}, and torch {stack.torch} has {release.transformers}"
        return Why(reason=reason, fix="use a newer torch")
    return None


_GENERATES = "4.57"
"""The oldest transformers whose static cache has the interface that generation uses."""


def _why_not_fused(stack: Stack, workload: Workload) -> Why | None:
    first = "2.4" if workload.device == "cpu" else "2.0"
    if stack.source != "wheels" or not stack.torch or catalog.version_key(stack.torch) >= catalog.version_key(first):
        return None
    where = " on a CPU" if workload.device == "cpu" else ""
    return Why(
        reason=f"torch {stack.torch} has no fused AdamW{where}", fix=f'use torch {first} or newer, or optimizer = "adamw"'
    )


def _why_not_precision(stack: Stack, workload: Workload, host: Host) -> Why | None:
    precision = workload.precision
    if workload.mode == MICRO and (why := _why_not_operation(workload)):
        return why
    if precision == NVFP4:
        return _why_not_float4(workload, host)
    if precision in IN_FLOAT8:
        return _why_not_float8(stack, workload, host)
    if precision == BF16_MASTER and not workload.trains:
        return Why(reason=f"precision {precision} is about training: it keeps weights for an optimizer", fix="use bf16-weights")
    if workload.device == "cpu" and precision in ("tf32", "amp"):
        return Why(reason=f"precision {precision} needs a GPU", fix="on a CPU use fp32 or amp-bf16")
    if precision == "half" and workload.trains and workload.device == "cpu":
        return Why(reason="training in half precision needs a GPU", fix="on a CPU use bf16-weights or amp-bf16")
    if precision == "half" and workload.trains and workload.optimizer != "sgd":
        reason = "AdamW can't train float16 weights: its epsilon of 1e-8 is 0 in float16, so that it divides by 0"
        return Why(reason=reason, fix='use amp or bf16-weights, or optimizer = "sgd"')
    if precision == "tf32" and host.vendor == "amd":
        return Why(reason="tf32 is a mode of NVIDIA GPUs", fix="on AMD use fp32 or amp")
    if precision == "tf32" and any(gpu.capability and catalog.version_key(gpu.capability) < (8, 0) for gpu in host.gpus):
        return Why(reason="tf32 needs an NVIDIA GPU of compute capability 8.0 or newer", fix="use fp32 or amp")
    return None


def _why_not_float4(workload: Workload, host: Host) -> Why | None:
    if workload.mode != MICRO:
        fix = 'use model = "gemm", or a runtime of inference, such as torchao-nvfp4'
        return Why(reason=f"precision {NVFP4} is that of a product alone", fix=fix)
    return _why_not_capability(workload, host, "10.0", "use fp8 or bf16-weights")


def _why_not_capability(workload: Workload, host: Host, least: str, fix: str) -> Why | None:
    """Say that a precision needs a GPU of NVIDIA with this compute capability, if the host is known to have none."""
    known = [catalog.version_key(gpu.capability) for gpu in host.gpus if gpu.capability]
    is_too_old = any(capability < catalog.version_key(least) for capability in known)
    if workload.device != "cpu" and host.vendor in (None, "nvidia") and not is_too_old:
        return None
    return Why(reason=f"precision {workload.precision} needs a GPU of NVIDIA, of compute capability {least} or newer", fix=fix)


def _why_not_float8(stack: Stack, workload: Workload, host: Host) -> Why | None:
    precision, recipe = workload.precision, IN_FLOAT8[workload.precision]
    if workload.mode == MICRO and (workload.device == "cpu" or host.vendor == "amd"):
        return None  # the newest CPUs have such products, too, and some of AMD's GPUs: it is tried
    if not workload.trains and workload.mode != MICRO:
        kind = "mxfp8" if precision == "mxfp8" else "float8"
        fix = f'use runtime = "torchao-{kind}" with bf16-weights'
        return Why(reason=f"precision {precision} is for training", fix=fix)
    if workload.device == "cpu":
        return Why(reason=f"precision {precision} needs a GPU", fix="on a CPU use fp32 or amp-bf16")
    if why := _why_not_capability(workload, host, recipe.capability, "use amp-bf16"):
        return why
    if recipe.in_images and stack.source == "wheels":
        reason = f"precision {precision} needs Transformer Engine, of which a package index has no wheels for PyTorch"
        return Why(reason=reason, fix="use an image that holds it, such as nvcr.io/nvidia/pytorch, or precision fp8")
    if recipe.in_images and (workload.parallel == "fsdp" or workload.factors["checkpointing"]):
        reason = f"precision {precision} is not made for parallel fsdp and checkpointing"
        return Why(reason=reason, fix="use precision fp8, or leave them out")
    batch = workload.batch if isinstance(workload.batch, int) else 0  # "auto" isn't known yet
    tokens = batch * (workload.factors["sequence_length"] or 0)
    if tokens % recipe.multiple:
        reason = f"precision {precision} takes tokens in multiples of {recipe.multiple}: batch × sequence_length is {tokens}"
        return Why(reason=reason, fix="use a sequence_length that is such a multiple")
    return None


def _why_not_sharded(stack: Stack, workload: Workload) -> Why | None:
    if not workload.trains:
        return Why(reason="parallel fsdp is for training: in inference processes share nothing", fix='use parallel = "ddp"')
    if workload.precision == "amp":
        reason = "precision amp scales the loss by GradScaler, which can't look at parameters that are sharded"
        return Why(reason=reason, fix='use amp-bf16 with parallel = "fsdp"')
    if stack.source == "wheels" and stack.torch:
        release = catalog.version_key(stack.torch)
        if release < _SHARDS:
            reason = f"torch {stack.torch} can't shard a model and keep its parameters apart (that came with 2.0)"
            return Why(reason=reason, fix='use parallel = "ddp" for this stack')
        if workload.device == "cpu" and release < _SHARDS_ON_CPUS:
            return Why(reason=f"torch {stack.torch} shards on GPUs only", fix="on a CPU use torch 2.6 or newer")
    return None


_SHARDS, _SHARDS_ON_CPUS = (2, 0), (2, 6)
"""The first torch releases whose FSDP shards so; see images/workload/sharded.py."""


def _why_not_split(stack: Stack, workload: Workload) -> Why | None:
    if not workload.trains:
        reason = f"parallel tp is for training: in mode {workload.mode} each process has the whole model"
        return Why(reason=reason, fix='use parallel = "ddp"')
    model = catalog.find(workload.model)
    if model is None or not model.shared:
        reason = f"parallel tp splits the matrices of Llama's, Mistral's and Qwen's listed models; {workload.model} is none"
        return Why(reason=reason, fix="use such a model, as llama-3.2-1b-shape, or fsdp")
    if workload.precision == "amp":
        reason = "precision amp scales the loss by GradScaler, which can't look at parameters that are split"
        return Why(reason=reason, fix='use amp-bf16 with parallel = "tp"')
    if workload.precision in IN_FLOAT8:
        return Why(reason="layers in float8 are not split here", fix='use parallel = "fsdp", or amp-bf16')
    if stack.source == "wheels" and stack.torch and catalog.version_key(stack.torch) < _SPLITS:
        reason = f"torch {stack.torch} can't split matrices as is done here (that came with 2.5)"
        return Why(reason=reason, fix="use torch 2.5 or newer")
    return None


_SPLITS = (2, 5)
"""The first torch release with torch.distributed.tensor."""


def why_not_shared(workload: Workload, devices: int) -> Why | None:
    """Return why so many devices can't split the model alike, or are too few for an operation; else None."""
    model = catalog.find(workload.model)
    if model and devices < model.devices:
        return Why(reason=f"{model.name} needs {model.devices} devices", fix="use counts of 2 and more")
    if workload.parallel != "tp" or model is None:
        return None
    uneven = [f"{number} {what}" for what, number in model.shared if number % devices]
    if not uneven:
        return None
    most = math.gcd(*(number for _, number in model.shared))
    counts = [str(count) for count in range(1, most + 1) if most % count == 0]
    reason = f"{model.name} has {' and '.join(uneven)}, which {devices} devices can't share alike"
    return Why(reason=reason, fix=f"use {' or '.join(counts)} devices, or another model")


def _why_not_compile(stack: Stack) -> Why | None:
    if stack.compile_python is None:
        return Why(
            reason=f"torch {stack.torch} has no torch.compile (it came with 2.0)", fix="leave compile out for this stack"
        )
    if catalog.version_key(stack.python or "0") > catalog.version_key(stack.compile_python):
        reason = f"torch.compile of torch {stack.torch} needs Python {stack.compile_python} or older, not {stack.python}"
        return Why(reason=reason, fix=f'python = "{stack.compile_python}" in the [[stack]]')
    return None
