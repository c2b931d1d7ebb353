"""Each setting alone: its ratio in pairs of cells that differ in nothing else, and whether one that can't matter does."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torchmatrix.analysis.cube.points import Point, Points
from torchmatrix.analysis.intervals import Interval, geometric_mean
from torchmatrix.analysis.verdicts import judged
from torchmatrix.matrix.factors import BY_NAME, Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """`value` of a setting over its usual value: the geometric mean over `n` pairs of cells; `missing` pairs have no ratio.

    `found`: of one pair with its interval over launches; a mean over pairs has none. `least`, `most`: the smallest and the
    largest ratio. `control`: "" where the setting may matter; else, for one that can't, "still" if every pair is SAME, "moved"
    if one is FASTER or SLOWER, corrected for their number, "uncertain" otherwise.
    """

    setting: str
    value: Value
    over: Value
    found: Interval
    least: float
    most: float
    n: int
    missing: int
    control: str


def effects_of(points: Points) -> tuple[Effect, ...]:
    """Of every value but the usual one of each setting."""
    return tuple(effect for name, values in points.varied.items() for effect in _of_setting(points, name, values))


def _of_setting(points: Points, name: str, values: Sequence[Value]) -> Iterator[Effect]:
    usual, *others = values
    for value in others:
        pairs = list(pairs_of(points, name, value, usual))
        good = [pair for pair in pairs if pair[0].speeds and pair[1].speeds]
        compared = [a.over(b) for a, b in good]
        ratios = [one.value for one in compared]
        found = compared[0].interval if len(compared) == 1 else geometric_mean(ratios)
        if pairs:
            yield Effect(
                setting=name, value=value, over=usual, found=found, n=len(ratios), missing=len(pairs) - len(ratios),
                least=min(ratios, default=math.nan), most=max(ratios, default=math.nan),
                control=_control(good) if cannot_matter(name, points.model) else "",
            )  # fmt: skip


def pairs_of(points: Points, name: str, value: Value, over: Value) -> Iterator[tuple[Point, Point]]:
    """The pairs of cells with these two values of a setting that agree in all other settings."""
    for point in points.points:
        if point.settings[name] == value and (other := points.at({**point.settings, name: over})):
            yield point, other


def cannot_matter(name: str, model: str) -> bool:
    """Is this setting a negative control for the model: one that can't change its speed?"""
    factor = BY_NAME.get(name)
    return factor is not None and any(fnmatchcase(model, glob) for glob in factor.idle_for)


def _control(pairs: Sequence[tuple[Point, Point]]) -> str:
    found = {one.verdict for one in judged([a.over(b) for a, b in pairs])}
    return "moved" if found & {"FASTER", "SLOWER"} else "still" if found == {"SAME"} else "uncertain"


def held_at(points: Points, name: str, value: Value, over: Value, held: Mapping[str, Value]) -> Interval:
    """The effect of a setting among the pairs in which other settings have the values `held`; unknown without such a pair."""
    pairs = [
        pair
        for pair in pairs_of(points, name, value, over)
        if pair[0].speeds and pair[1].speeds and all(pair[0].settings[key] == one for key, one in held.items())
    ]
    if len(pairs) == 1:
        ((point, other),) = pairs
        return point.over(other).interval
    return geometric_mean([a.over(b).value for a, b in pairs])
