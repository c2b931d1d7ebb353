"""What the host writes into a launch file, as structs that Launch holds. Times in seconds, memory in bytes.

A part that is missing, null or empty has the value that stands here, if there is one; a malformed one makes a file unreadable.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from torchmatrix.core.inputs import Record
from torchmatrix.facts.wire import Block, Clock, Facts, Finite, Line, Moment, Number, Whole, decoded, without_nulls

# The reader of old facts: what earlier versions didn't record is derived from the ids and names that they recorded.
#
# No other code takes an id or a file's name apart.

_EXPLAINS = ("independent", "no-sync")
_NAME = re.compile(r"(?:round|batch|probe)(\d+)-try(\d+)\.jsonl", re.ASCII)


def with_cell(line: Record) -> Record:
    """A `planned` or `skip` line with the fields of its cell, which were only in the cell's id."""
    if "workload" in line or not isinstance(line.get("cell"), str):
        return line
    stack, _, rest = line["cell"].partition("/")
    workload, _, devices = rest.partition("/")
    parallel = next((word for word in _EXPLAINS if workload.endswith(f"-{word}")), "ddp")
    known = {"stack": stack, "workload": workload, "parallel": parallel, "ddp_workload": ddp_workload(workload, parallel)}
    return {**known, "devices": devices, **line}


def ddp_workload(workload: str, parallel: str) -> str:
    """The id of the workload that this one explains: its own id without the ending that names the kind."""
    return workload.removesuffix(f"-{parallel}")


def try_number(path: Path) -> int:
    """Which try a launch was; 1 if its file doesn't have our kind of name."""
    found = _NAME.fullmatch(path.name)
    return int(found[2]) if found else 1


def misnamed(path: Path, round_: int, number_: int) -> str | None:
    """Why the name of a file in a results folder doesn't fit the launch in it, or None: a copy would count twice."""
    found = _NAME.fullmatch(path.name)
    if not found:
        return "its name is not that of a launch file, such as round1-try1.jsonl"
    if (int(found[1]), int(found[2])) != (round_, number_):
        return f"it holds try {number_} of round {round_}: it was copied or renamed"
    return None


# Does the box's clock run as the host's does? A slow one makes all that is timed with it look fast.
#
# Each line of a box has a stamp of the box's clock, and the host keeps when it came. A line may be late, never early: of
# several lines the one that came fastest tells by how much the clocks differ at that time. What that difference grows or
# shrinks by is the clock's, since both clocks count the same seconds. Where all lines of some time came at once, as after a
# daemon that hung, all may be late: then the clock isn't known, and that is told.

RELATIVE, SECONDS = 0.01, 0.05
"""Clocks agree within 1 % and 50 ms, by which all lines around some moment may be late. Honest ones agree within 0.05 %."""
BURST, LATE = 0.5, 0.5
"""Lines that came within BURST seconds were read at once: one delay of a busy host may make all of them late; by LATE seconds
that is no finding."""
IDLE_RELATIVE, IDLE_SECONDS = 0.02, 0.5
"""So much of a window's length, and so long besides, passes at most until the box tells the time again."""
AROUND = 8
"""Lines of which the fastest counts; more of them until they are no burst."""

Edges = tuple[float, float]
"""Begin and end of timed steps on the box's clock."""
Stamp = tuple[float, float]
"""Of a line: the box's clock when it was written, the host's when it came."""


class ClockJudgement(NamedTuple):
    """What the two clocks say of the same time, in words: what can't be (`wrong`), or why it isn't known (`unknown`)."""

    wrong: str | None = None
    unknown: str | None = None


def judge_clocks(stamps: Sequence[Stamp], windows: Sequence[Edges], others: Sequence[Edges] = ()) -> ClockJudgement:
    """Hold the box's clock against the host's. `others`: the edges of steps that were timed beside the windows."""
    found = list(_found(stamps, windows, others))
    return ClockJudgement(*(next(filter(None, texts), None) for texts in zip(ClockJudgement(), *found, strict=True)))


def clock_offset(stamps: Sequence[Stamp]) -> float | None:
    """The host's clock minus the box's, at most; None without a line."""
    return min((came - told for told, came in stamps), default=None)


def _found(stamps: Sequence[Stamp], windows: Sequence[Edges], others: Sequence[Edges]) -> Iterator[ClockJudgement]:
    if windows:
        begin, end = min(first for first, _ in windows), max(last for _, last in windows)
        before = [stamp for stamp in reversed(stamps) if stamp[0] <= begin]
        after = [stamp for stamp in stamps if stamp[0] >= end]
        yield from _between(_nearest(before), _nearest(after), "around the timed windows")
        for number, window in enumerate(windows if stamps else ()):
            yield from _after(window, f"after timed window {number}", stamps, (*windows, *others))
    half = len(stamps) // 2
    yield from _between(
        _nearest(stamps[:half]), _nearest(stamps[len(stamps) - half :][::-1]), "from the first lines to the last"
    )


def _after(window: Edges, where: str, stamps: Sequence[Stamp], timed: Sequence[Edges]) -> Iterator[ClockJudgement]:
    """A clock that is slow in a window and makes up for it right afterwards: before the next line, or between the next two."""
    begin, end = window
    allowed = IDLE_SECONDS + IDLE_RELATIVE * (end - begin)
    later = [stamp for stamp in stamps if stamp[0] >= end][:2]
    begins = [first for first, _ in timed if first >= end]
    idle = min([told for told, _ in later] + begins, default=end) - end
    if idle > allowed:
        yield ClockJudgement(f"the box tells of nothing in the {idle:.3f} s {where} of {end - begin:.3f} s")
    if len(later) == 2:
        own, hosts = (later[1][clock] - later[0][clock] for clock in (0, 1))
        if own - hosts > allowed and min([own, *(begun - later[0][0] for begun in begins)]) > allowed:
            yield ClockJudgement(f"right {where} of {end - begin:.3f} s, {_passed(own, hosts)}")


def _nearest(stamps: Sequence[Stamp]) -> Sequence[Stamp]:
    """The first AROUND of `stamps`; more where these came in a burst."""
    first = last = stamps[0][1] if stamps else 0.0
    for number, (_, came) in enumerate(stamps):
        if number >= AROUND and last - first >= BURST:
            return stamps[:number]
        first, last = min(first, came), max(last, came)
    return stamps


def _between(some: Sequence[Stamp], others: Sequence[Stamp], where: str) -> Iterator[ClockJudgement]:
    """`some` were written before `others`."""
    if not some or not others:
        return
    (told, came), (told_then, came_then) = (min(group, key=lambda stamp: stamp[1] - stamp[0]) for group in (some, others))
    own, hosts = told_then - told, came_then - came
    late = others if hosts > own else some
    if abs(hosts - own) <= SECONDS + RELATIVE * hosts:
        return
    text = f"{where}, {_passed(own, hosts)}"
    if _spread(late) >= BURST:
        yield ClockJudgement(wrong=text)
    elif abs(hosts - own) > LATE + RELATIVE * hosts:
        yield ClockJudgement(unknown=f"the box's clock: {text}, but the host may have read these lines late")


def _passed(own: float, hosts: float) -> str:
    return f"{own:.3f} s went by on the box's clock and {hosts:.3f} s on the host's"


def _spread(stamps: Sequence[Stamp]) -> float:
    """For how long these lines came, on the host's clock, which nobody in the box sets."""
    return max(came for _, came in stamps) - min(came for _, came in stamps)


_MOST_NODES = 10_000
"""More nodes of one launch are malformed: each of their devices has a name."""
_NAMES = ("id", "ddp_id", "own")
"""The fields of a recorded workload that are not factors."""


class AskedStack(Struct, frozen=True, kw_only=True):
    """The stack as the matrix requested it; `torch` is None if it wasn't known beforehand."""

    name: str
    torch: str | None = None
    source: str | None = None
    accelerator: str | None = None
    cuda: str | None = None


class OwnFile(Struct, frozen=True, kw_only=True):
    """The file of a user's own model: its path below the folder of the matrix, its hash."""

    path: str
    sha256: str


class AskedWorkload(Struct, frozen=True, kw_only=True, dict=True):
    """The workload as the matrix requested it, with the fields that the tool itself computes with.

    `own`: None for a model of a library. `facts`: everything recorded about it.
    """

    id: str
    model: str
    unit: str
    mode: str
    precision: str
    compile: bool = False
    channels_last: bool = False
    attention: str | None = None
    batch: Whole | str
    image_size: Whole | None = None
    sequence_length: Whole | None = None
    parallel: str = "ddp"
    explain: bool = False
    own: OwnFile | None = None
    facts: Facts

    @cached_property
    def factors(self) -> Facts:
        """Everything that a workload can vary, by name, as recorded."""
        return {key: value for key, value in self.facts.items() if key not in _NAMES}


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU of a launch; `facts`: everything recorded about it."""

    name: str | None = None
    uuid: str | None = None
    facts: Facts


class NodeDevices(Struct, frozen=True, kw_only=True):
    """The devices of one node."""

    gpus: tuple[Gpu, ...] = ()


class Devices(NodeDevices, frozen=True, kw_only=True):
    """The devices of a launch in order: `label`, such as gpu0+1; `threads`: CPU threads per process.

    `indices`, `gpus`: on each of its `nodes`; the GPUs are those of the first one. `unlike`: in what CPU slots differ; mostly
    empty.
    """

    label: str
    indices: Annotated[tuple[Whole, ...], Meta(min_length=1)]
    vendor: str | None = None
    threads: Whole = 1
    nodes: Annotated[int, Meta(ge=1, le=_MOST_NODES)] = 1
    unlike: str = ""

    @property
    def count(self) -> int:
        """Of all nodes."""
        return len(self.indices) * self.nodes

    @property
    def is_cpu(self) -> bool:
        """Whether they are slots of a CPU rather than GPUs."""
        return self.vendor == "cpu"

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each device, such as gpu0; on the other nodes such as gpu0@2."""
        prefix = "cpu" if self.is_cpu else "gpu"
        places = ("", *(f"@{node}" for node in range(2, self.nodes + 1)))
        return tuple(f"{prefix}{index}{place}" for place in places for index in self.indices)

    @property
    def uuids(self) -> tuple[str, ...]:
        """What CUDA may call them: their own UUIDs, and those of the GPUs that they are slices of."""
        return tuple(str(name) for gpu in self.gpus for name in (gpu.uuid, gpu.facts.get("slice_of")) if name)


def device_on(node: int, device: str) -> str:
    """What readings call a device of another node, such as cpu@2: only a UUID is none of the first node's, too."""
    return device if device.startswith(("GPU-", "MIG-")) else f"{device}@{node}"


class UsedMethod(Struct, frozen=True, kw_only=True):
    """How the launch was measured. `facts`: everything recorded about it; empty in facts older than methods."""

    name: str = "steady"
    statistic: str = "median"
    start_below_celsius: Number | None = None
    facts: Facts = {}


class Start(Struct, frozen=True, kw_only=True):
    """The state in which a launch began: after how long a wait, at what temperature, and whether above the method's limit."""

    waited_seconds: Finite = nan
    temperature_celsius: Number | None = None
    too_warm: bool = False


class UsedImage(Struct, frozen=True, kw_only=True):
    """The image, or the virtualenv, that a launch ran in; `facts`: everything recorded about it."""

    reference: str
    id: str | None = None
    facts: Facts


class Header(Struct, frozen=True, kw_only=True, dict=True):
    """The first line of a launch file: who, what and how as requested.

    `round` and `number`: its place in the cell, and which try it was. `ddp_workload`: the id of the workload that this one
    explains; empty where it wasn't recorded. `trial`: it only tests a batch. `unix_seconds` and `monotonic_seconds`: when it
    began. `machine`: its identity, None in facts of earlier versions. `image`: None if it was not built. `started`: how the
    engine started it, such as its limits. `facts`: everything recorded about it.
    """

    run: str
    cell: str
    round: Whole
    number: Whole = field(name="try")
    trial: bool = False
    unix_seconds: Moment
    monotonic_seconds: Number | None = None
    tool: str | None = None
    workload_hash: str | None = None
    wire_version: Whole | None = field(default=None, name="protocol")
    machine: str | None = None
    stack: AskedStack
    workload: AskedWorkload
    ddp_workload: str = ""
    devices: Devices = field(name="gpus")
    method: UsedMethod = UsedMethod()
    batch_requested: Whole | str | None = None
    batch_used: Whole | None = None
    start: Start | None = None
    image: UsedImage | None = None
    host: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    command: str
    started: dict[str, Any] = {}
    facts: Facts

    @property
    def ddp_id(self) -> str:
        """The id of the workload that this one explains; its own if it explains none."""
        return self.ddp_workload or ddp_workload(self.workload.id, self.workload.parallel)

    @property
    def trial_batch(self) -> int | None:
        """The batch that a trial launch tested; None for a launch that measures."""
        return self.batch_used if self.trial else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Unseen:
    """Steps on batches that no step had seen, after the windows: `new`, and `old` ones timed in turns with all `new` but the
    first. `error`: why there are none.
    """

    new: tuple[Block, ...]
    old: tuple[Block, ...]
    error: str | None


class Exit(Struct, frozen=True, kw_only=True, tag_field="event", tag="exit"):
    """The last line of a launch file. `reason`: the outcome, if the host ended or refused the launch; `tail`: of the log.

    `beside`: the cells that ran on other devices at some moment of it; empty if none did. `losses_compared`: how many losses of
    a rank were held against those of the launch that was proven in full; None: that was not done.
    """

    unix_seconds: Number | None = None
    monotonic_seconds: Number | None = None
    returncode: Whole | None = None
    reason: str | None = None
    message: str | None = None
    oom_killed: bool = False
    tail: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    losses_compared: Whole | None = None


class OtherNode(Line, frozen=True, kw_only=True, tag="node"):
    """A node of a cluster that took part in a launch beside the one that recorded it; `facts`: everything recorded of it.

    `number`: from 2; the recording node is the first.
    """

    name: str
    number: Whole
    machine: str | None = None
    devices: NodeDevices = field(default=NodeDevices(), name="gpus")
    facts: Facts

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Its GPUs."""
        return self.devices.gpus


class Transport(Line, frozen=True, kw_only=True, tag="transport"):
    """How the ranks of several nodes talk to each other: `library` (nccl, gloo), `network` in its own words, such as IB.

    `paths`: by what the library sends from node to node, such as NET/IB/0/GDRDMA; empty where it doesn't say.
    """

    library: str
    network: str | None = None
    paths: tuple[str, ...] = ()


class Reading(Struct, frozen=True, kw_only=True):
    """What is computed with of a reading of one device."""

    device: str
    reasons: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    error: str | None = None
    temperature_celsius: Number | None = None
    sm_clock_mhz: Number | None = None
    clock_mhz: Number | None = None
    power_watts: Number | None = None
    energy_joules: Number | None = None
    busy_cpus: Number | None = None
    throttle_count: Number | None = None
    ecc_uncorrected: Number | None = None
    quota_periods: Number | None = None
    quota_seconds: Number | None = None


class Readings(Line, frozen=True, kw_only=True, tag="telemetry"):
    """What the sensors read at one moment: one Reading per device, each as recorded, without what is null."""

    monotonic_seconds: Clock
    readings: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Raise Malformed unless all of them are readings."""
        force_setattr(self, "readings", tuple(map(without_nulls, self.readings)))
        for reading in self.readings:
            decoded(reading, Reading)
