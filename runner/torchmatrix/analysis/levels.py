"""Find levels: two levels among the launches of a cell, and changes of level over runs."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from torchmatrix.analysis.centers import median_of, variance_of
from torchmatrix.analysis.intervals import NOTEWORTHY, SEEN_FROM, Numbers, adjusted
from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.analysis.special import gammaincc, ndtri, stdtr
from torchmatrix.core.formatting import in_digits

# Two levels of launches, as where a library chooses its algorithm, or memory is laid out, anew in each launch.
#
# The statistic is the share of the sum of squares that is left once the sorted figures are cut in two at the best place (J. A.
# Hartigan, Clustering Algorithms, 1975, chapter 4). For normal figures its distribution depends on their number alone, not on
# their scatter, so that its chance is found by drawing such figures. Two launches show nothing. Three or four of one cell show
# hardly anything, but all cells of a run together do: R. A. Fisher's sum of the logarithms of their p-values.

SEEN_IN_CELL = 4
"""The fewest launches of a cell that have two levels of two."""
CHANCE = 0.01
"""The chance that a run without levels is reported to have some."""
WIDER = 1.5
"""Levels lie up to this many times the usual distance apart."""
_FEWEST_CELLS = 4
_NOTEWORTHY = math.log1p(NOTEWORTHY)
_APART = {
    "compile_cache": ("the compile cache", 0.0), "throttled": ("throttling", 0.0), "clock_mhz": ("clock in MHz", 0.01),
    "power_watts": ("power in W", 0.02), "temperature_first": ("temperature at the start in °C", 0.05),
    "peak_bytes": ("peak memory in bytes", 0.01),
}  # fmt: skip
"""Possible reasons by a launch's column: a label, and by which share numbers must differ to be a reason; 0: texts."""
_LOOKED_AT = [label.partition(" in ")[0] for label, _ in _APART.values()]
_DRAWN = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """The best cut of sorted figures in two: the lowest `low` figures, and the rest, which are higher by `gap` on average
    (logarithms). `p_value`: the chance of so clear a cut of figures without levels.
    """

    low: int
    gap: float
    p_value: float


def best_cuts(cells: Sequence[Sequence[float]]) -> list[Cut | None]:
    """Return the best cut of the logarithms of each cell's figures; None for fewer than three.

    Levels of four launches or more have two launches at least.
    """
    cuts: list[Cut | None] = [None] * len(cells)
    for n in {len(logs) for logs in cells if len(logs) >= 3}:
        places = [place for place, logs in enumerate(cells) if len(logs) == n and max(logs) > min(logs)]
        if places:
            left, low, gap = _cut(np.array([cells[place] for place in places], dtype=float))
            below = np.searchsorted(_shares_of_normal(n), left, "right")
            for place, *cut in zip(places, low.tolist(), gap.tolist(), ((below + 1) / (_DRAWN + 1)).tolist(), strict=True):
                cuts[place] = Cut(low=cut[0], gap=cut[1], p_value=cut[2])
    return cuts


def significant_levels(cuts: Sequence[Cut | None], share: float) -> list[Cut | None]:
    """Keep the cuts of a run's cells that are levels: noteworthily apart, and no more than `share` of them by chance."""
    p_values = adjusted([cut.p_value if cut and cut.gap > _NOTEWORTHY else math.nan for cut in cuts])
    return [cut if p <= share else None for cut, p in zip(cuts, p_values, strict=True)]


def levels_in_words(launches: Sequence[LaunchRow], cut: Cut, unit: str) -> str:
    """Return a text such as "3 of 5 launches at 410 images/s, 2 at 389 (rounds 2 and 5)", with the known differences.

    `launches`: rows of those that measured, in any order.
    """
    ordered = sorted(launches, key=lambda row: row.throughput)
    slow, fast = ordered[: cut.low], ordered[cut.low :]
    rates = [in_digits(median_of([row.throughput for row in level]), 3) for level in (fast, slow)]
    rounds = ", ".join(str(number) for number in sorted(row.round for row in slow))
    differences = [words for name in _APART if (words := _differ(name, fast, slow))]
    why = (
        f"they differ in {'; '.join(differences)}"
        if differences
        else f"nothing that is recorded of each tells why ({', '.join(_LOOKED_AT)})"
    )
    return f"{len(fast)} of {len(ordered)} launches at {rates[0]} {unit}/s, {len(slow)} at {rates[1]} (rounds {rounds}); {why}"


def _differ(name: str, fast: Sequence[LaunchRow], slow: Sequence[LaunchRow]) -> str:
    """Describe a column if no launch of the one level is like one of the other; numbers must differ by the given share."""
    label, least = _APART[name]
    sides: list[list[Any]] = [[row.value(name) for row in level] for level in (fast, slow)]
    if any(value is None or value != value for side in sides for value in side):
        return ""
    if not least:
        fast_texts, slow_texts = (sorted({str(value) for value in side}) for side in sides)
        return (
            f"{label} ({' or '.join(fast_texts)}, and {' or '.join(slow_texts)})" if not {*fast_texts} & {*slow_texts} else ""
        )
    low, high = sorted(sides, key=max)
    if not max(low) * (1 + least) < min(high):
        return ""
    return f"{label} ({' and '.join(str(in_digits(median_of(side), 3)) for side in sides)})"


def jump_of_run(cells: Sequence[Sequence[float]]) -> float:
    """Return how far apart levels of a run's launches may lie, by the logarithms of its cells' figures; 0: no sign of any.

    Only cells that don't show their levels themselves are examined, of these the half that scatters more: whether normal
    figures have a clear cut is independent of how much they scatter.
    """
    small_cells = [logs for logs in cells if len(logs) < SEEN_FROM]
    few = [(variance_of(logs), cut) for logs, cut in zip(small_cells, best_cuts(small_cells), strict=True) if cut]
    few.sort(key=lambda scatter_and_cut: -scatter_and_cut[0])
    looked_at = [cut for _, cut in few[: (len(few) + 1) // 2]]
    if len(few) < _FEWEST_CELLS:
        return 0.0
    together = -math.fsum(math.log(cut.p_value) for cut in looked_at)
    if gammaincc(len(looked_at), together) > CHANCE:
        return 0.0
    return WIDER * float(np.median([cut.gap for cut in looked_at]))


def _cut(values: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return of the best cut along the last axis: the share of the sum of squares that is left, how many lie below, the gap."""
    ordered, n = np.sort(values, axis=-1), values.shape[-1]
    total = _squares(ordered)
    least = 1 if n < 4 else 2
    places = np.arange(least, n - least + 1)
    halves = [(ordered[..., :at], ordered[..., at:]) for at in places]
    left = np.stack([_squares(low) + _squares(high) for low, high in halves])
    gaps = np.stack([high.mean(axis=-1) - low.mean(axis=-1) for low, high in halves])
    best = left.argmin(axis=0)
    return left.min(axis=0) / total, places[best], np.take_along_axis(gaps, best[None], axis=0)[0]


def _squares(values: Numbers) -> Numbers:
    return np.asarray(((values - values.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1))


@lru_cache(maxsize=64)
def _shares_of_normal(n: int) -> Numbers:
    """Return the shares that are left of normal figures, sorted; the same in each process."""
    left, _, _ = _cut(np.random.default_rng(n).normal(size=(_DRAWN, n)))
    return np.sort(left)


SHORTEST = 3
"""A level lasts for at least this many figures: two bad nights are not a new level yet."""
ALPHA = 0.01
"""The chance that a series of independent, normal figures shows any change at all: each cut is tested at ALPHA over the number
of cuts (Bonferroni), which is conservative, since neighbouring cuts give nearly the same result."""
RESEMBLANCE_FROM = 50
"""How many figures are needed to see whether neighbouring nights resemble each other."""
_OUTLIER = 3.0
"""Figures further from the median than this many standard deviations (by the median absolute deviation) are moved to that
distance: one bad night neither makes a level nor hides one."""

Figures = npt.NDArray[np.float64]


def level_changes(figures: Sequence[float]) -> list[int]:
    """Return the places in `figures` (positive, in order of time) at which a new level begins, ascending.

    A new level is improbable as chance (ALPHA), lasts for at least SHORTEST figures, and its median differs from that of the
    previous level by more than NOTEWORTHY. All on the logarithms. In simulations with 1 % of scatter: a false alarm in 1 of
    100 series (in up to 1 of 10 if nights resemble each other, r = 0.4); a step of 5 % is found in 9 of 10 cases after 3
    nights, one of 3 % after 5. A slow drift shows as a staircase.
    """
    logs = np.log(np.asarray(figures, dtype=float))
    cuts: list[int] = []
    pending, shrinking = [(0, len(logs))], _shrinking(logs)
    while pending:
        begin, end = pending.pop()
        place = _most_improbable_cut(logs[begin:end], shrinking)
        if place is not None:
            cuts.append(begin + place)
            pending += [(begin, begin + place), (begin + place, end)]
    return _noteworthy(logs, sorted(cuts))


def _most_improbable_cut(logs: Figures, shrinking: float) -> int | None:
    """Return where the level changes most clearly, or None if it doesn't change."""
    intervals = _intervals(len(logs))
    if not intervals:
        return None
    drawn_in = _without_outliers(logs)
    chances, distances = _compared_in(drawn_in, intervals, shrinking)
    ends = np.cumsum([end - begin - 2 * SHORTEST + 1 for begin, end in intervals])
    improbable = np.flatnonzero(chances * len(chances) < ALPHA)
    for number in improbable[np.lexsort((-distances[improbable], chances[improbable]))].tolist():
        place = int(np.searchsorted(ends, number, "right"))
        begin, end = intervals[place]
        at = end - SHORTEST + 1 - int(ends[place] - number)
        if _is_step(logs, begin, at, end):
            return at
    return None


def _compared_in(values: Figures, intervals: Sequence[tuple[int, int]], shrinking: float) -> tuple[Figures, Figures]:
    """Return _compared of each interval, one after the other; those of one length are computed together."""
    lengths = np.array([end - begin for begin, end in intervals])
    cuts = lengths - 2 * SHORTEST + 1
    first, chances, distances = np.cumsum(cuts) - cuts, np.empty(cuts.sum()), np.empty(cuts.sum())
    least = -ndtri(ALPHA / cuts.sum() / 2)  # a t that isn't larger is no improbable cut, whatever its degrees of freedom
    for length in set(lengths.tolist()):
        alike = np.flatnonzero(lengths == length)
        places = first[alike][:, None] + np.arange(length - 2 * SHORTEST + 1)
        windows = np.lib.stride_tricks.sliding_window_view(values, length)[[intervals[place][0] for place in alike.tolist()]]
        chances[places], distances[places] = _compared(windows, shrinking, least)
    return chances, distances


def _intervals(length: int) -> list[tuple[int, int]]:
    """Return layers of evenly spread intervals that overlap by half, each layer's shorter by the square root of 2."""
    intervals: list[tuple[int, int]] = []
    size = float(length)
    while size >= 2 * SHORTEST:
        count = 2 * math.ceil(length / size) - 1
        step = (length - size) / (count - 1) if count > 1 else 0.0
        intervals += [(math.floor(i * step), min(length, math.ceil(i * step + size))) for i in range(count)]
        size /= math.sqrt(2)
    return list(dict.fromkeys(intervals))


def _without_outliers(logs: Figures) -> Figures:
    center = np.median(logs)
    scale = 1.4826 * float(np.median(np.abs(logs - center)))
    width = max(_OUTLIER * scale, NOTEWORTHY)
    return np.clip(logs - center, -width, width)


def _compared(values: Figures, shrinking: float, least: float) -> tuple[Figures, Figures]:
    """Return for every cut of `values`, along their last axis, the chance of Student's t between its sides (pooled variance,
    two-sided), and |t|. The chance is 1 where |t| isn't above `least`."""
    n = values.shape[-1]
    left = np.arange(SHORTEST, n - SHORTEST + 1)
    right = n - left
    sums = np.cumsum(values, axis=-1)
    before, after = sums[..., left - 1] / left, (sums[..., -1:] - sums[..., left - 1]) / right
    squares = np.sum(values**2, axis=-1, keepdims=True) - left * before**2 - right * after**2
    resolution = (NOTEWORTHY / 100) ** 2  # so that figures without any scatter have a t
    variance = np.maximum(squares / (n - 2), resolution)
    t = shrinking * np.abs(before - after) / np.sqrt(variance * (1 / left + 1 / right))
    chances, is_far = np.ones(t.shape), t > least
    chances[is_far] = 2 * stdtr(n - 2, -t[is_far])
    return chances, t


def _shrinking(logs: Figures) -> float:
    """Return the factor that corrects Student's t if figures of neighbouring nights resemble each other; 1 if they don't.

    With a first-order autocorrelation r the variance of a mean is (1 + r) / (1 - r) times as large, and differences over two
    nights vary 1 + r times as much as those over one, as long as steps are few. Only the part of this r that exceeds twice
    its own scatter counts; with fewer figures than RESEMBLANCE_FROM, none does.
    """
    if len(logs) < RESEMBLANCE_FROM:
        return 1.0
    over_one, over_two = (_mean_square(logs[lag:] - logs[:-lag]) for lag in (1, 2))
    r = min(0.9, over_two / over_one - 1 - 2 / math.sqrt(len(logs))) if over_one > 0 else 0.0
    return math.sqrt((1 - r) / (1 + r)) if r > 0 else 1.0


def _mean_square(differences: Figures) -> float:
    """Return the mean square with outliers, and the steps between levels, clipped."""
    sizes = np.abs(differences)
    return float(np.mean(np.minimum(sizes, _OUTLIER * 1.4826 * np.median(sizes)) ** 2))


def _is_step(logs: Figures, begin: int, at: int, end: int) -> bool:
    """Check whether a step is noteworthy, and the figures at the cut are each nearer to the level on their own side."""
    old, new = float(np.median(logs[begin:at])), float(np.median(logs[at:end]))
    upwards, middle = new > old, (old + new) / 2
    return abs(new - old) > math.log1p(NOTEWORTHY) and (logs[at] > middle) == upwards and (logs[at - 1] < middle) == upwards


def _noteworthy(logs: Figures, places: list[int]) -> list[int]:
    """Drop cuts between levels that differ by less than NOTEWORTHY; the smallest is dropped first."""
    while places:
        edges = [0, *places, len(logs)]
        medians = [float(np.median(logs[begin:end])) for begin, end in itertools.pairwise(edges)]
        steps = [abs(new - old) for old, new in itertools.pairwise(medians)]
        least = min(range(len(steps)), key=steps.__getitem__)
        if steps[least] > math.log1p(NOTEWORTHY):
            break
        places = [place for number, place in enumerate(places) if number != least]
    return places
