"""A row of the proof's table: a claim, what simulation finds of it, and when that is counted as missed.

A goal is about the truth, what is found is an estimate of it. So a row fails only where it misses its goal by more than MARGIN
standard errors: a truth that lies at the goal fails by chance in one of 740 seeds. A share of n independent draws has the
standard error √(goal (1 - goal) / n) at its goal, a mean that of its draws. The price: a truth beyond the goal by less than
the margin may pass. Hence the margin stands in the table, and n is large enough to keep it small.
"""

import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

MARGIN = 3.0
SHARES = 4
"""A claim's draws are made in so many shares, each of which a process can do; each has random numbers of its own."""

Random: TypeAlias = np.random.Generator
Numbers: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A row of the table: what was `found`, the `goal` and its margin, both in words; whether the goal `holds`."""

    what: str
    found: str
    goal: str
    holds: bool


Goal: TypeAlias = Callable[[str, Numbers], Row]
"""Judges all outcomes of a claim."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A claim: `what` is claimed, in words that no other claim has; its `goal`.

    `trial`: one draw, of which it returns the outcome, or several independent ones: whether it hit, or a number. `trials`: how
    many draws the table makes.
    """

    what: str
    goal: Goal
    trial: Callable[[Random], "float | Iterable[float]"]
    trials: int

    def outcomes(self, seed: int, share: int) -> list[float]:
        """Return the outcomes of one of its SHARES.

        The random numbers depend on `seed`, on `what` and on the share, on nothing else.
        """
        random = np.random.default_rng([seed, zlib.crc32(self.what.encode()), share])
        results = [self.trial(random) for _ in range(share, self.trials, SHARES)]
        return [float(value) for result in results for value in (result if isinstance(result, Iterable) else (result,))]

    def row(self, shares: Iterable[list[float]]) -> Row:
        """Return the claim's row, of the outcomes of all shares."""
        return self.goal(self.what, np.array([value for share in shares for value in share]))

    def found(self, seed: int) -> Row:
        """Return the claim's row, all made in this process."""
        return self.row(self.outcomes(seed, share) for share in range(SHARES))


def at_least(share: float) -> Goal:
    """Return the goal that so many of the outcomes must be true, or more."""
    return lambda what, outcomes: _share(what, outcomes, share, 1)


def at_most(share: float) -> Goal:
    """Return the goal that so many of the outcomes may be true, or fewer."""
    return lambda what, outcomes: _share(what, outcomes, share, -1)


def bias_within(most: float) -> Goal:
    """Return the goal that the mean of the outcomes, relative errors, may be off 0 by so much."""
    return lambda what, outcomes: _mean(what, outcomes, most, abs(float(outcomes.mean())), "±", "+.2f")


def mean_at_most(most: float) -> Goal:
    """Return the goal that the mean of the outcomes, which are shares, must not be higher."""
    return lambda what, outcomes: _mean(what, outcomes, most, float(outcomes.mean()), "<=", ".2f")


def median_at_most(most: float) -> Goal:
    """Return the goal that half of the outcomes must not be higher: the share of those that are must not be above a half."""

    def judged(what: str, outcomes: Numbers) -> Row:
        margin = MARGIN * 0.5 / math.sqrt(len(outcomes))
        return Row(
            what=what,
            found=f"{np.median(outcomes):g}",
            goal=f"<= {most:g}, of {len(outcomes)}",
            holds=float(np.mean(outcomes <= most)) >= 0.5 - margin,
        )

    return judged


def _share(what: str, outcomes: Numbers, goal: float, sign: int) -> Row:
    share, n = float(outcomes.mean()), len(outcomes)
    margin = MARGIN * math.sqrt(goal * (1 - goal) / n)
    return Row(
        what=what,
        found=f"{100 * share:.2f} %",
        goal=f"{'>=' if sign > 0 else '<='} {100 * goal:g} ± {100 * margin:.1f} % of {n}",
        holds=sign * (share - goal) >= -margin,
    )


def _mean(what: str, outcomes: Numbers, most: float, size: float, sign: str, form: str) -> Row:
    margin = MARGIN * float(outcomes.std(ddof=1)) / math.sqrt(len(outcomes))
    return Row(
        what=what,
        found=f"{100 * float(outcomes.mean()):{form}} %",
        goal=f"{sign} {100 * most:g} ± {100 * margin:.2f} % of {len(outcomes)}",
        holds=size <= most + margin,
    )
