"""How much runs of one machine differ although nothing changed: what two runs' launches alone can't tell."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from torchmatrix.analysis import facts_cache
from torchmatrix.analysis.cells import Cell, Family
from torchmatrix.analysis.intervals import learned_prior, moments, student
from torchmatrix.analysis.metrics import THROUGHPUT, Metric
from torchmatrix.analysis.pairs import Pair
from torchmatrix.analysis.run_summary import RunSummary
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results, RunFolder, host_of

ENOUGH_RUNS = 3
"""With fewer other runs, how much runs differ is unknown."""
OWN_FROM = 6
"""From so many other runs on a cell has a variance of its own, drawn to that of all cells."""
MOST_RUNS = 60
USUAL_SCATTER = 0.01
"""From run to run; assumed where it is unknown, to say how large a difference must be. Our own decision."""


Key: TypeAlias = tuple[str, str]
"""A cell, and what it did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BetweenRuns:
    """Variances of the logarithm of a cell's figure: `total`, as a run shows it, and what of this its `launches` explain. Two
    runs, `lag` apart, differ by twice the total.

    `runs`: of how many. `cells`: the same of cells that have OWN_FROM runs, by cell and what it did; the rest is of all cells.
    """

    total: float
    launches: float
    freedom: float
    runs: int
    lag: int = 1
    cells: "Mapping[Key, BetweenRuns]" = field(default_factory=dict, repr=False)

    @property
    def scatter(self) -> float:
        """The standard deviation from run to run, without that of the launches."""
        return math.sqrt(self.total - self.launches)

    @property
    def variance_of_both(self) -> float:
        """What two runs add to the variance of a ratio, without their launches."""
        return 2 * (self.total - self.launches)

    def of(self, cell: Cell) -> "BetweenRuns":
        """What is known of this cell, else of all."""
        return self.cells.get((cell["cell"], cell.last["work"]), self)

    def as_record(self) -> dict[str, float]:
        """For --json: of all cells."""
        names = ("total", "launches", "freedom", "runs", "lag", "scatter")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A cell in one run: its mean logarithm, and its squared error by the launches (NaN: of one). `place`: of the run."""

    log: float
    squared_error: float
    place: int


def of_history(results: Results, a: Sequence[Launch], b: Sequence[Launch], metric: Metric = THROUGHPUT) -> BetweenRuns | None:
    """Of a metric, from other runs of the machine that measured both sides; None where it isn't one, or has too few runs."""
    every = results.runs()
    own = [_runs_of(side, every) for side in (a, b)]
    homes = {host_of(run) for runs in own for run in runs}
    if len(homes) != 1 or not differ(a, b):
        return None
    (home,) = homes
    measured = {run.path for runs in own for run in runs}
    others = [run for run in every if host_of(run) == home and run.path not in measured]
    places = [place for place, run in enumerate(run for run in every if host_of(run) == home) if run.path in measured]
    lag = max(places) - min(places)
    return estimated(figures(facts_cache.read(results, others[-MOST_RUNS:]), metric), max(1, lag))


def _runs_of(launches: Iterable[Launch], every: Sequence[RunFolder]) -> list[RunFolder]:
    """Those that they belong to, by their ids; of a folder that was renamed since, by where they lie."""
    ids, folders = set[str](), set[Path]()
    for launch in launches:
        ids.add(launch.run)
        folders.update(launch.path.absolute().parents)
    return [run for run in every if run.id in ids or run.path in folders]


def families(results: Results, *sides: Sequence[Launch]) -> dict[str, Family]:
    """All cells of the runs that these launches belong to, by the runs' ids; of an id that several machines have, none."""
    every = results.runs()
    own = list({run.path: run for side in sides for run in _runs_of(side, every)}.values())
    ids = Counter(run.id for run in own)
    found = facts_cache.read(results, [run for run in own if ids[run.id] == 1])
    return {run.id: run.cells.family for run in found}


def differ(a: Iterable[Launch], b: Iterable[Launch]) -> bool:
    """Do the two sides share no run?"""
    return not {launch.run for launch in a} & {launch.run for launch in b}


def figures(runs: Iterable[RunSummary], metric: Metric = THROUGHPUT) -> dict[Key, list[Figure]]:
    """By cell and what it did its figures, run by run in their order."""
    found: dict[Key, list[Figure]] = {}
    for place, run in enumerate(runs):
        rates: dict[Key, list[float]] = {}
        for cell in run.cells.every:
            for row in cell.ok:
                if not math.isnan(value := row[metric.column]):
                    rates.setdefault((row["cell"], row["work"]), []).append(value)
        for key, own in rates.items():
            found.setdefault(key, []).append(figure(own, place))
    return found


def figure(rates: Sequence[float], place: int) -> Figure:
    """Of a cell whose ok launches in a run had these figures."""
    if len(rates) < 2:
        return Figure(log=math.log(rates[0]), squared_error=math.nan, place=place)
    found = moments(rates)
    return Figure(log=found.log, squared_error=found.squared_error, place=place)


def estimated(series: Mapping[Key, Sequence[Figure]], lag: int = 1) -> BetweenRuns | None:
    """Half the mean square of successive differences, less the launches' part: what a lasting change of level hardly moves.

    J. von Neumann and others, Annals of Mathematical Statistics 12 (1941), 153-162; its degrees of freedom are two thirds of
    the differences. Cells share their runs, so that they add none. Cells with OWN_FROM runs have their own, drawn to that of
    all of these as in moderated.py. Runs `lag` apart differ by more where runs resemble the one before: by what all cells
    together show at this distance (a variogram: G. Matheron, Economic Geology 58 (1963), 1246-1266), and beyond the longest
    one that is known, in proportion to it.
    """
    longest = max(map(len, series.values()), default=0)
    if longest < ENOUGH_RUNS:
        return None
    squares = {
        key: [(b.log - a.log) ** 2 / 2 for a, b in itertools.pairwise(own)] for key, own in series.items() if len(own) > 1
    }
    errors = [one.squared_error for own in series.values() for one in own if not math.isnan(one.squared_error)]
    launches = math.fsum(errors) / len(errors) if errors else 0.0
    pooled = math.fsum(math.fsum(own) for own in squares.values()) / sum(map(len, squares.values()))
    own = {key: math.fsum(of) / len(of) for key, of in squares.items() if len(of) + 1 >= OWN_FROM}
    freedoms = {key: 2 * len(squares[key]) / 3 for key in own}
    prior = learned_prior(list(own.values()), list(freedoms.values()))
    drawn = {key: prior.moderated(variance, freedoms[key]) for key, variance in own.items()}
    farther = _farther(series, {key: drawn.get(key, pooled) for key in squares}, lag)

    def known(variance: float, freedom: float, runs: int) -> BetweenRuns:
        total = farther * variance
        return BetweenRuns(
            launches=min(launches, total), total=total, freedom=max(1.0, freedom / farther), runs=runs, lag=lag
        )  # fmt: skip

    cells = {key: known(variance, freedoms[key], len(series[key])) for key, variance in drawn.items()}
    return replace(known(pooled, 2 * (longest - 1) / 3, longest), cells=cells)


FEWEST_APART = 3
"""So many pairs of runs must be as far apart for a distance to be known."""


def _farther(series: Mapping[Key, Sequence[Figure]], near: Mapping[Key, float], lag: int) -> float:
    """By which factor runs so far apart vary more than neighbours, by all cells, each in its own scatter; at least 1.

    Of all distances above half of it, since each alone is known badly.
    """
    apart: dict[int, list[float]] = {}
    of_runs: dict[int, set[int]] = {}
    for key, own in series.items():
        for a, b in itertools.combinations(own, 2):
            if near.get(key) and b.place - a.place <= lag:
                apart.setdefault(b.place - a.place, []).append((b.log - a.log) ** 2 / 2 / near[key])
                of_runs.setdefault(b.place - a.place, set()).add(a.place)
    known = {far: math.fsum(of) / len(of) for far, of in sorted(apart.items()) if len(of_runs[far]) >= FEWEST_APART}
    if not known:
        return 1.0
    longest = max(known)
    at_it = [value for far, value in known.items() if 2 * far > min(lag, longest)]
    most = max(1.0, math.fsum(at_it) / len(at_it))
    return most if longest >= lag else 1 + (most - 1) * lag / longest


def widened(pair: Pair, known: BetweenRuns) -> Pair:
    """A pair of two runs with the variance of both runs.

    Launches that scatter more, or are fewer, than those of the other runs add the rest.

    Degrees of freedom: F. E. Satterthwaite, Biometrics Bulletin 2 (1946), 110-114.
    """
    runs, more = 2 * known.total, max(0.0, pair.error**2 - 2 * known.launches)
    if math.isnan(pair.error) or runs + more == 0.0:
        return pair
    freedom = (runs + more) ** 2 / (runs**2 / known.freedom + more**2 / pair.freedom)
    return replace(pair, error=math.sqrt(runs + more), freedom=freedom, variance=math.nan)


def needed(low: float, high: float) -> float:
    """How far from 1 a ratio of two runs with these limits must be to be told, if runs differ by USUAL_SCATTER."""
    by_launches = math.log(high / low) / 2
    return math.expm1(math.hypot(by_launches, student(math.inf, 0.975) * math.sqrt(2) * USUAL_SCATTER))
