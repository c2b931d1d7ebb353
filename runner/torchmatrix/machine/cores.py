"""The cores that a benchmark may use, in groups: a group's are of one socket, one NUMA node and one type."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from torchmatrix.ground.files import text_of

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
