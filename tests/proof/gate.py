"""Rows on the gate: how often it tells what isn't so, and how many nights it takes to tell what is; through its functions.

Nights of a cell scatter by 1 % and are independent.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from proof.row import Claim, Random, at_least, mean_at_most, median_at_most

from torchmatrix.nightly.gate import noise
from torchmatrix.nightly.gate.drift import drifts

NIGHTS, CELLS = 7, 40
"""That make the baseline, as the gate has it; of the matrix whose nights are counted."""
SCATTER, RATE = 0.01, 100.0
MOST = 25
"""Nights that a loss is waited for."""


def told(values: list[float], first: int) -> list[bool]:
    """Is there a regression on the nights from `first` on (as many nights are known before)? As the gate judges one cell."""
    nights = [noise.night(str(place), [value]) for place, value in enumerate(values)]
    drifted = [found is not None for found in drifts(values)]
    return [drifted[place] or _is_slower(nights[: place + 1]) for place in range(first, len(values))]


def _is_slower(nights: list[noise.Night]) -> bool:
    return noise.standing(nights[-noise.MEMORY - NIGHTS - 1 :], NIGHTS).verdict == "regression"


def usual(random: Random, nights: int) -> list[float]:
    """A cell that doesn't change."""
    return (RATE * random.normal(1.0, SCATTER, nights)).tolist()


def false_nights(first: int, last: int, random: Random) -> float:
    """Of the nights first + 1 to last of CELLS such cells: the share on which a false regression begins in one of them."""
    begins = sum(tonight and not before for before, tonight in pairwise(told(usual(random, last), first - 1)))
    return CELLS * begins / (last - first)


def nights_until(known: int, loss: Callable[[int], float], random: Random) -> int:
    """Nights that a cell loses `loss` of its rate until it is told, after `known` without a change; MOST + 1: never."""
    slower = [rate * (1 - loss(night)) for night, rate in enumerate(usual(random, MOST), 1)]
    return [*told(usual(random, known) + slower, known), True].index(True) + 1


def told_within(within: int, known: int, loss: Callable[[int], float], random: Random) -> bool:
    return nights_until(known, loss, random) <= within


def _two_percent(night: int) -> float:
    return 0.02


def _little_by_little(night: int) -> float:
    return 0.002 * night


CLAIMS = (
    *(
        Claim(what=f"gate: nights {first + 1} to {last} of 40 equal cells with a new false regression", goal=mean_at_most(0.01),
              trial=partial(false_nights, first, last), trials=cells)
        for first, last, cells in ((14, 28, 2000), (28, 60, 3000), (60, 119, 1500))
    ),
    Claim(what="gate: median nights until -2 % is told, after 28", goal=median_at_most(8),
          trial=partial(nights_until, 28, _two_percent), trials=1000),
    Claim(what="gate: -2 % is told within 8 nights, after 70", goal=at_least(0.9),
          trial=partial(told_within, 8, 70, _two_percent), trials=1000),
    Claim(what="gate: -0.2 % a night is told within 15 nights, after 28", goal=at_least(0.9),
          trial=partial(told_within, 15, 28, _little_by_little), trials=1000),
)  # fmt: skip
