"""The border of the facts: lines of JSON -> Launch or Unreadable. Malformed facts are handled here and nowhere else.

The host's own lines (the first and the last) make a file unreadable; a malformed line of the box makes a crashed launch.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, force_setattr

from torchmatrix.facts import checked, clocks, lines, old_facts, wire
from torchmatrix.facts.checked import Malformed
from torchmatrix.facts.events import ARRIVED, Event, version_problem
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.parts import Exit, Header, OtherNode, Readings, Transport, Unseen
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.files import named_below

_READ = (
    *("sample", "steps", "requests", "unseen", "environment", "setup", "precision", "all-reduce", "collective", "hello"),
    *("warm-up", "remarks", "reference", "enqueue", "phase", "memory", "telemetry", "node", "transport", "failure"),
)
"""The events that make fields of a launch; of several malformed lines the first in this order is reported."""
_TYPES: Mapping[str, type[wire.Line]] = {**wire.EVENTS, "telemetry": Readings, "node": OtherNode, "transport": Transport}
_PHASES = ("measure", "warm-up", "unseen", "seen")
"""Of blocks of steps."""
_Rows = Sequence[Sequence[Any]]
"""For each rank, the steps in order."""


def read_launch(path: Path) -> Launch | Unreadable:
    """Read one launch file, whatever its name; a truncated last line is not an error."""
    found = lines.read(path)
    damage = found.damage_of_launch
    return Unreadable(path=path, reason=damage) if damage else launch_of(path, found.events, found.verified)


def launch_at(path: Path) -> Launch:
    """The launch in a file. Raises BadInput if there is none."""
    found = read_launch(path)
    if isinstance(found, Unreadable):
        raise BadInput(f"{path} is not a launch file: {found.reason}", hint="name a round*.jsonl under results/")
    return found


def launches_below(folder: Path, names: str = "round*-try*.jsonl") -> Iterator[Launch | Unreadable]:
    """The launches in a folder of results, in the order of their paths; without batch trials, whose names differ."""
    return map(launch_in, launch_files(folder, names))


def launch_files(folder: Path, names: str = "round*-try*.jsonl") -> list[Path]:
    """The files that launches_below reads."""
    return named_below(folder, names)


def launch_in(path: Path) -> Launch | Unreadable:
    """The launch in a file of a results folder, if the file's name fits it."""
    found = read_launch(path)
    if isinstance(found, Launch) and (why := old_facts.misnamed(path, found.round, found.number)):
        return Unreadable(path=path, reason=why)
    return found


def sorted_out(found: Iterable[Launch | Unreadable]) -> tuple[list[Launch], list[Unreadable]]:
    """The launches, and the files that can't be read."""
    launches: list[Launch] = []
    rest: list[Unreadable] = []
    for one in found:
        if isinstance(one, Launch):
            launches.append(one)
        else:
            rest.append(one)
    return launches, rest


def launch_of(path: Path, events: Sequence[Event], verified: bool = False) -> Launch | Unreadable:
    """The launch in a file of these lines; `verified`: by their checksums."""
    if not events or events[0]["event"] != "launch":
        return Unreadable(path=path, reason="it has no header")
    try:
        end = wire.decoded(events[-1], Exit) if events[-1]["event"] == "exit" else None
        numbered = events[0] if "try" in events[0] else {**events[0], "try": old_facts.number(path)}
        header = asdict(wire.decoded(numbered, Header))
        return Launch(path=path, exit=end, verified=verified, **header, **told(events[1:]))
    except Malformed as why:
        return Unreadable(path=path, reason=str(why))


def told(events: Sequence[Event]) -> dict[str, Any]:
    """The fields of a launch that come from the box's lines and the telemetry; the first malformed line is reported."""
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event["event"], []).append(event)
    made, wrong = _made(kinds)
    try:
        blocks = {phase: _blocks(phase, made["sample"], made["steps"]) for phase in _PHASES}
    except ValueError as why:
        blocks = dict.fromkeys(_PHASES, ())
        wrong = wrong or f'the box wrote "steps" lines that contradict its windows: {why}'
    first = {kind: next(iter(some), None) for kind, some in made.items()}
    setup, hello, precision = first["setup"], first["hello"], first["precision"]
    batches = hello.arguments.get("batches") if hello else None
    return {
        "box": first["environment"],
        "told_ranks": setup.world_size if setup else None,
        "stamps": _stamps(events),
        "seen_devices": setup.devices if setup else (),
        "parameters": setup.parameters if setup else None,
        "compile_cache": hello.compile_cache if hello else None,
        "batches": batches if type(batches) is int and batches > 0 else None,
        "windows": blocks["measure"],
        "warm_up_blocks": blocks["warm-up"],
        "unseen": Unseen(new=blocks["unseen"], old=blocks["seen"], error=first["unseen"] and first["unseen"].error),
        "requests": made["requests"],
        "warm_up": next(reversed(made["warm-up"]), None),
        "phases": {one.phase: one.seconds for one in reversed(made["phase"])},
        "memory": made["memory"],
        "enqueue_seconds": tuple(
            seconds for seconds in (first["enqueue"].step_seconds if first["enqueue"] else ()) if seconds is not None
        ),
        "precision": precision.effective if precision else (),
        "changed_settings": precision.changed if precision else (),
        "remarks": first["remarks"].texts if first["remarks"] else (),
        "reference": first["reference"],
        "collectives": (*made["all-reduce"], *made["collective"]),
        "telemetry": made["telemetry"],
        "other_nodes": made["node"],
        "transport": first["transport"],
        "failures": made["failure"],
        "is_done": "done" in kinds,
        "refused": next(filter(None, map(version_problem, kinds.get("hello", ()))), None),
        "malformed": wrong,
    }


def _made(kinds: Mapping[str, Sequence[Event]]) -> tuple[dict[str, tuple[Any, ...]], str | None]:
    """The events of each kind, none of a kind with a malformed line; and what is wrong with the first such line."""
    made: dict[str, tuple[Any, ...]] = {}
    wrong: list[str] = []
    for kind in _READ:
        try:
            made[kind] = tuple(wire.decoded(event, _TYPES[kind]) for event in kinds.get(kind, ()))
        except Malformed as why:
            made[kind] = ()
            wrong.append(f'the box wrote an invalid "{kind}" line: {why}')
    return made, next(iter(wrong), None)


def _blocks(phase: str, blocks: Iterable[wire.Block], parts: Sequence[wire.Steps]) -> tuple[wire.Block, ...]:
    """The blocks of a phase. The times and losses of many steps stand on lines of their own, in order, before their block.

    Raises ValueError.
    """
    chosen = (block for block in blocks if block.phase == phase)
    return tuple(_whole(one, [part for part in parts if (part.phase, part.window) == (phase, one.window)]) for one in chosen)


def _whole(block: wire.Block, parts: Sequence[wire.Steps]) -> wire.Block:
    if not parts:
        return block
    for part in parts:
        wire.same_ranks("step_seconds", part.step_seconds, block.seconds)
    whole = copy.copy(block)
    force_setattr(whole, "step_seconds", _joined([part.step_seconds for part in parts]))
    force_setattr(whole, "losses", _joined([part.losses for part in parts]))
    return whole


def _joined(parts: Sequence[_Rows]) -> tuple[tuple[Any, ...], ...]:
    """The rows of each rank one after the other; of no rank that a part leaves out."""
    return tuple(tuple(chain.from_iterable(rows)) for rows in zip(*parts, strict=False))


def _stamps(events: Sequence[Event]) -> tuple[clocks.Stamp, ...]:
    """Of each line of the box; none if the host recorded no arrivals."""
    pairs = ((event["monotonic_seconds"], event[ARRIVED]) for event in events if {"monotonic_seconds", ARRIVED} <= event.keys())
    return tuple((told, came) for told, came in pairs if checked.is_number(told) and checked.is_number(came))
