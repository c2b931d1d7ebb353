"""The GPUs of this machine, one vendor at a time: NVIDIA's through NVML, AMD's from the kernel's KFD topology."""

import importlib
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchmatrix.ground.files import text_of
from torchmatrix.machine import slices, topology

_ABSENT = ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED")  # nothing to tell where there's no device either
_HINTS = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "is NVIDIA's driver installed (in a container: passed in)? Try nvidia-smi",
    "NVML_ERROR_DRIVER_NOT_LOADED": "load the driver (sudo modprobe nvidia), then try nvidia-smi",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the driver was updated while it was loaded: reboot",
    "NVML_ERROR_NO_PERMISSION": "you need read and write access to /dev/nvidia*; ls -l /dev/nvidia* shows the owners",
}

LOST_HINT = "look for Xid in the kernel log (sudo dmesg); reset the GPU (sudo nvidia-smi --gpu-reset) or reboot"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU. `index` counts in PCI order; `render_node` and `groups` (numeric ids) give access to AMD's.

    `numa_node`: of its PCI slot; `local_cpus`: the CPUs of that node, such as "0-15,32-47". `pcie`: as linked now, such as
    "gen5 x16 (max gen5 x16)". `clocks_max_mhz`: of its SMs. `slice_of`: the UUID of the GPU that it is a MIG slice of.
    """

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
    numa_node: int | None = None
    local_cpus: str | None = None
    pcie: str | None = None
    clocks_max_mhz: int | None = None
    slice_of: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The GPUs of one vendor, all that a mask leaves of them."""

    gpus: tuple[Gpu, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()
    p2p: tuple[tuple[str, ...], ...] = ()
    driver: str | None = None
    cuda_driver: str | None = None


def nvidia_gpus(notes: list[str], nvml: Any = None, sys_root: Path = Path("/sys"), dev_root: Path = Path("/dev")) -> Found:
    """In PCI order, with the driver's version and the newest CUDA it supports; trouble goes to `notes`. `nvml`: like pynvml."""
    module, note = _open_nvml(nvml, dev_root / "nvidiactl")
    notes += [note] if note else []
    if module is None:
        return Found()
    try:
        return _nvidia_found(module, sys_root, notes)
    except module.NVMLError as error:
        notes.append(f"NVML failed while listing GPUs: {error}")
        return Found()
    finally:
        module.nvmlShutdown()


def _open_nvml(nvml: Any, device: Path) -> tuple[Any, str | None]:
    """NVML, initialised, or None and the reason; no reason on a machine without NVIDIA's driver."""
    trouble = f"{device} exists, but its GPUs can't be used" if device.exists() else "NVIDIA's GPUs can't be used"
    try:
        module = nvml or importlib.import_module("pynvml")
    except ImportError as error:
        note = f"{trouble}: {error}; reinstall torchmatrix (it needs nvidia-ml-py)"
        return None, note if device.exists() else None
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        name = next((name for name in _HINTS if getattr(module, name, None) == getattr(error, "value", "")), "")
        note = f"{trouble}: NVML says {error}; {_HINTS.get(name, 'try nvidia-smi')}"
        return None, note if device.exists() or name not in _ABSENT else None
    return module, None


def _nvidia_found(nvml: Any, sys_root: Path, notes: list[str]) -> Found:
    handles = _handles(nvml, notes)
    devices = slices.usable(nvml, handles, notes)
    cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
    return Found(
        gpus=tuple(_nvidia_gpu(nvml, index, device, handles, sys_root) for index, device in enumerate(devices)),
        links=slices.spread(topology.nvidia_links(nvml, handles), devices),
        p2p=slices.spread(topology.nvidia_p2p(nvml, handles), devices),
        driver=_decode(nvml.nvmlSystemGetDriverVersion()),
        cuda_driver=f"{cuda // 1000}.{cuda % 1000 // 10}",
    )


def _handles(nvml: Any, notes: list[str]) -> list[Any]:
    """Of all GPUs that answer; the others are noted. Raises NVMLError if none does."""
    handles, dead = [], []
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            nvml.nvmlDeviceGetUUID(handle)
            handles.append(handle)
        except nvml.NVMLError as error:
            dead.append((number, error))
    if dead and not handles:
        raise dead[0][1]
    left = f"{len(handles)} of {len(handles) + len(dead)} GPUs are used; gpu0 is the first of them"
    notes += [f"GPU {number} can't be used: {error}; {LOST_HINT}; {left}" for number, error in dead]
    return handles


def _nvidia_gpu(nvml: Any, index: int, device: slices.Usable, handles: Sequence[Any], sys_root: Path) -> Gpu:
    """A slice has a name, a UUID and memory of its own; the rest is its GPU's."""
    whole = handles[device.whole]

    def ask(function: str, *arguments: Any, of: Any = whole) -> Any:
        try:
            return _decode(getattr(nvml, function)(of, *arguments))
        except (nvml.NVMLError, AttributeError):
            return None

    memory, capability = ask("nvmlDeviceGetMemoryInfo", of=device.handle), ask("nvmlDeviceGetCudaComputeCapability")
    pci = ask("nvmlDeviceGetPciInfo")
    power, ecc, persistence = (
        ask("nvmlDeviceGetPowerManagementLimit"),
        ask("nvmlDeviceGetEccMode"),
        ask("nvmlDeviceGetPersistenceMode"),
    )
    bus = _decode(pci.busId) if pci else None
    return Gpu(
        index=index,
        uuid=_decode(nvml.nvmlDeviceGetUUID(device.handle)),
        name=_decode(nvml.nvmlDeviceGetName(device.handle)),
        vendor="nvidia",
        slice_of=_decode(nvml.nvmlDeviceGetUUID(whole)) if device.is_slice else None,
        memory_bytes=memory.total if memory else None,
        capability=f"{capability[0]}.{capability[1]}" if capability else None,
        pci_bus=bus,
        vbios=ask("nvmlDeviceGetVbiosVersion"),
        power_limit_watts=power / 1000 if power else None,
        ecc=bool(ecc[0]) if ecc else None,
        persistence=bool(persistence) if persistence is not None else None,
        # Not nvmlDeviceGetNumaNodeId: that is the node of the GPU's own memory, where it has one (Grace Hopper).
        numa_node=topology.pci_numa_node(topology.sysfs_pci(sys_root, bus)) if bus else None,
        local_cpus=topology.pci_local_cpus(topology.sysfs_pci(sys_root, bus)) if bus else None,
        pcie=topology.nvidia_pcie(nvml, whole),
        clocks_max_mhz=ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
    )


def _decode(value: Any) -> Any:
    """Older NVML bindings return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def amd_gpus(sys_root: Path, dev_root: Path) -> Found:
    """In KFD's order, with the amdgpu driver's version."""
    nodes = topology.amd_nodes(sys_root)
    if not nodes:
        return Found()
    return Found(
        gpus=tuple(_amd_gpu(i, node, properties, sys_root, dev_root) for i, (node, properties) in enumerate(nodes)),
        links=_frozen(topology.amd_links(sys_root)),
        p2p=_frozen(topology.amd_p2p(sys_root)),
        driver=text_of(sys_root / "module/amdgpu/version") or f"kernel {platform.release()}",
    )


def _amd_gpu(index: int, node: Path, properties: Mapping[str, str], sys_root: Path, dev_root: Path) -> Gpu:
    minor = properties.get("drm_render_minor", "")
    device = sys_root / f"class/drm/renderD{minor}/device"
    render = dev_root / "dri" / f"renderD{minor}"
    groups = set()
    for way_in in (render, dev_root / "kfd"):
        with suppress(OSError):
            groups.add(way_in.stat().st_gid)
    target = int(properties.get("gfx_target_version", "0"))
    bank = text_of(node / "mem_banks/0/properties") or ""
    size = re.search(r"size_in_bytes (\d+)", bank)
    return Gpu(
        index=index,
        uuid=f"GPU-{int(properties.get('unique_id', '0')):016x}",
        # KFD calls every GPU since MI300 and RDNA 3 "ip discovery"; boards that know their product say it to PCI.
        name=text_of(device / "product_name") or text_of(node / "name") or "AMD GPU",
        vendor="amd",
        memory_bytes=int(size.group(1)) if size else None,
        capability=f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}" if target else None,
        render_node=str(render),
        groups=tuple(sorted(groups)),
        numa_node=topology.pci_numa_node(device),
        local_cpus=topology.pci_local_cpus(device),
        pcie=topology.sysfs_pcie(device),
        clocks_max_mhz=int(properties.get("max_engine_clk_fcompute", "0")) or None,
    )


def _frozen(rows: topology.Matrix) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(row) for row in rows)


def masked(found: Found, names: tuple[str, ...], environment: Mapping[str, str], notes: list[str]) -> Found:
    """The GPUs that the first set variable of `names` lists, by index or UUID (or its beginning), in the host's order."""
    name = next((name for name in names if name in environment), None)
    gpus = found.gpus
    if name is None or not gpus:
        return found
    words = [word.strip() for word in environment[name].split(",") if word.strip()]
    kept = [i for i, g in enumerate(gpus) if any(str(g.index) == w or (g.uuid.startswith(w) and len(w) > 4) for w in words)]
    notes.append(f"{name} is set: {len(kept)} of {len(gpus)} GPUs are used; gpu0 is the first of them")
    links, p2p = (tuple(tuple(rows[i][j] for j in kept) for i in kept) for rows in (found.links, found.p2p))
    return replace(found, gpus=tuple(gpus[i] for i in kept), links=links, p2p=p2p)
