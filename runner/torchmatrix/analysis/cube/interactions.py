"""Settings in pairs: how much of the variance of log speed each explains, and what one does only together with another.

Analysis of variance with sums of squares of type II (R. Langsrud, Statistics and Computing 13 (2003), 163-167), one value for
each cell. The residual is what three settings do together, and noise: a small interaction isn't told, and hardly one by noise.
"""

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchmatrix.analysis.cube.effects import held_at
from torchmatrix.analysis.cube.points import Points, word_of
from torchmatrix.analysis.intervals import NOTEWORTHY, Interval
from torchmatrix.analysis.verdicts import FALSE_DISCOVERIES, adjusted
from torchmatrix.matrix.factors import Value

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
    import numpy as np
    import pandas as pd
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    table = pd.DataFrame(
        [{f"f{place}": str(point.settings[name]) for place, name in enumerate(names)} for point in points.measured]
    )
    table["y"] = [math.log(point.speed) for point in points.measured]
    terms = " + ".join(f"C(f{place})" for place in range(len(names)))
    model = ols(f"y ~ ({terms})**2" if with_pairs else f"y ~ {terms}", table)
    if np.linalg.matrix_rank(model.exog) < model.exog.shape[1] or len(table) - model.exog.shape[1] < FEWEST_LEFT:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a factor that explains nothing at all divides by zero
        found = anova_lm(model.fit(), typ=2)
    total = float(((table["y"] - table["y"].mean()) ** 2).sum())
    if not total > 0:
        return None
    rows = found.drop("Residual")
    p_values = adjusted([float(p) if p == p else 1.0 for p in rows["PR(>F)"]])
    explained = [
        Explained(settings=_named(str(term), names), share=float(squares) / total, adjusted_p_value=p)
        for term, squares, p in zip(rows.index, rows["sum_sq"], p_values, strict=True)
    ]
    ordered = tuple(sorted(explained, key=lambda one: -one.share))
    return ordered, float(found.loc["Residual", "sum_sq"]) / total


def _named(term: str, names: Sequence[str]) -> tuple[str, ...]:
    """C(f0):C(f2) -> the settings' names."""
    return tuple(names[int(part[3:-1])] for part in term.split(":"))


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
