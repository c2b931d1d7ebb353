"""Rows on what a report tells of all cells of a run at once: through the functions that make its tables."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeAlias

from proof.draws import Noise, gaussian, launches, outlying, scattering, two_levels, unequal
from proof.made import Made, index
from proof.row import Claim, Random, at_least, at_most, bias_within

from torchmatrix.analysis import best, scaling
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.column import Row
from torchmatrix.analysis.ratios import Ratios, ratios_of

DIFFERENT = ("FASTER", "SLOWER")
Counts: TypeAlias = tuple[int, int]
"""Launches of a cell: the fewest and the most."""
ALONE = (1.0, 0.96, 0.98, 1.01)
"""How fast each of four devices is."""
TOGETHER = 3.5
"""How fast all four are."""


def matrix(random: Random, noises: Sequence[Noise], jobs: int, stacks: int, counts: Counts, first: float = 1.0) -> CellIndex:
    """Equal cells; each job has one of the `noises` by chance. `first`: how fast the first cell of all is."""
    kinds = [noises[random.integers(len(noises))] for _ in range(jobs)]
    return index(
        Made(job=job, stack=stack, rates=launches(random, kinds[job], int(random.integers(counts[0], counts[1] + 1)),
                                                  first if job == stack == 0 else 1.0))
        for job in range(jobs) for stack in range(stacks)
    )  # fmt: skip


def any_false(noises: Sequence[Noise], jobs: int, stacks: int, counts: Counts, random: Random) -> bool:
    """Does a report of equal cells tell a difference: a ratio, or which stack is the fastest at a job?"""
    cells = matrix(random, noises, jobs, stacks, counts)
    found = ratios_of(cells)
    return any(row["verdict"] in DIFFERENT for row in found.speedups) or any(_leaves_out(cells, found, jobs))


def _leaves_out(cells: CellIndex, found: Ratios, jobs: int) -> Iterator[bool]:
    """Is a stack said not to be the fastest at a job?"""
    for job in range(jobs):
        alike = [cell.moments for cell in cells.every if cell["model"] == f"model{job}"]
        yield len(best.may_be_best(alike, found.significance.differs)) < len(alike)


def is_told(random: Random) -> bool:
    """The baseline of one job is 4 % slower: is the job's second stack called faster?"""
    found = ratios_of(matrix(random, [gaussian], 10, 4, (3, 3), first=0.96))
    return found.speedups[1]["verdict"] == "FASTER"


def scaled(random: Random, n: int, alone: Sequence[float], together: float) -> CellIndex:
    """Devices alone, all together, and what explains the loss."""
    every = tuple(range(len(alone)))
    cells = [Made(devices=(device,), rates=launches(random, gaussian, n, speed)) for device, speed in enumerate(alone)]
    for parallel, speed in (("ddp", together), ("independent", 1.05 * together), ("no-sync", 1.02 * together)):
        cells.append(Made(devices=every, parallel=parallel, rates=launches(random, gaussian, n, speed)))
    return index(cells)


def factor_covers(name: str, truth: float, n: int, random: Random) -> bool:
    (row,) = scaling.scaling_table(scaled(random, n, ALONE, TOGETHER))
    return _covers(row, name, truth)


def hetero_covers(alone: Sequence[float], random: Random) -> bool:
    (row,) = scaling.decomposition_table(scaled(random, 3, alone, TOGETHER))
    return _covers(row, "E_hetero", min(alone) / alone[0])


def hetero(alone: Sequence[float], random: Random) -> float:
    """The relative error of E_hetero."""
    (row,) = scaling.decomposition_table(scaled(random, 3, alone, TOGETHER))
    return float(row["E_hetero"]) * alone[0] / min(alone) - 1


def _covers(row: Row, name: str, truth: float) -> bool:
    return bool(row[f"{name}_low"] <= truth <= row[f"{name}_high"])


def any_impossible(random: Random) -> bool:
    """Of 24 jobs on a machine that scales perfectly."""
    jobs = [
        Made(job=job, devices=devices, rates=launches(random, gaussian, 3, len(devices)))
        for job in range(24) for devices in ((0,), (0, 1))
    ]  # fmt: skip
    return any(row["impossible"] for row in scaling.scaling_table(index(jobs)))


def any_weak(random: Random) -> bool:
    """Of 24 equal devices that scatter by 3 %."""
    alone = [Made(devices=(device,), rates=launches(random, scattering(0.03), 3)) for device in range(24)]
    return any(row["weak"] for row in scaling.devices_table(index(alone)))


NOISES: dict[str, Sequence[Noise]] = {
    "Gaussian": [gaussian], "unequal scatter": [unequal], "half of the jobs in two levels": [gaussian, two_levels(0.3, 0.003)],
    "all in two levels": [two_levels(0.3, 0.003)], "5 % of launches at -20 %": [outlying],
}  # fmt: skip
FACTORS = {"S": TOGETHER, "E": TOGETHER / 4, "s": (TOGETHER - 1) / 3, "E_star": TOGETHER / sum(ALONE)}

CLAIMS = (
    *(
        Claim(what=f"report: 40 equal cells, any false ratio or fastest: {name}, n = {n}", goal=at_most(0.05),
              trial=partial(any_false, noises, 10, 4, (n, n)), trials=1000)
        for name, noises in NOISES.items() for n in (2, 3, 5)
    ),
    Claim(what="report: 40 equal cells, any false ratio or fastest: Gaussian, n = 2 to 10", goal=at_most(0.05),
          trial=partial(any_false, [gaussian], 10, 4, (2, 10)), trials=1000),
    *(
        Claim(what=f"report: {jobs * stacks} equal cells, any false ratio or fastest: Gaussian, n = 3", goal=at_most(0.05),
              trial=partial(any_false, [gaussian], jobs, stacks, (3, 3)), trials=trials)
        for jobs, stacks, trials in ((1, 2, 4000), (2, 3, 2000), (100, 4, 300))
    ),
    Claim(what="report: 40 cells, the baseline of a job 4 % slower: its second stack is told, n = 3", goal=at_least(0.85),
          trial=is_told, trials=1000),
    *(
        Claim(what=f"scaling: cover of {name} on four devices, n = {n}", goal=at_least(0.93),
              trial=partial(factor_covers, name, truth, n), trials=3000)
        for name, truth in FACTORS.items() for n in (3, 5)
    ),
    *(
        Claim(what=f"scaling: cover of E_hetero, {name}, n = 3", goal=at_least(0.93), trial=partial(hetero_covers, alone),
              trials=3000)
        for name, alone in (("four devices that differ", ALONE), ("eight equal ones", (1.0,) * 8))
    ),
    *(
        Claim(what=f"scaling: bias of E_hetero, {name}, n = 3", goal=bias_within(0.001), trial=partial(hetero, alone),
              trials=3000)
        for name, alone in (("four devices that differ", ALONE), ("eight equal ones", (1.0,) * 8))
    ),
    Claim(what="scaling: any of 24 cells with a true E = 1 is called impossible, n = 3", goal=at_most(0.05),
          trial=any_impossible, trials=1500),
    Claim(what="scaling: any of 24 equal devices is called weak, n = 3", goal=at_most(0.05), trial=any_weak, trials=1500),
)  # fmt: skip
