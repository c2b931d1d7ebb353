"""Two groups of launches -> the ratio of their figures, of which every comparison consists: its interval, and its tests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr

from torchmatrix.analysis.centers import central, squared_error
from torchmatrix.analysis.intervals import (
    CONFIDENCE,
    PAIRS_FROM,
    SAME_WITHIN,
    Interval,
    Moments,
    centered,
    detectable_at,
    moments,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chances:
    """p-values of a ratio: `differs`: that there is no difference; `same`: that it isn't within the margin of SAME."""

    differs: float
    same: float


UNTESTED = Chances(differs=math.nan, same=math.nan)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The ratio of two groups, or why there is none.

    `value`: the ratio of their centres; `log`: its logarithm, with its standard `error` and degrees of `freedom`: NaN with too
    few launches. `why_not`: why the two are not compared, else "".
    """

    value: float = math.nan
    log: float = math.nan
    error: float = math.nan
    freedom: float = math.nan
    why_not: str = ""

    @property
    def interval(self) -> Interval:
        """The ratio in the middle of its 95 % interval."""
        return self.at(CONFIDENCE)

    def at(self, confidence: float) -> Interval:
        """In the middle of its interval: Student's t times the error of the logarithm."""
        if math.isnan(self.error):
            return Interval(value=self.value, low=math.nan, high=math.nan)
        if self.error == 0.0:
            return Interval(value=self.value, low=self.value, high=self.value)
        return centered(self.value, self.error, self.freedom, confidence)

    @property
    def chances(self) -> Chances:
        """The p-values of the tests that the interval stands for; NaN with too few launches.

        That there is no difference (two-sided), and that the ratio is not within 1 ± SAME_WITHIN (the larger of two one-sided
        tests: D. J. Schuirmann, J. Pharmacokin. Biopharm. 15 (1987), 657-680). An interval at CONFIDENCE excludes 1 where the
        first is below 1 - CONFIDENCE, and lies within the margin where the second is below half of that.
        """
        if math.isnan(self.freedom):
            return UNTESTED
        low, high = self.log - math.log(1 - SAME_WITHIN), math.log(1 + SAME_WITHIN) - self.log
        if self.error == 0.0:
            return Chances(differs=float(self.log == 0.0), same=float(min(low, high) < 0))
        differs, below, above = (float(stdtr(self.freedom, -far / self.error)) for far in (abs(self.log), low, high))
        return Chances(differs=2 * differs, same=max(below, above))

    def p_above(self, least: float = 1.0) -> float:
        """The one-sided p-value that the ratio isn't above `least`; NaN with too few launches."""
        if math.isnan(self.freedom):
            return 0.5 if self is ITSELF else math.nan
        center = self.log - math.log(least)
        return float(stdtr(self.freedom, -center / self.error)) if self.error else float(center <= 0.0)

    def detectable(self, confidence: float) -> float:
        """The smallest difference from 1 that would have been told with a chance of 4 in 5; NaN with too few launches."""
        return math.nan if math.isnan(self.freedom) else detectable_at(self.error, self.freedom, confidence)

    def scaled(self, factor: float) -> "Pair":
        """Of figures that are by this factor larger."""
        return replace(self, value=self.value * factor, log=math.log(self.value * factor))

    @property
    def inverse(self) -> "Pair":
        """The other over the one."""
        return replace(self, value=1 / self.value, log=-self.log)


UNKNOWN_PAIR = Pair()
ITSELF = Pair(value=1.0, log=0.0, error=0.0)
"""Of a group over itself, which needs no test."""


def pair(above: Sequence[float], below: Sequence[float], statistic: str = "median") -> Pair:
    """Median over median (or mean over mean), by Welch's test of the logarithms. Without an interval unless both have two
    values or more."""
    if not above or not below:
        return Pair()
    if above is below:
        return ITSELF
    value = central(above, statistic) / central(below, statistic)
    if len(above) < 2 or len(below) < 2:
        return Pair(value=value)
    return pair_of_moments(moments(above, statistic), moments(below, statistic), value)


def pair_of_moments(above: Moments, below: Moments, value: float) -> Pair:
    """The same of what intervals.moments made, with the ratio of the centres.

    Degrees of freedom: B. L. Welch, Biometrika 34 (1947), 28-35.
    """
    total = above[1] + below[1]
    parts = sum(error**2 / (n - 1) for _, error, n in (above, below))
    return Pair(
        value=value, log=above[0] - below[0], error=math.sqrt(total), freedom=total**2 / parts if parts > 0 else math.inf
    )


def pair_by_rounds(above: Sequence[float], below: Sequence[float]) -> Pair:
    """The geometric mean of the ratios of launches of the same round, entry by entry, by the t-test of their logarithms.

    For cells that were interleaved over rounds: what the whole machine did from round to round falls out (randomized complete
    blocks: R. A. Fisher, The Design of Experiments, 1935).
    """
    logs = np.log(np.asarray(above, dtype=float) / np.asarray(below, dtype=float))
    if not len(logs):
        return Pair()
    center = float(logs.mean())
    if len(logs) < PAIRS_FROM:
        return Pair(value=math.exp(center))
    error = math.sqrt(float(np.var(logs, ddof=1)) / len(logs))
    return Pair(value=math.exp(center), log=center, error=error, freedom=len(logs) - 1)


def pair_over_sum(above: Sequence[float], parts: Sequence[Sequence[float]], statistic: str = "median") -> Pair:
    """`above` over the sum of the parts' central values; the relative variances of the parts add (delta method)."""
    if not above or not parts or not all(parts):
        return Pair()
    total = sum(central(part, statistic) for part in parts)
    value = central(above, statistic) / total
    if any(len(values) < 2 for values in (above, *parts)):
        return Pair(value=value)
    errors = [(squared_error(above, statistic) / central(above, statistic) ** 2, len(above))]
    errors += [(squared_error(part, statistic) / total**2, len(part)) for part in parts]
    variance = sum(error for error, _ in errors)
    freedom = variance**2 / sum(error**2 / (n - 1) for error, n in errors) if variance > 0 else math.inf
    return Pair(value=value, log=math.log(value), error=math.sqrt(variance), freedom=freedom)
