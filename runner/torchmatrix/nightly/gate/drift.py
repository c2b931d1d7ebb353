"""Find cells that became slower bit by bit: sum by how much nights were below the level that the nights before them set.

Self-starting CUSUM: D. M. Hawkins, "Self-starting cusum charts for location and scale", The Statistician 36 (1987), 299-315,
with what E. S. Page began in "Continuous inspection schemes", Biometrika 41 (1954), 100-115. The constants were chosen on
other random numbers than those with which `make proof` simulates what they do.
"""

import math
from dataclasses import dataclass

import numpy as np

from torchmatrix.analysis.intervals import NOTEWORTHY
from torchmatrix.analysis.special import ndtri, stdtr
from torchmatrix.nightly.gate import learned
from torchmatrix.nightly.gate.learned import Array
from torchmatrix.nightly.gate.noise import Panel

BEGIN, SETTLED = 7, 14
"""How many nights set a level at first, and how many that were faster set a new one."""
SLACK = 0.75
"""What a night may be off without adding to the sum, in standard deviations: half of the smallest change to look for."""
ALARM, EARLIER, UNSURE, CELLS = 4.65, 8.5, 8.0, 40
"""ALARM (1 + EARLIER / n + UNSURE / d) is the sum that is a drift, with n nights that set the level and d degrees of freedom of
their scatter: fewer know both less well. That is for CELLS cells; with others ALARM is as much lower or higher as keeps the
chance of an alarm of any of them, which falls by exp(-2 SLACK) with each 1 (D. Siegmund, Sequential Analysis (Springer
1985), chapter 2)."""
HOLD = 2.0
"""From this sum on nights no longer set the level, until the sum is below it again: a level must not follow a drift."""
_MOST, _FAR = 2.5, 1.75
"""One night counts for no more than _MOST standard deviations, one that is far below for _FAR: a bad night is no drift."""
_OVERSHOOT = 1.0
"""How far a sum may exceed the alarm, so that a cell that is as fast as before is soon no drift."""
_MORE_ALIKE, _MOST_ALIKE = 1.1, 0.8
"""The correlation of a night with the next is taken to be higher than it seems by this factor, as it is estimated."""
_LEAST = (NOTEWORTHY / 20) ** 2
"""A variance is no less: figures without any scatter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """Drifts by cell (row) and night (column). `drifted`: the cell is below its level from the night `since` on; `lost`: the
    mean of the logarithms since then, over that of the level.
    """

    drifted: Array
    since: Array
    lost: Array


@dataclass(slots=True)
class _Side:
    """The sums of all cells to one side, and with which night each began."""

    sign: int
    sum: Array
    since: Array

    def add(self, score: Array, alarm: Array, now: int) -> None:
        """Add a night's `score`; NaN of cells without one."""
        added = np.clip(self.sum + self.sign * score - SLACK, 0.0, alarm + _OVERSHOOT)
        self.sum = np.where(np.isnan(score), self.sum, added)
        self.since = np.where(self.sum > 0, self.since, now + 1)


def drift(panel: Panel, tolerance: float = NOTEWORTHY) -> Drift:
    """Find which cells have drifted below their levels, on each night of the panel.

    A night x that follows x' is compared with the level as (x - r x') / (1 - r), which is independent of the nights before it
    if they resemble each other with the correlation r: by the mean and the moderated scatter of the nights that set the
    level, by Student's t made normal. Nights of a large sum don't set the level, nor do single nights that were slow by far
    or as a whole; the latter don't count at all. A cell that became faster has a new level. A loss within `tolerance` is no
    drift.
    """
    single = panel.single_nights
    counted = ~np.isnan(panel.logs) & ~panel.far & ~single
    logs = panel.logs - (_first_known(panel.logs) if panel.logs.size else 0.0)  # else squares of large numbers are subtracted
    sums, previous = _sum_pairs(logs, counted)
    (cells, length), rows = panel.logs.shape, np.arange(len(panel.logs))
    begin, end = np.zeros(cells, int), np.zeros(cells, int)
    slower, faster = (_Side(sign=sign, sum=np.zeros(cells), since=np.zeros(cells, int)) for sign in (-1, 1))
    drifts = Drift(
        drifted=np.zeros(panel.logs.shape, bool), since=np.zeros((cells, length), int), lost=np.zeros((cells, length))
    )
    least = ALARM + math.log(max(1, cells) / CELLS) / (2 * SLACK)
    for now in range(length if cells else 0):
        is_level = counted & ~np.isnan(panel.errors) & (np.arange(length) < end[:, None])
        r = np.minimum(_MOST_ALIKE, _MORE_ALIKE * learned.likeness(panel.errors, is_level))
        level = sums[:, rows, end] - sums[:, rows, begin]
        n, mean, variance = _moments(level, r)
        ready = n >= BEGIN - 1
        variance, freedom = learned.moderate(np.maximum(variance, _LEAST), np.maximum(1.0, n - 1), ready)
        alarm = least * (1 + EARLIER / np.maximum(1, n) + UNSURE / freedom)
        off = (logs[:, now] - r * previous[:, now]) / (1 - r) - mean
        score = ndtri(stdtr(freedom, off / np.sqrt(variance * (1 + 1 / np.maximum(1, n)))))
        score = np.clip(score, np.where(panel.far[:, now], -_FAR, -_MOST), _MOST)
        score = np.where(ready & (counted[:, now] | panel.far[:, now] & ~single[now]), score, math.nan)
        slower.add(score, alarm, now)
        faster.add(score, alarm, now)
        since = sums[:, rows, now + 1] - sums[:, rows, slower.since]
        drifts.lost[:, now] = since[1] / np.maximum(1, since[0]) - level[1] / np.maximum(1, level[0])
        drifts.since[:, now] = slower.since
        drifts.drifted[:, now] = (slower.sum > alarm) & (drifts.lost[:, now] < math.log1p(-tolerance))
        renewed = (faster.sum > alarm) & (sums[0, rows, now + 1] - sums[0, rows, faster.since] >= SETTLED)
        calm = ~ready | (np.maximum(slower.sum, faster.sum) < HOLD) | renewed
        begin, end = np.where(renewed, faster.since, begin), np.where(calm, now + 1, end)
        slower.sum, faster.sum = (np.where(renewed, 0.0, side.sum) for side in (slower, faster))
    return drifts


def _first_known(logs: Array) -> Array:
    """Return the first known value of each row."""
    return np.asarray(np.take_along_axis(logs, (~np.isnan(logs)).argmax(axis=1)[:, None], axis=1))


def _sum_pairs(logs: Array, counted: Array) -> tuple[Array, Array]:
    """Return, for the nights before each column and for all, the number of pairs of neighbours and the sums of x, x', x², x x'
    and x'²; and x', the counted night before each.
    """
    previous, last = np.full(logs.shape, math.nan), np.full(len(logs), math.nan)
    for now in range(logs.shape[1]):
        previous[:, now] = last
        last = np.where(counted[:, now], logs[:, now], last)
    pairs = counted & ~np.isnan(previous)
    x, before = np.where(pairs, logs, 0.0), np.where(pairs, previous, 0.0)
    products = np.stack([pairs, x, before, x * x, x * before, before * before]).cumsum(axis=2, dtype=float)
    return np.concatenate([np.zeros((6, len(logs), 1)), products], axis=2), previous


def _moments(sums: Array, r: Array) -> tuple[Array, Array, Array]:
    """Return the number, the mean and the variance of (x - r x') / (1 - r)."""
    n, x, before, squares, products, squares_before = sums
    mean = (x - r * before) / (1 - r) / np.maximum(1, n)
    total = (squares - 2 * r * products + r * r * squares_before) / (1 - r) ** 2
    return n, mean, np.maximum(0.0, total - n * mean**2) / np.maximum(1, n - 1)
