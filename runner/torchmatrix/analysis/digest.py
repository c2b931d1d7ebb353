"""A run's launches -> all that a report says of them, so that it can be kept and the launches needn't be read again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchmatrix.analysis import tables, time_split
from torchmatrix.analysis.briefs import Brief, Order, Part, order_of, part_of
from torchmatrix.analysis.column import Row
from torchmatrix.analysis.traces import Readings, Trace, Whole, shortened
from torchmatrix.analysis.watched import Watched
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.run_record import RunRecord
from torchmatrix.facts.wire import Box
from torchmatrix.facts.wire import Facts as Told
from torchmatrix.ground.texts import as_text

Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """What a stack consisted of, from its first launch in which the box told of itself."""

    stack: str
    box: Box
    image: Told
    engine: Told


@dataclass(frozen=True, kw_only=True, slots=True)
class Digest:
    """`launches`: rows of tables.launch_rows, of each launch the try that counts, in planned order.

    Of each of them `started` (unix seconds) and `errors` (why devices could not be read; only of launches that are not ok).
    `repeated`: cell and outcome of the other tries. `phases`, `steps`: rows of time_split. `unreadable`: files, and why.
    """

    launches: tuple[Row, ...]
    started: tuple[float, ...]
    errors: tuple[tuple[str, ...], ...]
    repeated: tuple[tuple[str, str], ...]
    phases: tuple[Row, ...]
    steps: tuple[Row, ...]
    traces: tuple[Trace, ...]
    installed: tuple[Installed, ...]
    unreadable: tuple[Unreadable, ...]


def digest_of(folder: Path, record: RunRecord, found: Iterable[Launch | Unreadable]) -> Digest:
    """Of a run's record and its launch files, which are below `folder`."""
    order = order_of(record)
    return digest_from(folder, facts_of(folder, [part_of(found, order)], order))


def facts_of(folder: Path, parts: Sequence[Part], order: Order) -> Facts:
    """Of all parts of a run, as plain values for a file; paths are relative to the folder."""
    briefs = sorted((one for part in parts for one in part.briefs), key=lambda one: order(one.row["cell"], one.row["path"]))
    tables.borrow_flops([one.row for one in briefs])
    spent, root = [one.spent for one in briefs if one.spent], len(as_text(folder))
    return {
        "launches": [one.row | {"path": one.row["path"][root:]} for one in briefs],
        "started": [one.started for one in briefs],
        "errors": [one.errors for one in briefs],
        "repeated": [one for part in parts for one in part.repeated],
        "phases": time_split.phases_table(spent),
        "steps": time_split.steps_table(spent),
        "traces": [asdict(trace) for trace in shortened(_traces(parts, order))],
        "installed": _installed(briefs),
        "unreadable": [(as_text(one.path)[root:], one.reason) for part in parts for one in part.unreadable],
    }


def digest_from(folder: Path, facts: Facts) -> Digest:
    """Of what facts_of made, perhaps read from a file. Raises errors of many kinds for anything else."""
    root = as_text(folder)
    return Digest(
        launches=tuple(row | {"path": root + row["path"]} for row in facts["launches"]),
        started=tuple(facts["started"]),
        errors=tuple(map(tuple, facts["errors"])),
        repeated=tuple((cell, outcome) for cell, outcome in facts["repeated"]),
        phases=tuple(facts["phases"]),
        steps=tuple(facts["steps"]),
        traces=tuple(map(_trace, facts["traces"])),
        installed=tuple(map(_as_installed, facts["installed"])),
        unreadable=tuple(Unreadable(path=Path(root + path), reason=reason) for path, reason in facts["unreadable"]),
    )


def _installed(briefs: Iterable[Brief]) -> list[Facts]:
    first: dict[str, Facts] = {}
    for one in briefs:
        if one.installed:
            first.setdefault(one.row["stack"], one.installed)
    return list(first.values())


def _traces(parts: Iterable[Part], order: Order) -> list[Whole]:
    found = {cell: trace for part in parts for cell, trace in part.traces.items()}
    return [found[cell] for cell in sorted(found, key=lambda cell: order(cell, ""))]


def _as_installed(facts: Mapping[str, Any]) -> Installed:
    told = facts["box"]
    box = Box(torch=told.get("torch"), packages=tuple(told.get("packages") or ()), facts=told)
    return Installed(stack=facts["stack"], box=box, image=facts["image"], engine=facts["engine"])


def _trace(facts: Facts) -> Trace:
    pairs = {name: tuple(map(tuple, facts[name])) for name in ("windows", "slowdowns")}
    seen = Watched(**facts["seen"] | {name: tuple(facts["seen"][name]) for name in ("foreign", "errors")})
    return Trace(**facts | pairs | {"seen": seen, "readings": tuple(map(_readings, facts["readings"]))})


def _readings(facts: Facts) -> Readings:
    values = {name: tuple(some) for name, some in facts["values"].items()}
    return Readings(device=facts["device"], seconds=tuple(facts["seconds"]), values=values)
