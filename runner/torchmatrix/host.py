"""Facts of this machine: GPUs, vendor, driver, CPU, memory. Nothing here changes anything."""

import os
import platform
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU. `index` counts in PCI order; `render_node` and `groups` (numeric ids) are AMD's way in."""

    index: int
    uuid: str
    name: str
    vendor: str
    memory_bytes: int | None = None
    capability: str | None = None
    pci_bus: str | None = None
    vbios: str | None = None
    power_limit_watts: float | None = None
    ecc: bool | None = None
    persistence: bool | None = None
    render_node: str | None = None
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """This machine. `vendor`: "nvidia", "amd" or None; `cores`: one logical CPU of each physical core we may use."""

    name: str
    vendor: str | None
    gpus: tuple[Gpu, ...]
    driver: str | None
    cuda_driver: str | None
    cpu: str
    cores: tuple[int, ...]
    numa_nodes: int
    governor: str | None
    memory_bytes: int
    kernel: str
    os: str
    architecture: str
    python: str
    notes: tuple[str, ...] = field(default=())

    def as_record(self) -> dict[str, Any]:
        """For the facts on disk."""
        return asdict(self)


def detect() -> Host:
    """Look at this machine; what can't be read is None and, where it matters, said in `notes`.

    A mask that a scheduler set (CUDA_VISIBLE_DEVICES and the like) is kept: other GPUs belong to somebody else.
    """
    notes: list[str] = []
    gpus, driver, cuda_driver = _nvidia(notes)
    gpus = _masked(gpus, ("CUDA_VISIBLE_DEVICES",), os.environ, notes)
    if not gpus:
        gpus, driver = _amd(Path("/sys"), Path("/dev"))
        gpus = _masked(gpus, ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), os.environ, notes)
    return Host(
        name=_safe_name(socket.gethostname()),
        vendor=gpus[0].vendor if gpus else None,
        gpus=gpus,
        driver=driver,
        cuda_driver=cuda_driver,
        cpu=_cpu_name(),
        cores=_physical_cores(Path("/sys/devices/system/cpu")),
        numa_nodes=len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1,
        governor=_text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        os=_os_name(),
        architecture=platform.machine(),
        python=platform.python_version(),
        notes=tuple(notes),
    )


def seen_through(host: Host, engine: Mapping[str, Any], over_network: bool) -> Host:
    """`host`, unless the engine runs on another machine: then what the engine tells of that one, the rest unknown.

    `engine`: Name, KernelVersion, OperatingSystem, Architecture, NCPU and MemTotal of Docker's info. `over_network`: it
    was reached by ssh or tcp, not by a socket of this machine.
    """
    same_kernel = engine["KernelVersion"] == host.kernel
    if same_kernel and not (over_network and _safe_name(str(engine["Name"])) != host.name):
        return host
    note = f"the engine runs on {engine.get('Name')}, whose GPUs can't be seen from here: to use them, run torchmatrix there"
    return Host(
        name=_safe_name(str(engine.get("Name"))),
        vendor=None,
        gpus=(),
        driver=None,
        cuda_driver=None,
        cpu=f"CPU of {engine.get('Name')} (model unknown from here)",
        cores=tuple(range(int(engine.get("NCPU") or 1))),
        numa_nodes=1,
        governor=None,
        memory_bytes=int(engine.get("MemTotal") or 0),
        kernel=str(engine.get("KernelVersion")),
        os=str(engine.get("OperatingSystem")),
        architecture=str(engine.get("Architecture")),
        python=host.python,
        notes=(*host.notes, note),
    )


def _masked(gpus: tuple[Gpu, ...], names: tuple[str, ...], environment: Mapping[str, str], notes: list[str]) -> tuple[Gpu, ...]:
    """The GPUs that the first set variable of `names` lists, by index or UUID (or its beginning), in the host's order."""
    name = next((name for name in names if name in environment), None)
    if name is None or not gpus:
        return gpus
    words = [word.strip() for word in environment[name].split(",") if word.strip()]
    kept = tuple(gpu for gpu in gpus if any(str(gpu.index) == w or (gpu.uuid.startswith(w) and len(w) > 4) for w in words))
    notes.append(f"{name} is set: {len(kept)} of {len(gpus)} GPUs are used; gpu0 is the first of them")
    return kept


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "host"


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _os_name() -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', _text(Path("/etc/os-release")) or "", re.MULTILINE)
    return match.group(1) if match else platform.platform()


def _cpu_name() -> str:
    match = re.search(r"^model name\s*:\s*(.*)$", _text(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return match.group(1) if match else platform.processor() or "unknown CPU"


def _physical_cores(cpus: Path) -> tuple[int, ...]:
    """The first allowed logical CPU of each physical core, in order (hyper-threads share what a benchmark measures)."""
    allowed = sorted(os.sched_getaffinity(0))
    first_of: dict[str, int] = {}
    for cpu in allowed:
        siblings = _text(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list") or str(cpu)
        first_of.setdefault(siblings, cpu)
    return tuple(sorted(first_of.values()))


def _nvidia(notes: list[str]) -> tuple[tuple[Gpu, ...], str | None, str | None]:
    """NVIDIA's GPUs through NVML (in PCI order), the driver version and the newest CUDA it supports."""
    try:
        import pynvml
    except ImportError:
        return (), None, None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if Path("/dev/nvidiactl").exists():
            notes.append(f"/dev/nvidiactl exists, but NVML can't be used: {error}")
        return (), None, None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        gpus = tuple(_nvidia_gpu(pynvml, index, handle) for index, handle in enumerate(handles))
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        return gpus, _decode(pynvml.nvmlSystemGetDriverVersion()), f"{cuda // 1000}.{cuda % 1000 // 10}"
    except pynvml.NVMLError as error:
        notes.append(f"NVML failed while listing GPUs: {error}")
        return (), None, None
    finally:
        pynvml.nvmlShutdown()


def _nvidia_gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    def ask(function: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, function)(handle, *arguments)
        except (nvml.NVMLError, AttributeError):
            return None

    memory, capability, pci = (
        ask("nvmlDeviceGetMemoryInfo"),
        ask("nvmlDeviceGetCudaComputeCapability"),
        ask("nvmlDeviceGetPciInfo"),
    )
    power, ecc, persistence = (
        ask("nvmlDeviceGetPowerManagementLimit"),
        ask("nvmlDeviceGetEccMode"),
        ask("nvmlDeviceGetPersistenceMode"),
    )
    return Gpu(
        index=index,
        uuid=_decode(nvml.nvmlDeviceGetUUID(handle)),
        name=_decode(nvml.nvmlDeviceGetName(handle)),
        vendor="nvidia",
        memory_bytes=memory.total if memory else None,
        capability=f"{capability[0]}.{capability[1]}" if capability else None,
        pci_bus=_decode(pci.busId) if pci else None,
        vbios=_decode(ask("nvmlDeviceGetVbiosVersion")),
        power_limit_watts=power / 1000 if power else None,
        ecc=bool(ecc[0]) if ecc else None,
        persistence=bool(persistence) if persistence is not None else None,
    )


def _decode(value: Any) -> Any:
    """Older NVML bindings return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _amd(sys_root: Path, dev_root: Path) -> tuple[tuple[Gpu, ...], str | None]:
    """AMD's GPUs from the kernel's KFD topology, in its order, and the amdgpu driver's version."""
    nodes = sorted(
        (sys_root / "class/kfd/kfd/topology/nodes").glob("[0-9]*"), key=lambda p: int(p.name) if p.name.isdigit() else 0
    )
    gpus: list[Gpu] = []
    for node in nodes:
        properties = dict(line.split(None, 1) for line in (_text(node / "properties") or "").splitlines() if " " in line)
        if int(properties.get("simd_count", "0")) > 0:
            gpus.append(_amd_gpu(len(gpus), node, properties, dev_root))
    driver = _text(sys_root / "module/amdgpu/version") or (f"kernel {platform.release()}" if gpus else None)
    return tuple(gpus), driver


def _amd_gpu(index: int, node: Path, properties: dict[str, str], dev_root: Path) -> Gpu:
    minor = properties.get("drm_render_minor", "").strip()
    render = dev_root / "dri" / f"renderD{minor}"
    groups = set()
    for device in (render, dev_root / "kfd"):
        with suppress(OSError):
            groups.add(device.stat().st_gid)
    target = int(properties.get("gfx_target_version", "0"))
    bank = _text(node / "mem_banks/0/properties") or ""
    size = re.search(r"size_in_bytes (\d+)", bank)
    return Gpu(
        index=index,
        uuid=f"GPU-{int(properties.get('unique_id', '0')):016x}",
        name=_text(node / "name") or "AMD GPU",
        vendor="amd",
        memory_bytes=int(size.group(1)) if size else None,
        capability=f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}" if target else None,
        render_node=str(render),
        groups=tuple(sorted(groups)),
    )
