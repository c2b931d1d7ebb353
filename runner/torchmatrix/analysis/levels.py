"""Finds where a series of figures changes its level rather than just scatters.

Seeded binary segmentation: S. Kovács, P. Bühlmann, H. Li, A. Munk, "Seeded binary segmentation: a general methodology for
fast and optimal changepoint detection", Biometrika 110 (2023), 249-256. Many overlapping intervals of the series, long and
short, are each cut in two at every place, and the two sides are compared with Student's t; the most improbable cut becomes a
change, and both of its sides are searched in the same way. Short intervals find what a cut of the whole series can't: a dip
that has passed. D. Fleming and others found that t is good enough for nightly benchmarks and needs no random permutations:
"Hunter: using change point detection to hunt for performance regressions", ICPE 2023 (arXiv:2301.03034).
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from torchmatrix.analysis.intervals import NOTEWORTHY

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

Numbers = npt.NDArray[np.float64]


def changes(figures: Sequence[float]) -> list[int]:
    """The places in `figures` (positive, in order of time) at which a new level begins, ascending.

    A new level is improbable as chance (ALPHA), lasts for at least SHORTEST figures, and its median differs from that of the
    previous level by more than NOTEWORTHY. All on the logarithms. In simulations with 1 % of scatter: a false alarm in 1 of
    100 series (in up to 1 of 10 if nights resemble each other, r = 0.4); a step of 5 % is found in 9 of 10 cases after 3
    nights, one of 3 % after 5. A slow drift shows as a staircase.
    """
    logs = np.log(np.asarray(figures, dtype=float))
    found: list[int] = []
    pending, shrinking = [(0, len(logs))], _shrinking(logs)
    while pending:
        begin, end = pending.pop()
        place = _most_improbable_cut(logs[begin:end], shrinking)
        if place is not None:
            found.append(begin + place)
            pending += [(begin, begin + place), (begin + place, end)]
    return _noteworthy(logs, sorted(found))


def _most_improbable_cut(logs: Numbers, shrinking: float) -> int | None:
    """Where the level changes most clearly, or None if it doesn't change."""
    intervals = _intervals(len(logs))
    if not intervals:
        return None
    drawn_in = _without_outliers(logs)
    compared = [_compared(drawn_in[begin:end], shrinking) for begin, end in intervals]
    chances, distances = (np.concatenate(column) for column in zip(*compared, strict=True))
    cuts = [(begin, at, end) for begin, end in intervals for at in range(begin + SHORTEST, end - SHORTEST + 1)]
    for number in np.lexsort((-distances, chances)):
        if chances[number] * len(chances) >= ALPHA:
            return None
        if _is_step(logs, *cuts[number]):
            return int(cuts[number][1])
    return None


def _intervals(length: int) -> list[tuple[int, int]]:
    """Layers of evenly spread intervals that overlap by half, each layer's shorter by the square root of 2."""
    found: list[tuple[int, int]] = []
    size = float(length)
    while size >= 2 * SHORTEST:
        count = 2 * math.ceil(length / size) - 1
        step = (length - size) / (count - 1) if count > 1 else 0.0
        found += [(math.floor(i * step), min(length, math.ceil(i * step + size))) for i in range(count)]
        size /= math.sqrt(2)
    return list(dict.fromkeys(found))


def _without_outliers(logs: Numbers) -> Numbers:
    center = np.median(logs)
    scale = 1.4826 * float(np.median(np.abs(logs - center)))
    width = max(_OUTLIER * scale, NOTEWORTHY)
    return np.clip(logs - center, -width, width)


def _compared(values: Numbers, shrinking: float) -> tuple[Numbers, Numbers]:
    """For every cut of `values`: the chance of Student's t between its sides (pooled variance, two-sided), and |t|."""
    n = len(values)
    left = np.arange(SHORTEST, n - SHORTEST + 1)
    right = n - left
    sums = np.cumsum(values)
    before, after = sums[left - 1] / left, (sums[-1] - sums[left - 1]) / right
    squares = np.sum(values**2) - left * before**2 - right * after**2
    resolution = (NOTEWORTHY / 100) ** 2  # so that figures without any scatter have a t
    variance = np.maximum(squares / (n - 2), resolution)
    t = shrinking * np.abs(before - after) / np.sqrt(variance * (1 / left + 1 / right))
    return np.asarray(2 * stdtr(n - 2, -t)), t


def _shrinking(logs: Numbers) -> float:
    """The factor that corrects Student's t if figures of neighbouring nights resemble each other; 1 if they don't.

    With a first-order autocorrelation r the variance of a mean is (1 + r) / (1 - r) times as large, and differences over two
    nights vary 1 + r times as much as those over one, as long as steps are few. Only the part of this r that exceeds twice
    its own scatter counts; with fewer figures than RESEMBLANCE_FROM, none does.
    """
    if len(logs) < RESEMBLANCE_FROM:
        return 1.0
    one, two = (_mean_square(logs[lag:] - logs[:-lag]) for lag in (1, 2))
    r = min(0.9, two / one - 1 - 2 / math.sqrt(len(logs))) if one > 0 else 0.0
    return math.sqrt((1 - r) / (1 + r)) if r > 0 else 1.0


def _mean_square(differences: Numbers) -> float:
    """The figures with outliers, and the steps between levels, clipped."""
    sizes = np.abs(differences)
    return float(np.mean(np.minimum(sizes, _OUTLIER * 1.4826 * np.median(sizes)) ** 2))


def _is_step(logs: Numbers, begin: int, at: int, end: int) -> bool:
    """Whether it is noteworthy, and the figures at the cut are each nearer to the level on their own side."""
    old, new = float(np.median(logs[begin:at])), float(np.median(logs[at:end]))
    upwards, middle = new > old, (old + new) / 2
    return abs(new - old) > math.log1p(NOTEWORTHY) and (logs[at] > middle) == upwards and (logs[at - 1] < middle) == upwards


def _step(logs: Numbers, begin: int, at: int, end: int) -> float:
    return float(np.median(logs[at:end]) - np.median(logs[begin:at]))


def _noteworthy(logs: Numbers, places: list[int]) -> list[int]:
    """The cuts without those between levels that differ by less than NOTEWORTHY; the smallest is dropped first."""
    while places:
        edges = [0, *places, len(logs)]
        steps = [abs(_step(logs, *three)) for three in zip(edges, edges[1:], edges[2:], strict=False)]
        least = min(range(len(steps)), key=steps.__getitem__)
        if steps[least] > math.log1p(NOTEWORTHY):
            break
        places = [place for number, place in enumerate(places) if number != least]
    return places
