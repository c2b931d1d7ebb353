"""A run as its report shows it: the facts of its final attempts, and the tables made from them."""

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
    """A run and its tables. `details`: the facts of its launches, the tables' source. `cells`: cells of DDP or one device."""

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
        """Return the summary of the run and of its launches."""
        return self.details.summary

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """Return the cells in the form of published figures."""
        return figures.measured(self.index.figures)

    @property
    def not_ok(self) -> int:
        """Count the launches that count but have no figure."""
        return sum(not is_ok(row) for row in self.summary.launches)

    @property
    def pending(self) -> list[str]:
        """Return the planned cells that have not been launched."""
        launched = {row["cell"] for row in self.summary.launches} | {cell for cell, _ in self.details.repeated}
        return [name.cell for name in self.record.planned if name.cell not in launched]


def view_of(run: RunFolder, baseline: str | None = None, found: RunDetails | None = None) -> View:
    """Build the view of a run's facts; `baseline` as in make_view; `found`: the details of its launches, if they were read."""
    return make_view(run.id, run.read_record(), found or facts_cache.details_of(run), baseline)


def make_view(run_id: str, record: RunRecord, details: RunDetails, baseline: str | None = None) -> View:
    """Build the view of facts already read. `baseline`: the stack of reference for ratios; default: the first in the matrix.
    Raises BadInput if that stack has no cell.
    """
    cells = details.summary.cells
    every_cell = run_summary.cells_table(cells)
    return View(
        id=run_id,
        record=record,
        details=details,
        index=cells,
        every_cell=every_cell,
        cells=[row for row in every_cell if makes_figures(row)],  # the others explain a loss, in a table of their own
        scaling=scaling.scaling_table(cells),
        decomposition=scaling.decomposition_table(cells),
        nodes=scaling.nodes_table(cells),
        collectives=scaling.collectives_table(details.summary.launches),
        devices=scaling.devices_table(cells),
        compiles=time_split.compiles_table(cells),
        ratios=speedups.ratios_of(cells, baseline),
    )
