"""Samples -> intervals of their centres, what a ratio needs of them, and what an interval of a ratio says."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from torchmatrix.analysis.centers import central, mean_of, median_of, of_normal, squared_error, variance_of
from torchmatrix.analysis.moderated import NO_PRIOR, Prior, learned

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
SEEN_FROM = 5
"""Of so many launches the mean shows both of two levels. With fewer, all of one cell may lie in one level and all of another
in the other one, which looks like a difference of the two (two_levels.py)."""
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


class Moments(NamedTuple):
    """What a ratio needs of a cell: the mean of the logarithms of its figures, its squared error, the degrees of freedom of its
    own figures (one less than they are) and those that it shares with the cells of its run (moderated.Prior). `jump`: how far
    apart levels may lie that so few figures don't show (two_levels.py)."""

    log: float
    squared_error: float
    freedom: float
    shared: float = 0.0
    jump: float = 0.0

    @property
    def launches(self) -> int:
        """How many figures they are of."""
        return int(self.freedom) + 1


def moments(values: Sequence[float], prior: Prior = NO_PRIOR) -> Moments:
    """Of two positive values or more. The mean of logarithms, since the median of a few launches that come in two levels lies
    in one of them by chance: of equal stacks a quarter to two fifths were told apart (5 launches, 30 to 50 % of them 5 %
    slower)."""
    logs = np.log(np.asarray(values, dtype=float)).tolist()
    freedom = len(logs) - 1
    variance = prior.moderated(variance_of(logs), freedom)
    return Moments(log=mean_of(logs), squared_error=variance / len(logs), freedom=freedom, shared=prior.freedom)


def learned_of(cells: Iterable[Sequence[float]]) -> Prior:
    """What cells with these positive figures tell of the scatter of each of them; those with one figure tell nothing."""
    known = [moments(values) for values in cells if len(values) > 1]
    return learned([one.squared_error * one.launches for one in known], [one.freedom for one in known])


def center_interval(values: Sequence[float], statistic: str = "median", prior: Prior = NO_PRIOR) -> Interval:
    """The median (or, by name, the mean) of `values`, in the middle of its own 95 % interval: Student's t times its error.

    The error is that of the very statistic (centers.py), so that the value never lies outside. `values` are positive, and so is
    what they estimate: a lower limit below 0 says no more than 0, and is given as 0.
    """
    if not values:
        return UNKNOWN
    value = central(values, statistic)
    if len(values) == 1:
        return Interval(value=value, low=math.nan, high=math.nan)
    half = value * relative_half_width(values, statistic, prior)
    return Interval(value=value, low=max(0.0, value - half), high=value + half)


def relative_half_width(values: Sequence[float], statistic: str = "median", prior: Prior = NO_PRIOR) -> float:
    """How far the upper limit of `center_interval` is above its value, over it; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    value, freedom = central(values, statistic), len(values) - 1
    if not prior.freedom or value <= 0:
        return _quantile(freedom) * math.sqrt(squared_error(values, statistic)) / value
    error = math.sqrt(prior.moderated(variance_of(values) / value**2, freedom) / len(values))
    return _quantile(prior.freedom + freedom) * error * (1.0 if statistic == "mean" else of_normal(len(values)))


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


def detectable_at(error: float, freedom: float, confidence: float = CONFIDENCE) -> float:
    """The smallest difference (a ratio minus 1) that would be told with a chance of 4 in 5.

    It is Student's t plus the normal quantile of that chance, times the standard error of the ratio's logarithm, and no less
    than NOTEWORTHY.
    """
    return max(math.expm1((student(freedom, 0.5 + confidence / 2) + CHANCE_QUANTILE) * error), NOTEWORTHY)


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
