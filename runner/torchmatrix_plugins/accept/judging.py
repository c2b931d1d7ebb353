"""Judge a figure by a reference: passed, failed, or undecided, corrected for all checks of an acceptance. Pure.

A check passes if its whole interval lies above the bound, and fails if it lies below. What lies above a bound that is lower
than the share, since others differ so much, is undecided; so is what is far below their better quarter: the others'
median may be that of weak devices. The bound is a share of the reference's lower edge; where other devices or machines show how
much healthy ones differ, it is instead what a healthy one all but surely exceeds, and at most 1 - TOLERATED: devices that are
alike tell a weak one below 5 %, and healthy ones that differ much don't fail by the share.

The bound is corrected for all checks, at WRONGLY / K one-sided for K of them (Bonferroni), so that a healthy server fails in
one of a hundred acceptances at most: the figures of healthy devices scatter by their errors, too, so that their own intervals
need no correction (95 %). Held against a figure without scatter, the interval is corrected instead.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from torchmatrix.analysis import intervals
from torchmatrix.analysis.centers import median_of, variance_of
from torchmatrix.analysis.intervals import Moments, Prior

PASS, FAIL, UNDECIDED, NO_REFERENCE = "PASS", "FAIL", "UNDECIDED", "NO REFERENCE"
VERDICTS = (FAIL, UNDECIDED, NO_REFERENCE, PASS)
"""The verdicts, that first which a reader looks for first."""
WRONGLY = 0.01
"""The chance that a healthy server fails at any of its checks."""
SHARE = 0.95
TOLERATED = 0.02
"""A device that is less than this below the others is not weak, however alike these are."""
OF_BETTER = 0.93
"""The share of the others' better quarter that passes: of healthy devices that scatter by 2 % nearly all reach it."""
LIMIT, SIBLINGS, BASELINE, PUBLISHED = "limit", "siblings", "baseline", "published"
"""The kinds of references: what the device can do at most, the other devices of the machine, other machines, a published
figure. A verdict is by one of them."""
FEWEST_LAUNCHES = 3
"""As many launches are made where one has no interval."""
FEWEST_SIBLINGS = 2
"""Other devices that are needed to tell a weak one: of two devices nobody knows which is right."""
OF_A_DIRECTION = 0.5
"""What a direction between two GPUs says of how much healthy ones differ, beside one of GPUs that are in no other: half."""
FEWEST_APART = 6
"""Directions between other GPUs that show how much healthy ones differ: those of five GPUs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """What a figure is held against. `log`: the logarithm of its centre, with the standard `error` and degrees of `freedom`.

    `scatter`: the standard deviation of the logarithms of healthy devices or machines, with `scatter_freedom`; NaN where one
    alone is known. `better`: the upper quartile of theirs. `others`: how many these are. `share`: of its lower
    edge that a figure must reach. `source`: in words.
    """

    kind: str
    log: float
    error: float = 0.0
    freedom: float = math.inf
    scatter: float = math.nan
    scatter_freedom: float = 0.0
    better: float = -math.inf
    others: int = 1
    share: float = SHARE
    source: str = ""

    @property
    def value(self) -> float:
        """Return its centre."""
        return math.exp(self.log)

    @property
    def is_population(self) -> bool:
        """Check whether others show how much healthy ones differ."""
        return not math.isnan(self.scatter) and self.scatter_freedom >= 1

    def bound(self, level: float) -> float:
        """Return the logarithm of what a figure must exceed, at a one-sided level."""
        edge = self.log - (intervals.student(self.freedom, 1 - level) * self.error if self.error else 0.0)
        bound = math.log(self.share) + edge
        if not self.is_population:
            return bound
        spread = self.scatter * math.sqrt(1 + 1 / self.others)
        weakest = self.log - intervals.student(self.scatter_freedom, 1 - level) * spread
        return min(weakest, self.log + math.log(1 - TOLERATED))


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A verdict: the figure with its limits, its `ratio` to the reference with limits, and the `bound` of that ratio.

    `more`: how many launches in all would decide an UNDECIDED with a chance of 4 in 5, None if that isn't known. `why`: why it
    is neither passed nor failed.
    """

    verdict: str
    figure: intervals.Interval
    ratio: intervals.Interval = intervals.UNKNOWN
    bound: float = math.nan
    more: int | None = None
    why: str = ""


NOT_JUDGED = Judged(verdict=NO_REFERENCE, figure=intervals.UNKNOWN)


def judge(figure: Moments | None, value: float, reference: Reference | None, checks: int) -> Judged:
    """Judge a figure as one of so many checks with a reference. `figure`: None of a single launch, whose `value` is known."""
    if figure is None:
        alone = intervals.Interval(value=value)
        return Judged(verdict=UNDECIDED, figure=alone, more=FEWEST_LAUNCHES, why="one launch: no interval")
    level = WRONGLY / max(1, checks)
    own_level = level if reference and not reference.is_population else (1 - intervals.CONFIDENCE) / 2
    half = _half_width(figure, own_level)
    limits = _interval(figure.log, half)
    if reference is None:
        return Judged(verdict=NO_REFERENCE, figure=limits, why="nothing to hold it against")
    bound, away = reference.bound(level), figure.log - reference.log
    judged = Judged(verdict=UNDECIDED, figure=limits, ratio=_interval(away, half), bound=math.exp(bound - reference.log))
    if figure.disturbed:
        return replace(judged, why="other programs disturbed its launches")
    if figure.log + half < bound:
        return replace(judged, verdict=FAIL)
    least = max(reference.log + math.log(reference.share), reference.better + math.log(OF_BETTER))
    if figure.log - half >= max(bound, least):
        return replace(judged, verdict=PASS)
    if figure.log - half >= bound:
        return replace(judged, why="it is slower, but those that it is held against differ as much")
    return replace(judged, more=_needed(figure, abs(figure.log - bound), own_level), why="its interval holds the bound")


def _half_width(figure: Moments, level: float) -> float:
    """Return how far the one-sided limits are from the mean logarithm; levels that few launches don't show lie in between."""
    return intervals.student(figure.freedom + figure.shared, 1 - level) * math.sqrt(figure.squared_error) + figure.jump


def _interval(log: float, half: float) -> intervals.Interval:
    return intervals.Interval(value=math.exp(log), low=math.exp(log - half), high=math.exp(log + half))


def _needed(figure: Moments, distance: float, level: float) -> int | None:
    variance = figure.squared_error * figure.launches
    for n in range(figure.launches + 1, intervals.MOST_LAUNCHES + 1):
        quantiles = intervals.student(figure.shared + n - 1, 1 - level) + intervals.CHANCE_QUANTILE
        if quantiles * math.sqrt(variance / n) + (figure.jump if n < intervals.SEEN_FROM else 0.0) < distance:
            return n
    return None


def siblings(
    figures: Sequence[Moments | None], prior: Prior = intervals.NO_PRIOR, counts: Sequence[Sequence[bool]] | None = None
) -> list[Reference | None]:
    """Return for each device its reference: the median of the others, which scatter as they do, and as `prior` knows of the
    groups of other checks. `counts`: for each which of them are others of it; by default all but itself. None with fewer than
    FEWEST_SIBLINGS others.
    """
    references: list[Reference | None] = []
    for place in range(len(figures)):
        others = [
            figure for number, figure in enumerate(figures)
            if figure is not None and (counts[place][number] if counts else number != place)
        ]  # fmt: skip
        alone = 1.0 if counts is None else OF_A_DIRECTION
        references.append(among(others, SIBLINGS, prior, alone=alone) if len(others) >= FEWEST_SIBLINGS else None)
    return references


def apart(ends: Sequence[Collection[str]]) -> list[list[bool]]:
    """Return for each pair of devices which others are held against it: those with none of its devices, either of which may be
    weak; where these are few, all but itself. `ends`: the devices of each.
    """
    rows = [[not {*own} & {*other} for other in ends] for own in ends]
    return [
        row if sum(row) >= FEWEST_APART else [place != number for place in range(len(ends))] for number, row in enumerate(rows)
    ]


def among(
    others: Sequence[Moments], kind: str, prior: Prior = intervals.NO_PRIOR, source: str = "", alone: float = 1.0
) -> Reference:
    """Return the reference that healthy devices or machines make together: their median, and how much they scatter.

    What scatters is their true speed and, in what was measured of them, the error of that: the variance of their figures holds
    both, which widens the bound rather than narrowing it. One weak device among them changes neither much. `alone`: how much
    each of them says that no other does.
    """
    logs = [other.log for other in others]
    if len(logs) < 2:
        (one,) = others
        error, own = math.sqrt(one.squared_error), one.freedom + one.shared
        return Reference(kind=kind, log=one.log, error=error, freedom=own, source=source)
    freedom = max(1.0, alone * _freedom(logs))
    scatter = math.sqrt(prior.moderated(_robust(logs), freedom))
    known = freedom + prior.freedom
    return Reference(
        kind=kind, log=median_of(logs), error=scatter * math.sqrt(math.pi / 2 / len(logs)), freedom=known, scatter=scatter,
        scatter_freedom=known, better=float(np.quantile(logs, 0.75, method="higher")), others=len(logs), source=source,
    )  # fmt: skip


def prior_of(groups: Sequence[Sequence[Moments | None]]) -> Prior:
    """Learn from groups of devices of one kind how much healthy ones scatter, so that each group's few are not alone."""
    logs = [[figure.log for figure in group if figure is not None] for group in groups]
    scattered = [values for values in logs if len(values) > FEWEST_SIBLINGS]
    return intervals.learned_prior([_robust(values) for values in scattered], [_freedom(values) for values in scattered])


_KEEPS = {4: 0.364, 5: 0.472, 6: 0.528, 8: 0.611, 10: 0.662, 12: 0.702, 16: 0.753, 24: 0.811, 32: 0.845, 64: 0.906}
"""The share of the variance of so many normal numbers that is left without the one farthest from their median; simulated. Of
the degrees of freedom 2.7 are gone."""


def _robust(logs: Sequence[float]) -> float:
    """Return the variance of healthy devices among which one may be weak: without the one farthest from the median, and as much
    larger as that makes it smaller. Of three devices, whose variance would hardly be known, it is that of all.
    """
    if len(logs) < min(_KEEPS):
        return variance_of(logs)
    middle = median_of(logs)
    kept = sorted(logs, key=lambda value: abs(value - middle))[:-1]
    return variance_of(kept) / float(np.interp(len(logs), list(_KEEPS), list(_KEEPS.values())))


def _freedom(logs: Sequence[float]) -> float:
    return len(logs) - 1 if len(logs) < min(_KEEPS) else len(logs) - 2.7
