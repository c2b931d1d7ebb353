"""One run as its report shows it: the facts of its final attempts, and the tables made from them."""

from dataclasses import dataclass
from functools import cached_property

from torchmatrix.analysis import facts_cache, run_summary, scaling, speedups, time_split
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.published import figures
from torchmatrix.analysis.published.figures import Measured
from torchmatrix.analysis.rows import Row, is_ok, makes_figures
from torchmatrix.analysis.run_summary import RunDetails, RunSummary
from torchmatrix.analysis.speedups import Ratios
from torchmatrix.facts.run_record import RunRecord
from torchmatrix.facts.store import RunFolder


@dataclass(frozen=True, kw_only=True)
class View:
    """`details`: what is known of the launches; the tables are made of it. `cells`: those of DDP or one device."""

    id: str
    record: RunRecord
    details: RunDetails
    index: CellIndex
    every_cell: list[Row]
    cells: list[Row]
    scaling: list[Row]
    decomposition: list[Row]
    nodes: list[Row]
    collectives: list[Row]
    devices: list[Row]
    compiles: list[Row]
    ratios: Ratios

    @property
    def summary(self) -> RunSummary:
        """What the run says of itself and of its launches."""
        return self.details.summary

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """The cells as published figures are."""
        return figures.measured(self.index.figures)

    @property
    def not_ok(self) -> int:
        """How many of the launches that count have no figure."""
        return sum(not is_ok(row) for row in self.summary.launches)

    @property
    def pending(self) -> list[str]:
        """The planned cells that have not been launched."""
        launched = {row["cell"] for row in self.summary.launches} | {cell for cell, _ in self.details.repeated}
        return [name.cell for name in self.record.planned if name.cell not in launched]


def view_of(run: RunFolder, baseline: str | None = None, found: RunDetails | None = None) -> View:
    """The view of a run's facts; `baseline` as in make_view; `found`: what is known of its launches, if they were read."""
    return make_view(run.id, run.read_record(), found or facts_cache.details_of(run), baseline)


def make_view(run_id: str, record: RunRecord, found: RunDetails, baseline: str | None = None) -> View:
    """The view of facts already read. `baseline`: the stack that ratios are relative to; default: the first in the matrix.

    Raises BadInput if that stack has no cell.
    """
    cells = found.summary.cells
    every_cell = run_summary.cells_table(cells)
    return View(
        id=run_id,
        record=record,
        details=found,
        index=cells,
        every_cell=every_cell,
        cells=[row for row in every_cell if makes_figures(row)],  # the others explain a loss, in a table of their own
        scaling=scaling.scaling_table(cells),
        decomposition=scaling.decomposition_table(cells),
        nodes=scaling.nodes_table(cells),
        collectives=scaling.collectives_table(found.summary.launches),
        devices=scaling.devices_table(cells),
        compiles=time_split.compiles_table(cells),
        ratios=speedups.ratios_of(cells, baseline),
    )
