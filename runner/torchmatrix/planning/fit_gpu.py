"""Check whether a stack or a workload fits the GPUs and the driver of this machine, and find the stack that would. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from torchmatrix.facts.operations import MICRO, held_bytes
from torchmatrix.machine.host import Gpu, Host
from torchmatrix.machine.vendors import VENDORS
from torchmatrix.matrix import catalog
from torchmatrix.matrix.factors import BF16_MASTER
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import Workload

_FP32_BYTES = 4
_OPTIMIZER_BYTES = {"sgd": 4, "adamw": 8, "adamw-fused": 8}
"""State per fp32 parameter: SGD's momentum; AdamW's two moments (Loshchilov and Hutter, arXiv:1711.05101)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """Why something can't run here, and how to fix it."""

    reason: str
    fix: str


def why_not_driver(stack: Stack, host: Host) -> Why | None:
    """Return why the driver is too old for the stack's CUDA, or None.

    Within one CUDA major version any driver from its floor on will do ("minor version compatibility"). On data-centre GPUs
    an NGC image also runs on older drivers, of the branches that NVIDIA names for it, by the libraries that it brings
    ("forward compatibility"): https://docs.nvidia.com/deploy/cuda-compatibility/
    """
    if not stack.cuda or not host.driver or _runs_on_driver(stack.cuda, host.driver) or _runs_forward(stack, host):
        return None
    major = stack.cuda.split(".")[0]
    reason = f"CUDA {major} needs NVIDIA driver {catalog.load().drivers[major]} or newer; this machine has {host.driver}"
    ngc = catalog.ngc_image(stack.image)
    if ngc:
        branches = ", ".join(f"R{driver.split('.')[0]}" for driver in ngc.forward_compat)
        reason += f" (data-centre GPUs also run it on recent drivers of {branches})"
    near = nearest_stack(stack, host)
    return Why(reason=reason, fix="update the driver" + (f", or the nearest that it runs: {near}" if near else ""))


def why_not_architecture(stack: Stack, host: Host, others: Iterable[Gpu] = ()) -> Why | None:
    """Return why the stack has no wheels for the host's machine, or they or its image no code for a GPU of it; else None.

    `others`: GPUs that may be used in its place.
    """
    if _lacks_wheels(stack, host):
        near = nearest_stack(stack, host)
        reason = f"torch {stack.torch} has no {stack.variant} wheels for {host.architecture}"
        return Why(reason=reason, fix=f"the nearest that has: {near}" if near else "use a vendor's image for this machine")
    alien = next((gpu for gpu in host.gpus if gpu.capability and _has_code(stack, host, gpu) is False), None)
    if alien is None:
        return None
    what = f"{stack.image} (CUDA {stack.cuda})" if stack.image else f"torch {stack.torch}+{stack.variant}"
    if devices := _devices_of(stack):
        what += f" with code for {' and '.join(devices)}"
        fix = f'add its code: packages = ["torch[device-{alien.capability}]", "torchvision[device-{alien.capability}]"]'
    else:
        near = nearest_stack(stack, host)
        fix = f"the nearest that has: {near}" if near else "use a vendor's image for this GPU"
    if any(gpu.capability and _has_code(stack, host, gpu) for gpu in others):
        fix += ", or leave this GPU out: [gpus] lists"
    return Why(reason=f"{what} has no code for {alien.name} ({alien.capability})", fix=fix)


def why_not_memory(workload: Workload, gpus: Iterable[Gpu], devices: int = 1) -> Why | None:
    """Return why a GPU of a set of so many `devices` is certainly too small for the workload, or None."""
    needed = least_bytes(workload, devices)
    small = next((gpu for gpu in gpus if needed and gpu.memory_bytes is not None and gpu.memory_bytes < needed), None)
    if needed is None or small is None or small.memory_bytes is None:
        return None
    reason = (
        f"{workload.model} needs more than {needed / 2**30:.1f} GiB of GPU memory{_at(workload)}"
        f" ({_contents(workload)}); {small.name} has {small.memory_bytes / 2**30:.1f} GiB"
    )
    return Why(reason=reason, fix=f"use a GPU with more memory (choose it with [gpus] lists) or {_smaller(workload)}")


def why_not_host_memory(workload: Workload, processes: int, devices: int, host: Host) -> Why | None:
    """Return why the machine's memory is certainly too small for so many `processes` on its CPU, or None.

    `devices`: of the launch, on all nodes.
    """
    needed, memory = least_bytes(workload, devices), host.usable_memory_bytes
    if not needed or not memory or processes * needed <= memory:
        return None
    each = f"; {processes} processes hold one each" if processes > 1 else ""
    reason = (
        f"{workload.model} needs more than {needed / 2**30:.1f} GiB of memory{_at(workload)}"
        f" ({_contents(workload)}{each}); this machine has {memory / 2**30:.1f} GiB"
    )
    return Why(reason=reason, fix=f"use {_smaller(workload)}, or a machine with more memory")


def surprises(planned: Iterable[tuple[Stack, Workload, Iterable[Gpu]]]) -> list[str]:
    """Return notes on what may run otherwise than expected, or not at all, on the GPUs of the cells."""
    notes: set[str] = set()
    unknown: set[str] = set()
    for stack, workload, gpus in planned:
        named = {gpu.name: gpu.capability for gpu in gpus if gpu.vendor == "nvidia" and gpu.capability}
        if least_bytes(workload) is None:
            unknown.add(workload.model)
        for name, capability in named.items():
            notes.update(_surprises_of(stack, workload, name, capability))
    first, more = sorted(unknown)[:_MOST_NAMED], len(unknown) - _MOST_NAMED
    names = ", ".join(first) + (f" and {more} more" if more > 0 else "")
    last = [f"whether the memory is enough isn't known of {names}: no parameters are listed"] if names else []
    return sorted(notes) + last


def _surprises_of(stack: Stack, workload: Workload, gpu: str, capability: str) -> Iterator[str]:
    if workload.precision in _IN_BFLOAT16 and catalog.version_key(capability) < _HAS_BFLOAT16:
        yield f"{gpu} has no units for bfloat16: {workload.precision} runs there, slowly"
    if not (stack.torch and stack.variant):
        return
    if workload.compile and capability in catalog.not_assembled_for(stack.torch, stack.variant):
        yield f"{stack.name}: Triton's assembler doesn't know {gpu} ({capability}): torch.compile needs torch 2.10 or newer"
    if capability in _JETSONS:
        yield f"{gpu}: PyTorch's wheels are for Arm servers; on Jetson they need JetPack 7.2 or newer, else use NVIDIA's own"


_JETSONS = ("7.2", "8.7")
"""Xavier and Orin (CUDA C++ Programming Guide); from JetPack 7.2 on, Orin's CUDA is the one of Arm servers, as Thor's is."""
_IN_BFLOAT16 = ("amp-bf16", "bf16-weights", BF16_MASTER)
_HAS_BFLOAT16 = (8, 0)
"""The compute capability from which tensor cores take bfloat16 (CUDA C++ Programming Guide, compute capabilities)."""
_MOST_NAMED = 3


def _at(workload: Workload) -> str:
    """Return the batch that a bound is of: only the cache of a generation grows with it."""
    if workload.mode == MICRO:
        return ""
    is_one = workload.mode == "generate" and isinstance(workload.batch, int)
    return f" at batch {workload.batch}" if is_one else " at any batch size"


def _contents(workload: Workload) -> str:
    if workload.mode == MICRO:
        return "the arrays that it works on"
    if workload.trains:
        return "weights, gradients and the optimizer's state"
    return "weights and the cache of keys and values" if workload.mode == "generate" else "weights"


def _smaller(workload: Workload) -> str:
    return "smaller arrays" if workload.mode == MICRO else "a smaller model"


def least_bytes(workload: Workload, devices: int = 1) -> int | None:
    """Return the bytes of memory below which no GPU of so many `devices` runs the workload, a lower bound; None if the model
    isn't in the catalog. FSDP and tensor parallelism share them among the devices, after each had all weights.

    parameters × 4 bytes of fp32 weights (autocast keeps them so), and in training × 4 bytes of gradients and the
    optimizer's state besides: 4 (SGD with momentum) or 8 (AdamW). In half precision all takes half as much; with master
    weights 12 bytes of weights and gradients in both types, and all of the state. In generation the cache of keys and values
    comes on top. So do activations, buffers, the context and the libraries' workspaces, which aren't counted: what passes may
    still be out of memory. Of an operation: operations.held_bytes.
    """
    if workload.mode == MICRO:
        return held_bytes(workload.model, workload.factors)
    model = catalog.find(workload.model)
    parameters = model.parameters if model else None
    if model is None or parameters is None:
        return None
    parts = 2 if workload.precision in ("half", "bf16-weights", BF16_MASTER) else 1
    weights = parameters * _FP32_BYTES // parts
    if not workload.trains:
        return weights + _cache_bytes(workload, model) * 2 // parts
    trained = parameters * (2 * _FP32_BYTES + _OPTIMIZER_BYTES[workload.optimizer]) // parts
    if workload.precision == BF16_MASTER:
        trained = parameters * (3 * _FP32_BYTES + _OPTIMIZER_BYTES[workload.optimizer])
    return max(weights, trained // devices) if workload.parallel in ("fsdp", "tp") else trained


def _cache_bytes(workload: Workload, model: catalog.Model) -> int:
    """Return the bytes of a generation's cache in 16 bits; 0 of another mode. Batch "auto" is one sequence at least."""
    if workload.mode != "generate":
        return 0
    lengths = [workload.factors[name] for name in ("sequence_length", "output_length")]
    if None in lengths:
        return 0  # of a model that can't generate
    tokens = sum(map(int, map(str, lengths)))
    beyond = max(tokens - model.window, 0) * model.windowed_bytes_per_token
    return (model.kv_bytes_per_token * tokens - beyond) * (workload.batch if isinstance(workload.batch, int) else 1)


def nearest_stack(stack: Stack, host: Host) -> str | None:
    """Return the keys of the nearest [[stack]] that runs on all GPUs of the host, as far as the catalog knows.

    For an NGC image on NVIDIA's GPUs the newest such image. Else wheels: the same release with another CUDA or ROCm
    first, then the oldest newer release, then the newest older one. None without a GPU, or if the stack's torch isn't known.
    """
    if host.vendor == "nvidia" and catalog.ngc_image(stack.image) and (image := _newest_ngc_image(host)):
        return f'image = "{image}"'
    if host.vendor is None or stack.torch is None:
        return None
    current = catalog.version_key(stack.torch)
    releases = list(catalog.load().releases.values())
    newer = [r for r in releases if catalog.version_key(r.torch) >= current]
    older = [r for r in reversed(releases) if catalog.version_key(r.torch) < current]
    prefix = VENDORS[host.vendor].wheels
    for release in newer + older:
        for variant in release.wheels:
            if variant.startswith(prefix) and _is_known_to_run(release.torch, variant, host):
                return f'torch = "{release.torch}", {catalog.key_of(variant)}'
    return None


def _newest_ngc_image(host: Host) -> str | None:
    """Return the newest image whose content is known and which runs here without forward compatibility."""
    for image in reversed(catalog.ngc_images().values()):
        drives = not host.driver or _runs_on_driver(image.cuda, host.driver)
        if image.torch and drives and all(gpu.capability and _ngc_has_code(image.cuda, gpu.capability) for gpu in host.gpus):
            return image.reference
    return None


def _is_known_to_run(torch: str, variant: str, host: Host) -> bool:
    compiled = catalog.compiled_for(torch, variant, host.architecture)
    if compiled is None or not all(gpu.capability and _runs_on(compiled, gpu.capability) for gpu in host.gpus):
        return False
    return not variant.startswith("cu") or not host.driver or _runs_on_driver(catalog.cuda_of(variant), host.driver)


def _runs_on_driver(cuda: str, driver: str) -> bool:
    """Check whether the driver is at or above the floor of the CUDA's major version; a CUDA without a floor is not judged."""
    floor = catalog.load().drivers.get(cuda.split(".")[0])
    return floor is None or catalog.version_key(driver) >= catalog.version_key(floor)


def _runs_forward(stack: Stack, host: Host) -> bool:
    """Check whether the image brings what lets these GPUs use a CUDA newer than their driver."""
    image = catalog.ngc_image(stack.image)
    if image is None or not host.driver or not all(_is_for_data_centres(gpu) for gpu in host.gpus):
        return False
    driver = catalog.version_key(host.driver)
    return any(driver[:1] == (oldest := catalog.version_key(d))[:1] and driver >= oldest for d in image.forward_compat)


def _is_for_data_centres(gpu: Gpu) -> bool:
    words = re.split(r"[^A-Za-z0-9]+", gpu.name)
    return "RTX" not in words and not catalog.load().data_centre.isdisjoint(words)


def _lacks_wheels(stack: Stack, host: Host) -> bool:
    """Check whether PyTorch's index has no wheels of the stack for this machine; other indexes aren't known."""
    of_release = any(f"torch=={stack.torch}+{stack.variant}" in index.requirements for index in stack.indexes)
    return of_release and not catalog.has_wheels(str(stack.torch), str(stack.variant), host.architecture)


def _has_code(stack: Stack, host: Host, gpu: Gpu) -> bool | None:
    """Check whether the stack has code for a GPU in such a machine; None if that is not known."""
    if gpu.capability is None:
        return None
    if stack.image:
        return _ngc_has_code(stack.cuda, gpu.capability) if stack.cuda else None
    if devices := _devices_of(stack):
        return gpu.capability in devices
    compiled = catalog.compiled_for(stack.torch, stack.variant, host.architecture) if stack.torch and stack.variant else None
    return _runs_on(compiled, gpu.capability) if compiled else None


def _devices_of(stack: Stack) -> list[str]:
    """Return the GPUs for which the stack's packages bring code, as AMD's torch[device-gfx950] does; none: not known."""
    return sorted({name for requirement in stack.packages for name in re.findall(r"device-(gfx[0-9a-f]+)", requirement)})


def _ngc_has_code(cuda: str, capability: str) -> bool | None:
    """Check the row of [ngc_cuda] of the same major capability with the nearest minor one not above; None if there is none."""
    major, minor = catalog.version_key(capability)
    rows = {catalog.version_key(version): row for version, row in catalog.load().ngc_cuda.items()}
    below = [key for key in rows if key[0] == major and key[1] <= minor]
    return rows[max(below)].holds(cuda) if below else None


def _runs_on(compiled: Collection[str], capability: str) -> bool:
    """Check for the gfx name itself; CUDA code runs on the same major capability with an equal or higher minor one."""
    if capability.startswith("gfx"):
        return capability in compiled
    major, minor = catalog.version_key(capability)
    return any((m := catalog.version_key(c))[0] == major and m[1] <= minor for c in compiled)
