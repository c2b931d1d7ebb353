"""Rows on how much a slow-down of 5 % falsifies a figure, simulated through the code that decides when a machine is steady.

Steps of 90 ms, 5 s of warm-up, a window of 11 s. A drift that is not over at the cap is told with the launch; of such ones the
bias counts that is left when it is taken off.
"""

from functools import partial

from proof.row import Claim, Random, at_most, bias_within, mean_at_most
from support.drifting import Course, Launched, Machine, exponentials, launch

LAUNCHES = 100
NOISE = 0.003
FLAT, WARMING = exponentials(), (5.0, 15.0, 30.0, 60.0, 90.0)
TOLD = ((150.0, LAUNCHES), (300.0, 5 * LAUNCHES))
"""So slow that their drift isn't over at the cap; and launches, as they tell it the less exactly."""


def launched(random: Random, course: Course, **options: float) -> Launched:
    return launch(Machine(course=course, noise=NOISE, seed=int(random.integers(2**32)), **options))


def bias(tau: float, random: Random) -> float:
    return launched(random, exponentials((0.05, tau))).bias


def left(tau: float, random: Random) -> float:
    return launched(random, exponentials((0.05, tau))).told


def hidden(fast: tuple[float, float], slow: tuple[float, float], random: Random) -> bool:
    """Return whether a fast drift that hides a slow one is called flat, and its figure is more than 1 % too high."""
    result = launched(random, exponentials(fast, slow))
    return result.flat is True and result.bias > 0.01


def is_not_flat(options: dict[str, float], random: Random) -> bool:
    """Return whether a flat machine is said to drift."""
    return launched(random, FLAT, **options).flat is False


def longer(random: Random) -> float:
    return launched(random, FLAT).longer - 1


HIDDEN = (((0.03, 5.0), (0.04, 200.0)), ((0.025, 8.0), (0.05, 280.0)))
KINDS: dict[str, dict[str, float]] = {
    "noise of 0.3 %": {}, "noise that resembles that of the step before by 0.7": {"again": 0.7},
    "1 step in 250 a third longer": {"outliers": 0.004}, "a fan of 20 s": {"period": 20.0},
}  # fmt: skip

CLAIMS = (
    *(
        Claim(what=f"steady: bias of a slow-down of 5 % with tau = {tau:g} s", goal=bias_within(0.005),
              trial=partial(bias, tau), trials=LAUNCHES) for tau in WARMING
    ),
    *(
        Claim(what=f"steady: of a slow-down of 5 % with tau = {tau:g} s, what launches don't tell", goal=bias_within(0.005),
              trial=partial(left, tau), trials=trials) for tau, trials in TOLD
    ),
    *(
        Claim(what=f"steady: called flat, > 1 % too high: {100 * fast[0]:g} % with {fast[1]:g} s, {100 * slow[0]:g} % with "
              f"{slow[1]:g} s", goal=at_most(0.05), trial=partial(hidden, fast, slow), trials=3 * LAUNCHES)
        for fast, slow in HIDDEN
    ),
    Claim(what="steady: how much longer a machine takes that is flat", goal=mean_at_most(0.1), trial=longer,
          trials=20 * LAUNCHES),
    *(
        Claim(what=f"steady: a flat machine is called not flat, {kind}", goal=at_most(0.02), trial=partial(is_not_flat, more),
              trials=10 * LAUNCHES) for kind, more in KINDS.items()
    ),
)  # fmt: skip
