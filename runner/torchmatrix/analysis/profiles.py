"""What a profiler saw of a cell's steps: where their time goes, and why those of two cells take different times.

In: the traces that facts/profiles.py keeps. Out: shares of a step, bars that add up to a difference. None of it is a figure of
the cell: profiled steps are slower than measured ones, and no table, report or gate comes here.
Open first: shares.py, then why.py.
"""

import heapq
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from torchmatrix.core.inputs import Malformed, is_number

# The JSON of a trace, as torch.profiler writes it since torch 1.12 -> what ran when, on which thread or stream.
#
# The format is Chrome's: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.

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


# The allocations of traced steps -> a line over time, short enough to be drawn.

MOST_POINTS = 600
"""A line of more points is drawn with the lowest and the highest of each stretch of time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes that tensors took, as (seconds since the steps began, bytes). On a CPU beyond what they took before.

    `peak`: the most of all points, also of those that are left out.
    """

    points: tuple[tuple[float, float], ...]
    peak: float
    of_device: bool


def memory_of(traced: Traced) -> Memory | None:
    """None where no allocation was traced."""
    if not traced.allocated:
        return None
    points = sorted(traced.allocated)
    least = 0.0 if traced.on_device else min(taken for _, taken in points)
    raised = [(seconds, taken - least) for seconds, taken in points]
    peak = max(taken for _, taken in raised)
    return Memory(points=tuple(_thinned(raised)), peak=peak, of_device=traced.on_device)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= MOST_POINTS:
        return list(points)
    size = -(-2 * len(points) // MOST_POINTS)
    parts = [points[first : first + size] for first in range(0, len(points), size)]
    ends = [(min(part, key=lambda one: one[1]), max(part, key=lambda one: one[1])) for part in parts]
    return [point for pair in ends for point in sorted(set(pair))]


# A trace -> how long each operator or kernel ran in a step, so that all of them and the gaps add up to the step.

IDLE, NO_OPERATOR_RUNS = "(device idle)", "(in no operator)"
"""The gaps: on a device, and on a CPU, where Python and the C++ around operators run meanwhile."""
_HASH = re.compile(r"\b(?=[a-z]*\d)[a-z0-9]{24,}\b")
"""Part of the names of compiled graphs; another one for each compilation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """An operator or a kernel: seconds of its own in a step, and how often it ran in one. `by`: what launched a kernel."""

    name: str
    seconds: float
    calls: float
    by: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """Of a traced step of so many `seconds`: its `parts`, the largest first, and the gap, with which they add up to it."""

    seconds: float
    steps: int
    on_device: bool
    parts: tuple[Part, ...]

    @property
    def gap(self) -> float:
        """Seconds of a step in which nothing ran."""
        return max(0.0, self.seconds - sum(part.seconds for part in self.parts))

    @property
    def gap_name(self) -> str:
        """What a gap is."""
        return IDLE if self.on_device else NO_OPERATOR_RUNS


def shares(traced: Traced, kernels: bool = True) -> Shares:
    """By kernel, where there is a device and `kernels` are wanted; else by operator.

    Of operators inside each other the innermost counts. Where several threads or streams are busy at once, each of them gets
    an equal part of that time, so that nothing is counted twice.
    """
    by_kernel = traced.on_device and kernels
    seconds: dict[str, float] = {}
    for name, spent in _shared([list(_innermost(_named(lane, traced.on_device, kernels))) for lane in traced.lanes]):
        seconds[name] = seconds.get(name, 0.0) + spent
    calls = Counter(one.name for lane in traced.lanes for one in _named(lane, traced.on_device, kernels))
    launched = {_plain(one.name): one.operator for lane in traced.lanes for one in lane} if by_kernel else {}
    parts = (
        Part(name=name, seconds=spent / traced.steps, calls=calls[name] / traced.steps, by=launched.get(name, ""))
        for name, spent in seconds.items()
    )
    return Shares(
        seconds=traced.seconds / traced.steps,
        steps=traced.steps,
        on_device=traced.on_device,
        parts=tuple(sorted(parts, key=lambda part: (-part.seconds, part.name))),
    )


def _named(lane: Iterable[Slice], on_device: bool, kernels: bool) -> list[Slice]:
    """By the name that counts, which is the same in each trace."""
    by_operator = on_device and not kernels
    return [Slice(_plain(one.operator if by_operator else one.name), one.begin, one.end) for one in lane]


def _plain(name: str) -> str:
    return _HASH.sub("…", name)


_Piece = tuple[float, float, str]
"""Begin, end and name."""


def _innermost(lane: Sequence[Slice]) -> Iterator[_Piece]:
    """What ran when on one thread: of slices inside each other the last that began."""
    running: list[Slice] = []
    now = 0.0
    for one in sorted(lane, key=lambda one: (one.begin, -one.end)):
        while running and running[-1].end <= one.begin:
            over = running.pop()
            if over.end > now:
                yield now, over.end, over.name
                now = over.end
        if running and one.begin > now:
            yield now, one.begin, running[-1].name
        now = max(now, one.begin)
        running.append(one)
    while running:
        over = running.pop()
        if over.end > now:
            yield now, over.end, over.name
            now = over.end


def _shared(lanes: Sequence[Sequence[_Piece]]) -> Iterator[tuple[str, float]]:
    """The time of each piece; where so many lanes are busy, only that part of it."""
    begins = heapq.merge(*lanes)
    running: list[_Piece] = []
    now = 0.0
    for begin, end, name in begins:
        yield from _until(begin, now, running)
        running = [one for one in running if one[1] > begin]
        now = begin
        running.append((begin, end, name))
    yield from _until(float("inf"), now, running)


def _until(moment: float, now: float, running: Sequence[_Piece]) -> Iterator[tuple[str, float]]:
    """What the running pieces get from now to the moment."""
    left = sorted(running, key=lambda one: one[1])
    while left and now < moment:
        till = min(left[0][1], moment)
        for _, _, name in left:
            yield name, max(0.0, till - now) / len(left)
        now = max(now, till)
        left = [one for one in left if one[1] > now]
