"""A run as read: what it says of itself and of its launches (RunSummary), and what only a report of it needs (RunDetails)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmatrix.analysis.briefs import Brief, Order, Part, order_of
from torchmatrix.analysis.column import Row
from torchmatrix.facts.environments import Environment
from torchmatrix.facts.launch import Unreadable
from torchmatrix.facts.run_record import RunRecord
from torchmatrix.facts.store import RunFolder, host_of
from torchmatrix.facts.wire import Box
from torchmatrix.facts.wire import Facts as Told
from torchmatrix.ground.formatting import as_text

if TYPE_CHECKING:
    from torchmatrix.analysis.cells import Cell, CellIndex
    from torchmatrix.analysis.traces import Trace

Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What a run says of itself, and its launches.

    `host`: the name of its folder. `started`: unix seconds, NaN if unknown. `command`, `matrix`, `workload_hash`: what was
    asked for. `planned`: ids of the cells that were to run; `skipped`: the reason by cell id. `launches`: rows of
    tables.launch_rows, of each launch the try that counts, in planned order. `environments`: by stack, of the launch on the
    most devices in which the box told of itself, none that is left out of its cell's figure. `unreadable_launches`: files,
    and why; `problems`: of the run's own record.
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
        """All of its files that can't be read, and why."""
        return self.unreadable_launches + self.problems

    @cached_property
    def cells(self) -> "CellIndex":
        """Its launches by cell."""
        from torchmatrix.analysis.cells import CellIndex  # with numpy, which reading doesn't need

        return CellIndex(self.launches)

    def cell(self, name: str) -> "Cell":
        """One of them by its id; without launches if it has none."""
        from torchmatrix.analysis.cells import NO_CELL

        return self.cells.named.get(name, NO_CELL)

    def asked_for(self, cell: str) -> bool:
        """Was it to be measured?"""
        return cell in self.planned or cell in self.cells.named


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """What a stack consisted of, from its first launch in which the box told of itself."""

    stack: str
    box: Box
    image: Told
    engine: Told


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDetails:
    """All that a report of a run says: its `summary`, and of each of its launches `started` (unix seconds) and `errors` (why
    devices could not be read; only of launches that are not ok).

    `repeated`: cell and outcome of the tries that don't count. `phases`, `steps`: rows of time_split.
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
    """Those of its summary and of its details, as plain values for a file; paths are relative to the run's folder."""
    from torchmatrix.analysis import tables, time_split
    from torchmatrix.analysis.traces import shortened

    order, root = order_of(record), len(as_text(run.path))
    briefs = sorted((one for part in parts for one in part.briefs), key=lambda one: order(one.row["cell"], one.row["path"]))
    tables.borrow_flops([one.row for one in briefs])
    spent = [one.spent for one in briefs if one.spent]
    summary = {
        "complete": record.complete,
        "command": record.command,
        "matrix": record.matrix,
        "workload_hash": record.workload_hash,
        "planned": [name.cell for name in record.planned],
        "skipped": {skip.name.cell: skip.reason for skip in record.skips},
        "environments": _environments(parts),
        "launches": [one.row | {"path": one.row["path"][root:]} for one in briefs],
        "unreadable_launches": [(as_text(one.path)[root:], one.reason) for part in parts for one in part.unreadable],
        "problems": [("/run.jsonl", problem) for problem in record.problems],
    }
    details = {
        "started": [one.started for one in briefs],
        "errors": [one.errors for one in briefs],
        "repeated": [one for part in parts for one in part.repeated],
        "phases": time_split.phases_table(spent),
        "steps": time_split.steps_table(spent),
        "traces": [asdict(trace) for trace in shortened(_traces(parts, order))],
        "installed": _installed(briefs),
    }
    return summary, details


def summary_from(run: RunFolder, facts: Facts) -> RunSummary:
    """Of what facts_of made, perhaps read from a file. Raises errors of many kinds for anything else."""
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
    """Of what facts_of made, perhaps read from a file. Raises errors of many kinds for anything else."""
    from torchmatrix.analysis.traces import trace_from

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
    """By stack, in the order of their names: of all parts the one that stands for it best."""
    found = [(stack, *told) for part in parts for stack, told in part.environments.items()]
    best = {stack: environment for stack, _, environment in sorted(found, key=lambda one: one[1], reverse=True)}
    return dict(sorted(best.items()))


def _installed(briefs: Iterable[Brief]) -> list[Facts]:
    first: dict[str, Facts] = {}
    for one in briefs:
        if one.installed:
            first.setdefault(one.row["stack"], one.installed)
    return list(first.values())


def _traces(parts: Iterable[Part], order: Order) -> list[Any]:
    found = {cell: trace for part in parts for cell, trace in part.traces.items()}
    return [found[cell] for cell in sorted(found, key=lambda cell: order(cell, ""))]


def _as_installed(facts: Mapping[str, Any]) -> Installed:
    told = facts["box"]
    box = Box(torch=told.get("torch"), packages=tuple(told.get("packages") or ()), facts=told)
    return Installed(stack=facts["stack"], box=box, image=facts["image"], engine=facts["engine"])
