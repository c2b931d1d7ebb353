"""Estimate a figure and its uncertainty from launches: means, medians, their intervals, a variance learned from all cells."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from torchmatrix.analysis.centers import central, mean_of, median_of, of_normal, squared_error, variance_of
from torchmatrix.analysis.special import gammaln, polygamma, stdtrit

# Moderated scatter of one cell, learned from the other cells of its run.
#
# Three launches hardly show how much they scatter; the forty cells of their run show it together. Empirical Bayes: the
# variances of the cells' logarithms are taken to be drawn from s0² · d0 / χ²(d0), so that a sample variance with d degrees of
# freedom over s0² has Fisher's F distribution with d and d0. A cell's moderated variance is (d0 s0² + d s²) / (d0 + d), and a
# test of it has the d0 more degrees of freedom: G. K. Smyth, Statistical Applications in Genetics and Molecular Biology 3
# (2004), article 3.
#
# d0 is not the likeliest one, which is infinite in half of all runs whose cells scatter alike: how differently cells scatter is
# averaged over what their variances leave possible, so that few cells count for little by themselves. `make proof` simulates
# it.

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
UNLIKE = np.linspace(0.05, 3.0, 30)
"""Candidates for the standard deviation of the logarithm of cells' true variances, equally likely before."""
_AROUND = np.linspace(-3.0, 3.0, 49)
"""Candidates for s0²: the logarithm of its ratio to the median of the variances."""
_TOGETHER = 2000
"""Cells times candidates that are computed at once: few cells soon, and many in little memory."""
_LEAST = 1e-5
"""A variance counts as at least this share of the median (as in limma's fitFDist): launches may be equal by rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """Knowledge of a cell's variance from other cells: it is about `variance` (of logarithms), as if `freedom` more launches
    had shown that. Zero freedom: nothing is known."""

    freedom: float = 0.0
    variance: float = math.nan

    def moderated(self, variance: float, freedom: float) -> float:
        """Return the variance of a cell whose own launches show `variance` with so many degrees of freedom."""
        if not self.freedom:
            return variance
        return (self.freedom * self.variance + freedom * variance) / (self.freedom + freedom)


NO_PRIOR = Prior()


def learned_prior(variances: Sequence[float], freedoms: Sequence[float]) -> Prior:
    """Learn a prior from the sample variances of a run's cells.

    Nothing is learned from two cells or fewer, or where most don't scatter at all. What a pair learns comes from the other
    cells: with G cells d0 counts (G - 2) / G, and never for more than all launches.
    """
    cells, middle = len(variances), float(np.median(variances)) if len(variances) else 0.0
    if cells <= 2 or middle <= 0.0:
        return NO_PRIOR
    raised, freedom = np.maximum(variances, _LEAST * middle), np.asarray(freedoms, dtype=float)
    likely = _likelihood(np.log(raised / middle), freedom)
    unlike = float(likely.sum(axis=1) @ UNLIKE)
    nearest = likely[int(np.abs(UNLIKE - unlike).argmin())]
    variance = middle * math.exp(float(nearest @ _AROUND) / float(nearest.sum()))
    d0 = min(_prior_freedom(unlike), float(freedom.sum()))
    return Prior(freedom=d0 * (cells - 2) / cells, variance=variance)


def _likelihood(logs: Numbers, freedom: Numbers) -> Numbers:
    """Return the likelihood by UNLIKE and _AROUND, of all cells together; the sum is 1."""
    distance, parts = logs - _AROUND[:, None], []
    times, half, together = np.exp(distance), freedom / 2 * distance, max(1, _TOGETHER // len(logs))
    for begin in range(0, len(UNLIKE), together):
        d0 = np.array(list(map(_prior_freedom, UNLIKE[begin : begin + together])))[:, None, None]
        fixed = gammaln((freedom + d0) / 2) - gammaln(d0 / 2) + freedom / 2 * np.log(freedom / d0)
        parts.append((fixed + half - (freedom + d0) / 2 * np.log1p(freedom / d0 * times)).sum(axis=-1))
    logs_of_likelihood = np.concatenate(parts)
    likely = np.exp(logs_of_likelihood - logs_of_likelihood.max())
    return np.asarray(likely / likely.sum())


@lru_cache(maxsize=256)
def _prior_freedom(unlike: float) -> float:
    """Return d0 of cells whose log variances have this standard deviation: the trigamma function of d0 / 2 is its square.

    By Newton's method on its inverse, which is nearly straight (Smyth 2004, appendix).
    """
    wanted = unlike**2
    half = 0.5 + 1 / wanted
    for _ in range(20):
        now = float(polygamma(1, half))
        half += now * (1 - now / wanted) / float(polygamma(2, half))
    return 2 * half


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
"""The quantile of the normal distribution for a chance of 4 in 5."""
PAIRED_FROM = 10
"""From this many common rounds on, two cells are compared round by round. With fewer, pairing halves scarce degrees of freedom:
its interval would be wider for nothing on a machine that doesn't drift. Chosen beforehand, never by the outcome."""
SEEN_FROM = 5
"""From this many launches on, the mean shows both of two levels. With fewer, all launches of one cell may lie in one level and
all of another in the other one, which looks like a difference of the cells (levels.py)."""
PAIRS_FROM = 3
"""From this many shared rounds on there is an interval: of two it would span a factor of ten and more, and say nothing."""
LOOKS = 3.0
"""The factor of p-values where rounds follow until comparisons are decided. Of a run that looks after each of 3 to 8 launches,
the smallest p-value is below 5 % in 12.9 % of equal pairs; so in 4.8 %, and below 1 % in 1.1 % (simulated; S. J. Pocock,
Biometrika 64 (1977), 191-199). Intervals widen alike, so that they may be read at any look (C. Jennison, B. W. Turnbull, J. R.
Statist. Soc. B 51 (1989), 305-361)."""
MOST_LAUNCHES = 1000
"""Where more launches than this would be needed, no number is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A point with its 95 % limits; NaN limits mean that there are too few launches to say."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def scaled(self, factor: float) -> "Interval":
        """Return the interval of what is larger by this factor."""
        return Interval(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def columns(self, name: str) -> dict[str, float]:
        """Return its value and its limits under the names of a table's columns."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


UNKNOWN = Interval(value=math.nan)


class Moments(NamedTuple):
    """The figures of a cell for ratios: the mean of their logarithms, its squared error, the degrees of freedom of its own
    figures (their number - 1) and those that it shares with the cells of its run (Prior). `jump`: how far apart levels may lie
    that so few figures don't show (levels.py). `disturbed`: whether other programs disturbed one of its launches (sharing.py).
    `looks`: the factor of p-values for looking more than once (LOOKS).
    """

    log: float
    squared_error: float
    freedom: float
    shared: float = 0.0
    jump: float = 0.0
    disturbed: bool = False
    looks: float = 1.0

    @property
    def launches(self) -> int:
        """Return the number of figures."""
        return int(self.freedom) + 1

    def beside(self, other: "Moments") -> "Moments":
        """Return them for a ratio to another cell. With fewer than SEEN_FROM figures beside more, it scatters as that at least:
        two launches may lie in one of two levels by chance, and then seem not to scatter.
        """
        if self.launches >= SEEN_FROM or other.launches < SEEN_FROM:
            return self
        return self._replace(squared_error=max(self.squared_error, other.squared_error * other.launches / self.launches))


def moments(values: Sequence[float], prior: Prior = NO_PRIOR) -> Moments:
    """Return the moments of two positive values or more.

    The mean of logarithms is used, since the median of a few launches that come in two levels lies in one of them by chance: of
    equal stacks a quarter to two fifths were told apart (5 launches, 30 to 50 % of them 5 % slower).
    """
    logs = np.log(np.asarray(values, dtype=float)).tolist()
    freedom = len(logs) - 1
    variance = prior.moderated(variance_of(logs), freedom)
    return Moments(log=mean_of(logs), squared_error=variance / len(logs), freedom=freedom, shared=prior.freedom)


def learned_of(cells: Iterable[Sequence[float]]) -> Prior:
    """Learn how much cells scatter from their positive figures; cells with one figure add nothing."""
    cell_moments = [moments(values) for values in cells if len(values) > 1]
    return learned_prior([each.squared_error * each.launches for each in cell_moments], [each.freedom for each in cell_moments])


def center_interval(values: Sequence[float], statistic: str = "median", prior: Prior = NO_PRIOR) -> Interval:
    """Return the median (or, by name, the mean) of `values`, in the middle of its own 95 % interval: Student's t times its
    error.

    The error is that of the very statistic (squared_error), so that the value never lies outside. `values` are positive, and so
    is what they estimate: a lower limit below 0 says no more than 0, and is given as 0.
    """
    if not values:
        return UNKNOWN
    value = central(values, statistic)
    if len(values) == 1:
        return Interval(value=value)
    half = value * relative_half_width(values, statistic, prior)
    return Interval(value=value, low=max(0.0, value - half), high=value + half)


def relative_half_width(values: Sequence[float], statistic: str = "median", prior: Prior = NO_PRIOR) -> float:
    """Return how far the upper limit of `center_interval` is above its value, over it; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    value, freedom = central(values, statistic), len(values) - 1
    if not prior.freedom or value <= 0:
        return _quantile(freedom) * math.sqrt(squared_error(values, statistic)) / value
    error = math.sqrt(prior.moderated(variance_of(values) / value**2, freedom) / len(values))
    return _quantile(prior.freedom + freedom) * error * (1.0 if statistic == "mean" else of_normal(len(values)))


def centered(value: float, error: float, freedom: float, confidence: float = CONFIDENCE) -> Interval:
    """Return `value` in the middle of its interval, by Student's t; `error`: that of its logarithm."""
    factor = math.exp(_quantile(freedom, confidence) * error)
    return Interval(value=value, low=value / factor, high=value * factor)


def geometric_mean(ratios: Sequence[float]) -> Interval:
    """Return the n-th root of the product of the ratios of n cells, without limits.

    Cells share their run and their machine, so that an interval over cells would exclude 1 in a third (3 cells) to nine tenths
    (40) of comparisons of a machine with itself. Unclipped: a slow-down counts as much as the speed-up that would undo it.
    """
    return Interval(value=math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan)


def noise_verdict(cv: float, n: int) -> str:
    """Return stable, ok or noisy by the launch-to-launch coefficient of variation; n/a for a single launch."""
    if n < 2:
        return "n/a"
    return "stable" if cv < 0.01 else "ok" if cv < 0.03 else "noisy"


def difference_verdict(ratio: Interval) -> str:
    """Return FASTER, SLOWER, SAME or AMBIGUOUS for a ratio of throughputs; n/a without an interval.

    FASTER and SLOWER: the interval excludes 1 and the ratio differs from 1 by more than NOTEWORTHY. SAME: the whole interval
    lies within 1 ± SAME_WITHIN.
    """
    if math.isnan(ratio.low):
        return "n/a"
    if ratio.low > 1 and ratio.value > 1 + NOTEWORTHY:
        return "FASTER"
    if ratio.high < 1 and ratio.value < 1 - NOTEWORTHY:
        return "SLOWER"
    if ratio.low >= 1 - SAME_WITHIN and ratio.high <= 1 + SAME_WITHIN:
        return "SAME"
    return "AMBIGUOUS"


def around(figure: float) -> tuple[float, float]:
    """Return the range that counts as a reproduction of a published figure."""
    return (1 - REPRODUCED_WITHIN) * figure, (1 + REPRODUCED_WITHIN) * figure


def reproduction_verdict(interval: Interval, low: float, high: float) -> str:
    """Return where our interval lies relative to the range that counts as reproduced, `low` to `high`.

    reproduced: wholly inside, which is a test of equivalence (D. J. Schuirmann, J. Pharmacokin. Biopharm. 15 (1987), 657-680);
    better or worse: wholly above or below; ambiguous: all else, and a figure without an interval.
    """
    if interval.low > high:
        return "better"
    if interval.high < low:
        return "worse"
    return "reproduced" if interval.low >= low and interval.high <= high else "ambiguous"


def detectable_at(error: float, freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return the smallest difference (a ratio minus 1) that would be detected with a chance of 4 in 5.

    It is Student's t plus the normal quantile of that chance, times the standard error of the ratio's logarithm, and no less
    than NOTEWORTHY.
    """
    return max(math.expm1((student(freedom, 0.5 + confidence / 2) + CHANCE_QUANTILE) * error), NOTEWORTHY)


def outliers(values: Sequence[float]) -> int:
    """Count the values that lie far from the others: a modified z-score above 3.5 (B. Iglewicz, D. C. Hoaglin, How to Detect
    and Handle Outliers, 1993). 0 for fewer than five values, which are too few to judge, and where most are equal."""
    middle = median_of(values) if values else math.nan
    distances = [abs(value - middle) for value in values]
    if len(values) < FEWEST_FOR_OUTLIERS or not (typical := median_of(distances)):
        return 0
    return sum(0.6745 * distance / typical > OUTLIER for distance in distances)


@lru_cache(maxsize=1024)
def student(freedom: float, probability: float) -> float:
    """Return the quantile of Student's t with that many degrees of freedom."""
    return float(stdtrit(freedom, probability))


def _quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return the two-sided quantile of Student's t."""
    return student(freedom, 0.5 + confidence / 2)


def adjusted(values: Sequence[float]) -> list[float]:
    """Adjust p-values of several tests so that of those below a limit at most this share is false, on average.

    Y. Benjamini and Y. Hochberg, J. R. Statist. Soc. B 57 (1995), 289-300. NaN is no test and stays NaN.
    """
    ranked = sorted((value, place) for place, value in enumerate(values) if not math.isnan(value))
    result, least = [math.nan] * len(values), 1.0
    for rank, (value, place) in reversed(list(enumerate(ranked, start=1))):
        least = min(least, value * len(ranked) / rank)
        result[place] = least
    return result
