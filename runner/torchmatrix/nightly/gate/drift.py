"""Has a cell become slower bit by bit? A sum of what each night was below the level that the nights before it set.

Self-starting CUSUM: D. M. Hawkins, "Self-starting cusum charts for location and scale", The Statistician 36 (1987), 299-315,
with what E. S. Page began in "Continuous inspection schemes", Biometrika 41 (1954), 100-115.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from scipy.special import ndtri, stdtr

from torchmatrix.analysis.centers import mean_of, variance_of
from torchmatrix.analysis.intervals import NOTEWORTHY

BEGIN = 14
"""So many nights set a level at first."""
SLACK = 0.5
"""What a night may be off without adding to the sum, in standard deviations: half of the smallest change to look for."""
ALARM = 8.5
"""The sum that is told. Simulated in `make proof`: false alarms, and how many nights a change takes."""
HOLD = 5.0
"""From this sum on nights no longer set the level, until the sum is below it again: a level must not follow a drift."""
_MOST = 3.0
"""One night counts for no more than this many standard deviations: a single bad night is no drift."""
_ROOM = 1.5
"""Above ALARM the sum goes no further, so that a cell that is as fast as before is soon told to be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """`since`: the place of the first night that is slower; `ratio`: the nights since then over the level before."""

    since: int
    ratio: float


@dataclass(slots=True)
class _Side:
    """The sum to one side, and the nights that make it."""

    sign: int
    sum: float = 0.0
    logs: list[float] = field(default_factory=list)

    def add(self, log: float, score: float) -> None:
        self.sum = min(ALARM + _ROOM, max(0.0, self.sum + self.sign * score - SLACK))
        self.logs = [*self.logs, log] if self.sum > 0 else []


def drift(values: Sequence[float], tolerance: float = NOTEWORTHY) -> Drift | None:
    """Of the nights' figures (positive, oldest first, since the level that was accepted): did the last ones drift below it?

    A night is held against the mean and the scatter of those that set the level, by Student's t made normal. Nights of a
    large sum don't set the level. A cell that became faster has a new level. None also if what it lost is within `tolerance`.
    """
    logs = [math.log(value) for value in values]
    level, held, slower, faster = logs[:BEGIN], list[float](), _Side(sign=-1), _Side(sign=1)
    for log in logs[BEGIN:]:
        score = _score(log, level)
        slower.add(log, score)
        faster.add(log, score)
        held.append(log)
        if faster.sum > ALARM and len(faster.logs) >= BEGIN:
            level, held, slower, faster = faster.logs, [], _Side(sign=-1), _Side(sign=1)
        elif max(slower.sum, faster.sum) < HOLD:
            level, held = level + held, []
    if slower.sum <= ALARM:
        return None
    ratio = math.exp(mean_of(slower.logs) - mean_of(level))
    return Drift(since=len(logs) - len(slower.logs), ratio=ratio) if ratio < 1 - tolerance else None


def _score(log: float, level: Sequence[float]) -> float:
    """How far a night is from the level, in standard deviations of a normal distribution."""
    n, least = len(level), (NOTEWORTHY / 20) ** 2  # figures without any scatter
    t = (log - mean_of(level)) / math.sqrt(max(variance_of(level), least) * (1 + 1 / n))
    return float(min(_MOST, max(-_MOST, float(ndtri(stdtr(n - 1, t))))))
