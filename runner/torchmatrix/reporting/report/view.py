"""One run as its report shows it: the facts of its final attempts, and the tables made from them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from torchmatrix.analysis import compiling, ratios, scaling, tables, time_split
from torchmatrix.analysis.published import figures
from torchmatrix.analysis.published.figures import Measured
from torchmatrix.analysis.tables import records
from torchmatrix.facts.launch import Launch, Unreadable, last_tries
from torchmatrix.facts.reading import sorted_out
from torchmatrix.facts.run_record import RunRecord
from torchmatrix.facts.store import RunFolder


@dataclass(frozen=True, kw_only=True)
class View:
    """`every`: all attempts; `launches`: the attempts that count, in planned order; `cells`: those of DDP or one device.

    `unreadable`: the files of the run that can't be read as launches.
    """

    id: str
    record: RunRecord
    unreadable: tuple[Unreadable, ...]
    every: tuple[Launch, ...]
    launches: tuple[Launch, ...]
    table: pd.DataFrame
    every_cell: pd.DataFrame
    cells: pd.DataFrame
    scaling: pd.DataFrame
    decomposition: pd.DataFrame
    devices: pd.DataFrame
    speedups: pd.DataFrame

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """The cells as published figures are."""
        return figures.measured(records(self.every_cell), records(self.table))

    @cached_property
    def phases(self) -> pd.DataFrame:
        """Where the time of launches went (time_split.phases_table)."""
        return time_split.phases_table(self.launches)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """How much steps vary (time_split.steps_table)."""
        return time_split.steps_table(self.launches)

    @cached_property
    def compiles(self) -> pd.DataFrame:
        """Compile times, and whether compilations differ (compiling.compiles_table)."""
        return compiling.compiles_table(self.table)

    @property
    def pending(self) -> list[str]:
        """The planned cells that have not been launched."""
        launched = {launch.cell for launch in self.every}
        return [name.cell for name in self.record.planned if name.cell not in launched]


def view_of(run: RunFolder, baseline: str | None = None) -> View:
    """The view of a run's facts; `baseline` as in make_view."""
    return make_view(run.id, run.read_record(), run.everything(), baseline)


def make_view(run_id: str, record: RunRecord, found: Iterable[Launch | Unreadable], baseline: str | None = None) -> View:
    """The view of facts already read. `baseline`: the stack that ratios are relative to; default: the first in the matrix.

    Raises BadInput if that stack has no cell.
    """
    every, unreadable = sorted_out(found)
    launches = _in_planned_order(last_tries(every), record)
    table = tables.launches_table(launches)
    every_cell = tables.cells_table(table)
    return View(
        id=run_id,
        record=record,
        unreadable=tuple(unreadable),
        every=tuple(every),
        launches=tuple(launches),
        table=table,
        every_cell=every_cell,
        cells=every_cell[every_cell["parallel"] == "ddp"],  # the others explain a scaling loss and have a table of their own
        scaling=scaling.scaling_table(table),
        decomposition=scaling.decomposition_table(table),
        devices=scaling.devices_table(table),
        speedups=ratios.speedup_table(table, baseline),
    )


def _in_planned_order(launches: Sequence[Launch], record: RunRecord) -> list[Launch]:
    place = {name.cell: i for i, name in enumerate(record.planned)}
    return sorted(launches, key=lambda launch: (place.get(launch.cell, len(place)), launch.path.name))
