"""A run's own record (run.jsonl), typed: the request, the planned and skipped cells, how far the run got."""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct, field
from msgspec.structs import asdict

from torchmatrix.core import inputs
from torchmatrix.core.files import open_regular
from torchmatrix.core.inputs import Malformed, Record
from torchmatrix.facts import parts
from torchmatrix.facts.host_parts import HostName, HostRecord, Identity, Reference, UsedMethod
from torchmatrix.facts.lines import Event, as_written, events_in
from torchmatrix.facts.wire import (
    As,
    Count,
    Facts,
    Finite,
    Moment,
    Number,
    Reveals,
    Term,
    Text,
    Texts,
    Whole,
    decoded,
    without_nulls,
)


class RunLine(Struct, frozen=True, kw_only=True):
    """A line of a run's record; `unix_seconds`: when it was written, NaN: unknown."""

    unix_seconds: Moment = math.nan


class CellName(RunLine, frozen=True, kw_only=True):
    """The id of a cell, and the fields that the id is made of. `ddp_workload`: the workload that this one explains."""

    cell: Text
    stack: Text
    workload: Text
    ddp_workload: Text
    parallel: Term
    devices: Text
    indices: tuple[Count, ...] = ()
    nodes: Count = 1


class Skipped(CellName, frozen=True, kw_only=True):
    """A cell that could not be measured: why, and what would help."""

    reason: Text
    fix: Text | None = None


class FoundBatch(RunLine, frozen=True, kw_only=True):
    """The batch that was found for a stack and workload; None: not even one item fits."""

    stack: Text
    workload: Text
    batch: Whole | None = None


class LaneTest(Struct, frozen=True, kw_only=True):
    """One lane in a ParallelTest: its devices, its cell, and the ratio of its throughput beside the other lanes over alone.

    `low`, `high`: the limits of the ratio; `alone`, `beside`: the throughputs of the rounds (items per second), in order.
    """

    devices: Text
    cell: Text
    ratio: Finite = math.nan
    low: Finite = math.nan
    high: Finite = math.nan
    alone: tuple[Number, ...] = ()
    beside: tuple[Number, ...] = ()


class ParallelTest(RunLine, frozen=True, kw_only=True):
    """Whether launches on different devices disturb each other on this machine: runs of earlier versions tested it.

    `shown`: that they don't by more than `within`, so they were measured at once; `why`: in words.
    """

    shown: bool = False
    why: Text
    within: Number | None = None
    lanes: tuple[LaneTest, ...] = ()

    @property
    def in_words(self) -> str:
        """Describe the result."""
        *others, last = [lane.devices for lane in self.lanes] or [""]
        what = "run at once" if self.shown else "run one after the other"
        return f"{' and '.join(filter(None, (', '.join(others), last)))} {what}: {self.why}"


class RunExit(RunLine, frozen=True, kw_only=True):
    """The end of a run, or of one of its sessions: see RunRecord."""

    complete: bool = False
    seconds: Finite = math.nan
    estimated_seconds: Finite = math.nan


class SchedulerNode(Struct, frozen=True):
    """A node of a cluster that measured."""

    name: HostName = field(name="host name")
    gres: Text | None = None


class Scheduler(Struct, frozen=True):
    """The scheduler of a cluster; `placed`: its nodes by workload, where a workload has its own."""

    name: Text | None = None
    version: Text | None = None
    nodes: tuple[SchedulerNode, ...] = ()
    placed: Annotated[dict[str, tuple[str, ...]], Reveals.TEXT] = {}


class RunHeader(RunLine, frozen=True, kw_only=True):
    """The first line of a run's record, whose time is when the run began.

    `machine`: the identity of its machine (machine.identity); None in facts of earlier versions. `key`: the request as one
    word; `matrix`: the text of the matrix.
    """

    tool: Text | None = None
    machine: Identity | None = None
    key: Text | None = None
    command: Text | None = None
    matrix: Reference = ""
    launches: Count | None = None
    seed: Whole | None = None
    workload_hash: Text | None = None
    watch_notes: Texts = ()
    host: HostRecord = {}
    method: Annotated[dict[str, Any], As(UsedMethod)] = {}
    scheduler: Scheduler = Scheduler()


class RunRecord(RunHeader, frozen=True, kw_only=True):
    """One run. `facts`: its first line as it is, empty if that can't be read.

    `complete`: the run finished, after `seconds` in its last session, for which `estimated_seconds` were estimated (NaN:
    unknown). `parallel`: None if nothing was tested. `verified`: the record has checksums, and they match. `malformed`: lines
    that can't be read, each with the reason; `problems`: these, and what else is wrong with the record.
    """

    facts: Facts
    planned: tuple[CellName, ...]
    skips: tuple[Skipped, ...]
    batches: tuple[FoundBatch, ...]
    parallel: ParallelTest | None
    verified: bool
    malformed: tuple[str, ...]
    complete: bool
    seconds: float
    estimated_seconds: float
    problems: tuple[str, ...]


_LONGEST_BEGIN = 4 << 20
"""The first line of a record holds the matrix."""


def begin_of(folder: Path) -> bytes:
    """Read the first line of the record in a run's folder; empty if it can't be read."""
    try:
        with open_regular(folder / "run.jsonl") as file:
            return as_written(file.readline(_LONGEST_BEGIN))
    except OSError:
        return b""


def mark_of(begin: bytes) -> tuple[str, ...] | None:
    """Return what the first line of a record says of which run it is; None if that is not enough to know it from others."""
    event = next(events_in(begin), {})
    host, seconds = event.get("host"), event.get("unix_seconds", math.nan)
    name = host.get("name") if isinstance(host, dict) else None
    if not inputs.is_number(seconds) or (name is None and seconds % 1 == 0):
        return None
    return tuple(str(value) for value in (name, seconds, *map(event.get, ("machine", "seed", "key"))))


def header_of(folder: Path) -> RunRecord:
    """Read the record in a run's folder up to its first line; empty if that can't be read."""
    return record_of(events_in(begin_of(folder)))


def record_of(events: Iterable[Event], verified: bool = False, damage: str | None = None) -> RunRecord:
    """Make the record from its events; malformed ones are left out and listed.

    `verified`, `damage`: the result of checking the checksums; damage is a problem, too.
    """
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event["event"], []).append(event)
    malformed: list[str] = []
    header = _header(next(iter(kinds.get("run", ())), {}), malformed)
    of_kind = {kind: tuple(_decode(kinds.get(kind, ()), make, malformed)) for kind, make in _LINES.items()}
    end = next((end for end in of_kind["run-exit"] if end.complete), RunExit())
    is_to_come = inputs.is_to_come(header["unix_seconds"])
    clock = f"its first line: unix_seconds is {header['unix_seconds']:.0f}, which is still to come: when it began isn't known"
    return RunRecord(
        **header | ({"unix_seconds": math.nan} if is_to_come else {}),
        planned=of_kind["planned"],
        skips=of_kind["skip"],
        batches=of_kind["batch"],
        parallel=next(iter(of_kind["parallel"]), None),
        verified=verified,
        malformed=tuple(malformed),
        complete=end.complete,
        seconds=end.seconds,
        estimated_seconds=end.estimated_seconds,
        problems=(*([damage] if damage else []), *malformed, *([clock] if is_to_come else [])),
    )


def _header(line: Record, malformed: list[str]) -> dict[str, Any]:
    try:
        return {**asdict(decoded(line, RunHeader)), "facts": line}
    except Malformed as why:
        malformed.append(f"its first line: {why}")
        return _header({}, malformed)


def _decode(lines: Iterable[Event], make: Callable[[Event], Any], malformed: list[str]) -> Iterable[Any]:
    for line in lines:
        try:
            yield make(line)
        except Malformed as why:
            malformed.append(f'a line "{line["event"]}": {why}')


def _skipped(line: Event) -> Skipped:
    fix = None if line.get("fix") == "" else line.get("fix")
    return decoded({**parts.with_cell(line), "fix": fix}, Skipped)


def _parallel(line: Event) -> ParallelTest:
    lanes = line.get("lanes")
    return decoded({**line, "lanes": list(map(without_nulls, lanes)) if isinstance(lanes, list) else lanes}, ParallelTest)


_LINES: Mapping[str, Callable[[Event], RunLine]] = {
    "planned": lambda line: decoded(parts.with_cell(line), CellName),
    "skip": _skipped,
    "batch": lambda line: decoded(line, FoundBatch),
    "parallel": _parallel,
    "run-exit": lambda line: decoded(line, RunExit),
}
"""The lines of a record besides the first, by their event."""
