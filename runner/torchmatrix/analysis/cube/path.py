"""The best combination of settings, and the cheap way to it: one setting after the other, each the one that gains most."""

from collections.abc import Iterator
from dataclasses import dataclass

from torchmatrix.analysis.best import may_be_best
from torchmatrix.analysis.cube.points import Point, Points
from torchmatrix.analysis.intervals import NOTEWORTHY, Interval
from torchmatrix.analysis.verdicts import FALSE_DISCOVERIES
from torchmatrix.matrix.factors import Value


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


def best_of(points: Points) -> Best | None:
    measured = points.measured
    if not measured:
        return None
    point = measured[0]
    start = nearest_to_usual(points)
    return Best(
        point=point,
        figure=point.picked_of(len(measured)),
        candidates=len(measured),
        as_good=len(may_be_best([one.moments for one in measured])),
        start=start,
        gain=point.over(start).interval,
        steps=tuple(steps_from(points, start)),
    )


def steps_from(points: Points, start: Point) -> Iterator[Step]:
    """Each step changes one setting, to the fastest cell that is measured; the last one is before the first that would gain
    less than 1 %, or whose gain, of the fastest of so many (Bonferroni), may be none. Single launches are not tested."""
    here = start
    while True:
        near = [one for one in points.measured if len(_changed(here, one)) == 1]
        if not near:
            return
        best = max(near, key=lambda one: one.speed)
        gain = best.over(here)
        if not gain.value > 1 + NOTEWORTHY or gain.chances.differs * len(near) > FALSE_DISCOVERIES:
            return
        (setting,) = _changed(here, best)
        here = best
        so_far = best.over(start).interval
        yield Step(setting=setting, value=best.settings[setting], point=best, gain=gain.interval, so_far=so_far)


def _changed(a: Point, b: Point) -> list[str]:
    return [name for name, value in a.settings.items() if b.settings[name] != value]


def nearest_to_usual(points: Points) -> Point:
    """The measured cell with the usual settings, or with as many of them as there is one; the first of several."""
    return min(points.measured, key=lambda one: _unusual(points, one))


def _unusual(points: Points, point: Point) -> int:
    return sum(point.settings[name] != values[0] for name, values in points.varied.items())
