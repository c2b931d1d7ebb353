"""What a box may write: every event of the protocol (version 1), its fields, their types and bounds. The one definition.

pipe.py checks each line by it while a launch runs, box_lines.py when a launch file is read. A field may be missing or null
unless it is required. Fields that are not listed may have any value: they are kept, and at most shown. A tool that is older
than an event refuses the box that writes it; what an event means never changes without a new version of the protocol.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchmatrix.facts import agreement
from torchmatrix.facts.checked import Malformed, Record
from torchmatrix.facts.events import ARRIVED
from torchmatrix.facts.field_kinds import (
    COUNT,
    SECONDS,
    Field,
    check_field,
    flag_field,
    known_named_numbers_field,
    known_numbers_field,
    list_field,
    losses_field,
    named_numbers_field,
    number_field,
    numbers_field,
    object_field,
    one_of_field,
    parts_field,
    ratio_field,
    rows_field,
    square_field,
    text_field,
    texts_field,
    whole_field,
    wholes_field,
    word_field,
)

HOST_EVENTS = frozenset({
    "launch", "node", "telemetry", "transport", "exit", "damaged", "run", "planned", "skip", "batch", "run-exit",
})  # fmt: skip
"""What only the tool writes, into launch files and the records of runs."""


def check(event: Record) -> None:
    """Raises Malformed if a field of an event of the box is missing or not valid, or contradicts another one.

    Unknown events are not checked.
    """
    if not _is_valid(event):
        for field in (*_TIMES, *BOX_EVENTS.get(event["event"], ())):
            check_field(event, field)
    agreement.check(event)


def _is_valid(event: Record) -> bool:
    """Whether no field is wrong, without saying which: it looks at the fields that are there, not at all that may be."""
    fields, required = _BY_NAME.get(event["event"], _OF_ANY)
    try:
        for name, value in event.items():
            if value is not None and name in fields and not fields[name](value):
                return False
    except Malformed:
        return False
    return all(event.get(name) is not None for name in required)


_TIMES = (number_field("unix_seconds", 1e12), number_field("monotonic_seconds", 1e12), number_field(ARRIVED, 1e12))

_PROBED = parts_field(
    "sizes", whole_field("bytes"), number_field("seconds", SECONDS), number_field("bus_bytes_per_second", 1e18)
)
BOX_EVENTS: Mapping[str, tuple[Field, ...]] = {
    "hello": (text_field("compile_cache"), object_field("arguments"), texts_field("argv"), object_field("removed")),
    "phase": (word_field("phase"), number_field("seconds", SECONDS, required=True)),
    "environment": (
        *map(text_field, ("python", "torch", "torch_git", "torch_config", "cuda", "hip", "nccl", "triton")),
        *map(text_field, ("glibc", "os", "compiler", "executable")),
        texts_field("packages"),
        object_field("variables"),
    ),
    "setup": (
        parts_field(
            "devices", text_field("name"), whole_field("memory_bytes"), whole_field("multiprocessors"), text_field("uuid")
        ),
        whole_field("world_size"),
        whole_field("parameters"),
        *map(text_field, ("backend", "parallel")),
        object_field("runtime"),
    ),
    "sample": (
        one_of_field("phase", "warm-up", "measure", "unseen", "seen"),
        whole_field("window"),
        whole_field("steps", least=1, required=True),
        whole_field("items", least=1, required=True),
        number_field("start_monotonic_seconds", 1e12),
        number_field("stop_monotonic_seconds", 1e12),
        numbers_field("seconds", SECONDS, required=True),
        numbers_field("enqueue_seconds", SECONDS),
        rows_field("step_seconds", SECONDS),
        list_field("loss"),
        losses_field("losses"),
        numbers_field("scale", 1e38),
        numbers_field("skipped_steps", COUNT),
    ),
    "steps": (
        one_of_field("phase", "warm-up", "measure"),
        whole_field("window"),
        whole_field("first"),
        replace(rows_field("step_seconds", SECONDS), required=True),
        losses_field("losses"),
    ),
    "requests": (
        one_of_field("kind", "latency", "end-to-end"),
        whole_field("rank", required=True),
        numbers_field("seconds", SECONDS, required=True),
        number_field("inputs_seconds", SECONDS),
        number_field("start_monotonic_seconds", 1e12, required=True),
        number_field("stop_monotonic_seconds", 1e12, required=True),
    ),
    "clock": (),
    "unseen": (text_field("error", required=True),),
    "warm-up": (whole_field("steps"), number_field("seconds", SECONDS), flag_field("flat"), ratio_field("drift")),
    "memory": (one_of_field("phase", "cold", "warm"), wholes_field("peak_bytes")),
    "enqueue": (known_numbers_field("step_seconds", SECONDS),),
    "compile": (*map(whole_field, ("graph_breaks", "graphs", "operations", "run")), texts_field("fallbacks")),
    "remarks": (texts_field("texts"),),
    "all-reduce": (
        _PROBED,
        whole_field("gradient_bytes"),
        numbers_field("wrong_elements", COUNT),
    ),
    "collective": (word_field("operation"), _PROBED, text_field("error")),
    "devices": (
        replace(parts_field("devices", text_field("name", required=True), text_field("uuid")), required=True),
        text_field("backend", required=True),
    ),
    "peers": (
        square_field("access", bool),
        square_field("bytes_per_second", int, float, type(None)),
        rows_field("wrong", COUNT),
    ),
    "load": (
        number_field("start_monotonic_seconds", 1e12, required=True),
        number_field("stop_monotonic_seconds", 1e12, required=True),
        text_field("dtype", required=True),
        replace(rows_field("flops_per_second", 1e20), required=True),
        replace(list_field("finite"), required=True),
    ),
    "precision": (
        text_field("requested"),
        parts_field(
            "effective",
            text_field("matmul", required=True),
            text_field("convolution", required=True),
            *map(text_field, ("linear", "matmul_backward", "convolution_backward")),
            text_field("mixed"),
            object_field("types"),
        ),
        texts_field("changed"),
        text_field("unsupported"),
        texts_field("problems"),
    ),
    "reference": (
        number_field("flops_per_item", 1e30),
        *map(list_field, ("losses", "measured", "differences", "tolerances")),
        *map(flag_field, ("agrees", "quiet")),
        *map(text_field, ("error", "proof", "flops_scope", "unwatched")),
        texts_field("problems"),
        parts_field(
            "groups", text_field("name"), *(number_field(name, 1e300) for name in ("norm", "distance", "tolerance", "noise"))
        ),
        named_numbers_field("fingerprint", 1e300),
        known_named_numbers_field("parity", 1e300),
    ),
    "profile": (
        whole_field("steps", least=1, required=True),
        *(numbers_field(f"{kind}_seconds", SECONDS, required=True) for kind in ("plain", "profiled")),
    ),
    "part": (
        word_field("name"),
        *(whole_field(name, least=least, required=True) for name, least in (("number", 0), ("count", 1))),
        text_field("data", required=True),
    ),
    "self-test": (*map(text_field, ("python", "torch")), texts_field("packages")),
    "failure": (one_of_field("kind", "crashed", "oom", "numerics", "unsupported"), whole_field("rank"), text_field("message")),
    "done": (),
}
"""The events of a box and their fields."""


_Checks = tuple[Mapping[str, Callable[[Any], bool]], tuple[str, ...]]


def _checks(fields: Sequence[Field]) -> _Checks:
    """By the field's name, what its value must fit; and the names of the required ones."""
    return {field.name: field.fits for field in fields}, tuple(field.name for field in fields if field.required)


_OF_ANY = _checks(_TIMES)
_BY_NAME = {kind: _checks((*_TIMES, *fields)) for kind, fields in BOX_EVENTS.items()}
