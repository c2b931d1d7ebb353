"""Describe this machine: its devices, its settings before a launch, its identity and its network."""

import fcntl
import hashlib
import hmac
import os
import platform
import re
import secrets
import socket
import struct
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torchmatrix.core import settings
from torchmatrix.core.files import text_of, write_whole
from torchmatrix.machine import conditions
from torchmatrix.machine.cpu import CoreGroup, board_name, core_groups, cpu_name, quota, within
from torchmatrix.machine.host_gpus import CONDITIONS, amd_gpus, conditions_of, nvidia_gpus
from torchmatrix.machine.host_gpus import Gpu as Gpu  # callers use it as host.Gpu
from torchmatrix.machine.intel import intel_gpus
from torchmatrix.machine.masks import masked

# Network: interfaces, ports and hardware.

_SIOCGIFADDR = 0x8915
"""Linux's request for the IPv4 address of an interface (netdevice(7))."""
_INFINIBAND = Path("/dev/infiniband")


def interface_to(address: str) -> str:
    """Return the interface whose address this machine uses towards `address` (a name or an IPv4 address); empty if unknown.

    Nothing is sent: a UDP socket only looks the route up.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            local = probe.getsockname()[0]
            return next((name for _, name in socket.if_nameindex() if _address_of(probe, name) == local), "")
    except OSError:
        return ""


def _address_of(probe: socket.socket, interface: str) -> str:
    with suppress(OSError):
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        return socket.inet_ntoa(answer[20:24])
    return ""


def free_port() -> int:
    """Return a TCP port that nothing listens on, on any address of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def fabric() -> tuple[str, ...]:
    """Return the device files by which programs use the network's hardware directly; none without such hardware."""
    return (str(_INFINIBAND),) if _INFINIBAND.exists() else ()


# The machine's identity: 16 hex digits that stay the same when GPUs move and when its name changes.
#
# A keyed hash (HMAC-SHA-256) of /etc/machine-id, as sd_id128_get_machine_app_specific(3) makes one: the id itself is
# confidential and is never recorded. Images are often cloned with it, so the permanent MAC address of the first PCI network
# card goes in too; what only root can read (DMI serial numbers) does not, since the same machine must be the same for every
# user. Without a machine-id: the DMI product UUID where it can be read, else a random id that is kept in the user's state
# folder.
#
# The setting `machine` (TORCHMATRIX_MACHINE) overrides all that: 16 hex digits as they are, of any other text the hash. Use it
# where an image is cloned with one network address, or to remain the same machine after a new installation.

_IDENTITY = re.compile(r"[0-9a-f]{16}")
_ID = re.compile(r"[0-9a-f]{32}")
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PLACEHOLDERS = frozenset({"03000200040005000006000700080009", "0123456789abcdef0123456789abcdef"})
"""Product UUIDs that a vendor wrote into all boards."""
_APPLICATION = b"torchmatrix machine"
_PERMANENT = "0"
"""The kernel's addr_assign_type of an address that is burnt into the card."""


def identity(root: Path = Path("/"), state: Path | None = None) -> str | None:
    """Return this machine's identity; None if nothing can be read and nothing stored. `root`: where /etc and /sys are."""
    if chosen := settings.load().machine:
        return as_identity(chosen)
    source = _machine_id(root / "etc/machine-id") or _product_uuid(root / "sys/class/dmi/id/product_uuid")
    if source is None:
        return _stored_identity((state or settings.state_folder()) / "machine")
    return _hash(source, _first_network_card(root / "sys/class/net"))


def board_identity(dmi: Path = Path("/sys/class/dmi/id")) -> str | None:
    """Return the hash of the main board's serial number, which mostly only root can read; None: nothing can be read."""
    serials = (text_of(dmi / name) or "" for name in ("board_serial", "product_serial"))
    plausible = (serial for serial in serials if any(map(str.isdigit, serial)) and len(set(serial)) > 2)
    return next((_hash(serial, "board") for serial in plausible), None)


def as_identity(text: str) -> str:
    """Return a chosen identity: 16 hex digits as they are, the hash of any other text."""
    return text if _IDENTITY.fullmatch(text) else _hash(text, "")


def _hash(key: str, more: str) -> str:
    return hmac.new(key.encode(errors="surrogateescape"), _APPLICATION + more.encode(), hashlib.sha256).hexdigest()[:16]


def _machine_id(path: Path) -> str | None:
    """Read machine-id. systemd writes "uninitialized" or nothing into images that get their id when they first start."""
    text = text_of(path) or ""
    return text if _ID.fullmatch(text) and set(text) != {"0"} else None


def _product_uuid(path: Path) -> str | None:
    text = text_of(path) or ""
    digits = text.lower().replace("-", "") if _UUID.fullmatch(text) else ""
    return digits if len(set(digits)) > 1 and digits not in _PLACEHOLDERS else None


def _first_network_card(folder: Path) -> str:
    """Return the permanent address of the card that comes first on the PCI bus; "" if there is none, as in most containers."""
    cards = []
    for card in folder.glob("*"):
        device, address = str((card / "device").resolve()), text_of(card / "address")
        is_inside = "/pci" in device and "/usb" not in device and (card / "device").exists()
        if is_inside and address and text_of(card / "addr_assign_type") == _PERMANENT:
            cards.append((device, text_of(card / "dev_port") or "0", address.lower()))
    return min(cards)[2] if cards else ""


def _stored_identity(path: Path) -> str | None:
    """Return the random identity in a file, which is made on first use; two processes that make it at once get the same."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        if not path.exists():
            write_whole(part, secrets.token_hex(8).encode())
            with suppress(FileExistsError):
                os.link(part, path)
            part.unlink()
    text = text_of(path) or ""
    return text if _IDENTITY.fullmatch(text) else None


PATIENCE_SECONDS = 5.0
"""How long to wait for a driver to report the settings of its GPUs."""
_UNKNOWN_PLACE = "the engine doesn't tell whether it runs on this machine, and is taken to run on another one"


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """This machine. `vendor`: "nvidia", "amd", "intel" or None; `cores`: one logical CPU of each physical core we may use, no
    more than `cpu_quota`, the CPUs' worth of time that we have; `core_groups`: the same, grouped by socket, NUMA node and type.
    `memory_bytes`: all; `memory_limit_bytes`: what of it we may use. None: no limit, or, where `limits_unseen`, unknown.

    `links` and `p2p`: a row and a column per GPU, with the labels of `topology`. `machine`: its identity, which its name
    is not; `board_id`: that of its main board, where it may be read. `numa`: CPUs and memory of each node; the other
    fields are described in `conditions`.
    """

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
    links: tuple[tuple[str, ...], ...] = ()
    p2p: tuple[tuple[str, ...], ...] = ()
    sockets: int | None = None
    smt: bool | None = None
    libc: str | None = None
    machine: str | None = None
    core_groups: tuple[CoreGroup, ...] = ()
    cpu_quota: float | None = None
    memory_limit_bytes: int | None = None
    limits_unseen: bool = False
    frequency_driver: str | None = None
    energy_preference: str | None = None
    clock_limits: str | None = None
    turbo: bool | None = None
    idle_states: str | None = None
    hugepages: str | None = None
    numa_balancing: bool | None = None
    mitigations: tuple[str, ...] | None = None
    microcode: str | None = None
    numa: tuple[str, ...] = ()
    board: str | None = None
    board_id: str | None = None
    firmware: str | None = None

    @property
    def gpus_in_words(self) -> str:
        """Return the GPUs in words, such as "2 x NVIDIA A100-SXM4-80GB, 2 x NVIDIA L4"; "no GPU" without one."""
        counted = Counter(gpu.name for gpu in self.gpus)
        return ", ".join(f"{count} x {name}" for name, count in counted.items()) or "no GPU"

    @property
    def usable_memory_bytes(self) -> int:
        """Return the memory, or what the control groups let this process use of it."""
        return min(self.memory_bytes, self.memory_limit_bytes or self.memory_bytes)

    @property
    def limits_in_words(self) -> str:
        """Return what this process's control groups let it use, or that they can't be seen; empty without a limit."""
        if self.limits_unseen:
            return "no limit of CPU time and memory is known: the control groups aren't mounted here (at /sys/fs/cgroup)"
        time = f"{self.cpu_quota:g} CPUs' worth of time" if self.cpu_quota is not None else ""
        limit = self.memory_limit_bytes
        memory = f"{limit / 2**30:.1f} of {self.memory_bytes / 2**30:.1f} GiB of memory" if limit is not None else ""
        limits = " and ".join(filter(None, (time, memory)))
        return limits and f"control groups let this process use {limits}"

    def as_record(self) -> dict[str, Any]:
        """Return the fields for the facts on disk, which have the identity in a field of its own."""
        return {name: value for name, value in asdict(self).items() if name != "machine"}


def detect() -> Host:
    """Describe this machine; what can't be read is None and, where it matters, stated in `notes`.

    In a job of a cluster the machine has the name that its node has there.

    A mask that a scheduler set (CUDA_VISIBLE_DEVICES and the like) is obeyed: other GPUs belong to somebody else.
    """
    notes: list[str] = []
    devices = masked(nvidia_gpus(notes), os.environ, notes)
    if not devices.gpus:
        devices = masked(amd_gpus(Path("/sys"), Path("/dev")), os.environ, notes)
        if devices.gpus and (override := os.environ.get("HSA_OVERRIDE_GFX_VERSION")):
            notes.append(f"HSA_OVERRIDE_GFX_VERSION={override} is set: stacks are judged by what the GPUs are, not by it")
    if not devices.gpus:
        devices = masked(intel_gpus(notes, Path("/sys"), Path("/dev")), os.environ, notes)
    cpus, limits = Path("/sys/devices/system/cpu"), quota()
    groups = within(core_groups(Path("/sys/devices"), os.sched_getaffinity(0)), limits.cpus)
    return Host(
        name=_safe_name(settings.node_name()),
        vendor=devices.gpus[0].vendor if devices.gpus else None,
        gpus=devices.gpus,
        links=devices.links,
        p2p=devices.p2p,
        driver=devices.driver,
        cuda_driver=devices.cuda_driver,
        cpu=cpu_name() or f"unknown CPU ({platform.machine()})",
        cores=tuple(sorted(core for group in groups for core in group.cores)),
        core_groups=groups,
        cpu_quota=limits.cpus,
        sockets=sockets(cpus),
        numa_nodes=numa_nodes(Path("/sys/devices/system/node")),
        numa=numa_layout(Path("/sys/devices/system/node")),
        board=board_name(Path("/")),
        board_id=board_identity(),
        firmware=_firmware(Path("/sys/class/dmi/id")),
        **conditions.of_host(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        memory_limit_bytes=limits.memory_bytes,
        limits_unseen=limits.unseen,
        kernel=platform.release(),
        os=_os_name(),
        libc=" ".join(platform.libc_ver()).strip() or None,
        architecture=platform.machine(),
        python=platform.python_version(),
        notes=tuple(notes),
        machine=identity(),
    )


def before_launch(host: Host, devices: Collection[str], root: Path = Path("/"), nvml: Any = None) -> Host:
    """Return `host` with its current settings, and those of the GPUs whose UUIDs are among `devices`.

    What the driver doesn't report, or doesn't report in time, is None.
    """
    gpus = [gpu for gpu in host.gpus if gpu.uuid in devices]
    answers: dict[str, dict[str, Any]] = {}
    thread = threading.Thread(target=conditions_of, args=(gpus, root / "sys", answers, nvml), daemon=True, name="conditions")
    thread.start()
    host_conditions = conditions.of_host(root)
    thread.join(timeout=PATIENCE_SECONDS)
    by_uuid = {gpu.uuid: answers.get(gpu.uuid, dict.fromkeys(CONDITIONS)) for gpu in gpus}
    return replace(host, **host_conditions, gpus=tuple(replace(gpu, **by_uuid.get(gpu.uuid, {})) for gpu in host.gpus))


def seen_through(host: Host, engine: Mapping[str, Any], is_here: bool | None) -> Host:
    """Return `host`, if the engine runs on it; else what the engine reports of its machine, the rest unknown.

    `engine`: its machine's Name, ID, KernelVersion, OperatingSystem, Architecture, NCPU and MemTotal. `is_here`: whether
    the engine runs on `host`; None if that is unknown.
    """
    if is_here:
        return host
    where = f"the engine runs on {engine.get('Name')}" if is_here is False else _UNKNOWN_PLACE
    note = f"{where}, whose GPUs can't be seen from here; to use them, run torchmatrix there"
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
        architecture=_ARCHITECTURES.get(name := str(engine.get("Architecture")), name),
        python=host.python,
        notes=(*host.notes, note),
        machine=as_identity(f"engine {engine['ID']}") if engine.get("ID") else None,
    )


_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Go's names of machines, which Podman uses, as the kernel writes them."""


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "host"


def _os_name() -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', text_of(Path("/etc/os-release")) or "", re.MULTILINE)
    return match.group(1) if match else platform.platform()


def sockets(cpus: Path) -> int | None:
    """Return the number of CPU packages; some virtual machines don't report it (-1)."""
    packages = {text_of(path) for path in cpus.glob("cpu[0-9]*/topology/physical_package_id")} - {None, "-1"}
    return len(packages) or None


def numa_nodes(nodes: Path) -> int:
    """Return the number of NUMA nodes with CPUs: the memory of a Grace Hopper's GPU, or of a CXL card, is a node without."""
    return len([node for node in nodes.glob("node[0-9]*") if text_of(node / "cpulist") != ""]) or 1


def numa_layout(nodes: Path) -> tuple[str, ...]:
    """Describe each node, such as "CPUs 0-31: 252 GiB"."""
    layout = []
    for node in sorted(nodes.glob("node[0-9]*"), key=lambda node: int(node.name[4:])):
        size = re.search(r"MemTotal:\s+(\d+) kB", text_of(node / "meminfo") or "")
        memory = f"{round(int(size[1]) / 2**20)} GiB" if size else "unknown memory"
        layout.append(f"CPUs {text_of(node / 'cpulist') or 'none'}: {memory}")
    return tuple(layout)


def _firmware(dmi: Path) -> str | None:
    """Return the version and the date of BIOS or UEFI."""
    return " of ".join(filter(None, (text_of(dmi / name) for name in ("bios_version", "bios_date")))) or None
