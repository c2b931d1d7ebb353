"""The ratio of the figures of two groups of launches, of which every comparison consists: its interval, and its tests.

Ratios are of geometric means: all is computed from mean logarithms, whose scatter is learned from all cells of a run
(intervals.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from torchmatrix.analysis import intervals
from torchmatrix.analysis.special import stdtr


@dataclass(frozen=True, kw_only=True, slots=True)
class Chances:
    """p-values of a ratio: `differs`: that there is no difference; `same`: that it isn't within the margin of SAME."""

    differs: float
    same: float


UNTESTED = Chances(differs=math.nan, same=math.nan)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The ratio of two groups, or why there is none.

    `value`: the ratio of their geometric means; `log`: its logarithm, with its standard `error` and degrees of `freedom`: NaN
    with too few launches, as is `variance`: what one launch of each side adds to that of `log`. `launches`: of the larger side;
    `shared`: the degrees of freedom from all cells of the run. `paired`: computed round by round. `jump`: how far apart levels
    may lie that so few launches don't show (levels.py). `disturbed`: other programs disturbed launches of one side only, and so
    nothing is tested. `looks`: the factor of p-values for looking more than once (intervals.LOOKS). `why_not`: why the two are
    not compared, else "".
    """

    value: float = math.nan
    log: float = math.nan
    error: float = math.nan
    freedom: float = math.nan
    variance: float = math.nan
    launches: int = 0
    shared: float = 0.0
    paired: bool = False
    jump: float = 0.0
    disturbed: bool = False
    looks: float = 1.0
    why_not: str = ""

    @property
    def interval(self) -> intervals.Interval:
        """Return the ratio in the middle of its 95 % interval."""
        return self.at(intervals.CONFIDENCE)

    def at(self, confidence: float) -> intervals.Interval:
        """Return the ratio in the middle of its interval: Student's t times the error of the logarithm."""
        if math.isnan(self.error):
            return intervals.Interval(value=self.value)
        if self.error == 0.0:
            return intervals.Interval(value=self.value, low=self.value, high=self.value)
        return intervals.centered(self.value, self.error, self.freedom, self._at_one_look(confidence))

    def _at_one_look(self, confidence: float) -> float:
        """Return the confidence that an interval must have at each look to have this one at all of them together."""
        return 1 - (1 - confidence) / self.looks

    @property
    def chances(self) -> Chances:
        """Return the p-values of the tests that the interval stands for; NaN with too few launches.

        That there is no difference (two-sided), and that the ratio is not within 1 ± SAME_WITHIN (the larger of two one-sided
        tests: D. J. Schuirmann, J. Pharmacokin. Biopharm. 15 (1987), 657-680). An interval at CONFIDENCE excludes 1 where the
        first is below 1 - CONFIDENCE, and lies within the margin where the second is below half of that.
        """
        if math.isnan(self.freedom) or self.disturbed:
            return UNTESTED
        low, high = self.log - math.log(1 - intervals.SAME_WITHIN), math.log(1 + intervals.SAME_WITHIN) - self.log
        if self.error == 0.0:
            return Chances(differs=float(self.log == 0.0), same=float(min(low, high) < 0))
        differs, below, above = (float(stdtr(self.freedom, -distance / self.error)) for distance in (abs(self.log), low, high))
        return Chances(differs=min(1.0, self.looks * 2 * differs), same=min(1.0, self.looks * max(below, above)))

    def p_above(self, least: float = 1.0) -> float:
        """Return the one-sided p-value that the ratio isn't above `least`; NaN with too few launches."""
        if math.isnan(self.freedom):
            return 0.5 if self is ITSELF else math.nan
        center = self.log - math.log(least)
        return float(stdtr(self.freedom, -center / self.error)) if self.error else float(center <= 0.0)

    def detectable(self, confidence: float) -> float:
        """Return the smallest difference from 1 that would be detected with a chance of 4 in 5; NaN with too few launches."""
        at_one_look = self._at_one_look(confidence)
        return math.nan if math.isnan(self.freedom) else intervals.detectable_at(self.error, self.freedom, at_one_look)

    def settled_by(self, confidence: float = intervals.CONFIDENCE) -> int | None:
        """Return how many launches per side would end an AMBIGUOUS with a chance of 4 in 5, if all else stays as it is.

        The smallest n, beyond those at hand, for which Student's t plus the normal quantile of that chance, times the standard
        error, is less than the ratio's distance from a verdict: from 1 where that is noteworthy, else to the edge of SAME.
        `confidence`: higher where it is one comparison of several. None where the scatter is unknown, and where the number is
        more than MOST_LAUNCHES.
        """
        if math.isnan(self.variance):
            return None
        center, sides = abs(self.log), 1 if self.paired else 2
        distance = center if center > math.log1p(intervals.NOTEWORTHY) else -math.log1p(-intervals.SAME_WITHIN) - center
        for n in range(max(self.launches + 1, intervals.SEEN_FROM if self.jump else 0), intervals.MOST_LAUNCHES + 1):
            freedom = max(self.shared + n - 1, sides * (n - 1))
            quantiles = intervals.student(freedom, 0.5 + self._at_one_look(confidence) / 2) + intervals.CHANCE_QUANTILE
            if quantiles * math.sqrt(self.variance / n) < distance:
                return n
        return None

    def scaled(self, factor: float) -> "Pair":
        """Return the ratio for figures that are larger by this factor."""
        return replace(self, value=self.value * factor, log=math.log(self.value * factor))

    @property
    def inverse(self) -> "Pair":
        """Return the inverse ratio."""
        return replace(self, value=1 / self.value, log=-self.log)


UNKNOWN_PAIR = Pair()
ITSELF = Pair(value=1.0, log=0.0, error=0.0)
"""The ratio of a group to itself, which needs no test."""


def pair(above: Sequence[float], below: Sequence[float], prior: intervals.Prior = intervals.NO_PRIOR) -> Pair:
    """Return the ratio of two groups of positive figures, without an interval unless both have two or more."""
    if not above or not below:
        return Pair()
    if above is below:
        return ITSELF
    if len(above) < 2 or len(below) < 2:
        return Pair(value=intervals.geometric_mean(above).value / intervals.geometric_mean(below).value)
    return pair_of_moments(intervals.moments(above, prior), intervals.moments(below, prior))


def pair_of_moments(above: intervals.Moments, below: intervals.Moments) -> Pair:
    """Return the ratio of two groups from their moments."""
    above, below = above.beside(below), below.beside(above)
    log, total = above.log - below.log, above.squared_error + below.squared_error
    return Pair(
        value=math.exp(log), log=log, error=math.sqrt(total), freedom=freedom_of((above, below)),
        variance=sum(side.squared_error * side.launches for side in (above, below)),
        launches=max(above.launches, below.launches), shared=min(above.shared, below.shared),
        jump=max(above.jump, below.jump), disturbed=above.disturbed != below.disturbed, looks=max(above.looks, below.looks),
    )  # fmt: skip


def freedom_of(parts: Sequence[intervals.Moments], weights: Sequence[float] = ()) -> float:
    """Return degrees of freedom of a sum of independent logarithms, each times its weight.

    Those that all cells share count once, beside the mean of the parts' own; never fewer than without them (B. L. Welch,
    Biometrika 34 (1947), 28-35; F. E. Satterthwaite, Biometrics Bull. 2 (1946), 110-114).
    """
    each = zip(parts, weights or [1.0] * len(parts), strict=True)
    errors = [(weight**2 * part.squared_error, part.freedom) for part, weight in each if part.squared_error > 0]
    total = math.fsum(error for error, _ in errors)
    if not total:
        return math.inf
    of_parts = total / math.fsum(error / freedom for error, freedom in errors)
    without_shared = total**2 / math.fsum(error**2 / freedom for error, freedom in errors)
    return max(min(part.shared for part in parts) + of_parts, without_shared)


def pair_by_rounds(above: Sequence[float], below: Sequence[float]) -> Pair:
    """Return the geometric mean of the ratios of launches of the same round, by the t-test of their logarithms.

    For cells that were interleaved over rounds: what the whole machine did from round to round falls out (randomized complete
    blocks: R. A. Fisher, The Design of Experiments, 1935).
    """
    logs = np.log(np.asarray(above, dtype=float) / np.asarray(below, dtype=float))
    if not len(logs):
        return Pair()
    center = float(logs.mean())
    if len(logs) < intervals.PAIRS_FROM:
        return Pair(value=math.exp(center))
    error = math.sqrt(float(np.var(logs, ddof=1)) / len(logs))
    return Pair(
        value=math.exp(center), log=center, error=error, freedom=len(logs) - 1, variance=error**2 * len(logs),
        launches=len(logs), paired=True,
    )  # fmt: skip


def pair_over_sum(above: intervals.Moments, parts: Sequence[intervals.Moments]) -> Pair:
    """Return a geometric mean over the sum of others; the relative variances of the parts add (delta method). It is disturbed
    where only one of both sides is.
    """
    values = [math.exp(part.log) for part in parts]
    total = math.fsum(values)
    weights = [value / total for value in values]
    log = above.log - math.log(total)
    variance = above.squared_error + math.fsum(w**2 * part.squared_error for w, part in zip(weights, parts, strict=True))
    freedom = freedom_of((above, *parts), (1.0, *weights))
    return Pair(
        value=math.exp(log), log=log, error=math.sqrt(variance), freedom=freedom,
        jump=max(part.jump for part in (above, *parts)), looks=max(part.looks for part in (above, *parts)),
        disturbed=above.disturbed != any(part.disturbed for part in parts),
    )  # fmt: skip
