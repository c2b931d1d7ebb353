"""The lines of a launch file that only the host writes: each is declared once, with types and with what a text may reveal."""

from typing import Annotated, Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from torchmatrix.facts.host_parts import (
    AskedStack,
    AskedWorkload,
    Devices,
    EngineRecord,
    Gpu,
    HostName,
    HostRecord,
    Identity,
    NodeDevices,
    Start,
    StartedRecord,
    UsedImage,
    UsedMethod,
)
from torchmatrix.facts.parts import ddp_workload
from torchmatrix.facts.wire import As, Clock, Facts, Line, Message, Moment, Number, Text, Texts, Whole, without_nulls


class Header(Struct, frozen=True, kw_only=True, dict=True):
    """The first line of a launch file: the launch as requested.

    `round` and `number`: its place in the cell, and which try it was. `ddp_workload`: the id of the workload that this one
    explains; empty where it wasn't recorded. `trial`: it only tests a batch; `probe`: why its figure doesn't count.
    `unix_seconds` and `monotonic_seconds`: when it began. `machine`: the machine's identity, None in facts of earlier versions.
    `image`: None if it was not built. `started`: how the engine started the launch, such as its limits. `facts`: everything
    recorded about the launch.
    """

    run: Text
    cell: Text
    round: Whole
    number: Whole = field(name="try")
    trial: bool = False
    probe: Text | None = None
    unix_seconds: Moment
    monotonic_seconds: Number | None = None
    tool: Text | None = None
    workload_hash: Text | None = None
    wire_version: Whole | None = field(default=None, name="protocol")
    machine: Identity | None = None
    stack: AskedStack
    workload: AskedWorkload
    ddp_workload: Text = ""
    devices: Devices = field(name="gpus")
    method: UsedMethod = UsedMethod()
    batch_requested: Whole | Text | None = None
    batch_used: Whole | None = None
    start: Start | None = None
    image: UsedImage | None = None
    host: HostRecord = {}
    engine: EngineRecord = {}
    command: Text
    started: StartedRecord = {}
    facts: Facts

    @property
    def cell_of_parts(self) -> str:
        """Return the id of the cell that stack, workload and devices make."""
        return f"{self.stack.name}/{self.workload.id}/{self.devices.label}"

    @property
    def ddp_id(self) -> str:
        """Return the id of the workload that this one explains; its own if it explains none."""
        return self.ddp_workload or ddp_workload(self.workload.id, self.workload.parallel)

    @property
    def trial_batch(self) -> int | None:
        """Return the batch that a trial launch tested; None for a launch that measures."""
        return self.batch_used if self.trial else None


class Exit(Struct, frozen=True, kw_only=True, tag_field="event", tag="exit"):
    """The last line of a launch file. `reason`: the outcome, if the host ended or refused the launch; `tail`: of the log.

    `beside`: the cells that ran on other devices during the launch. `losses_compared`: how many losses of a rank were
    compared with those of the launch that was proven in full; None: they were not compared. `own`: the message is a sentence of
    the tool, which quotes neither an engine nor a build nor a workload.
    """

    unix_seconds: Number | None = None
    monotonic_seconds: Number | None = None
    returncode: Whole | None = None
    reason: Text | None = None
    message: Message | None = None
    own: bool = False
    oom_killed: bool = False
    tail: tuple[Message, ...] = ()
    beside: Texts = ()
    losses_compared: Whole | None = None


class OtherNode(Line, frozen=True, kw_only=True, tag="node"):
    """A node of a cluster that took part in a launch besides the recording one.

    `number`: from 2; the recording node is the first.
    """

    name: HostName
    number: Whole
    machine: Identity | None = None
    devices: NodeDevices = field(default=NodeDevices(), name="gpus")
    host: HostRecord = field(default_factory=dict)
    engine: EngineRecord = field(default_factory=dict)
    image: UsedImage | None = None
    start: Start | None = None
    command: Text | None = None
    started: StartedRecord = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs of the node."""
        return self.devices.gpus


class Transport(Line, frozen=True, kw_only=True, tag="transport"):
    """How the ranks of several nodes communicate: by `library` (nccl, gloo) over `network` in its own words, such as IB.

    `paths`: the library's paths from node to node, such as NET/IB/0/GDRDMA; empty where it doesn't report them. Of one node it
    is known where collectives are microbenchmarks: paths such as P2P/CUMEM and SHM, without a network.
    """

    library: Text
    network: Text | None = None
    paths: Texts = ()
    interface: Text | None = None


class Reading(Struct, frozen=True, kw_only=True):
    """A reading of one device (machine.telemetry)."""

    device: Text
    error: Text | None = None
    reasons: Texts | None = None
    foreign: Texts | None = None
    processes: tuple[Whole, ...] | None = None
    temperature_celsius: Number | None = None
    memory_temperature_celsius: Number | None = None
    sm_clock_mhz: Number | None = None
    memory_clock_mhz: Number | None = None
    clock_mhz: Number | None = None
    pcie_generation: Number | None = None
    power_watts: Number | None = None
    power_limit_watts: Number | None = None
    energy_joules: Number | None = None
    utilization_percent: Number | None = None
    memory_used_bytes: Number | None = None
    busy_cpus: Number | None = None
    steal_percent: Number | None = None
    throttle_count: Number | None = None
    ecc_uncorrected: Number | None = None
    ecc_corrected: Number | None = None
    quota_periods: Number | None = None
    quota_seconds: Number | None = None


class Readings(Line, frozen=True, kw_only=True, tag="telemetry"):
    """The sensors at one moment: one Reading per device, each as recorded, without null fields."""

    monotonic_seconds: Clock
    readings: Annotated[tuple[dict[str, Any], ...], As(tuple[Reading, ...])] = ()

    def __post_init__(self) -> None:
        """Leave null fields out of the readings."""
        super().__post_init__()
        force_setattr(self, "readings", tuple(map(without_nulls, self.readings)))


class Damaged(Struct, frozen=True, kw_only=True):
    """The first line of a copy of a damaged file."""

    reason: Text | None = None
