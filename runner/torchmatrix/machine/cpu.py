"""Describe this machine's CPU: its cores and their layout, its name, and the share of it that this process may use."""

import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from torchmatrix.core.files import text_of

# The cores that a benchmark may use, in groups: a group's are of one socket, one NUMA node and one type.

ALIKE = 0.8
"""Cores are of one type if the capacity or highest clock of each is at least this share of the fastest one's. Our own decision:
the favoured cores of one type differ by a few per cent, efficiency or dense cores by a third and more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreGroup:
    """`cores`: one logical CPU of each; hyper-threads share what a benchmark measures. `kind`: 0 are the fastest.

    `socket`, `node`: None if the kernel doesn't say.
    """

    cores: tuple[int, ...]
    socket: int | None = None
    node: int | None = None
    kind: int = 0


def core_groups(devices: Path, allowed: Iterable[int]) -> tuple[CoreGroup, ...]:
    """The groups, the fastest cores first. `devices`: sysfs' folder of devices; `allowed`: the logical CPUs that we may use."""
    cpus = devices / "system/cpu"
    cores = _first_of_each(cpus, sorted(allowed))
    kinds, nodes = _kinds(devices, cores), _nodes(devices / "system/node")

    def place(core: int) -> tuple[int, int, int]:
        socket = _whole(cpus / f"cpu{core}/topology/physical_package_id")
        return kinds[core], -1 if socket is None else socket, nodes.get(core, -1)

    return tuple(
        CoreGroup(cores=tuple(members), socket=socket if socket >= 0 else None, node=node if node >= 0 else None, kind=kind)
        for (kind, socket, node), members in groupby(sorted(cores, key=lambda core: (place(core), core)), place)
    )


def within(groups: Sequence[CoreGroup], cpus: float | None) -> tuple[CoreGroup, ...]:
    """So many of the cores as have time for all of it, at least one, from the first groups on; None: no limit of time."""
    left = sum(len(group.cores) for group in groups) if cpus is None else max(1, int(cpus))
    found = []
    for group in groups:
        kept, left = group.cores[:left], left - len(group.cores[:left])
        found += [CoreGroup(cores=kept, socket=group.socket, node=group.node, kind=group.kind)] if kept else []
    return tuple(found)


def kinds_of(speeds: Mapping[int, int]) -> dict[int, int]:
    """Each core's type, by how fast it is. Pure."""
    found: dict[int, int] = {}
    kind, fastest = -1, 0
    for core, speed in sorted(speeds.items(), key=lambda pair: -pair[1]):
        if kind < 0 or speed < ALIKE * fastest:
            kind, fastest = kind + 1, speed
        found[core] = kind
    return found


def cpus_in(listed: str) -> set[int]:
    """The numbers in the kernel's words, such as "0-3,8"."""
    parts = [part.partition("-") for part in listed.split(",") if part]
    return {number for first, _, last in parts for number in range(int(first), int(last or first) + 1)}


def _first_of_each(cpus: Path, allowed: Sequence[int]) -> list[int]:
    """The first allowed logical CPU of each physical core."""
    first_of: dict[str, int] = {}
    for cpu in allowed:
        first_of.setdefault(text_of(cpus / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu), cpu)
    return sorted(first_of.values())


def _kinds(devices: Path, cores: Collection[int]) -> dict[int, int]:
    """By Intel's list of efficiency cores, else by capacity (ARM), else by the highest clock; all 0 if nothing tells."""
    if efficient := cpus_in(text_of(devices / "cpu_atom/cpus") or ""):
        return kinds_of({core: 0 if core in efficient else 1 for core in cores})
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        speeds = {core: speed for core in cores if (speed := _whole(devices / f"system/cpu/cpu{core}/{name}"))}
        if len(speeds) == len(cores):
            return kinds_of(speeds)
    return dict.fromkeys(cores, 0)


def _nodes(folder: Path) -> dict[int, int]:
    """The NUMA node of each CPU."""
    lists = {path: text_of(path / "cpulist") or "" for path in folder.glob("node[0-9]*")}
    return {cpu: int(path.name[4:]) for path, listed in lists.items() for cpu in cpus_in(listed)}


def _whole(path: Path) -> int | None:
    text = text_of(path) or ""
    return int(text) if text.isdigit() else None


# What this machine's CPU is called: by the kernel, or where it has no name, by the kind of its cores and by the board.

_NAMES = ("model name", "cpu model", "cpu", "uarch")
"""Fields of /proc/cpuinfo: of x86, MIPS and LoongArch, POWER, RISC-V. ARM has a name there in a few kernels only."""
_ARCHITECTURE = re.compile(r"ARMv\d", re.IGNORECASE)
"""What those kernels call every CPU: "ARMv8 Processor rev 1 (v8l)"."""
_IMPLEMENTERS = {
    0x41: "Arm", 0x42: "Broadcom", 0x43: "Cavium", 0x46: "Fujitsu", 0x48: "HiSilicon", 0x4E: "NVIDIA", 0x51: "Qualcomm",
    0x61: "Apple", 0x6D: "Microsoft", 0x70: "Phytium", 0xC0: "Ampere",
}  # fmt: skip
_PARTS = {
    0x41: {
        0xD03: "Cortex-A53", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57", 0xD08: "Cortex-A72", 0xD09: "Cortex-A73",
        0xD0A: "Cortex-A75", 0xD0B: "Cortex-A76", 0xD0C: "Neoverse-N1", 0xD0D: "Cortex-A77", 0xD40: "Neoverse-V1",
        0xD41: "Cortex-A78", 0xD42: "Cortex-A78AE", 0xD44: "Cortex-X1", 0xD46: "Cortex-A510", 0xD47: "Cortex-A710",
        0xD48: "Cortex-X2", 0xD49: "Neoverse-N2", 0xD4A: "Neoverse-E1", 0xD4D: "Cortex-A715", 0xD4E: "Cortex-X3",
        0xD4F: "Neoverse-V2", 0xD80: "Cortex-A520", 0xD81: "Cortex-A720", 0xD82: "Cortex-X4", 0xD83: "Neoverse-V3AE",
        0xD84: "Neoverse-V3", 0xD85: "Cortex-X925", 0xD87: "Cortex-A725", 0xD8E: "Neoverse-N3",
    },
    0x42: {0x516: "ThunderX2"},
    0x43: {0x0A1: "ThunderX", 0x0AF: "ThunderX2"},
    0x46: {0x001: "A64FX", 0x003: "MONAKA"},
    0x48: {0xD01: "TaiShan-v110", 0xD02: "TaiShan-v120"},
    0x4E: {0x003: "Denver 2", 0x004: "Carmel", 0x010: "Olympus"},
    0x6D: {0xD49: "Azure Cobalt 100"},
    0xC0: {0xAC3: "Ampere-1", 0xAC4: "Ampere-1a"},
}  # fmt: skip
"""ARM's cores by implementer and part, as in sys-utils/lscpu-arm.c of https://github.com/util-linux/util-linux."""
_PLACEHOLDERS = re.compile(
    r"(?i)((system|product|base ?board|name|manufacturer|version)[ _-]*)+|to be filled.*|default string|o\.?e\.?m\.?"
    r"|not (specified|applicable|available)|unknown?|\[?empty\]?|none|n/?a|undefined|invalid|[0x. -]*"
)
"""What vendors leave in DMI."""


def cpu_name(root: Path = Path("/")) -> str | None:
    """Such as "AMD EPYC 9654 96-Core Processor" or "Arm Neoverse-V2 (Supermicro ARS-111GL-NHR)"; None: nothing tells it.

    A core's kind says neither how fast it is clocked nor how large its caches are, so the board is named beside it.
    """
    fields = _fields(text_of(root / "proc/cpuinfo") or "")
    name = next((name for key in _NAMES for name in fields.get(key, ()) if not _ARCHITECTURE.match(name)), None)
    if name:
        return name
    kinds = zip(fields.get("cpu implementer", ()), fields.get("cpu part", ()), strict=False)
    cores = " + ".join(dict.fromkeys(_core(*kind) for kind in kinds))
    board = board_name(root)
    return f"{cores} ({board})" if cores and board else cores or board


def _fields(cpuinfo: str) -> dict[str, list[str]]:
    """The values of each field, of all CPUs. Names in small letters: LoongArch has a "Model Name"."""
    found: dict[str, list[str]] = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon and value.strip():
            found.setdefault(key.strip().lower(), []).append(value.strip())
    return found


def _core(implementer: str, part: str) -> str:
    """MIDR_EL1's numbers in words, or as they are."""
    try:
        maker, kind = int(implementer, 16), int(part, 16)
    except ValueError:
        return f"ARM core {implementer} {part}"
    vendor = _IMPLEMENTERS.get(maker, f"implementer {maker:#04x}")
    return f"{vendor} {_PARTS.get(maker, {}).get(kind, f'part {kind:#05x}')}"


def board_name(root: Path) -> str | None:
    """By the device tree, or by DMI; what a vendor didn't fill in is no name."""
    tree = (text_of(root / "proc/device-tree/model") or "").strip("\0 ")
    dmi = [text_of(root / "sys/class/dmi/id" / name) or "" for name in ("sys_vendor", "product_name")]
    named = [word for word in dmi if not _PLACEHOLDERS.fullmatch(word)]
    return tree or (" ".join(named) if named and not _PLACEHOLDERS.fullmatch(dmi[1]) else None)


# What control groups let this process use, of versions 1 and 2: a share of the CPUs' time, and memory.
#
# A limit of any group above holds, too: all that can be seen are read, which within a cgroup namespace are those below its root
# (https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/scheduler/sched-bwc.html; pods have both). Which
# CPUs a group may use needs no look: the kernel keeps a process's affinity within them.

_NO_LIMIT = 1 << 60
"""Version 1 writes the largest number of pages for no limit of memory."""
_OF_ALL_ABOVE = re.compile(r"^hierarchical_memory_limit (\d+)$", re.MULTILINE)
_OWN = re.compile(r"^\d+:([^:\n]*):([^\n]*)$", re.MULTILINE)
_MOUNT = re.compile(r"^\d+ \d+ \d+:\d+ ([^ \n]+) ([^ \n]+) [^\n]* - (cgroup2?) [^ \n]* ([^ \n]+)$", re.MULTILINE)
"""Lines of proc(5). The kernel writes a folder's name as it is, whatever ends a line elsewhere: other lines may be anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """`cpus`: how many CPUs' worth of time; `memory_bytes`: of all processes together; None: no limit.

    `groups`: the folders of those that limit the time. `unseen`: there are groups, but none is mounted, so that nothing tells.
    """

    cpus: float | None = None
    memory_bytes: int | None = None
    groups: tuple[Path, ...] = ()
    unseen: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Throttled:
    """How often, and for how long, processes had to wait since their groups are there because one had used up its time."""

    periods: int
    seconds: float


def quota(root: Path = Path("/")) -> Quota:
    """The tightest limits. `root`: where /proc and /sys are."""
    own = _own(root)
    seen = _seen(root, own)
    groups = tuple(dict.fromkeys(group for found in seen.values() for group in found))
    cpus = {group: found for group in groups if (found := _cpus(group)) is not None}
    memory = [found for group in groups for found in _memory(group)]
    return Quota(
        cpus=min(cpus.values(), default=None),
        memory_bytes=min(memory, default=None),
        groups=tuple(cpus),
        unseen=not {name if name in own else "" for name in ("cpu", "memory")} & own.keys() <= seen.keys(),
    )


def usable_cpus() -> int:
    """How many processes of this command may work at once: one for each CPU that it may use, or for a part of one."""
    allowed, time = len(os.sched_getaffinity(0)), quota().cpus
    return allowed if time is None else max(1, min(allowed, math.ceil(time)))


def throttled(found: Quota) -> Throttled | None:
    """Of all groups: each may be the one that holds a launch up. None without a limit of time, or if none tells."""
    told = [one for group in found.groups if (one := _throttled(group)) is not None]
    return Throttled(periods=sum(one.periods for one in told), seconds=sum(one.seconds for one in told)) if told else None


def _own(root: Path) -> dict[str, str]:
    """This process's group by controller; that of version 2 by ""."""
    own: dict[str, str] = {}
    for controllers, name in _OWN.findall(text_of(root / "proc/self/cgroup") or ""):
        own |= dict.fromkeys(controllers.split(","), name)
    return own


def _seen(root: Path, own: Mapping[str, str]) -> dict[str, list[Path]]:
    """By controller the folders of the own group and of those above it, where they are mounted.

    A mount that begins above the root of a namespace doesn't show where the own group is.
    """
    found: dict[str, list[Path]] = {}
    for *folders, filesystem, options in _MOUNT.findall(text_of(root / "proc/self/mountinfo") or ""):
        top, mounted = map(_plain, folders)
        names = {"cgroup2": [""], "cgroup": options.split(",")}.get(filesystem, [])
        for name in (one for one in names if one in own and ".." not in Path(top).parts):
            place = root / mounted.lstrip("/")
            inner = place / _below(top, own[name])
            found.setdefault(name, []).extend(one for one in (inner, *inner.parents) if one == place or place in one.parents)
    return found


def _plain(word: str) -> str:
    """Without the octal escapes of proc(5)."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word)


def _below(top: str, group: str) -> str:
    """A group's place below the one that is mounted; that itself if the group isn't below it, as seen from a namespace."""
    inner = Path(group).relative_to(top) if Path(group).is_relative_to(top) else Path()
    return "" if ".." in inner.parts else str(inner)


def _cpus(group: Path) -> float | None:
    """Time over period: "200000 100000" in version 2, two files in version 1."""
    said = (text_of(group / "cpu.max") or "").split()
    said = said or [text_of(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    time, period = said if len(said) == 2 else ("", "")
    return int(time) / int(period) if time.isdecimal() and period.isdecimal() and int(period) else None


def _memory(group: Path) -> Iterator[int]:
    """Also the limit from which on a group is slowed down, and what version 1 tells of the groups above, seen or not."""
    told = [text_of(group / name) or "" for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
    told += _OF_ALL_ABOVE.findall(text_of(group / "memory.stat") or "")
    yield from (int(said) for said in told if said.isdecimal() and int(said) < _NO_LIMIT)


def _throttled(group: Path) -> Throttled | None:
    said = dict(line.split(" ", 1) for line in (text_of(group / "cpu.stat") or "").splitlines() if " " in line)
    seconds = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
    times = [int(said[name]) * unit for name, unit in seconds.items() if name in said]
    return Throttled(periods=int(said["nr_throttled"]), seconds=times[0]) if times and "nr_throttled" in said else None
