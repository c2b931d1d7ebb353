"""The wire schema: each event of the protocol (version 1), its fields, types and bounds. The one definition.

launch_file.py checks each line of a workload process by it while a launch runs, reading.py decodes launch files by it.

A field may be missing or null unless it has no default. Fields that are not declared may have any value: they are kept in the
file, and at most shown. A tool that is older than an event refuses the image that writes it; what an event means never changes
without a new version of the protocol. Fields that contradict each other are malformed, too (`__post_init__`), so that no reader
asks again.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from math import nan
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, ValidationError, convert, defstruct, field

from torchmatrix.core.inputs import Malformed, Record, is_number, short_json

Facts = Mapping[str, Any]
"""Facts about the host, the engine, the image or the container: shown or compared, never computed with."""
S = TypeVar("S", bound=Struct)


class Reveals(Enum):
    """What a text in a field may reveal, by which it is redacted; numbers and closed lists of words reveal nothing.

    NOTHING: a word of torchmatrix, a library or a vendor. IMAGE: a registry or mirror. TEXT: anything, such as paths, names and
    credentials. MESSAGE: what an error of a workload, library or build says, which is published on request only. The others: an
    identity, which becomes a pseudonym of this kind.
    """

    NOTHING = "nothing"
    HOST = "host"
    MACHINE = "machine"
    GPU = "GPU"
    PCI = "PCI"
    SERIAL = "serial"
    VBIOS = "VBIOS"
    IMAGE = "image"
    TEXT = "text"
    MESSAGE = "message"


class As(NamedTuple):
    """The shape that the value of a field must have, though a reader gets the value as it was recorded."""

    shape: Any


Term = Annotated[str, Reveals.NOTHING]
Text = Annotated[str, Reveals.TEXT]
Texts = tuple[Text, ...]
Message = Annotated[str, Reveals.MESSAGE]
Open = Annotated[dict[str, Any], Reveals.TEXT]
Noted = Annotated[Any, Reveals.TEXT]
"""What no reader computes with: shown at most, of any type."""

_PARTS = frozenset({"gpus", "image", "method", "own", "stack", "start", "workload"})
"""The fields that hold a struct with fields of its own."""
_OPTIONAL = frozenset({"image", "own", "start"})
"""The parts that count as missing if they are empty."""
_PLAIN = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false", "array": "a list",
    "object": "an object", " | null": "", "`": "", " | ": " or ",
}  # fmt: skip
"""Words for msgspec's names of types."""
_MOST_WHOLE = 2**63 - 1
_END_OF_TIME = 253402300800
"""The year 10000, which no calendar here can write; in seconds since 1970 UTC."""
_LARGEST = 1.7976931348623157e308
Whole = Annotated[int, Meta(ge=-_MOST_WHOLE, le=_MOST_WHOLE)]
Finite = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
Number = Whole | Finite
Moment = Annotated[int, Meta(ge=0, lt=_END_OF_TIME)] | Annotated[float, Meta(ge=0, lt=_END_OF_TIME)]
"""Seconds since 1970 UTC."""
Count = Annotated[int, Meta(ge=0, le=2**53)]
"""Larger whole numbers are not exact as a float."""
Counts = Annotated[tuple[Count, ...], Meta(min_length=1)]
OneOrMore = Annotated[int, Meta(ge=1, le=2**53)]
Tally = Count | Annotated[float, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
"""At most some thirty years."""
Series = Annotated[tuple[Seconds, ...], Meta(min_length=1)]
Clock = Annotated[float, Meta(ge=0, le=1e12)]
Ratio = Annotated[float, Meta(ge=-100, le=100)]
"""A relative change; more than a hundredfold is none."""
Extent = Annotated[float, Meta(ge=0, le=1e300)]
Signed = Annotated[float, Meta(ge=-1e300, le=1e300)]
Word = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}\Z"), Reveals.NOTHING]
Rows = tuple[tuple[Seconds, ...], ...]
"""For each rank, the steps in order."""
Losses = tuple[tuple[float | None, ...], ...]
"""For each rank; null for what isn't finite."""


class Line(Struct, frozen=True, tag_field="event"):
    """A line of a launch file. `arrived`: when it came, on the host's monotonic clock; None in facts of earlier versions.

    `start_monotonic_seconds`, `stop_monotonic_seconds`: when the work that it reports began and ended.
    """

    unix_seconds: Clock | None = None
    monotonic_seconds: Clock | None = None
    arrived: Clock | None = field(default=None, name="arrived_monotonic_seconds")
    start_monotonic_seconds: Clock | None = None
    stop_monotonic_seconds: Clock | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if it ends before it begins."""
        if self.edges and self.edges[1] < self.edges[0]:
            raise ValueError(f"it stops {self.edges[0] - self.edges[1]:.3f} s before it starts")

    @property
    def edges(self) -> tuple[float, float] | None:
        """Return when the work that the line reports began and ended, if both are known."""
        begin, end = self.start_monotonic_seconds, self.stop_monotonic_seconds
        return None if begin is None or end is None else (begin, end)


def decoded(record: Record, struct: type[S]) -> S:
    """Return the record as a `struct`; the field `facts` of it and of its parts gets the whole record. Raises Malformed."""
    given = with_facts(record) if "facts" in struct.__struct_fields__ else without_nulls(record)
    shapes = _shapes(struct)
    try:
        if shapes:
            convert(given, shapes)
        return convert(given, struct)
    except ValidationError as why:
        raise Malformed(_describe_error(str(why), given, struct)) from None


@cache
def _shapes(struct: type[Struct]) -> type[Struct] | None:
    """Return a struct of the fields that are kept as recorded, with their shapes; None if there are none."""
    hints = get_type_hints(struct, include_extras=True)
    fields = {
        name: shape_of(hints[of]) for name, of in zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    }
    shapes: list[Any] = [(name, shape | None, None) for name, shape in fields.items() if shape]
    return defstruct(f"{struct.__name__}Shapes", shapes) if shapes else None


def shape_of(hint: Any) -> Any:
    """Return the shape that the value of a field must have though it is kept as recorded; None for any other field."""
    metadata = hint.__metadata__ if get_origin(hint) is Annotated else ()
    return next((part.shape for part in metadata if isinstance(part, As)), None)


def check(event: Record) -> None:
    """Raise Malformed if a field of an event of the workload process is missing, not valid, or contradicts another one."""
    if struct := EVENTS.get(event["event"]):
        decoded(event, struct)


def without_nulls(record: Any) -> Any:
    """Return a record without its null fields; any other value as it is."""
    if type(record) is dict and None in record.values():
        return {key: value for key, value in record.items() if value is not None}
    return record


def with_facts(record: Any, levels: int = 4) -> Any:
    """Return a record, or each of a list, without nulls and with the whole record as `facts`; likewise its parts.

    `levels`: how deep parts may lie inside parts.
    """
    if type(record) is list and levels:
        return [with_facts(item, levels - 1) for item in record]
    if type(record) is not dict or not levels:
        return record
    fields = {key: value for key, value in record.items() if value is not None and not _is_left_out(key, value)}
    return {key: with_facts(value, levels - 1) if key in _PARTS else value for key, value in fields.items()} | {"facts": record}


def _is_left_out(key: str, value: Any) -> bool:
    """Check whether a value counts as missing."""
    return (key in _OPTIONAL and value == {}) or (key in ("parallel", "statistic") and value == "")


def _describe_error(why: str, record: Record, struct: type[Struct]) -> str:
    """Return msgspec's reason as "field is value, not wanted"."""
    text, _, place = why.removesuffix("`").partition(" - at `$.")
    if missing := re.match("Object missing required field `(.+?)`?$", text):
        return f"{place}.{missing[1]} is missing" if place else f"{missing[1]} is missing"
    if not place:
        return text
    value: Any = record
    for key in re.findall(r"[^.\[\]]+", place):
        within = value.get(key, value) if type(value) is dict else value
        value = value[int(key)] if type(value) is list and key.isdigit() else within
    wanted = re.match("Expected (.+?)(, got .*)?$", text)
    if wanted is None:
        valid = " or ".join(get_args(get_type_hints(struct)[place])) if "enum" in text else "valid"
        return f"{place} is {short_json(value)}, not {valid}"
    words = re.sub(r"int|float|str|bool|array|object|`| \| null| \| ", lambda name: _PLAIN[name[0]], wanted[1])
    return f"{place} is {short_json(value)}, not {words}"


def same_ranks(name: str, per_rank: Sequence[Any], seconds: Sequence[float]) -> None:
    """Raise ValueError unless `per_rank`, if there is any, has one entry for each rank that has `seconds`."""
    if per_rank and len(per_rank) != len(seconds):
        raise ValueError(f"{name} has {len(per_rank)} ranks, seconds has {len(seconds)}")


class Hello(Line, frozen=True, tag="hello"):
    """The first line. `compile_cache`: how the workload process found it."""

    compile_cache: Term | None = None
    arguments: Open = {}
    argv: Texts = ()
    removed: Open = {}
    protocol: Noted = None


class Phase(Line, frozen=True, tag="phase", kw_only=True):
    """How long a phase of the launch took."""

    phase: Word
    seconds: Seconds


class ContainerReport(Line, frozen=True, tag="environment"):
    """What the container reported about itself. `packages`: as "name==version"; `facts`: everything that it reported."""

    python: Text | None = None
    torch: Text | None = None
    torch_git: Text | None = None
    torch_config: Text | None = None
    cuda: Text | None = None
    hip: Text | None = None
    nccl: Text | None = None
    triton: Text | None = None
    native_kernels: Text | None = None
    glibc: Text | None = None
    os: Text | None = None
    compiler: Text | None = None
    executable: Text | None = None
    packages: Texts = ()
    variables: Open = {}
    cudnn: Noted = None
    facts: Annotated[Facts, Reveals.TEXT] = {}

    @property
    def versions(self) -> dict[str, str]:
        """Return the packages' versions by name."""
        return versions_of(self.packages)


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages, each as "name==version", by name."""
    return dict(package.split("==", 1) for package in packages if "==" in package)


class SeenDevice(Struct, frozen=True):
    """A device as torch sees it in the container. `uuid`: as CUDA gives it, without a prefix; None from older torch."""

    name: Term | None = None
    memory_bytes: Count | None = None
    multiprocessors: Count | None = None
    uuid: Annotated[str, Reveals.GPU] | None = None
    threads: Noted = None
    isa: Noted = None
    cpus: Noted = None
    capability: Noted = None
    gfx: Noted = None


class Setup(Line, frozen=True, tag="setup"):
    """The ranks, their devices, and how many parameters the model has."""

    devices: tuple[SeenDevice, ...] = ()
    world_size: Count | None = None
    parameters: Count | None = None
    backend: Term | None = None
    parallel: Term | None = None
    runtime: Open = {}
    attention: Noted = None
    precision: Noted = None
    timed: Noted = None
    frozen: Noted = None


class Sharing(Struct, frozen=True):
    """How one rank shared its machine while a block of steps was timed; None for what its kernel doesn't count.

    `run_seconds`, `wait_seconds`: all its threads' time on a CPU, and the time in which they were ready and waited for one.
    `cpus`: those that it may use, such as "0-3"; `busy_seconds`, `stolen_seconds`: the time in which these CPUs, all together,
    worked for anybody, and in which a hypervisor gave them to another machine. `switches`: how often a thread had to leave its
    CPU; `faults`: how often a page was read from a disk.
    """

    run_seconds: Seconds | None = None
    wait_seconds: Seconds | None = None
    cpus: Annotated[str, Meta(pattern=r"^\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?){0,999}\Z"), Reveals.NOTHING] | None = None
    busy_seconds: Seconds | None = None
    stolen_seconds: Seconds | None = None
    switches: Count | None = None
    faults: Count | None = None


class Block(Line, frozen=True, tag="sample", kw_only=True):
    """Steps that were timed together: a window that counts, a block of the warm-up, or a few on batches after the windows.

    `seconds`: of each rank; `items`: of all ranks. `step_seconds`: empty if they were not reported. `losses`: in inference of
    the last step alone. `sharing`: of each rank; empty in facts of earlier versions. `scale`, `skipped_steps`: of each rank's
    GradScaler, which kept that many steps from the optimizer.
    """

    phase: Literal["warm-up", "measure", "unseen", "seen"]
    window: Count | None = None
    steps: OneOrMore
    items: OneOrMore
    seconds: Series
    enqueue_seconds: tuple[Seconds, ...] = ()
    step_seconds: Rows = ()
    loss: Annotated[list[Any], Reveals.NOTHING] = []
    losses: Losses = ()
    sharing: tuple[Sharing, ...] = ()
    scale: tuple[Annotated[float, Meta(ge=0, le=1e38)], ...] = ()
    skipped_steps: tuple[Tally, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError if the ranks' times don't fit each other."""
        super().__post_init__()
        for name in ("step_seconds", "enqueue_seconds", "sharing", "scale", "skipped_steps"):
            same_ranks(name, getattr(self, name), self.seconds)
        for rank, steps in enumerate(self.step_seconds):
            if len(steps) != self.steps:
                raise ValueError(f"step_seconds has {len(steps)} steps of rank {rank}, steps is {self.steps}")

    @property
    def slowest(self) -> float:
        """Return the seconds of the slowest rank, which is the length of the window."""
        return max(self.seconds)

    @property
    def skipped(self) -> float:
        """Return how many steps a GradScaler skipped on the rank that skipped most."""
        return max(self.skipped_steps, default=0)


class Steps(Line, frozen=True, tag="steps", kw_only=True):
    """Times and losses of some steps of a block, which stand on lines of their own before it."""

    phase: Literal["warm-up", "measure"]
    window: Count | None = None
    first: Count | None = None
    step_seconds: Rows
    losses: Losses = ()

    def __post_init__(self) -> None:
        """Raise ValueError if the ranks did different numbers of steps."""
        super().__post_init__()
        if len(counts := sorted(set(map(len, self.step_seconds)))) > 1:
            raise ValueError(f"step_seconds has {counts[0]} steps of one rank and {counts[-1]} of another")


LATENCY, END_TO_END = "latency", "end-to-end"
"""Kinds of requests: from inputs to outputs on the device, and from host memory to host memory."""


class OfRank(Line, frozen=True, kw_only=True):
    """Pieces of work that one rank timed one by one. `edges`: when the first began and the last ended."""

    rank: Count
    start_monotonic_seconds: Clock
    stop_monotonic_seconds: Clock

    @property
    def edges(self) -> tuple[float, float]:
        """Return when the first piece began and the last one ended."""
        return self.start_monotonic_seconds, self.stop_monotonic_seconds


class Requests(OfRank, frozen=True, tag="requests", kw_only=True):
    """Requests of one `kind` that one rank served one by one, each a batch: the seconds of each, in order.

    `edges`: when the first began and the last ended, of both kinds if they took turns; `between`: how long making their inputs
    took.
    """

    kind: Literal["latency", "end-to-end"]
    seconds: Series
    between: Seconds = field(default=0.0, name="inputs_seconds")


class Stream(OfRank, frozen=True, tag="stream", kw_only=True):
    """Pieces of one `phase`: of each, in order, its `items` and its seconds.

    `unit`: what an item is; `requests`: the number of the request that each piece belongs to, empty if to none. `edges`: of all
    phases together if they took turns. A long stream may stand on several lines.
    """

    phase: Word
    unit: Word
    items: Annotated[tuple[OneOrMore, ...], Meta(min_length=1)]
    seconds: Annotated[tuple[Annotated[float, Meta(ge=1e-9, le=1e9)], ...], Meta(min_length=1)]
    requests: tuple[Count, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError unless items, seconds and requests are those of the same pieces."""
        super().__post_init__()
        for name, values in (("items", self.items), ("requests", self.requests)):
            if values and len(values) != len(self.seconds):
                raise ValueError(f"{name} has {len(values)} pieces, seconds has {len(self.seconds)}")


Rate = Annotated[float, Meta(ge=1e-3, le=1e18)]


class Roof(Line, frozen=True, tag="roof", kw_only=True):
    """What one rank's device did at most in a generation's launch, and the least that the work needs.

    Bytes per second: copy and triad (as in STREAM) and read, of arrays of `array_bytes`; `limit`: the most of these and of
    arrays as large as what a step reads. `product`: FLOP/s of square matrices. `weight_bytes` and `cache_bytes`: read by a step
    of decode, of experts the share that it touched. `prefill_flops`: of the prompts of a batch. NaN where it can't be had.
    """

    rank: Count
    copy_bytes_per_second: Rate
    triad_bytes_per_second: Rate
    read_bytes_per_second: Rate
    limit_bytes_per_second: Rate
    product_flops_per_second: Rate
    weight_bytes: Rate = nan
    cache_bytes: Rate = nan
    prefill_flops: Annotated[float, Meta(ge=1e-3, le=1e30)] = nan
    product_type: Word
    array_bytes: Count | None = None
    expert_share: Annotated[float, Meta(gt=0, le=1)] | None = None


class ClockReading(Line, frozen=True, tag="clock"):
    """The time on the clock of the workload process, at a moment when it has nothing else to report."""


class NoUnseen(Line, frozen=True, tag="unseen", kw_only=True):
    """Why there are no steps on unseen batches."""

    error: Message


class WarmUp(Line, frozen=True, tag="warm-up"):
    """How the warm-up ended; a field that was not reported is None.

    `flat`: whether the step time was flat (no drift seen, or none that is left); `drift`: the ratio by which the step time of
    the timed windows would still have grown, had the launch gone on; None also where the steps don't show it.
    """

    steps: Count | None = None
    seconds: Seconds | None = None
    flat: bool | None = None
    drift: Ratio | None = None


class Memory(Line, frozen=True, tag="memory", kw_only=True):
    """The peaks of all ranks up to the end of `phase`: cold (the first step) or warm (the timed windows)."""

    phase: Literal["cold", "warm"]
    peak_bytes: Counts
    peak_reserved_bytes: Noted = None


class Enqueue(Line, frozen=True, tag="enqueue"):
    """The host time for a step on an idle device, for each rank; null if unknown."""

    step_seconds: tuple[Seconds | None, ...] = ()


class CompilerOptions(Struct, frozen=True):
    """torch._inductor.config: a hash of all of it, and what code changed in it."""

    hash: Text | None = None
    changed: Texts = ()


class Compiled(Line, frozen=True, tag="compile"):
    """The graphs that torch.compile made of the model. `generated`: calls of a step into code that inductor generated; null
    where there is such code, but a step calls it in a way that can't be seen.
    """

    graph_breaks: Count | None = None
    graphs: Count | None = None
    operations: Count | None = None
    run: Count | None = None
    generated: Count | None = None
    fallbacks: Texts = ()
    options: CompilerOptions | None = None


class Checkpointed(Line, frozen=True, tag="checkpointing"):
    """How many blocks of the model are checkpointed, and how many an eager step computes again; null if unknown."""

    blocks: Count | None = None
    recomputed: Count | None = None


class Loading(Line, frozen=True, tag="loading", kw_only=True):
    """What loading a data set from disk took in the timed windows, of each rank: seconds of waiting for batches; seconds of
    reading, and of decoding and augmenting, of all its loading processes together. `place`: kept from launch to launch, or
    temporary. `epochs`: that the first rank read in all. `window_seconds`: of all windows.
    """

    kind: Literal["images", "tokens"]
    items: Count | None = None
    bytes: Count | None = None
    place: Literal["kept", "temporary"]
    wait_seconds: tuple[Seconds, ...] = ()
    read_seconds: tuple[Seconds, ...] = ()
    work_seconds: tuple[Seconds, ...] = ()
    epochs: Finite | None = None
    window_seconds: Seconds | None = None

    @property
    def waiting(self) -> float:
        """Return the share of the windows' time in which the rank that waited most waited for batches; NaN if unknown."""
        return max(self.wait_seconds) / self.window_seconds if self.wait_seconds and self.window_seconds else nan


class Remarks(Line, frozen=True, tag="remarks"):
    """Remarks that a reader must know of the figure."""

    texts: Texts = ()


ALL_REDUCE = "all-reduce"
"""The collective operation that DDP uses."""


class Probe(Struct, frozen=True):
    """How long a collective operation took for one size."""

    bytes: Count | None = None
    seconds: Seconds | None = None
    bus_bytes_per_second: Annotated[float, Meta(ge=0, le=1e18)] | None = None


class AllReduce(Line, frozen=True, tag=ALL_REDUCE):
    """How fast the ranks reduced gradients."""

    sizes: tuple[Probe, ...] = ()
    gradient_bytes: Count | None = None
    wrong_elements: tuple[Tally, ...] = ()
    operation = ALL_REDUCE
    error = None


class Collective(Line, frozen=True, tag="collective", kw_only=True):
    """How fast the ranks did one collective operation. `error`: why the library can't do it."""

    operation: Word
    sizes: tuple[Probe, ...] = ()
    error: Message | None = None


class ProbedDevice(Struct, frozen=True):
    """A device of the self-check."""

    name: Term
    uuid: Annotated[str, Reveals.GPU] | None = None
    memory_bytes: Noted = None
    multiprocessors: Noted = None
    threads: Noted = None
    isa: Noted = None
    cpus: Noted = None
    capability: Noted = None
    gfx: Noted = None


class ProbedDevices(Line, frozen=True, tag="devices", kw_only=True):
    """The devices of the self-check and how they talk. `backend`: None for one device, which talks to none."""

    devices: tuple[ProbedDevice, ...]
    backend: Term | None = None


class Peers(Line, frozen=True, tag="peers"):
    """How each device reaches each other one. `wrong`: the pairs whose copies were wrong."""

    access: tuple[tuple[bool, ...], ...] = ()
    bytes_per_second: tuple[tuple[float | None, ...], ...] = ()
    wrong: tuple[tuple[Tally, ...], ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError unless both tables are squares of one size."""
        super().__post_init__()
        for name, rows in (("access", self.access), ("bytes_per_second", self.bytes_per_second)):
            if any(len(row) != len(rows) for row in rows):
                raise ValueError(f"{name} is no square of lists")
        if len(self.access) != len(self.bytes_per_second):
            raise ValueError(f"access is of {len(self.access)} devices, bytes_per_second of {len(self.bytes_per_second)}")
        speeds = enumerate(self.bytes_per_second)
        if any(speed is None for sender, row in speeds for receiver, speed in enumerate(row) if sender != receiver):
            raise ValueError("bytes_per_second is null between two devices")
        if any(len(pair) != 2 or max(pair) >= len(self.access) for pair in self.wrong):
            raise ValueError("wrong is no list of pairs of devices")


class Load(Line, frozen=True, tag="load", kw_only=True):
    """How fast each rank computed, block by block, and whether all results were finite."""

    start_monotonic_seconds: Clock
    stop_monotonic_seconds: Clock
    dtype: Text
    flops_per_second: tuple[tuple[Annotated[float, Meta(ge=0, le=1e20)], ...], ...]
    finite: Annotated[list[Any], Reveals.NOTHING]

    def __post_init__(self) -> None:
        """Raise ValueError if a rank did nothing."""
        super().__post_init__()
        rates = self.flops_per_second
        if not rates or len(rates) != len(self.finite):
            raise ValueError(f"flops_per_second has {len(rates)} ranks, finite has {len(self.finite)}")
        if not all(rank and min(rank) > 0 for rank in rates):
            raise ValueError("flops_per_second has a rank that did nothing")


class Precision(Struct, frozen=True, kw_only=True):
    """The types that a rank really computes in, by kind of operation; `linear`: linear layers, where they are quantized.

    `matmul_backward`, `convolution_backward`: in training. `mixed`: in words, where the model's own products or weights are of
    several types.
    """

    matmul: Term
    convolution: Term
    linear: Text | None = None
    matmul_backward: Text | None = None
    convolution_backward: Text | None = None
    mixed: Text | None = None
    types: Open | None = None
    relative_errors: Noted = None
    quantized: Noted = None
    bf16_sums: Noted = None


class Precisions(Line, frozen=True, tag="precision"):
    """The types that each rank computes in; `changed`: the settings of torch that the model's code changed, in words."""

    requested: Term | None = None
    effective: tuple[Precision, ...] = ()
    changed: Texts = ()
    unsupported: Text | None = None
    problems: Texts = ()


class Distance(Struct, frozen=True):
    """How far the gradients of a group of parameters are from those of eager fp32."""

    name: Text | None = None
    norm: Extent | None = None
    distance: Extent | None = None
    tolerance: Extent | None = None
    noise: Extent | None = None


class Reference(Line, frozen=True, tag="reference"):
    """The comparison with eager fp32: the largest relative difference of the losses of each step, or why there is none.

    `proof`: "full", "fingerprint" (compared with a launch that was proven in full) or None in facts of earlier versions, which
    compared losses only. `fingerprint`: numbers of the first step by name. `unwatched`: what can't be known of the timed
    windows. `flops_counter`: who counted `flops_per_item` (None in facts of earlier versions: torch's own).
    `products_flops_per_second`: what the device reached in products of matrices, in this launch. `parity`: how far the outputs
    of an inference are from those of eager fp32, by name; empty for training and without a full proof.
    """

    flops_per_item: Annotated[float, Meta(ge=0, le=1e30)] = nan
    formula_flops_per_item: Annotated[float, Meta(ge=0, le=1e30)] = nan
    flops_counter: Text | None = None
    products_flops_per_second: Extent | None = None
    losses: Annotated[list[Any], Reveals.NOTHING] = []
    measured: Annotated[list[Any], Reveals.NOTHING] = []
    differences: Annotated[list[Any], Reveals.NOTHING] = []
    tolerances: Annotated[list[Any], Reveals.NOTHING] = []
    agrees: bool | None = None
    quiet: bool | None = None
    error: Message | None = None
    proof: Text | None = None
    flops_scope: Text | None = None
    unwatched: Text | None = None
    problems: Texts = ()
    groups: tuple[Distance, ...] = ()
    fingerprint: Annotated[dict[str, Signed], Reveals.TEXT] = {}
    parity: Annotated[dict[str, Signed | None], Reveals.TEXT] = {}

    @property
    def difference(self) -> float:
        """Return the largest of the differences; NaN if there is none."""
        return max((value if is_number(value) else nan for value in self.differences), default=nan)

    @property
    def disproof(self) -> str | None:
        """Return why the work was not done; None if it was, or could not be compared."""
        if self.agrees is not False and not self.problems:
            return None
        return f"the proof of its work failed, yet it ended as done: {next(iter(self.problems), 'no reason was given')}"


class Profile(Line, frozen=True, tag="profile", kw_only=True):
    """How long a step takes for each rank, without the profiler and with it."""

    steps: OneOrMore
    plain_seconds: Series
    profiled_seconds: Series

    def __post_init__(self) -> None:
        """Raise ValueError if the two series are of different ranks."""
        super().__post_init__()
        same_ranks("profiled_seconds", self.profiled_seconds, self.plain_seconds)


class Part(Line, frozen=True, tag="part", kw_only=True):
    """A part of a file."""

    name: Word
    number: Count
    count: OneOrMore
    data: Text

    def __post_init__(self) -> None:
        """Raise ValueError if the number lies beyond the count."""
        super().__post_init__()
        if self.number >= self.count:
            raise ValueError(f"number is {self.number}, count is {self.count}")


class VendorPackages(Struct, frozen=True, kw_only=True):
    """What a vendor's image kept: its packages' digests by name; `added`: the packages that building added."""

    torch: Text | None = None
    python: Text | None = None
    digests: Annotated[dict[Text, Text], Reveals.TEXT] = {}
    added: Texts = ()


class SelfTest(Line, frozen=True, tag="self-test"):
    """The result of an image's self-test, and the versions that are installed in it. `vendor`: None for our own images."""

    python: Text | None = None
    torch: Text | None = None
    packages: Texts = ()
    losses: Noted = None
    compiled: bool | None = None
    vendor: VendorPackages | None = None


class Failure(Line, frozen=True, tag="failure", kw_only=True):
    """Why a workload process gave up."""

    kind: Literal["crashed", "oom", "numerics", "unsupported"]
    rank: Count | None = None
    message: Message | None = None


class Done(Line, frozen=True, tag="done"):
    """The last line of a launch that did all that was requested."""


EVENTS: Mapping[str, type[Line]] = {
    str(struct.__struct_config__.tag): struct
    for struct in (
        *(
            Hello,
            Phase,
            ContainerReport,
            Setup,
            Block,
            Steps,
            Requests,
            Stream,
            Roof,
            ClockReading,
            NoUnseen,
            WarmUp,
            Memory,
            Enqueue,
            Compiled,
            Checkpointed,
            Loading,
            Remarks,
        ),
        *(AllReduce, Collective, ProbedDevices, Peers, Load, Precisions, Reference, Profile, Part, SelfTest, Failure, Done),
    )
}
"""The events that a workload process may write."""
