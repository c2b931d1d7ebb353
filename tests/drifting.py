"""A machine that slows down while it gets warm, for the workload's own decision when it is steady."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import steady

STEP_SECONDS = 0.09
WARM_UP_SECONDS = 5.0
WINDOW_STEPS = 122
"""11 s: what a window of 10 s takes."""

Ranks = list[dict[str, Any]]


@dataclass(kw_only=True)
class Machine:
    """Steps get longer by `slower` with a time constant `tau` (0: never), and scatter by `noise`. Its clock is a number."""

    tau: float
    noise: float
    seed: int
    slower: float = 0.05
    now: float = 0.0
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def block(self, steps: int) -> Ranks:
        """As measure.window gives it, of one rank."""
        begin, taken = self.now, []
        for _ in range(steps):
            drift = self.slower * (1 - math.exp(-self.now / self.tau)) if self.tau else 0.0
            taken.append(STEP_SECONDS * (1 + drift) * self.random.gauss(1.0, self.noise))
            self.now += taken[-1]
        return [{"start_monotonic_seconds": begin, "seconds": self.now - begin, "step_seconds": taken}]

    @property
    def end(self) -> float:
        """Of a step in the end."""
        return STEP_SECONDS * (1 + (self.slower if self.tau else 0.0))


@dataclass(frozen=True, kw_only=True)
class Launched:
    """`bias`: of the throughput against that in the end; `told`: the same with the drift that the launch tells taken off.

    `longer`: its time over that of a launch that never repeats anything.
    """

    bias: float
    told: float
    longer: float
    flat: bool | None
    warm_up: list[Ranks]


def launch(machine: Machine, cap_seconds: float = 300.0, more: Callable[[float], Ranks | None] | None = None) -> Launched:
    """A launch as phases.py does it: warm-up, then windows when the machine is steady."""
    series, told = steady.Series(), []
    machine.block(5)
    while machine.now < WARM_UP_SECONDS:
        series.add(machine.block(5))

    def go_on(seconds: float) -> Ranks:
        return machine.block(max(1, math.ceil(seconds / STEP_SECONDS)))

    usual = machine.now + WINDOW_STEPS * STEP_SECONDS
    found = steady.measure(series, cap_seconds, lambda: [machine.block(WINDOW_STEPS)], more or go_on, told.append)
    ((window,),) = found.windows
    over = machine.end * WINDOW_STEPS / window["seconds"]
    return Launched(
        bias=over - 1, told=over / (1 + (found.drift or 0.0)) - 1, longer=machine.now / usual, flat=found.flat, warm_up=told
    )
