"""Has a cell become slower bit by bit? A sum of what each night was below the level that the nights before it set.

Self-starting CUSUM: D. M. Hawkins, "Self-starting cusum charts for location and scale", The Statistician 36 (1987), 299-315,
with what E. S. Page began in "Continuous inspection schemes", Biometrika 41 (1954), 100-115. The constants were chosen on
other random numbers than those with which `make proof` simulates what they do.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scipy.special import ndtri, stdtr

from torchmatrix.analysis.centers import mean_of, variance_of
from torchmatrix.analysis.intervals import NOTEWORTHY

BEGIN = 14
"""So many nights set a level at first."""
SLACK = 0.75
"""What a night may be off without adding to the sum, in standard deviations: half of the smallest change to look for."""
ALARM, EARLIER = 4.5, 10
"""With n nights that set the level, ALARM (1 + EARLIER / n) is the sum that is told: fewer nights know the level less well."""
HOLD = 2.0
"""From this sum on nights no longer set the level, until the sum is below it again: a level must not follow a drift."""
_MOST = 2.5
"""One night counts for no more than this many standard deviations: a single bad night is no drift."""
_ROOM = 1.0
"""Above what is told the sum goes no further, so that a cell that is as fast as before is soon told to be."""
_MOST_ALIKE = 0.6
"""No higher correlation of a night with the next is believed: with it, nothing would ever be told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """`since`: the place of the first night that is slower; `ratio`: the nights since then over the level before."""

    since: int
    ratio: float


@dataclass(slots=True)
class _Side:
    """The sum to one side, and how many nights make it."""

    sign: int
    sum: float = 0.0
    nights: int = 0

    def add(self, score: float, most: float) -> None:
        self.sum = min(most, max(0.0, self.sum + self.sign * score - SLACK))
        self.nights = self.nights + 1 if self.sum > 0 else 0


def drift(values: Sequence[float], tolerance: float = NOTEWORTHY) -> Drift | None:
    """Of the nights' figures (positive, oldest first, since the level that was accepted): did the last ones drift below it?"""
    return list(drifts(values, tolerance))[-1]


def drifts(values: Sequence[float], tolerance: float = NOTEWORTHY) -> Iterator[Drift | None]:
    """What `drift` says on each of the nights.

    A night is held against the mean and the scatter of those that set the level, by Student's t made normal. Nights of a
    large sum don't set the level. A cell that became faster has a new level. None also if what it lost is within `tolerance`.
    """
    logs = [math.log(value) for value in values]
    yield from [None] * len(logs[:BEGIN])
    begin, level, slower, faster = 0, logs[:BEGIN], _Side(sign=-1), _Side(sign=1)
    for end in range(BEGIN + 1, len(logs) + 1):
        alarm = ALARM * (1 + EARLIER / len(level))
        score = _score(logs[end - 1], level)
        slower.add(score, alarm + _ROOM)
        faster.add(score, alarm + _ROOM)
        told = _told(logs[:end], slower, level, tolerance) if slower.sum > alarm else None
        if faster.sum > alarm and faster.nights >= BEGIN:
            begin, level = end - faster.nights, logs[end - faster.nights : end]
            slower, faster = _Side(sign=-1), _Side(sign=1)
        elif max(slower.sum, faster.sum) < HOLD:
            level = logs[begin:end]
        yield told


def _told(logs: Sequence[float], slower: _Side, level: Sequence[float], tolerance: float) -> Drift | None:
    since = len(logs) - slower.nights
    ratio = math.exp(mean_of(logs[since:]) - mean_of(level))
    return Drift(since=since, ratio=ratio) if ratio < 1 - tolerance else None


def _score(log: float, level: Sequence[float]) -> float:
    """How far a night is from the level, in standard deviations of a normal distribution.

    Less if nights resemble the next one: the sum of an AR(1) process with the correlation r scatters as that of independent
    values which scatter by the root of (1 + r) / (1 - r) more.
    """
    n, variance = len(level), max(variance_of(level), (NOTEWORTHY / 20) ** 2)  # figures without any scatter
    t = (log - mean_of(level)) / math.sqrt(variance * (1 + 1 / n))
    score = float(min(_MOST, max(-_MOST, float(ndtri(stdtr(n - 1, t))))))
    again = _correlation(level, variance)
    return score * math.sqrt((1 - again) / (1 + again))


def _correlation(logs: Sequence[float], variance: float) -> float:
    """Of each night with the next, as far as it exceeds its standard error 1 / √n (n nights that are independent).

    From the mean square of successive differences: J. von Neumann, Annals of Mathematical Statistics 12 (1941), 367-395.
    """
    n = len(logs)
    differences = math.fsum((b - a) ** 2 for a, b in pairwise(logs)) / (n - 1)
    return min(_MOST_ALIKE, max(0.0, 1 - differences / (2 * variance) - 1 / math.sqrt(n)))
