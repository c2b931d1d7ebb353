"""What a box and the telemetry wrote into a launch's file -> fields of a Launch. A malformed line is reported, once.

event_fields.py says what is malformed; here its fields only become a Launch's.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from torchmatrix.facts import agreement, checked, clocks, event_fields
from torchmatrix.facts.checked import Malformed, Record
from torchmatrix.facts.events import ARRIVED, Event, version_problem
from torchmatrix.facts.parts import (
    ALL_REDUCE,
    Block,
    Box,
    Collective,
    Failure,
    Gpu,
    Memory,
    OtherNode,
    Precision,
    Readings,
    Reference,
    Requests,
    SeenDevice,
    Transport,
    Unseen,
    WarmUp,
)
from torchmatrix.ground.numbers import number_or_nan

_SENSED = frozenset({
    "temperature_celsius", "sm_clock_mhz", "clock_mhz", "power_watts", "energy_joules", "busy_cpus", "throttle_count",
    "ecc_uncorrected", "quota_periods", "quota_seconds",
})  # fmt: skip
"""The fields of a reading that are computed with."""

_PHASES = ("measure", "warm-up", "unseen", "seen")
"""Of blocks of steps."""
_Place = tuple[str, int | None]
"""Phase and number of a window."""
_Rows = Sequence[Sequence[float]]
"""For each rank, the steps in order."""
_Steps = tuple[_Rows, _Rows]
"""Their times and their losses."""


def told(events: Sequence[Event]) -> dict[str, Any]:
    """The fields that come from the box's lines and the telemetry; the first malformed line is reported."""
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event["event"], []).append(event)
    made, wrong = _made(kinds)
    try:
        blocks = {phase: _blocks(phase, made.get("sample", ()), made.get("steps", ())) for phase in _PHASES}
    except Malformed as why:
        blocks, wrong = (
            dict.fromkeys(_PHASES, ()),
            wrong or f'the box wrote "steps" lines that contradict its windows: {why}',
        )

    def all_of(kind: str) -> tuple[Any, ...]:
        return made.get(kind, ())

    def first_of(kind: str, default: Any = None) -> Any:
        return made[kind][0] if made.get(kind) else default

    return {
        "box": first_of("environment"),
        "told_ranks": first_of("setup", _UNTOLD)[0],
        "stamps": _stamps(events),
        "seen_devices": first_of("setup", _UNTOLD)[1],
        "parameters": first_of("setup", _UNTOLD)[2],
        "compile_cache": first_of("hello", (None, None))[0],
        "batches": first_of("hello", (None, None))[1],
        "windows": blocks["measure"],
        "warm_up_blocks": blocks["warm-up"],
        "unseen": Unseen(new=blocks["unseen"], old=blocks["seen"], error=first_of("unseen")),
        "requests": all_of("requests"),
        "warm_up": next(reversed(all_of("warm-up")), None),
        "phases": dict(reversed(all_of("phase"))),
        "memory": all_of("memory"),
        "enqueue_seconds": first_of("enqueue", ()),
        "precision": first_of("precision", ((), ()))[0],
        "changed_settings": first_of("precision", ((), ()))[1],
        "remarks": first_of("remarks", ()),
        "reference": first_of("reference"),
        "collectives": (*all_of("all-reduce"), *all_of("collective")),
        "telemetry": all_of("telemetry"),
        "other_nodes": all_of("node"),
        "transport": first_of("transport"),
        "failures": all_of("failure"),
        "is_done": "done" in kinds,
        "refused": next(filter(None, map(version_problem, kinds.get("hello", ()))), None),
        "malformed": wrong,
    }


def _made(kinds: Mapping[str, Sequence[Event]]) -> tuple[dict[str, tuple[Any, ...]], str | None]:
    """What the events of each kind say, none of a kind with a malformed line; and what is wrong with the first such line."""
    made: dict[str, tuple[Any, ...]] = {}
    wrong: list[str] = []
    for kind, make in _MAKERS.items():
        if kind in kinds:
            try:
                for event in kinds[kind]:
                    event_fields.check(event)
                made[kind] = tuple(map(make, kinds[kind]))
            except Malformed as why:
                wrong.append(f'the box wrote an invalid "{kind}" line: {why}')
    return made, next(iter(wrong), None)


def _sample(event: Record) -> tuple[_Place, Block]:
    begin, end = (event.get(f"{edge}_monotonic_seconds") for edge in ("start", "stop"))
    block = Block(
        steps=event["steps"],
        items=event["items"],
        seconds=tuple(event["seconds"]),
        edges=None if begin is None or end is None else (begin, end),
        step_seconds=tuple(map(tuple, event.get("step_seconds") or ())),
        losses=_losses(event),
        skipped_steps=max(event.get("skipped_steps") or (0,)),
        arrived=event.get(ARRIVED),
    )
    return (event["phase"], event.get("window")), block


def _requests(event: Record) -> Requests:
    return Requests(
        kind=event["kind"],
        rank=event["rank"],
        seconds=tuple(event["seconds"]),
        edges=(event["start_monotonic_seconds"], event["stop_monotonic_seconds"]),
        between=event.get("inputs_seconds") or 0.0,
        arrived=event.get(ARRIVED),
    )


def _losses(event: Record) -> tuple[tuple[float, ...], ...]:
    """What isn't finite is null."""
    return tuple(tuple(math.nan if one is None else one for one in rank) for rank in event.get("losses") or ())


def _steps(event: Record) -> tuple[_Place, _Steps]:
    return (event["phase"], event.get("window")), (event["step_seconds"], _losses(event))


def _blocks(phase: str, samples: Iterable[tuple[_Place, Block]], parts: Sequence[tuple[_Place, _Steps]]) -> tuple[Block, ...]:
    """The blocks of a phase. The times and losses of many steps stand on lines of their own, in order, before their block.

    Raises Malformed.
    """
    return tuple(_whole(block, [rows for at, rows in parts if at == place]) for place, block in samples if place[0] == phase)


def _whole(block: Block, parts: Sequence[_Steps]) -> Block:
    if not parts:
        return block
    for rows, _ in parts:
        agreement.same_ranks("step_seconds", rows, block.seconds)
    seconds, losses = zip(*parts, strict=True)
    return replace(block, step_seconds=_joined(seconds), losses=_joined(losses))


def _joined(parts: Sequence[_Rows]) -> tuple[tuple[float, ...], ...]:
    """The rows of each rank one after the other; of no rank that a part leaves out."""
    return tuple(tuple(chain.from_iterable(rows)) for rows in zip(*parts, strict=False))


def _hello(event: Record) -> tuple[str | None, int | None]:
    """How its compile cache was found, and how many batches take turns."""
    batches = (event.get("arguments") or {}).get("batches")
    return event.get("compile_cache"), batches if type(batches) is int and batches > 0 else None


def _box(event: Record) -> Box:
    return Box(torch=event.get("torch"), packages=tuple(event.get("packages") or ()), facts=event)


_UNTOLD = (None, (), None)


def _setup(event: Record) -> tuple[int | None, tuple[SeenDevice, ...], int | None]:
    """How many ranks there are, their devices, and how many parameters the model has."""
    names = ("name", "memory_bytes", "multiprocessors", "uuid")
    seen = (SeenDevice(**{name: device.get(name) for name in names}) for device in event.get("devices") or ())
    return event.get("world_size"), tuple(seen), event.get("parameters")


def _stamps(events: Sequence[Event]) -> tuple[clocks.Stamp, ...]:
    """Of each line of the box; none if the host recorded no arrivals."""
    pairs = ((event["monotonic_seconds"], event[ARRIVED]) for event in events if {"monotonic_seconds", ARRIVED} <= event.keys())
    return tuple((told, came) for told, came in pairs if checked.is_number(told) and checked.is_number(came))


def _warm_up(event: Record) -> WarmUp:
    return WarmUp(seconds=event.get("seconds"), flat=event.get("flat"), drift=event.get("drift"))


def _memory(event: Record) -> Memory:
    return Memory(phase=event["phase"], peak_bytes=tuple(event["peak_bytes"]))


def _known_step_seconds(event: Record) -> tuple[float, ...]:
    return tuple(seconds for seconds in event.get("step_seconds") or () if seconds is not None)


def _precision(event: Record) -> tuple[tuple[Precision, ...], tuple[str, ...]]:
    """What each rank computes in, and which settings were changed."""
    names = ("matmul", "convolution", "linear", "mixed", "matmul_backward", "convolution_backward")
    found = (Precision(**{name: rank.get(name) for name in names}) for rank in event.get("effective") or ())
    return tuple(found), tuple(event.get("changed") or ())


def _reference(event: Record) -> Reference:
    return Reference(
        flops_per_item=number_or_nan(event.get("flops_per_item")),
        differences=tuple(one if checked.is_number(one) else math.nan for one in event.get("differences") or ()),
        error=event.get("error"),
        proof=event.get("proof"),
        fingerprint=event.get("fingerprint") or {},
        unwatched=event.get("unwatched"),
        parity={name: number for name, number in (event.get("parity") or {}).items() if number is not None},
    )


def _collective(event: Record) -> Collective:
    told = [(one.get("bytes"), one.get("seconds"), one.get("bus_bytes_per_second")) for one in event.get("sizes") or ()]
    return Collective(
        operation=event.get("operation", ALL_REDUCE),
        sizes=tuple((size or 0, number_or_nan(seconds), number_or_nan(bus)) for size, seconds, bus in told),
        error=event.get("error"),
    )


def _failure(event: Record) -> Failure:
    return Failure(kind=event["kind"], message=event.get("message"))


def gpus_of(devices: Record) -> tuple[Gpu, ...]:
    """The GPUs of a device set. Raises Malformed."""
    return tuple(
        Gpu(name=checked.text_or_none(gpu, "name"), uuid=checked.text_or_none(gpu, "uuid"), facts=gpu)
        for gpu in checked.parts(devices, "gpus")
    )


def _other_node(event: Record) -> OtherNode:
    return OtherNode(
        name=checked.text(event, "name"),
        number=checked.whole(event, "number"),
        machine=checked.text_or_none(event, "machine"),
        gpus=gpus_of(checked.part(event, "gpus")),
        facts=event,
    )


def _transport(event: Record) -> Transport:
    return Transport(
        library=checked.text(event, "library"),
        network=checked.text_or_none(event, "network"),
        paths=checked.texts(event, "paths"),
    )


def _readings(event: Record) -> Readings:
    found = tuple(map(_reading, checked.parts(event, "readings")))
    return Readings(monotonic_seconds=checked.number(event, "monotonic_seconds"), readings=found)


def _reading(reading: Record) -> Record:
    """As it is, but without what is null."""
    checked.text(reading, "device")
    for key in ("reasons", "foreign"):
        checked.texts(reading, key)
    checked.text_or_none(reading, "error")
    for key in reading.keys() & _SENSED:
        checked.number_or_none(reading, key)
    return {key: value for key, value in reading.items() if value is not None} if None in reading.values() else reading


_MAKERS: Mapping[str, Callable[[Event], Any]] = {
    "sample": _sample,
    "steps": _steps,
    "requests": _requests,
    "unseen": lambda event: event["error"],
    "environment": _box,
    "setup": _setup,
    "precision": _precision,
    "all-reduce": _collective,
    "collective": _collective,
    "hello": _hello,
    "warm-up": _warm_up,
    "remarks": lambda event: tuple(event.get("texts") or ()),
    "reference": _reference,
    "enqueue": _known_step_seconds,
    "phase": lambda event: (event["phase"], event["seconds"]),
    "memory": _memory,
    "telemetry": _readings,
    "node": _other_node,
    "transport": _transport,
    "failure": _failure,
}
"""By the kind of event; of several malformed lines the first in this order is reported."""
