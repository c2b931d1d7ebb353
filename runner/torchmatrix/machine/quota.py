"""What control groups let this process use, of versions 1 and 2: a share of the CPUs' time, and memory.

A limit of any group above holds, too: all that can be seen are read, which within a cgroup namespace are those below its root
(https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/scheduler/sched-bwc.html; pods have both). Which
CPUs a group may use needs no look: the kernel keeps a process's affinity within them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.ground.files import text_of

_NO_LIMIT = 1 << 60
"""Version 1 writes the largest number of pages for no limit of memory."""
_OWN = re.compile(r"^\d+:([^:\n]*):([^\n]*)$", re.MULTILINE)
_MOUNT = re.compile(r"^\d+ \d+ \d+:\d+ ([^ \n]+) ([^ \n]+) [^\n]* - (cgroup2?) [^ \n]* ([^ \n]+)$", re.MULTILINE)
"""Lines of proc(5). The kernel writes a folder's name as it is, whatever ends a line elsewhere: other lines may be anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """`cpus`: how many CPUs' worth of time; `memory_bytes`: of all processes together; None: no limit.

    `groups`: the folders of those that limit the time.
    """

    cpus: float | None = None
    memory_bytes: int | None = None
    groups: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Throttled:
    """How often, and for how long, processes had to wait since their group is there because it had used up its time."""

    periods: int
    seconds: float


def quota(root: Path = Path("/")) -> Quota:
    """The tightest limits. `root`: where /proc and /sys are."""
    groups = tuple(dict.fromkeys(_groups(root)))
    cpus = {group: found for group in groups if (found := _cpus(group)) is not None}
    memory = [found for group in groups for found in _memory(group)]
    return Quota(cpus=min(cpus.values(), default=None), memory_bytes=min(memory, default=None), groups=tuple(cpus))


def throttled(found: Quota) -> Throttled | None:
    """Of the group that had to wait longest; None without a limit of time, or if it doesn't tell."""
    told = [one for group in found.groups if (one := _throttled(group)) is not None]
    return max(told, key=lambda one: one.seconds, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's groups that can be seen, and of those above them, where they are mounted."""
    own: dict[str, str] = {}
    for controllers, name in _OWN.findall(text_of(root / "proc/self/cgroup") or ""):
        own |= dict.fromkeys(controllers.split(","), name)
    for *folders, filesystem, options in _MOUNT.findall(text_of(root / "proc/self/mountinfo") or ""):
        top, mounted = map(_plain, folders)
        names = {"cgroup2": [""], "cgroup": options.split(",")}.get(filesystem, [])
        for group in {own[name] for name in names if name in own}:
            place = root / mounted.lstrip("/")
            inner = place / _below(top, group)
            yield from (one for one in (inner, *inner.parents) if one == place or place in one.parents)


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
    return int(time) / int(period) if time.isdigit() and period.isdigit() and int(period) else None


def _memory(group: Path) -> Iterator[int]:
    """Also the limit from which on a group is slowed down."""
    for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
        said = text_of(group / name) or ""
        if said.isdigit() and int(said) < _NO_LIMIT:
            yield int(said)


def _throttled(group: Path) -> Throttled | None:
    said = dict(line.split(" ", 1) for line in (text_of(group / "cpu.stat") or "").splitlines() if " " in line)
    seconds = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
    times = [int(said[name]) * unit for name, unit in seconds.items() if name in said]
    return Throttled(periods=int(said["nr_throttled"]), seconds=times[0]) if times and "nr_throttled" in said else None
