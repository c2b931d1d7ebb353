"""One cell over the nights: is tonight slower than its baseline? The limits are learned from the cell's own nights."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchmatrix.intervals import NOTEWORTHY, central, ratio, student

TAIL = 0.005
"""The chance that a night of a cell that did not change is called slower; the same for faster.

Simulated (tests/unit/test_gate.py) with 7 nights as the baseline and any scatter from night to night: FILLED_IN
"""
ENOUGH = 3
"""So many nights, or more, tell how much a cell differs from night to night."""
STRAYS_FROM = 5
STRAY = 3.5
"""From so many nights on, one that is further from the median than STRAY robust standard deviations (1.4826 times the median
absolute deviation) says nothing about the usual scatter (B. Iglewicz, D. C. Hoaglin: How to Detect and Handle Outliers, 1993)."""
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
    """Tonight over `center` (items per second) is slower below the ratio `low` and faster above `high`; NaN: can't be said.

    `nights`: the runs that the center is the median of; `strays`: those of them that were left out of the scatter; `rule`: where
    the limits come from, in words.
    """

    center: float
    low: float
    high: float
    nights: tuple[str, ...]
    strays: tuple[str, ...] = ()
    rule: str

    def verdict(self, value: float) -> str:
        """slower, faster, ok, or n/a."""
        found = value / self.center
        return "n/a" if math.isnan(self.low) else "slower" if found < self.low else "faster" if found > self.high else "ok"


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What is to be said of a cell's newest night. `ratio`: over the baseline's center.

    `verdict`: ok; faster; suspected (slower for the first night); regression (slower on two nights in a row); new (no baseline);
    n/a (too few launches). `before`: the ratio of the night before to the same baseline where that night was slower, too, else NaN.
    """

    verdict: str
    ratio: float
    limits: Limits | None
    before: float = math.nan


def night(run: str, rates: Sequence[float], statistic: str = "median") -> Night:
    """The night of a cell whose ok launches had these rates; there is one at least."""
    return Night(run=run, rates=tuple(rates), value=central(rates, statistic))


def standing(history: Sequence[Night], nights: int, tolerance: float = NOTEWORTHY, strict: bool = False) -> Standing:
    """Of the last of `history` (all of the same work, oldest first) against the `nights` before it.

    A night that was itself slower is no baseline for the next one: both are then judged against the nights before the first.
    `strict`: slower on one night is a regression.
    """
    tonight, earlier = history[-1], history[:-1]
    if not earlier:
        return Standing(verdict="new", ratio=math.nan, limits=None)
    previous, older = earlier[-1], earlier[:-1][-nights:]
    then = limits(older, previous, tolerance) if older else None
    if then and then.verdict(previous.value) == "slower":
        return _standing(tonight, limits(older, tonight, tolerance), strict, previous.value / then.center)
    return _standing(tonight, limits(earlier[-nights:], tonight, tolerance), strict)


def standing_to_run(baseline: Night, history: Sequence[Night], tolerance: float = NOTEWORTHY, strict: bool = False) -> Standing:
    """Of the last of `history` (oldest first; the night before, if there is one) against one run that was named."""
    tonight, earlier = history[-1], history[:-1]
    before = math.nan
    if earlier and _from_launches([baseline], earlier[-1], tolerance).verdict(earlier[-1].value) == "slower":
        before = earlier[-1].value / baseline.value
    return _standing(tonight, _from_launches([baseline], tonight, tolerance), strict, before)


def _standing(tonight: Night, found: Limits, strict: bool, before: float = math.nan) -> Standing:
    verdict = found.verdict(tonight.value)
    if verdict == "slower":
        verdict = "suspected" if math.isnan(before) and not strict else "regression"
    return Standing(verdict=verdict, ratio=tonight.value / found.center, limits=found, before=before)


def limits(nights: Sequence[Night], tonight: Night, tolerance: float = NOTEWORTHY) -> Limits:
    """What tonight may be, by the `nights` before it; never narrower than 1 ± `tolerance`.

    From ENOUGH nights on it is the prediction interval for one more value of a normal population, on the logarithms of the
    nights' values x (G. J. Hahn, W. Q. Meeker: Statistical Intervals, 1991), around their median m:

        m ± t(n - 1, 1 - TAIL) · s · √(1 + π / 2n)

    s is the standard deviation of the n nights that are no strays; π / 2n takes the place of 1 / n since m is a median (P. S.
    Laplace, 1818). With fewer nights: see `_from_launches`, and no less than 1 ± EARLY.
    """
    if len(nights) < ENOUGH:
        return _from_launches(nights, tonight, max(tolerance, EARLY))
    logs = [math.log(night.value) for night in nights]
    center = _median(logs)
    usual = _usual(logs, center, tolerance)
    kept = [value for value, is_usual in zip(logs, usual, strict=True) if is_usual]
    n, variance = len(kept), _variance(kept)
    half = student(n - 1, 1 - TAIL) * math.sqrt((variance + _fewer_launches(nights, tonight)) * (1 + math.pi / (2 * n)))
    return Limits(
        center=math.exp(center),
        low=min(math.exp(-half), 1 - tolerance),
        high=max(math.exp(half), 1 + tolerance),
        nights=tuple(night.run for night in nights),
        strays=tuple(night.run for night, is_usual in zip(nights, usual, strict=True) if not is_usual),
        rule=f"{n} nights that scatter by {100 * math.sqrt(variance):.2g} %",
    )


def _from_launches(nights: Sequence[Night], tonight: Night, tolerance: float) -> Limits:
    """By the scatter of the launches within the nights, pooled: half the width of Welch's interval of the ratio (see intervals)."""
    rates = [rate for night in nights for rate in night.rates]
    found = ratio(tonight.rates, rates)
    half = math.log(found.high / found.low) / 2
    known = not math.isnan(half)
    return Limits(
        center=math.exp(_median([math.log(night.value) for night in nights])),
        low=min(math.exp(-half), 1 - tolerance) if known else math.nan,
        high=max(math.exp(half), 1 + tolerance) if known else math.nan,
        nights=tuple(night.run for night in nights),
        rule=f"the scatter of {len(tonight.rates)} and {len(rates)} launches"
        + ("; what nights differ by is not known" if known else ", which is unknown: two of each are needed"),
    )


def _usual(logs: Sequence[float], center: float, tolerance: float) -> list[bool]:
    """Which nights are no strays; within the tolerance none is."""
    if len(logs) < STRAYS_FROM:
        return [True] * len(logs)
    reach = max(STRAY * 1.4826 * _median([abs(value - center) for value in logs]), math.log1p(tolerance))
    return [abs(value - center) <= reach for value in logs]


def _fewer_launches(nights: Sequence[Night], tonight: Night) -> float:
    """What it adds to the variance of tonight's logarithm that it has fewer launches than the nights had on average."""
    usual = sum(len(night.rates) for night in nights) / len(nights)
    several = [[math.log(rate) for rate in night.rates] for night in nights if len(night.rates) > 1]
    if len(tonight.rates) >= usual or not several:
        return 0.0
    freedom = sum(len(logs) - 1 for logs in several)
    within = sum((len(logs) - 1) * _variance(logs) for logs in several) / freedom
    return within * (1 / len(tonight.rates) - 1 / usual)


def _median(values: Sequence[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
