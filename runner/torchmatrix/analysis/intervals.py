"""Samples -> intervals of means and of ratios, verdicts, and how many launches would settle them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95
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
MEAN_FROM = 3
"""A geometric mean of fewer ratios has no interval: of two it would span a factor of ten and more, and say nothing."""
MOST_LAUNCHES = 1000
"""Where more launches than this would be needed, no number is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A point with its 95 % limits; NaN limits mean that there are too few launches to say."""

    value: float
    low: float
    high: float


UNKNOWN = Interval(value=math.nan, low=math.nan, high=math.nan)


def mean_interval(values: Sequence[float], statistic: str = "median") -> Interval:
    """The median (or, by name, the mean) of `values` with the t interval of their mean."""
    n = len(values)
    if n == 0:
        return UNKNOWN
    value = central(values, statistic)
    if n == 1:
        return Interval(value=value, low=math.nan, high=math.nan)
    mean = float(np.mean(values))
    half = _quantile(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Interval(value=value, low=mean - half, high=mean + half)


def central(values: Sequence[float], statistic: str = "median") -> float:
    """The median or the mean."""
    return float(np.mean(values) if statistic == "mean" else np.median(values))


def relative_half_width(values: Sequence[float]) -> float:
    """Half the width of the mean's interval over the mean; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    found = mean_interval(values)
    return (found.high - found.low) / 2 / float(np.mean(values))


def ratio(above: Sequence[float], below: Sequence[float], statistic: str = "median") -> Interval:
    """Median over median, with Welch's interval on the logarithms; NaN limits unless both have two values or more."""
    if not above or not below:
        return UNKNOWN
    value = central(above, statistic) / central(below, statistic)
    if above is below:
        return Interval(value=1.0, low=1.0, high=1.0)
    if len(above) < 2 or len(below) < 2:
        return Interval(value=value, low=math.nan, high=math.nan)
    center, error, freedom = _difference_of_logarithms(above, below)
    if error == 0.0:
        return Interval(value=value, low=value, high=value)
    half = _quantile(freedom) * error
    return Interval(value=value, low=math.exp(center - half), high=math.exp(center + half))


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> Interval:
    """Geometric mean of the ratios of launches of the same round, entry by entry, with the t interval of their logarithms.

    For cells that were interleaved over rounds: what the whole machine did from round to round falls out (randomized complete
    blocks: R. A. Fisher, The Design of Experiments, 1935).
    """
    return geometric_mean([a / b for a, b in zip(above, below, strict=True)])


def geometric_mean(ratios: Sequence[float]) -> Interval:
    """The n-th root of the product of n ratios, with the t interval of their logarithms.

    NaN limits below MEAN_FROM ratios. Unclipped: a slow-down counts as much as the speed-up that would undo it.
    """
    if not ratios:
        return UNKNOWN
    logs = np.log(np.asarray(ratios, dtype=float))
    value = math.exp(float(logs.mean()))
    if len(logs) < MEAN_FROM:
        return Interval(value=value, low=math.nan, high=math.nan)
    factor = math.exp(_quantile(len(logs) - 1) * math.sqrt(float(np.var(logs, ddof=1)) / len(logs)))
    return Interval(value=value, low=value / factor, high=value * factor)


def ratio_to_sum(above: Sequence[float], parts: Sequence[Sequence[float]], statistic: str = "median") -> Interval:
    """`above` over the sum of the parts' central values; the relative variances of the means add (delta method)."""
    if not above or not parts or not all(parts):
        return UNKNOWN
    total = sum(central(part, statistic) for part in parts)
    value = central(above, statistic) / total
    if any(len(values) < 2 for values in (above, *parts)):
        return Interval(value=value, low=math.nan, high=math.nan)
    errors = [(_squared_error(above) / float(np.mean(above)) ** 2, len(above))]
    errors += [(_squared_error(part) / total**2, len(part)) for part in parts]
    variance = sum(error for error, _ in errors)
    if variance == 0.0:
        return Interval(value=value, low=value, high=value)
    freedom = variance**2 / sum(error**2 / (n - 1) for error, n in errors)
    factor = math.exp(_quantile(freedom) * math.sqrt(variance))
    center = float(np.mean(above)) / sum(float(np.mean(part)) for part in parts)
    return Interval(value=value, low=center / factor, high=center * factor)


def _squared_error(values: Sequence[float]) -> float:
    return float(np.var(values, ddof=1)) / len(values)


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
    """Where our interval (without one, the figure itself) lies to what counts as reproduced, from `low` to `high`.

    reproduced: they intersect; better or worse: ours is wholly above or below; ambiguous: ours reaches beyond both ends, and so
    could be any of the three.
    """
    least, most = (found.value, found.value) if math.isnan(found.low) else (found.low, found.high)
    if least > high:
        return "better"
    if most < low:
        return "worse"
    return "ambiguous" if least < low and most > high else "reproduced"


def launches_to_settle(above: Sequence[float], below: Sequence[float], paired: bool = False) -> int | None:
    """How many launches on each side would end an AMBIGUOUS with a chance of 4 in 5, if mean and scatter stay as they are.

    The smallest n, beyond those at hand, for which Student's t plus the normal quantile of that chance, times the standard
    error, is less than what stands between the ratio and a verdict: its distance from 1 where that is noteworthy, else what is
    left to the edge of SAME. `paired`: entry by entry, as in paired_ratio. None where that is more than MOST_LAUNCHES.
    """
    if len(above) < 2 or len(below) < 2:
        return None
    logs = [np.log(np.asarray(values, dtype=float)) for values in (above, below)]
    center = abs(float(logs[0].mean() - logs[1].mean()))
    room = center if center > math.log1p(NOTEWORTHY) else -math.log1p(-SAME_WITHIN) - center
    variance = np.var(logs[0] - logs[1], ddof=1) if paired else sum(np.var(log, ddof=1) for log in logs)
    spread, sides = math.sqrt(float(variance)), 1 if paired else 2
    for n in range(max(len(above), len(below)) + 1, MOST_LAUNCHES + 1):
        if (_quantile(sides * (n - 1)) + CHANCE_QUANTILE) * spread / math.sqrt(n) < room:
            return n
    return None


def _difference_of_logarithms(above: Sequence[float], below: Sequence[float]) -> tuple[float, float, float]:
    """The difference of the means of the logarithms, its standard error and Welch-Satterthwaite's degrees of freedom.

    B. L. Welch, Biometrika 34 (1947), 28-35.
    """
    logs = [np.log(np.asarray(values, dtype=float)) for values in (above, below)]
    errors = [float(np.var(log, ddof=1)) / len(log) for log in logs]
    total = sum(errors)
    parts = sum(e**2 / (len(log) - 1) for e, log in zip(errors, logs, strict=True))
    freedom = total**2 / parts if parts > 0 else math.inf
    return float(logs[0].mean() - logs[1].mean()), math.sqrt(total), freedom


@lru_cache(maxsize=1024)
def student(freedom: float, probability: float) -> float:
    """The quantile of Student's t with that many degrees of freedom."""
    return float(stdtrit(freedom, probability))


def _quantile(freedom: float) -> float:
    """Student's t, two-sided, at CONFIDENCE."""
    return student(freedom, 0.5 + CONFIDENCE / 2)
