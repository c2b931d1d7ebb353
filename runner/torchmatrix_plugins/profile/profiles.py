"""Profiles of a cell's steps: kept on disk, and where their time goes, by operator or kernel, and their memory.

profiles/HOST/CELL/STAMP/profile.json       what was profiled and where, and how long steps took with the profiler and without
profiles/HOST/CELL/STAMP/trace.json.gz      the traced steps, as Chrome's trace format has them
profiles/HOST/CELL/STAMP/memory.json.gz     a few more steps, with what they allocate

The folder is one of their own, so that no reader of results meets a profile. None of it is a figure of the cell: profiled steps
are slower than measured ones, and no table, report or gate uses them. why.py compares the shares of two cells.
"""

import glob
import heapq
import json
import re
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import orjson
from msgspec import Meta, Struct, field

from torchmatrix.core import inputs
from torchmatrix.core.files import disk_errors, plain_bytes, write_whole
from torchmatrix.core.inputs import Malformed, is_number, json_bytes
from torchmatrix.facts.wire import Moment, OneOrMore, decoded

# Profiles on disk: a profiler's traces of a cell's steps. In a folder of their own, so that no reader of results meets one.
#
# profiles/HOST/CELL/STAMP/profile.json what was profiled and where, and how long steps took with the profiler and without
# profiles/HOST/CELL/STAMP/trace.json.gz the traced steps, as Chrome's trace format has them
# profiles/HOST/CELL/STAMP/memory.json.gz a few more steps, with what they allocate

VERSION = 1
MOST_PACKED_BYTES = 256 * 2**20
MOST_BYTES = 2 * 2**30
"""The largest size of one trace, packed and unpacked."""
RECORD, TRACE, MEMORY = "profile.json", "trace", "memory"
_MOST_RECORD_BYTES = 8 * 2**20
Positives = Annotated[tuple[Annotated[float, Meta(gt=0, le=1e300)], ...], Meta(min_length=1)]
"""A positive number of each rank."""


class Profile(Struct, frozen=True, kw_only=True):
    """One profile. `plain`, `profiled`: seconds of all steps, without the profiler and with it, of each rank.

    `work`: the work of a step, by name: model, mode, batch, number of devices, image size and sequence length.
    `gpus`: the device set, with its threads. `named`: whether kernels that were compiled for a CPU have names.
    `environment`, `workload_hash`: of the image and of the workload's program, as a launch's header has them.
    """

    folder: Path
    cell: str
    stack: str
    torch: str | None = None
    host: str
    machine: str | None = None
    environment: str | None = None
    workload_hash: str | None = None
    work: dict[str, Any]
    unix_seconds: Moment
    steps: OneOrMore
    plain: Positives = field(name="plain_seconds")
    profiled: Positives = field(name="profiled_seconds")
    named: bool = False
    gpus: dict[str, Any] = {}
    command: str

    @property
    def plain_seconds(self) -> float:
        """Return the seconds of a step on the slowest rank, without the profiler."""
        return float(max(self.plain)) / self.steps

    @property
    def profiled_seconds(self) -> float:
        """Return the seconds of a step on the slowest rank, with the profiler."""
        return float(max(self.profiled)) / self.steps

    def trace(self, name: str = TRACE, most_bytes: int = MOST_BYTES) -> bytes:
        """Read the JSON of a trace. Raises Malformed, also if it unpacks to more than `most_bytes`."""
        path = self.path_of(name)
        try:
            return _unpack(plain_bytes(path, MOST_PACKED_BYTES), most_bytes)
        except (OSError, zlib.error) as error:
            raise Malformed(f"{path} can't be read: {error}") from None

    def path_of(self, name: str = TRACE) -> Path:
        """Return the path of a trace."""
        return self.folder / f"{name}.json.gz"


def save_profile(root: Path, host: str, record: Mapping[str, Any], traces: Mapping[str, bytes]) -> Profile:
    """Save a new profile next to the older ones of its cell. `traces`: packed, by name. Raises EngineUnusable."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(record["unix_seconds"]))
    folder = root / host / record["cell"] / stamp
    with disk_errors(folder, hint="free space, or write elsewhere: --profiles DIR"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, packed in traces.items():
            write_whole(folder / f"{name}.json.gz", packed)
        write_whole(folder / RECORD, json_bytes({"profile": VERSION, "host": host, **record}, indent=1))
    return read_profile(folder)


def newest_profile(root: Path, cell: str, machine: str | None, workload_hash: str) -> Profile | None:
    """Return the newest profile of a cell on this machine by this workload's program.

    Profiles that can't be read, or whose time is still to come, are left out.
    """
    profiles = []
    for path in root.glob(f"*/{glob.escape(cell)}/*/{RECORD}"):
        with suppress(Malformed):
            profile = read_profile(path.parent)
            is_of_program = (profile.cell, profile.machine, profile.workload_hash) == (cell, machine, workload_hash)
            if is_of_program and not inputs.is_to_come(profile.unix_seconds):
                profiles.append(profile)
    return max(profiles, key=lambda profile: profile.unix_seconds, default=None)


def read_profile(folder: Path) -> Profile:
    """Read the profile in a folder. Raises Malformed."""
    path = folder / RECORD
    try:
        record = orjson.loads(plain_bytes(path, _MOST_RECORD_BYTES))
    except (OSError, ValueError) as error:
        raise Malformed(f"{path} can't be read: {error}") from None
    if not isinstance(record, dict) or record.get("profile") != VERSION:
        raise Malformed(f"{path} is no profile that this version reads")
    profile = decoded({**record, "folder": folder}, Profile)
    if not isinstance(profile.work.get("batch"), int):
        raise Malformed(f"{path} doesn't say its batch")
    return profile


def _unpack(packed: bytes, most: int) -> bytes:
    """Unpack at most `most` bytes. Raises OSError for data that is cut off or larger, zlib.error for data not packed."""
    unpack = zlib.decompressobj(wbits=31)
    data = unpack.decompress(packed, most)
    if unpack.unconsumed_tail or not unpack.eof:
        raise OSError(f"it is cut off, or unpacks to more than {most:,} bytes")
    return data


# Parse the JSON of a trace, as torch.profiler writes it since torch 1.12: what ran when, on which thread or stream.
#
# The format is Chrome's: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.

WINDOW, STEP = "torchmatrix: steps", "torchmatrix: step"
"""The workload's names (images/workload/profiling.py) for the traced steps, all together and each."""
NO_OPERATOR = "(launched by no operator)"
_OPERATORS = frozenset({"cpu_op", "Operator", "user_annotation"})
_ON_DEVICE = frozenset({"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"})
_ALLOCATION = "[memory]"
_ID = "External id"
"""The key of an operator's id, which the kernels that it launches carry, too."""
_MICROSECOND = 1e-6
_SHORTEST, _LONGEST = 1e-3, 1e13
"""Microseconds that the traced steps may take."""
_Event: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Slice:
    """A span from `begin` to `end`, in seconds since the window began. `operator`: what launched it, if it is a kernel."""

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
    """Parse a trace. Raises Malformed."""
    events = [event for event in _events(data) if isinstance(event, dict) and isinstance(event.get("name"), str)]
    events = [event for event in events if isinstance(event.get("cat", ""), str)]
    spans = [event for event in events if event.get("ph") == "X" and is_number(event.get("ts")) and is_number(event.get("dur"))]
    operators = [event for event in spans if event.get("cat") in _OPERATORS]
    window = _window(operators)
    kernels = [event for event in spans if event.get("cat") in _ON_DEVICE]
    launched_by: dict[str | int | None, str] = {
        number: operator["name"] for operator in operators if (number := _id(operator)) is not None
    }
    own_operators = [operator for operator in operators if operator["name"] not in (WINDOW, STEP)]
    return Traced(
        seconds=(window[1] - window[0]) * _MICROSECOND,
        steps=sum(operator["name"] == STEP for operator in operators),
        on_device=bool(kernels),
        lanes=_lanes(kernels or own_operators, window, launched_by if kernels else {}),
        allocated=tuple(_allocated(events, window, 1 if kernels else 0)),
    )


def _events(data: bytes) -> list[Any]:
    """Return the events of a trace.

    Kineto doesn't escape all that JSON wants escaped: what orjson refuses, the slower parser may accept. A lone surrogate in a
    name becomes "?": no page can hold one.
    """
    try:
        document = orjson.loads(data)
    except ValueError:
        try:
            document = json.loads(data.decode(errors="replace"), strict=False)
            if b"\\ud" in data:
                document = json.loads(json_bytes(document))
        except (ValueError, RecursionError) as error:
            raise Malformed(f"the trace is not JSON: {error}") from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise Malformed("the trace has no events")
    return events


def _window(operators: Sequence[_Event]) -> tuple[float, float]:
    """Return begin and end of the window in microseconds, as the trace counts them."""
    windows = [(operator["ts"], operator["ts"] + operator["dur"]) for operator in operators if operator["name"] == WINDOW]
    if len(windows) != 1 or not any(operator["name"] == STEP for operator in operators):
        raise Malformed("the trace lacks the steps: it was cut off, or is not of this tool")
    ((begin, end),) = windows
    if not _SHORTEST <= end - begin <= _LONGEST:
        raise Malformed(f"the traced steps take {end - begin:g} microseconds, which no steps do")
    return begin, end


def _lanes(
    events: Iterable[_Event], window: tuple[float, float], launched_by: Mapping[str | int | None, str]
) -> tuple[tuple[Slice, ...], ...]:
    """Return the slices in the window by process and thread."""
    lanes: dict[tuple[str, str], list[Slice]] = {}
    for event in events:
        begin, end = max(event["ts"], window[0]), min(event["ts"] + event["dur"], window[1])
        if begin < end:
            operator = launched_by.get(_id(event), NO_OPERATOR) if launched_by else ""
            times = ((begin - window[0]) * _MICROSECOND, (end - window[0]) * _MICROSECOND)
            lanes.setdefault((str(event.get("pid")), str(event.get("tid"))), []).append(Slice(event["name"], *times, operator))
    return tuple(map(tuple, lanes.values()))


def _allocated(events: Sequence[_Event], window: tuple[float, float], device_type: int) -> Iterable[tuple[float, float]]:
    """Yield (seconds, bytes) after each allocation on a device of this c10::DeviceType (0: CPU; 1: CUDA, also ROCm)."""
    for event in events:
        arguments = _args(event) if event["name"] == _ALLOCATION else {}
        is_whole = is_number(event.get("ts")) and is_number(arguments.get("Total Allocated"))
        if is_whole and arguments.get("Device Type") == device_type and window[0] <= event["ts"] <= window[1]:
            yield (event["ts"] - window[0]) * _MICROSECOND, float(arguments["Total Allocated"])


def _id(event: _Event) -> str | int | None:
    """Return the id by which a kernel names its operator."""
    number = _args(event).get(_ID)
    return number if isinstance(number, (str, int)) else None


def _args(event: _Event) -> Mapping[str, Any]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


# Memory of traced steps: a line over time, short enough to be drawn.

MOST_POINTS = 600
"""A line of more points is drawn by the lowest and the highest point of each stretch of time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes that tensors took, as (seconds since the steps began, bytes). On a CPU beyond what they took before.

    `peak`: the most of all points, also of those that are left out.
    """

    points: tuple[tuple[float, float], ...]
    peak: float
    of_device: bool


def memory_of(traced: Traced) -> Memory | None:
    """Return the memory of the traced steps; None where no allocation was traced."""
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
    ends = [(min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])) for part in parts]
    return [each for pair in ends for each in sorted(set(pair))]


# How long each operator or kernel ran in a step, so that all of them and the gaps add up to the step.

IDLE, NO_OPERATOR_RUNS = "(device idle)", "(in no operator)"
"""The gaps: on a device, and on a CPU, where Python and the C++ around operators run meanwhile."""
_ROUNDING = 1e-9
"""The part of a step that adding up the parts may lose or gain."""
_HASH = re.compile(r"\b(?=[a-z]*\d)[a-z0-9]{24,}\b")
"""A part of the names of compiled graphs, which differs with each compilation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """An operator or a kernel: seconds of its own in a step, and how often it ran in one. `by`: what launched a kernel."""

    name: str
    seconds: float
    calls: float
    by: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """A traced step of so many `seconds`: its `parts`, the largest first, and the gap, with which they add up to it."""

    seconds: float
    steps: int
    on_device: bool
    parts: tuple[Part, ...]

    @property
    def gap(self) -> float:
        """Return the seconds of a step in which nothing ran."""
        left = self.seconds - sum(part.seconds for part in self.parts)
        return left if left > _ROUNDING * self.seconds else 0.0

    @property
    def gap_name(self) -> str:
        """Return the name of a gap."""
        return IDLE if self.on_device else NO_OPERATOR_RUNS


def shares(traced: Traced, kernels: bool = True) -> Shares:
    """Return the shares by kernel, where there is a device and `kernels` are wanted; else by operator.

    Of operators inside each other the innermost counts. Where several threads or streams are busy at once, each of them gets
    an equal part of that time, so that nothing is counted twice.
    """
    by_kernel = traced.on_device and kernels
    seconds: dict[str, float] = {}
    for name, share in _shared([list(_innermost(_renamed(lane, traced.on_device, kernels))) for lane in traced.lanes]):
        seconds[name] = seconds.get(name, 0.0) + share
    calls = Counter(piece.name for lane in traced.lanes for piece in _renamed(lane, traced.on_device, kernels))
    launched = {_plain(piece.name): piece.operator for lane in traced.lanes for piece in lane} if by_kernel else {}
    parts = (
        Part(name=name, seconds=share / traced.steps, calls=calls[name] / traced.steps, by=launched.get(name, ""))
        for name, share in seconds.items()
    )
    return Shares(
        seconds=traced.seconds / traced.steps,
        steps=traced.steps,
        on_device=traced.on_device,
        parts=tuple(sorted(parts, key=lambda part: (-part.seconds, part.name))),
    )


def _renamed(lane: Iterable[Slice], on_device: bool, kernels: bool) -> list[Slice]:
    """Rename slices by operator or kernel, with names that are the same in each trace."""
    by_operator = on_device and not kernels
    return [Slice(_plain(piece.operator if by_operator else piece.name), piece.begin, piece.end) for piece in lane]


def _plain(name: str) -> str:
    return _HASH.sub("…", name)


_Piece = tuple[float, float, str]
"""Begin, end and name of a piece of time."""


def _innermost(lane: Sequence[Slice]) -> Iterator[_Piece]:
    """Yield what ran when on one thread: of slices inside each other the last that began."""
    running: list[Slice] = []
    now = 0.0
    for piece in sorted(lane, key=lambda piece: (piece.begin, -piece.end)):
        while running and running[-1].end <= piece.begin:
            ended = running.pop()
            if ended.end > now:
                yield now, ended.end, ended.name
                now = ended.end
        if running and piece.begin > now:
            yield now, piece.begin, running[-1].name
        now = max(now, piece.begin)
        running.append(piece)
    while running:
        ended = running.pop()
        if ended.end > now:
            yield now, ended.end, ended.name
            now = ended.end


def _shared(lanes: Sequence[Sequence[_Piece]]) -> Iterator[tuple[str, float]]:
    """Yield the name and time of each piece; where several lanes are busy, only its equal part of the time."""
    begins = heapq.merge(*lanes)
    running: list[_Piece] = []
    now = 0.0
    for begin, end, name in begins:
        yield from _until(begin, now, running)
        running = [piece for piece in running if piece[1] > begin]
        now = begin
        running.append((begin, end, name))
    yield from _until(float("inf"), now, running)


def _until(moment: float, now: float, running: Sequence[_Piece]) -> Iterator[tuple[str, float]]:
    """Yield the shares of the running pieces from now to the moment."""
    left = sorted(running, key=lambda piece: piece[1])
    while left and now < moment:
        till = min(left[0][1], moment)
        for _, _, name in left:
            yield name, max(0.0, till - now) / len(left)
        now = max(now, till)
        left = [piece for piece in left if piece[1] > now]
