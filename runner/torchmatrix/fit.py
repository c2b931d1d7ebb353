"""Does a stack, a workload or a set of GPUs fit this machine? Each no has its reason and its way out. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from torchmatrix import catalog
from torchmatrix.host import Gpu, Host
from torchmatrix.matrix import Matrix
from torchmatrix.stacks import Stack
from torchmatrix.workloads import Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """Why something can't run here, and the way out."""

    reason: str
    fix: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """What there is to run with: is a container engine chosen, which stacks are built, which indexes don't answer."""

    containers: bool
    built: Collection[str] = frozenset()
    unreachable: Collection[str] = frozenset()


def why_not_mixed(gpus: tuple[Gpu, ...]) -> Why | None:
    """Different GPU models in one set, or None."""
    names = sorted({gpu.name for gpu in gpus})
    if len(names) < 2:
        return None
    reason = f"mixes GPU models ({', '.join(names)}): a scale factor over them means nothing"
    return Why(reason=reason, fix="name GPUs of one model in [gpus] lists, or ask for it: [gpus] mixed = true")


def why_not_stack(stack: Stack, matrix: Matrix, host: Host, means: Means) -> Why | None:
    """Why this machine can't run this stack at all, or None."""
    return (
        _why_not_accelerator(stack, matrix, host)
        or _why_not_engine(stack, means)
        or _why_not_driver(stack, host)
        or _why_not_architecture(stack, host)
        or _why_not_index(stack, means)
    )


def _why_not_accelerator(stack: Stack, matrix: Matrix, host: Host) -> Why | None:
    have = f"{len(host.gpus)} x {host.gpus[0].name}" if host.gpus else "no GPU"
    if stack.accelerator == "cuda" and host.vendor != "nvidia":
        fix = "run it on a machine with an NVIDIA GPU and its driver; `nvidia-smi` must list it"
        return Why(reason=f"needs an NVIDIA GPU; this machine has {have}", fix=fix)
    if stack.accelerator == "rocm" and host.vendor != "amd":
        fix = "run it on a machine with an AMD GPU and the amdgpu driver; /dev/kfd must exist"
        return Why(reason=f"needs an AMD GPU; this machine has {have}", fix=fix)
    if stack.accelerator == "cpu" and host.gpus and matrix.cpus_when == "no-gpu":
        return Why(reason="CPU stacks run only where there is no GPU", fix='to run them here too: [cpus] when = "always"')
    return None


def _why_not_engine(stack: Stack, means: Means) -> Why | None:
    if stack.source == "image" and not means.containers:
        reason = f"{stack.image} is a container image, and no container engine is in use"
        return Why(reason=reason, fix="start Docker or set DOCKER_HOST, and don't ask for --engine local")
    return None


def _why_not_driver(stack: Stack, host: Host) -> Why | None:
    if stack.accelerator != "cuda" or not stack.variant or not host.driver:
        return None
    major = stack.variant.removeprefix("cu")[:2]
    needed = catalog.load().drivers.get(major)
    if needed and catalog.version_key(host.driver) < catalog.version_key(needed):
        reason = f"CUDA {major} needs NVIDIA driver {needed} or newer; this machine has {host.driver}"
        return Why(reason=reason, fix="update the driver, or use a stack with an older CUDA")
    return None


def _why_not_architecture(stack: Stack, host: Host) -> Why | None:
    if stack.source != "wheels" or not stack.torch or not stack.variant:
        return None
    compiled = catalog.compiled_for(stack.torch, stack.variant)
    alien = next((gpu for gpu in host.gpus if compiled and gpu.capability and not _runs_on(compiled, gpu.capability)), None)
    if alien is None:
        return None
    reason = f"torch {stack.torch}+{stack.variant} has no code for {alien.name} ({alien.capability})"
    near = nearest_stack(stack, host)
    return Why(reason=reason, fix=f"the nearest that has: {near}" if near else "use a vendor's image for this GPU")


def _runs_on(compiled: Collection[str], capability: str) -> bool:
    """A gfx name must be there itself; CUDA code runs on the same major capability with an equal or higher minor one."""
    if capability.startswith("gfx"):
        return capability in compiled
    major, minor = catalog.version_key(capability)
    return any((m := catalog.version_key(c))[0] == major and m[1] <= minor for c in compiled)


def nearest_stack(stack: Stack, host: Host) -> str | None:
    """The keys of the [[stack]] nearest to this one that runs on all GPUs of the host, as far as the catalog knows.

    The same release with another CUDA or ROCm first, then the oldest newer release, then the newest older one.
    """
    releases = list(catalog.load().releases.values())
    own = catalog.version_key(str(stack.torch))
    newer = [r for r in releases if catalog.version_key(r.torch) >= own]
    older = [r for r in reversed(releases) if catalog.version_key(r.torch) < own]
    kind = "cu" if stack.accelerator == "cuda" else "rocm"
    for release in newer + older:
        for variant in release.wheels:
            if variant.startswith(kind) and variant != "cpu" and _is_known_to_run(release.torch, variant, host):
                number = variant.removeprefix("rocm") if kind == "rocm" else f"{variant[2:-1]}.{variant[-1]}"
                key = "rocm" if kind == "rocm" else "cuda"
                return f'torch = "{release.torch}", {key} = "{number}"'
    return None


def _is_known_to_run(torch: str, variant: str, host: Host) -> bool:
    compiled = catalog.compiled_for(torch, variant)
    if compiled is None or not all(gpu.capability and _runs_on(compiled, gpu.capability) for gpu in host.gpus):
        return False
    needed = catalog.load().drivers.get(variant[2:4]) if variant.startswith("cu") else None
    return not needed or not host.driver or catalog.version_key(host.driver) >= catalog.version_key(needed)


def _why_not_index(stack: Stack, means: Means) -> Why | None:
    if stack.name in means.built or not stack.indexes:
        return None
    if all(index.url in means.unreachable for index in stack.indexes):
        reason = f"can't be built: no answer from {', '.join(index.url for index in stack.indexes)}"
        return Why(
            reason=reason, fix='mend the network or the proxy settings, or name a mirror: index = "URL" in the [[stack]]'
        )
    return None


def why_not_workload(stack: Stack, workload: Workload, host: Host) -> Why | None:
    """Why this stack can't run this workload on this machine, or None."""
    if workload.device == "cpu" and workload.precision in ("tf32", "amp"):
        return Why(reason=f"precision {workload.precision} needs a GPU", fix="on a CPU use fp32 or amp-bf16")
    if workload.precision == "tf32" and host.vendor == "amd":
        return Why(reason="tf32 is a mode of NVIDIA GPUs", fix="on AMD use fp32 or amp")
    if workload.precision == "tf32" and any(_older_than(gpu.capability, "8.0") for gpu in host.gpus):
        return Why(reason="tf32 needs an NVIDIA GPU of compute capability 8.0 or newer", fix="use fp32 or amp")
    if workload.compile and stack.source == "wheels":
        return _why_not_compile(stack)
    return None


def _why_not_compile(stack: Stack) -> Why | None:
    if stack.compile_python is None:
        return Why(reason=f"torch {stack.torch} has no torch.compile (it came with 2.0)", fix="leave compile out for it")
    if catalog.version_key(stack.python or "0") > catalog.version_key(stack.compile_python):
        reason = f"torch.compile of torch {stack.torch} needs Python {stack.compile_python} or older, not {stack.python}"
        return Why(reason=reason, fix=f'python = "{stack.compile_python}" in the [[stack]]')
    return None


def _older_than(capability: str | None, wanted: str) -> bool:
    return capability is not None and catalog.version_key(capability) < catalog.version_key(wanted)
