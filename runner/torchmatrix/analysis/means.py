"""Several ratios of cells -> their geometric mean with an interval over launches, and its verdict.

The interval speaks for these cells in this run: their launches scatter, the set of cells is fixed. It says nothing of other
workloads, or of other runs of the machine.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from torchmatrix.analysis.intervals import Interval, Moments, geometric_mean
from torchmatrix.analysis.pairs import Pair, freedom_of
from torchmatrix.analysis.verdicts import Significance, verdict_at


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanRatio:
    """`interval`: of the geometric mean of `n` ratios, without limits where a cell has one launch. `lowest`, `highest`: of the
    ratios. `verdict`: at the level of the report that it is part of."""

    interval: Interval
    lowest: float
    highest: float
    n: int
    verdict: str


def mean_ratio(
    pairs: Sequence[tuple[Hashable, Hashable, float]], moments: Mapping[Hashable, Moments | None], level: Significance
) -> MeanRatio:
    """The geometric mean of the `pairs`: of each the cell, the one it is over, and their ratio.

    Its logarithm is a weighted sum of the cells' mean logarithms; a cell in several pairs is counted with all its weights
    together, so that a shared baseline is not taken for independent ones. The variances add with the squares of the weights;
    degrees of freedom as of pairs.freedom_of. `moments`: of each cell, None of one launch. Raises ValueError without a pair.
    """
    if not pairs:
        raise ValueError("no ratio, no mean")
    ratios = [ratio for _, _, ratio in pairs]
    found = Pair(value=geometric_mean(ratios).value)
    weights: dict[Hashable, float] = {}
    for own, over, _ in pairs:
        weights[own] = weights.get(own, 0.0) + 1 / len(pairs)
        weights[over] = weights.get(over, 0.0) - 1 / len(pairs)
    known = {cell: moments.get(cell) for cell, weight in weights.items() if abs(weight) > _NOTHING}
    if None not in known.values():
        found = _pair(found.value, [(weights[cell], one) for cell, one in known.items() if one])
    return as_mean(found, ratios, level)


def as_mean(found: Pair, ratios: Sequence[float], level: Significance) -> MeanRatio:
    """`found`: the mean of these ratios."""
    return MeanRatio(
        interval=found.interval, lowest=min(ratios), highest=max(ratios), n=len(ratios), verdict=verdict_at(found, level)
    )


def mean_of_pairs(pairs: Sequence[Pair], shared: float = 0.0, freedom: float = math.inf) -> Pair:
    """The geometric mean of ratios of different cells. `shared`: a variance that all of them have in common, such as that of
    their two runs, which no number of cells divides; `freedom`: its degrees of freedom. Unknown where one of them is."""
    if not pairs or any(math.isnan(one.freedom) for one in pairs):
        return Pair()
    log, n = math.fsum(one.log for one in pairs) / len(pairs), len(pairs)
    errors = [((one.error / n) ** 2, one.freedom) for one in pairs] + [(shared, freedom)]
    variance = math.fsum(error for error, _ in errors)
    squares = math.fsum(error**2 / own for error, own in errors)
    return Pair(
        value=math.exp(log), log=log, error=math.sqrt(variance), freedom=variance**2 / squares if squares else math.inf,
        jump=max(one.jump for one in pairs),
    )  # fmt: skip


def mean_of_machines(each: Sequence[Moments]) -> Moments:
    """Of the mean of several machines' figures, with the fewest degrees of freedom of any of them."""
    values = [math.exp(one.log) for one in each]
    total = math.fsum(values)
    error = math.fsum((value / total) ** 2 * one.squared_error for value, one in zip(values, each, strict=True))
    return Moments(
        log=math.log(total / len(each)), squared_error=error, freedom=min(one.freedom for one in each),
        shared=min(one.shared for one in each), jump=max(one.jump for one in each),
    )  # fmt: skip


_NOTHING = 1e-12
"""A weight of this size is left of a sum that is 0."""


def _pair(value: float, parts: Sequence[tuple[float, Moments]]) -> Pair:
    weights, figures = [weight for weight, _ in parts], [one for _, one in parts]
    variance = math.fsum(weight**2 * one.squared_error for weight, one in parts)
    return Pair(value=value, log=math.log(value), error=math.sqrt(variance), freedom=freedom_of(figures, weights))
