"""The charts of a report, section by section."""

from torchmatrix.analysis import ratios, time_split
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.traces import traces
from torchmatrix.reporting.charts import Charts, inside, scale_factors, speedups, throughput
from torchmatrix.reporting.report.view import View

MOST_TRACES = 6
"""Launches whose temperature, clock and power are drawn over time."""


def charts_of(view: View, held: PriceList = NONE) -> dict[str, Charts]:
    """By section: throughput, scaling, speedup, inside. `held`: what GPUs cost."""
    stacks = list(dict.fromkeys(view.every_cell["stack"])) if len(view.every_cell) else []
    watched, further = traces(view.launches, MOST_TRACES)
    within = time_split.phases_table(view.launches), time_split.steps_table(view.launches)
    return {
        "throughput": throughput.charts(view.cells, view.speedups, stacks, held),
        "scaling": scale_factors.charts(view.cells, view.scaling, view.decomposition, view.devices, stacks),
        "speedup": speedups.charts(view.speedups, ratios.settings_table(view.table), stacks),
        "inside": inside.charts(*within, watched, further, stacks),
    }
