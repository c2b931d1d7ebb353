"""Estimate the effect of each setting of a cube, alone and together with others."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np

from torchmatrix.analysis.cube_points import Best, Point, Points, best_of, points_of, word_of
from torchmatrix.analysis.intervals import NOTEWORTHY, Interval, adjusted, geometric_mean
from torchmatrix.analysis.metrics import THROUGHPUT, Metric
from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.analysis.special import fdtrc
from torchmatrix.analysis.verdicts import FALSE_DISCOVERIES, judged
from torchmatrix.matrix.factors import BY_NAME, Value

# Effects of single settings: ratios in pairs of cells that differ in nothing else, and whether one that can't matter does.


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
    """Return the effect of every value but the usual one of each setting."""
    return tuple(effect for name, values in points.varied.items() for effect in _effects_of_setting(points, name, values))


def _effects_of_setting(points: Points, name: str, values: Sequence[Value]) -> Iterator[Effect]:
    usual, *others = values
    for value in others:
        pairs = list(pairs_of(points, name, value, usual))
        good = [pair for pair in pairs if pair[0].speeds and pair[1].speeds]
        compared = [a.over(b) for a, b in good]
        ratios = [ratio.value for ratio in compared]
        estimate = compared[0].interval if len(compared) == 1 else geometric_mean(ratios)
        if pairs:
            yield Effect(
                setting=name, value=value, over=usual, found=estimate, n=len(ratios), missing=len(pairs) - len(ratios),
                least=min(ratios, default=math.nan), most=max(ratios, default=math.nan),
                control=_control(good) if cannot_matter(name, points.model) else "",
            )  # fmt: skip


def pairs_of(points: Points, name: str, value: Value, over: Value) -> Iterator[tuple[Point, Point]]:
    """Yield the pairs of cells with these two values of a setting that agree in all other settings."""
    for point in points.points:
        if point.settings[name] == value and (other := points.at({**point.settings, name: over})):
            yield point, other


def cannot_matter(name: str, model: str) -> bool:
    """Check whether this setting is a negative control for the model: one that can't change its speed."""
    factor = BY_NAME.get(name)
    return factor is not None and any(fnmatchcase(model, glob) for glob in factor.idle_for)


def _control(pairs: Sequence[tuple[Point, Point]]) -> str:
    verdicts = {judgement.verdict for judgement in judged([a.over(b) for a, b in pairs])}
    return "moved" if verdicts & {"FASTER", "SLOWER"} else "still" if verdicts == {"SAME"} else "uncertain"


def held_at(points: Points, name: str, value: Value, over: Value, held: Mapping[str, Value]) -> Interval:
    """Return the effect of a setting among the pairs in which other settings have the values `held`; unknown without such a
    pair."""
    pairs = [
        pair
        for pair in pairs_of(points, name, value, over)
        if pair[0].speeds and pair[1].speeds and all(pair[0].settings[key] == required for key, required in held.items())
    ]
    if len(pairs) == 1:
        ((point, other),) = pairs
        return point.over(other).interval
    return geometric_mean([a.over(b).value for a, b in pairs])


# Settings in pairs: how much of the variance of log speed each explains, and what one does only together with another.
#
# Analysis of variance with sums of squares of type II (R. Langsrud, Statistics and Computing 13 (2003), 163-167), one value for
# each cell. The residual is the joint effect of three settings, and noise: small interactions aren't reported, and hardly any
# that is noise.

MATERIAL = 0.05
"""An interaction is reported only if two effects of one setting differ by more than this: our own decision."""
FEWEST_LEFT = 3
"""The fewest degrees of freedom of the residual with which anything is tested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """A term of the analysis. `settings`: one, or two for their interaction. `share` of the variance of log speed;
    `adjusted_p_value`: of the F test, corrected for all of the cube (Benjamini and Hochberg).
    """

    settings: tuple[str, ...]
    share: float
    adjusted_p_value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """The effect of `value` of a setting over its usual one, by the values of another: intervals over pairs of cells."""

    setting: str
    value: Value
    over: Value
    other: str
    by_value: tuple[tuple[Value, Interval], ...]

    @property
    def sentence(self) -> str:
        """Return a sentence such as: what channels_last does depends on precision: ×1.42 with precision amp; ×0.98 with
        precision fp32.

        The F test shows that the effect depends; it doesn't test any of the figures against 1.
        """
        ordered = sorted(self.by_value, key=lambda pair: -pair[1].value)
        figures = "; ".join(f"{interval.value:.2f}× with {word_of(self.other, value)}" for value, interval in ordered)
        return f"What {word_of(self.setting, self.value)} does depends on {self.other}: {figures}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Interactions:
    """The analysis of a cube. `explained`: the largest share first. `together`: significant interactions, the largest
    difference first. `why_not`: why nothing was tested, else ""; `with_pairs`: whether interactions were."""

    explained: tuple[Explained, ...] = ()
    together: tuple[Together, ...] = ()
    unexplained: float = math.nan
    with_pairs: bool = False
    why_not: str = ""


def interactions_of(points: Points) -> Interactions:
    """Analyse the measured cells; settings in pairs only where the cells distinguish them."""
    varied = {name: values for name in points.varied if len(values := _levels(points, name)) > 1}
    if len(varied) < 2:
        return Interactions(why_not="fewer than two settings were measured at several values")
    for with_pairs in (True, False):
        analysis = _analysed(points, list(varied), with_pairs)
        if analysis is not None:
            explained, rest = analysis
            together = tuple(_together(points, varied, explained)) if with_pairs else ()
            return Interactions(explained=explained, together=together, unexplained=rest, with_pairs=with_pairs)
    return Interactions(why_not="too few cells were measured to tell the settings apart")


def _levels(points: Points, name: str) -> list[Value]:
    measured = {point.settings[name] for point in points.measured}
    return [value for value in points.varied[name] if value in measured]


def _analysed(points: Points, names: Sequence[str], with_pairs: bool) -> tuple[tuple[Explained, ...], float] | None:
    """Return what each term explains, and what is left; None if the cells don't distinguish the terms."""
    log_speed = np.array([math.log(point.speed) for point in points.measured])
    terms: dict[tuple[str, ...], _Matrix] = {
        (name,): _columns([str(point.settings[name]) for point in points.measured]) for name in names
    }
    if with_pairs:
        terms |= {(a, b): _products(terms[a,], terms[b,]) for a, b in itertools.combinations(names, 2)}
    whole = _design(terms.values(), len(log_speed))
    freedom, total = len(log_speed) - whole.shape[1], _residual_squares(_design([], len(log_speed)), log_speed)
    if np.linalg.matrix_rank(whole) < whole.shape[1] or freedom < FEWEST_LEFT or not total > 0:
        return None
    rest = _residual_squares(whole, log_speed)
    squares = {term: _squares(terms, term, log_speed) for term in terms}
    chances = [_p_value(squares[term] / terms[term].shape[1], terms[term].shape[1], rest / freedom, freedom) for term in terms]
    explained = [
        Explained(settings=term, share=squares[term] / total, adjusted_p_value=p)
        for term, p in zip(terms, adjusted(chances), strict=True)
    ]
    return tuple(sorted(explained, key=lambda item: -item.share)), rest / total


_Matrix: TypeAlias = "np.ndarray[Any, Any]"
"""A matrix with a row for each cell."""


def _columns(values: Sequence[str]) -> _Matrix:
    """Return a column of 0 and 1 for each value but the first."""
    return np.array([[float(value == level) for level in sorted(set(values))[1:]] for value in values])


def _products(columns: _Matrix, other_columns: _Matrix) -> _Matrix:
    return (columns[:, :, None] * other_columns[:, None, :]).reshape(len(columns), -1)


def _design(columns: Iterable[_Matrix], count: int) -> _Matrix:
    return np.hstack([np.ones((count, 1)), *columns])


def _residual_squares(design: _Matrix, values: _Matrix) -> float:
    """Return the sum of squares that least squares leave."""
    coefficients = np.linalg.lstsq(design, values, rcond=None)[0]
    return float(((values - design @ coefficients) ** 2).sum())


def _squares(terms: Mapping[tuple[str, ...], _Matrix], term: tuple[str, ...], values: _Matrix) -> float:
    """Return by how much less is left with `term` than without it, beside all terms that don't contain it (type II)."""
    others = [columns for name, columns in terms.items() if not set(term) <= set(name)]
    without, with_it = (_residual_squares(_design(chosen, len(values)), values) for chosen in (others, [*others, terms[term]]))
    return max(0.0, without - with_it)


def _p_value(mean_square: float, freedom: int, mean_rest: float, freedom_of_rest: int) -> float:
    """Return the p-value of the F test; 1 where a term explains nothing of nothing."""
    if not mean_rest > 0:
        return 0.0 if mean_square > 0 else 1.0
    return float(fdtrc(freedom, freedom_of_rest, mean_square / mean_rest))


def _together(points: Points, varied: Mapping[str, Sequence[Value]], explained: Sequence[Explained]) -> list[Together]:
    """Return for each significant interaction the direction and the value that differ most."""
    interactions = []
    for term in explained:
        if len(term.settings) == 2 and term.adjusted_p_value <= FALSE_DISCOVERIES:
            directions = [way for pair in itertools.permutations(term.settings) for way in _directions(points, varied, *pair)]
            if directions and _difference(best := max(directions, key=_informativeness)) > MATERIAL:
                interactions.append(best)
    return sorted(interactions, key=lambda together: -_difference(together))


def _directions(points: Points, varied: Mapping[str, Sequence[Value]], name: str, other: str) -> Iterator[Together]:
    usual, *others = varied[name]
    for value in others:
        held = [(level, held_at(points, name, value, usual, {other: level})) for level in varied[other]]
        measured = tuple(pair for pair in held if not math.isnan(pair[1].value))
        if len(measured) > 1:
            yield Together(setting=name, value=value, over=usual, other=other, by_value=measured)


def _informativeness(together: Together) -> tuple[float, bool]:
    """Return a sort key: the difference, then whether the setting helps only sometimes.

    Both directions of two settings with two values differ by the same.
    """
    return round(_difference(together), 9), min(interval.value for _, interval in together.by_value) <= 1 + NOTEWORTHY


def _difference(together: Together) -> float:
    values = [interval.value for _, interval in together.by_value]
    return max(values) / min(values) - 1


# A cube: cells of one job whose settings were varied together.
#
# In: the rows of launches (launch_row.py). Out: one Cube for each job. cube_points.py defines its points, the best combination
# and the path to it. All ratios are of speed: of throughputs the ratio, of latencies its inverse, so that above 1 is better.


@dataclass(frozen=True, kw_only=True, slots=True)
class Cube:
    """One job. `effects`: each setting over the usual one; `best`: None if nothing was measured."""

    points: Points
    effects: tuple[Effect, ...]
    interactions: Interactions
    best: Best | None


def cubes_of(rows: Iterable[LaunchRow], metric: Metric = THROUGHPUT) -> list[Cube]:
    """Return the cubes among the launches of one machine, in the order in which their jobs first appear."""
    return [
        Cube(points=points, effects=effects_of(points), interactions=interactions_of(points), best=best_of(points))
        for points in points_of(rows, metric)
    ]
