"""Rows on the gate: how often it tells what isn't so, and how many nights it takes to tell what is; through its functions.

Forty cells whose nights scatter by 1 %. What the gate's constants were chosen on were other seeds, below 100.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from proof.row import Row, RowFunction, at_least, at_most

from torchmatrix.nightly.gate import noise
from torchmatrix.nightly.gate.drift import drift
from torchmatrix.nightly.gate.noise import Night

CELLS, SCATTER = 40, 0.01
MOST = 25
"""Nights that a change is looked for."""
Series = np.ndarray[Any, Any]
"""A row for each cell and a column for each night: logarithms, or whether there is a regression."""
Random = np.random.Generator


def told(logs: Series) -> Series:
    """On which nights does the gate tell a regression of which cell?"""
    cells = [[Night(run=str(at), rates=(rate,), value=rate) for at, rate in enumerate(own)] for own in np.exp(logs).tolist()]
    panel = noise.panel(cells, logs.shape[1])
    found: Series = panel.told | drift(panel).told
    return found


def usual(random: Random, nights: int, r: float = 0.0) -> Series:
    """Cells that don't change; each night resembles the next with the correlation r."""
    found = random.normal(size=(CELLS, nights))
    for night in range(1, nights):
        found[:, night] = r * found[:, night - 1] + np.sqrt(1 - r**2) * found[:, night]
    return SCATTER * found


def bad_together(random: Random, nights: int) -> Series:
    """One night in twenty is 3 to 8 % slower, for all cells."""
    return usual(random, nights) + _bad(random, (1, nights), nights)


def bad_alone(random: Random, nights: int) -> Series:
    """One night in twenty of each cell is 3 to 8 % slower."""
    return usual(random, nights) + _bad(random, (CELLS, nights), nights)


def _bad(random: Random, drawn: tuple[int, int], nights: int) -> Series:
    return np.log1p(-np.where(random.random(drawn) < 0.05, random.uniform(0.03, 0.08, (CELLS, nights)), 0.0))


def false_nights(name: str, make: Callable[[Random, int], Series], first: int, last: int, runs: int, seed: int) -> Row:
    """Of the nights `first` to `last`, the first of all being 1: on how many a false regression begins in one of 40 cells."""
    random, begins, stands = np.random.default_rng(seed), [], []
    for _ in range(runs):
        found = told(make(random, last))[:, first - 2 :]
        begins += (found[:, 1:] & ~found[:, :-1]).any(axis=0).tolist()
        stands += found[:, 1:].any(axis=0).tolist()
    what = f"gate: nights {first} to {last} of 40 cells, {name}, with a new false regression"
    return at_most(f"{what} (with any: {100 * np.mean(stands):.1f} %)", float(np.mean(begins)), 0.01)


def nights_until(seed: int, known: int, loss: Callable[[int], float], slower: int = 4, runs: int = 100) -> Series:
    """Nights that `slower` of 40 cells lose `loss` of their rate until each is told, after `known` nights; MOST + 1: never."""
    random, found = np.random.default_rng(seed), []
    for _ in range(runs):
        logs = usual(random, known + MOST)
        logs[:slower, known:] += np.log1p([-loss(night) for night in range(1, MOST + 1)])
        there = told(logs)[:slower, known:]
        found.append(np.where(there.any(axis=1), there.argmax(axis=1) + 1, MOST + 1))
    return np.array(found)


def share_told(name: str, loss: Callable[[int], float], within: int, known: int, goal: float, seed: int) -> Row:
    nights = nights_until(seed, known, loss)
    what = f"gate: {name} is told within {within} nights, after {known} (median: {np.median(nights):g})"
    return at_least(what, float(np.mean(nights <= within)), goal)


def median_delay(name: str, loss: Callable[[int], float], within: int, known: int, seed: int) -> Row:
    nights = nights_until(seed, known, loss)
    what = f"gate: median nights until {name} is told, after {known} (within {within}: {100 * np.mean(nights <= within):.0f} %)"
    found = float(np.median(nights))
    return Row(what=what, found=f"{found:g}", goal=f"<= {within}", holds=found <= within)


def of_the_machine(loss: float, within: int, known: int, seed: int) -> Row:
    """All cells lose the same from one night on: a regression of the run, if not of each cell."""
    nights = nights_until(seed, known, partial(_lasting, loss), slower=CELLS, runs=50).min(axis=1)
    what = f"gate: -{100 * loss:g} % of all cells is told within {within} nights, after {known}"
    return at_least(what, float(np.mean(nights <= within)), 0.99)


def _lasting(loss: float, night: int) -> float:
    return loss


def _little_by_little(night: int) -> float:
    return 0.002 * night


def _every_other(night: int) -> float:
    return 0.05 * (night % 2)


ROWS: tuple[RowFunction, ...] = (
    partial(false_nights, "independent", usual, 14, 28, 100, 2001),
    partial(false_nights, "independent", usual, 28, 60, 70, 2002),
    partial(false_nights, "independent", usual, 60, 119, 40, 2003),
    partial(false_nights, "correlation .3", partial(usual, r=0.3), 14, 60, 50, 2007),
    partial(false_nights, "correlation .6", partial(usual, r=0.6), 14, 60, 50, 2008),
    partial(false_nights, "a bad night of all in 20", bad_together, 14, 60, 50, 2009),
    partial(false_nights, "a bad night of each in 20", bad_alone, 14, 60, 120, 2010),
    partial(median_delay, "-2 %", partial(_lasting, 0.02), 8, 28, 2004),
    partial(share_told, "-2 %", partial(_lasting, 0.02), 8, 28, 0.70, 2011),
    partial(share_told, "-2 %", partial(_lasting, 0.02), 15, 10, 0.50, 2012),
    partial(share_told, "-2 %", partial(_lasting, 0.02), 8, 70, 0.90, 2005),
    partial(share_told, "-5 %", partial(_lasting, 0.05), 2, 10, 0.80, 2013),
    partial(share_told, "-5 %", partial(_lasting, 0.05), 2, 28, 0.85, 2014),
    partial(share_told, "-0.2 % a night", _little_by_little, 15, 28, 0.90, 2006),
    partial(share_told, "-5 % every other night", _every_other, 10, 28, 0.90, 2015),
    partial(of_the_machine, 0.05, 3, 28, 2016),
    partial(of_the_machine, 0.05, 3, 10, 2017),
)
