"""RunSummary runs -> the newest figure of every cell on every host: of which run it is, and whether a newer run has none."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from torchmatrix.analysis.cells import Cell
from torchmatrix.analysis.column import Row
from torchmatrix.analysis.run_summary import RunSummary
from torchmatrix.ground.formatting import none_for_nan


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
