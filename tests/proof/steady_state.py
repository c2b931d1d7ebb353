"""How much a slow-down of 5 % falsifies a figure, simulated through the code that decides when a machine is steady.

Steps of 90 ms, 5 s of warm-up, a window of 11 s. A drift that is not over at the cap is told with the launch; `told` is the
bias that is left when it is taken off.
"""

from dataclasses import dataclass
from statistics import mean

from drifting import Machine, launch

LAUNCHES = 60
TAUS = (5.0, 15.0, 30.0, 60.0, 90.0, 150.0, 300.0)
NOISE = 0.003
GOAL = 0.005
LONGER = 1.10


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the proof: what, its figure beside its goal, and whether it is met."""

    what: str
    figure: str
    goal: str
    met: bool


def rows(launches: int = LAUNCHES, noise: float = NOISE) -> list[Row]:
    """The bias for each time constant, and what a flat machine loses."""
    return [*(_slow_down(tau, launches, noise) for tau in TAUS), _flat(launches, noise)]


def _slow_down(tau: float, launches: int, noise: float) -> Row:
    found = [launch(Machine(tau=tau, noise=noise, seed=seed)) for seed in range(launches)]
    bias, told = mean(one.bias for one in found), mean(one.told for one in found)
    said = f"{bias:+.2%}" if abs(bias) <= GOAL else f"{bias:+.2%}, told: {told:+.2%} left"
    return Row(
        what=f"steady: bias of a slow-down with tau = {tau:g} s",
        figure=said,
        goal=f"within {GOAL:.1%}, or told so closely",
        met=min(abs(bias), abs(told)) <= GOAL,
    )


def _flat(launches: int, noise: float) -> Row:
    longer = mean(launch(Machine(tau=0.0, noise=noise, seed=seed)).longer for seed in range(launches))
    return Row(
        what="steady: time of a machine that is flat",
        figure=f"x {longer:.3f}",
        goal=f"at most x {LONGER:.2f}",
        met=longer <= LONGER,
    )
