"""Cells of several machines -> those to compare: one for each machine, stack, job and number of devices."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.intervals import Interval, center_interval

Slot = tuple[Any, ...]
"""Workload settings, batch (None where each GPU may have its own) and number of devices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A cell that a ratio may be of. `chosen_of`: how many cells it stands for. Two GPUs' cells meet in one `slot`."""

    cell: Cell
    slot: Slot
    chosen_of: int = 1

    @property
    def slot_of_any_batch(self) -> Slot:
        job, _, count = self.slot
        return (job, None, count)

    @property
    def ran(self) -> bool:
        return bool(self.cell.samples)


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What one row is of: cells of several machines with one GPU model, of one work, or a single cell."""

    every: tuple[Candidate, ...]
    of_gpu: bool

    @property
    def ran(self) -> list[Cell]:
        return [one.cell for one in self.every if one.ran]

    @property
    def first(self) -> Candidate:
        return next((one for one in self.every if one.ran), self.every[0])

    @property
    def rate(self) -> Interval:
        """Over launches for one machine, over machines for several: the mean of their figures."""
        if len(self.ran) < 2:
            return self.first.cell.estimate()
        return center_interval([cell.estimate().value for cell in self.ran], "mean")


def candidates_of(cells: CellIndex, batch: str) -> list[Candidate]:
    """One per machine, stack, job and number of devices (and batch, unless each GPU has its own)."""
    found: dict[tuple[Any, ...], list[Candidate]] = {}
    for cell in cells.figures:
        slot = (cell.job, None if batch == "own" else cell.last["batch"], cell["count"])
        found.setdefault((cell.machine, cell.stack.name, slot), []).append(Candidate(cell=cell, slot=slot))
    return [_first(some) for some in found.values()]


def _first(some: Sequence[Candidate]) -> Candidate:
    """Of cells that only one may stand for: one that ran, of those the largest batch, of those the first."""

    def rank(one: Candidate) -> tuple[bool, int]:
        batch = one.cell.last["batch"]
        return one.ran, batch if isinstance(batch, int) else 0

    chosen = max(some, key=rank)
    return Candidate(cell=chosen.cell, slot=chosen.slot, chosen_of=len(some))


def sides_of(some: Iterable[Candidate]) -> list[Side]:
    """Of one GPU: the cells of all machines that did the same work, then each alone. Who failed stands with the first."""
    groups: dict[tuple[Any, ...], dict[str, list[Candidate]]] = {}
    for one in sorted(some, key=lambda one: not one.ran):
        works = groups.setdefault((one.cell.stack.name, one.slot), {})
        work = one.cell.last["work"] if one.ran else next(iter(works), one.cell.last["work"])
        works.setdefault(work, []).append(one)
    found = []
    for group in (group for works in groups.values() for group in works.values()):
        found.append(Side(every=tuple(group), of_gpu=True))
        found += [Side(every=(one,), of_gpu=False) for one in group if len(group) > 1]
    return found
