"""The charts of a cube: what a faster combination of settings costs. What each setting brings is in the page's forest plot."""

from collections.abc import Iterator

from torchmatrix.analysis.cube import Cube
from torchmatrix.analysis.cube.front import front_of
from torchmatrix.analysis.cube.points import COSTS, Cost, Point
from torchmatrix.reporting import words
from torchmatrix.reporting.charts.rows import Chart, Panel, Row, scale_of
from torchmatrix.reporting.cubes import telling

FEWEST = 3
"""Cells whose cost is known; fewer make no picture."""
ALIKE = 1.02
"""Costs whose ratio is smaller are the same: there is nothing to choose."""
MOST_ROWS = 12


def of(cube: Cube, place: int) -> Iterator[Chart]:
    """`place`: of the cube on its page, for the ids."""
    for cost in COSTS:
        known = [point for point in cube.points.measured if point.costs[cost.name] > 0]
        costs = [point.costs[cost.name] for point in known]
        if len(known) >= FEWEST and max(costs) > ALIKE * min(costs):
            yield _front(cube, cost, known, place)


def _front(cube: Cube, cost: Cost, known: list[Point], place: int) -> Chart:
    points, front = cube.points, front_of(cube.points, cost)
    metric, unit = points.metric, str(known[0].row["unit"])
    rows = tuple(_row(cube, cost, one, metric.said(unit)) for one in front[:MOST_ROWS])
    title = f"{len(front)} of {len(known)} combinations have no other that is both faster and lower in {cost.title}"
    return Chart(
        id=f"front-{place}-{words.slug(points.model, points.mode, cost.name)}",
        title="One combination is best in both: fastest, and lowest in " + cost.title if len(front) == 1 else title,
        sub=f"{telling.title(cube)}. Columns: {metric.said(unit)}, {cost.title} in {cost.unit}. Medians of the launches.",
        panels=((Panel(title="", rows=rows, high=scale_of(rows), kind="latency"),),),
        more=f"{len(front) - MOST_ROWS} more" if len(front) > MOST_ROWS else "",
    )


def _row(cube: Cube, cost: Cost, one: Point, unit: str) -> Row:
    metric = cube.points.metric
    speed = metric.times * metric.speed(one.speed)
    spent = words.with_unit(cost.times * one.costs[cost.name], cost.unit)
    return Row(label=telling.combination(one.settings), value=speed, figures=(words.short(speed), spent))
