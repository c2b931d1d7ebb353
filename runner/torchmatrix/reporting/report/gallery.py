"""The explorers of a report."""

from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.published import beside
from torchmatrix.reporting import explorers
from torchmatrix.reporting.explorers import Explorers
from torchmatrix.reporting.explorers.parts import Within
from torchmatrix.reporting.report.view import View


def explorers_of(view: View, held: PriceList = NONE) -> Explorers:
    """The explorers of one run."""
    published = {("", *place): found for place, found in beside.throughputs(beside.paired(view.measured)[0]).items()}
    within = Within(
        decomposition=view.decomposition,
        devices=view.devices,
        phases=view.digest.phases,
        steps=view.digest.steps,
        traces=view.digest.traces,
    )
    return explorers.of(view.table, view.cells, view.scaling, view.ratios, held, published, within)
