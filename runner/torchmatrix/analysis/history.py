"""How each cell changed from run to run: a table, where its level changed, and what had changed around it."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import structs

from torchmatrix.analysis import between_runs, facts_cache, levels
from torchmatrix.analysis.between_runs import BetweenRuns
from torchmatrix.analysis.cells import Cell, Family
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.metrics import THROUGHPUT, Metric
from torchmatrix.analysis.pairs import pair
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.rows import CellNight, NightRow, Row, group_by
from torchmatrix.analysis.run_summary import NightRun, RunSummary
from torchmatrix.core.formatting import none_for_nan, without_nan
from torchmatrix.facts import environments
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results, RunFolder, host_of

NEAR = 2
"""The place of a small change is uncertain: where the environment didn't change in that very run, this many runs before and
after are examined."""
_WORK_FIELDS = ("workload hash", "batch per device", "method")
"""Fields besides the environment that make figures of two runs incomparable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A new level of one cell. `run`: the first on it; `before`: the last measured one on the level before.

    `ratio`: the new level over the old one, of geometric means, with Welch's 95 % interval; `runs`: how many measured runs
    each of them has. `environment`: in what the environments differ; they changed in `environment_run` (`run` itself or one
    near it; None if no change was recorded). `compared`: how much of the list of conditions `before` and `run` both recorded.
    """

    run: str
    before: str
    started: float
    ratio: Interval
    runs: tuple[int, int]
    environment: environments.Differences
    environment_run: str | None
    compared: environments.Compared

    @property
    def cause(self) -> str:
        """Describe what changed in the environment; else that nothing did, of how much that was recorded."""
        none = f"no recorded condition changed ({self.compared.recorded} of {self.compared.of} known on both sides)"
        return environments.differences_in_words(self.environment) or none


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """One cell on one host: its rows of `series`, oldest first, and the changes of its level, oldest first."""

    metric: Metric
    host: str
    cell: str
    workload: str | None
    unit: str | None
    rows: tuple[CellNight, ...]
    changes: tuple[Change, ...]

    @property
    def shown_unit(self) -> str:
        """Return the unit of figures for readers, such as images/s or ms; "" if the cell was never launched."""
        return self.metric.said(self.unit) if self.unit else ""

    def shown(self, value: float) -> float:
        """Return a figure in that unit."""
        return value * self.metric.times

    def is_worse(self, ratio: float) -> bool:
        """Check whether a level of this ratio to the one before is worse."""
        return (ratio < 1) == self.metric.more_is_better

    @property
    def is_launched(self) -> bool:
        """Check whether the cell was launched in any run, whatever the outcome."""
        return self.unit is not None

    @property
    def measured(self) -> list[CellNight]:
        """Return the rows that have a value of the metric."""
        return [row for row in self.rows if row.value > 0]

    @property
    def first(self) -> float:
        """Return the value of the first measured run; NaN without any."""
        return float(next((row.value for row in self.rows if row.value > 0), math.nan))

    @property
    def last(self) -> float:
        """Return the value of the last measured run; NaN without any."""
        return float(next((row.value for row in reversed(self.rows) if row.value > 0), math.nan))

    @property
    def change(self) -> float:
        """Return last over first, less 1: scatter included; NaN unless two runs were measured."""
        return self.last / self.first - 1 if len(self.measured) > 1 else math.nan

    def since(self, rows: Sequence[CellNight]) -> "Trend":
        """Return the trend with only these of its rows, the newest, and the changes in them."""
        begin = rows[0].started if rows else math.inf
        return replace(self, rows=tuple(rows), changes=tuple(c for c in self.changes if c.started >= begin))

    def as_record(self) -> dict[str, Any]:
        """Return the trend for --json; NaN becomes null."""
        names = {"host": self.host, "cell": self.cell, "workload": self.workload, "unit": self.unit}
        figures = {"first": self.first, "last": self.last, "change": self.change}
        rows = [
            {self.metric.name if name == "value" else name: value for name, value in structs.asdict(row).items()
             if name not in (*names, "told")}
            for row in self.rows
        ]  # fmt: skip
        record: dict[str, Any] = without_nan(names | figures | {"changes": list(map(asdict, self.changes)), "runs": rows})
        return record


def series(runs: Iterable[NightRun], metric: Metric = THROUGHPUT) -> list[CellNight]:
    """Return one row per run and cell that was planned, launched or skipped in it, in the order of `runs` (oldest first)."""
    return with_differences(row for run in runs for row in rows_of(run, metric))


def with_differences(rows: Iterable[CellNight]) -> list[CellNight]:
    """Return rows of rows_of, the oldest run first, with the differences of their environments, as `series` does."""
    last_environments: dict[tuple[str, str], environments.Environment] = {}
    return [_with_differences(row, last_environments) for row in rows]


def trends(rows: Iterable[CellNight], metric: Metric = THROUGHPUT) -> list[Trend]:
    """Return the trend of every cell of the rows of `series`; cells of the newest run first."""

    def age(rows_of_cell: Sequence[CellNight]) -> float:
        newest = rows_of_cell[-1].started
        return math.inf if math.isnan(newest) else -newest

    by_cell = group_by(rows, lambda row: (row.host, row.cell))
    return [_trend(metric, *key, by_cell[key]) for key in sorted(by_cell, key=lambda key: age(by_cell[key]))]


def never_launched(trends_of_cells: Sequence[Trend]) -> dict[str, list[str]]:
    """Return the cells that no run launched, by the reason that the newest run gives."""
    cells: dict[str, list[str]] = {}
    for trend in trends_of_cells:
        if not trend.is_launched:
            cells.setdefault(str(trend.rows[-1].reason), []).append(trend.cell)
    return cells


def rows_of(run: NightRun, metric: Metric) -> Iterator[CellNight]:
    """Yield the rows of one run, not yet compared with the run before; nothing is told of a cell that wasn't launched."""
    by_cell = run.cells.named
    for cell in dict.fromkeys([*run.planned, *by_cell, *run.skipped]):
        launched = by_cell.get(cell)
        about = _launched(run, launched, metric) if launched else _not_launched(run, cell)
        yield CellNight(host=run.host, cell=cell, run=run.id, started=run.started, **about)


def _launched(run: NightRun, cell: Cell[NightRow], metric: Metric) -> dict[str, Any]:
    last, figure = cell.last, cell.figure(metric.column)
    told = dict(run.environments.get(last.stack, {}))
    if figure["n"]:
        values = ((run.workload_hash or environments.UNKNOWN)[:12], str(last.batch), last.method)
        told |= dict(zip(_WORK_FIELDS, values, strict=True))
    about = {"workload": last.workload, "unit": last.unit, "outcome": last.outcome, "reason": last.error, "told": told}
    about |= {"value" if name == metric.column else name: value for name, value in figure.items()}
    return about | {"disturbed": cell.disturbed}


def _not_launched(run: NightRun, cell: str) -> dict[str, Any]:
    skipped = cell in run.skipped
    return {
        "workload": None, "unit": None, "outcome": "skipped" if skipped else "not launched",
        "reason": run.skipped[cell] if skipped else "the run ended before" if run.complete else "the run is not finished",
        **dict.fromkeys(("n", "failed", "left_out", "disturbed"), 0), "left_out_why": "",
        **dict.fromkeys(("value", "low", "high", "cv"), math.nan), "told": {},
    }  # fmt: skip


def _with_differences(row: CellNight, last_environments: dict[tuple[str, str], environments.Environment]) -> CellNight:
    """Compare what a row tells of its environment with the last that its cell recorded: `last_environments`."""
    key, told = (row.host, row.cell), row.told
    if not environments.is_told(told):
        return structs.replace(row, told={})
    before = last_environments.get(key, told)
    if before is told or before == told:
        last_environments[key] = told
        return row
    last_environments[key] = {name: before[name] for name in _WORK_FIELDS if name in before} | told
    return structs.replace(row, environment=environments.changed(before, told))


def _trend(metric: Metric, host: str, cell: str, rows: list[CellNight]) -> Trend:
    launched = next((row for row in reversed(rows) if row.unit is not None), rows[-1])
    return Trend(
        metric=metric, host=host, cell=cell, workload=launched.workload, unit=launched.unit, rows=tuple(rows),
        changes=tuple(_changes(rows)),
    )  # fmt: skip


def _changes(rows: Sequence[CellNight]) -> Iterator[Change]:
    places = [place for place, row in enumerate(rows) if row.value > 0]
    values = [float(rows[place].value) for place in places]
    edges = [0, *levels.level_changes(values), len(values)]
    for (begin, at), (_, end) in pairwise(pairwise(edges)):
        environment, where = _environment_change(rows, places[at - 1], places[at])
        yield Change(
            run=rows[places[at]].run,
            before=rows[places[at - 1]].run,
            started=rows[places[at]].started,
            ratio=pair(values[at:end], values[begin:at]).interval,
            runs=(at - begin, end - at),
            environment=environment,
            environment_run=where,
            compared=environments.compared(
                *(environments.values_of([rows[place].told]) for place in (places[at - 1], places[at]))
            ),
        )


def _environment_change(rows: Sequence[CellNight], before: int, after: int) -> tuple[environments.Differences, str | None]:
    """Return what changed after row `before` and up to row `after`; else in the nearest row where anything did."""
    if together := _together([row.environment for row in rows[before + 1 : after + 1]]):
        return together, rows[after].run
    near = [place for place in range(before - NEAR + 1, after + NEAR + 1) if 0 <= place < len(rows)]
    for place in sorted(near, key=lambda place: abs(place - after)):
        if rows[place].environment:
            return rows[place].environment, rows[place].run
    return {}, None


def _together(steps: Iterable[environments.Differences]) -> environments.Differences:
    """Combine differences from one run to the next: the first old value, the last new one."""
    combined: environments.Differences = {}
    for step in steps:
        for name, (old, new) in step.items():
            combined[name] = (combined.get(name, (old, new))[0], new)
    return {name: (old, new) for name, (old, new) in combined.items() if old != new}


# The newest figure of every cell on every host: of which run it is, and whether a newer run has none.


@dataclass(frozen=True, kw_only=True, slots=True)
class Newest:
    """A cell in the newest run that launched it. `started`: of that run, in unix seconds.

    `outcome`: that of the newest launch. Only if it is ok is there a figure: `throughput` in `unit` per second with its 95 %
    interval from `n` launches, as in cells_table; else NaN, and `reason` says why. `is_stale`: the newest complete run of its
    host is a later one, which didn't launch this cell.
    """

    host: str
    cell: str
    stack: str
    workload: str
    model: str
    mode: str
    devices: str
    device_name: str | None
    unit: str
    run: str
    started: float
    outcome: str
    reason: str | None
    throughput: float
    low: float
    high: float
    n: int
    is_stale: bool

    def as_record(self) -> Row:
        """Return the cell for JSON; unknown is None."""
        return none_for_nan(asdict(self))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sightings:
    """The runs that `noted` has passed on, oldest first: by host the complete and the last one, and its cells."""

    complete: dict[str, RunSummary] = field(default_factory=dict)
    last: dict[str, RunSummary] = field(default_factory=dict)
    cells: dict[tuple[str, str], tuple[RunSummary, Cell]] = field(default_factory=dict)


def noted(runs: Iterable[RunSummary], seen: Sightings) -> Iterator[RunSummary]:
    """Yield the same runs, oldest first, and remember the newest of each cell in `seen`."""
    for run in runs:
        seen.last[run.host] = run
        if run.complete:
            seen.complete[run.host] = run
        for cell in run.cells.every:
            seen.cells[run.host, cell.row.cell] = (run, cell)
        yield run


def of(seen: Sightings) -> list[Newest]:
    """Return every cell that was launched, in the order of hosts and ids."""
    reference = seen.last | seen.complete
    newest = [_newest(run, cell, reference[host].started) for (host, _), (run, cell) in seen.cells.items()]
    return sorted(newest, key=lambda cell_of_host: (cell_of_host.host, cell_of_host.cell))


def _newest(run: RunSummary, cell: Cell, reference: float) -> Newest:
    last, unknown = (
        max(cell.launches, key=lambda row: row.round),
        dict.fromkeys(("throughput", "low", "high"), math.nan),
    )
    summary = cell.summary()
    copied = ("cell", "stack", "workload", "model", "mode", "devices", "device_name", "unit", "outcome")
    return Newest(
        host=run.host,
        run=run.id,
        started=run.started,
        reason=last.error,
        n=summary["n"],
        is_stale=run.started < reference,
        **{name: last.value(name) for name in copied},
        **(unknown if last.outcome != "ok" else {name: summary[name] for name in unknown}),
    )


# What the other runs of a machine tell a comparison of two: how runs differ, and how much launches of each run scatter.


def variances_of_history(
    results: Results, a: Sequence[Launch], b: Sequence[Launch], metric: Metric = THROUGHPUT, price_list: PriceList = NONE
) -> BetweenRuns | None:
    """Learn how runs differ in a metric from other runs of the machine that measured both sides.

    None where several machines did, by name or identity, or there are too few runs.
    """
    all_runs = results.runs()
    runs_by_side = [_runs_of(side, all_runs) for side in (a, b)]
    homes = {host_of(run) for runs in runs_by_side for run in runs}
    machines = {launch.machine for launch in (*a, *b)}
    if len(homes) != 1 or len(machines) != 1 or not between_runs.differ(a, b):
        return None
    (home,), (machine,) = homes, machines
    measured = {run.path for runs in runs_by_side for run in runs}
    here = [run for run in all_runs if host_of(run) == home]
    places = [place for place, run in enumerate(here) if run.path in measured]
    recent = [run for run in here if run.path not in measured][-between_runs.MOST_RUNS :]
    same = {run.path for run in (*recent, *here[places[0] : places[-1]]) if run.read_header().machine == machine}
    lag = sum(run.path in same or run.path in measured for run in here[places[0] : places[-1]])
    read = facts_cache.each(results, [run for run in recent if run.path in same], price_list)
    return between_runs.estimated(between_runs.figures((run.cells for run in read), metric), max(1, lag))


def families(results: Results, *sides: Sequence[Launch], price_list: PriceList = NONE) -> dict[str, Family]:
    """Return all cells of the runs that these launches belong to, by the runs' ids, without ids that several machines have."""
    all_runs = results.runs()
    runs = list({run.path: run for side in sides for run in _runs_of(side, all_runs)}.values())
    ids = Counter(run.id for run in runs)
    summaries = facts_cache.read(results, [run for run in runs if ids[run.id] == 1], price_list)
    return {run.id: run.cells.family for run in summaries}


def _runs_of(launches: Iterable[Launch], all_runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Return the runs that the launches belong to, by where they lie; of launches that lie elsewhere, by the runs' ids."""
    here, ids, folders = {run.path for run in all_runs}, set[str](), set[Path]()
    for launch in launches:
        around = here.intersection(launch.path.absolute().parents)
        folders |= around
        ids |= set() if around else {launch.run}
    return [run for run in all_runs if run.id in ids or run.path in folders]
