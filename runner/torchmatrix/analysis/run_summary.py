"""A run as read: its record and its launches (RunSummary), and what only a report of it needs (RunDetails)."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torchmatrix.analysis import time_split
from torchmatrix.analysis.launch_row import cell_values, row_of
from torchmatrix.analysis.rows import TORCHS, Row, group_by, is_ok
from torchmatrix.analysis.time_split import Spent, spent_by
from torchmatrix.analysis.traces import Whole, shortened, trace_from, whole_of
from torchmatrix.analysis.watched import summarize
from torchmatrix.core.formatting import as_text
from torchmatrix.core.process import end_helpers, help_only
from torchmatrix.facts.alike import counting
from torchmatrix.facts.environments import Environment, environment_of
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.reading import Place, launch_files, launch_in, sorted_out
from torchmatrix.facts.run_record import CellName, RunRecord
from torchmatrix.facts.store import RunFolder, host_of
from torchmatrix.facts.wire import ContainerReport
from torchmatrix.facts.wire import Facts as Told
from torchmatrix.machine.cpu import usable_cpus

if TYPE_CHECKING:
    from torchmatrix.analysis.cells import Cell, CellIndex
    from torchmatrix.analysis.traces import Trace

# Rows of launches and of cells, as dictionaries. Unknown numbers are NaN, other unknowns None. Definitions are in glossary.py.


def launch_rows(launches: Iterable[Launch]) -> list[Row]:
    """Return one row per launch (launch_row.py)."""
    rows = [row_of(launch) for launch in launches]
    borrow_flops(rows)
    return rows


def cells_table(cells: "CellIndex") -> list[Row]:
    """Return one row per cell: median throughput of its ok launches, interval, n, CV, verdict; failed launches are counted."""
    return [
        {key: value for key, value in cell.last.items() if key not in _LAUNCH_ONLY} | cell.summary() | cell_values(cell)
        for cell in cells.every
    ]


def borrow_flops(rows: Sequence[Row]) -> None:
    """Fill in the operations of launches that counted none, by what their stack counted for the same operations.

    Where the stack's torch has no counter, the count of another stack is taken (`flops_from`: which one); that of torch's own
    only where the workload did not try in vain, as torch counts nothing for what it doesn't know.
    """
    known = [row for row in rows if is_ok(row) and not row["flops_from"]]
    in_vain = {row["operations"] for row in known if _is_of_workload(row) and math.isnan(row["flops_per_item"])}
    counted = [row for row in known if not math.isnan(row["flops_per_item"])]
    counted = [row for row in counted if _is_of_workload(row) or row["operations"] not in in_vain]
    counted.sort(key=_is_of_workload, reverse=True)  # the first lends
    by_stack = {(row["stack"], row["recipe"], row["operations"]): row for row in reversed(counted)}
    by_operations = {row["operations"]: row for row in reversed(counted)}
    for row in rows:
        if not math.isnan(row["flops_per_item"]):
            continue
        same_stack = by_stack.get((row["stack"], row["recipe"], row["operations"]))
        source = same_stack or by_operations.get(row["operations"])
        if source and _same_model(row, source):
            lent = {name: source[name] for name in ("flops_per_item", "flops_counter")}
            row |= {**lent, "flops_from": None if same_stack else source["stack"]}
    _borrow_formulas(rows)


def _is_of_workload(row: Row) -> bool:
    """Check whether the workload counted, or tried to, rather than torch."""
    return not row["flops_counter"].startswith(TORCHS)


def _borrow_formulas(rows: Sequence[Row]) -> None:
    """Fill in the FLOPs by formula, which only launches that are proven in full record; they are those of the operations."""
    by_operations = {row["operations"]: row["formula_flops_per_item"] for row in rows if row["formula_flops_per_item"] > 0}
    for row in rows:
        if math.isnan(row["formula_flops_per_item"]):
            row["formula_flops_per_item"] = by_operations.get(row["operations"], math.nan)


def _same_model(row: Row, other: Row) -> bool:
    """Check whether two rows have the same number of parameters, as far as both are known."""
    return None in (row["parameters"], other["parameters"]) or row["parameters"] == other["parameters"]


_LAUNCH_ONLY = ("run", "round", "throughput", "requests", "path", "seconds", "stall", "left_out")
"""Columns of a single launch, which its cell does not have."""


# What a report needs of each launch: small enough to be passed between processes. Loads no numpy.

Piece = TypeVar("Piece")
Done = TypeVar("Done")
Facts = dict[str, Any]
"""Plain values, for a file."""
FEWEST_FILES = 200
"""From this many launches on, reading is shared among processes, which costs as much as reading some twenty."""
MOST_PROCESSES = 4
"""With this many processes, the work that is left for one process takes as long as theirs."""
PIECES = 4
"""Pieces of work per process, so that none waits long for the last one."""


Order = Callable[[str, str], tuple[int, str]]
"""Maps the cell and the path of a launch to a sort key: as planned, within a cell by the names of the files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Brief:
    """One launch: its row as of launch_row (no FLOPs borrowed), when it began (unix seconds), why devices could not be read.

    `spent`: None if a report shows nothing of it. `installed`: what the workload, the image and the engine reported; only for
    the first launch of its stack, of those read together, whose workload reported its software.
    """

    row: Row
    started: float
    errors: tuple[str, ...]
    spent: Spent | None
    installed: Facts | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some folders of a run: the attempt that counts of each launch, in order; cell and outcome of the others; traces by cell;
    environments by stack with how well they represent it.
    """

    briefs: tuple[Brief, ...]
    repeated: tuple[tuple[str, str], ...]
    traces: dict[str, Whole]
    environments: dict[str, tuple[tuple[Any, ...], Environment]]
    unreadable: tuple[Unreadable, ...]


def _order(planned: Sequence[CellName]) -> Order:
    """Return a sort key by the place of the cell in `planned`, where others come last, then by the file's name."""
    places = {name.cell: i for i, name in enumerate(planned)}
    return lambda cell, path: (places.get(cell, len(places)), path.rpartition("/")[2])


def read_parts(
    run: RunFolder, record: RunRecord, most: int = MOST_PROCESSES, columns: frozenset[str] | None = None
) -> list[Part]:
    """Read all launches of a run, by several processes where that pays. Call it before numpy is loaded: a fork has no
    threads. `columns`: see part_of.
    """
    folders = list(group_by(launch_files(run.path), lambda path: path.parent).values())  # all attempts of a launch are in one
    processes = processes_for(sum(map(len, folders)), most)
    size = ceil(len(folders) / (PIECES * processes)) if processes > 1 else len(folders)
    pieces = [folders[begin : begin + size] for begin in range(0, len(folders), max(1, size))]
    part = partial(_part, run=run.place(record), planned=record.planned, columns=columns)
    return list(shared_out(part, pieces, processes))


def processes_for(files: int, most: int = MOST_PROCESSES) -> int:
    """Return how many processes read so many files, or folders, soonest; one where threads run."""
    return min(usable_cpus(), most) if files >= FEWEST_FILES and _has_one_thread() else 1


def shared_out(work: Callable[[Piece], Done], pieces: Sequence[Piece], processes: int) -> Iterator[Done]:
    """Yield what `work` makes of each piece, in their order, made by several processes; by this one if one is killed, for
    example out of memory, or none can be started.
    """
    done = 0
    if processes > 1:
        pool = ProcessPoolExecutor(processes, get_context("fork"), help_only, (os.getpid(),))
        try:
            for result in pool.map(work, pieces):
                done += 1
                yield result
        except (BrokenProcessPool, OSError):
            pass
        finally:
            end_helpers()
            pool.shutdown(cancel_futures=True)
    yield from map(work, pieces[done:])


def _part(folders: Iterable[Iterable[Path]], run: Place, planned: Sequence[CellName], columns: frozenset[str] | None) -> Part:
    return part_of((launch_in(path, run) for folder in folders for path in folder), _order(planned), columns)


def _has_one_thread() -> bool:
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


def part_of(launch_files: Iterable[Launch | Unreadable], order: Order, columns: frozenset[str] | None = None) -> Part:
    """Return the part of these launches, all attempts of each among them. `columns`: only these in their rows, and nothing of
    what only a report needs; None: everything.
    """
    attempts, unreadable = sorted_out(launch_files)
    launches = sorted(counting(attempts), key=lambda launch: order(launch.cell, as_text(launch.path)))
    counted = {launch.path for launch in launches}
    first = {launch.stack.name: launch for launch in reversed(launches) if launch.reported}
    return Part(
        briefs=tuple(
            _row_only(launch, columns) if columns else _brief(launch, launch is first.get(launch.stack.name))
            for launch in launches
        ),
        repeated=tuple((launch.cell, launch.outcome) for launch in attempts if launch.path not in counted),
        traces={} if columns else whole_of(launches),
        environments=_launch_environments(launches),
        unreadable=tuple(unreadable),
    )


def _launch_environments(launches: Sequence[Launch]) -> dict[str, tuple[tuple[Any, ...], Environment]]:
    """Return the environment of each stack, by the launch on the most devices whose workload reported its software.

    Launches that are left out of their cell's figure are the last choice.
    """
    chosen: dict[str, tuple[tuple[Any, ...], Launch]] = {}
    for launch in launches:
        rank = (launch.reported is None, bool(launch.left_out), -launch.devices.count, as_text(launch.path).split("/"))
        if launch.stack.name not in chosen or rank < chosen[launch.stack.name][0]:
            chosen[launch.stack.name] = (rank, launch)
    return {stack: (rank, environment_of(launch)) for stack, (rank, launch) in chosen.items()}


def _brief(launch: Launch, is_first: bool) -> Brief:
    return Brief(
        row=row_of(launch),
        started=launch.unix_seconds,
        errors=() if not launch.has_failed else summarize(launch).errors,
        spent=spent_by(launch),
        installed=_launch_installed(launch) if is_first else None,
    )


def _row_only(launch: Launch, columns: frozenset[str]) -> Brief:
    return Brief(row=row_of(launch, columns), started=launch.unix_seconds, errors=(), spent=None, installed=None)


def _launch_installed(launch: Launch) -> Facts:
    report, image = launch.reported.facts if launch.reported else {}, launch.image.facts if launch.image else {}
    return {"stack": launch.stack.name, "box": report, "image": image, "engine": launch.engine}


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What a run records of itself, and its launches.

    `host`: the name of its folder. `started`: unix seconds, NaN if unknown. `command`, `matrix`, `workload_hash`: what was
    requested. `planned`: ids of the cells that were to run; `skipped`: the reason by cell id. `launches`: rows of launch_rows,
    of each launch the attempt that counts, in planned order. `environments`: by stack, of the launch on the most devices whose
    workload reported its software, none that is left out of its cell's figure. `unreadable_launches`: files, and why;
    `problems`: of the run's own record.
    """

    id: str
    host: str
    path: Path
    started: float
    complete: bool
    command: str | None
    matrix: str
    workload_hash: str | None
    planned: tuple[str, ...]
    skipped: dict[str, str]
    launches: tuple[Row, ...]
    environments: dict[str, Environment]
    unreadable_launches: tuple[Unreadable, ...]
    problems: tuple[Unreadable, ...]

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """Return all of the run's files that can't be read, and why."""
        return self.unreadable_launches + self.problems

    @cached_property
    def cells(self) -> "CellIndex":
        """Return the launches by cell."""
        from torchmatrix.analysis.cells import CellIndex  # with numpy, which reading doesn't need

        return CellIndex(self.launches)

    def cell(self, name: str) -> "Cell":
        """Return a cell by its id, without launches if the run has none of it."""
        from torchmatrix.analysis.cells import NO_CELL

        return self.cells.named.get(name, NO_CELL)

    def asked_for(self, cell: str) -> bool:
        """Check whether a cell was to be measured."""
        return cell in self.planned or cell in self.cells.named


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """The contents of a stack, from its first launch whose workload reported its software."""

    stack: str
    reported: ContainerReport
    image: Told
    engine: Told


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDetails:
    """All that a report of a run shows: its `summary`, and of each of its launches `started` (unix seconds) and `errors` (why
    devices could not be read; only of launches that are not ok).

    `repeated`: cell and outcome of the attempts that don't count. `phases`, `steps`: rows of time_split.
    """

    summary: RunSummary
    started: tuple[float, ...]
    errors: tuple[tuple[str, ...], ...]
    repeated: tuple[tuple[str, str], ...]
    phases: tuple[Row, ...]
    steps: tuple[Row, ...]
    traces: "tuple[Trace, ...]"
    installed: tuple[Installed, ...]


def facts_of(run: RunFolder, record: RunRecord, parts: Sequence[Part]) -> tuple[Facts, Facts]:
    """Return the facts of a run's summary and of its details, as plain values for a file; paths are relative to the run's
    folder."""
    order, root = _order(record.planned), len(as_text(run.path))
    all_briefs = (brief for part in parts for brief in part.briefs)
    briefs = sorted(all_briefs, key=lambda brief: order(brief.row["cell"], brief.row["path"]))
    borrow_flops([brief.row for brief in briefs])
    spent = [brief.spent for brief in briefs if brief.spent]
    summary = {
        "complete": record.complete,
        "command": record.command,
        "matrix": record.matrix,
        "workload_hash": record.workload_hash,
        "planned": [name.cell for name in record.planned],
        "skipped": {skip.cell: skip.reason for skip in record.skips},
        "environments": _environments(parts),
        "launches": [brief.row | {"path": brief.row["path"][root:]} for brief in briefs],
        "unreadable_launches": [(as_text(file.path)[root:], file.reason) for part in parts for file in part.unreadable],
        "problems": [("/run.jsonl", problem) for problem in record.problems],
    }
    details = {
        "started": [brief.started for brief in briefs],
        "errors": [brief.errors for brief in briefs],
        "repeated": [attempt for part in parts for attempt in part.repeated],
        "phases": time_split.phases_table(spent),
        "steps": time_split.steps_table(spent),
        "traces": [asdict(trace) for trace in shortened(_traces(parts, order))],
        "installed": _installed(briefs),
    }
    return summary, details


def brief_facts(run: RunFolder, columns: frozenset[str]) -> Facts:
    """Read the facts of a run's summary, of each launch only these columns."""
    record = run.read_record()
    return facts_of(run, record, read_parts(run, record, 1, columns))[0]


def summary_from(run: RunFolder, facts: Facts) -> RunSummary:
    """Make a summary from facts of facts_of, perhaps read from a file. Raises errors of many kinds for anything else."""
    root = as_text(run.path)
    same = {name: facts[name] for name in ("complete", "command", "matrix", "workload_hash", "skipped", "environments")}
    unreadable, problems = (
        tuple(Unreadable(path=Path(root + path), reason=reason) for path, reason in facts[name])
        for name in ("unreadable_launches", "problems")
    )
    return RunSummary(
        id=run.id, host=host_of(run), path=run.path, started=run.started, planned=tuple(facts["planned"]), **same,
        launches=tuple(row | {"path": root + row["path"]} for row in facts["launches"]), unreadable_launches=unreadable,
        problems=problems,
    )  # fmt: skip


def details_from(summary: RunSummary, facts: Facts) -> RunDetails:
    """Make the details from facts of facts_of, perhaps read from a file. Raises errors of many kinds for anything else."""
    return RunDetails(
        summary=summary,
        started=tuple(facts["started"]),
        errors=tuple(map(tuple, facts["errors"])),
        repeated=tuple((cell, outcome) for cell, outcome in facts["repeated"]),
        phases=tuple(facts["phases"]),
        steps=tuple(facts["steps"]),
        traces=tuple(map(trace_from, facts["traces"])),
        installed=tuple(map(_as_installed, facts["installed"])),
    )


def _environments(parts: Iterable[Part]) -> dict[str, Environment]:
    """Return the environment that represents each stack best, by the stacks' names in order."""
    candidates = [(stack, *ranked) for part in parts for stack, ranked in part.environments.items()]
    best = {
        stack: environment for stack, _, environment in sorted(candidates, key=lambda candidate: candidate[1], reverse=True)
    }
    return dict(sorted(best.items()))


def _installed(briefs: Iterable[Brief]) -> list[Facts]:
    """Return the first reported contents of each stack."""
    first: dict[str, Facts] = {}
    for brief in briefs:
        if brief.installed:
            first.setdefault(brief.row["stack"], brief.installed)
    return list(first.values())


def _traces(parts: Iterable[Part], order: Order) -> list[Any]:
    """Return the traces of all parts in the order of their cells."""
    traces = {cell: trace for part in parts for cell, trace in part.traces.items()}
    return [traces[cell] for cell in sorted(traces, key=lambda cell: order(cell, ""))]


def _as_installed(facts: Mapping[str, Any]) -> Installed:
    reported = facts["box"]
    report = ContainerReport(torch=reported.get("torch"), packages=tuple(reported.get("packages") or ()), facts=reported)
    return Installed(stack=facts["stack"], reported=report, image=facts["image"], engine=facts["engine"])
