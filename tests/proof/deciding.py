"""Rows on runs that make rounds until their comparisons are decided: by the rule itself, and the tables of the report."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from msgspec import structs

from proof.draws import PERCENT, TRUTH, Noise, gaussian, outlying, scattering, two_levels, unequal
from proof.made import Made, row
from proof.row import Claim, Goal, Numbers, Random, Row, at_least, at_most
from torchmatrix.analysis import best
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.speedups import ratios_of, undecided
from torchmatrix.matrix.method import DECIDING, FEWEST_TO_DECIDE

MOST = FEWEST_TO_DECIDE + DECIDING
DIFFERENT = ("FASTER", "SLOWER")
ALIKE = (0.0,) * 20
FEW = (0.0,) * 4 + (0.03, 0.05, 0.1, 0.1, 0.2, 0.3, 0.3, 0.4, 0.5, 0.5, 0.7, 0.8, 1.0, 1.0, 1.5, 2.0)
"""By how much a job's second stack is faster: mostly by so much as releases, precisions and torch.compile bring."""
MANY = (0.0,) * 6 + (0.02, 0.02, 0.03, 0.03, 0.04, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""Many differences of a few percent."""
TO_BE_TOLD = 0.015


def run(random: Random, noise: Noise, gains: Sequence[float], further: int, first: int, loss: float = 0.0) -> CellIndex:
    """Return the index of a run: `first` rounds of all cells, then at most so many `further` ones of those that aren't decided.

    `loss`: what the machine loses from each round to the next.
    """
    cells = [Made(job=job, stack=stack, rates=()) for job in range(len(gains)) for stack in (0, 1)]
    rates = [TRUTH * (1 + gains[cell.job] * cell.stack) * noise(random, first + further) for cell in cells]
    rows = {row(cell).cell: row(cell) for cell in cells}
    drawn: Mapping[str, Numbers] = dict(zip(rows, rates, strict=True))
    made = []
    for number in range(1, first + further + 1):
        going = rows.keys() if number <= first else undecided(CellIndex(made), first + further)
        if not going:
            break
        for name in going:
            rate = float(drawn[name][number - 1]) * (1 - loss) ** number
            made.append(structs.replace(rows[name], round=number, throughput=rate, further=further or None))
    return CellIndex(sorted(made, key=lambda one: (list(rows).index(one.cell), one.round)))


def any_false(noise: Noise, loss: float, random: Random) -> bool:
    """Return whether a report of equal cells tells a difference: a ratio, or which stack is the fastest at a job."""
    cells = run(random, noise, ALIKE, DECIDING, FEWEST_TO_DECIDE, loss)
    ratios = ratios_of(cells)
    jobs = ([cell for cell in cells.every if cell.row.model == f"model{job}"] for job in range(len(ALIKE)))
    left_out = any(len(best.may_be_best(job, ratios.significance.differs)) < len(job) for job in jobs)
    return left_out or any(ratio.verdict in DIFFERENT for ratio in ratios.speedups)


def told(gains: Sequence[float], noise: Noise, further: int, first: int, random: Random) -> list[bool]:
    """Return for each difference worth telling whether the report tells it."""
    verdict = {ratio.cell.row.workload: ratio.verdict for ratio in ratios_of(run(random, noise, gains, further, first)).speedups
               if ratio.cell.row.stack == "stack1"}  # fmt: skip
    return [verdict[f"model{job}-train-fp32-b4"] == "FASTER" for job, gain in enumerate(gains) if gain > TO_BE_TOLD]


def gained(gains: Sequence[float], noise: Noise, random: Random) -> float:
    """Return what share of the differences more (or, negative, fewer) is told than by five launches of each cell."""
    adaptive, fixed = told(gains, noise, DECIDING, FEWEST_TO_DECIDE, random), told(gains, noise, 0, 5, random)
    return float(np.mean(adaptive) - np.mean(fixed))


def false_share(gains: Sequence[float], noise: Noise, random: Random) -> float:
    """Return which share of the reported differences and samenesses is false."""
    rows = ratios_of(run(random, noise, gains, DECIDING, FEWEST_TO_DECIDE)).speedups
    gain_of = {f"model{job}-train-fp32-b4": gain for job, gain in enumerate(gains)}
    found = [(row.verdict, gain_of[row.cell.row.workload]) for row in rows if row.cell.row.stack == "stack1"]
    wrong = [
        verdict == "SLOWER" or ((verdict == "FASTER") == (gain == 0.0) and (verdict == "FASTER" or gain > 0.02))
        for verdict, gain in found if verdict in (*DIFFERENT, "SAME")
    ]  # fmt: skip
    return float(np.mean(wrong)) if wrong else 0.0


def covers(noise: Noise, random: Random) -> list[bool]:
    """Return for each ratio of MANY whether its interval covers the truth, whenever its rounds ended."""
    rows = ratios_of(run(random, noise, MANY, DECIDING, FEWEST_TO_DECIDE)).speedups
    truth = {f"model{job}-train-fp32-b4": 1 + gain for job, gain in enumerate(MANY)}
    of_stack = [(ratio.pair.interval, truth[ratio.cell.row.workload]) for ratio in rows if ratio.cell.row.stack == "stack1"]
    return [limits.low <= true <= limits.high for limits, true in of_stack]


def figure_covers(noise: Noise, random: Random) -> list[bool]:
    """Return for each figure whether its interval covers the truth, whenever its rounds ended."""
    cells = run(random, noise, MANY, DECIDING, FEWEST_TO_DECIDE).every
    figures = [(cell.estimate(), TRUTH * (1 + MANY[int(cell.row.model[5:])] * (cell.row.stack == "stack1"))) for cell in cells]
    return [figure.low <= truth <= figure.high for figure, truth in figures]


def launches(gains: Sequence[float], noise: Noise, random: Random) -> float:
    """Return the mean number of launches of a cell."""
    return float(np.mean([len(cell.ok) for cell in run(random, noise, gains, DECIDING, FEWEST_TO_DECIDE).every]))


def mean_between(least: float, most: float, scale: float = 1.0, unit: str = "") -> Goal:
    """Return the goal that the mean of the outcomes must lie between two numbers."""

    def judged(what: str, outcomes: Numbers) -> Row:
        mean, margin = float(outcomes.mean()), 3 * float(outcomes.std(ddof=1)) / math.sqrt(len(outcomes))
        return Row(
            what=what, found=f"{scale * mean:.2f}{unit}",
            goal=f"{scale * least:g} to {scale * most:g} ± {scale * margin:.2f}{unit} of {len(outcomes)}",
            holds=least - margin <= mean <= most + margin,
        )  # fmt: skip

    return judged


NOISES: dict[str, Noise] = {"1 %": gaussian, "0.3 to 3 %": unequal, "3 %": scattering(3 * PERCENT)}
CLAIMS = (
    *(
        Claim(what=f"until decided: 40 equal cells, any false ratio or fastest: {name}", goal=at_most(0.05),
              trial=partial(any_false, noise, loss), trials=400)
        for name, noise, loss in (
            *((f"scatter of {name}", noise, 0.0) for name, noise in NOISES.items()),
            ("5 % of launches at -20 %", outlying, 0.0), ("all in two levels", two_levels(0.3, 0.003), 0.0),
            ("a machine that loses 1 % from round to round", gaussian, 0.01),
        )
    ),
    *(
        Claim(what=f"until decided: told, beside five launches each: {mix} differences, scatter of {name}",
              goal=mean_between(-0.03, 1.0, 100, " %"), trial=partial(gained, gains, noise), trials=200)
        for mix, gains in (("few small", FEW), ("many small", MANY)) for name, noise in NOISES.items()
    ),
    *(
        Claim(what=f"until decided: launches of a cell: {mix} differences, scatter of {name}", goal=mean_between(3.0, 4.2),
              trial=partial(launches, gains, noise), trials=200)
        for mix, gains in (("few small", FEW), ("many small", MANY)) for name, noise in NOISES.items()
    ),
    *(
        Claim(what=f"until decided: cover of {what}, scatter of {name}", goal=goal, trial=partial(trial, noise), trials=200)
        for name, noise in NOISES.items()
        for what, goal, trial in (("ratios", at_least(0.95), covers), ("figures", at_least(0.94), figure_covers))
    ),
    *(
        Claim(what=f"until decided: false share of what is told, scatter of {name}", goal=mean_between(0.0, 0.05, 100, " %"),
              trial=partial(false_share, MANY, noise), trials=200)
        for name, noise in NOISES.items()
    ),
)  # fmt: skip
