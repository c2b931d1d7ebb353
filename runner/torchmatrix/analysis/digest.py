"""A run's launches -> all that a report says of them, so that it can be kept and the launches needn't be read again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchmatrix.analysis import tables, time_split
from torchmatrix.analysis.launch_row import Row
from torchmatrix.analysis.tables import records
from torchmatrix.analysis.traces import Readings, Trace, traces
from torchmatrix.analysis.watched import Watched, summarize
from torchmatrix.facts.launch import Launch, Unreadable, last_tries
from torchmatrix.facts.parts import Box
from torchmatrix.facts.parts import Facts as Told
from torchmatrix.facts.reading import sorted_out
from torchmatrix.facts.run_record import RunRecord

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
    return digest_from(folder, facts_of(folder, record, found))


def facts_of(folder: Path, record: RunRecord, found: Iterable[Launch | Unreadable]) -> Facts:
    """As digest_of, as plain values for a file; paths are relative to the folder."""
    every, unreadable = sorted_out(found)
    launches, root = _in_planned_order(last_tries(every), record), len(str(folder))
    counted = {launch.path for launch in launches}
    return {
        "launches": [row | {"path": row["path"][root:]} for row in tables.launch_rows(launches)],
        "started": [launch.unix_seconds for launch in launches],
        "errors": [() if launch.outcome == "ok" else summarize(launch).errors for launch in launches],
        "repeated": [(launch.cell, launch.outcome) for launch in every if launch.path not in counted],
        "phases": records(time_split.phases_table(launches)),
        "steps": records(time_split.steps_table(launches)),
        "traces": [asdict(trace) for trace in traces(launches)],
        "installed": _installed(launches),
        "unreadable": [(str(one.path)[root:], one.reason) for one in unreadable],
    }


def digest_from(folder: Path, facts: Facts) -> Digest:
    """Of what facts_of made, perhaps read from a file. Raises errors of many kinds for anything else."""
    root = str(folder)
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


def _in_planned_order(launches: Sequence[Launch], record: RunRecord) -> list[Launch]:
    place = {name.cell: i for i, name in enumerate(record.planned)}
    return sorted(launches, key=lambda launch: (place.get(launch.cell, len(place)), launch.path.name))


def _installed(launches: Iterable[Launch]) -> list[Facts]:
    first: dict[str, Facts] = {}
    for launch in launches:
        if launch.box and launch.stack.name not in first:
            image = launch.image.facts if launch.image else {}
            first[launch.stack.name] = {"box": launch.box.facts, "image": image, "engine": launch.engine}
    return [{"stack": stack} | facts for stack, facts in first.items()]


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
