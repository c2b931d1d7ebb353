"""Describe this machine's CPU: its cores and their layout, its name, and the share of it that this process may use."""

import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from torchmatrix.core.files import text_of

# The cores that a benchmark may use, grouped by socket, NUMA node and type.

ALIKE = 0.8
"""Cores are of one type if the capacity or highest clock of each is at least this share of the fastest one's. Our own decision:
the favoured cores of one type differ by a few per cent, efficiency or dense cores by a third and more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreGroup:
    """Cores that are alike. `cores`: one logical CPU of each; hyper-threads share what is measured. `kind`: 0 are the fastest.

    `socket`, `node`: None if the kernel doesn't say.
    """

    cores: tuple[int, ...]
    socket: int | None = None
    node: int | None = None
    kind: int = 0


def core_groups(devices: Path, allowed: Iterable[int]) -> tuple[CoreGroup, ...]:
    """Group cores, the fastest first. `devices`: sysfs' folder of devices; `allowed`: the logical CPUs that we may use."""
    cpus = devices / "system/cpu"
    cores = _first_cpu_of_each_core(cpus, sorted(allowed))
    kinds, nodes = _core_kinds(devices, cores), _numa_nodes(devices / "system/node")

    def key(core: int) -> tuple[int, int, int]:
        socket = whole_number(cpus / f"cpu{core}/topology/physical_package_id")
        return kinds[core], -1 if socket is None else socket, nodes.get(core, -1)

    return tuple(
        CoreGroup(cores=tuple(members), socket=socket if socket >= 0 else None, node=node if node >= 0 else None, kind=kind)
        for (kind, socket, node), members in groupby(sorted(cores, key=lambda core: (key(core), core)), key)
    )


def within(groups: Sequence[CoreGroup], cpus: float | None) -> tuple[CoreGroup, ...]:
    """Keep as many cores as the time of `cpus` CPUs can fill, at least one, from the first groups on; None: no limit."""
    left = sum(len(group.cores) for group in groups) if cpus is None else max(1, int(cpus))
    limited = []
    for group in groups:
        cores, left = group.cores[:left], left - len(group.cores[:left])
        limited += [CoreGroup(cores=cores, socket=group.socket, node=group.node, kind=group.kind)] if cores else []
    return tuple(limited)


def kinds_of(speeds: Mapping[int, int]) -> dict[int, int]:
    """Return each core's type, by how fast it is. Pure."""
    kinds: dict[int, int] = {}
    kind, fastest = -1, 0
    for core, speed in sorted(speeds.items(), key=lambda pair: -pair[1]):
        if kind < 0 or speed < ALIKE * fastest:
            kind, fastest = kind + 1, speed
        kinds[core] = kind
    return kinds


def cpus_in(listed: str) -> set[int]:
    """Parse the kernel's lists of numbers, such as "0-3,8"."""
    parts = [part.partition("-") for part in listed.split(",") if part]
    return {number for first, _, last in parts for number in range(int(first), int(last or first) + 1)}


def _first_cpu_of_each_core(cpus: Path, allowed: Sequence[int]) -> list[int]:
    """Return the first allowed logical CPU of each physical core."""
    first_of: dict[str, int] = {}
    for cpu in allowed:
        first_of.setdefault(text_of(cpus / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu), cpu)
    return sorted(first_of.values())


def _core_kinds(devices: Path, cores: Collection[int]) -> dict[int, int]:
    """Classify cores by Intel's list of efficiency cores, else by capacity (ARM), else by the highest clock; all 0 if
    nothing is known.
    """
    if efficient := cpus_in(text_of(devices / "cpu_atom/cpus") or ""):
        return kinds_of({core: 0 if core in efficient else 1 for core in cores})
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        speeds = {core: speed for core in cores if (speed := whole_number(devices / f"system/cpu/cpu{core}/{name}"))}
        if len(speeds) == len(cores):
            return kinds_of(speeds)
    return dict.fromkeys(cores, 0)


def _numa_nodes(folder: Path) -> dict[int, int]:
    """Return the NUMA node of each CPU."""
    lists = {path: text_of(path / "cpulist") or "" for path in folder.glob("node[0-9]*")}
    return {cpu: int(path.name[4:]) for path, listed in lists.items() for cpu in cpus_in(listed)}


def whole_number(path: Path) -> int | None:
    """Return the whole number in a file of the kernel; None if there is none, or a negative one."""
    text = text_of(path) or ""
    return int(text) if text.isdigit() else None


# The CPU's name: the kernel's, or where it has none, the kind of its cores and the board.

_NAMES = ("model name", "cpu model", "cpu", "uarch")
"""Fields of /proc/cpuinfo: of x86, MIPS and LoongArch, POWER, RISC-V. ARM has a name there in a few kernels only."""
_ARCHITECTURE = re.compile(r"ARMv\d", re.IGNORECASE)
"""The name of every CPU in those kernels: "ARMv8 Processor rev 1 (v8l)"."""
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
"""Texts that vendors leave in DMI."""


def cpu_name(root: Path = Path("/")) -> str | None:
    """Return a name such as "AMD EPYC 9654 96-Core Processor" or "Arm Neoverse-V2 (Supermicro ARS-111GL-NHR)"; None if unknown.

    A core's kind says neither how fast it is clocked nor how large its caches are, so the board is named beside it.
    """
    fields = _fields(text_of(root / "proc/cpuinfo") or "")
    name = next((name for key in _NAMES for name in fields.get(key, ()) if not _ARCHITECTURE.match(name)), None)
    if name:
        return name
    kinds = zip(fields.get("cpu implementer", ()), fields.get("cpu part", ()), strict=False)
    cores = " + ".join(dict.fromkeys(_arm_core(*kind) for kind in kinds))
    board = board_name(root)
    return f"{cores} ({board})" if cores and board else cores or board


def _fields(cpuinfo: str) -> dict[str, list[str]]:
    """Return the values of each field, of all CPUs. Names in lower case: LoongArch has a "Model Name"."""
    values: dict[str, list[str]] = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon and value.strip():
            values.setdefault(key.strip().lower(), []).append(value.strip())
    return values


def _arm_core(implementer: str, part: str) -> str:
    """Translate MIDR_EL1's numbers into words, or keep them as they are."""
    try:
        maker, kind = int(implementer, 16), int(part, 16)
    except ValueError:
        return f"ARM core {implementer} {part}"
    vendor = _IMPLEMENTERS.get(maker, f"implementer {maker:#04x}")
    return f"{vendor} {_PARTS.get(maker, {}).get(kind, f'part {kind:#05x}')}"


def board_name(root: Path) -> str | None:
    """Return the name in the device tree, or in DMI; what a vendor didn't fill in is no name."""
    tree = (text_of(root / "proc/device-tree/model") or "").strip("\0 ")
    dmi = [text_of(root / "sys/class/dmi/id" / name) or "" for name in ("sys_vendor", "product_name")]
    names = [name for name in dmi if not _PLACEHOLDERS.fullmatch(name)]
    return tree or (" ".join(names) if names and not _PLACEHOLDERS.fullmatch(dmi[1]) else None)


# The limits of this process's control groups, of versions 1 and 2: a share of the CPUs' time, and memory.
#
# A limit of any group above holds, too: all visible groups are read, which within a cgroup namespace are those below its root
# (https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/scheduler/sched-bwc.html; pods have both). Which
# CPUs a group may use needs no look: the kernel keeps a process's affinity within them.

_NO_LIMIT = 1 << 60
"""Version 1 writes the largest number of pages for no limit of memory."""
_HIERARCHICAL_LIMIT = re.compile(r"^hierarchical_memory_limit (\d+)$", re.MULTILINE)
_OWN_GROUP = re.compile(r"^\d+:([^:\n]*):([^\n]*)$", re.MULTILINE)
_MOUNT = re.compile(r"^\d+ \d+ \d+:\d+ ([^ \n]+) ([^ \n]+) [^\n]* - (cgroup2?) [^ \n]* ([^ \n]+)$", re.MULTILINE)
"""Lines of proc(5). The kernel writes a folder's name as it is, whatever ends a line elsewhere: other lines may be anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """Limits of control groups. `cpus`: CPUs' worth of time; `memory_bytes`: of all processes together; None: no limit.

    `groups`: the folders of those that limit the time. `unseen`: there are groups, but none is mounted, so the limits
    are unknown.
    """

    cpus: float | None = None
    memory_bytes: int | None = None
    groups: tuple[Path, ...] = ()
    unseen: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Throttled:
    """How often, and for how long, processes had to wait because a group had used up its time, since the groups exist."""

    periods: int
    seconds: float


def quota(root: Path = Path("/")) -> Quota:
    """Return the tightest limits. `root`: where /proc and /sys are."""
    names = _group_names(root)
    folders = _group_folders(root, names)
    groups = tuple(dict.fromkeys(group for mounted in folders.values() for group in mounted))
    cpus = {group: limit for group in groups if (limit := _cpu_limit(group)) is not None}
    memory = [limit for group in groups for limit in _memory_limits(group)]
    return Quota(
        cpus=min(cpus.values(), default=None),
        memory_bytes=min(memory, default=None),
        groups=tuple(cpus),
        unseen=not {name if name in names else "" for name in ("cpu", "memory")} & names.keys() <= folders.keys(),
    )


def usable_cpus() -> int:
    """Return how many processes of this command may work at once: one for each CPU that it may use, or for a part of one."""
    allowed, time = len(os.sched_getaffinity(0)), quota().cpus
    return allowed if time is None else max(1, min(allowed, math.ceil(time)))


def throttled(limits: Quota) -> Throttled | None:
    """Add up the waiting in all groups: each may hold up a launch. None without a limit of time, or if no group reports it."""
    counts = [count for group in limits.groups if (count := _group_throttled(group)) is not None]
    if not counts:
        return None
    return Throttled(periods=sum(count.periods for count in counts), seconds=sum(count.seconds for count in counts))


def _group_names(root: Path) -> dict[str, str]:
    """Return this process's group by controller; that of version 2 by ""."""
    names: dict[str, str] = {}
    for controllers, name in _OWN_GROUP.findall(text_of(root / "proc/self/cgroup") or ""):
        names |= dict.fromkeys(controllers.split(","), name)
    return names


def _group_folders(root: Path, names: Mapping[str, str]) -> dict[str, list[Path]]:
    """Return by controller the folders of this process's group and of those above it, where they are mounted.

    A mount that begins above the root of a namespace doesn't show where the process's group is.
    """
    folders: dict[str, list[Path]] = {}
    for *paths, filesystem, options in _MOUNT.findall(text_of(root / "proc/self/mountinfo") or ""):
        top, mount_point = map(_unescape, paths)
        controllers = {"cgroup2": [""], "cgroup": options.split(",")}.get(filesystem, [])
        mounted = root / mount_point.lstrip("/")
        for controller in controllers:
            if controller in names and ".." not in Path(top).parts:
                inner = mounted / _path_below(top, names[controller])
                visible = (folder for folder in (inner, *inner.parents) if folder.is_relative_to(mounted))
                folders.setdefault(controller, []).extend(visible)
    return folders


def _unescape(word: str) -> str:
    """Decode the octal escapes of proc(5)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def _path_below(top: str, group: str) -> str:
    """Return a group's path below the mounted one; "" if the group isn't below it, as seen from a namespace."""
    inner = Path(group).relative_to(top) if Path(group).is_relative_to(top) else Path()
    return "" if ".." in inner.parts else str(inner)


def _cpu_limit(group: Path) -> float | None:
    """Return time over period: "200000 100000" in version 2, two files in version 1."""
    words = (text_of(group / "cpu.max") or "").split()
    words = words or [text_of(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    time, period = words if len(words) == 2 else ("", "")
    return int(time) / int(period) if time.isdecimal() and period.isdecimal() and int(period) else None


def _memory_limits(group: Path) -> Iterator[int]:
    """Yield the limits of memory, with the one from which on a group is slowed down, and version 1's limit of all groups
    above, seen or not.
    """
    limits = [text_of(group / name) or "" for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
    limits += _HIERARCHICAL_LIMIT.findall(text_of(group / "memory.stat") or "")
    yield from (int(limit) for limit in limits if limit.isdecimal() and int(limit) < _NO_LIMIT)


def _group_throttled(group: Path) -> Throttled | None:
    counts = dict(line.split(" ", 1) for line in (text_of(group / "cpu.stat") or "").splitlines() if " " in line)
    units = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
    times = [int(counts[name]) * unit for name, unit in units.items() if name in counts]
    return Throttled(periods=int(counts["nr_throttled"]), seconds=times[0]) if times and "nr_throttled" in counts else None
