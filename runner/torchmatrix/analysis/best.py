"""Several figures -> which of them may be the highest, and intervals of what was picked.

Multiple comparisons with the best: J. C. Hsu, Ann. Statist. 12 (1984), 1136-1144, and D. G. Edwards, J. C. Hsu, J. Am. Statist.
Assoc. 78 (1983), 965-971. The subset that holds the best: S. S. Gupta, Technometrics 7 (1965), 225-245. With scatter that
differs from figure to figure there is no exact critical value; Welch's t and Bonferroni's inequality over the k - 1 others are
safe. Only comparisons with the true best matter, so there are k - 1 of them, not k (k - 1) / 2.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtr

from torchmatrix.analysis.intervals import (
    CONFIDENCE,
    NOTEWORTHY,
    UNKNOWN,
    Interval,
    Moments,
    student,
)
from torchmatrix.analysis.pairs import UNTESTED, Chances, pair_of_moments
from torchmatrix.analysis.verdicts import FALSE_DISCOVERIES

_HIGHEST = 8
"""Of many figures most are below one of so many: these are held against all at once."""


def may_be_best(figures: Sequence[Moments | None], level: float = FALSE_DISCOVERIES) -> list[int]:
    """The places of the figures that may be the highest, as good as the highest seen or not told apart from a better one.

    A figure is out if one is more than NOTEWORTHY (and than a jump between levels) above it with a two-sided p-value of at
    most `level` / (k - 1). So the best is out, or one of several equally good ones stands alone, with a chance of at most
    `level`. None: one launch; it stays.
    """
    least = level / max(1, len(figures) - 1)
    known = _rows(figures)
    places = [place for place, own in enumerate(figures) if own is not None]
    highest = known[np.argsort(-known[:, 0], kind="stable")[:_HIGHEST]]
    below = np.any(_p_above(highest[:, None], known, least) <= least, axis=0)
    each = zip(places, known, below, strict=True)
    out = {place for place, own, is_below in each if is_below or np.any(_p_above(known, own, least) <= least)}
    return [place for place in range(len(figures)) if place not in out]


def chances_of_best(figures: Sequence[Moments | None]) -> Chances:
    """p-values of one claim: that the highest is above all others, and that all are the same as the highest.

    The first is the smallest `level` at which `may_be_best` leaves the highest alone. Sameness takes that of every other
    (intersection-union test: R. L. Berger, Technometrics 24 (1982), 295-300). Untested unless all figures have an interval.
    """
    known = [one for one in figures if one is not None]
    if len(known) < 2 or len(known) < len(figures):
        return UNTESTED
    first, *others = sorted(known, key=lambda one: -one[0])
    alone = float(_p_above(_rows(known)[:, None], _rows(others)).min(axis=0).max())
    same = max(pair_of_moments(first, own).chances.same for own in others)
    return Chances(differs=min(1.0, len(others) * alone), same=same)


def over_the_others(first: Moments | None, others: Sequence[Moments | None], level: float = FALSE_DISCOVERIES) -> Interval:
    """The ratio of the first to the best of the others, and Hsu's limits at 1 - `level`: the lowest of those of its ratios to
    each of the others at 1 - `level` / (k - 1). Unknown unless all have an interval."""
    known = [one for one in others if one is not None]
    if first is None or not known or len(known) < len(others):
        return UNKNOWN
    confidence = 1 - level / len(known)
    found = [pair_of_moments(first, other).at(confidence) for other in known]
    values, lows, highs = zip(*((one.value, one.low, one.high) for one in found), strict=True)
    return Interval(value=min(values), low=min(lows), high=min(highs))


def of_picked(found: Interval, freedom: float, candidates: int) -> Interval:
    """A figure's 95 % interval with so many degrees of freedom, widened so that it covers whichever of the `candidates` was
    picked.

    At 1 - 5 % / k (Bonferroni; for one picked of k it is what Y. Benjamini and D. Yekutieli, J. Am. Statist. Assoc. 100 (2005),
    71-81, ask for). The highest of several noisy figures is too high on average, so that its own interval covers too seldom.
    """
    if math.isnan(found.low) or freedom <= 0 or candidates < 2:
        return found
    wanted = 1 - (1 - CONFIDENCE) / candidates
    factor = student(freedom, 0.5 + wanted / 2) / student(freedom, 0.5 + CONFIDENCE / 2)
    half = factor * (found.high - found.value)  # the lower limit is no measure: it may have been raised to 0
    return Interval(value=found.value, low=max(0.0, found.value - half), high=found.value + half)


def _rows(figures: Sequence[Moments | None]) -> "np.ndarray[Any, Any]":
    """Those that are known, a row of Moments each."""
    return np.array([one for one in figures if one is not None], dtype=float).reshape(-1, 5)


def _p_above(others: "np.ndarray[Any, Any]", own: "np.ndarray[Any, Any]", most: float = 1.0) -> "np.ndarray[Any, Any]":
    """Of each of `others` the two-sided p-value of its difference where it is noteworthily above `own`, else infinite.

    Both are rows of Moments, broadcast against each other. As of pair_of_moments, but of all at once: of 800 cells there are
    640,000 pairs. Only p-values up to `most` are told, since a normal quantile, which Student's exceeds, rules out the others.
    """
    center, error, n, shared, jump = np.moveaxis(others, -1, 0)
    own_center, own_error, own_n, own_shared, own_jump = np.moveaxis(own, -1, 0)
    above, total = center - own_center, error + own_error
    with np.errstate(divide="ignore", invalid="ignore"):
        t = above / np.sqrt(total)
        alone = total**2 / (error**2 / n + own_error**2 / own_n)
        freedom = np.maximum(np.minimum(shared, own_shared) + total / (error / n + own_error / own_n), alone)
    least = np.maximum(np.maximum(jump, own_jump), math.log1p(NOTEWORTHY))
    tested = (above > least) & (t >= -ndtri(most / 2))
    found = np.full(t.shape, math.inf)
    found[tested] = np.where(total[tested] == 0.0, 0.0, 2 * stdtr(freedom[tested], -t[tested]))  # 0: without scatter
    return found
