"""Facts of this machine: GPUs, vendor, driver, CPU, memory. Nothing here changes anything."""

import os
import platform
import re
import socket
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torchmatrix.ground.files import text_of
from torchmatrix.machine import conditions
from torchmatrix.machine.cores import CoreGroup, core_groups, within
from torchmatrix.machine.cpu_name import board_name, cpu_name
from torchmatrix.machine.host_gpus import CONDITIONS, amd_gpus, conditions_of, nvidia_gpus
from torchmatrix.machine.host_gpus import Gpu as Gpu  # callers know it as host.Gpu
from torchmatrix.machine.identity import as_identity, board_identity, identity
from torchmatrix.machine.masks import masked
from torchmatrix.machine.quota import quota

PATIENCE_SECONDS = 5.0
"""A driver that takes longer to tell how its GPUs are set is not waited for."""
_UNTOLD = "the engine doesn't tell whether it runs on this machine, and is taken to run on another one"


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """This machine. `vendor`: "nvidia", "amd" or None; `cores`: one logical CPU of each physical core we may use, no more than
    `cpu_quota`, the CPUs' worth of time that we have; `core_groups`: the same in groups of those that are alike.
    `memory_bytes`: all; `memory_limit_bytes`: what of it we may use. None: no limit, or, where `limits_unseen`, nothing tells.

    `links` and `p2p`: a row and a column per GPU, in the words of `topology`. `machine`: its identity, which its name is not;
    `board_id`: that of its main board, where it may be read. `numa`: CPUs and memory of each node; the other fields without a
    word here are in the words of `conditions`.
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
        """Such as "2 x NVIDIA A100-SXM4-80GB, 2 x NVIDIA L4"; "no GPU" without one."""
        counted = Counter(gpu.name for gpu in self.gpus)
        return ", ".join(f"{count} x {name}" for name, count in counted.items()) or "no GPU"

    @property
    def limits_in_words(self) -> str:
        """What this process's control groups let it use, or that they can't be seen; empty without a limit."""
        if self.limits_unseen:
            return "no limit of CPU time and memory is known: the control groups aren't mounted here (at /sys/fs/cgroup)"
        time = f"{self.cpu_quota:g} CPUs' worth of time" if self.cpu_quota is not None else ""
        limit = self.memory_limit_bytes
        memory = f"{limit / 2**30:.1f} of {self.memory_bytes / 2**30:.1f} GiB of memory" if limit is not None else ""
        found = " and ".join(filter(None, (time, memory)))
        return found and f"control groups let this process use {found}"

    def as_record(self) -> dict[str, Any]:
        """For the facts on disk, which have the identity in a field of its own."""
        return {name: value for name, value in asdict(self).items() if name != "machine"}


def detect() -> Host:
    """Look at this machine; what can't be read is None and, where it matters, said in `notes`.

    In a job of Slurm it bears the name that its node has there.

    A mask that a scheduler set (CUDA_VISIBLE_DEVICES and the like) is kept: other GPUs belong to somebody else.
    """
    notes: list[str] = []
    found = masked(nvidia_gpus(notes), os.environ, notes)
    if not found.gpus:
        found = masked(amd_gpus(Path("/sys"), Path("/dev")), os.environ, notes)
    cpus, limits = Path("/sys/devices/system/cpu"), quota()
    groups = within(core_groups(Path("/sys/devices"), os.sched_getaffinity(0)), limits.cpus)
    return Host(
        name=_safe_name(os.environ.get("SLURMD_NODENAME") or socket.gethostname()),
        vendor=found.gpus[0].vendor if found.gpus else None,
        gpus=found.gpus,
        links=found.links,
        p2p=found.p2p,
        driver=found.driver,
        cuda_driver=found.cuda_driver,
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
    """`host` as it is set now, with the GPUs whose UUIDs are among `devices`.

    What the driver refuses to tell, or doesn't tell in time, is None.
    """
    asked = [gpu for gpu in host.gpus if gpu.uuid in devices]
    found: dict[str, dict[str, Any]] = {}
    ask = partial(conditions_of, asked, root / "sys", found, nvml)
    thread = threading.Thread(target=ask, daemon=True, name="conditions")
    thread.start()
    own = conditions.of_host(root)
    thread.join(timeout=PATIENCE_SECONDS)
    known = {gpu.uuid: found.get(gpu.uuid, dict.fromkeys(CONDITIONS)) for gpu in asked}
    return replace(host, **own, gpus=tuple(replace(gpu, **known.get(gpu.uuid, {})) for gpu in host.gpus))


def seen_through(host: Host, engine: Mapping[str, Any], is_here: bool | None) -> Host:
    """`host`, if the engine runs on it (None: that can't be told); else what the engine tells of its machine, the rest unknown.

    `engine`: its machine's Name, ID, KernelVersion, OperatingSystem, Architecture, NCPU and MemTotal.
    """
    if is_here:
        return host
    where = f"the engine runs on {engine.get('Name')}" if is_here is False else _UNTOLD
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
        architecture=str(engine.get("Architecture")),
        python=host.python,
        notes=(*host.notes, note),
        machine=as_identity(f"engine {engine['ID']}") if engine.get("ID") else None,
    )


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "host"


def _os_name() -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', text_of(Path("/etc/os-release")) or "", re.MULTILINE)
    return match.group(1) if match else platform.platform()


def sockets(cpus: Path) -> int | None:
    """How many CPU packages there are; some virtual machines don't say (-1)."""
    packages = {text_of(path) for path in cpus.glob("cpu[0-9]*/topology/physical_package_id")} - {None, "-1"}
    return len(packages) or None


def numa_nodes(nodes: Path) -> int:
    """How many NUMA nodes have CPUs: the memory of a Grace Hopper's GPU, or of a CXL card, is a node without."""
    return len([node for node in nodes.glob("node[0-9]*") if text_of(node / "cpulist") != ""]) or 1


def numa_layout(nodes: Path) -> tuple[str, ...]:
    """Such as "CPUs 0-31: 252 GiB" of each node."""
    found = []
    for node in sorted(nodes.glob("node[0-9]*"), key=lambda node: int(node.name[4:])):
        size = re.search(r"MemTotal:\s+(\d+) kB", text_of(node / "meminfo") or "")
        memory = f"{round(int(size[1]) / 2**20)} GiB" if size else "unknown memory"
        found.append(f"CPUs {text_of(node / 'cpulist') or 'none'}: {memory}")
    return tuple(found)


def _firmware(dmi: Path) -> str | None:
    """The version and the date of BIOS or UEFI."""
    return " of ".join(filter(None, (text_of(dmi / name) for name in ("bios_version", "bios_date")))) or None
