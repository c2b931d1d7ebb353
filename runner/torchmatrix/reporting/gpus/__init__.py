"""GPU beside GPU: what a page of several machines says first. Open first: facts.py; answers.py and charts.py are made of it."""

from dataclasses import dataclass

from torchmatrix.reporting.charts.rows import Chart
from torchmatrix.reporting.gpus import answers, charts, pairs
from torchmatrix.reporting.gpus.facts import Gpus
from torchmatrix.reporting.gpus.pairs import Pairs
from torchmatrix.reporting.overview.answers import Answers

__all__ = ["Gpus", "Shown", "shown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """`charts`: in the page's order; `pairs`: every pair of GPUs, None of a single one."""

    answers: Answers
    charts: tuple[Chart, ...]
    pairs: Pairs | None


def shown(gpus: Gpus) -> Shown:
    """The default view of a page of machines."""
    made = charts.relative(gpus), charts.throughput(gpus), charts.scaling(gpus), charts.worth(gpus)
    return Shown(answers=answers.answers(gpus), charts=tuple(one for one in made if one), pairs=pairs.pairs(gpus))
