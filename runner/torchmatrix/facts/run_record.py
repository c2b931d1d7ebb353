"""A run's own record (run.jsonl), typed: what was requested, what was planned and skipped, how far it got."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torchmatrix.facts import checked, old_facts
from torchmatrix.facts.checked import Malformed, Record
from torchmatrix.facts.events import Event
from torchmatrix.ground.numbers import number_or_nan

Facts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class CellName:
    """Which cell: its id, and the fields that the id is made of. `ddp_workload`: the workload that this one explains."""

    cell: str
    stack: str
    workload: str
    ddp_workload: str
    parallel: str
    devices: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """A cell that could not be measured: why, and what would help."""

    name: CellName
    reason: str
    fix: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundBatch:
    """The batch that was found for a stack and workload; None: not even one item fits."""

    stack: str
    workload: str
    batch: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneTest:
    """One lane in a ParallelTest: its devices, the cell that was launched, and its throughput beside the others over alone.

    `low`, `high`: the limits of the ratio; `alone`, `beside`: the throughputs of the rounds (items per second), in order.
    """

    devices: str
    cell: str
    ratio: float
    low: float
    high: float
    alone: tuple[float, ...]
    beside: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelTest:
    """Whether launches on different devices disturb each other on this machine (analysis.disturbance).

    `shown`: that they don't, so they were measured at once; `why`: in words.
    """

    shown: bool
    why: str
    lanes: tuple[LaneTest, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """One run. `facts`: its first line as it is, empty if that can't be read.

    `unix_seconds`: when it began; NaN: unknown. `machine`: the identity of its machine (machine.identity); None in facts of
    earlier versions. `key`: what was requested, as one word; `matrix`: the text of the matrix; `complete`: the run finished,
    after `seconds` in its last session, for which `estimated_seconds` were estimated (NaN: unknown). `parallel`: None if
    nothing was tested. `verified`: the record has checksums, and they match. `problems`: lines that can't be read, each with
    the reason.
    """

    unix_seconds: float
    machine: str | None
    key: str | None
    command: str | None
    matrix: str
    workload_hash: str | None
    watch_notes: tuple[str, ...]
    host: Facts
    method: Facts
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
    """The record in these lines; malformed lines are left out and listed in `problems`.

    `verified`, `damage`: what their checksums say; damage is a problem, too.
    """
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event["event"], []).append(event)
    problems: list[str] = [damage] if damage else []
    end = next((event for event in kinds.get("run-exit", ()) if event.get("complete") is True), None)
    header = _header(next(iter(kinds.get("run", ())), {}), problems)
    return RunRecord(
        **header,
        planned=tuple(_each(kinds.get("planned", ()), _name, problems)),
        skips=tuple(_each(kinds.get("skip", ()), _skipped, problems)),
        batches=tuple(_each(kinds.get("batch", ()), _batch, problems)),
        parallel=next(iter(_each(kinds.get("parallel", ()), _parallel, problems)), None),
        verified=verified,
        complete=end is not None,
        seconds=number_or_nan((end or {}).get("seconds")),
        estimated_seconds=number_or_nan((end or {}).get("estimated_seconds")),
        problems=tuple(problems),
    )


def _header(line: Record, problems: list[str]) -> dict[str, Any]:
    try:
        return {
            "unix_seconds": _begin(line, problems),
            "machine": checked.text_or_none(line, "machine"),
            "key": checked.text_or_none(line, "key"),
            "command": checked.text_or_none(line, "command"),
            "matrix": checked.text_or_none(line, "matrix") or "",
            "workload_hash": checked.text_or_none(line, "workload_hash"),
            "watch_notes": checked.texts(line, "watch_notes"),
            "host": _host(checked.part(line, "host")),
            "method": checked.part(line, "method"),
            "facts": line,
        }
    except Malformed as why:
        problems.append(f"its first line: {why}")
        return _header({}, problems)


def _begin(line: Record, problems: list[str]) -> float:
    """NaN where it isn't known: also if it is still to come, since such a run would be the newest one for ever."""
    found = checked.moment_or_nan(line, "unix_seconds")
    if not checked.is_to_come(found):
        return found
    problems.append(f"its first line: unix_seconds is {found:.0f}, which is still to come: when it began isn't known")
    return math.nan


def _host(host: Record) -> Record:
    """Raises Malformed if a part that is read has the wrong type."""
    checked.text_or_none(host, "name")
    checked.text_or_none(host, "cpu")
    checked.texts(host, "notes")
    for gpu in checked.parts(host, "gpus"):
        checked.text_or_none(gpu, "name")
    return host


def _each(lines: Iterable[Event], make: Any, problems: list[str]) -> Iterable[Any]:
    for line in lines:
        try:
            yield make(line)
        except Malformed as why:
            problems.append(f'a line "{line["event"]}": {why}')


def _name(line: Event) -> CellName:
    told = old_facts.with_cell(line)
    return CellName(**{name: checked.text(told, name) for name in CellName.__dataclass_fields__})


def _skipped(line: Event) -> Skipped:
    return Skipped(name=_name(line), reason=checked.text(line, "reason"), fix=checked.text_or_none(line, "fix") or None)


def _batch(line: Event) -> FoundBatch:
    return FoundBatch(
        stack=checked.text(line, "stack"), workload=checked.text(line, "workload"), batch=checked.whole_or_none(line, "batch")
    )


def _parallel(line: Event) -> ParallelTest:
    return ParallelTest(
        shown=checked.flag(line, "shown"),
        why=checked.text(line, "why"),
        lanes=tuple(_lane(lane) for lane in checked.parts(line, "lanes")),
    )


def _lane(lane: Record) -> LaneTest:
    return LaneTest(
        devices=checked.text(lane, "devices"),
        cell=checked.text(lane, "cell"),
        ratio=checked.number_or_nan(lane, "ratio"),
        low=checked.number_or_nan(lane, "low"),
        high=checked.number_or_nan(lane, "high"),
        alone=checked.numbers(lane, "alone"),
        beside=checked.numbers(lane, "beside"),
    )
