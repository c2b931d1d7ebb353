"""Samples -> intervals of their centres, what an interval of a ratio says, and how many launches would settle it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from scipy.special import stdtrit

from torchmatrix.analysis.centers import central, median_of, squared_error, variance_of, widening

CONFIDENCE = 0.95
FEWEST_FOR_OUTLIERS, OUTLIER = 5, 3.5
NOTEWORTHY = 0.01
"""A ratio must differ from 1 by more than this to be called faster or slower."""
SAME_WITHIN = 0.02
"""A ratio whose whole interval lies within 1 ± this is called the same."""
REPRODUCED_WITHIN = 0.05
"""A published figure is reproduced within this share of it: GPUs of one model differ by 8 % on average and by up to 22 %
(arXiv:2208.11035), and cooling, hosts and power limits are seldom published. Our own decision."""
CHANCE_QUANTILE = 0.8416
"""Of the normal distribution, for a chance of 4 in 5."""
PAIRED_FROM = 10
"""So many common rounds of two cells, or more, are compared round by round. With fewer, pairing halves degrees of freedom that
are scarce: its interval would be wider for nothing on a machine that doesn't drift. Chosen beforehand, never by the outcome."""
PAIRS_FROM = 3
"""So many rounds that two cells share have an interval: of two it would span a factor of ten and more, and say nothing."""
MOST_LAUNCHES = 1000
"""Where more launches than this would be needed, no number is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A point with its 95 % limits; NaN limits mean that there are too few launches to say."""

    value: float
    low: float
    high: float


UNKNOWN = Interval(value=math.nan, low=math.nan, high=math.nan)


def center_interval(values: Sequence[float], statistic: str = "median") -> Interval:
    """The median (or, by name, the mean) of `values`, in the middle of its own 95 % interval: Student's t times its error.

    The error is that of the very statistic (centers.squared_error), so that the value never lies outside. `values` are
    positive, and so is what they estimate: a lower limit below 0 says no more than 0, and is given as 0.
    """
    if not values:
        return UNKNOWN
    value = central(values, statistic)
    if len(values) == 1:
        return Interval(value=value, low=math.nan, high=math.nan)
    half = _half_width(values, statistic)
    return Interval(value=value, low=max(0.0, value - half), high=value + half)


def _half_width(values: Sequence[float], statistic: str) -> float:
    return _quantile(len(values) - 1) * math.sqrt(squared_error(values, statistic))


def relative_half_width(values: Sequence[float], statistic: str = "median") -> float:
    """How far the upper limit of `center_interval` is above its value, over it; infinite for fewer than two values."""
    return _half_width(values, statistic) / central(values, statistic) if len(values) > 1 else math.inf


Moments: TypeAlias = tuple[float, float, int]
"""The logarithm of a centre, its squared error, and the number of values."""


def moments(values: Sequence[float], statistic: str = "median") -> Moments:
    """All that a ratio needs of two values or more: the logarithm of their centre, its squared error, their number."""
    logs = np.log(np.asarray(values, dtype=float)).tolist()
    return math.log(central(values, statistic)), squared_error(logs, statistic), len(logs)


def centered(value: float, error: float, freedom: float, confidence: float = CONFIDENCE) -> Interval:
    """`value` in the middle of its interval, by Student's t; `error`: that of its logarithm."""
    factor = math.exp(_quantile(freedom, confidence) * error)
    return Interval(value=value, low=value / factor, high=value * factor)


def geometric_mean(ratios: Sequence[float]) -> Interval:
    """The n-th root of the product of the ratios of n cells, without limits.

    Cells share their run and their machine, so that an interval over cells would exclude 1 in a third (3 cells) to nine tenths
    (40) of comparisons of a machine with itself. Unclipped: a slow-down counts as much as the speed-up that would undo it.
    """
    value = math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    return Interval(value=value, low=math.nan, high=math.nan)


def noise_verdict(cv: float, n: int) -> str:
    """stable, ok or noisy by the launch-to-launch coefficient of variation; n/a for a single launch."""
    if n < 2:
        return "n/a"
    return "stable" if cv < 0.01 else "ok" if cv < 0.03 else "noisy"


def difference_verdict(found: Interval) -> str:
    """FASTER, SLOWER, SAME or AMBIGUOUS for a ratio of throughputs; n/a without an interval.

    FASTER and SLOWER: the interval excludes 1 and the ratio differs from 1 by more than NOTEWORTHY. SAME: the whole interval
    lies within 1 ± SAME_WITHIN.
    """
    if math.isnan(found.low):
        return "n/a"
    if found.low > 1 and found.value > 1 + NOTEWORTHY:
        return "FASTER"
    if found.high < 1 and found.value < 1 - NOTEWORTHY:
        return "SLOWER"
    if found.low >= 1 - SAME_WITHIN and found.high <= 1 + SAME_WITHIN:
        return "SAME"
    return "AMBIGUOUS"


def around(figure: float) -> tuple[float, float]:
    """What counts as a reproduction of a published figure."""
    return (1 - REPRODUCED_WITHIN) * figure, (1 + REPRODUCED_WITHIN) * figure


def reproduction_verdict(found: Interval, low: float, high: float) -> str:
    """Where our interval lies to what counts as reproduced, from `low` to `high`.

    reproduced: wholly inside, which is a test of equivalence (D. J. Schuirmann, J. Pharmacokin. Biopharm. 15 (1987), 657-680);
    better or worse: wholly above or below; ambiguous: all else, and a figure without an interval.
    """
    if found.low > high:
        return "better"
    if found.high < low:
        return "worse"
    return "reproduced" if found.low >= low and found.high <= high else "ambiguous"


def launches_to_settle(
    above: Sequence[float], below: Sequence[float], paired: bool = False, confidence: float = CONFIDENCE
) -> int | None:
    """How many launches on each side would end an AMBIGUOUS with a chance of 4 in 5, if mean and scatter stay as they are.

    The smallest n, beyond those at hand, for which Student's t plus the normal quantile of that chance, times the standard
    error, is less than what stands between the ratio and a verdict: its distance from 1 where that is noteworthy, else what is
    left to the edge of SAME. `paired`: entry by entry, as in pair_by_rounds. `confidence`: higher where it is one comparison of
    several. None where that is more than MOST_LAUNCHES.
    """
    if len(above) < 2 or len(below) < 2:
        return None
    logs = [np.log(np.asarray(values, dtype=float)) for values in (above, below)]
    center = abs(float(logs[0].mean() - logs[1].mean()))
    room = center if center > math.log1p(NOTEWORTHY) else -math.log1p(-SAME_WITHIN) - center
    variance = np.var(logs[0] - logs[1], ddof=1) if paired else sum(np.var(log, ddof=1) for log in logs)
    spread, sides = math.sqrt(float(variance)), 1 if paired else 2
    for n in range(max(len(above), len(below)) + 1, MOST_LAUNCHES + 1):
        error = spread * (1.0 if paired else widening(n)) / math.sqrt(n)
        if (_quantile(sides * (n - 1), confidence) + CHANCE_QUANTILE) * error < room:
            return n
    return None


def detectable(values: Sequence[float]) -> float:
    """The smallest difference (a ratio minus 1) of another cell with as many launches and the same scatter that would be told
    with a chance of 4 in 5; NaN for fewer than two values.

    It is Student's t plus the normal quantile of that chance, times the standard error, and no less than NOTEWORTHY.
    """
    n = len(values)
    if n < 2:
        return math.nan
    error = math.sqrt(2 * variance_of([math.log(value) for value in values]) / n) * widening(n)
    return detectable_at(error, 2 * (n - 1))


def detectable_at(error: float, freedom: float, confidence: float = CONFIDENCE) -> float:
    """The same of a comparison: by the standard error of the ratio's logarithm and its degrees of freedom."""
    return max(math.expm1((_quantile(freedom, confidence) + CHANCE_QUANTILE) * error), NOTEWORTHY)


def outliers(values: Sequence[float]) -> int:
    """How many values lie far from the others: a modified z-score above 3.5 (B. Iglewicz, D. C. Hoaglin, How to Detect and
    Handle Outliers, 1993). 0 for fewer than five values, of which nobody can tell, and where most are equal.
    """
    middle = median_of(values) if values else math.nan
    apart = [abs(value - middle) for value in values]
    if len(values) < FEWEST_FOR_OUTLIERS or not (typical := median_of(apart)):
        return 0
    return sum(0.6745 * one / typical > OUTLIER for one in apart)


@lru_cache(maxsize=1024)
def student(freedom: float, probability: float) -> float:
    """The quantile of Student's t with that many degrees of freedom."""
    return float(stdtrit(freedom, probability))


def _quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Student's t, two-sided."""
    return student(freedom, 0.5 + confidence / 2)
