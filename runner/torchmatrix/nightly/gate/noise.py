"""One cell over the nights: is tonight slower than its baseline? The limits are learned from the cell's own nights."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from torchmatrix.analysis.centers import central, median_of
from torchmatrix.analysis.intervals import NOTEWORTHY
from torchmatrix.analysis.pairs import pair

CHANCE = 1 / 15_000
"""The chance of a regression (two nights in a row) on a night of a cell that did not change.

Simulated (tests/nightly/test_gate.py) for nights that are independent and scatter by 1 %, with 7 of them as the baseline: a
night of 40 cells of which none changed ends in REGRESSION in 0.2 % of all cases once 28 nights are known, in 0.4 % with 14,
in 0.4 to 0.8 % with 8; one of 20 cells in half as many. (At a scatter of 3 %, in 0.6 to 1.4 % with 8; where nights resemble
each other with a correlation of 0.3, in 0.8 %.) A slow-down of 5 % is a regression on its second night in 88 % with 28
nights, in 73 % with 14, in 31 % with 7; at a scatter of 0.3 %, in all. What drift.py tells comes on top: see `make proof`.
"""
MEMORY = 28
"""How many nights show how much a cell differs from night to night; those of the baseline, if they are more."""
ENOUGH = 3
"""With fewer nights, that is unknown."""
STRAYS_FROM = 7
STRAY = 5.0
"""With this many nights or more, one that is further from its baseline than STRAY robust standard deviations (1.4826 times the
median absolute deviation) says nothing about the usual scatter (B. Iglewicz, D. C. Hoaglin: How to Detect and Handle Outliers).
They advise 3.5; with so few nights, that would take usual nights for strays and underestimate the scatter."""
EARLY = 0.05
"""As long as the scatter from night to night is unknown, a night must differ by more than this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Night:
    """One cell in one run. `rates`: items per second of its ok launches; `value`: their median or mean, the night's figure."""

    run: str
    rates: tuple[float, ...]
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Tonight over `center` (items per second) is slower below the ratio `low` and faster above `high`; NaN: unknown.

    `nights`: the runs that make the center; `strays`: nights that were left out of the scatter; `rule`: where the limits come
    from, in words.
    """

    center: float
    low: float
    high: float
    nights: tuple[str, ...]
    strays: tuple[str, ...]
    rule: str

    def verdict(self, value: float) -> str:
        """slower, faster, ok, or n/a."""
        found = value / self.center
        return "n/a" if math.isnan(self.low) else "slower" if found < self.low else "faster" if found > self.high else "ok"


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The verdict on a cell's newest night. `ratio`: over the baseline's center.

    `verdict`: ok; faster; suspected (slower for the first night); regression (slower on two nights in a row); new (without a
    baseline); n/a (too few launches). `drifted`: why it is a regression that no night shows alone. `before`: the ratios
    of the nights before it to the same baseline, if they were slower too.
    """

    verdict: str
    ratio: float
    limits: Limits | None
    before: tuple[float, ...] = ()
    drifted: str = ""


def night(run: str, rates: Sequence[float], statistic: str = "median") -> Night:
    """The night of a cell whose ok launches had these rates, at least one."""
    return Night(run=run, rates=tuple(rates), value=central(rates, statistic))


def standing(history: Sequence[Night], nights: int, tolerance: float = NOTEWORTHY, strict: bool = False) -> Standing:
    """Judge the last of `history` (all of the same work, oldest first) against the median of the `nights` before it.

    Nights in a row that were themselves slower than those before them are no baseline for the next one, however many they are:
    it is judged by the nights before the first of them. `strict`: slower on one night is a regression.
    """
    tonight, earlier = history[-1], history[:-1]
    if not earlier:
        return Standing(verdict="new", ratio=math.nan, limits=None)
    slow = _slow_before(earlier, nights, tolerance)
    found = limits(earlier[: len(earlier) - slow], nights, tonight, tolerance)
    return _standing(tonight, found, earlier[-slow:] if slow else (), strict)


def standing_to_run(
    named: Night, history: Sequence[Night], nights: int, tolerance: float = NOTEWORTHY, strict: bool = False
) -> Standing:
    """Judge the last of `history` (all of the same work, oldest first, without the named run) against one named run."""
    tonight, previous, older = history[-1], history[-2:-1], history[:-2]
    slow = [
        night for night in previous if limits_to_run(named, older, nights, night, tolerance).verdict(night.value) == "slower"
    ]
    return _standing(tonight, limits_to_run(named, older, nights, tonight, tolerance), slow, strict)


def _slow_before(earlier: Sequence[Night], nights: int, tolerance: float) -> int:
    """The largest number of nights at the end of `earlier` that are all slower than the nights before them."""
    for count in range(len(earlier) - 1, 0, -1):
        older = earlier[:-count]
        if len(older) < ENOUGH and count > max(1, nights // 2):
            continue  # so few nights are no level that many more could have left
        reach = (1 - tolerance) * _center(older[-nights:])  # no limit is closer, so most need not be learned
        if all(night.value < reach for night in earlier[-count:]) and all(
            limits(older, nights, night, tolerance).verdict(night.value) == "slower" for night in earlier[-count:]
        ):
            return count
    return 0


def _standing(tonight: Night, found: Limits, slow: Sequence[Night], strict: bool) -> Standing:
    verdict = found.verdict(tonight.value)
    if verdict != "slower":
        return Standing(verdict=verdict, ratio=tonight.value / found.center, limits=found)
    return Standing(
        verdict="regression" if slow or strict else "suspected",
        ratio=tonight.value / found.center,
        limits=found,
        before=tuple(night.value / found.center for night in slow),
    )


def limits(before: Sequence[Night], nights: int, tonight: Night, tolerance: float = NOTEWORTHY) -> Limits:
    """The limits for tonight from the nights before it; never narrower than 1 ± `tolerance`.

    From ENOUGH nights on, on the logarithms of the nights' values, around the median m of the last n (`nights`, or fewer):

        m ± k · s · √(1 + v(n))

    v(n) is the variance of m over that of a night (see `_variance_of_median`), s the scatter from night to night (see
    `_scatter`), and k is such that two nights in a row lie below by CHANCE (see `factor`). With fewer nights it is half the
    width of Welch's interval of the ratio, from the launches of all these nights (see intervals), and at least EARLY.
    """
    baseline = before[-nights:]
    if len(before) < ENOUGH:
        half = max(_half_by_launches(baseline, tonight), -math.log1p(-EARLY))
        return _limits(baseline, half, tolerance, _launches_in_words(baseline, tonight, half))
    scatter = _scatter(before[-max(MEMORY, nights) :], nights)
    half = _half_by_nights(scatter, baseline, tonight)
    return _limits(baseline, half, tolerance, scatter.in_words(), scatter.strays)


def limits_to_run(named: Night, before: Sequence[Night], nights: int, tonight: Night, tolerance: float = NOTEWORTHY) -> Limits:
    """The limits for tonight from one named run: half the width of Welch's interval of the ratio of the launches.

    If the nights `before` show that the cell differs by more from night to night (see `limits`, with n = 1), that counts.
    """
    half = _half_by_launches([named], tonight)
    if len(before) >= ENOUGH:
        scatter = _scatter(before[-max(MEMORY, nights) :], nights)
        learned = _half_by_nights(scatter, [named], tonight)
        if not half > learned:
            return _limits([named], learned, tolerance, scatter.in_words(), scatter.strays)
    return _limits([named], half, tolerance, _launches_in_words([named], tonight, half))


def _limits(baseline: Sequence[Night], half: float, tolerance: float, rule: str, strays: tuple[str, ...] = ()) -> Limits:
    """`half`: the width to either side, on logarithms; NaN: unknown."""
    known = not math.isnan(half)
    return Limits(
        center=_center(baseline),
        low=min(math.exp(-half), 1 - tolerance) if known else math.nan,
        high=max(math.exp(half), 1 + tolerance) if known else math.nan,
        nights=tuple(night.run for night in baseline),
        strays=strays,
        rule=rule,
    )


def _center(baseline: Sequence[Night]) -> float:
    return math.exp(median_of([math.log(night.value) for night in baseline]))


def _half_by_launches(nights: Sequence[Night], tonight: Night) -> float:
    found = pair(tonight.rates, [rate for night in nights for rate in night.rates]).interval
    return math.log(found.high / found.low) / 2


def _launches_in_words(nights: Sequence[Night], tonight: Night, half: float) -> str:
    words = f"the scatter of {len(tonight.rates)} and {sum(len(night.rates) for night in nights)} launches"
    return words + (", which is unknown: two of each are needed" if math.isnan(half) else "; how nights differ is unknown")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scatter:
    """From night to night: the standard deviation of the logarithms, and its degrees of freedom, which are nights."""

    size: float
    freedom: int
    strays: tuple[str, ...]

    def in_words(self) -> str:
        return f"{self.freedom + len(self.strays) + 1} nights scatter by {100 * self.size:.2g} %"


def _scatter(nights: Sequence[Night], count: int) -> _Scatter:
    """The root mean square deviation of each night from the median of the `count` nights before it, without strays.

    These are recursive residuals (R. L. Brown, J. Durbin, J. M. Evans, Journal of the Royal Statistical Society B 37 (1975),
    149-192) with a median instead of the mean: n nights give n - 1 of them, each scaled to the scatter of one night. Unlike
    in a standard deviation, a lasting change of the level leaves a few strays and then no trace.
    """
    logs = [math.log(night.value) for night in nights]
    errors = []
    for place in range(1, len(logs)):
        earlier = logs[max(0, place - count) : place]
        errors.append((logs[place] - median_of(earlier)) / math.sqrt(1 + _variance_of_median(len(earlier))))
    reach = STRAY * 1.4826 * median_of([abs(error) for error in errors]) if len(errors) >= STRAYS_FROM else math.inf
    kept = [error for error in errors if abs(error) <= max(reach, math.log1p(NOTEWORTHY))]
    strays = [night.run for night, error in zip(nights[1:], errors, strict=True) if error not in kept]
    size = math.sqrt(math.fsum(error**2 for error in kept) / len(kept))
    return _Scatter(size=size, freedom=len(kept), strays=tuple(strays))


def _half_by_nights(scatter: _Scatter, baseline: Sequence[Night], tonight: Night) -> float:
    v = _variance_of_median(len(baseline))
    size = math.sqrt(scatter.size**2 + _variance_of_fewer_launches(baseline, tonight))
    return factor(scatter.freedom, v) * size * math.sqrt(1 + v)


def _variance_of_median(n: int) -> float:
    """For n normal values, over the variance of one: π / 2n (P. S. Laplace, 1818); for one or two, the median is the mean."""
    return 1 / n if n < 3 else math.pi / (2 * n)


@lru_cache(maxsize=256)
def factor(freedom: int, v: float, chance: float = CHANCE) -> float:
    """k such that two nights in a row both lie below m - k · s · √(1 + v) by `chance`.

    m is off the true value by the root of v, s is the root of a chi-square over its `freedom`, and both are the same on the two
    nights, so that these aren't independent: Student's t in two dimensions (C. W. Dunnett, M. Sobel, Biometrika 41 (1954),
    153-169), integrated over s and m.
    """
    log_s, m = np.linspace(-7, 1.6, 201)[:, None], np.linspace(-6, 6, 31)[None, :]
    s = np.exp(log_s)
    weights = np.exp(freedom * (log_s - s**2 / 2) - m**2 / 2)
    low, high = 0.0, 1000.0
    for _ in range(30):
        k = (low + high) / 2
        both = ndtr(m * math.sqrt(v) - k * s * math.sqrt(1 + v)) ** 2
        low, high = (k, high) if float((weights * both).sum() / weights.sum()) > chance else (low, k)
    return high


def _variance_of_fewer_launches(nights: Sequence[Night], tonight: Night) -> float:
    """What tonight's logarithm gains in variance if tonight has fewer launches than the nights had on average."""
    usual = sum(len(night.rates) for night in nights) / len(nights)
    several = [[math.log(rate) for rate in night.rates] for night in nights if len(night.rates) > 1]
    if len(tonight.rates) >= usual or not several:
        return 0.0
    freedom = sum(len(logs) - 1 for logs in several)
    squares = math.fsum(math.fsum((x - math.fsum(logs) / len(logs)) ** 2 for x in logs) for logs in several)
    return squares / freedom * (1 / len(tonight.rates) - 1 / usual)
