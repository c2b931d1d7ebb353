"""The JSON of a trace, as torch.profiler writes it since torch 1.12 -> what ran when, on which thread or stream.

The format is Chrome's: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from torchmatrix.facts.checked import Malformed, is_number

WINDOW, STEP = "torchmatrix: steps", "torchmatrix: step"
"""What the box (images/workload/profiling.py) calls the traced steps, all together and each."""
NO_OPERATOR = "(launched by no operator)"
_OPERATORS = frozenset({"cpu_op", "Operator", "user_annotation"})
_ON_DEVICE = frozenset({"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"})
_ALLOCATION = "[memory]"
_ID = "External id"
"""An operator's, which what it launches carries, too."""
_MICROSECOND = 1e-6
_Event: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Slice:
    """What ran from `begin` to `end`, in seconds since the window began. `operator`: what launched it, if it is a kernel."""

    name: str
    begin: float
    end: float
    operator: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """The traced steps, which took `seconds`. `lanes`: what each thread, or each stream of the device, did in that time.

    `on_device`: the lanes are streams, and their slices kernels and copies; else they are threads, and their slices operators,
    one inside the other. `allocated`: (seconds, bytes) after each allocation of that device; empty where none were traced.
    """

    seconds: float
    steps: int
    on_device: bool
    lanes: tuple[tuple[Slice, ...], ...]
    allocated: tuple[tuple[float, float], ...]


def parse(data: bytes) -> Traced:
    """Raises Malformed."""
    events = [event for event in _events(data) if isinstance(event, dict) and isinstance(event.get("name"), str)]
    spans = [event for event in events if event.get("ph") == "X" and is_number(event.get("ts")) and is_number(event.get("dur"))]
    operators = [event for event in spans if event.get("cat") in _OPERATORS]
    window = _window(operators)
    kernels = [event for event in spans if event.get("cat") in _ON_DEVICE]
    launched_by = {_args(one)[_ID]: one["name"] for one in operators if _ID in _args(one)}
    own = [one for one in operators if one["name"] not in (WINDOW, STEP)]
    return Traced(
        seconds=(window[1] - window[0]) * _MICROSECOND,
        steps=sum(one["name"] == STEP for one in operators),
        on_device=bool(kernels),
        lanes=_lanes(kernels or own, window, launched_by if kernels else {}),
        allocated=tuple(_allocated(events, window, 1 if kernels else 0)),
    )


def _events(data: bytes) -> list[Any]:
    """Kineto doesn't escape all that JSON wants escaped: what orjson refuses, the slower parser may take."""
    try:
        found = orjson.loads(data)
    except ValueError:
        try:
            found = json.loads(data.decode(errors="replace"), strict=False)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"the trace is not JSON: {error}") from None
    events = found.get("traceEvents") if isinstance(found, dict) else found
    if not isinstance(events, list):
        raise Malformed("the trace has no events")
    return events


def _window(operators: Sequence[_Event]) -> tuple[float, float]:
    """In microseconds, as the trace counts them."""
    found = [one for one in operators if one["name"] == WINDOW]
    if len(found) != 1 or not found[0]["dur"] > 0 or not any(one["name"] == STEP for one in operators):
        raise Malformed("the trace lacks the steps: it was cut off, or is not of this tool")
    return found[0]["ts"], found[0]["ts"] + found[0]["dur"]


def _lanes(
    events: Iterable[_Event], window: tuple[float, float], launched_by: Mapping[Any, str]
) -> tuple[tuple[Slice, ...], ...]:
    lanes: dict[tuple[str, str], list[Slice]] = {}
    for one in events:
        begin, end = max(one["ts"], window[0]), min(one["ts"] + one["dur"], window[1])
        if begin < end:
            operator = launched_by.get(_args(one).get(_ID), NO_OPERATOR) if launched_by else ""
            times = ((begin - window[0]) * _MICROSECOND, (end - window[0]) * _MICROSECOND)
            lanes.setdefault((str(one.get("pid")), str(one.get("tid"))), []).append(Slice(one["name"], *times, operator))
    return tuple(map(tuple, lanes.values()))


def _allocated(events: Sequence[_Event], window: tuple[float, float], device_type: int) -> Iterable[tuple[float, float]]:
    """On a device of this c10::DeviceType (0: CPU; 1: CUDA, which ROCm calls itself, too)."""
    for one in events:
        told = _args(one) if one["name"] == _ALLOCATION else {}
        is_whole = is_number(one.get("ts")) and is_number(told.get("Total Allocated"))
        if is_whole and told.get("Device Type") == device_type and window[0] <= one["ts"] <= window[1]:
            yield (one["ts"] - window[0]) * _MICROSECOND, float(told["Total Allocated"])


def _args(event: _Event) -> Mapping[str, Any]:
    found = event.get("args")
    return found if isinstance(found, dict) else {}
