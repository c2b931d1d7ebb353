"""A run as read: its record and its launches (RunSummary), and what only a report of it needs (RunDetails)."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property, partial
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from torchmatrix.analysis import time_split
from torchmatrix.analysis.launch_row import cell_row, night_row_of, row_of
from torchmatrix.analysis.metrics import Metric
from torchmatrix.analysis.prices import PriceList, charged
from torchmatrix.analysis.rows import TORCHS, AnyRow, CellRow, LaunchRow, NightRow, Row, ThoseRows, group_by, is_ok
from torchmatrix.analysis.time_split import Spent, spent_by
from torchmatrix.analysis.traces import Trace, Whole, shortened, whole_of
from torchmatrix.analysis.watched import summarize
from torchmatrix.core.formatting import as_text
from torchmatrix.core.process import end_helpers, help_only
from torchmatrix.core.secrets import cleaned
from torchmatrix.facts.alike import counting
from torchmatrix.facts.environments import Environment, environment_of
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.lines import most_bytes
from torchmatrix.facts.reading import Place, launch_files, launch_in, sorted_out
from torchmatrix.facts.run_record import CellName, RunRecord
from torchmatrix.facts.store import RunFolder, host_of
from torchmatrix.facts.wire import Facts as Told
from torchmatrix.facts.wire import versions_of
from torchmatrix.machine.cpu import usable_cpus

if TYPE_CHECKING:
    from torchmatrix.analysis.cells import Cell, CellIndex

# Rows of launches and of cells. Unknown numbers are NaN, other unknowns None. Definitions are in glossary.py.


def launch_rows(launches: Iterable[Launch]) -> list[LaunchRow]:
    """Return one row per launch (launch_row.py)."""
    return with_borrowed_flops([row_of(launch) for launch in launches])


def cells_table(cells: Iterable["Cell"]) -> list[CellRow]:
    """Return one row per cell: median throughput of its ok launches, interval, n, CV, verdict; failed launches are counted."""
    return [cell_row(cell) for cell in cells]


def with_borrowed_flops(rows: Sequence[ThoseRows]) -> list[ThoseRows]:
    """Return the rows with the operations of launches that counted none, by what their stack counted for the same operations.

    Where the stack's torch has no counter, the count of another stack is taken (`flops_from`: which one); that of torch's own
    only where the workload did not try in vain, as torch counts nothing for what it doesn't know. FLOPs by formula, which only
    launches that are proven in full record, are those of the operations.
    """
    known = [row for row in rows if is_ok(row) and not row.flops_from]
    in_vain = {row.operations for row in known if _is_of_workload(row) and math.isnan(row.flops_per_item)}
    counted = [row for row in known if not math.isnan(row.flops_per_item)]
    counted = [row for row in counted if _is_of_workload(row) or row.operations not in in_vain]
    counted.sort(key=_is_of_workload, reverse=True)  # the first lends
    by_stack = {(row.stack, row.recipe, row.operations): row for row in reversed(counted)}
    by_operations = {row.operations: row for row in reversed(counted)}
    formulas = {row.operations: row.formula_flops_per_item for row in rows if row.formula_flops_per_item > 0}

    def lent_to(row: NightRow) -> Iterator[tuple[str, Any]]:
        if math.isnan(row.flops_per_item):
            same_stack = by_stack.get((row.stack, row.recipe, row.operations))
            source = same_stack or by_operations.get(row.operations)
            if source and _same_model(row, source):
                yield "flops_per_item", source.flops_per_item
                yield "flops_counter", source.flops_counter
                yield "flops_from", None if same_stack else source.stack
        if math.isnan(row.formula_flops_per_item) and row.operations in formulas:
            yield "formula_flops_per_item", formulas[row.operations]

    lent = ((row, dict(lent_to(row))) for row in rows)
    return [replace(row, **values) if values else row for row, values in lent]


def _is_of_workload(row: NightRow) -> bool:
    """Check whether the workload counted, or tried to, rather than torch."""
    return not row.flops_counter.startswith(TORCHS)


def _same_model(row: NightRow, other: NightRow) -> bool:
    """Check whether two rows have the same number of parameters, as far as both are known."""
    return None in (row.parameters, other.parameters) or row.parameters == other.parameters


# What a report needs of each launch: small enough to be passed between processes. Loads no numpy.

Piece = TypeVar("Piece")
Done = TypeVar("Done")
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

    row: NightRow
    started: float
    errors: tuple[str, ...]
    spent: Spent | None
    installed: "Installed | None"


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


def read_parts(run: RunFolder, record: RunRecord, most: int = MOST_PROCESSES, night_of: Metric | None = None) -> list[Part]:
    """Read all launches of a run, by several processes where that pays. Call it before numpy is loaded: a fork has no
    threads. `night_of`: see part_of.
    """
    folders = list(group_by(launch_files(run.path), lambda path: path.parent).values())  # all attempts of a launch are in one
    processes = processes_for(sum(map(len, folders)), most)
    size = ceil(len(folders) / (PIECES * processes)) if processes > 1 else len(folders)
    pieces = [folders[begin : begin + size] for begin in range(0, len(folders), max(1, size))]
    part = partial(_part, run=run.place(record), planned=record.planned, night_of=night_of)
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


def _part(folders: Iterable[Iterable[Path]], run: Place, planned: Sequence[CellName], night_of: Metric | None) -> Part:
    return part_of((launch_in(path, run) for folder in folders for path in folder), _order(planned), night_of)


def _has_one_thread() -> bool:
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


def part_of(launch_files: Iterable[Launch | Unreadable], order: Order, night_of: Metric | None = None) -> Part:
    """Return the part of these launches, all attempts of each among them. `night_of`: rows for histories of this metric and the
    gate, and nothing of what only a report needs; None: everything.
    """
    attempts, unreadable = sorted_out(launch_files)
    launches = sorted(counting(attempts), key=lambda launch: order(launch.cell, as_text(launch.path)))
    counted = {launch.path for launch in launches}
    first = {launch.stack.name: launch for launch in reversed(launches) if launch.reported}
    return Part(
        briefs=tuple(
            _row_only(launch, night_of) if night_of else _brief(launch, launch is first.get(launch.stack.name))
            for launch in launches
        ),
        repeated=tuple((launch.cell, _why_repeated(launch)) for launch in attempts if launch.path not in counted),
        traces={} if night_of else whole_of(launches),
        environments=_launch_environments(launches),
        unreadable=tuple(unreadable),
    )


def _why_repeated(launch: Launch) -> str:
    """Return the outcome of an attempt that doesn't count; of an ok one what spoilt it: throttled or disturbed."""
    return launch.outcome if launch.has_failed else "throttled" if summarize(launch).throttled else "disturbed"


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


def _row_only(launch: Launch, metric: Metric) -> Brief:
    return Brief(row=night_row_of(launch, metric), started=launch.unix_seconds, errors=(), spent=None, installed=None)


def _launch_installed(launch: Launch) -> "Installed":
    report, image = launch.reported.facts if launch.reported else {}, launch.image.facts if launch.image else {}
    return Installed(stack=launch.stack.name, reported=report, image=image, engine=launch.engine)


@dataclass(frozen=True, kw_only=True)
class RunSummary(Generic[AnyRow]):
    """What a run records of itself, and its launches.

    `host`: the name of its folder. `started`: unix seconds, NaN if unknown. `command`, `matrix`, `workload_hash`: what was
    requested. `planned`: ids of the cells that were to run; `skipped`: the reason by cell id. `launches`: rows of launch_rows
    (of histories: NightRow), of each launch the attempt that counts, in planned order. `environments`: by stack, of the launch
    on the most devices whose workload reported its software, none that is left out of its cell's figure. `unreadable_launches`:
    files, and why; `problems`: of the run's own record.
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
    launches: tuple[AnyRow, ...]
    environments: dict[str, Environment]
    unreadable_launches: tuple[Unreadable, ...]
    problems: tuple[Unreadable, ...]

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """Return all of the run's files that can't be read, and why."""
        return self.unreadable_launches + self.problems

    @cached_property
    def cells(self) -> "CellIndex[AnyRow]":
        """Return the launches by cell."""
        from torchmatrix.analysis.cells import CellIndex  # with numpy, which reading doesn't need

        return CellIndex(self.launches)

    def cell(self, name: str) -> "Cell[AnyRow]":
        """Return a cell by its id, without launches if the run has none of it."""
        from torchmatrix.analysis.cells import NO_CELL

        return self.cells.named.get(name, NO_CELL)

    def charged(self: "RunSummary", price_list: PriceList) -> "RunSummary":
        """Return the run with what an item costs by these prices."""
        return dataclasses.replace(self, launches=charged(self.launches, price_list))

    def asked_for(self, cell: str) -> bool:
        """Check whether a cell was to be measured."""
        return cell in self.planned or cell in self.cells.named


NightRun: TypeAlias = RunSummary[NightRow]


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """The contents of a stack, from its first launch whose workload reported its software: what it, the image and the engine
    told."""

    stack: str
    reported: Told
    image: Told
    engine: Told

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the Python packages as "name==version"."""
        return tuple(self.reported.get("packages") or ())

    @property
    def versions(self) -> dict[str, str]:
        """Return the packages' versions by name."""
        return versions_of(self.packages)


class RunDetails(Struct, frozen=True, kw_only=True, array_like=True):
    """What only a report shows, besides its summary: of each of its launches `started` (unix seconds) and `errors` (why
    devices could not be read; only of launches that are not ok).

    `repeated`: cell and outcome of the attempts that don't count; of ok ones throttled or disturbed. `phases`, `steps`: rows of
    time_split.
    """

    started: tuple[float, ...]
    errors: tuple[tuple[str, ...], ...]
    repeated: tuple[tuple[str, str], ...]
    phases: tuple[Row, ...]
    steps: tuple[Row, ...]
    traces: tuple[Trace, ...]
    installed: tuple[Installed, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeRun:
    """All that a report of a run shows."""

    summary: RunSummary
    details: RunDetails


class RunFacts(Struct, Generic[AnyRow], frozen=True, kw_only=True, array_like=True):
    """What is kept of a run's summary: its fields but those that follow from its folder, and paths relative to that."""

    complete: bool
    command: str | None
    matrix: str
    workload_hash: str | None
    planned: tuple[str, ...]
    skipped: dict[str, str]
    environments: dict[str, Environment]
    launches: tuple[AnyRow, ...]
    unreadable_launches: tuple[tuple[str, str], ...]
    problems: tuple[tuple[str, str], ...]

    def is_lasting(self, folder: Path) -> bool:
        """Check whether what can't be read of the run in `folder` stays so until it's changed: neither for a permission nor for
        the size, whose limit is a setting.
        """
        return all(_is_readable(Path(f"{folder}{path}")) for path, _ in (*self.unreadable_launches, *self.problems))


def _is_readable(path: Path) -> bool:
    try:
        state = path.stat()
    except OSError:
        return False
    if S_ISDIR(state.st_mode):
        return os.access(path, os.R_OK | os.X_OK)
    return os.access(path, os.R_OK) and state.st_size <= most_bytes()


def read_facts(run: RunFolder, most: int = MOST_PROCESSES) -> tuple[RunFacts, RunDetails]:
    """Read the facts of a run's summary and of its details."""
    record = run.read_record()
    parts = read_parts(run, record, most)
    facts, briefs = _facts_of(run, record, parts)
    spent = [brief.spent for brief in briefs if brief.spent]
    return facts, RunDetails(
        started=tuple(brief.started for brief in briefs),
        errors=tuple(brief.errors for brief in briefs),
        repeated=tuple(attempt for part in parts for attempt in part.repeated),
        phases=tuple(time_split.phases_table(spent)),
        steps=tuple(time_split.steps_table(spent)),
        traces=tuple(shortened(_traces(parts, _order(record.planned)))),
        installed=_installed(briefs),
    )


def read_night(run: RunFolder, metric: Metric) -> RunFacts[NightRow]:
    """Read the facts of a run's summary, of each launch only what histories of this metric and the gate read."""
    record = run.read_record()
    return _facts_of(run, record, read_parts(run, record, 1, metric))[0]


def _facts_of(run: RunFolder, record: RunRecord, parts: Sequence[Part]) -> tuple[RunFacts[Any], list[Brief]]:
    """Return the facts of a run, and its launches in their order."""
    order, root = _order(record.planned), len(as_text(run.path))
    all_briefs = (brief for part in parts for brief in part.briefs)
    briefs = sorted(all_briefs, key=lambda brief: order(brief.row.cell, brief.row.path))
    rows = with_borrowed_flops([brief.row for brief in briefs])
    facts = RunFacts(
        complete=record.complete,
        command=record.command,
        matrix=record.matrix,
        workload_hash=record.workload_hash,
        planned=tuple(name.cell for name in record.planned),
        skipped={skip.cell: cleaned(skip.reason) for skip in record.skips},
        environments=_environments(parts),
        launches=tuple(replace(row, path=row.path[root:]) for row in rows),
        unreadable_launches=tuple((as_text(file.path)[root:], file.reason) for part in parts for file in part.unreadable),
        problems=tuple(("/run.jsonl", problem) for problem in record.problems),
    )
    return facts, briefs


def summary_from(run: RunFolder, facts: RunFacts[ThoseRows]) -> RunSummary[ThoseRows]:
    """Make the summary of a run from its facts, perhaps read from a file."""
    root = as_text(run.path)
    unreadable, problems = (
        tuple(Unreadable(path=Path(root + path), reason=reason) for path, reason in files)
        for files in (facts.unreadable_launches, facts.problems)
    )
    return RunSummary(
        id=run.id, host=host_of(run), path=run.path, started=run.started, complete=facts.complete, command=facts.command,
        matrix=facts.matrix, workload_hash=facts.workload_hash, planned=facts.planned, skipped=facts.skipped,
        launches=tuple(replace(row, path=root + row.path) for row in facts.launches), environments=facts.environments,
        unreadable_launches=unreadable, problems=problems,
    )  # fmt: skip


def _environments(parts: Iterable[Part]) -> dict[str, Environment]:
    """Return the environment that represents each stack best, by the stacks' names in order."""
    candidates = [(stack, *ranked) for part in parts for stack, ranked in part.environments.items()]
    best = {
        stack: environment for stack, _, environment in sorted(candidates, key=lambda candidate: candidate[1], reverse=True)
    }
    return dict(sorted(best.items()))


def _installed(briefs: Iterable[Brief]) -> tuple[Installed, ...]:
    """Return the first reported contents of each stack."""
    first: dict[str, Installed] = {}
    for brief in briefs:
        if brief.installed:
            first.setdefault(brief.installed.stack, brief.installed)
    return tuple(first.values())


def _traces(parts: Iterable[Part], order: Order) -> list[Any]:
    """Return the traces of all parts in the order of their cells."""
    traces = {cell: trace for part in parts for cell, trace in part.traces.items()}
    return [traces[cell] for cell in sorted(traces, key=lambda cell: order(cell, ""))]
