"""Estimate what each setting of a cube brings, alone and together with others."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np
from scipy.special import fdtrc

from torchmatrix.analysis.cube_points import Best, Point, Points, best_of, points_of, word_of
from torchmatrix.analysis.intervals import NOTEWORTHY, Interval, geometric_mean
from torchmatrix.analysis.metrics import THROUGHPUT, Metric
from torchmatrix.analysis.rows import Row
from torchmatrix.analysis.verdicts import FALSE_DISCOVERIES, adjusted, judged
from torchmatrix.matrix.factors import BY_NAME, Value

# Each setting alone: its ratio in pairs of cells that differ in nothing else, and whether one that can't matter does.


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


# Settings in pairs: how much of the variance of log speed each explains, and what one does only together with another.
#
# Analysis of variance with sums of squares of type II (R. Langsrud, Statistics and Computing 13 (2003), 163-167), one value for
# each cell. The residual is what three settings do together, and noise: a small interaction isn't told, and hardly one by
# noise.

MATERIAL = 0.05
"""Two effects of one setting differ by more than this, or their interaction isn't told: our own decision."""
FEWEST_LEFT = 3
"""Degrees of freedom of the residual, or nothing is tested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """`settings`: one, or two for their interaction. `share` of the variance of log speed; `adjusted_p_value`: of the F test,
    corrected for all of the cube (Benjamini and Hochberg)."""

    settings: tuple[str, ...]
    share: float
    adjusted_p_value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """What `value` of a setting does over its usual one, by the values of another: intervals over pairs of cells."""

    setting: str
    value: Value
    over: Value
    other: str
    by_value: tuple[tuple[Value, Interval], ...]

    @property
    def sentence(self) -> str:
        """Such as: what channels_last does depends on precision: ×1.42 with precision amp; ×0.98 with precision fp32.

        That it depends is what the F test tells; it doesn't tell any of the figures from 1.
        """
        ordered = sorted(self.by_value, key=lambda pair: -pair[1].value)
        figures = "; ".join(f"×{found.value:.2f} with {word_of(self.other, value)}" for value, found in ordered)
        return f"What {word_of(self.setting, self.value)} does depends on {self.other}: {figures}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Interactions:
    """`explained`: the largest share first. `together`: what was told, the largest difference first. `why_not`: why nothing was
    tested, else ""; `with_pairs`: whether interactions were."""

    explained: tuple[Explained, ...] = ()
    together: tuple[Together, ...] = ()
    unexplained: float = math.nan
    with_pairs: bool = False
    why_not: str = ""


def interactions_of(points: Points) -> Interactions:
    """Of the measured cells; settings in pairs only where the cells tell them apart."""
    varied = {name: values for name in points.varied if len(values := _levels(points, name)) > 1}
    if len(varied) < 2:
        return Interactions(why_not="fewer than two settings were measured at several values")
    for with_pairs in (True, False):
        found = _analysed(points, list(varied), with_pairs)
        if found is not None:
            explained, rest = found
            together = tuple(_together(points, varied, explained)) if with_pairs else ()
            return Interactions(explained=explained, together=together, unexplained=rest, with_pairs=with_pairs)
    return Interactions(why_not="too few cells were measured to tell the settings apart")


def _levels(points: Points, name: str) -> list[Value]:
    seen = {point.settings[name] for point in points.measured}
    return [value for value in points.varied[name] if value in seen]


def _analysed(points: Points, names: Sequence[str], with_pairs: bool) -> tuple[tuple[Explained, ...], float] | None:
    """What each term explains, and what is left; None if the cells don't tell the terms apart."""
    log_speed = np.array([math.log(point.speed) for point in points.measured])
    of: dict[tuple[str, ...], _Matrix] = {
        (name,): _columns([str(point.settings[name]) for point in points.measured]) for name in names
    }
    if with_pairs:
        of |= {(a, b): _products(of[a,], of[b,]) for a, b in itertools.combinations(names, 2)}
    whole = _design(of.values(), len(log_speed))
    freedom, total = len(log_speed) - whole.shape[1], _left(_design([], len(log_speed)), log_speed)
    if np.linalg.matrix_rank(whole) < whole.shape[1] or freedom < FEWEST_LEFT or not total > 0:
        return None
    rest = _left(whole, log_speed)
    squares = {term: _squares(of, term, log_speed) for term in of}
    chances = [_p_value(squares[term] / of[term].shape[1], of[term].shape[1], rest / freedom, freedom) for term in of]
    explained = [
        Explained(settings=term, share=squares[term] / total, adjusted_p_value=p)
        for term, p in zip(of, adjusted(chances), strict=True)
    ]
    return tuple(sorted(explained, key=lambda one: -one.share)), rest / total


_Matrix: TypeAlias = "np.ndarray[Any, Any]"
"""A row for each cell."""


def _columns(values: Sequence[str]) -> _Matrix:
    """A column of 0 and 1 for each value but the first."""
    return np.array([[float(value == level) for level in sorted(set(values))[1:]] for value in values])


def _products(some: _Matrix, others: _Matrix) -> _Matrix:
    return (some[:, :, None] * others[:, None, :]).reshape(len(some), -1)


def _design(columns: Iterable[_Matrix], count: int) -> _Matrix:
    return np.hstack([np.ones((count, 1)), *columns])


def _left(design: _Matrix, values: _Matrix) -> float:
    """The sum of squares that least squares leave."""
    found = np.linalg.lstsq(design, values, rcond=None)[0]
    return float(((values - design @ found) ** 2).sum())


def _squares(of: Mapping[tuple[str, ...], _Matrix], term: tuple[str, ...], values: _Matrix) -> float:
    """By how much less is left with `term` than without it, beside all terms that don't contain it (type II)."""
    others = [columns for name, columns in of.items() if not set(term) <= set(name)]
    without, with_it = (_left(_design(some, len(values)), values) for some in (others, [*others, of[term]]))
    return max(0.0, without - with_it)


def _p_value(mean_square: float, freedom: int, mean_rest: float, freedom_of_rest: int) -> float:
    """Of the F test; 1 where a term explains nothing of nothing."""
    if not mean_rest > 0:
        return 0.0 if mean_square > 0 else 1.0
    return float(fdtrc(freedom, freedom_of_rest, mean_square / mean_rest))


def _together(points: Points, varied: Mapping[str, Sequence[Value]], explained: Sequence[Explained]) -> list[Together]:
    """Of each interaction that is told, the way round and the value that differ most."""
    found = []
    for one in explained:
        if len(one.settings) == 2 and one.adjusted_p_value <= FALSE_DISCOVERIES:
            ways = [way for pair in itertools.permutations(one.settings) for way in _ways(points, varied, *pair)]
            if ways and _difference(best := max(ways, key=_telling)) > MATERIAL:
                found.append(best)
    return sorted(found, key=lambda one: -_difference(one))


def _ways(points: Points, varied: Mapping[str, Sequence[Value]], name: str, other: str) -> Iterator[Together]:
    usual, *others = varied[name]
    for value in others:
        held = [(level, held_at(points, name, value, usual, {other: level})) for level in varied[other]]
        known = tuple(pair for pair in held if not math.isnan(pair[1].value))
        if len(known) > 1:
            yield Together(setting=name, value=value, over=usual, other=other, by_value=known)


def _telling(one: Together) -> tuple[float, bool]:
    """Both ways round two settings of two values differ by the same: then the one that helps only sometimes says more."""
    return round(_difference(one), 9), min(found.value for _, found in one.by_value) <= 1 + NOTEWORTHY


def _difference(one: Together) -> float:
    values = [found.value for _, found in one.by_value]
    return max(values) / min(values) - 1


# A cube: cells of one job whose settings were varied together. What does each setting do, which combination is the best?
#
# In: the rows of launches (launch_row.py). Out: Cube, one for each job. Begin with points.py, which says what a cube is; then
# effects.py (each setting alone), interactions.py (settings in pairs), path.py (the best, and the cheap way to it) and front.py
# (what no other combination beats).
#
# All ratios are of speed: of throughputs the ratio, of latencies its inverse, so that more than 1 is better.


@dataclass(frozen=True, kw_only=True, slots=True)
class Cube:
    """One job. `effects`: of each setting over the usual one; `best`: None if nothing was measured."""

    points: Points
    effects: tuple[Effect, ...]
    interactions: Interactions
    best: Best | None


def cubes_of(rows: Iterable[Row], metric: Metric = THROUGHPUT) -> list[Cube]:
    """The cubes among the launches of one machine, in the order in which their jobs first appear."""
    return [
        Cube(points=one, effects=effects_of(one), interactions=interactions_of(one), best=best_of(one))
        for one in points_of(rows, metric)
    ]
