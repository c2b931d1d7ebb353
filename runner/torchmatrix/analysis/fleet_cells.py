"""Launches of several machines -> cells to compare: one for each machine, stack, job and number of devices."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis import comparable
from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.centers import central
from torchmatrix.analysis.column import Row
from torchmatrix.analysis.comparable import StackUsed, Work

Slot = tuple[Any, ...]
"""Workload settings, batch and number of devices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetCell:
    """The launches of one cell. `job`: the workload's settings; `batch`: None where each GPU may have its own.

    `samples`: items per second of the launches that are ok; `value`: their median or mean, NaN if there are none.
    """

    machine: str
    gpu: str
    stack: StackUsed
    work: Work
    job: tuple[Any, ...]
    batch: int | str | None
    row: Row
    samples: tuple[float, ...]
    value: float
    failed: int

    @property
    def slot(self) -> Slot:
        """Cells of two GPUs that agree in it are candidates for a ratio."""
        return (self.job, self.batch, self.row["count"])

    @property
    def slot_of_any_batch(self) -> Slot:
        return (self.job, None, self.row["count"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What one row is of: cells of several machines with one GPU model, of one work, or a single cell."""

    cells: tuple[FleetCell, ...]
    of_gpu: bool

    @property
    def ran(self) -> list[FleetCell]:
        return [cell for cell in self.cells if cell.samples]

    @property
    def first(self) -> FleetCell:
        return (self.ran or self.cells)[0]


def cells_of(launches: Iterable[Row], batch: str) -> list[FleetCell]:
    """One per machine, stack, job and number of devices (and batch, unless each GPU has its own)."""
    found: dict[tuple[Any, ...], list[FleetCell]] = {}
    for one in CellIndex(launches).figures:
        cell = _cell(one, batch)
        found.setdefault((cell.machine, cell.stack.name, cell.slot), []).append(cell)
    return [_first(cells) for cells in found.values()]


def _cell(cell: Cell, batch: str) -> FleetCell:
    row = cell.last
    work, samples = json.loads(row["work"]), tuple(cell.samples)
    return FleetCell(
        machine=row["machine"],
        gpu=row["gpu"],
        stack=stack_of(row),
        work=work,
        job=comparable.settings_of(work),
        batch=None if batch == "own" else row["batch"],
        row=row | {"chosen_of": 1},
        samples=samples,
        value=central(samples, row["statistic"]) if samples else math.nan,
        failed=cell.failed,
    )


def stack_of(row: Row) -> StackUsed:
    """The stack of a row of tables.launches_table."""
    release = comparable.release_of(row["torch"], row["torch_build"])
    return StackUsed(name=row["stack"], release=release, recipe=row["recipe"])


def _first(cells: Sequence[FleetCell]) -> FleetCell:
    """Of cells that only one may stand for: one that ran, of those the largest batch, of those the first."""

    def rank(cell: FleetCell) -> tuple[bool, int]:
        batch = cell.row["batch"]
        return bool(cell.samples), batch if isinstance(batch, int) else 0

    chosen = max(cells, key=rank)
    chosen.row["chosen_of"] = len(cells)
    return chosen


def sides_of(cells: Sequence[FleetCell]) -> list[Side]:
    """Of one GPU: the cells of all machines that did the same work, then each alone. Who failed stands with the first."""
    groups: dict[tuple[Any, ...], dict[str, list[FleetCell]]] = {}
    for cell in sorted(cells, key=lambda cell: not cell.samples):
        works = groups.setdefault((cell.stack.name, cell.slot), {})
        work = cell.row["work"] if cell.samples else next(iter(works), cell.row["work"])
        works.setdefault(work, []).append(cell)
    found = []
    for group in (group for works in groups.values() for group in works.values()):
        found.append(Side(cells=tuple(group), of_gpu=True))
        found += [Side(cells=(cell,), of_gpu=False) for cell in group if len(group) > 1]
    return found
