"""How much a slow-down of 5 % falsifies a figure, simulated through the code that decides when a machine is steady.

Steps of 90 ms, 5 s of warm-up, a window of 11 s. A drift that is not over at the cap is told with the launch; `told` is the
bias that is left when it is taken off.
"""

from functools import partial
from statistics import mean

from drifting import Machine, launch
from proof.row import Row, RowFunction

LAUNCHES = 60
TAUS = (5.0, 15.0, 30.0, 60.0, 90.0, 150.0, 300.0)
NOISE = 0.003
GOAL = 0.005
LONGER = 1.10


def _slow_down(tau: float) -> Row:
    found = [launch(Machine(tau=tau, noise=NOISE, seed=seed)) for seed in range(LAUNCHES)]
    bias, told = mean(one.bias for one in found), mean(one.told for one in found)
    is_told = abs(bias) > GOAL
    left = f": of {100 * bias:+.2f} %, what launches don't tell" if is_told else ""
    return Row(
        what=f"steady: bias of a slow-down of 5 % with tau = {tau:g} s{left}",
        found=f"{100 * (told if is_told else bias):+.2f} %",
        goal=f"<= {100 * GOAL:g} %",
        holds=min(abs(bias), abs(told)) <= GOAL,
    )


def _flat() -> Row:
    longer = mean(launch(Machine(tau=0.0, noise=NOISE, seed=seed)).longer for seed in range(LAUNCHES))
    return Row(
        what="steady: time of a machine that is flat",
        found=f"x {longer:.3f}",
        goal=f"<= x {LONGER:.2f}",
        holds=longer <= LONGER,
    )


ROWS: tuple[RowFunction, ...] = (*(partial(_slow_down, tau) for tau in TAUS), _flat)
