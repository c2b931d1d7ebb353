"""Find the GPUs of this machine, one vendor at a time: NVIDIA's through NVML, AMD's from the kernel's KFD topology."""

import importlib
import platform
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torchmatrix.core.files import text_of
from torchmatrix.machine import conditions, topology

# The words of a GPU's name: drivers, vendors and people spell one name in many ways, and one more word may mean another GPU.

_SPELLINGS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[™®]|\((?:tm|r)\)", ""),
        (r"\bmax[- ]?([pq])\b", r"max\1"),
        (r"(?<=\d)[ -]?gi?b\b", "gb"),
        (r"(?<![\w.])(\d{1,4})g(?![\w.])", r"\1gb"),  # neither A10G nor 1g.10gb
        (r"\b(geforce|rtx|gtx|quadro|radeon)(?=\d)", r"\1 "),
        (r"(?<=\b\d{4})(ti|[dm])?(super)?\b", r" \1 \2 "),
        (r"(?<=\d)(?=(?:sxm|pcie|nvl|oam)\d?\b)", " "),
    )
)
_WORD = re.compile(r"[a-z0-9]+(?:\.[a-z0-9]+)*")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)gb|(?:hbm|gddr)\w+")
_FORM = re.compile(r"sxm\d?|pcie|oam|gen\d")
SILENT = frozenset(
    (
        "nvidia", "geforce", "tesla", "amd", "instinct", "rtx", "gpu", "gpus", "card", "cards", "generation", "edition",
        "founders", "fe", "lhr", "oc", "nvlink", "gen3", "gen4", "gen5",
    )
)  # fmt: skip
"""Words that people add or leave out without meaning another GPU."""
MEMORY_TOLERANCE = 0.10
"""Drivers keep up to 9 % of a GPU's memory for themselves (ECC, firmware); its sister models differ by more."""


def name_words(text: str) -> tuple[str, ...]:
    """Split a name into words, such as ("nvidia", "a100", "sxm4", "80gb"), in lower case; "RTX4090Ti" is rtx, 4090 and ti."""
    plain = text.casefold()
    for pattern, replacement in _SPELLINGS:
        plain = pattern.sub(replacement, plain)
    return tuple(_WORD.findall(plain))


def gib_of_word(word: str) -> float | None:
    """Return the size that a word such as "80gb" means, in GiB, as vendors write it; None if it means none."""
    match = _MEMORY.fullmatch(word)
    return float(match[1]) if match and match[1] else None


def memory_error(size_gib: float, memory_bytes: int) -> float:
    """Return how far the memory that a driver reports is from a size, as a fraction of the latter."""
    return abs(memory_bytes / 2**30 - size_gib) / size_gib


def names_model(part: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """Check whether `part` of the words of a GPU's name says which model it is: it may omit only maker, memory and form."""
    rest = set(name) - set(part) - SILENT
    return not SILENT.issuperset(part) and all(_MEMORY.fullmatch(word) or _FORM.fullmatch(word) for word in rest)


_ABSENT = ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED")  # no reason to report where there's no device either
_HINTS = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "is NVIDIA's driver installed (in a container: passed in)? Try nvidia-smi",
    "NVML_ERROR_DRIVER_NOT_LOADED": "load the driver (sudo modprobe nvidia), then try nvidia-smi",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the driver was updated while it was loaded: reboot",
    "NVML_ERROR_NO_PERMISSION": "you need read and write access to /dev/nvidia*; ls -l /dev/nvidia* shows the owners",
}

LOST_HINT = "look for Xid in the kernel log (sudo dmesg); reset the GPU (sudo nvidia-smi --gpu-reset) or reboot"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU. `index` counts in PCI order; `uuid`: no other GPU of this machine has it, and all facts about a GPU are
    filed under it. `render_node` and `groups` (numeric ids) give access to AMD's.

    `numa_node`: of its PCI slot; `local_cpus`: the CPUs of that node, such as "0-15,32-47". `pcie`: as linked now, such as
    "gen5 x16 (max gen5 x16)". `clocks_max_mhz`: of its SMs. `gsp_firmware`: its version, or "off". `slice_of`: the UUID of the
    GPU that it is a MIG slice of. `partition_of`: the PCI domain, bus and device of the AMD GPU that it is a partition of.
    `repairs`: rows of its memory that were remapped; `memory_bus_bits`: its width. `iommu`, `acs`: who stands between it and
    memory (topology). The rest: see `conditions`.
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
    partition_of: str | None = None
    clocks_max_memory_mhz: int | None = None
    gsp_firmware: str | None = None
    application_clocks: str | None = None
    auto_boost: bool | None = None
    compute_mode: str | None = None
    mig: bool | None = None
    performance_level: str | None = None
    partitions: str | None = None
    repairs: str | None = None
    memory_bus_bits: int | None = None
    iommu: str | None = None
    acs: str | None = None


CONDITIONS = (
    "power_limit_watts", "ecc", "persistence", "application_clocks", "auto_boost", "compute_mode", "mig", "performance_level",
    "partitions",
)  # fmt: skip
"""The fields of a Gpu that can be changed while the machine runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorGpus:
    """The GPUs of one vendor, or those that a mask leaves. `called`: the names by which a mask may choose each."""

    gpus: tuple[Gpu, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()
    p2p: tuple[tuple[str, ...], ...] = ()
    driver: str | None = None
    cuda_driver: str | None = None
    called: tuple[tuple[str, ...], ...] = ()


def nvidia_gpus(notes: list[str], nvml: Any = None, sys_root: Path = Path("/sys"), dev_root: Path = Path("/dev")) -> VendorGpus:
    """Return NVIDIA's GPUs in PCI order, with the driver's version and the newest CUDA it supports; trouble goes to
    `notes`. `nvml`: like pynvml.
    """
    module, note = _open_nvml(nvml, dev_root / "nvidiactl")
    notes += [note] if note else []
    if module is None:
        return VendorGpus()
    try:
        return _list_nvidia_gpus(module, sys_root, notes)
    except module.NVMLError as error:
        notes.append(f"NVML failed while listing GPUs: {error}; {_hint(module, error)}")
        return VendorGpus()
    finally:
        module.nvmlShutdown()


def _open_nvml(nvml: Any, device: Path) -> tuple[Any, str | None]:
    """Return NVML, initialised, or None and the reason; no reason on a machine without NVIDIA's driver."""
    trouble = f"{device} exists, but its GPUs can't be used" if device.exists() else "NVIDIA's GPUs can't be used"
    try:
        module = nvml or importlib.import_module("pynvml")
    except ImportError as error:
        note = f"{trouble}: {error}; reinstall torchmatrix (it needs nvidia-ml-py)"
        return None, note if device.exists() else None
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        name = _hint_key(module, error)
        note = f"{trouble}: NVML says {error}; {_HINTS.get(name, 'try nvidia-smi')}"
        return None, note if device.exists() or name not in _ABSENT else None
    return module, None


def _hint_key(nvml: Any, error: Exception | str) -> str:
    """Return the name of an error's code, if there is a hint for it."""
    return next((name for name in _HINTS if getattr(nvml, name, None) == getattr(error, "value", "")), "")


def _hint(nvml: Any, why: Exception | str) -> str:
    """Return what to do about a device that can't be used: one that contradicts itself, or that answers with an error."""
    return _HINTS.get(_hint_key(nvml, why), LOST_HINT) if isinstance(why, nvml.NVMLError) else "update NVIDIA's driver"


def _list_nvidia_gpus(nvml: Any, sys_root: Path, notes: list[str]) -> VendorGpus:
    devices, dead = topology.find_devices(nvml, notes)
    notes += _dead_device_notes(nvml, devices, dead)
    wholes = list({device.number: device.whole for device in devices}.values())
    cuda = topology.ask(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    return VendorGpus(
        gpus=tuple(_nvidia_gpu(nvml, index, device, sys_root) for index, device in enumerate(devices)),
        links=topology.device_matrix(topology.nvidia_links(nvml, wholes), devices),
        p2p=topology.device_matrix(topology.nvidia_p2p(nvml, wholes), devices),
        driver=topology.ask(nvml, "nvmlSystemGetDriverVersion"),
        cuda_driver=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        called=tuple(device.called for device in devices),
    )


def _dead_device_notes(nvml: Any, devices: Sequence[topology.Device], dead: Sequence[topology.UnusableDevice]) -> list[str]:
    """Return a note for each device that can't be used. Raises NVMLError if none can."""
    if dead and not devices and isinstance(dead[0].why, nvml.NVMLError):
        raise dead[0].why
    left = f"{len(devices)} of {len(devices) + len(dead)} GPUs are used; gpu0 is the first of them"
    return [f"{device.what} can't be used: {device.why}; {_hint(nvml, device.why)}; {left}" for device in dead]


def _nvidia_gpu(nvml: Any, index: int, device: topology.Device, sys_root: Path) -> Gpu:
    """Describe a GPU, or a slice, which has a name, a UUID and memory of its own; the rest is its GPU's."""
    ask = partial(topology.ask, nvml)
    memory = ask("nvmlDeviceGetMemoryInfo", device.handle)
    capability, pci = (ask(f"nvmlDeviceGet{what}", device.whole) for what in ("CudaComputeCapability", "PciInfo"))
    bus = topology.as_text(pci.busId) if pci else None
    return Gpu(
        index=index,
        uuid=device.uuid,
        name=_nvidia_name(device, pci),
        vendor="nvidia",
        slice_of=device.slice_of,
        memory_bytes=memory.total if memory else None,
        capability=f"{capability[0]}.{capability[1]}" if capability else None,
        pci_bus=bus,
        vbios=ask("nvmlDeviceGetVbiosVersion", device.whole),
        # Not nvmlDeviceGetNumaNodeId: that is the node of the GPU's own memory, where it has one (Grace Hopper).
        **(_of_slot(sys_root, topology.sysfs_pci(sys_root, bus)) if bus else {}),
        pcie=topology.nvidia_pcie(nvml, device.whole),
        clocks_max_mhz=ask("nvmlDeviceGetMaxClockInfo", device.whole, nvml.NVML_CLOCK_SM),
        clocks_max_memory_mhz=ask("nvmlDeviceGetMaxClockInfo", device.whole, nvml.NVML_CLOCK_MEM),
        gsp_firmware=_gsp_firmware(ask, device.whole),
        memory_bus_bits=ask("nvmlDeviceGetMemoryBusWidth", device.whole),
        **conditions.of_nvidia(ask, nvml, device.whole),
    )


def _of_slot(sys_root: Path, device: Path) -> dict[str, Any]:
    """Return the fields that the folder of a PCI device in sysfs tells."""
    return {
        "numa_node": topology.pci_numa_node(device),
        "local_cpus": topology.pci_local_cpus(device),
        "iommu": topology.iommu_of(sys_root, device),
        "acs": topology.acs_of(device),
    }


def _nvidia_name(device: topology.Device, pci: Any) -> str:
    """Return the driver's name. It calls each product that it doesn't know "Graphics Device": two of these may differ."""
    if device.name and "Graphics Device" not in device.name:
        return device.name
    chip = getattr(pci, "pciDeviceId", None)
    return f"{device.name or 'NVIDIA GPU'} (device {chip >> 16:#06x})" if chip else f"unknown NVIDIA GPU {device.uuid}"


def _gsp_firmware(ask: conditions.Ask, gpu: Any) -> str | None:
    mode, version = (ask(f"nvmlDeviceGetGspFirmware{what}", gpu) for what in ("Mode", "Version"))
    return "off" if mode and not mode[0] else version


def conditions_of(gpus: Sequence[Gpu], sys_root: Path, by_uuid: dict[str, dict[str, Any]], nvml: Any = None) -> None:
    """Enter into `by_uuid`, by UUID, how each of these GPUs is set now; one that NVML doesn't know is left out."""
    by_uuid |= {gpu.uuid: conditions.of_amd(_amd_device(gpu, sys_root)) for gpu in gpus if gpu.vendor == "amd"}
    nvidia = [gpu for gpu in gpus if gpu.vendor == "nvidia"]
    module, _ = _open_nvml(nvml, Path("/dev/nvidiactl")) if nvidia else (None, None)
    if module is None:
        return
    for gpu in nvidia:
        with suppress(module.NVMLError):
            handle = module.nvmlDeviceGetHandleByUUID(gpu.slice_of or gpu.uuid)
            by_uuid[gpu.uuid] = conditions.of_nvidia(partial(topology.ask, module), module, handle)
    module.nvmlShutdown()


def _amd_device(gpu: Gpu, sys_root: Path) -> Path:
    return sys_root / "class/drm" / Path(gpu.render_node or "").name / "device"


def amd_gpus(sys_root: Path, dev_root: Path) -> VendorGpus:
    """Return AMD's GPUs in KFD's order, with the amdgpu driver's version."""
    nodes = topology.amd_nodes(sys_root)
    if not nodes:
        return VendorGpus()
    identified = enumerate(zip(nodes, _identities(nodes), strict=True))
    return VendorGpus(
        gpus=tuple(_amd_gpu(index, node, uuid, sys_root, dev_root) for index, (node, uuid) in identified),
        called=tuple(_unique_id(node) for node in nodes),
        links=tuple(map(tuple, topology.amd_links(sys_root))),
        p2p=tuple(map(tuple, topology.amd_p2p(sys_root))),
        driver=text_of(sys_root / "module/amdgpu/version") or f"kernel {platform.release()}",
    )


def _identities(nodes: Sequence[topology.Node]) -> list[str]:
    """Return for each GPU the first name that no other of this machine has: its unique id, its PCI address, its render node.

    In virtual machines the unique id is 0, and the partitions of a card may share it.
    """
    names = [
        [
            *_unique_id(node),
            *([f"PCI-{node.address}-{node.partition}" if node.partition else f"PCI-{node.address}"] if node.address else ()),
            f"renderD{node.properties.get('drm_render_minor', 0)}",
            f"KFD-{node.folder.name}",
        ]
        for node in nodes
    ]
    times = Counter(name for candidates in names for name in candidates)
    return [next(name for name in candidates if times[name] == 1) for candidates in names]


def _unique_id(node: topology.Node) -> tuple[str, ...]:
    unique = node.properties.get("unique_id", 0)
    return (f"GPU-{unique:016x}",) if unique else ()


def _amd_gpu(index: int, node: topology.Node, uuid: str, sys_root: Path, dev_root: Path) -> Gpu:
    minor = node.properties.get("drm_render_minor", "")
    slot = sys_root / f"bus/pci/devices/{node.address}"
    device = slot if node.address and slot.exists() else sys_root / f"class/drm/renderD{minor}/device"
    render = dev_root / "dri" / f"renderD{minor}"
    groups = set()
    for path in (render, dev_root / "kfd"):
        with suppress(OSError):
            groups.add(path.stat().st_gid)
    target = node.properties.get("gfx_target_version", 0)
    capability = f"gfx{target // 10000}{target // 100 % 100:x}{target % 100:x}" if target else None
    bank = text_of(node.folder / "mem_banks/0/properties") or ""
    size = re.search(r"size_in_bytes (\d+)", bank)
    return Gpu(
        index=index,
        uuid=uuid,
        name=_amd_name(node, device, capability) or f"unknown AMD GPU {uuid}",
        vendor="amd",
        memory_bytes=int(size.group(1)) if size else None,
        capability=capability,
        pci_bus=None if node.partition_of else node.address,
        partition_of=node.partition_of,
        render_node=str(render),
        groups=tuple(sorted(groups)),
        pcie=topology.sysfs_pcie(device),
        **_of_slot(sys_root, device),
        clocks_max_mhz=node.properties.get("max_engine_clk_fcompute") or None,
        vbios=text_of(device / "vbios_version"),
        **conditions.of_amd(device),
    )


def _amd_name(node: topology.Node, device: Path, capability: str | None) -> str | None:
    """Return the board's product name, else KFD's name of the chip, else the chip's number; None if unknown.

    KFD calls every GPU since MI300 and RDNA 3 "ip discovery": two of these may differ.
    """
    name, chip = text_of(device / "product_name") or text_of(node.folder / "name"), node.properties.get("device_id")
    if name and name != "ip discovery":
        return name
    return f"AMD {capability or 'GPU'} (device {chip:#06x})" if chip else None
