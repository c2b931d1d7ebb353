"""Several ratios judged at once: tests, and verdicts that are corrected for their number."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchmatrix.analysis.intervals import CONFIDENCE, NOTEWORTHY, difference_verdict
from torchmatrix.analysis.pairs import Chances, Pair

FALSE_DISCOVERIES = 1 - CONFIDENCE
"""The share of FASTER and SLOWER that may be false, on average; of SAME half of it, as that takes two one-sided tests."""
CORRECTION = "Benjamini-Hochberg"
VERDICTS = ("FASTER", "SLOWER", "SAME", "AMBIGUOUS", "n/a")
REASONS = {
    "different": "the interval excludes 1, also among so many comparisons, and the ratio differs from 1 by more than 1 %",
    "equivalent": "the interval lies within 1 ± 2 %, also among so many comparisons",
    "small": "the interval excludes 1, but the ratio differs from 1 by 1 % or less",
    "wide": "the interval holds 1 and reaches beyond 1 ± 2 %",
    "many": "alone it would be told, but not among so many comparisons",
    "levels": "the launches of this run may come in two levels, and fewer than 5 launches of a cell don't show which",
    "untested": "a side has fewer than two launches",
}
"""The rule that decided a verdict, by its code."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """`adjusted_p_value`: of the test for a difference; NaN where there was none. `reason`: one of REASONS."""

    verdict: str
    adjusted_p_value: float
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Significance:
    """The p-values up to which a difference, and sameness, are told, corrected for so many `comparisons`.

    Without a family of tests they are those of a single comparison.
    """

    differs: float = FALSE_DISCOVERIES
    same: float = FALSE_DISCOVERIES / 2
    comparisons: int = 1


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


def judged(pairs: Sequence[Pair], besides: Sequence[Chances] = ()) -> list[Judged]:
    """The verdict of each pair (intervals.difference_verdict); AMBIGUOUS where it doesn't survive the correction, or may be a
    jump between two levels.

    `besides`: tests that are corrected together with those of the pairs.
    """
    tests = [*(one.chances for one in pairs), *besides]
    differs, same = adjusted([one.differs for one in tests]), adjusted([one.same for one in tests])
    return [_judged(*one) for one in zip(pairs, differs, same, strict=False)]


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


def verdict_at(pair: Pair, level: Significance) -> str:
    """The verdict of intervals.difference_verdict; AMBIGUOUS if its p-value is above that of `level`."""
    test = pair.chances
    return _decided(pair, test.differs <= level.differs, test.same <= level.same)[0]


def needed_confidence(adjusted_p_values: Sequence[float]) -> float:
    """The confidence at which one more of these differences would be found."""
    known = [p for p in adjusted_p_values if not math.isnan(p)]
    found = sum(p <= FALSE_DISCOVERIES for p in known)
    return 1 - FALSE_DISCOVERIES * min(1.0, (found + 1) / max(1, len(known)))


def _judged(pair: Pair, differs: float, same: float) -> Judged:
    verdict, reason = _decided(pair, differs <= FALSE_DISCOVERIES, same <= FALSE_DISCOVERIES / 2)
    return Judged(verdict=verdict, adjusted_p_value=differs, reason=reason)


def _decided(pair: Pair, is_different: bool, is_same: bool) -> tuple[str, str]:
    """The verdict, and by which of REASONS. `is_different`, `is_same`: what holds among all comparisons."""
    alone = difference_verdict(pair.interval)
    if alone == "n/a":
        return alone, "untested"
    if alone == "AMBIGUOUS":
        is_small = abs(pair.value - 1) <= NOTEWORTHY and not pair.interval.low <= 1 <= pair.interval.high
        return alone, "small" if is_small else "wide"
    if not (is_same if alone == "SAME" else is_different):
        return "AMBIGUOUS", "many"
    if alone == "SAME":
        return alone, "equivalent"
    return ("AMBIGUOUS", "levels") if abs(pair.log) <= pair.jump else (alone, "different")
