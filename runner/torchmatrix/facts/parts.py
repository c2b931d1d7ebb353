"""The host's parts of a launch file, as structs that Launch holds. Times in seconds, memory in bytes.

A part that is missing, null or empty has its default, if it has one; a malformed part makes a file unreadable.
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

# Old facts: fields that earlier versions didn't record are derived from the ids and names that they recorded. No other code
# takes an id or a file's name apart.

_EXPLAINS = ("independent", "no-sync")
_NAME = re.compile(r"(?:round|batch|probe)(\d+)-try(\d+)\.jsonl", re.ASCII)


def with_cell(line: Record) -> Record:
    """Return a `planned` or `skip` line with the fields of its cell, which earlier versions kept only in the cell's id."""
    if "workload" in line or not isinstance(line.get("cell"), str):
        return line
    stack, _, rest = line["cell"].partition("/")
    workload, _, devices = rest.partition("/")
    parallel = next((word for word in _EXPLAINS if workload.endswith(f"-{word}")), "ddp")
    ddp = ddp_workload(workload, parallel)
    return {"stack": stack, "workload": workload, "parallel": parallel, "ddp_workload": ddp, "devices": devices, **line}


def ddp_workload(workload: str, parallel: str) -> str:
    """Return the id of the workload that this one explains: its own id without the ending that names the kind."""
    return workload.removesuffix(f"-{parallel}")


def try_number(path: Path) -> int:
    """Return which try a launch was; 1 if its file is not named like a launch file."""
    match = _NAME.fullmatch(path.name)
    return int(match[2]) if match else 1


def misnamed(path: Path, round_: int, number_: int) -> str | None:
    """Return why the name of a file in a results folder doesn't fit its launch, or None: a copy would count twice."""
    match = _NAME.fullmatch(path.name)
    if not match:
        return "its name is not that of a launch file, such as round1-try1.jsonl"
    if (int(match[1]), int(match[2])) != (round_, number_):
        return f"it holds try {number_} of round {round_}: it was copied or renamed"
    return None


# Clocks: does the clock of the workload process run as the host's does? A slow one makes all that it times look fast.
#
# Each line of the workload has a stamp of its clock, and the host keeps when the line came. A line may be late, never early:
# of several lines the one that came fastest shows by how much the clocks differ at that time. Both clocks count the same
# seconds, so a change of that difference is an error of the clock. Where all lines of some time came at once, as after a
# daemon that hung, all may be late: then the clock's error is reported as unknown.

RELATIVE, SECONDS = 0.01, 0.05
"""Clocks agree within 1 % and 50 ms, by which all lines around some moment may be late. Honest ones agree within 0.05 %."""
BURST, LATE = 0.5, 0.5
"""Lines that came within BURST seconds were read at once: one delay of a busy host may make all of them late; up to LATE
seconds are no finding."""
IDLE_RELATIVE, IDLE_SECONDS = 0.02, 0.5
"""The workload reports the time again after at most this share of a window's length plus these seconds."""
AROUND = 8
"""The number of lines of which the fastest counts; more of them until they are no burst."""

Edges = tuple[float, float]
"""Begin and end of timed steps on the workload's clock."""
Stamp = tuple[float, float]
"""Two times of a line: on the workload's clock when it was written, on the host's clock when it came."""


class ClockJudgement(NamedTuple):
    """The comparison of two clocks, in words: a difference that can't be (`wrong`), or why it isn't known (`unknown`)."""

    wrong: str | None = None
    unknown: str | None = None


def judge_clocks(stamps: Sequence[Stamp], windows: Sequence[Edges], others: Sequence[Edges] = ()) -> ClockJudgement:
    """Compare the workload's clock with the host's. `others`: the edges of steps that were timed besides the windows."""
    judgements = _judgements(stamps, windows, others)
    return ClockJudgement(*(next(filter(None, texts), None) for texts in zip(ClockJudgement(), *judgements, strict=True)))


def clock_offset(stamps: Sequence[Stamp]) -> float | None:
    """Return an upper limit of the host's clock minus the workload's; None without a line."""
    return min((came - written for written, came in stamps), default=None)


def _judgements(stamps: Sequence[Stamp], windows: Sequence[Edges], others: Sequence[Edges]) -> Iterator[ClockJudgement]:
    if windows:
        begin, end = min(first for first, _ in windows), max(last for _, last in windows)
        before = [stamp for stamp in reversed(stamps) if stamp[0] <= begin]
        after = [stamp for stamp in stamps if stamp[0] >= end]
        yield from _judge_between(_nearest(before), _nearest(after), "around the timed windows")
        for number, window in enumerate(windows if stamps else ()):
            yield from _judge_after(window, f"after timed window {number}", stamps, (*windows, *others))
    half = len(stamps) // 2
    yield from _judge_between(
        _nearest(stamps[:half]), _nearest(stamps[len(stamps) - half :][::-1]), "from the first lines to the last"
    )


def _judge_after(window: Edges, where: str, stamps: Sequence[Stamp], timed: Sequence[Edges]) -> Iterator[ClockJudgement]:
    """Judge a clock that is slow in a window and catches up right afterwards: before the next line, or between the next two."""
    begin, end = window
    allowed = IDLE_SECONDS + IDLE_RELATIVE * (end - begin)
    later = [stamp for stamp in stamps if stamp[0] >= end][:2]
    begins = [first for first, _ in timed if first >= end]
    idle = min([written for written, _ in later] + begins, default=end) - end
    if idle > allowed:
        yield ClockJudgement(f"the workload reports nothing in the {idle:.3f} s {where} of {end - begin:.3f} s")
    if len(later) == 2:
        workloads, hosts = (later[1][clock] - later[0][clock] for clock in (0, 1))
        if workloads - hosts > allowed and min([workloads, *(begun - later[0][0] for begun in begins)]) > allowed:
            yield ClockJudgement(f"right {where} of {end - begin:.3f} s, {_elapsed(workloads, hosts)}")


def _nearest(stamps: Sequence[Stamp]) -> Sequence[Stamp]:
    """Return the first AROUND of `stamps`; more where these came in a burst."""
    first = last = stamps[0][1] if stamps else 0.0
    for number, (_, came) in enumerate(stamps):
        if number >= AROUND and last - first >= BURST:
            return stamps[:number]
        first, last = min(first, came), max(last, came)
    return stamps


def _judge_between(before: Sequence[Stamp], after: Sequence[Stamp], where: str) -> Iterator[ClockJudgement]:
    """Judge the time that passed on both clocks from the fastest line of `before` to the fastest one of `after`."""
    if not before or not after:
        return
    first, last = (min(stamps, key=lambda stamp: stamp[1] - stamp[0]) for stamps in (before, after))
    workloads, hosts = last[0] - first[0], last[1] - first[1]
    late = after if hosts > workloads else before
    if abs(hosts - workloads) <= SECONDS + RELATIVE * hosts:
        return
    text = f"{where}, {_elapsed(workloads, hosts)}"
    arrivals = [came for _, came in late]  # on the host's clock, which nobody in the container sets
    if max(arrivals) - min(arrivals) >= BURST:
        yield ClockJudgement(wrong=text)
    elif abs(hosts - workloads) > LATE + RELATIVE * hosts:
        yield ClockJudgement(unknown=f"the workload's clock: {text}, but the host may have read these lines late")


def _elapsed(workloads: float, hosts: float) -> str:
    return f"{workloads:.3f} s went by on the workload's clock and {hosts:.3f} s on the host's"


_MOST_NODES = 10_000
"""A launch with more nodes is malformed: each of their devices has a name."""
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
    """The workload as the matrix requested it, with the fields that the tool itself uses.

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

    @property
    def items_each(self) -> int:
        """Return how many items a step does for each of its batch: in generation its output, else, of a model in tokens, its
        sequence, once for each micro batch.
        """
        if self.mode == "generate":
            return int(self.facts.get("output_length") or 1)
        each = self.sequence_length if self.unit == "tokens" and self.sequence_length else 1
        return each * int(self.facts.get("accumulate") or 1)

    @cached_property
    def factors(self) -> Facts:
        """Return everything that a workload can vary, by name, as recorded."""
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

    `indices`, `gpus`: on each of its `nodes`; the GPUs are those of the first one. `unlike`: how CPU slots differ; mostly
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
        """Return the number of devices of all nodes."""
        return len(self.indices) * self.nodes

    @property
    def is_cpu(self) -> bool:
        """Check whether the devices are slots of a CPU rather than GPUs."""
        return self.vendor == "cpu"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name of each device, such as gpu0; on the other nodes such as gpu0@2."""
        prefix = "cpu" if self.is_cpu else "gpu"
        places = ("", *(f"@{node}" for node in range(2, self.nodes + 1)))
        return tuple(f"{prefix}{index}{place}" for place in places for index in self.indices)

    @property
    def uuids(self) -> tuple[str, ...]:
        """Return the names that CUDA may use: the GPUs' own UUIDs, and those of the GPUs that they are slices of."""
        return tuple(str(name) for gpu in self.gpus for name in (gpu.uuid, gpu.facts.get("slice_of")) if name)


def device_on(node: int, device: str) -> str:
    """Return the name of another node's device in readings, such as cpu@2; only UUIDs are unique among nodes."""
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
    """The first line of a launch file: the launch as requested.

    `round` and `number`: its place in the cell, and which try it was. `ddp_workload`: the id of the workload that this one
    explains; empty where it wasn't recorded. `trial`: it only tests a batch. `unix_seconds` and `monotonic_seconds`: when it
    began. `machine`: the machine's identity, None in facts of earlier versions. `image`: None if it was not built. `started`:
    how the engine started the launch, such as its limits. `facts`: everything recorded about the launch.
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
        """Return the id of the workload that this one explains; its own if it explains none."""
        return self.ddp_workload or ddp_workload(self.workload.id, self.workload.parallel)

    @property
    def trial_batch(self) -> int | None:
        """Return the batch that a trial launch tested; None for a launch that measures."""
        return self.batch_used if self.trial else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Unseen:
    """Steps on batches that no step had seen, after the windows: `new`, and `old` ones that alternate with all `new` but the
    first. `error`: why there are none.
    """

    new: tuple[Block, ...]
    old: tuple[Block, ...]
    error: str | None


class Exit(Struct, frozen=True, kw_only=True, tag_field="event", tag="exit"):
    """The last line of a launch file. `reason`: the outcome, if the host ended or refused the launch; `tail`: of the log.

    `beside`: the cells that ran on other devices during the launch. `losses_compared`: how many losses of a rank were
    compared with those of the launch that was proven in full; None: they were not compared.
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
    """A node of a cluster that took part in a launch besides the recording one; `facts`: everything recorded about it.

    `number`: from 2; the recording node is the first.
    """

    name: str
    number: Whole
    machine: str | None = None
    devices: NodeDevices = field(default=NodeDevices(), name="gpus")
    facts: Facts

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs of the node."""
        return self.devices.gpus


class Transport(Line, frozen=True, kw_only=True, tag="transport"):
    """How the ranks of several nodes communicate: by `library` (nccl, gloo) over `network` in its own words, such as IB.

    `paths`: the library's paths from node to node, such as NET/IB/0/GDRDMA; empty where it doesn't report them.
    """

    library: str
    network: str | None = None
    paths: tuple[str, ...] = ()


class Reading(Struct, frozen=True, kw_only=True):
    """The fields of a reading of one device that the tool computes with."""

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
    """The sensors at one moment: one Reading per device, each as recorded, without null fields."""

    monotonic_seconds: Clock
    readings: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Raise Malformed unless all readings are valid."""
        force_setattr(self, "readings", tuple(map(without_nulls, self.readings)))
        for reading in self.readings:
            decoded(reading, Reading)
