"""The default view of a page: six answers, then charts that need no script. Open first: answers.py, then
charts.py and efficiency.py."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.speedups import Since
from torchmatrix.reporting.charts import Chart
from torchmatrix.reporting.overview import charts, efficiency
from torchmatrix.reporting.overview.answers import Answer, Answers, answers
from torchmatrix.reporting.overview.cells import Cells

__all__ = ["Answer", "Answers", "Cells", "Overview", "overview"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """The answers, and the charts in the page's order."""

    answers: Answers
    charts: tuple[Chart, ...]


def overview(
    cells: Cells, price_list: PriceList, since: Since | None = None, failed: Sequence[str] = (), unread: int = 0
) -> Overview:
    """Build the overview of the cells of one machine or of several; `failed` and `unread` as in answers."""
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
    return Overview(
        answers=answers(cells, price_list, since, failed, unread),
        charts=tuple(chart for chart in possible if chart),
    )
