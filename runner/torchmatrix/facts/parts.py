"""The parts of a launch's facts: the nouns that Launch holds. Times in seconds, memory in bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]
"""Facts about the host, the engine, the image or the box that are only shown or compared, never computed with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedStack:
    """The stack as the matrix requested it; `torch` is None if it wasn't known beforehand."""

    name: str
    torch: str | None
    source: str | None
    accelerator: str | None
    cuda: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnFile:
    """The file of a user's own model: its path below the folder of the matrix, its hash."""

    path: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedWorkload:
    """The workload as the matrix requested it. `own`: None for a model of a library.

    `ddp_id`: the id of the workload that this one explains; its own if it explains none. `factors`: everything that a workload
    can vary, by name, as recorded; the fields here are those that the tool itself computes with.
    """

    id: str
    ddp_id: str
    model: str
    unit: str
    mode: str
    precision: str
    compile: bool
    channels_last: bool
    attention: str | None
    batch: int | str
    image_size: int | None
    sequence_length: int | None
    parallel: str
    explain: bool
    own: OwnFile | None
    factors: Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU of a launch; `facts`: everything recorded about it."""

    name: str | None
    uuid: str | None
    facts: Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Devices:
    """The devices of a launch in order: `label`, such as gpu0+1; `threads`: CPU threads per process.

    `indices`, `gpus`: on each of its `nodes`; the GPUs are those of the first one. `unlike`: in what CPU slots differ; mostly
    empty.
    """

    label: str
    indices: tuple[int, ...]
    vendor: str | None
    gpus: tuple[Gpu, ...]
    threads: int
    nodes: int = 1
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


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherNode:
    """A node of a cluster that took part in a launch beside the one that recorded it; `facts`: everything recorded of it.

    `number`: from 2; the recording node is the first.
    """

    name: str
    number: int
    machine: str | None
    gpus: tuple[Gpu, ...]
    facts: Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Transport:
    """How the ranks of several nodes talk to each other: `library` (nccl, gloo), `network` in its own words, such as IB.

    `paths`: by what the library sends from node to node, such as NET/IB/0/GDRDMA; empty where it doesn't say.
    """

    library: str
    network: str | None
    paths: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class UsedMethod:
    """How the launch was measured. `facts`: everything recorded about it; empty in facts older than methods."""

    name: str
    statistic: str
    start_below_celsius: float | None
    facts: Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """The state in which a launch began: after how long a wait, at what temperature, and whether above the method's limit."""

    waited_seconds: float
    temperature_celsius: float | None
    too_warm: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class UsedImage:
    """The image, or the virtualenv, that a launch ran in; `facts`: everything recorded about it."""

    reference: str
    id: str | None
    facts: Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """What the box reported about itself. `packages`: as "name==version"; `facts`: everything that it reported."""

    torch: str | None
    packages: tuple[str, ...]
    facts: Facts

    @property
    def versions(self) -> dict[str, str]:
        """The packages' versions by name."""
        return dict(package.split("==", 1) for package in self.packages if "==" in package)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenDevice:
    """A device as torch sees it in the box. `uuid`: as CUDA gives it, without a prefix; None from older torch."""

    name: str | None
    memory_bytes: int | None
    multiprocessors: int | None
    uuid: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Steps that were timed together: a window that counts, a block of the warm-up, or a few on batches after the windows.

    `seconds` of each rank; `items` of all ranks; `edges`: begin and end on the monotonic clock. `step_seconds`: for each
    rank, the steps in order; empty if the box didn't report them. `losses`: likewise, in inference of the last step alone.
    `arrived`: when the line came, on the host's monotonic clock; None in facts of earlier versions. `skipped_steps`: which
    GradScaler kept from the optimizer.
    """

    steps: int
    items: int
    seconds: tuple[float, ...]
    edges: tuple[float, float] | None
    step_seconds: tuple[tuple[float, ...], ...]
    losses: tuple[tuple[float, ...], ...] = ()
    arrived: float | None = None
    skipped_steps: int = 0

    @property
    def slowest(self) -> float:
        """Seconds of the slowest rank, which is the length of the window."""
        return max(self.seconds)


LATENCY, END_TO_END = "latency", "end-to-end"
"""Kinds of requests: from inputs to outputs on the device, and from host memory to host memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requests:
    """Requests of one `kind` that one rank served one by one, each a batch: the seconds of each, in order.

    `edges`: when the first began and the last ended, on the monotonic clock, of both kinds if they took turns; `between`: for
    how long their inputs were made; `arrived`: as of a Block.
    """

    kind: str
    rank: int
    seconds: tuple[float, ...]
    edges: tuple[float, float]
    between: float = 0.0
    arrived: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Unseen:
    """Steps on batches that no step had seen, after the windows: `new`, and `old` ones timed in turns with all `new` but the
    first. `error`: why there are none.
    """

    new: tuple[Block, ...]
    old: tuple[Block, ...]
    error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmUp:
    """How the warm-up ended; what the box didn't report is None.

    `flat`: whether the step time was flat (no drift seen, or none that is left); `drift`: by which ratio the step time of the
    timed windows would still have grown, had the launch gone on; None also where the steps don't tell.
    """

    seconds: float | None
    flat: bool | None
    drift: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """The peaks of all ranks up to the end of `phase`: cold (the first step) or warm (the timed windows)."""

    phase: str
    peak_bytes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Precision:
    """What a rank really computes in, by kind of operation; `linear`: linear layers, where they are quantized.

    `matmul_backward`, `convolution_backward`: in training. `mixed`: in words, where the model's own products or weights are of
    several types.
    """

    matmul: str
    convolution: str
    linear: str | None = None
    mixed: str | None = None
    matmul_backward: str | None = None
    convolution_backward: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """The comparison with eager fp32: the largest relative difference of the losses of each step, or why there is none.

    `proof`: "full", "fingerprint" (compared with a launch that was proven in full) or None in facts of earlier versions, which
    compared losses only. `fingerprint`: numbers of the first step by name. `unwatched`: what can't be known of the timed
    windows. `parity`: how far the outputs of an inference are from those of eager fp32, by name; empty for training and without
    a full proof.
    """

    flops_per_item: float
    differences: tuple[float, ...]
    error: str | None
    proof: str | None
    fingerprint: Mapping[str, float]
    parity: Mapping[str, float]
    unwatched: str | None = None


ALL_REDUCE = "all-reduce"
"""The operation that DDP does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """How fast the ranks did one collective operation: (bytes, seconds, bus bandwidth in bytes per second) of each size.

    `error`: why the library can't do it.
    """

    operation: str
    sizes: tuple[tuple[int, float, float], ...]
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    """What the sensors read at one moment: one reading per device, each with its `device` and what could be read."""

    monotonic_seconds: float
    readings: tuple[Facts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a box gave up: `kind` such as oom, and its message."""

    kind: str
    message: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    """How a launch ended. `reason`: the outcome, if the host ended or refused the launch; `tail`: the log's last lines.

    `beside`: the cells that ran on other devices at some moment of it; empty if none did. `losses_compared`: how many losses of
    a rank were held against those of the launch that was proven in full; None: that was not done.
    """

    unix_seconds: float | None
    monotonic_seconds: float | None
    returncode: int | None
    reason: str | None
    message: str | None
    oom_killed: bool
    tail: tuple[str, ...]
    beside: tuple[str, ...] = ()
    losses_compared: int | None = None
