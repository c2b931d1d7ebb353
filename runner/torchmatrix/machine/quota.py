"""What control groups let this process use, of versions 1 and 2: a share of the CPUs' time, and memory.

A limit of any group above holds, too: all that can be seen are read, which within a cgroup namespace are those below its root
(https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/scheduler/sched-bwc.html; pods have both). Which
CPUs a group may use needs no look: the kernel keeps a process's affinity within them.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.ground.files import text_of

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
