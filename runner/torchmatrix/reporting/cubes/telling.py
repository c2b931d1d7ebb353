"""What a cube shows, in plain sentences."""

import math
from collections.abc import Iterator, Mapping

from torchmatrix.analysis.cube import Cube
from torchmatrix.analysis.cube.path import Best
from torchmatrix.analysis.cube.points import Points, word_of
from torchmatrix.analysis.intervals import Interval
from torchmatrix.ground.numbers import figure
from torchmatrix.ground.texts import count
from torchmatrix.matrix.factors import Value
from torchmatrix.reporting import words

MOST_TOGETHER = 6
_CONTROLS = {
    "still": "changes nothing, as it must",
    "moved": "can't matter, but seems to: something else differs between these cells (look for it before trusting the rest)",
    "uncertain": "can't matter; too few or too noisy launches to confirm it",
}


def title(cube: Cube) -> str:
    points = cube.points
    return f"{points.model}, {points.mode}, {words.devices(points.devices)}"


def sentences(cube: Cube) -> Iterator[str]:
    """The best, the cheap way to it, what works only together, what can't matter."""
    points = cube.points
    if cube.best is None:
        yield f"None of {count(len(points.points), 'combination')} has a figure."
        return
    yield _best(points, cube.best)
    yield from _steps(cube.best)
    yield from (f"{one.sentence}." for one in cube.interactions.together[:MOST_TOGETHER])
    for effect in (one for one in cube.effects if one.control):
        name, pairs = word_of(effect.setting, effect.value), count(effect.n, "pair")
        yield f"Negative control: {name} {_CONTROLS[effect.control]}: {ratio_of(effect.found)} over {pairs}."


def combination(settings: Mapping[str, Value]) -> str:
    """Settings for a reader."""
    return ", ".join(word_of(name, value) for name, value in settings.items())


def _best(points: Points, best: Best) -> str:
    failed = len(points.points) - best.candidates
    lost = f" ({count(failed, 'other')} without a figure)" if failed else ""
    found = f"{combination(best.point.settings)}, {_figure(points, best)}"
    said = f"The highest of {count(best.candidates, 'combination')}{lost}: {found}"
    also = best.as_good - 1
    shared = f"; no difference shown from {count(also, 'other')}" if also else ""
    return f"{said}, {ratio_of(best.gain)} over {combination(best.start.settings)}{shared}."


def _figure(points: Points, best: Best) -> str:
    metric, unit = points.metric, str(best.point.row["unit"])
    values = [metric.times * metric.speed(one) for one in (best.figure.value, best.figure.low, best.figure.high)]
    limits = (
        "one launch"
        if math.isnan(values[1])
        else f"{figure(values[1])} to {figure(values[2])}, which allows for being the highest of {best.candidates}"
    )
    return f"{figure(values[0])} {metric.said(unit)} ({limits})"


def _steps(best: Best) -> Iterator[str]:
    if not best.steps:
        return
    said = ", then ".join(f"{word_of(step.setting, step.value)} {ratio_of(step.gain)}" for step in best.steps)
    reached = best.steps[-1].point.speed / best.point.speed
    end = (
        "together the highest" if best.steps[-1].point is best.point else f"together {words.percent(reached, 1)} of the highest"
    )
    yield f"Largest gain first: {said}; {end}."


def ratio_of(found: Interval) -> str:
    """Such as 1.20× (1.18 to 1.22)."""
    if math.isnan(found.value):
        return "not measured"
    limits = words.effect_interval(found.value, found.low, found.high)
    return f"{words.effect(found.value)} {limits or '(not tested)'}"
