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
from typing import Any

import numpy as np
from scipy.special import gammaincc

from torchmatrix.analysis.centers import median_of, variance_of
from torchmatrix.analysis.column import Row
from torchmatrix.analysis.intervals import NOTEWORTHY, SEEN_FROM
from torchmatrix.analysis.moderated import Numbers
from torchmatrix.analysis.verdicts import adjusted
from torchmatrix.ground.formatting import in_digits

SEEN_IN_CELL = 4
"""Fewer launches of a cell have no two levels of two."""
CHANCE = 0.01
"""That a run without levels is said to have some."""
WIDER = 1.5
"""Levels lie up to so many times the usual distance apart."""
_FEWEST_CELLS = 4
_NOTEWORTHY = math.log1p(NOTEWORTHY)
_APART = {
    "compile_cache": ("the compile cache", 0.0), "throttled": ("throttling", 0.0), "clock_mhz": ("clock in MHz", 0.01),
    "power_watts": ("power in W", 0.02), "temperature_first": ("temperature at the start in °C", 0.05),
    "peak_bytes": ("peak memory in bytes", 0.01),
}  # fmt: skip
"""Of each launch by column: what it is called, and by which share numbers must differ to be a reason; 0: texts."""
_LOOKED_AT = [label.partition(" in ")[0] for label, _ in _APART.values()]
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
    return best_cuts([logs])[0]


def best_cuts(cells: Sequence[Sequence[float]]) -> list[Cut | None]:
    """The same of many cells at once."""
    found: list[Cut | None] = [None] * len(cells)
    for n in {len(logs) for logs in cells if len(logs) >= 3}:
        places = [place for place, logs in enumerate(cells) if len(logs) == n and max(logs) > min(logs)]
        if places:
            left, low, gap = _cut(np.array([cells[place] for place in places], dtype=float))
            below = np.searchsorted(_usual(n), left, "right")
            for place, *cut in zip(places, low.tolist(), gap.tolist(), ((below + 1) / (_DRAWN + 1)).tolist(), strict=True):
                found[place] = Cut(low=cut[0], gap=cut[1], p_value=cut[2])
    return found


def told(cuts: Sequence[Cut | None], share: float) -> list[Cut | None]:
    """Of the cuts of a run's cells those that are levels: noteworthily apart, and of these no more than `share` by chance."""
    p_values = adjusted([cut.p_value if cut and cut.gap > _NOTEWORTHY else math.nan for cut in cuts])
    return [cut if p <= share else None for cut, p in zip(cuts, p_values, strict=True)]


def in_words(launches: Sequence[Row], cut: Cut, unit: str) -> str:
    """Such as "3 of 5 launches at 410 images/s, 2 at 389 (rounds 2 and 5)"; then what differs between them, if it is known.

    `launches`: rows of those that measured, in any order.
    """
    ordered = sorted(launches, key=lambda row: float(row["throughput"]))
    slow, fast = ordered[: cut.low], ordered[cut.low :]
    rates = [in_digits(median_of([row["throughput"] for row in some]), 3) for some in (fast, slow)]
    rounds = ", ".join(str(number) for number in sorted(row["round"] for row in slow))
    found = [words for name in _APART if (words := _differ(name, fast, slow))]
    why = (
        f"they differ in {'; '.join(found)}"
        if found
        else f"nothing that is recorded of each tells why ({', '.join(_LOOKED_AT)})"
    )
    return f"{len(fast)} of {len(ordered)} launches at {rates[0]} {unit}/s, {len(slow)} at {rates[1]} (rounds {rounds}); {why}"


def _differ(name: str, fast: Sequence[Row], slow: Sequence[Row]) -> str:
    """In words, if no launch of the one level is as one of the other; numbers must differ by the given share."""
    label, least = _APART[name]
    sides: list[list[Any]] = [[row.get(name) for row in some] for some in (fast, slow)]
    if any(value is None or value != value for side in sides for value in side):
        return ""
    if not least:
        ours, theirs = (sorted({str(value) for value in side}) for side in sides)
        return f"{label} ({' or '.join(ours)}, and {' or '.join(theirs)})" if not {*ours} & {*theirs} else ""
    low, high = sorted(sides, key=max)
    if not max(low) * (1 + least) < min(high):
        return ""
    return f"{label} ({' and '.join(str(in_digits(median_of(side), 3)) for side in sides)})"


def jump_of_run(cells: Sequence[Sequence[float]]) -> float:
    """How far apart levels of a run's launches may lie, by the logarithms of its cells' figures; 0: there is no sign of any.

    Only cells that don't show their levels themselves are looked at, of these the half that scatters more: whether normal
    figures have a clear cut says nothing of how much they scatter.
    """
    some = [logs for logs in cells if len(logs) < SEEN_FROM]
    few = [(variance_of(logs), cut) for logs, cut in zip(some, best_cuts(some), strict=True) if cut]
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
