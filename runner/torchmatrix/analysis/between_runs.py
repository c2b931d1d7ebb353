"""How much runs of one machine differ although nothing changed: what two runs' launches alone can't tell."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchmatrix.analysis import facts_cache
from torchmatrix.analysis.cells import Family
from torchmatrix.analysis.intervals import moments, student
from torchmatrix.analysis.metrics import THROUGHPUT, Metric
from torchmatrix.analysis.pairs import Pair
from torchmatrix.analysis.run_summary import RunSummary
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.run_words import host_of
from torchmatrix.facts.store import Results, RunFolder

ENOUGH_RUNS = 3
"""With fewer other runs, how much runs differ is unknown."""
MOST_RUNS = 60
USUAL_SCATTER = 0.01
"""From run to run; assumed where it is unknown, to say how large a difference must be. Our own decision."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BetweenRuns:
    """Variances of the logarithm of a cell's figure: `total`, as a run shows it, and what of this its `launches` explain.

    `runs`: of how many.
    """

    total: float
    launches: float
    freedom: float
    runs: int

    @property
    def scatter(self) -> float:
        """The standard deviation from run to run, without that of the launches."""
        return math.sqrt(self.total - self.launches)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A cell in one run: its mean logarithm, and its squared error by the launches (NaN: of one launch)."""

    log: float
    squared_error: float


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
    return estimated(figures(facts_cache.read(results, others[-MOST_RUNS:]), metric))


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


def figures(runs: Iterable[RunSummary], metric: Metric = THROUGHPUT) -> dict[tuple[str, str], list[Figure]]:
    """By cell and what it did its figures, run by run in their order."""
    found: dict[tuple[str, str], list[Figure]] = {}
    for run in runs:
        rates: dict[tuple[str, str], list[float]] = {}
        for cell in run.cells.every:
            for row in cell.ok:
                if not math.isnan(value := row[metric.column]):
                    rates.setdefault((row["cell"], row["work"]), []).append(value)
        for key, own in rates.items():
            found.setdefault(key, []).append(figure(own))
    return found


def figure(rates: Sequence[float]) -> Figure:
    """Of a cell whose ok launches in a run had these figures."""
    if len(rates) < 2:
        return Figure(log=math.log(rates[0]), squared_error=math.nan)
    found = moments(rates)
    return Figure(log=found.log, squared_error=found.squared_error)


def estimated(series: Mapping[tuple[str, str], Sequence[Figure]]) -> BetweenRuns | None:
    """Half the mean square of successive differences, less the launches' part: what a lasting change of level hardly moves.

    J. von Neumann and others, Annals of Mathematical Statistics 12 (1941), 153-162; its degrees of freedom are two thirds of
    the differences. Cells share their runs, so that they add none.
    """
    longest = max(map(len, series.values()), default=0)
    if longest < ENOUGH_RUNS:
        return None
    differences = [(after.log - before.log) ** 2 / 2 for own in series.values() for before, after in itertools.pairwise(own)]
    errors = [one.squared_error for own in series.values() for one in own if not math.isnan(one.squared_error)]
    launches = math.fsum(errors) / len(errors) if errors else 0.0
    total = math.fsum(differences) / len(differences)
    return BetweenRuns(launches=min(launches, total), total=total, freedom=2 * (longest - 1) / 3, runs=longest)


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
