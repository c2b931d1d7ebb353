"""Describe how this machine's GPUs are linked, to each other and to the host, as NVML and the kernel report it.

A matrix has a row and a column per GPU, in the order of the handles (NVIDIA) or of KFD's nodes (AMD): "X" on the diagonal,
"n/a" where the link is unknown.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmatrix.core.files import text_of
from torchmatrix.machine.cpu import whole_number

Matrix = list[list[str]]
_Address = tuple[int, int, int]  # PCI domain, bus, device

# nvmlGpuTopologyLevel_t as labels of `nvidia-smi topo -m`; 0: two GPUs on one board. Constants of NVML's ABI are written
# out here, because pynvml's NVML_P2P_CAPS_INDEX_READ is a tuple by mistake: https://docs.nvidia.com/deploy/nvml-api/.
_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_READ, _NVLINK = 0, 2  # nvmlGpuP2PCapsIndex_t
_P2P = {0: "ok", 1: "chipset", 2: "gpu", 3: "topology", 4: "disabled", 5: "unsupported"}  # nvmlGpuP2PStatus_t
_GPU, _NPU, _SWITCH = 0, 1, 2  # nvmlIntNvLinkDeviceType_t
_MAX_LINKS = 18  # of NVLink 4; newer bindings know more

_IO_LINKS = {11: "XGMI", 2: "PCIE"}  # CRAT_IOLINK_TYPE_*, in drivers/gpu/drm/amd/amdkfd/kfd_crat.h of Linux; the best first
_NO_PEER_DMA = 1 << 4  # CRAT_IOLINK_FLAGS_NO_PEER_TO_PEER_DMA

_PCI_FOLDER = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ACS, _ACS_CONTROL, _REDIRECTS = 0x0D, 6, 0x04  # PCI_EXT_CAP_ID_ACS, _ACS_CTRL, _ACS_RR: include/uapi/linux/pci_regs.h
_EXTENDED, _MOST_CAPABILITIES, _ABSENT = 0x100, 64, 0xFFFFFFFF  # all ones: the device doesn't answer

_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # of PCIe, by GT/s


def nvidia_links(nvml: Any, handles: Sequence[Any]) -> Matrix:
    """Return the labels of `nvidia-smi topo -m`: NV<n> (n active NVLinks, through a switch too), PIX, PXB, PHB, NODE or SYS."""
    gpus = [_address(ask(nvml, "nvmlDeviceGetPciInfo", handle)) for handle in handles]
    ends = [_link_ends(nvml, handle, gpus) for handle in handles]

    def label(row: int, column: int) -> str:
        row_ends, column_ends, address = ends[row], ends[column], gpus[column]
        if row_ends is None or column_ends is None or address is None:
            return "n/a"
        if links := row_ends[address] or min(row_ends["switch"], column_ends["switch"]):
            return f"NV{links}"
        level = ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", handles[row], handles[column])
        return _ANCESTORS.get(level, "n/a")

    return _matrix(len(handles), label)


def nvidia_p2p(nvml: Any, handles: Sequence[Any]) -> Matrix:
    """Check whether a GPU (row) can read another's memory: "ok", or what is against it.

    "chipset", "gpu" or "topology" don't support it, "disabled" in the driver's settings, "unsupported" for another reason.
    """

    def label(row: int, column: int) -> str:
        for capability in (_READ, _NVLINK):  # the second for drivers that don't tell the first
            status = ask(nvml, "nvmlDeviceGetP2PStatus", handles[row], handles[column], capability)
            if status in _P2P:
                return _P2P[status]
        return "n/a"

    return _matrix(len(handles), label)


def nvidia_pcie(nvml: Any, handle: Any) -> str | None:
    """Return the PCIe link, such as "gen5 x16 (max gen5 x16)"; an idle GPU may show a lower generation than one at work."""
    current, most = (
        (
            ask(nvml, f"nvmlDeviceGet{which}PcieLinkGeneration", handle),
            ask(nvml, f"nvmlDeviceGet{which}PcieLinkWidth", handle),
        )
        for which in ("Curr", "Max")
    )
    return _pcie(current, most)


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A node of KFD that is a GPU, or a part of one. `address`: of the PCI device, such as "0000:05:00.0", None if not told.

    `partition`: which part of it; `partition_of`: domain, bus and device, None where it is the whole.
    """

    folder: Path
    properties: Mapping[str, int]
    address: str | None
    partition: int
    partition_of: str | None


def amd_nodes(sys_root: Path) -> list[Node]:
    """Return KFD's nodes that are GPUs, in its order. The other nodes are CPUs, or not ours to see.

    location_id has the PCI bus, device and function, and the partition from bit 28 on (in older kernels: as the function):
    kfd_topology_add_device() in drivers/gpu/drm/amd/amdkfd/kfd_topology.c of Linux.
    """
    folders = [node for node in (sys_root / "class/kfd/kfd/topology/nodes").glob("[0-9]*") if node.name.isdigit()]
    nodes = [(node, _properties(node / "properties")) for node in sorted(folders, key=lambda node: int(node.name))]
    gpus = [(node, properties) for node, properties in nodes if properties.get("simd_count", 0) > 0]
    cards = Counter(_card(properties) for _, properties in gpus)
    return [
        Node(
            folder=node,
            properties=properties,
            address=f"{card}.{properties['location_id'] & 7}" if (card := _card(properties)) else None,
            partition=(partition := properties.get("location_id", 0) >> 28),
            partition_of=card if partition or cards[card] > 1 or _is_partitioned(sys_root, card) else None,
        )
        for node, properties in gpus
    ]


def _is_partitioned(sys_root: Path, card: str | None) -> bool:
    """Check whether a card is partitioned: nothing else shows it where only one partition was given to this machine."""
    mode = text_of(sys_root / f"bus/pci/devices/{card}.0/current_compute_partition")
    return mode in ("DPX", "TPX", "QPX", "CPX")


def _card(properties: Mapping[str, int]) -> str | None:
    """Return PCI domain, bus and device."""
    location = properties.get("location_id")
    return f"{properties.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}" if location else None


def amd_links(sys_root: Path) -> Matrix:
    """Return "XGMI" or "PCIE" where KFD knows a link between GPUs; without one ("n/a") data goes through the host's memory."""

    def label(links: list[dict[str, int]]) -> str:
        types = {link.get("type", 0) for link in links}
        return next((name for link_type, name in _IO_LINKS.items() if link_type in types), "n/a")

    return _amd_matrix(sys_root, label)


def amd_p2p(sys_root: Path) -> Matrix:
    """Return "ok" where KFD knows a link from GPU to GPU, "disabled" where it forbids peer access over every one of them."""

    def label(links: list[dict[str, int]]) -> str:
        forbidden = [link.get("flags", 0) & _NO_PEER_DMA for link in links]
        return "n/a" if not links else "disabled" if all(forbidden) else "ok"

    return _amd_matrix(sys_root, label)


def pci_numa_node(device: Path) -> int | None:
    """Return the NUMA node that a PCI device's folder in sysfs names; None if there is none (-1) or it can't be read."""
    return whole_number(device / "numa_node")


def pci_local_cpus(device: Path) -> str | None:
    """Return the CPUs of that node, in the kernel's format, such as "0-15,32-47"; None where there is no node."""
    return text_of(device / "local_cpulist") or None if pci_numa_node(device) is not None else None


def sysfs_pcie(device: Path) -> str | None:
    """Return the PCIe link as nvidia_pcie does, from a PCI device's folder in sysfs, whose speeds read "32.0 GT/s PCIe"."""
    current, most = (
        (
            _GENERATIONS.get((text_of(device / f"{which}_link_speed") or "").split(" ")[0]),
            whole_number(device / f"{which}_link_width"),
        )
        for which in ("current", "max")
    )
    return _pcie(current, most)


def iommu_of(sys_root: Path, device: Path) -> str | None:
    """Return how the IOMMU treats what a PCI device reads and writes, in the kernel's words: "identity" (untouched), "DMA" or
    "DMA-FQ" (each address is translated); "off" without an IOMMU. None where it isn't told.

    https://docs.kernel.org/admin-guide/abi-testing.html, /sys/kernel/iommu_groups/<grp_id>/type
    """
    if kind := text_of(device / "iommu_group/type"):
        return kind
    groups = sys_root / "kernel/iommu_groups"
    with suppress(OSError):
        return None if any(groups.iterdir()) or not device.is_dir() else "off"
    return None


def acs_of(device: Path) -> str | None:
    """Return the ports of PCIe switches above a device that send what it asks of its peers up to the host (ACS's P2P request
    redirect), such as "0000:16:00.0"; "none" without one. None where it can't be read: a port's registers take root, and a
    virtual machine doesn't see its host's ports.
    """
    above = [folder for folder in device.resolve().parents if _PCI_FOLDER.fullmatch(folder.name)]
    controls = {port.name: _acs_control(port) for port in above[:-1]}  # the last one is the root port, not of a switch
    if not above or None in controls.values():
        return None
    return ", ".join(name for name, control in controls.items() if control and control & _REDIRECTS) or "none"


def _acs_control(port: Path) -> int | None:
    """Return the control register of ACS in a port's configuration space; 0 for a port without it, None if it isn't shown."""
    try:
        space = (port / "config").read_bytes()
    except OSError:
        return None
    place, left = _EXTENDED, _MOST_CAPABILITIES
    if len(space) < _EXTENDED + 4:
        return None
    while _EXTENDED <= place <= len(space) - 8 and left:
        header, left = int.from_bytes(space[place : place + 4], "little"), left - 1
        if header & 0xFFFF == _ACS:
            return int.from_bytes(space[place + _ACS_CONTROL : place + _ACS_CONTROL + 2], "little")
        if header == _ABSENT:
            return None
        place = header >> 20
    return 0 if left else None


def sysfs_pci(sys_root: Path, bus: str) -> Path:
    """Return the folder of the PCI device that NVML names such as "00000000:0A:00.0" (sysfs: "0000:0a:00.0",
    "10000:0a:00.0").
    """
    domain, _, rest = bus.lower().partition(":")
    return sys_root / "bus/pci/devices" / f"{domain.lstrip('0'):0>4}:{rest}"


def _matrix(size: int, label: Callable[[int, int], str]) -> Matrix:
    return [["X" if row == column else label(row, column) for column in range(size)] for row in range(size)]


def ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """Call a function of NVML; None where NVML refuses, pynvml has no such function, or the driver's text can't be decoded."""
    try:
        return as_text(getattr(nvml, function)(*arguments))
    except (nvml.NVMLError, AttributeError, UnicodeDecodeError):
        return None


def _address(pci: Any) -> _Address | None:
    return None if pci is None else (pci.domain, pci.bus, pci.device)


def _link_ends(nvml: Any, handle: Any, gpus: Sequence[_Address | None]) -> "Counter[_Address | str] | None":
    """Count the active NVLinks to each PCI address and to a "switch"; None if a link's state or end is unknown."""
    ends: Counter[_Address | str] = Counter()
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", _MAX_LINKS)):
        active = _is_link_active(nvml, handle, link)
        end = _link_end(nvml, handle, link, gpus) if active else None
        if active is None or (active and end is None):
            return None
        if end is not None:
            ends[end] += 1
    return ends


def _is_link_active(nvml: Any, handle: Any, link: int) -> bool | None:
    """Check whether the link is up. A GPU, a driver or a binding that doesn't know the link has none; other trouble: None."""
    try:
        return bool(nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED)
    except AttributeError:
        return False
    except nvml.NVMLError as error:
        absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return False if getattr(error, "value", None) in absent else None


def _link_end(nvml: Any, handle: Any, link: int, gpus: Sequence[_Address | None]) -> _Address | str | None:
    device_type = ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
    if device_type == _SWITCH:
        return "switch"
    address = _address(ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link))
    # Older drivers don't tell the type: an address that is none of the GPUs' may then be a switch or anything else.
    return address if device_type in (_GPU, _NPU) or address in gpus else None


def _pcie(current: tuple[int | None, ...], most: tuple[int | None, ...]) -> str | None:
    if None in current:
        return None
    limit = "" if None in most else f" (max gen{most[0]} x{most[1]})"
    return f"gen{current[0]} x{current[1]}{limit}"


def _amd_matrix(sys_root: Path, label: Callable[[list[dict[str, int]]], str]) -> Matrix:
    """Apply `label` to the links from node to node: io_links, and p2p_links (over PCIe, in newer kernels)."""
    nodes = [node.folder for node in amd_nodes(sys_root)]
    links = [[_properties(path) for path in sorted(node.glob("*_links/*/properties"))] for node in nodes]

    def label_of(row: int, column: int) -> str:
        return label([link for link in links[row] if link.get("node_to") == int(nodes[column].name)])

    return _matrix(len(nodes), label_of)


def _properties(path: Path) -> dict[str, int]:
    """Parse KFD's lines of a name and a number."""
    lines = [line.split() for line in (text_of(path) or "").splitlines()]
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}


# Slices of NVIDIA GPUs (Multi-Instance GPU): each is a device of its own, by its UUID.
#
# A GPU that is in MIG mode can't be used as a whole: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/.

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device that CUDA can use, by its own UUID and name. `whole`: its GPU, whose number among all GPUs is `number`.

    `slice_of`: the UUID of the GPU that it is only a part of. `called`: the names that CUDA_VISIBLE_DEVICES may use for it.
    """

    handle: Any
    uuid: str
    name: str
    whole: Any
    number: int
    slice_of: str | None
    called: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class UnusableDevice:
    """A GPU or a slice that can't be used, and why."""

    what: str
    why: Exception | str


def find_devices(nvml: Any, notes: list[str]) -> tuple[list[Device], list[UnusableDevice]]:
    """Return all GPUs, those in MIG mode replaced by their slices, and the devices that can't be identified.

    A GPU in MIG mode without a slice is left out and noted.
    """
    devices, dead = list[Device](), list[UnusableDevice]()
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            whole = nvml.nvmlDeviceGetHandleByIndex(number)
            parts = _slices(nvml, whole) if _is_sliced(nvml, whole) else None
        except (nvml.NVMLError, UnicodeDecodeError) as error:
            dead.append(UnusableDevice(what=f"GPU {number}", why=error))
            continue
        if parts == []:
            notes.append(
                f"GPU {number} is in MIG mode and has no slice, so nothing can use it: make one "
                f"(sudo nvidia-smi mig -i {number} -cgi PROFILE -C) or leave the mode (sudo nvidia-smi -i {number} -mig 0)"
            )
        for position, handle in enumerate([whole] if parts is None else parts):
            try:
                devices.append(_identify(nvml, number, whole, handle, is_first=position == 0))
            except (nvml.NVMLError, UnicodeDecodeError) as error:
                what = f"GPU {number}" if parts is None else f"slice {position} of GPU {number}"
                dead.append(UnusableDevice(what=what, why=error))
    return _without_twins(devices, dead)


def _identify(nvml: Any, number: int, whole: Any, handle: Any, is_first: bool) -> Device:
    """Identify a device. Raises NVMLError for one that can't tell its UUID and its name.

    Whoever names a GPU in MIG mode gets its first slice. Drivers before R470 know a slice by its GPU and its instances only:
    https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    """
    uuid, name = as_text(nvml.nvmlDeviceGetUUID(handle)), as_text(nvml.nvmlDeviceGetName(handle))
    if handle is whole:
        return Device(
            handle=handle, uuid=uuid, name=name, whole=whole, number=number, slice_of=None, called=(uuid, str(number))
        )
    gpu = as_text(nvml.nvmlDeviceGetUUID(whole))
    called = [uuid, *_instance_name(nvml, gpu, handle), *((gpu, str(number)) if is_first else ())]
    return Device(handle=handle, uuid=uuid, name=name, whole=whole, number=number, slice_of=gpu, called=tuple(called))


def _instance_name(nvml: Any, gpu: str, handle: Any) -> list[str]:
    try:
        return [f"MIG-{gpu}/{nvml.nvmlDeviceGetGpuInstanceId(handle)}/{nvml.nvmlDeviceGetComputeInstanceId(handle)}"]
    except (nvml.NVMLError, AttributeError):
        return []


def _without_twins(devices: list[Device], dead: list[UnusableDevice]) -> tuple[list[Device], list[UnusableDevice]]:
    """Remove devices that share a UUID: neither CUDA nor NVML can tell them apart, so none of them is usable."""
    times = Counter(device.uuid for device in devices)
    twins = [
        UnusableDevice(what=f"GPU {device.number}", why=f"another GPU has its UUID, {device.uuid}")
        for device in devices
        if times[device.uuid] > 1
    ]
    return [device for device in devices if times[device.uuid] == 1], dead + twins


def as_text(value: Any) -> Any:
    """Decode the bytes that older NVML bindings return."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def device_matrix(rows: Rows, devices: Sequence[Device]) -> tuple[tuple[str, ...], ...]:
    """Turn a matrix of the GPUs of `devices` into one of `devices` themselves.

    Slices have no links: neither NVLink nor peer access reaches them.
    """
    position = {number: row for row, number in enumerate(dict.fromkeys(device.number for device in devices))}

    def label(device: Device, other: Device) -> str:
        if device is other:
            return "X"
        return "n/a" if device.slice_of or other.slice_of else rows[position[device.number]][position[other.number]]

    return tuple(tuple(label(device, other) for other in devices) for device in devices)


def whole_of(nvml: Any, handle: Any) -> Any | None:
    """Return the GPU that a slice is a part of; None for a whole GPU."""
    try:
        return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    except (nvml.NVMLError, AttributeError):
        return None


def _is_sliced(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except (nvml.NVMLError, AttributeError):  # GPUs before Ampere, GeForce cards, older bindings
        return False


def _slices(nvml: Any, handle: Any) -> list[Any]:
    slices = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            slices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        except nvml.NVMLError as error:
            if getattr(error, "value", None) != nvml.NVML_ERROR_NOT_FOUND:  # indices have gaps
                raise
    return slices
