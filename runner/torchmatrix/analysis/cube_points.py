"""Arrange cells as the points of a cube of settings: their estimates, the Pareto front, the path from the usual to the best."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torchmatrix.analysis import best
from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.centers import central
from torchmatrix.analysis.intervals import NOTEWORTHY, Interval, Moments, center_interval
from torchmatrix.analysis.metrics import ENERGY, MEMORY, Metric, latency_of
from torchmatrix.analysis.pairs import Pair
from torchmatrix.analysis.rows import LaunchRow, group_by
from torchmatrix.analysis.verdicts import FALSE_DISCOVERIES, are_comparable, of_picked
from torchmatrix.matrix import factors
from torchmatrix.matrix.factors import COLUMNS, OF_THE_JOB, Value

# A cube consists of the cells of one model, mode, size and device set that differ in settings only.

FEWEST_CELLS, FEWEST_SETTINGS = 6, 2
"""A smaller cube shows nothing that a table of ratios doesn't show."""
_SETTINGS = (*(factor.name for factor in COLUMNS if factor.name not in ("model", "mode")), "batch", "stack")


COSTS = (latency_of("infer"), latency_of("generate"), MEMORY, ENERGY)
"""Possible costs of a faster combination."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One cell. `settings`: those that the cube varies, by name; `metric`: what the cube compares."""

    cell: Cell
    settings: Mapping[str, Value]
    metric: Metric

    @property
    def row(self) -> LaunchRow:
        """Return the row of the cell's representative launch."""
        return self.cell.last

    @cached_property
    def speeds(self) -> tuple[float, ...]:
        """Return the speeds of its ok launches: the metric if more of it is better, else its inverse; empty if none has a
        figure."""
        return tuple(map(self.metric.speed, self.cell.values(self.metric.column)))

    @cached_property
    def speed(self) -> float:
        """Return the cell's figure as a speed; only of a cell that has one. (The median of inverses is another figure.)"""
        return self.metric.speed(central(self.cell.values(self.metric.column), self.cell.statistic(self.metric.column)))

    @cached_property
    def moments(self) -> Moments | None:
        """Return the moments of its speeds; None of one launch."""
        of_metric = self.cell.moments(self.metric.column)
        return of_metric and of_metric._replace(log=math.log(self.metric.speed(math.exp(of_metric.log))))

    @cached_property
    def costs(self) -> Mapping[str, float]:
        """Return the costs by name, NaN if unknown."""
        return {cost.column: self.cell.median(cost.column) for cost in COSTS}

    @property
    def limited(self) -> Mapping[str, float]:
        """Return what is held against limits: the costs, but of memory the highest of the launches, for all must fit."""
        most = max(self.cell.values(MEMORY.column), default=math.nan)
        return {**self.costs, MEMORY.column: most}

    def is_comparable(self, other: "Point") -> bool:
        """Check whether a test compares them (verdicts.are_comparable)."""
        return are_comparable(self.moments, other.moments)

    def over(self, other: "Point") -> Pair:
        """Return the ratio of its speed to that of another one."""
        above, below = (self.cell, other.cell) if self.metric.more_is_better else (other.cell, self.cell)
        return above.over(below, self.metric.column)

    def picked_of(self, candidates: int) -> Interval:
        """Return its figure of the metric, in an interval that covers whichever of so many was picked."""
        cell, column = self.cell, self.metric.column
        values, prior = cell.values(column), cell.prior(column)
        return of_picked(center_interval(values, cell.statistic(column), prior), prior.freedom + len(values) - 1, candidates)


@dataclass(frozen=True, kw_only=True)
class Points:
    """The cells of one job. `varied`: the values by setting, the usual one first."""

    model: str
    mode: str
    devices: str
    metric: Metric
    points: tuple[Point, ...]
    varied: Mapping[str, tuple[Value, ...]]

    @cached_property
    def measured(self) -> tuple[Point, ...]:
        """Return the points that have a figure, the fastest first."""
        return tuple(sorted((point for point in self.points if point.speeds), key=lambda point: -point.speed))

    @cached_property
    def _by_settings(self) -> Mapping[tuple[Value, ...], Point]:
        return {tuple(point.settings.values()): point for point in self.points}

    def at(self, settings: Mapping[str, Value]) -> Point | None:
        """Return the cell with these settings, if it was to be measured."""
        return self._by_settings.get(tuple(settings[name] for name in self.varied))


def points_of(
    rows: Iterable[LaunchRow], metric: Metric, fewest_cells: int = FEWEST_CELLS, fewest_settings: int = FEWEST_SETTINGS
) -> list[Points]:
    """Return the points of each job with enough cells and settings."""
    jobs = group_by(CellIndex(rows).figures, lambda cell: _job(cell.launches[-1]))
    cubes = [_points(cells, metric) for cells in jobs.values()]
    return [cube for cube in cubes if len(cube.points) >= fewest_cells and len(cube.varied) >= fewest_settings]


def _job(row: LaunchRow) -> tuple[Any, ...]:
    """Return the key that all cells of a cube share."""
    return row.model, row.mode, row.devices, row.flops_key, row.other_settings, row.value(OF_THE_JOB)


def _points(cells: Sequence[Cell], metric: Metric) -> Points:
    rows = [cell.last for cell in cells]
    values = {name: list(dict.fromkeys(_setting(row, name) for row in rows)) for name in _SETTINGS}
    varied = {name: tuple(_usual_first(name, options)) for name, options in values.items() if len(options) > 1}
    points = [Point(cell=cell, settings={name: _setting(cell.last, name) for name in varied}, metric=metric) for cell in cells]
    first = rows[0]
    return Points(model=first.model, mode=first.mode, devices=first.devices, metric=metric, points=tuple(points), varied=varied)


def _setting(row: LaunchRow, name: str) -> Value:
    """Return a setting of a row. The batch is the requested one: failed launches have no other."""
    value: Value = row.value("batch_requested" if name == "batch" else name)
    return value


def _usual_first(name: str, values: list[Value]) -> list[Value]:
    """Put the factor's default first, where it is among the values; batches are sorted, the smallest first."""
    if name == "batch":
        return sorted(values, key=lambda value: (isinstance(value, str), value if isinstance(value, int) else 0))
    default = factors.BY_NAME[name].default if name in factors.BY_NAME else None
    return sorted(values, key=lambda value: value != default)


def word_of(name: str, value: Value) -> str:
    """Return a setting's value for a reader, such as "precision amp" or "without compile"."""
    if isinstance(value, bool):
        return name if value else f"without {name}"
    if name == "stack" or value is None:
        return str(value)
    return f"{name} {value if isinstance(value, str) else json.dumps(value)}"


# The Pareto front: the cells for which none is faster at no more latency, memory or energy.


def front_of(points: Points, cost: Metric) -> list[Point]:
    """Return the measured cells of known cost that no other beats in cost or speed without being worse in the other.

    The cheapest first; each is faster than the one before.
    """
    candidates = [point for point in points.measured if not math.isnan(point.costs[cost.column])]
    front: list[Point] = []
    for point in sorted(candidates, key=lambda candidate: (candidate.costs[cost.column], -candidate.speed)):
        if not front or point.speed > front[-1].speed:
            front.append(point)
    return front


# The best combination of settings, and the path to it: one setting after the other, each time the one that gains most.


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One setting that was changed: the cell that it leads to, its speed over that of the cell before, and over the start."""

    setting: str
    value: Value
    point: Point
    gain: Interval
    so_far: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """`point`: the cell with the highest speed of `candidates`; `figure`: its speed in an interval that covers whichever is
    picked. `as_good`: how many can't be told apart from it, itself included. `start`: the cell with the usual settings, or
    nearest to them; `gain`: the best over it. `steps`: from there on, as long as a step gains (see steps_from).
    """

    point: Point
    figure: Interval
    candidates: int
    as_good: int
    start: Point
    gain: Interval
    steps: tuple[Step, ...]


def may_be_best(points: Sequence[Point]) -> list[int]:
    """Return the places of the points that may be the fastest: see best.may_be_best."""
    return best.may_be_best(
        points,
        moments=lambda point: point.moments,
        over=Point.over,
        rounds=lambda point: point.cell.rounds(point.metric.column),
    )


def leading(points: Sequence[Point]) -> list[Point]:
    """Return the points that may be the fastest, by tests, the fastest first; one of one launch stands alone.

    A speed may be higher than that of the first only because of its rounds, or as a median.
    """
    top = max(points, key=lambda point: point.speed)
    tested = [point for point in points if point is top or top.is_comparable(point)]
    return sorted((tested[place] for place in may_be_best(tested)), key=lambda point: -point.speed)


def best_of(points: Points) -> Best | None:
    """Return the best point and the path to it; None if nothing was measured."""
    measured = points.measured
    if not measured:
        return None
    left = leading(measured)
    point = left[0]
    start = nearest_to_usual(points)
    return Best(
        point=point,
        figure=point.picked_of(len(measured)),
        candidates=len(measured),
        as_good=len(left),
        start=start,
        gain=point.over(start).interval,
        steps=tuple(steps_from(points, start)),
    )


def steps_from(points: Points, start: Point) -> Iterator[Step]:
    """Yield steps from `start`, each changing one setting, to the fastest cell that is measured.

    The last one is before the first that would gain less than 1 %, or whose gain, of the fastest of so many (Bonferroni), may
    be none. Single launches are not tested.
    """
    current = start
    while True:
        near = [candidate for candidate in points.measured if len(_changed(current, candidate)) == 1]
        if not near:
            return
        fastest = max(near, key=lambda candidate: candidate.speed)
        gain = fastest.over(current)
        if not gain.value > 1 + NOTEWORTHY or gain.chances.differs * len(near) > FALSE_DISCOVERIES:
            return
        (setting,) = _changed(current, fastest)
        current = fastest
        so_far = fastest.over(start).interval
        yield Step(setting=setting, value=fastest.settings[setting], point=fastest, gain=gain.interval, so_far=so_far)


def _changed(a: Point, b: Point) -> list[str]:
    return [name for name, value in a.settings.items() if b.settings[name] != value]


def nearest_to_usual(points: Points) -> Point:
    """Return the measured cell with the usual settings, or with the most of them; the first of several."""
    usual = {name: values[0] for name, values in points.varied.items()}
    return min(points.measured, key=lambda point: sum(point.settings[name] != usual[name] for name in usual))
