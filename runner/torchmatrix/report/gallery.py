"""The charts of a report, section by section."""

from torchmatrix import phases, ratios
from torchmatrix.charts import Charts, inside, scaling, speedups, throughput
from torchmatrix.prices import NONE, PriceList
from torchmatrix.report.view import View
from torchmatrix.traces import traces

MOST_TRACES = 6
"""Launches whose temperature, clock and power are drawn over time."""


def charts_of(view: View, held: PriceList = NONE) -> dict[str, Charts]:
    """By section: throughput, scaling, speedup, inside. `held`: what GPUs cost."""
    stacks = list(dict.fromkeys(view.every_cell["stack"])) if len(view.every_cell) else []
    watched, further = traces(view.launches, MOST_TRACES)
    within = phases.phases_table(view.launches), phases.steps_table(view.launches)
    return {
        "throughput": throughput.charts(view.cells, view.speedups, stacks, held),
        "scaling": scaling.charts(view.cells, view.scaling, view.decomposition, view.devices, stacks),
        "speedup": speedups.charts(view.speedups, ratios.settings_table(view.table), stacks),
        "inside": inside.charts(*within, watched, further, stacks),
    }
