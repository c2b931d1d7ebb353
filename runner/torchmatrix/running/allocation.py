"""Which cells may be measured at the same time: those on devices that share nothing. Pure: knows no engine, process or clock.

Nothing here shuffles, and nothing leaves its order: what is compared with one another shares devices, so it stays in one lane,
at comparable times.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torchmatrix.planning.plan import Cell, GpuSet

Launches = list[tuple[Cell, int]]
"""(cell, round), in order."""
Uses = Callable[[GpuSet], set[tuple[str | None, int]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """Cells of which no two may be measured at once; those of another lane may be. `devices`: all of theirs, such as gpu0+1."""

    devices: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Allocation:
    """`together`: at least two lanes that may be measured at once, or none. `alone`: those after them, one by one.

    `why_alone`: why there are lanes that are measured alone; empty if there are none.
    """

    together: tuple[Lane, ...]
    alone: tuple[Lane, ...]
    why_alone: str


def blocks(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells whose device sets overlap: their ratios are what a scale factor is made of."""
    return _joined(cells, lambda gpus: {(gpus.vendor, index) for index in gpus.indices})


def allocate(cells: Iterable[Cell]) -> Allocation:
    """Each cell in one lane, in the order of `cells`.

    Slices and partitions of one GPU are never measured at once, since they share its power and its clock; nor is anything on
    the CPU beside GPUs, whose launches need the CPU, too. CPU slots on cores of their own may be, where there are no two lanes
    of GPUs.
    """
    numbers: dict[str, int] = {}

    def boards(gpus: GpuSet) -> set[tuple[str | None, int]]:
        cores = [core for slot in gpus.cpus for core in slot.split(",")]
        names = [gpu.slice_of or gpu.partition_of or gpu.uuid for gpu in gpus.gpus] or cores or [str(gpus.vendor)]
        return {(gpus.vendor, numbers.setdefault(name, len(numbers))) for name in names}

    lanes = [Lane(devices=_label(members), cells=tuple(members)) for members in _joined(cells, boards)]
    kinds = [[lane for lane in lanes if _is_on_gpus(lane) == on_gpus] for on_gpus in (True, False)]
    together = tuple(next((kind for kind in kinds if len(kind) > 1), ()))
    alone = tuple(lane for lane in lanes if lane not in together)
    return Allocation(together=together, alone=alone, why_alone="; ".join(_why_alone(alone)))


def split(launches: Iterable[tuple[Cell, int]], lanes: Sequence[Lane]) -> list[Launches]:
    """The launches of each lane, in the order in which they stand in `launches`; those of other lanes are left out."""
    place = {cell.id: number for number, lane in enumerate(lanes) for cell in lane.cells}
    found: list[Launches] = [[] for _ in lanes]
    for cell, number in launches:
        if cell.id in place:
            found[place[cell.id]].append((cell, number))
    return found


def _is_on_gpus(lane: Lane) -> bool:
    return bool(lane.cells[0].gpus.gpus)


def _why_alone(alone: Sequence[Lane]) -> Iterable[str]:
    on_gpus, on_cpu = ([lane for lane in alone if _is_on_gpus(lane) == kind] for kind in (True, False))
    if on_gpus:
        yield f"no two cells on {on_gpus[0].devices} have GPUs of their own"
    if len(on_cpu) == 1:
        yield f"no two cells on {on_cpu[0].devices} have cores of their own"
    elif on_cpu:
        yield "cells on the CPU would disturb the launches on GPUs, which need it, too"


def _label(cells: Iterable[Cell]) -> str:
    members = list(cells)
    indices = sorted({index for cell in members for index in cell.gpus.indices})
    return members[0].gpus.label.rstrip("0123456789+") + "+".join(map(str, indices))


def _joined(cells: Iterable[Cell], uses: Uses) -> list[list[Cell]]:
    """Cells that use the same, also by way of others."""
    by_label: dict[str, list[Cell]] = {}
    for cell in cells:
        by_label.setdefault(cell.gpus.label, []).append(cell)
    found: list[tuple[set[tuple[str | None, int]], list[Cell]]] = []
    for members in by_label.values():
        used = uses(members[0].gpus)
        touched = [one for one in found if one[0] & used]
        merged = (used.union(*(its for its, _ in touched)), [c for _, group in touched for c in group] + members)
        found = [one for one in found if one not in touched] + [merged]
    return [members for _, members in found]
