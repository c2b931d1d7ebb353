"""Rows on the gate: how often it tells what isn't so, and how many nights it takes to tell what is; through its functions.

Forty cells whose nights scatter by 1 %. The gate's constants were chosen on other random numbers.
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
    """Return, by cell and night, whether the gate tells a regression."""
    cells = [[Night(run=str(at), rates=(rate,), value=rate) for at, rate in enumerate(cell)] for cell in np.exp(logs).tolist()]
    panel = noise.panel(cells, logs.shape[1])
    regressed: Series = panel.regressed | drift(panel).drifted
    return regressed


def usual(random: Random, nights: int, r: float = 0.0) -> Series:
    """Draw cells that don't change; each night resembles the next with the correlation r."""
    logs = random.normal(size=(CELLS, nights))
    for night in range(1, nights):
        logs[:, night] = r * logs[:, night - 1] + np.sqrt(1 - r**2) * logs[:, night]
    return SCATTER * logs


def bad_together(random: Random, nights: int) -> Series:
    """Draw cells of which one night in twenty is 3 to 8 % slower, the same night for all."""
    return usual(random, nights) + _bad(random, (1, nights), nights)


def bad_alone(random: Random, nights: int) -> Series:
    """Draw cells of which one night in twenty, another of each, is 3 to 8 % slower."""
    return usual(random, nights) + _bad(random, (CELLS, nights), nights)


def _bad(random: Random, drawn: tuple[int, int], nights: int) -> Series:
    return np.log1p(-np.where(random.random(drawn) < 0.05, random.uniform(0.03, 0.08, (CELLS, nights)), 0.0))


def false_nights(make: Callable[[Random, int], Series], first: int, last: int, random: Random) -> list[float]:
    """Return of each of the nights `first` to `last`, counted from 1, whether a false regression begins in one of 40 cells."""
    regressed = told(make(random, last))[:, first - 2 :]
    begins: list[float] = (regressed[:, 1:] & ~regressed[:, :-1]).any(axis=0).astype(float).tolist()
    return begins


def nights_until(earlier: int, slower: int, loss: Callable[[int], float], random: Random) -> Series:
    """Return the nights until each of `slower` cells of 40 that lose `loss` is told, after `earlier` nights.

    Never is MOST + 1.
    """
    logs = usual(random, earlier + MOST)
    logs[:slower, earlier:] += np.log1p([-loss(night) for night in range(1, MOST + 1)])
    there = told(logs)[:slower, earlier:]
    return np.where(there.any(axis=1), there.argmax(axis=1) + 1, MOST + 1)


def told_within(within: int, earlier: int, loss: Callable[[int], float], random: Random) -> list[float]:
    """Return of four cells whether each is told within so many nights."""
    shares: list[float] = (nights_until(earlier, 4, loss, random) <= within).astype(float).tolist()
    return shares


def of_the_machine(within: int, earlier: int, loss: Callable[[int], float], random: Random) -> bool:
    """Return whether it is a regression of the run if all cells lose the same."""
    return bool(nights_until(earlier, CELLS, loss, random).min() <= within)


def delays(earlier: int, loss: Callable[[int], float], random: Random) -> list[float]:
    nights: list[float] = nights_until(earlier, 4, loss, random).tolist()
    return nights


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
        Claim(what=f"gate: {name} is told within {within} nights, after {earlier}", goal=at_least(goal),
              trial=partial(told_within, within, earlier, loss), trials=40)
        for name, loss, within, earlier, goal in _TOLD
    ),
    *(
        Claim(what=f"gate: -5 % of all cells is told within 3 nights, after {earlier}", goal=at_least(0.97),
              trial=partial(of_the_machine, 3, earlier, partial(_lasting, 0.05)), trials=30)
        for earlier in (28, 10)
    ),
)  # fmt: skip
