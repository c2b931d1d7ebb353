"""Several ratios judged at once: tests, and verdicts that are corrected for their number."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from torchmatrix.analysis.intervals import (
    CONFIDENCE,
    PAIRS_FROM,
    SAME_WITHIN,
    Interval,
    difference_of_logarithms,
    difference_verdict,
)

FALSE_DISCOVERIES = 1 - CONFIDENCE
"""The share of FASTER and SLOWER that may be false, on average; of SAME half of it, as that takes two one-sided tests."""
CORRECTION = "Benjamini-Hochberg"
VERDICTS = ("FASTER", "SLOWER", "SAME", "AMBIGUOUS", "n/a")


@dataclass(frozen=True, kw_only=True, slots=True)
class Chances:
    """p-values of a ratio: `differs`: that there is no difference; `same`: that it isn't within the margin of SAME."""

    differs: float
    same: float


UNTESTED = Chances(differs=math.nan, same=math.nan)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """`adjusted_p_value`: of the test for a difference; NaN where there was none."""

    verdict: str
    adjusted_p_value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Significance:
    """The p-values up to which a difference, and sameness, are told, corrected for so many `comparisons`.

    Without a family of tests they are those of a single comparison.
    """

    differs: float = FALSE_DISCOVERIES
    same: float = FALSE_DISCOVERIES / 2
    comparisons: int = 1


def chances(above: Sequence[float], below: Sequence[float], paired: bool = False, statistic: str = "median") -> Chances:
    """Two p-values of the tests that the intervals of `ratio` and `paired_ratio` stand for; NaN with too few launches.

    That there is no difference (two-sided), and that the ratio is not within 1 ± SAME_WITHIN (the larger of two one-sided
    tests: D. J. Schuirmann, J. Pharmacokin. Biopharm. 15 (1987), 657-680). An interval at CONFIDENCE excludes 1 where the first
    is below 1 - CONFIDENCE, and lies within the margin where the second is below half of that.
    """
    found = difference_of(above, below, paired, statistic)
    return chances_of(*found) if found else UNTESTED


def difference_of(
    above: Sequence[float], below: Sequence[float], paired: bool = False, statistic: str = "median"
) -> tuple[float, float, float] | None:
    """The logarithm of their ratio, its standard error and degrees of freedom; None with too few launches."""
    if min(len(above), len(below)) < (PAIRS_FROM if paired else 2):
        return None
    return _mean_of_logarithms(above, below) if paired else difference_of_logarithms(above, below, statistic)


def chances_of(center: float, error: float, freedom: float) -> Chances:
    """The same of the logarithm of a ratio, its standard error and its degrees of freedom."""
    low, high = center - math.log(1 - SAME_WITHIN), math.log(1 + SAME_WITHIN) - center
    if error == 0.0:
        return Chances(differs=float(center == 0.0), same=float(min(low, high) < 0))
    differs, below_margin, above_margin = (float(stdtr(freedom, -distance / error)) for distance in (abs(center), low, high))
    return Chances(differs=2 * differs, same=max(below_margin, above_margin))


def p_above(above: Sequence[float], below: Sequence[float], statistic: str = "median", least: float = 1.0) -> float:
    """The one-sided p-value that the ratio isn't above `least`; NaN with too few launches."""
    found = difference_of(above, below, statistic=statistic)
    if found is None:
        return math.nan
    center, error, freedom = found[0] - math.log(least), *found[1:]
    return float(stdtr(freedom, -center / error)) if error else float(center <= 0.0)


def surviving(flags: Sequence[bool], p_values: Sequence[float]) -> list[bool]:
    """The flags, without those that one-sided tests don't support once all are corrected together; what wasn't tested stays."""
    found = zip(flags, adjusted(p_values), strict=True)
    return [flag and not p > FALSE_DISCOVERIES / 2 for flag, p in found]


def adjusted(values: Sequence[float]) -> list[float]:
    """p-values of several tests, adjusted so that of those below a limit not more than this share are false, on average.

    Y. Benjamini and Y. Hochberg, J. R. Statist. Soc. B 57 (1995), 289-300. NaN is no test and stays NaN.
    """
    known = sorted((value, place) for place, value in enumerate(values) if not math.isnan(value))
    found, least = [math.nan] * len(values), 1.0
    for rank, (value, place) in reversed(list(enumerate(known, start=1))):
        least = min(least, value * len(known) / rank)
        found[place] = least
    return found


def judged(found: Sequence[Interval], tests: Sequence[Chances]) -> list[Judged]:
    """The verdicts of intervals.difference_verdict, those that don't survive the correction made AMBIGUOUS."""
    differs, same = adjusted([one.differs for one in tests]), adjusted([one.same for one in tests])
    return [_judged(*one) for one in zip(found, differs, same, strict=True)]


def significance_of(tests: Sequence[Chances]) -> Significance:
    """The p-values up to which `judged` tells something of these tests, all corrected together."""
    return Significance(
        differs=_level([one.differs for one in tests], FALSE_DISCOVERIES),
        same=_level([one.same for one in tests], FALSE_DISCOVERIES / 2),
        comparisons=sum(not math.isnan(one.differs) for one in tests),
    )


def _level(values: Sequence[float], share: float) -> float:
    """The step at which Benjamini and Hochberg's procedure stops; the first one where nothing is found."""
    known = [value for value in adjusted(values) if not math.isnan(value)]
    return share * max(1, sum(value <= share for value in known)) / max(1, len(known))


def verdict_at(found: Interval, test: Chances, level: Significance) -> str:
    """The verdict of intervals.difference_verdict; AMBIGUOUS if its p-value is above that of `level`."""
    return _survives(difference_verdict(found), test.differs <= level.differs, test.same <= level.same)


def needed_confidence(adjusted_p_values: Sequence[float]) -> float:
    """The confidence at which one more of these differences would be found."""
    known = [p for p in adjusted_p_values if not math.isnan(p)]
    found = sum(p <= FALSE_DISCOVERIES for p in known)
    return 1 - FALSE_DISCOVERIES * min(1.0, (found + 1) / max(1, len(known)))


def _judged(found: Interval, differs: float, same: float) -> Judged:
    verdict = _survives(difference_verdict(found), differs <= FALSE_DISCOVERIES, same <= FALSE_DISCOVERIES / 2)
    return Judged(verdict=verdict, adjusted_p_value=differs)


def _survives(verdict: str, is_different: bool, is_same: bool) -> str:
    survives = {"FASTER": is_different, "SLOWER": is_different, "SAME": is_same}
    return verdict if survives.get(verdict, True) else "AMBIGUOUS"


def _mean_of_logarithms(above: Sequence[float], below: Sequence[float]) -> tuple[float, float, float]:
    """The mean of the logarithms of the ratios of pairs, its standard error and its degrees of freedom."""
    logs = np.log(np.asarray(above, dtype=float) / np.asarray(below, dtype=float))
    return float(logs.mean()), math.sqrt(float(np.var(logs, ddof=1)) / len(logs)), len(logs) - 1
