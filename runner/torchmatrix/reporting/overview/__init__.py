"""The default view of a page: six answers, then charts that need no script. Open first: answers.py, then
charts.py and efficiency.py."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.speedups import Since
from torchmatrix.reporting.charts import Chart, Panel
from torchmatrix.reporting.charts.files import Style
from torchmatrix.reporting.overview import charts, efficiency
from torchmatrix.reporting.overview.answers import Answer, Answers, answers
from torchmatrix.reporting.overview.cells import Cells, colours

__all__ = ["Answer", "Answers", "Cells", "Overview", "overview"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """The answers, and the charts in the page's order. `first`: the panel that stands beside the answers."""

    answers: Answers
    charts: tuple[Chart, ...]
    first: Panel | None
    style: Style


def overview(
    cells: Cells,
    price_list: PriceList,
    since: Since | None = None,
    failed: Sequence[str] = (),
    unread: int = 0,
    source: str = "",
) -> Overview:
    """Build the overview of one machine's cells or of several's; `failed` and `unread` as in answers, `source` as in Style."""
    possible = [
        *(charts.throughput_charts(cells) if cells.rows else ()),
        charts.scaling_chart(cells),
        charts.effects_chart(cells),
        efficiency.energy_chart(cells, price_list),
        efficiency.utilization_chart(cells),
        charts.changes_chart(cells, since),
        charts.latency_chart(cells),
        charts.generation_chart(cells),
    ]
    drawn = tuple(chart for chart in possible if chart)
    top = cells.best(cells.chosen)
    panels = [panel for beside in drawn[0].panels for panel in beside] if drawn and top else []
    return Overview(
        answers=answers(cells, price_list, since, failed, unread),
        charts=drawn,
        style=Style(colours=[light for light, _ in colours(cells.dims["stack"].values)], source=source),
        first=next((panel for panel in panels if top and top.rate in [row.value for row in panel.rows]), None),
    )
