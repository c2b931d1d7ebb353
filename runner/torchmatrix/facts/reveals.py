"""What each field of each line may reveal: of the workload's lines by the wire schema, of the tool's own lines by HOST_LINES.

Only what may be published is decided by this. A field that stands nowhere is left out of everything that is redacted; fields
that only earlier versions recorded stay declared.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import Struct

from torchmatrix.facts.wire import EVENTS, Reveals


class Field(NamedTuple):
    """What the texts of a field may reveal (None: there should be none), or the fields of its objects by name."""

    reveals: Reveals | None = None
    fields: "Mapping[str, Field] | None" = None


Fields = Mapping[str, Field]


@cache
def fields_of(event: str) -> Fields | None:
    """Return the fields of a line by their names on the wire; None for an event that nobody declares."""
    return fields_of_struct(EVENTS[event]) if event in EVENTS else HOST_LINES.get(event)


@cache
def fields_of_struct(struct: type[Struct]) -> Fields:
    """Return the fields of a struct by their names on the wire. Raises TypeError if one may hold texts and has no class."""
    hints = get_type_hints(struct, include_extras=True)
    pairs = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
    return {encoded: _field(f"{struct.__name__}.{name}", hints[name]) for name, encoded in pairs if name != "facts"}


@cache
def may_name(event: str) -> bool:
    """Check whether a line may hold a name: one that nobody declares may."""
    fields = fields_of(event)
    return fields is None or _may_name(fields)


def _may_name(fields: Fields) -> bool:
    plain = (None, Reveals.NOTHING)
    return any(
        field.reveals not in plain or (field.fields is not None and _may_name(field.fields)) for field in fields.values()
    )


def _field(name: str, hint: Any) -> Field:
    declared = list(_classes(hint, name))
    struct = next((part for part in declared if isinstance(part, type)), None)
    reveals = next((part for part in declared if isinstance(part, Reveals)), None)
    return Field(reveals, fields_of_struct(struct) if struct else None)


def _classes(hint: Any, name: str) -> Iterator[Reveals | type[Struct]]:
    """Yield the classes and structs in a type."""
    if get_origin(hint) is Annotated:
        classes = [part for part in hint.__metadata__ if isinstance(part, Reveals)]
        yield from classes or _classes(hint.__origin__, name)
    elif isinstance(hint, type) and issubclass(hint, Struct):
        yield hint
    elif hint in (str, Any, dict, list):
        raise TypeError(f"{name} may hold texts: say in facts/wire.py what they may reveal (Reveals)")
    elif get_origin(hint) is not Literal:
        for part in get_args(hint):
            yield from _classes(part, name)


def _fields(*, words: str = "", text: str = "", parts: Mapping[str, Fields] | None = None, **names: str) -> Fields:
    """Return fields by name: `words` reveal nothing, `text` anything; `names`: of fields by the kind of name that they hold.

    A number reveals nothing, wherever it stands. `parts`: fields that hold objects, or lists of them.
    """
    classes = {Reveals.NOTHING: words, Reveals.TEXT: text, **{Reveals(kind): listed for kind, listed in names.items()}}
    declared = {name: Field(reveals) for reveals, listed in classes.items() for name in listed.split()}
    return declared | {name: Field(fields=fields) for name, fields in (parts or {}).items()}


def _line(*, words: str = "", text: str = "", parts: Mapping[str, Fields] | None = None, **names: str) -> Fields:
    """Return the fields of a line, which has its times besides."""
    return _fields(words=words, text=f"unix_seconds monotonic_seconds arrived_monotonic_seconds {text}", parts=parts, **names)


_GPU = _fields(
    words="name vendor",
    text="index memory_bytes capability power_limit_watts ecc persistence render_node groups numa_node local_cpus pcie"
    " clocks_max_mhz partition_of clocks_max_memory_mhz gsp_firmware application_clocks auto_boost compute_mode mig"
    " performance_level partitions",
    GPU="uuid slice_of",
    PCI="pci_bus",
    serial="serial",
    VBIOS="vbios",
)
_HOST = _fields(
    words="vendor",
    text="driver cuda_driver cpu cores numa_nodes governor memory_bytes kernel os architecture python notes links p2p"
    " sockets smt libc cpu_quota memory_limit_bytes limits_unseen frequency_driver energy_preference clock_limits"
    " turbo idle_states hugepages numa_balancing mitigations microcode numa board firmware",
    host="name",
    machine="board_id",
    parts={"gpus": _GPU, "core_groups": _fields(text="cores socket node kind")},
)
_DEVICES = _fields(words="vendor", text="label indices cpus threads nodes unlike", parts={"gpus": _GPU})
_STACK = _fields(
    words="source accelerator variant",
    text="name torch cuda python python_range packages compile_python",
    image="image base",
    parts={"indexes": _fields(text="url requirements")},
)
_WORKLOAD = _fields(
    words="unit model mode precision parallel",
    text="id name device batch_for explain stacks counts runtime compile compile_mode compile_shapes channels_last"
    " attention cudnn_benchmark grad eval optimizer checkpointing accumulate batch image_size sequence_length output_length"
    " audio_seconds find_unused_parameters steps seconds windows requests request_seconds warmup_steps warmup_seconds"
    " warmup_cap warmup_cap_seconds",
    parts={"own": _fields(text="path name sha256")},
)
_METHOD = _fields(
    words="statistic parallel",
    text="name launches start_below_celsius cool_down_seconds steps warm_seconds warms_up until budget_seconds"
    " cold_compiles parallel_within",
)
_ENGINE = _fields(
    text="engine version client program mounts ServerVersion Driver OperatingSystem KernelVersion Architecture"
    " CgroupVersion DefaultRuntime NCPU MemTotal DockerRootDir",
    host="Name",
)
_IMAGE = _fields(
    words="kind",
    text="environment id dockerfile dockerfile_sha256 base_digest requires lock_sha256 locked size_bytes file file_sha256"
    " python torch",
    image="reference tag digests arguments base index",
    parts={"self_test": _fields(words="vendor", text="losses compiled")},
)
_STARTED = _fields(
    text="memory_bytes processes core_bytes oom_score_adj",
    parts={
        "compile_cache": _fields(text="state sha256 note"),
        "isolation": _fields(text="network note"),
        "variables": _fields(text="passed withheld"),
    },
)
_NODE_PARTS: Mapping[str, Fields] = {
    "host": _HOST,
    "gpus": _DEVICES,
    "engine": _ENGINE,
    "image": _IMAGE,
    "start": _fields(text="waited_seconds temperature_celsius too_warm"),
    "started": _STARTED,
}
"""What each node of a launch says of itself."""
_READING = _fields(
    text="device error reasons foreign processes temperature_celsius memory_temperature_celsius sm_clock_mhz"
    " memory_clock_mhz clock_mhz pcie_generation power_watts power_limit_watts energy_joules utilization_percent"
    " memory_used_bytes busy_cpus steal_percent throttle_count ecc_uncorrected quota_periods quota_seconds"
)
_CELL = "cell stack workload ddp_workload devices indices nodes"

HOST_LINES: Mapping[str, Fields] = {
    "launch": _line(
        text="protocol tool run cell round try trial probe ddp_workload batch_requested batch_used workload_hash command",
        machine="machine",
        parts={"method": _METHOD, "stack": _STACK, "workload": _WORKLOAD, **_NODE_PARTS},
    ),
    "node": _line(text="number command", host="name", machine="machine", parts=_NODE_PARTS),
    "telemetry": _line(parts={"readings": _READING}),
    "transport": _line(text="library network paths interface"),
    "exit": _line(text="returncode reason message oom_killed tail beside losses_compared"),
    "damaged": _line(text="reason"),
    "run": _line(
        text="tool key command matrix launches watch_notes seed workload_hash",
        machine="machine",
        parts={
            "host": _HOST,
            "method": _METHOD,
            "scheduler": {
                **_fields(text="name version placed"),
                "nodes": Field(fields={"host name": Field(Reveals.HOST), "gres": Field(Reveals.TEXT)}),
            },
        },
    ),
    "planned": _line(words="parallel", text=_CELL),
    "skip": _line(words="parallel", text=f"{_CELL} reason fix"),
    "batch": _line(text="stack workload batch"),
    "parallel": _line(text="shown why within", parts={"lanes": _fields(text="devices cell ratio low high alone beside")}),
    "run-exit": _line(text="complete seconds estimated_seconds"),
}
"""The lines that only the tool writes, by their event."""
SELF_CHECK: Fields = _fields(
    text="torchmatrix stack engine command seconds ended watch_notes tail findings",
    machine="machine",
    parts={"host": _HOST, "telemetry": {**_READING, "monotonic_seconds": Field(Reveals.TEXT)}},
)
"""The file of `doctor --deep`, whose `events` are lines themselves."""
