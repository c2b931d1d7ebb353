"""Cubes -> their section of the report: sentences, the charts of what a faster combination costs, tables."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis.cube_points import COSTS, Best, Point, Points, front_of, word_of
from torchmatrix.analysis.effects import Cube, cubes_of
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.metrics import Metric
from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.core.formatting import count, figure
from torchmatrix.matrix.factors import Value
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import BarRow, Chart, Panel, scale_of

MOST_CUBES = 6
"""Most cubes on one page; all are in the exported tables."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """The section of a report on one cube."""

    title: str
    sentences: tuple[str, ...]
    charts: tuple[Chart, ...]
    explained: tuple[dict[str, Any], ...]
    unexplained: float
    why_not: str


def sections_of(launches: Sequence[LaunchRow]) -> list[Section]:
    """Return a section for each of the first cubes of a run's launches."""
    return [_section(cube, place) for place, cube in enumerate(cubes_of(launches)[:MOST_CUBES])]


def _section(cube: Cube, place: int) -> Section:
    return Section(
        title=title_of(cube),
        sentences=tuple(sentences(cube)),
        charts=tuple(_charts(cube, place)),
        explained=tuple(
            {"settings": " × ".join(part.settings), "share": part.share, "p": part.adjusted_p_value}
            for part in cube.interactions.explained
        ),
        unexplained=cube.interactions.unexplained,
        why_not=cube.interactions.why_not,
    )


MOST_TOGETHER = 6
_CONTROLS = {
    "still": "changes nothing, as it must",
    "moved": "can't matter, but seems to: something else differs between these cells (look for it before trusting the rest)",
    "uncertain": "can't matter; too few or too noisy launches to confirm it",
}


def title_of(cube: Cube) -> str:
    points = cube.points
    return f"{points.model}, {points.mode}, {words.devices(points.devices)}"


def sentences(cube: Cube) -> Iterator[str]:
    """Yield what is best, the cheap way to it, what works only together, what can't matter."""
    points = cube.points
    if cube.best is None:
        yield f"None of {count(len(points.points), 'combination')} has a figure."
        return
    yield _best(points, cube.best)
    yield from _steps(cube.best)
    yield from (f"{interaction.sentence}." for interaction in cube.interactions.together[:MOST_TOGETHER])
    if cube.interactions.explained and not cube.interactions.with_pairs:
        yield "Whether some settings help only together was not tested: these cells don't tell their pairs apart."
    for effect in (effect for effect in cube.effects if effect.control):
        name, pairs = word_of(effect.setting, effect.value), count(effect.n, "pair")
        yield f"Negative control: {name} {_CONTROLS[effect.control]}: {ratio_of(effect.found)} over {pairs}."


def combination(settings: Mapping[str, Value]) -> str:
    """Write settings for a reader."""
    return ", ".join(word_of(name, value) for name, value in settings.items())


def _best(points: Points, best: Best) -> str:
    failed = len(points.points) - best.candidates
    lost = f" ({count(failed, 'other')} without a figure)" if failed else ""
    highest = f"{combination(best.point.settings)}, {_figure(points, best)}"
    equal = best.as_good - 1
    shared = f"; no difference shown from {count(equal, 'other')}" if equal else ""
    return (
        f"The highest of {count(best.candidates, 'combination')}{lost}: {highest}, {ratio_of(best.gain)} over "
        f"{combination(best.start.settings)}{shared}."
    )


def _figure(points: Points, best: Best) -> str:
    metric, unit = points.metric, str(best.point.row.unit)
    values = [metric.times * end for end in (best.figure.value, best.figure.low, best.figure.high)]
    limits = (
        "one launch"
        if math.isnan(values[1])
        else f"{figure(values[1])} to {figure(values[2])}, which allows for being the highest of {best.candidates}"
    )
    return f"{figure(values[0])} {metric.said(unit)} ({limits})"


def _steps(best: Best) -> Iterator[str]:
    if not best.steps:
        return
    gains = ", then ".join(f"{word_of(step.setting, step.value)} {ratio_of(step.gain)}" for step in best.steps)
    reached = best.steps[-1].point.speed / best.point.speed
    end = (
        "together the highest" if best.steps[-1].point is best.point else f"together {words.percent(reached, 1)} of the highest"
    )
    yield f"Largest gain first: {gains}; {end}."


def ratio_of(ratio: Interval) -> str:
    """Write a ratio such as 1.20× (1.18 to 1.22)."""
    if math.isnan(ratio.value):
        return "not measured"
    limits = words.effect_interval(ratio.value, ratio.low, ratio.high)
    return f"{words.effect(ratio.value, ratio.low, ratio.high)} {limits or '(not tested)'}"


FEWEST = 3
"""Fewest cells with a known cost that are drawn."""
ALIKE = 1.02
"""Costs whose ratio is smaller count as the same: there is nothing to choose."""
MOST_ROWS = 12


def _charts(cube: Cube, place: int) -> Iterator[Chart]:
    """Yield a chart for each cost. `place`: the cube's number on its page, for the ids."""
    for cost in COSTS:
        costly = [point for point in cube.points.measured if point.costs[cost.column] > 0]
        costs = [point.costs[cost.column] for point in costly]
        if len(costly) >= FEWEST and max(costs) > ALIKE * min(costs):
            yield _front(cube, cost, costly, place)


def _front(cube: Cube, cost: Metric, costly: list[Point], place: int) -> Chart:
    points, front = cube.points, front_of(cube.points, cost)
    metric, unit = points.metric, str(costly[0].row.unit)
    rows = tuple(_row(points.metric, cost, point) for point in front[:MOST_ROWS])
    title = f"{len(front)} of {len(costly)} combinations have no other that is both faster and lower in {cost.title}"
    return Chart(
        id=f"front-{place}-{words.slug(points.model, points.mode, cost.column)}",
        title="One combination is best in both: fastest, and lowest in " + cost.title if len(front) == 1 else title,
        sub=f"{title_of(cube)}. Columns: {metric.said(unit)}, {cost.title} in {cost.shown_unit}. Medians of the launches.",
        panels=((Panel(title="", rows=rows, high=scale_of(rows), kind="latency"),),),
        more=words.more(len(front) - MOST_ROWS),
    )


def _row(metric: Metric, cost: Metric, point: Point) -> BarRow:
    speed = metric.times * metric.speed(point.speed)
    spent = words.with_unit(cost.times * point.costs[cost.column], cost.shown_unit)
    return BarRow(label=combination(point.settings), value=speed, figures=(words.short(speed), spent))
