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
Course = Callable[[float], float]
"""By which ratio a step is longer at a time in seconds."""


def exponentials(*parts: tuple[float, float]) -> Course:
    """Return a course of exponentials, each (by what ratio in the end, time constant)."""
    return lambda now: sum(slower * (1 - math.exp(-now / tau)) for slower, tau in parts)


def throttled(slower: float, at: float) -> Course:
    """Return a course that slows down by this ratio, from one moment on."""
    return lambda now: slower if now >= at else 0.0


@dataclass(kw_only=True)
class Machine:
    """Steps get longer by `course`, and scatter by `noise`. Its clock is a number.

    `again`: the correlation of a step's noise with the next one's (AR(1)); `outliers`: so many steps take a third longer;
    `period`: of seconds in which the step time goes up and down by `noise`, as a fan does it; 0: it doesn't.
    """

    course: Course
    noise: float
    seed: int
    again: float = 0.0
    outliers: float = 0.0
    period: float = 0.0
    now: float = 0.0
    random: Random = field(init=False)
    last: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def block(self, steps: int) -> Ranks:
        """Return a block of steps as measure.window gives it, of one rank."""
        begin, taken = self.now, []
        for _ in range(steps):
            taken.append(STEP_SECONDS * (1 + self.course(self.now)) * (1 + self._scatter()))
            self.now += taken[-1]
        return [{"start_monotonic_seconds": begin, "seconds": self.now - begin, "step_seconds": taken}]

    def _scatter(self) -> float:
        self.last = self.again * self.last + self.random.gauss(0.0, self.noise * math.sqrt(1 - self.again**2))
        outlier = 0.3 if self.outliers and self.random.random() < self.outliers else 0.0
        fan = self.noise * math.sin(2 * math.pi * self.now / self.period) if self.period else 0.0
        return self.last + outlier + fan

    @property
    def end(self) -> float:
        """Return the seconds of a step in the end."""
        return STEP_SECONDS * (1 + self.course(1e6))


def warming(tau: float, noise: float, seed: int, slower: float = 0.05) -> Machine:
    """Return a machine with one time constant; 0: it is flat."""
    return Machine(course=exponentials((slower, tau)) if tau else exponentials(), noise=noise, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A launch's result. `bias`: of the throughput against that in the end; `told`: the same with the drift that the launch
    tells taken off.

    `longer`: its time over that of a launch that never repeats anything.
    """

    bias: float
    told: float
    longer: float
    flat: bool | None
    warm_up: list[Ranks]


def launch(machine: Machine, cap_seconds: float = 300.0, more: Callable[[float], Ranks | None] | None = None) -> Launched:
    """Launch as phases.py does it: warm-up, then windows when the machine is steady."""
    series, warm_up = steady.Series(), []
    machine.block(5)
    while machine.now < WARM_UP_SECONDS:
        series.add(machine.block(5))

    def go_on(seconds: float) -> Ranks:
        return machine.block(max(1, math.ceil(seconds / STEP_SECONDS)))

    usual = machine.now + WINDOW_STEPS * STEP_SECONDS
    measured = steady.measure(series, cap_seconds, lambda: [machine.block(WINDOW_STEPS)], more or go_on, warm_up.append)
    ((window,),) = measured.windows
    over = machine.end * WINDOW_STEPS / window["seconds"]
    return Launched(
        bias=over - 1,
        told=over / (1 + (measured.drift or 0.0)) - 1,
        longer=machine.now / usual,
        flat=measured.flat,
        warm_up=warm_up,
    )
