"""Several ratios of cells -> their geometric mean with an interval over launches, and its verdict.

The interval speaks for these cells in this run: their launches scatter, the set of cells is fixed. It says nothing of other
workloads, or of other runs of the machine.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from torchmatrix.analysis.intervals import Interval, Moments, geometric_mean
from torchmatrix.analysis.pairs import Pair
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

    Its logarithm is a weighted sum of the logarithms of the cells' centres; a cell in several pairs is counted with all its
    weights together, so that a shared baseline is not taken for independent ones. The variances add with the squares of the
    weights; degrees of freedom by F. E. Satterthwaite, Biometrics Bull. 2 (1946), 110-114. `moments`: of each cell, None of one
    launch. Raises ValueError without a pair.
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


_NOTHING = 1e-12
"""A weight of this size is left of a sum that is 0."""


def _pair(value: float, parts: Sequence[tuple[float, Moments]]) -> Pair:
    errors = [(weight**2 * error, n - 1) for weight, (_, error, n) in parts]
    variance = math.fsum(error for error, _ in errors)
    freedom = variance**2 / math.fsum(error**2 / n for error, n in errors) if variance > 0 else math.inf
    return Pair(value=value, log=math.log(value), error=math.sqrt(variance), freedom=freedom)
