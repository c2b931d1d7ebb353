"""RunSummary runs -> how each cell went from run to run: a table, where its level changed, and what had changed around it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from torchmatrix.analysis import levels
from torchmatrix.analysis.cells import Cell
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.metrics import THROUGHPUT, Metric
from torchmatrix.analysis.pairs import pair
from torchmatrix.analysis.rows import Row
from torchmatrix.analysis.run_summary import RunSummary
from torchmatrix.core.formatting import none_for_nan, without_nan
from torchmatrix.facts import environments

NEAR = 2
"""Of small changes the place is uncertain: where the environment didn't change in that very run, so many runs before and after
are looked at."""
_SUMMED = ("n", "failed", "left_out", "left_out_why")
_TOLD = "told"
"""The environment itself, which no record needs."""
_WORK_FIELDS = ("workload hash", "batch per device", "method")
"""What besides the environment makes figures of two runs different things."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A new level of one cell. `run`: the first on it; `before`: the last measured one on the level before.

    `ratio`: the new level over the old one, median over median, with Welch's 95 % interval; `runs`: how many measured runs
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
        """What changed in the environment, in words; else that nothing did, of how much that was recorded."""
        none = f"no change of the environment was recorded ({self.compared.in_words})"
        return environments.differences_in_words(self.environment) or none


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """One cell on one host: its rows of `series`, oldest first, and the changes of its level, oldest first."""

    metric: Metric
    host: str
    cell: str
    workload: str | None
    unit: str | None
    rows: tuple[Row, ...]
    changes: tuple[Change, ...]

    @property
    def shown_unit(self) -> str:
        """That of figures for readers, such as images/s or ms; "" of what was never launched."""
        return self.metric.said(self.unit) if self.unit else ""

    def shown(self, value: float) -> float:
        """A figure in that unit."""
        return value * self.metric.times

    def is_worse(self, ratio: float) -> bool:
        """Is a level of this ratio to the one before worse?"""
        return (ratio < 1) == self.metric.more_is_better

    @property
    def is_launched(self) -> bool:
        """Was it launched in any run, whatever the outcome?"""
        return self.unit is not None

    @property
    def measured(self) -> list[Row]:
        """The rows that have a value of the metric."""
        return _measured(self.rows)

    @property
    def first(self) -> float:
        """Of the first measured run; NaN without any."""
        return float(next((row["value"] for row in self.measured), math.nan))

    @property
    def last(self) -> float:
        """Of the last measured run; NaN without any."""
        return float(next((row["value"] for row in reversed(self.measured)), math.nan))

    @property
    def change(self) -> float:
        """Last over first, less 1: scatter included; NaN unless two runs were measured."""
        return self.last / self.first - 1 if len(self.measured) > 1 else math.nan

    def since(self, rows: Sequence[Row]) -> "Trend":
        """The same with these of its rows, the newest, and the changes in them."""
        begin = rows[0]["started"] if rows else math.inf
        return replace(self, rows=tuple(rows), changes=tuple(c for c in self.changes if c.started >= begin))

    def as_record(self) -> dict[str, Any]:
        """For --json; NaN becomes null."""
        own = {"host": self.host, "cell": self.cell, "workload": self.workload, "unit": self.unit}
        figures = {"first": self.first, "last": self.last, "change": self.change}
        of = {"value": self.metric.name}
        rows = [{of.get(name, name): value for name, value in row.items() if name not in (*own, _TOLD)} for row in self.rows]
        record: dict[str, Any] = without_nan(own | figures | {"changes": list(map(asdict, self.changes)), "runs": rows})
        return record


def series(runs: Iterable[RunSummary], metric: Metric = THROUGHPUT) -> list[Row]:
    """One row per run and cell that was planned, launched or skipped in it, in the order of `runs` (oldest first).

    `started` in unix seconds; `value` of the metric with `low` and `high`, `n`, `failed` and `cv` as in cells_table, NaN where
    nothing was measured. `outcome`: ok; else that of the last launch, skipped, or not launched; `reason`: then why.
    `environment`: in what the cell's environment differs from that of the run before in which its stack told it.
    """
    known: dict[tuple[str, str], environments.Environment] = {}
    return [_with_differences(row, known) for run in runs for row in _rows(run, metric)]


def trends(rows: Iterable[Row], metric: Metric = THROUGHPUT) -> list[Trend]:
    """Of every cell of the rows of `series`; those of the newest run first."""
    found: dict[tuple[str, str], list[Row]] = {}
    newest: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row["host"], row["cell"])
        found.setdefault(key, []).append(row)
        newest[key] = row["started"]
    order = sorted(found, key=lambda key: -newest[key] if not math.isnan(newest[key]) else math.inf)
    return [_trend(metric, *key, found[key]) for key in order]


def never_launched(found: Sequence[Trend]) -> dict[str, list[str]]:
    """The cells that no run launched, by what the newest one says of the reason."""
    cells: dict[str, list[str]] = {}
    for trend in found:
        if not trend.is_launched:
            cells.setdefault(str(trend.rows[-1]["reason"]), []).append(trend.cell)
    return cells


def _rows(run: RunSummary, metric: Metric) -> Iterator[Row]:
    by_cell = run.cells.named
    for cell in dict.fromkeys([*run.planned, *by_cell, *run.skipped]):
        own = {"host": run.host, "cell": cell, "run": run.id, "started": run.started}
        launched = by_cell.get(cell)
        yield own | (_launched(run, launched, metric) if launched else _not_launched(run, cell))


def _launched(run: RunSummary, cell: Cell, metric: Metric) -> Row:
    shown, found = cell.last, cell.summary(metric.column)
    environment = dict(run.environments.get(shown["stack"], {}))
    if found["n"]:
        values = ((run.workload_hash or environments.UNKNOWN)[:12], str(shown["batch"]), str(shown["method"]))
        environment |= dict(zip(_WORK_FIELDS, values, strict=True))
    return {
        "workload": shown["workload"],
        "unit": shown["unit"],
        "outcome": shown["outcome"],
        "reason": shown["error"],
        **{name: found[name] for name in _SUMMED},
        "value": found[metric.column],
        **{name: found[name] for name in ("low", "high", "cv")},
        "environment": environment,
    }


def _not_launched(run: RunSummary, cell: str) -> Row:
    skipped = cell in run.skipped
    unknown = dict.fromkeys(("value", "low", "high", "cv"), math.nan)
    return {
        "workload": None,
        "unit": None,
        "outcome": "skipped" if skipped else "not launched",
        "reason": run.skipped[cell] if skipped else "the run ended before" if run.complete else "the run is not finished",
        "n": 0,
        "failed": 0,
        "left_out": 0,
        "left_out_why": "",
        **unknown,
        "environment": {},
    }


def _with_differences(row: Row, known: dict[tuple[str, str], environments.Environment]) -> Row:
    """The row with the differences instead of the environment; `known`: the last one that each cell's stack told."""
    key = (row["host"], row["cell"])
    environment: environments.Environment = row["environment"]
    if not environments.is_told(environment):
        return row | {"environment": {}, _TOLD: {}}
    before = known.get(key, environment)
    known[key] = {name: before[name] for name in _WORK_FIELDS if name in before} | environment
    return row | {"environment": environments.changed(before, environment), _TOLD: environment}


def _trend(metric: Metric, host: str, cell: str, rows: list[Row]) -> Trend:
    told = next((row for row in reversed(rows) if row["unit"] is not None), rows[-1])
    return Trend(
        metric=metric, host=host, cell=cell, workload=told["workload"], unit=told["unit"], rows=tuple(rows),
        changes=tuple(_changes(rows)),
    )  # fmt: skip


def _changes(rows: Sequence[Row]) -> Iterator[Change]:
    places = [place for place, row in enumerate(rows) if row["value"] > 0]
    values = [float(rows[place]["value"]) for place in places]
    edges = [0, *levels.level_changes(values), len(values)]
    for (begin, at), (_, end) in pairwise(pairwise(edges)):
        environment, where = _environment_change(rows, places[at - 1], places[at])
        yield Change(
            run=rows[places[at]]["run"],
            before=rows[places[at - 1]]["run"],
            started=rows[places[at]]["started"],
            ratio=pair(values[at:end], values[begin:at]).interval,
            runs=(at - begin, end - at),
            environment=environment,
            environment_run=where,
            compared=environments.compared(
                *(environments.values_of([rows[place][_TOLD]]) for place in (places[at - 1], places[at]))
            ),
        )


def _environment_change(rows: Sequence[Row], before: int, after: int) -> tuple[environments.Differences, str | None]:
    """What changed after row `before` and up to row `after`; else in the nearest row where anything did."""
    if found := _together([row["environment"] for row in rows[before + 1 : after + 1]]):
        return found, rows[after]["run"]
    near = [place for place in range(before - NEAR + 1, after + NEAR + 1) if 0 <= place < len(rows)]
    for place in sorted(near, key=lambda place: abs(place - after)):
        if rows[place]["environment"]:
            return rows[place]["environment"], rows[place]["run"]
    return {}, None


def _together(steps: Iterable[environments.Differences]) -> environments.Differences:
    """Differences from one run to the next as one: the first old value, the last new one."""
    found: environments.Differences = {}
    for step in steps:
        for name, (old, new) in step.items():
            found[name] = (found.get(name, (old, new))[0], new)
    return {name: (old, new) for name, (old, new) in found.items() if old != new}


def _measured(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["value"] > 0]


# RunSummary runs -> the newest figure of every cell on every host: of which run it is, and whether a newer run has none.


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
        """For JSON; unknown is None."""
        return none_for_nan(asdict(self))


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What `noted` remembers of the runs that passed, oldest first: by host the complete and the last one, and its cells."""

    complete: dict[str, RunSummary]
    last: dict[str, RunSummary]
    cells: dict[tuple[str, str], tuple[RunSummary, Cell]]


def nothing_seen() -> Seen:
    """To begin with."""
    return Seen(complete={}, last={}, cells={})


def noted(runs: Iterable[RunSummary], seen: Seen) -> Iterator[RunSummary]:
    """The same runs, oldest first; on their way the newest of each cell is remembered in `seen`."""
    for run in runs:
        seen.last[run.host] = run
        if run.complete:
            seen.complete[run.host] = run
        for cell in run.cells.every:
            seen.cells[run.host, cell["cell"]] = (run, cell)
        yield run


def of(seen: Seen) -> list[Newest]:
    """Of every cell that was launched, in the order of hosts and ids."""
    reference = seen.last | seen.complete
    found = [_newest(run, cell, reference[host].started) for (host, _), (run, cell) in seen.cells.items()]
    return sorted(found, key=lambda one: (one.host, one.cell))


def _newest(run: RunSummary, cell: Cell, reference: float) -> Newest:
    last, unknown = (
        max(cell.launches, key=lambda row: int(row["round"])),
        dict.fromkeys(("throughput", "low", "high"), math.nan),
    )
    found = cell.summary()
    told = ("cell", "stack", "workload", "model", "mode", "devices", "device_name", "unit", "outcome")
    return Newest(
        host=run.host,
        run=run.id,
        started=run.started,
        reason=last["error"],
        n=found["n"],
        is_stale=run.started < reference,
        **{name: last[name] for name in told},
        **(unknown if last["outcome"] != "ok" else {name: found[name] for name in unknown}),
    )
