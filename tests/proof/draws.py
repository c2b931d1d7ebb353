"""Launches as machines give them, whose truth is known: a model of noise draws the figures of one cell's n launches."""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from proof.row import Numbers, Random

TRUTH, PERCENT = 100.0, 0.01
Noise: TypeAlias = Callable[[Random, int], Numbers]
"""Figures over what is true, of n launches in their order."""


def scattering(by: float) -> Noise:
    return lambda random, n: random.normal(1.0, by, n)


gaussian = scattering(PERCENT)


def lognormal(random: Random, n: int) -> Numbers:
    """Draw launches slowed by 1 % in the median and by much more at times; 1 is the median of all."""
    return (1 - PERCENT * random.lognormal(0.0, 1.0, n)) / (1 - PERCENT)


def drifting(random: Random, n: int) -> Numbers:
    """Draw launches that scatter by 1 % on a machine that loses or gains up to 6 %; 1 is in the middle."""
    return random.normal(1.0, PERCENT, n) + random.uniform(-0.03, 0.03) * np.linspace(-1, 1, n)


def slowing(by: float) -> Noise:
    """Return noise that scatters by this share, on a machine that loses 10 % meanwhile."""
    return lambda random, n: random.normal(1.0, by, n) * np.linspace(1.0, 0.9, n)


def unequal(random: Random, n: int) -> Numbers:
    """Draw a cell of its own scatter: 0.3 to 3 % in 19 of 20 (lognormal)."""
    return 1 + random.normal(0.0, PERCENT, n) * math.exp(random.normal(0.0, math.log(10) / 2 / 1.96))


def outlying(random: Random, n: int) -> Numbers:
    """Draw launches of which one in twenty is 20 % slower."""
    return gaussian(random, n) * np.where(random.random(n) < 0.05, 0.8, 1.0)


def two_levels(share: float, scatter: float) -> Noise:
    """Return noise in which this share of launches is 5 % slower; `scatter`: around each level."""
    return lambda random, n: random.normal(1.0, scatter, n) * np.where(random.random(n) < share, 0.95, 1.0)


def resembling(again: float) -> Noise:
    """Return noise in which a launch resembles the one before: AR(1), stationary."""

    def drawn(random: Random, n: int) -> Numbers:
        noise = random.normal(0.0, PERCENT, n)
        for place in range(1, n):
            noise[place] = again * noise[place - 1] + math.sqrt(1 - again**2) * noise[place]
        return 1 + noise

    return drawn


def launches(random: Random, noise: Noise, n: int, speed: float = 1.0) -> list[float]:
    """Return the items per second of the n launches of a cell that is so fast."""
    return (TRUTH * speed * noise(random, n)).tolist()
