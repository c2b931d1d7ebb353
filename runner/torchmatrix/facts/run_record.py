"""A run's own record (run.jsonl), typed: the request, the planned and skipped cells, how far the run got."""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import asdict

from torchmatrix.core import inputs
from torchmatrix.core.formatting import number_or_nan
from torchmatrix.core.inputs import Malformed, Record
from torchmatrix.facts import parts
from torchmatrix.facts.lines import Event
from torchmatrix.facts.wire import Facts, Finite, Moment, Number, Whole, decoded, without_nulls

T = TypeVar("T")


class CellName(Struct, frozen=True, kw_only=True):
    """The id of a cell, and the fields that the id is made of. `ddp_workload`: the workload that this one explains."""

    cell: str
    stack: str
    workload: str
    ddp_workload: str
    parallel: str
    devices: str


class Skipped(Struct, frozen=True, kw_only=True):
    """A cell that could not be measured: why, and what would help."""

    name: CellName
    reason: str
    fix: str | None = None


class FoundBatch(Struct, frozen=True, kw_only=True):
    """The batch that was found for a stack and workload; None: not even one item fits."""

    stack: str
    workload: str
    batch: Whole | None = None


class LaneTest(Struct, frozen=True, kw_only=True):
    """One lane in a ParallelTest: its devices, its cell, and the ratio of its throughput beside the other lanes over alone.

    `low`, `high`: the limits of the ratio; `alone`, `beside`: the throughputs of the rounds (items per second), in order.
    """

    devices: str
    cell: str
    ratio: Finite = math.nan
    low: Finite = math.nan
    high: Finite = math.nan
    alone: tuple[Number, ...] = ()
    beside: tuple[Number, ...] = ()


class ParallelTest(Struct, frozen=True, kw_only=True):
    """Whether launches on different devices disturb each other on this machine (analysis.disturbance).

    `shown`: that they don't, so they were measured at once; `why`: in words.
    """

    shown: bool = False
    why: str
    lanes: tuple[LaneTest, ...] = ()


class RunGpu(Struct, frozen=True):
    """The fields that are read of a GPU in the record of a host."""

    name: str | None = None


class RunHost(Struct, frozen=True):
    """The fields that are read of the record of a host."""

    name: str | None = None
    cpu: str | None = None
    notes: tuple[str, ...] = ()
    gpus: tuple[RunGpu, ...] = ()


class SchedulerNode(Struct, frozen=True):
    """The fields that are read of a node of a cluster that measured."""

    name: str = field(name="host name")


class Scheduler(Struct, frozen=True):
    """The fields that are read of the scheduler in the first line."""

    name: str | None = None
    version: str | None = None
    nodes: tuple[SchedulerNode, ...] = ()


class RunHeader(Struct, frozen=True, kw_only=True):
    """The first line of a run's record.

    `unix_seconds`: when it began; NaN: unknown. `machine`: the identity of its machine (machine.identity); None in facts of
    earlier versions. `key`: the request as one word; `matrix`: the text of the matrix.
    """

    unix_seconds: Moment = math.nan
    machine: str | None = None
    key: str | None = None
    command: str | None = None
    matrix: str = ""
    workload_hash: str | None = None
    watch_notes: tuple[str, ...] = ()
    host: dict[str, Any] = {}
    method: dict[str, Any] = {}

    def __post_init__(self) -> None:
        """Raise Malformed if a part of the host that is read has the wrong type."""
        decoded(self.host, RunHost)


class RunRecord(RunHeader, frozen=True, kw_only=True):
    """One run. `facts`: its first line as it is, empty if that can't be read.

    `complete`: the run finished, after `seconds` in its last session, for which `estimated_seconds` were estimated (NaN:
    unknown). `parallel`: None if nothing was tested. `verified`: the record has checksums, and they match. `problems`: lines
    that can't be read, each with the reason.
    """

    facts: Facts
    planned: tuple[CellName, ...]
    skips: tuple[Skipped, ...]
    batches: tuple[FoundBatch, ...]
    parallel: ParallelTest | None
    verified: bool
    complete: bool
    seconds: float
    estimated_seconds: float
    problems: tuple[str, ...]


def record_of(events: Iterable[Event], verified: bool = False, damage: str | None = None) -> RunRecord:
    """Make the record from its events; malformed ones are left out and listed in `problems`.

    `verified`, `damage`: the result of checking the checksums; damage is a problem, too.
    """
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event["event"], []).append(event)
    problems: list[str] = [damage] if damage else []
    end = next((event for event in kinds.get("run-exit", ()) if event.get("complete") is True), None)
    header = _header(next(iter(kinds.get("run", ())), {}), problems)
    return RunRecord(
        **header,
        planned=tuple(_decode(kinds.get("planned", ()), lambda line: decoded(parts.with_cell(line), CellName), problems)),
        skips=tuple(_decode(kinds.get("skip", ()), _skipped, problems)),
        batches=tuple(_decode(kinds.get("batch", ()), lambda line: decoded(line, FoundBatch), problems)),
        parallel=next(iter(_decode(kinds.get("parallel", ()), _parallel, problems)), None),
        verified=verified,
        complete=end is not None,
        seconds=number_or_nan((end or {}).get("seconds")),
        estimated_seconds=number_or_nan((end or {}).get("estimated_seconds")),
        problems=tuple(problems),
    )


def _header(line: Record, problems: list[str]) -> dict[str, Any]:
    try:
        header = decoded(line, RunHeader)
    except Malformed as why:
        problems.append(f"its first line: {why}")
        return _header({}, problems)
    return {**asdict(header), "unix_seconds": _begin(header.unix_seconds, problems), "facts": line}


def _begin(unix_seconds: float, problems: list[str]) -> float:
    """Return when the run began; NaN if unknown or still to come, since such a run would be the newest one for ever."""
    if not inputs.is_to_come(unix_seconds):
        return unix_seconds
    problems.append(f"its first line: unix_seconds is {unix_seconds:.0f}, which is still to come: when it began isn't known")
    return math.nan


def _decode(lines: Iterable[Event], make: Callable[[Event], T], problems: list[str]) -> Iterable[T]:
    for line in lines:
        try:
            yield make(line)
        except Malformed as why:
            problems.append(f'a line "{line["event"]}": {why}')


def _skipped(line: Event) -> Skipped:
    fix = None if line.get("fix") == "" else line.get("fix")
    return decoded({**line, "name": parts.with_cell(line), "fix": fix}, Skipped)


def _parallel(line: Event) -> ParallelTest:
    lanes = line.get("lanes")
    return decoded({**line, "lanes": list(map(without_nulls, lanes)) if isinstance(lanes, list) else lanes}, ParallelTest)
