"""The parts of the lines that only the host writes (host_lines.py), each with its types and with what a text may reveal.

Times in seconds, memory in bytes. A part that is missing, null or empty has its default, if it has one; a part of the wrong
type makes a file unreadable. Fields that only earlier versions recorded stay declared; a field that is declared nowhere may
have any value, and is left out of everything that is redacted.
"""

from functools import cached_property
from math import nan
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from torchmatrix.facts.wire import (
    As,
    Count,
    Counts,
    Facts,
    Finite,
    Noted,
    Number,
    Reveals,
    Term,
    Text,
    Texts,
    VendorPackages,
    Whole,
)

Identity = Annotated[str, Reveals.MACHINE]
HostName = Annotated[str, Reveals.HOST]
Reference = Annotated[str, Reveals.IMAGE]
Table = Annotated[tuple[tuple[str, ...], ...], Reveals.TEXT]
"""A row and a column per GPU."""
_MOST_NODES = 10_000
"""A launch with more nodes is malformed: each of their devices has a name."""
_NAMES = ("id", "ddp_id", "own")
"""The fields of a recorded workload that are not factors."""


class StackIndex(Struct, frozen=True, kw_only=True):
    """A package index of a stack."""

    url: Text | None = None
    requirements: Texts = ()


class AskedStack(Struct, frozen=True, kw_only=True):
    """The stack as the matrix requested it; `torch` is None if it wasn't known beforehand."""

    name: Text
    torch: Text | None = None
    source: Term | None = None
    accelerator: Term | None = None
    variant: Term | None = None
    cuda: Text | None = None
    python: Text | None = None
    python_range: Text | None = None
    compile_python: Text | None = None
    packages: Texts = ()
    image: Reference | None = None
    base: Reference | None = None
    indexes: tuple[StackIndex, ...] = ()


class OwnFile(Struct, frozen=True, kw_only=True):
    """The file of a user's own model: its path below the folder of the matrix, its hash."""

    path: Text
    sha256: Text
    name: Text | None = None


class AskedWorkload(Struct, frozen=True, kw_only=True, dict=True):
    """The workload as the matrix requested it: who it is for, and each factor that it recorded.

    `own`: None for a model of a library. `facts`: everything recorded about it.
    """

    id: Text
    model: Term
    unit: Term
    mode: Term
    precision: Term
    name: Text | None = None
    device: Text | None = None
    batch_for: tuple[tuple[Text, Whole], ...] = ()
    stacks: Texts = ()
    counts: tuple[Whole, ...] = ()
    explain: bool = False
    own: OwnFile | None = None
    runtime: Text | None = None
    compile: bool = False
    compile_mode: Text | None = None
    compile_shapes: Text | None = None
    channels_last: bool = False
    attention: Text | None = None
    cudnn_benchmark: bool | None = None
    native_kernels: bool | None = None
    grad: Text | None = None
    eval: bool | None = None
    optimizer: Text | None = None
    checkpointing: bool | None = None
    accumulate: Count | None = None
    data: Term | None = None
    workers: Whole | None = None
    prefetch: Count | None = None
    pin_memory: bool | None = None
    decoder: Term | None = None
    page_cache: Term | None = None
    batch: Whole | Text
    image_size: Whole | None = None
    sequence_length: Whole | None = None
    output_length: Count | None = None
    audio_seconds: Number | None = None
    shape: Term | None = None
    bytes: Count | None = None
    direction: Term | None = None
    pinned: bool | None = None
    pattern: Term | None = None
    parallel: Term = "ddp"
    find_unused_parameters: bool | None = None
    steps: Count | None = None
    seconds: Number | None = None
    windows: Count | None = None
    requests: Count | None = None
    request_seconds: Number | None = None
    warmup_steps: Count | None = None
    warmup_seconds: Number | None = None
    warmup_cap: Count | None = None
    warmup_cap_seconds: Number | None = None
    facts: Facts

    @property
    def items_each(self) -> int:
        """Return how many items a step does for each of its batch: in generation its output, else, of a model in tokens, its
        sequence, once for each micro batch.
        """
        if self.mode == "generate":
            return self.output_length or 1
        each = self.sequence_length if self.unit == "tokens" and self.sequence_length else 1
        return each * (self.accumulate or 1)

    @cached_property
    def factors(self) -> Facts:
        """Return everything that a workload can vary, by name, as recorded."""
        return {key: value for key, value in self.facts.items() if key not in _NAMES}


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU of a host or a launch (machine.host_gpus); `facts`: everything recorded about it."""

    name: Term | None = None
    uuid: Annotated[str, Reveals.GPU] | None = None
    slice_of: Annotated[str, Reveals.GPU] | None = None
    vendor: Term | None = None
    index: Whole | None = None
    pci_bus: Annotated[str, Reveals.PCI] | None = None
    serial: Annotated[str, Reveals.SERIAL] | None = None
    vbios: Annotated[str, Reveals.VBIOS] | None = None
    memory_bytes: Count | None = None
    capability: Text | None = None
    power_limit_watts: Number | None = None
    ecc: bool | None = None
    persistence: bool | None = None
    render_node: Text | None = None
    groups: tuple[Whole, ...] = ()
    numa_node: Whole | None = None
    local_cpus: Text | None = None
    pcie: Text | None = None
    partition_of: Text | None = None
    clocks_max_mhz: Number | None = None
    clocks_max_memory_mhz: Number | None = None
    gsp_firmware: Text | None = None
    application_clocks: Text | None = None
    auto_boost: bool | None = None
    compute_mode: Text | None = None
    mig: bool | None = None
    performance_level: Text | None = None
    partitions: Text | None = None
    repairs: Text | None = None
    memory_bus_bits: Count | None = None
    iommu: Text | None = None
    acs: Text | None = None
    facts: Facts = {}


class OfCores(Struct, frozen=True, kw_only=True):
    """A group of cores that are alike."""

    cores: tuple[Whole, ...] = ()
    socket: Whole | None = None
    node: Whole | None = None
    kind: Whole | None = None


class OfHost(Struct, frozen=True, kw_only=True):
    """The record of a machine (machine.host)."""

    name: HostName | None = None
    board_id: Identity | None = None
    vendor: Term | None = None
    gpus: tuple[Gpu, ...] | None = None
    core_groups: tuple[OfCores, ...] = ()
    driver: Text | None = None
    cuda_driver: Text | None = None
    cpu: Text | None = None
    cores: tuple[Whole, ...] | None = None
    numa_nodes: Whole | None = None
    governor: Text | None = None
    memory_bytes: Count | None = None
    kernel: Text | None = None
    os: Text | None = None
    architecture: Text | None = None
    python: Text | None = None
    notes: Texts = ()
    links: Table | None = None
    p2p: Table | None = None
    sockets: Whole | None = None
    smt: bool | None = None
    libc: Text | None = None
    cpu_quota: Number | None = None
    memory_limit_bytes: Count | None = None
    limits_unseen: bool | None = None
    frequency_driver: Text | None = None
    energy_preference: Text | None = None
    clock_limits: Text | None = None
    turbo: bool | None = None
    idle_states: Text | None = None
    hugepages: Text | None = None
    numa_balancing: bool | None = None
    mitigations: Texts | None = None
    microcode: Text | None = None
    numa: Texts | None = None
    board: Text | None = None
    firmware: Text | None = None


class OfEngine(Struct, frozen=True, kw_only=True):
    """An engine's version and settings; names with capitals are Docker's."""

    engine: Text | None = None
    version: Text | None = None
    client: Text | None = None
    program: Text | None = None
    mounts: Text | None = None
    name: HostName | None = field(default=None, name="Name")
    server_version: Text | None = field(default=None, name="ServerVersion")
    driver: Text | None = field(default=None, name="Driver")
    operating_system: Text | None = field(default=None, name="OperatingSystem")
    kernel_version: Text | None = field(default=None, name="KernelVersion")
    architecture: Text | None = field(default=None, name="Architecture")
    cgroup_version: Text | None = field(default=None, name="CgroupVersion")
    default_runtime: Text | None = field(default=None, name="DefaultRuntime")
    cpus: Whole | None = field(default=None, name="NCPU")
    memory_bytes: Whole | None = field(default=None, name="MemTotal")
    root: Text | None = field(default=None, name="DockerRootDir")


class OfSelfTest(Struct, frozen=True, kw_only=True):
    """What a launch keeps of its image's self-test."""

    vendor: VendorPackages | None = None
    losses: Noted = None
    compiled: bool | None = None


class UsedImage(Struct, frozen=True, kw_only=True):
    """The image, or the virtualenv, that a launch ran in; `facts`: everything recorded about it."""

    reference: Reference
    id: Text | None = None
    environment: Text | None = None
    kind: Term | None = None
    tag: Reference | None = None
    digests: tuple[Reference, ...] = ()
    arguments: Annotated[dict[str, Any], Reveals.IMAGE] = {}
    base: Reference | None = None
    base_digest: Text | None = None
    index: Reference | None = None
    requires: Texts = ()
    dockerfile: Text | None = None
    dockerfile_sha256: Text | None = None
    lock_sha256: Text | None = None
    locked: bool | None = None
    size_bytes: Count | None = None
    file: Text | None = None
    file_sha256: Text | None = None
    python: Text | None = None
    torch: Text | None = None
    self_test: OfSelfTest | None = None
    facts: Facts


class OfCache(Struct, frozen=True, kw_only=True):
    """How a launch found its compile cache."""

    state: Text | None = None
    sha256: Text | None = None
    note: Text | None = None


class OfIsolation(Struct, frozen=True, kw_only=True):
    """What a launch shares with its machine."""

    network: Text | None = None
    note: Text | None = None


class OfVariables(Struct, frozen=True, kw_only=True):
    """The names of the user's variables that reach a launch, and of those that don't."""

    passed: Texts = ()
    withheld: Texts = ()


class HowStarted(Struct, frozen=True, kw_only=True):
    """How an engine started a launch."""

    memory_bytes: Whole | None = None
    processes: Whole | None = None
    core_bytes: Whole | None = None
    oom_score_adj: Whole | None = None
    compile_cache: OfCache | None = None
    isolation: OfIsolation | None = None
    variables: OfVariables | None = None


HostRecord = Annotated[dict[str, Any], As(OfHost)]
EngineRecord = Annotated[dict[str, Any], As(OfEngine)]
StartedRecord = Annotated[dict[str, Any], As(HowStarted)]


class NodeDevices(Struct, frozen=True, kw_only=True):
    """The devices of one node; `cpus`: of each slot of a CPU, such as 0-3."""

    gpus: tuple[Gpu, ...] = ()
    label: Text = ""
    indices: tuple[Count, ...] = ()
    vendor: Term | None = None
    cpus: Texts = ()
    threads: Whole = 1
    nodes: Annotated[int, Meta(ge=1, le=_MOST_NODES)] = 1
    unlike: Text = ""


class Devices(NodeDevices, frozen=True, kw_only=True):
    """The devices of a launch in order: `label`, such as gpu0+1; `threads`: CPU threads per process.

    `indices`, `gpus`: on each of its `nodes`; the GPUs are those of the first one. `unlike`: how CPU slots differ; mostly
    empty.
    """

    label: Text
    indices: Counts

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
        return tuple(name for gpu in self.gpus for name in (gpu.uuid, gpu.slice_of) if name)


def device_on(node: int, device: str) -> str:
    """Return the name of another node's device in readings, such as cpu@2; only UUIDs are unique among nodes."""
    return device if device.startswith(("GPU-", "MIG-")) else f"{device}@{node}"


class UsedMethod(Struct, frozen=True, kw_only=True):
    """How the launch was measured (matrix.method). `facts`: everything recorded about it; empty in facts older than methods.

    `parallel`: while launches ran on other devices; `fork`: of earlier versions.
    """

    name: Text = "steady"
    statistic: Term = "median"
    start_below_celsius: Number | None = None
    launches: Count | None = None
    cool_down_seconds: Number | None = None
    steps: Count | None = None
    warm_seconds: Number | None = None
    warms_up: bool | None = None
    further: Count | None = None
    until: Number | None = None
    budget_seconds: Number | None = None
    cold_compiles: Count | None = None
    parallel_within: Number | None = None
    parallel: bool | None = None
    fork: bool | None = None
    facts: Facts = {}


class Start(Struct, frozen=True, kw_only=True):
    """The state in which a launch began: after how long a wait, at what temperature, and whether above the method's limit.

    `quiet_wait_seconds`: how long it had waited for other programs before.
    """

    waited_seconds: Finite = nan
    quiet_wait_seconds: Finite = nan
    temperature_celsius: Number | None = None
    too_warm: bool = False
