"""Rows on the gate: how often it tells what isn't so, and how many nights it takes to tell what is; through its functions.

Forty cells whose nights scatter by 1 %. What the gate's constants were chosen on were other random numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from proof.row import Claim, Random, at_least, at_most, median_at_most
from torchmatrix.nightly.gate import noise
from torchmatrix.nightly.gate.drift import drift
from torchmatrix.nightly.gate.noise import Night

CELLS, SCATTER = 40, 0.01
MOST = 25
"""Nights that a change is looked for."""
Series = np.ndarray[Any, Any]
"""A row for each cell and a column for each night: logarithms, or whether there is a regression."""


def told(logs: Series) -> Series:
    """On which nights does the gate tell a regression of which cell?"""
    cells = [[Night(run=str(at), rates=(rate,), value=rate) for at, rate in enumerate(own)] for own in np.exp(logs).tolist()]
    panel = noise.panel(cells, logs.shape[1])
    found: Series = panel.regressed | drift(panel).drifted
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


def false_nights(make: Callable[[Random, int], Series], first: int, last: int, random: Random) -> list[float]:
    """Of each of the nights `first` to `last`, the first of all being 1: does a false regression begin in one of 40 cells?"""
    found = told(make(random, last))[:, first - 2 :]
    begins: list[float] = (found[:, 1:] & ~found[:, :-1]).any(axis=0).astype(float).tolist()
    return begins


def nights_until(known: int, slower: int, loss: Callable[[int], float], random: Random) -> Series:
    """Nights that `slower` of 40 cells lose `loss` of their rate until each is told, after `known` nights; MOST + 1: never."""
    logs = usual(random, known + MOST)
    logs[:slower, known:] += np.log1p([-loss(night) for night in range(1, MOST + 1)])
    there = told(logs)[:slower, known:]
    return np.where(there.any(axis=1), there.argmax(axis=1) + 1, MOST + 1)


def told_within(within: int, known: int, loss: Callable[[int], float], random: Random) -> list[float]:
    """Of four cells."""
    found: list[float] = (nights_until(known, 4, loss, random) <= within).astype(float).tolist()
    return found


def of_the_machine(within: int, known: int, loss: Callable[[int], float], random: Random) -> bool:
    """All cells lose the same: is that a regression of the run?"""
    return bool(nights_until(known, CELLS, loss, random).min() <= within)


def delays(known: int, loss: Callable[[int], float], random: Random) -> list[float]:
    found: list[float] = nights_until(known, 4, loss, random).tolist()
    return found


def _lasting(loss: float, night: int) -> float:
    return loss


def _little_by_little(night: int) -> float:
    return 0.002 * night


def _every_other(night: int) -> float:
    return 0.05 * (night % 2)


_USUAL = "gate: nights {} to {} of 40 cells, {}, with a new false regression"
_FALSE: tuple[tuple[str, Callable[[Random, int], Series], int, int, int], ...] = (
    ("independent", usual, 14, 28, 70),
    ("independent", usual, 28, 60, 50),
    ("independent", usual, 60, 119, 16),
    ("correlation .3", partial(usual, r=0.3), 14, 60, 40),
    ("correlation .6", partial(usual, r=0.6), 14, 60, 40),
    ("a bad night of all in 20", bad_together, 14, 60, 40),
    ("a bad night of each in 20", bad_alone, 14, 60, 40),
)
_TOLD: tuple[tuple[str, Callable[[int], float], int, int, float], ...] = (
    ("-2 %", partial(_lasting, 0.02), 8, 28, 0.70),
    ("-2 %", partial(_lasting, 0.02), 15, 10, 0.50),
    ("-2 %", partial(_lasting, 0.02), 8, 70, 0.88),
    ("-5 %", partial(_lasting, 0.05), 2, 10, 0.80),
    ("-5 %", partial(_lasting, 0.05), 2, 28, 0.85),
    ("-0.2 % a night", _little_by_little, 15, 28, 0.90),
    ("-5 % every other night", _every_other, 10, 28, 0.90),
)
CLAIMS = (
    *(
        Claim(what=_USUAL.format(first, last, name), goal=at_most(0.01), trial=partial(false_nights, make, first, last),
              trials=runs)
        for name, make, first, last, runs in _FALSE
    ),
    Claim(what="gate: median nights until -2 % is told, after 28", goal=median_at_most(8),
          trial=partial(delays, 28, partial(_lasting, 0.02)), trials=30),
    *(
        Claim(what=f"gate: {name} is told within {within} nights, after {known}", goal=at_least(goal),
              trial=partial(told_within, within, known, loss), trials=40)
        for name, loss, within, known, goal in _TOLD
    ),
    *(
        Claim(what=f"gate: -5 % of all cells is told within 3 nights, after {known}", goal=at_least(0.97),
              trial=partial(of_the_machine, 3, known, partial(_lasting, 0.05)), trials=30)
        for known in (28, 10)
    ),
)  # fmt: skip
