"""Judge several ratios at once: tests, and verdicts that are corrected for their number."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from torchmatrix.analysis import intervals
from torchmatrix.analysis.pairs import UNTESTED, Chances, Pair, freedom_of, pair_of_moments
from torchmatrix.analysis.special import ndtri, stdtr

Side = TypeVar("Side", bound=Hashable)
FALSE_DISCOVERIES = 1 - intervals.CONFIDENCE
"""The share of FASTER and SLOWER that may be false, on average; for SAME half of it, as that takes two one-sided tests."""
CORRECTION = "Benjamini-Hochberg"
VERDICTS = ("FASTER", "SLOWER", "SAME", "AMBIGUOUS", "DISTURBED", "n/a")
REASONS = {
    "different": "the interval excludes 1, also among so many comparisons, and the ratio differs from 1 by more than 1 %",
    "equivalent": "the interval lies within 1 ± 2 %, also among so many comparisons",
    "small": "the interval excludes 1, but the ratio differs from 1 by 1 % or less",
    "wide": "the interval holds 1 and reaches beyond 1 ± 2 %",
    "many": "alone it would be told, but not among so many comparisons",
    "levels": "the launches of this run may come in two levels, and fewer than 5 launches of a cell don't show which",
    "disturbed": "other programs disturbed launches of one side and none of the other",
    "untested": "a side has fewer than two launches",
}
"""The rule that decided a verdict, by its code."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A verdict. `adjusted_p_value`: of the test for a difference; NaN where there was none. `reason`: one of REASONS."""

    verdict: str
    adjusted_p_value: float
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Significance:
    """The p-values up to which a difference, and sameness, are reported, corrected for this number of `comparisons`.

    Without a family of tests they are those of a single comparison.
    """

    differs: float = FALSE_DISCOVERIES
    same: float = FALSE_DISCOVERIES / 2
    comparisons: int = 1

    def confidence_of(self, verdict: str) -> float:
        """Return the confidence of an interval that agrees with a verdict at these levels.

        Of all intervals whose verdict is a difference, 5 % are expected to miss the true ratio (Y. Benjamini, D. Yekutieli, J.
        Am. Statist. Assoc. 100 (2005), 71-81). An interval that shows sameness lies within the margin by two one-sided tests.
        """
        return 1 - (2 * self.same if verdict == "SAME" else self.differs)


def surviving(flags: Sequence[bool], p_values: Sequence[float]) -> list[bool]:
    """Return the flags that one-sided tests support once all are corrected together; flags without a test stay."""
    tested = zip(flags, intervals.adjusted(p_values), strict=True)
    return [flag and not p > FALSE_DISCOVERIES / 2 for flag, p in tested]


def judged(pairs: Sequence[Pair], besides: Sequence[Chances] = ()) -> list[Verdict]:
    """Return the verdict of each pair (intervals.difference_verdict); AMBIGUOUS where it doesn't survive the correction, or may
    be a jump between two levels.

    `besides`: tests that are corrected together with those of the pairs.
    """
    tests = [*(test.chances for test in pairs), *besides]
    differs, same = intervals.adjusted([test.differs for test in tests]), intervals.adjusted([test.same for test in tests])
    return [_judged(*test) for test in zip(pairs, differs, same, strict=False)]


def significance_of(tests: Sequence[Chances]) -> Significance:
    """Return the p-values up to which `judged` reports something of these tests, all corrected together."""
    return Significance(
        differs=_level([test.differs for test in tests], FALSE_DISCOVERIES),
        same=_level([test.same for test in tests], FALSE_DISCOVERIES / 2),
        comparisons=sum(not math.isnan(test.differs) for test in tests),
    )


def _level(values: Sequence[float], share: float) -> float:
    """Return the step at which Benjamini and Hochberg's procedure stops; the first one where nothing is found."""
    p_values = [value for value in intervals.adjusted(values) if not math.isnan(value)]
    return share * max(1, sum(value <= share for value in p_values)) / max(1, len(p_values))


def verdict_at(pair: Pair, level: Significance) -> str:
    """Return the verdict of intervals.difference_verdict; AMBIGUOUS if its p-value is above that of `level`."""
    test = pair.chances
    return _decided(pair, test.differs <= level.differs, test.same <= level.same)[0]


def needed_confidence(adjusted_p_values: Sequence[float]) -> float:
    """Return the confidence at which one more of these differences would be found."""
    p_values = [p for p in adjusted_p_values if not math.isnan(p)]
    significant = sum(p <= FALSE_DISCOVERIES for p in p_values)
    return 1 - FALSE_DISCOVERIES * min(1.0, (significant + 1) / max(1, len(p_values)))


def _judged(pair: Pair, differs: float, same: float) -> Verdict:
    verdict, reason = _decided(pair, differs <= FALSE_DISCOVERIES, same <= FALSE_DISCOVERIES / 2)
    return Verdict(verdict=verdict, adjusted_p_value=differs, reason=reason)


def _decided(pair: Pair, is_different: bool, is_same: bool) -> tuple[str, str]:
    """Return the verdict, and the one of REASONS. `is_different`, `is_same`: the results among all comparisons."""
    alone = intervals.difference_verdict(pair.interval)
    if alone == "n/a":
        return alone, "untested"
    if pair.disturbed:
        return "DISTURBED", "disturbed"
    if alone == "AMBIGUOUS":
        is_small = abs(pair.value - 1) <= intervals.NOTEWORTHY and not pair.interval.low <= 1 <= pair.interval.high
        return alone, "small" if is_small else "wide"
    if not (is_same if alone == "SAME" else is_different):
        return "AMBIGUOUS", "many"
    if alone == "SAME":
        return alone, "equivalent"
    return ("AMBIGUOUS", "levels") if abs(pair.log) <= pair.jump else (alone, "different")


# The best of several figures: which may be the highest, and intervals of picked ones.
#
# Multiple comparisons with the best: J. C. Hsu, Ann. Statist. 12 (1984), 1136-1144, and D. G. Edwards, J. C. Hsu, J. Am.
# Statist. Assoc. 78 (1983), 965-971. The subset that holds the best: S. S. Gupta, Technometrics 7 (1965), 225-245. With scatter
# that differs from figure to figure there is no exact critical value; Welch's t and Bonferroni's inequality over the k - 1
# others are safe. Only comparisons with the true best matter, so there are k - 1 of them, not k (k - 1) / 2.

_HIGHEST = 8
"""Most of many figures are below one of this many highest ones, which are compared with all at once."""


def may_be_best(figures: Sequence[intervals.Moments | None], level: float = FALSE_DISCOVERIES) -> list[int]:
    """Return the places of the figures that may be the highest: the highest one, and those not distinguishable from a better
    one.

    A figure is out if one is more than NOTEWORTHY (and than a jump between levels) above it with a two-sided p-value of at
    most `level` / (k - 1), unless other programs disturbed one of the two only. So the best is out, or one of several equally
    good ones stands alone, with a chance of at most `level`. None: one launch; it stays.
    """
    least = level / max(1, len(figures) - 1)
    tested = _rows(figures)
    places = [place for place, figure in enumerate(figures) if figure is not None]
    highest = tested[np.argsort(-tested[:, 0], kind="stable")[:_HIGHEST]]
    below = np.any(_p_above(highest[:, None], tested, least) <= least, axis=0)
    each = zip(places, tested, below, strict=True)
    out = {place for place, figure, is_below in each if is_below or np.any(_p_above(tested, figure, least) <= least)}
    return [place for place in range(len(figures)) if place not in out]


def are_comparable(figure: intervals.Moments | None, other: intervals.Moments | None) -> bool:
    """Check whether a test compares two figures: both are of two launches or more, and disturbed alike by other programs."""
    return figure is not None and other is not None and figure.disturbed == other.disturbed


def chances_of_best(figures: Sequence[intervals.Moments | None]) -> Chances:
    """Return p-values of one claim: that the highest is above all others, and that all are the same as the highest.

    The first is the smallest `level` at which `may_be_best` leaves the highest alone. Sameness takes that of every other
    (intersection-union test: R. L. Berger, Technometrics 24 (1982), 295-300). Untested unless all figures have an interval.
    """
    measured = [figure for figure in figures if figure is not None]
    if len(measured) < 2 or len(measured) < len(figures):
        return UNTESTED
    first, *others = sorted(measured, key=lambda figure: -figure[0])
    alone = float(_p_above(_rows(measured)[:, None], _rows(others)).min(axis=0).max())
    same = max(pair_of_moments(first, other).chances.same for other in others)
    return Chances(differs=min(1.0, len(others) * alone), same=same)


def over_the_others(
    first: intervals.Moments | None, others: Sequence[intervals.Moments | None], level: float = FALSE_DISCOVERIES
) -> intervals.Interval:
    """Return the ratio of the first to the best of the others, with Hsu's limits at 1 - `level`.

    These are the lowest limits of its ratios to each of the others at 1 - `level` / (k - 1). Unknown unless all have an
    interval.
    """
    measured = [other for other in others if other is not None]
    if first is None or not measured or len(measured) < len(others):
        return intervals.UNKNOWN
    return lowest_of([pair_of_moments(first, other) for other in measured], level)


def lowest_of(pairs: Sequence[Pair], level: float) -> intervals.Interval:
    """Return the lowest limits of some ratios, each at 1 - `level` / their number."""
    ratios = [pair.at(1 - level / len(pairs)) for pair in pairs]
    values, lows, highs = zip(*((ratio.value, ratio.low, ratio.high) for ratio in ratios), strict=True)
    return intervals.Interval(value=min(values), low=min(lows), high=min(highs))


def of_picked(interval: intervals.Interval, freedom: float, candidates: int) -> intervals.Interval:
    """Widen a figure's 95 % interval with so many degrees of freedom to cover whichever of the `candidates` was picked.

    At 1 - 5 % / k (Bonferroni; for one picked of k it is what Y. Benjamini and D. Yekutieli, J. Am. Statist. Assoc. 100 (2005),
    71-81, ask for). The highest of several noisy figures is too high on average, so that its own interval covers too seldom.
    """
    if math.isnan(interval.low) or freedom <= 0 or candidates < 2:
        return interval
    wanted = 1 - (1 - intervals.CONFIDENCE) / candidates
    factor = intervals.student(freedom, 0.5 + wanted / 2) / intervals.student(freedom, 0.5 + intervals.CONFIDENCE / 2)
    half = factor * (interval.high - interval.value)  # not by the lower limit, which may have been raised to 0
    return intervals.Interval(value=interval.value, low=max(0.0, interval.value - half), high=interval.value + half)


def _rows(figures: Sequence[intervals.Moments | None]) -> "np.ndarray[Any, Any]":
    """Return the known figures, a row of Moments each."""
    return np.array([figure for figure in figures if figure is not None], dtype=float).reshape(
        -1, len(intervals.Moments._fields)
    )


def _p_above(others: "np.ndarray[Any, Any]", own: "np.ndarray[Any, Any]", most: float = 1.0) -> "np.ndarray[Any, Any]":
    """Return the two-sided p-value of each of `others` where it is noteworthily above `own`, else infinite.

    Both are rows of Moments, broadcast against each other. The test is that of pair_of_moments, but of all at once: 800 cells
    make 640,000 pairs. Only p-values up to `most` are computed: a normal quantile, which Student's exceeds, rules out the
    others.
    """
    center, error, n, shared, jump, disturbed, looks = np.moveaxis(others, -1, 0)
    own_center, own_error, own_n, own_shared, own_jump, own_disturbed, own_looks = np.moveaxis(own, -1, 0)
    error, own_error = _beside(error, n, own_error, own_n), _beside(own_error, own_n, error, n)
    above, total = center - own_center, error + own_error
    with np.errstate(divide="ignore", invalid="ignore"):
        t = above / np.sqrt(total)
        alone = total**2 / (error**2 / n + own_error**2 / own_n)
        freedom = np.maximum(np.minimum(shared, own_shared) + total / (error / n + own_error / own_n), alone)
    least = np.maximum(np.maximum(jump, own_jump), math.log1p(intervals.NOTEWORTHY))
    tested = (above > least) & (t >= -ndtri(most / 2)) & (disturbed == own_disturbed)
    p_values, factor = np.full(t.shape, math.inf), 2 * np.broadcast_to(np.maximum(looks, own_looks), t.shape)
    chances = factor[tested] * stdtr(freedom[tested], -t[tested])
    p_values[tested] = np.where(total[tested] == 0.0, 0.0, chances)  # 0: without scatter
    return p_values


def _beside(error: "np.ndarray[Any, Any]", n: Any, other: Any, other_n: Any) -> "np.ndarray[Any, Any]":
    """Return the squared errors for ratios to others: intervals.Moments.beside, with n the degrees of freedom."""
    scatters_more = (n + 1 < intervals.SEEN_FROM) & (other_n + 1 >= intervals.SEEN_FROM)
    return np.where(scatters_more, np.maximum(error, other * (other_n + 1) / (n + 1)), error)


# The geometric mean of several ratios of cells, with an interval over launches and a verdict.
#
# The interval speaks for these cells in this run: their launches scatter, the set of cells is fixed. It says nothing of other
# workloads, or of other runs of the machine.


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanRatio:
    """A geometric mean of `n` ratios: its `interval`, without limits where a cell has one launch. `lowest`, `highest`: of the
    ratios. `verdict`: at the level of the report that it is part of, like the interval, which excludes 1 where there is a
    difference.
    """

    interval: intervals.Interval
    lowest: float
    highest: float
    n: int
    verdict: str


def mean_ratio(
    pairs: Sequence[tuple[Hashable, Hashable, float]], moments: Mapping[Hashable, intervals.Moments | None], level: Significance
) -> MeanRatio:
    """Return the geometric mean of the `pairs`: see mean_of_ratios. Raises ValueError without a pair."""
    return as_mean(mean_of_ratios(pairs, moments), [ratio for *_, ratio in pairs], level)


def mean_of_ratios(
    pairs: Sequence[tuple[Hashable, Hashable, float]], moments: Mapping[Hashable, intervals.Moments | None]
) -> Pair:
    """Return the geometric mean of the `pairs`: for each the cell, the one it is compared with, and their ratio.

    Its logarithm is a weighted sum of the cells' mean logarithms; a cell in several pairs is counted with all its weights
    together, so that a shared baseline is not taken for independent ones. The variances add with the squares of the weights;
    degrees of freedom: see pairs.freedom_of. `moments`: of each cell, None of one launch. Raises ValueError without a pair.
    """
    if not pairs:
        raise ValueError("no ratio, no mean")
    mean = Pair(value=intervals.geometric_mean([ratio for *_, ratio in pairs]).value)
    weights = weights_of(pairs)
    of_cells = {cell: moments.get(cell) for cell in weights}
    if None not in of_cells.values():
        parts = [(weights[cell], figure) for cell, figure in of_cells.items() if figure]
        sides = [(moments.get(cell), moments.get(base)) for cell, base, _ in pairs]
        mean = weighted_pair(mean.value, parts, any(a and b and a.disturbed != b.disturbed for a, b in sides))
    return mean


def weights_of(pairs: Sequence[tuple[Side, Side, float]]) -> dict[Side, float]:
    """Return the weights of the cells' mean logarithms in that of the mean, without those that cancel each other."""
    weights: dict[Side, float] = {}
    for cell_over, base, _ in pairs:
        weights[cell_over] = weights.get(cell_over, 0.0) + 1 / len(pairs)
        weights[base] = weights.get(base, 0.0) - 1 / len(pairs)
    return {cell: weight for cell, weight in weights.items() if abs(weight) > _NOTHING}


def as_mean(mean: Pair, ratios: Sequence[float], level: Significance) -> MeanRatio:
    """Make a MeanRatio of `mean`, the mean of these ratios."""
    verdict = verdict_at(mean, level)
    return MeanRatio(
        interval=mean.at(level.confidence_of(verdict)), lowest=min(ratios), highest=max(ratios), n=len(ratios),
        verdict=verdict,
    )  # fmt: skip


def mean_of_pairs(pairs: Sequence[Pair], shared: float = 0.0, freedom: float = math.inf, weights: Sequence[float] = ()) -> Pair:
    """Return the geometric mean of ratios of different cells; unknown if one of them is.

    `shared`: a variance that all of them have in common, such as that of their two runs, which no number of cells divides;
    `freedom`: its degrees of freedom. `weights`: of the ratios, by default equal ones.
    """
    if not pairs or any(math.isnan(pair.freedom) for pair in pairs):
        return Pair()
    total = math.fsum(weights) or len(pairs)
    weighted = list(zip(pairs, weights or [1.0] * len(pairs), strict=True))
    log = math.fsum(weight * pair.log for pair, weight in weighted) / total
    errors = [((weight * pair.error / total) ** 2, pair.freedom) for pair, weight in weighted] + [(shared, freedom)]
    variance = math.fsum(error for error, _ in errors)
    squares = math.fsum(error**2 / degrees for error, degrees in errors)
    return Pair(
        value=math.exp(log), log=log, error=math.sqrt(variance), freedom=variance**2 / squares if squares else math.inf,
        jump=max(pair.jump for pair in pairs), disturbed=any(pair.disturbed for pair in pairs),
        looks=max(pair.looks for pair in pairs),
    )  # fmt: skip


def mean_of_machines(each: Sequence[intervals.Moments]) -> intervals.Moments:
    """Return the moments of the mean of several machines' figures, with the fewest degrees of freedom of any of them."""
    values = [math.exp(machine.log) for machine in each]
    total = math.fsum(values)
    error = math.fsum((value / total) ** 2 * machine.squared_error for value, machine in zip(values, each, strict=True))
    return intervals.Moments(
        log=math.log(total / len(each)), squared_error=error, freedom=min(machine.freedom for machine in each),
        shared=min(machine.shared for machine in each), jump=max(machine.jump for machine in each),
        disturbed=any(machine.disturbed for machine in each), looks=max(machine.looks for machine in each),
    )  # fmt: skip


_NOTHING = 1e-12
"""Rounding can leave a weight of this size of a sum that is 0."""


def weighted_pair(value: float, parts: Sequence[tuple[float, intervals.Moments]], disturbed: bool) -> Pair:
    """Return a ratio whose logarithm is the sum of mean logarithms, each times its weight. `disturbed`: see Pair."""
    weights, figures = [weight for weight, _ in parts], [figure for _, figure in parts]
    variance = math.fsum(weight**2 * figure.squared_error for weight, figure in parts)
    return Pair(
        value=value, log=math.log(value), error=math.sqrt(variance), freedom=freedom_of(figures, weights),
        jump=max((figure.jump for figure in figures), default=0.0), disturbed=disturbed,
        looks=max((figure.looks for figure in figures), default=1.0),
    )  # fmt: skip
