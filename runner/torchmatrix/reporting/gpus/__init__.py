"""GPU beside GPU: what a page of several machines says first. Open first: facts.py; answers.py and charts.py are made of it."""

from dataclasses import dataclass

from torchmatrix.reporting import words
from torchmatrix.reporting.charts.rows import Chart
from torchmatrix.reporting.gpus import answers, charts
from torchmatrix.reporting.gpus.facts import Gpus
from torchmatrix.reporting.overview.answers import Answers

__all__ = ["Gpus", "Shown", "shown"]


MOST = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """`cells`: by row, of each column the ratio, its interval, the verdict's words and the colour that it has on the page."""

    gpus: tuple[str, ...]
    cells: tuple[tuple[tuple[str, str, str, str], ...], ...]
    left_out: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """`charts`: in the page's order; `pairs`: every pair of GPUs, None of a single one."""

    answers: Answers
    charts: tuple[Chart, ...]
    pairs: Pairs | None


def shown(gpus: Gpus) -> Shown:
    """The default view of a page of machines."""
    made = charts.relative(gpus), charts.throughput(gpus), charts.scaling(gpus), charts.worth(gpus)
    return Shown(answers=answers.answers(gpus), charts=tuple(one for one in made if one), pairs=pairs(gpus))


def pairs(gpus: Gpus) -> Pairs | None:
    """On the fewest devices; None for fewer than two GPUs with a figure."""
    names = gpus.order[:MOST]
    if len(names) < 2 or not gpus.counts:
        return None
    cells = tuple(tuple(_cell(gpus, own, over) for over in names) for own in names)
    return Pairs(gpus=tuple(names), cells=cells, left_out=len(gpus.order) - len(names))


def _cell(gpus: Gpus, own: str, over: str) -> tuple[str, str, str, str]:
    if own == over:
        return "1×", "", "", ""
    found = gpus.mean(own, over, gpus.least)
    if found is None:
        return "–", "", "not compared", ""
    value = found.interval
    limits = words.effect_interval(value.value, value.low, value.high)
    colour = {"FASTER": "good", "SLOWER": "bad"}.get(found.verdict, "")
    return words.effect(value.value), limits, words.verdict(found.verdict), colour
