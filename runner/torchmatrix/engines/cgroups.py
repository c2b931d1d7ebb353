"""Control groups of the kernel: what launches without a container may use together, and how many were ended for memory.

Version 2 (https://docs.kernel.org/admin-guide/cgroup-v2.html): a group may have processes or groups, not both. So that of a
launch stands beside the tool's own, unless that one has limits, which the launch would escape. Version 1: it stands inside.
Limits of single processes are no substitute: a process of CUDA reserves far more address space than it uses memory.
"""

import hashlib
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.engines import supervisor
from torchmatrix.engines.limits import Limits
from torchmatrix.ground.files import text_of

_PREFIX = "torchmatrix-"
_CONTROLLERS = ("memory", "pids")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where groups can be made: one folder (version 2), or one of each controller (version 1). `why_not`: why there is none."""

    folders: tuple[Path, ...] = ()
    why_not: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The group of one launch."""

    folders: tuple[Path, ...]


def find(process: Path = Path("/proc/self")) -> Place:
    """Where this process may make groups: tried, not guessed. `process`: its folder of /proc."""
    try:
        own = dict(_own_groups(process))
        place = Place(folders=_inside(process, own) if "memory" in own else (_beside(process, own[""]),))
        remove(make(place, "", Limits(memory_bytes=1 << 30, processes=64)))
    except KeyError:
        return Place(why_not="the kernel has no control groups for memory and processes")
    except OSError as error:
        return Place(why_not=f"{error.filename}: {error.strerror}")
    return place


def _own_groups(process: Path) -> Iterator[tuple[str, str]]:
    """(controller, group); the controller of version 2 is "". Raises OSError."""
    for line in (process / "cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, group


def _mounted(process: Path, kind: str, option: str) -> Path:
    """Where a hierarchy is mounted. Raises KeyError."""
    for line in (process / "mounts").read_text(encoding="utf-8").splitlines():
        _, place, found, options, *_ = line.split()
        if found == kind and option in options.split(","):
            return Path(place)
    raise KeyError(option)


def _inside(process: Path, own: dict[str, str]) -> tuple[Path, ...]:
    """Version 1: the group of this process, of each controller."""
    return tuple(_mounted(process, "cgroup", name) / own[name].lstrip("/") for name in _CONTROLLERS)


def _beside(process: Path, group: str) -> Path:
    """Version 2: the group above this process's own. Raises OSError if it can't limit, or its group would be escaped."""
    own = _mounted(process, "cgroup2", "rw") / group.lstrip("/")
    parent = own.parent if group != "/" else own
    enabled = (parent / "cgroup.subtree_control").read_text(encoding="utf-8").split()
    if lacking := [name for name in _CONTROLLERS if name not in enabled]:
        raise OSError(0, f"{' and '.join(lacking)} can't be limited there", str(parent))
    if parent != own and (limit := _limit_of(own)):
        raise OSError(0, f"the launch would escape {limit}", str(own))
    if not os.access(parent / "cgroup.procs", os.W_OK):
        raise OSError(0, "processes can't be moved there", str(parent))
    return parent


def _limit_of(group: Path) -> str:
    """The name of a limit that the group has itself, other than of processes; empty if it has none."""
    free = {"memory.max": "max", "memory.high": "max", "cpu.max": "max", "cpuset.cpus": "", "cpuset.mems": ""}
    found = (name for name, none in free.items() if (text_of(group / name) or none).split(" ")[0] != none)
    return next(found, "")


def make(place: Place, owner: str, limits: Limits) -> Group:
    """A new group with these limits, without swap. Raises OSError, with nothing left."""
    name = f"{_prefix_of(owner)}{uuid.uuid4().hex[:12]}"
    group = Group(folders=tuple(folder / name for folder in place.folders))
    try:
        for folder in group.folders:
            folder.mkdir()
        _limit(group, limits)
    except OSError:
        remove(group)
        raise
    return group


def _limit(group: Group, limits: Limits) -> None:
    first, last = group.folders[0], group.folders[-1]
    memory = str(limits.memory_bytes)
    unified = first == last
    (first / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(memory, encoding="utf-8")
    (last / "pids.max").write_text(str(limits.processes), encoding="utf-8")
    swap = first / ("memory.swap.max" if unified else "memory.memsw.limit_in_bytes")
    if swap.exists():  # only where the kernel counts swap
        swap.write_text("0" if unified else memory, encoding="utf-8")


def oom_kills(group: Group) -> int:
    """How many processes of the group the kernel has ended for memory."""
    text = text_of(group.folders[0] / "memory.events") or text_of(group.folders[0] / "memory.oom_control") or ""
    return int(dict(line.split() for line in text.splitlines()).get("oom_kill", 0))


def remove(group: Group) -> None:
    """End what is left in it, and remove it. What the kernel can't end stays, with its group."""
    end = time.monotonic() + supervisor.PATIENCE_SECONDS
    for folder in group.folders:
        while folder.exists() and time.monotonic() < end:
            with suppress(OSError):  # its last processes are still ending
                folder.rmdir()
                break
            supervisor.end_group(str(folder))
            time.sleep(0.01)


def remove_left(place: Place, owner: str) -> list[str]:
    """Remove the groups that a killed tool has left; returns their names. Nobody else may use `owner` meanwhile."""
    left = sorted({path.name for folder in place.folders for path in folder.glob(f"{_prefix_of(owner)}*")})
    for name in left:
        remove(Group(folders=tuple(folder / name for folder in place.folders)))
    return left


def _prefix_of(owner: str) -> str:
    return f"{_PREFIX}{hashlib.sha256(owner.encode()).hexdigest()[:12]}-"
