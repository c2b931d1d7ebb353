"""Do launches come in two levels, as where a library chooses its algorithm anew, or memory lies otherwise, in each of them?

What tells is the share of the sum of squares that is left once the sorted figures are cut in two at the best place (J. A.
Hartigan, Clustering Algorithms, 1975, chapter 4). Of normal figures it follows from their number alone, whatever they scatter
by, so that its chance is found by drawing such figures. Of two launches nothing can be said. Of three or four of one cell
hardly anything, but of all cells of a run together: R. A. Fisher's sum of the logarithms of their p-values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaincc

from torchmatrix.analysis.intervals import NOTEWORTHY
from torchmatrix.analysis.moderated import Numbers

SEEN_FROM = 5
"""Of so many launches the mean shows both levels. With fewer, all of one cell may lie in one level and all of another in the
other one, which looks like a difference of the two."""
CHANCE = 0.01
"""That cells or a run without levels are said to have some."""
WIDER = 1.5
"""Levels lie up to so many times the usual distance apart."""
_FEWEST_CELLS = 4
_DRAWN = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """The best cut of sorted figures in two: `low` so many, the rest higher by `gap` on average (logarithms). `p_value`: the
    chance of so clear a cut of figures without levels."""

    low: int
    gap: float
    p_value: float


def best_cut(logs: Sequence[float]) -> Cut | None:
    """Of the logarithms of a cell's figures; None for fewer than three. Levels of four launches or more have two at least."""
    if len(logs) < 3 or max(logs) == min(logs):
        return None
    left, low, gap = (one.item() for one in _cut(np.asarray(logs, dtype=float)))
    chances = _usual(len(logs))
    return Cut(low=int(low), gap=gap, p_value=(int(np.searchsorted(chances, left, "right")) + 1) / (_DRAWN + 1))


def is_told(cut: Cut | None, cells: int) -> bool:
    """Are these two levels, at CHANCE for all so many cells together (Bonferroni), and noteworthily apart?"""
    return cut is not None and cut.p_value <= CHANCE / cells and cut.gap > math.log1p(NOTEWORTHY)


def jump_of_run(cells: Sequence[Sequence[float]]) -> float:
    """How far apart levels of a run's launches may lie, by the logarithms of its cells' figures; 0: there is no sign of any.

    Only cells that don't show their levels themselves are looked at, of these the half that scatters more: whether normal
    figures have a clear cut says nothing of how much they scatter.
    """
    few = [(float(np.var(logs)), cut) for logs in cells if len(logs) < SEEN_FROM and (cut := best_cut(logs))]
    few.sort(key=lambda one: -one[0])
    looked_at = [cut for _, cut in few[: (len(few) + 1) // 2]]
    if len(few) < _FEWEST_CELLS:
        return 0.0
    together = -math.fsum(math.log(cut.p_value) for cut in looked_at)
    if gammaincc(len(looked_at), together) > CHANCE:
        return 0.0
    return WIDER * float(np.median([cut.gap for cut in looked_at]))


def _cut(values: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Of the best cut along the last axis: the share of the sum of squares that is left, how many lie below, and the gap."""
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
def _usual(n: int) -> Numbers:
    """The shares that are left of so many normal figures, sorted; the same in each process."""
    left, _, _ = _cut(np.random.default_rng(n).normal(size=(_DRAWN, n)))
    return np.sort(left)
