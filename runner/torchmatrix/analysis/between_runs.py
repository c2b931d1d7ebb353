"""How much runs of one machine differ although nothing changed: two runs' launches alone can't show this."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.intervals import learned_prior, moments, student
from torchmatrix.analysis.metrics import THROUGHPUT, Metric
from torchmatrix.analysis.pairs import Pair
from torchmatrix.analysis.verdicts import mean_of_pairs
from torchmatrix.facts.launch import Launch

ENOUGH_RUNS = 3
"""With fewer other runs, the difference between runs is unknown."""
OWN_FROM = 6
"""From this many other runs on a cell has its own variance, drawn towards that of all cells."""
MOST_RUNS = 60
USUAL_SCATTER = 0.01
"""The scatter from run to run, assumed where it is unknown to tell how large a difference must be. Our own decision."""


Key: TypeAlias = tuple[str, str]
"""A cell, and its work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BetweenRuns:
    """Variances of the logarithm of a cell's figure: `total`, as a run shows it, and the part that its `launches` explain.

    Two runs, `lag` apart, differ by twice the total. `runs`: the number of runs. `cells`: the same for cells that have OWN_FROM
    runs, by cell and work; the rest is of all cells.
    """

    total: float
    launches: float
    freedom: float
    runs: int
    lag: int = 1
    cells: "Mapping[Key, BetweenRuns]" = field(default_factory=dict, repr=False)

    @property
    def scatter(self) -> float:
        """Return the standard deviation from run to run, without that of the launches."""
        return math.sqrt(self.total - self.launches)

    @property
    def variance_of_both(self) -> float:
        """Return what two runs add to the variance of a ratio, without their launches."""
        return 2 * (self.total - self.launches)

    def of(self, cell: Cell) -> "BetweenRuns":
        """Return the variances of this cell, else of all."""
        return self.cells.get((cell.row.cell, cell.last.work), self)

    def as_record(self) -> dict[str, float]:
        """Return the variances of all cells for --json."""
        names = ("total", "launches", "freedom", "runs", "lag", "scatter")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A cell in one run: its mean logarithm, and its squared error by the launches (NaN for one launch). `place`: the run's."""

    log: float
    squared_error: float
    place: int


def differ(a: Iterable[Launch], b: Iterable[Launch]) -> bool:
    """Check whether the two sides share no run."""
    return not {launch.run for launch in a} & {launch.run for launch in b}


def figures(runs: Iterable[CellIndex], metric: Metric = THROUGHPUT) -> dict[Key, list[Figure]]:
    """Return the figures of each cell and work, run by run in their order."""
    series: dict[Key, list[Figure]] = {}
    for place, cells in enumerate(runs):
        rates: dict[Key, list[float]] = {}
        for cell in cells.every:
            for row in cell.ok:
                if not math.isnan(value := row.value(metric.column)):
                    rates.setdefault((row.cell, row.work), []).append(value)
        for key, values in rates.items():
            series.setdefault(key, []).append(figure(values, place))
    return series


def figure(rates: Sequence[float], place: int) -> Figure:
    """Return the figure of a cell whose ok launches in a run had these rates."""
    if len(rates) < 2:
        return Figure(log=math.log(rates[0]), squared_error=math.nan, place=place)
    of_launches = moments(rates)
    return Figure(log=of_launches.log, squared_error=of_launches.squared_error, place=place)


def estimated(series: Mapping[Key, Sequence[Figure]], lag: int = 1) -> BetweenRuns | None:
    """Estimate how runs differ: half the mean square of successive differences, less the launches' part.

    A lasting change of level hardly moves it (J. von Neumann and others, Annals of Mathematical Statistics 12 (1941), 153-162);
    its degrees of freedom are two thirds of the differences. Cells share their runs, so that they add none. Cells with OWN_FROM
    runs have their own, moderated as in intervals.py. Runs `lag` apart differ by more where runs resemble the one before: by
    what all cells together show at this distance (a variogram: G. Matheron, Economic Geology 58 (1963), 1246-1266), and beyond
    the longest one that is known, in proportion to it.
    """
    longest = max(map(len, series.values()), default=0)
    if longest < ENOUGH_RUNS:
        return None
    squares = {
        key: [(b.log - a.log) ** 2 / 2 for a, b in itertools.pairwise(cell)] for key, cell in series.items() if len(cell) > 1
    }
    errors = [figure.squared_error for cell in series.values() for figure in cell if not math.isnan(figure.squared_error)]
    launches = math.fsum(errors) / len(errors) if errors else 0.0
    pooled = math.fsum(math.fsum(terms) for terms in squares.values()) / sum(map(len, squares.values()))
    by_cell = {key: math.fsum(terms) / len(terms) for key, terms in squares.items() if len(terms) + 1 >= OWN_FROM}
    freedoms = {key: 2 * len(squares[key]) / 3 for key in by_cell}
    prior = learned_prior(list(by_cell.values()), list(freedoms.values()))
    moderated = {key: prior.moderated(variance, freedoms[key]) for key, variance in by_cell.items()}
    factor = _growth_over_lag(series, {key: moderated.get(key, pooled) for key in squares}, lag)

    def variances(variance: float, freedom: float, runs: int) -> BetweenRuns:
        total = factor * variance
        return BetweenRuns(
            launches=min(launches, total), total=total, freedom=max(1.0, freedom / factor), runs=runs, lag=lag
        )  # fmt: skip

    cells = {key: variances(variance, freedoms[key], len(series[key])) for key, variance in moderated.items()}
    return replace(variances(pooled, 2 * (longest - 1) / 3, longest), cells=cells)


FEWEST_APART = 3
"""The fewest pairs of runs at a distance with which its variance is known."""


def _growth_over_lag(series: Mapping[Key, Sequence[Figure]], near: Mapping[Key, float], lag: int) -> float:
    """Return by which factor runs `lag` apart vary more than neighbours, by all cells, each in its own scatter; at least 1.

    All distances above half of it are used, since each alone is known badly.
    """
    apart: dict[int, list[float]] = {}
    of_runs: dict[int, set[int]] = {}
    for key, of_cell in series.items():
        for a, b in itertools.combinations(of_cell, 2):
            if near.get(key) and b.place - a.place <= lag:
                apart.setdefault(b.place - a.place, []).append((b.log - a.log) ** 2 / 2 / near[key])
                of_runs.setdefault(b.place - a.place, set()).add(a.place)
    by_distance = {
        distance: math.fsum(terms) / len(terms)
        for distance, terms in sorted(apart.items())
        if len(of_runs[distance]) >= FEWEST_APART
    }
    if not by_distance:
        return 1.0
    longest = max(by_distance)
    at_it = [value for distance, value in by_distance.items() if 2 * distance > min(lag, longest)]
    most = max(1.0, math.fsum(at_it) / len(at_it))
    return most if longest >= lag else 1 + (most - 1) * lag / longest


def widened(pair: Pair, variances: BetweenRuns) -> Pair:
    """Add the variance of both runs to a pair of two runs.

    Launches that scatter more, or are fewer, than those of the other runs add the rest.

    Degrees of freedom: F. E. Satterthwaite, Biometrics Bulletin 2 (1946), 110-114.
    """
    runs, more = 2 * variances.total, max(0.0, pair.error**2 - 2 * variances.launches)
    if math.isnan(pair.error) or runs + more == 0.0:
        return pair
    freedom = (runs + more) ** 2 / (runs**2 / variances.freedom + more**2 / pair.freedom)
    return replace(pair, error=math.sqrt(runs + more), freedom=freedom, variance=math.nan)


def mean_of_rows(rows: Sequence[tuple[Pair, Pair]], variances: BetweenRuns) -> Pair:
    """Return the geometric mean of ratios of two runs; each row is a ratio by its launches, and the same `widened`.

    That of one row is the row. What the two runs add is shared by all rows. No row's launches scatter less than those of the
    other runs on average, as in `widened`: by what these explain, the runs' part is smaller.
    """
    if len(rows) == 1:
        return rows[0][1]
    least = math.sqrt(2 * variances.launches)
    alone = [pair if math.isnan(pair.error) else replace(pair, error=max(pair.error, least)) for pair, _ in rows]
    return mean_of_pairs(alone, variances.variance_of_both, variances.freedom)


def needed(low: float, high: float) -> float:
    """Return how far from 1 a ratio of two runs with these limits must be to be found, if runs differ by USUAL_SCATTER."""
    by_launches = math.log(high / low) / 2
    return math.expm1(math.hypot(by_launches, student(math.inf, 0.975) * math.sqrt(2) * USUAL_SCATTER))
