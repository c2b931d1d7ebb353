"""How much a slow-down of 5 % falsifies a figure, simulated through the code that decides when a machine is steady.

Steps of 90 ms, 5 s of warm-up, a window of 11 s. A drift that is not over at the cap is told with the launch; `told` is the
bias that is left when it is taken off.
"""

from functools import partial
from statistics import mean

from drifting import Machine, exponentials, launch, warming
from proof.row import Row, RowFunction, at_most

LAUNCHES = 60
TAUS = (5.0, 15.0, 30.0, 60.0, 90.0, 150.0, 300.0)
NOISE = 0.003
GOAL = 0.005
LONGER = 1.10
CALLED_FLAT, FALSE = 0.05, 0.02


def _slow_down(tau: float) -> Row:
    found = [launch(warming(tau=tau, noise=NOISE, seed=seed)) for seed in range(LAUNCHES)]
    bias, told = mean(one.bias for one in found), mean(one.told for one in found)
    is_told = abs(bias) > GOAL
    left = f": of {100 * bias:+.2f} %, what launches don't tell" if is_told else ""
    return Row(
        what=f"steady: bias of a slow-down of 5 % with tau = {tau:g} s{left}",
        found=f"{100 * (told if is_told else bias):+.2f} %",
        goal=f"<= {100 * GOAL:g} %",
        holds=min(abs(bias), abs(told)) <= GOAL,
    )


def _two(fast: tuple[float, float], slow: tuple[float, float]) -> Row:
    """Of a fast drift that hides a slow one: by how much a figure that is called flat is too high, at most."""
    course = exponentials(fast, slow)
    found = [launch(Machine(course=course, noise=NOISE, seed=seed)) for seed in range(LAUNCHES)]
    return at_most(
        f"steady: called flat, > 1 % too high: {100 * fast[0]:g} % with {fast[1]:g} s, {100 * slow[0]:g} % with {slow[1]:g} s",
        mean(one.flat is True and one.bias > 0.01 for one in found),
        CALLED_FLAT,
    )


def _false(what: str, **kind: float) -> Row:
    found = [launch(Machine(course=exponentials(), noise=NOISE, seed=seed, **kind)) for seed in range(LAUNCHES)]
    return at_most(f"steady: a flat machine is called not flat, {what}", mean(one.flat is False for one in found), FALSE)


def _flat() -> Row:
    longer = mean(launch(warming(tau=0.0, noise=NOISE, seed=seed)).longer for seed in range(LAUNCHES))
    return Row(
        what="steady: time of a machine that is flat",
        found=f"x {longer:.3f}",
        goal=f"<= x {LONGER:.2f}",
        holds=longer <= LONGER,
    )


ROWS: tuple[RowFunction, ...] = (
    *(partial(_slow_down, tau) for tau in TAUS),
    partial(_two, (0.03, 5.0), (0.04, 200.0)),
    partial(_two, (0.025, 8.0), (0.05, 280.0)),
    _flat,
    partial(_false, "noise of 0.3 %"),
    partial(_false, "noise that resembles that of the step before by 0.7", again=0.7),
    partial(_false, "1 step in 250 a third longer", outliers=0.004),
    partial(_false, "a fan of 20 s", period=20.0),
)
