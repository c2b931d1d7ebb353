"""Rows on the gate: how often it tells what isn't so, and how many nights it takes to tell what is; through its functions.

Nights of a cell scatter by 1 % and are independent. What the gate's constants were chosen on were other seeds, below 100.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from proof.row import Row, RowFunction, at_least, at_most

from torchmatrix.nightly.gate import noise
from torchmatrix.nightly.gate.drift import drifts

NIGHTS, CELLS = 7, 40
"""That make the baseline, as the gate has it; of the matrix whose nights are counted."""
SCATTER, RATE = 0.01, 100.0


def told(values: list[float], first: int) -> list[bool]:
    """Is there a regression on the nights from `first` on (as many nights are known before)? As the gate judges one cell."""
    nights = [noise.night(str(place), [value]) for place, value in enumerate(values)]
    drifted = [found is not None for found in drifts(values)]
    return [drifted[place] or _is_slower(nights[: place + 1]) for place in range(first, len(values))]


def _is_slower(nights: list[noise.Night]) -> bool:
    return noise.standing(nights[-noise.MEMORY - NIGHTS - 1 :], NIGHTS).verdict == "regression"


def usual(random: np.random.Generator, nights: int) -> list[float]:
    """A cell that doesn't change."""
    return (RATE * random.normal(1.0, SCATTER, nights)).tolist()


def false_nights(seed: int, first: int, last: int, cells: int) -> Row:
    """Of the nights first + 1 to last: on how many a false regression begins in one of 40 cells."""
    random = np.random.default_rng(seed)
    found = np.array([told(usual(random, last), first - 1) for _ in range(cells)])
    begins, stands = _of_all_cells(found[:, 1:] & ~found[:, :-1]), _of_all_cells(found[:, 1:])
    what = f"gate: nights {first + 1} to {last} of 40 equal cells with a new false regression"
    return at_most(f"{what} (with any: {100 * stands:.1f} %)", begins, 0.01)


def _of_all_cells(found: np.ndarray) -> float:
    """The chance that at least one cell does on a night what single cells do so often."""
    return float(1 - (1 - found.mean()) ** CELLS)


def nights_until(seed: int, known: int, loss: Callable[[int], float], cells: int = 1000, most: int = 25) -> np.ndarray:
    """Nights that cells lose `loss` of their rate until they are told, after `known` without a change; most + 1: never."""
    random, found = np.random.default_rng(seed), []
    for _ in range(cells):
        slower = [rate * (1 - loss(night)) for night, rate in enumerate(usual(random, most), 1)]
        nights = told(usual(random, known) + slower, known)
        found.append(nights.index(True) + 1 if any(nights) else most + 1)
    return np.array(found)


def share_told(name: str, loss: Callable[[int], float], within: int, known: int, seed: int) -> Row:
    nights = nights_until(seed, known, loss)
    what = f"gate: {name} is told within {within} nights, after {known} (median: {np.median(nights):g})"
    return at_least(what, np.mean(nights <= within), 0.90)


def median_delay(name: str, loss: Callable[[int], float], within: int, known: int, seed: int) -> Row:
    nights = nights_until(seed, known, loss)
    what = f"gate: median nights until {name} is told, after {known} (within {within}: {100 * np.mean(nights <= within):.0f} %)"
    found = float(np.median(nights))
    return Row(what=what, found=f"{found:g}", goal=f"<= {within}", holds=found <= within)


def _two_percent(night: int) -> float:
    return 0.02


def _little_by_little(night: int) -> float:
    return 0.002 * night


ROWS: tuple[RowFunction, ...] = (
    partial(false_nights, 2001, 14, 28, 2000),
    partial(false_nights, 2002, 28, 60, 5000),
    partial(false_nights, 2003, 60, 119, 2500),
    partial(median_delay, "-2 %", _two_percent, 8, 28, 2004),
    partial(share_told, "-2 %", _two_percent, 8, 70, 2005),
    partial(share_told, "-0.2 % a night", _little_by_little, 15, 28, 2006),
)
