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
    found = geometric_mean(ratios)
    weights: dict[Hashable, float] = {}
    for own, over, _ in pairs:
        weights[own] = weights.get(own, 0.0) + 1 / len(pairs)
        weights[over] = weights.get(over, 0.0) - 1 / len(pairs)
    known = {cell: moments.get(cell) for cell, weight in weights.items() if abs(weight) > _NOTHING}
    verdict = "n/a"
    if None not in known.values():
        pair = _pair(found.value, [(weights[cell], one) for cell, one in known.items() if one])
        found, verdict = pair.interval, verdict_at(pair, level)
    return MeanRatio(interval=found, lowest=min(ratios), highest=max(ratios), n=len(ratios), verdict=verdict)


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
