"""Rows on acceptance: how often a healthy server fails, and a weak device is found, by the verdicts themselves."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from proof.draws import Noise, scattering, two_levels
from proof.row import Claim, Numbers, Random, at_least, at_most
from torchmatrix.analysis import intervals
from torchmatrix_plugins.accept import judging

OPERATIONS, DEVICES, MACHINES, LAUNCHES = 8, 8, 8, 5
WEAK = 5
"""The device that is slow."""
quiet = scattering(0.003)


def verdicts(
    random: Random, between: float, noise: Noise, by: str, slow: float, drift: float = 0.0, machines: int = MACHINES
) -> list[list[str]]:
    """Return the verdicts of a server's devices by operation: its siblings judge it, or as many devices of other machines.

    `between`: the scatter of devices. The last device but two is slower by `slow`, at the first operation.
    """
    own = random.normal(0.0, between, (OPERATIONS, DEVICES))
    own[0, WEAK] += np.log(1 - slow)
    launches = [[_launches(random, value, noise, drift) for value in row] for row in own]
    prior = intervals.learned_of([launch for row in launches for launch in row])
    figures = [[intervals.moments(launch, prior) for launch in row] for row in launches]
    if by == judging.SIBLINGS:
        known = judging.prior_of(figures)
        references = [judging.siblings(row, known) for row in figures]
    else:
        others = random.normal(0.0, between, (OPERATIONS, machines))
        groups = [[intervals.moments(_launches(random, value, noise, drift), prior) for value in row] for row in others]
        known = judging.prior_of(groups)
        references = [[judging.among(group, judging.BASELINE, known)] * DEVICES for group in groups]
    checks = OPERATIONS * DEVICES
    return [
        [judging.judge(figure, 0.0, reference, checks).verdict for figure, reference in zip(*rows, strict=True)]
        for rows in zip(figures, references, strict=True)
    ]


def _launches(random: Random, value: float, noise: Noise, drift: float) -> Sequence[float]:
    rates: Numbers = np.exp(value) * noise(random, LAUNCHES) * (1 - drift) ** np.arange(LAUNCHES)
    return [float(rate) for rate in rates]


def fails(between: float, noise: Noise, by: str, drift: float, random: Random, machines: int = MACHINES) -> bool:
    """Return whether a healthy server fails at any check."""
    return any(judging.FAIL in row for row in verdicts(random, between, noise, by, 0.0, drift, machines))


def passes(between: float, noise: Noise, by: str, random: Random) -> list[bool]:
    """Return of each check of a healthy server whether it passes."""
    return [verdict == judging.PASS for row in verdicts(random, between, noise, by, 0.0) for verdict in row]


def found(between: float, slow: float, by: str, random: Random) -> bool:
    """Return whether a device that is slow at one operation fails there."""
    return verdicts(random, between, quiet, by, slow)[0][WEAK] == judging.FAIL


def of_pairs(between: float, slow: float, random: Random) -> list[list[str]]:
    """Return the verdicts of each direction between a server's GPUs, those of the weak one first, then the others'. `between`:
    the scatter of GPUs, and of directions.
    """
    pairs = [(a, b) for a in range(DEVICES) for b in range(DEVICES) if a != b]
    ends, own = random.normal(0.0, between / 2, DEVICES), random.normal(0.0, between, len(pairs))
    ends[WEAK] += np.log(1 - slow)
    made = [_launches(random, ends[a] + ends[b] + own[number], quiet, 0.0)[:3] for number, (a, b) in enumerate(pairs)]
    prior = intervals.learned_of(made)
    figures = [intervals.moments(launches, prior) for launches in made]
    references = judging.siblings(figures, counts=judging.apart([tuple(map(str, pair)) for pair in pairs]))
    verdicts = [judging.judge(*each, len(pairs)).verdict for each in zip(figures, [0.0] * len(pairs), references, strict=True)]
    return [[v for v, pair in zip(verdicts, pairs, strict=True) if (WEAK in pair) == is_weak] for is_weak in (True, False)]


def pairs_fail(between: float, random: Random) -> bool:
    """Return whether a direction of healthy GPUs fails."""
    return any(judging.FAIL in part for part in of_pairs(between, 0.0, random))


def pairs_found(between: float, slow: float, random: Random) -> bool:
    """Return whether most directions of a GPU with a slow link fail, and none of the others."""
    weak, others = of_pairs(between, slow, random)
    return 2 * weak.count(judging.FAIL) > len(weak) and judging.FAIL not in others


KINDS = (judging.SIBLINGS, judging.BASELINE)
FOUND = {0.005: 0.05, 0.01: 0.09, 0.02: 0.16}
"""By how much a device must be slow to be found in 95 of 100, by how much healthy ones scatter."""
CLAIMS = (
    *(
        Claim(what=f"acceptance: a healthy server of 64 checks fails, by {by}: {name}", goal=at_most(0.01),
              trial=partial(fails, between, noise, by, drift), trials=400)
        for by in KINDS
        for name, between, noise, drift in (
            *((f"devices scatter by {100 * between:g} %", between, quiet, 0.0) for between in FOUND),
            ("1 %, launches in two levels", 0.01, two_levels(0.3, 0.002), 0.0),
            ("1 %, launches lose 1 % each", 0.01, quiet, 0.01),
        )
    ),
    Claim(what="acceptance: a healthy server of 64 checks fails, by a baseline of 100 machines: 2 % of scatter",
          goal=at_most(0.01), trial=partial(fails, 0.02, quiet, judging.BASELINE, 0.0, machines=100), trials=400),
    *(
        Claim(what=f"acceptance: checks of a healthy server that pass, by {by}: devices scatter by {100 * between:g} %",
              goal=at_least(0.98), trial=partial(passes, between, quiet, by), trials=100)
        for by in KINDS for between in FOUND
    ),
    *(
        Claim(what=f"acceptance: a device slow by {100 * slow:g} % at one check fails, by {by}: {100 * between:g} % of scatter",
              goal=at_least(0.95), trial=partial(found, between, slow, by), trials=300)
        for by in KINDS for between, slow in FOUND.items()
    ),
    *(
        Claim(what=f"acceptance: a healthy server of 56 directions between 8 GPUs fails: they scatter by {100 * between:g} %",
              goal=at_most(0.01), trial=partial(pairs_fail, between), trials=400)
        for between in FOUND
    ),
    *(
        Claim(what=f"acceptance: a GPU whose links lose {100 * slow:g} % is told of 8 in pairs: {100 * between:g} % of scatter",
              goal=at_least(0.95), trial=partial(pairs_found, between, slow), trials=300)
        for between, slow in FOUND.items()
    ),
)  # fmt: skip
