"""Can a runtime run this workload on this stack? Pure."""

from torchmatrix.machine.host import Host
from torchmatrix.matrix import catalog, extras
from torchmatrix.matrix.runtimes import BY_NAME, Runtime
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import Workload
from torchmatrix.planning.fit_gpu import Why


def why_not_runtime(stack: Stack, workload: Workload, host: Host) -> Why | None:
    """Why the runtime of `workload` can't run it, or None; also why the packages of its library aren't known."""
    name = workload.factors["runtime"]
    if name is None:
        return _why_not_extra(stack, workload)
    runtime = BY_NAME[str(name)]
    return (
        _why_not_device(stack, runtime, host)
        or _why_not_precision(workload, runtime)
        or (None if runtime.of_torch else _why_not_exported(workload, runtime))
        or _why_not_extra(stack, workload)
    )


def _why_not_device(stack: Stack, runtime: Runtime, host: Host) -> Why | None:
    if stack.accelerator not in (*runtime.accelerators, "any"):
        listed = " or ".join({"cpu": "CPU", "cuda": "CUDA", "rocm": "ROCm"}[one] for one in runtime.accelerators)
        return Why(reason=f"runtime {runtime.name} needs a {listed} stack", fix="narrow the workload: stacks = […]")
    if runtime.in_images and stack.source == "wheels":
        reason = f"runtime {runtime.name} needs TensorRT, whose libraries are no wheels of a package index"
        return Why(reason=reason, fix="use an image that holds it, such as nvcr.io/nvidia/pytorch")
    oldest = catalog.version_key(runtime.capability or "0")
    if any(gpu.capability and host.vendor == "nvidia" and catalog.version_key(gpu.capability) < oldest for gpu in host.gpus):
        reason = f"runtime {runtime.name} needs an NVIDIA GPU of compute capability {runtime.capability} or newer"
        return Why(reason=reason, fix="use another runtime")
    return None


def _why_not_precision(workload: Workload, runtime: Runtime) -> Why | None:
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
    """Of a graph that is exported once, in eval mode, and has no gradients."""
    if workload.compile:
        return Why(reason=f"runtime {runtime.name} compiles by itself, without torch.compile", fix="leave compile out")
    if not workload.factors["eval"]:
        return Why(reason=f"runtime {runtime.name} runs models in eval mode only", fix="leave eval out")
    if workload.factors["grad"] != "no_grad":
        return Why(reason=f"runtime {runtime.name} never records gradients, whatever grad says", fix="leave grad out")
    return None


def _why_not_extra(stack: Stack, workload: Workload) -> Why | None:
    name = extras.lacking(stack, workload)
    if name is None:
        return None
    reason = f"no packages of {name} are known for torch {stack.torch}+{stack.variant} and Python {stack.python}"
    fix = "choose stacks that have some (images/catalog.toml, [[extras]]), or name them: packages = […]"
    return Why(reason=reason, fix=fix)
