"""Cells -> explorers: one for each question of a reader, with selectors, drawn by the page's script when they are opened.

In: the tables of the analysis, of one machine or (with the columns `machine` and `gpu`) of several. Out: the cells and, of each
explorer, the rows that it draws with all that is written in them; the script chooses among them and places the marks.
Open first: drawn.py; data.py has the cells, parts.py what is known of them besides throughput.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.rows import Row
from torchmatrix.analysis.scaling import FACTORS
from torchmatrix.analysis.speedups import Ratios
from torchmatrix.analysis.verdicts import Significance
from torchmatrix.reporting.explorers import drawn
from torchmatrix.reporting.explorers.data import NONE_PUBLISHED, NOTHING, Data, Published, data_of
from torchmatrix.reporting.explorers.drawn import View
from torchmatrix.reporting.explorers.parts import Within, legend

TITLES = {
    "throughput": "Throughput", "scaling": "Scaling", "speedup": "Speed-ups", "loss": "What scaling loses",
    "alone": "Each device alone", "phases": "Where the time of a launch goes", "steps": "How much steps vary",
    "trace": "Temperature, clock and power",
}  # fmt: skip
_UNITS = {"alone": "times the median device", "loss": "of perfect scaling", "phases": "seconds since the launch started",
          "steps": "median ms per step"}  # fmt: skip
_MARKS = "A hollow diamond is a published throughput of the same work on the same GPU: point at it for its source."


@dataclass(frozen=True, kw_only=True)
class Explorers:
    """Of a page."""

    data: Data

    @cached_property
    def views(self) -> dict[str, list[View]]:
        """Of each explorer that has a figure, what it can show."""
        made = {"throughput": drawn.throughput, "scaling": drawn.scaling, "speedup": drawn.speedup}
        every = {name: list(make(self.data)) for name, make in made.items()}
        every |= {
            name: [View(name=name, title=name, rows=rows, unit=_UNITS.get(name, ""))]
            for name, rows in self.data.parts.items()
            if rows
        }
        return {name: every[name] for name in TITLES if every.get(name)}

    def as_json(self) -> str:
        """For the page's script."""
        told = [
            {
                "name": name, "title": TITLES[name], "note": " ".join(filter(None, _notes(self.data, name, views))),
                "legend": legend() if name == "phases" else [], "metrics": [drawn.packed(view) for view in views],
            }
            for name, views in self.views.items()
        ]  # fmt: skip
        return drawn.as_json(self.data, told)


def of(
    index: CellIndex, cells: Sequence[Row], scaling: Sequence[Row], ratios: Ratios,
    held: PriceList = NONE, published: Published = NONE_PUBLISHED, within: Within = NOTHING,
) -> Explorers:  # fmt: skip
    """The explorers of these tables (of analysis.tables and scaling) and ratios; `held`: GPU prices; `within`: of one run."""
    return Explorers(data=data_of(index, cells, scaling, ratios, held, published, within))


_DEFINED: dict[str, Sequence[str]] = {
    "throughput": ("throughput", "interval"), "scaling": ("S", "E", "s", "ratio_interval", "impossible"),
    "speedup": ("speedup", "setting", "ratio_interval"), "loss": (*FACTORS, "ratio_interval"),
    "alone": ("weak", "ratio_interval"), "phases": ("phases",), "steps": ("steps",), "trace": ("trace",),
}  # fmt: skip


def _notes(data: Data, name: str, views: Sequence[View]) -> Iterator[str]:
    """How to read the charts of an explorer."""
    yield from (DEFINITIONS[word] for word in _DEFINED[name])
    if name == "throughput":
        yield from (view.note for view in views)
        yield _MARKS if any(row["theirs"] is not None for row in data.rows) else ""
    if name == "scaling":
        yield "Dashed: what perfect scaling would give; grey: what is missing from it."
    if name == "speedup":
        yield corrected(data.significance)
    if name == "loss":
        yield "From top to bottom, each cause takes a part of what is left."
    if name == "trace":
        yield "Red: the device was slowed down. In long traces every k-th reading is drawn."


def corrected(level: Significance) -> str:
    """How the verdicts of a page are corrected; "" for a single comparison."""
    if level.comparisons < 2:
        return ""
    return (
        f"Verdicts allow for the {level.comparisons} comparisons of this report: at most 5 % of the differences reported are "
        "expected to be false."
    )
