"""What a box may write: every event of the protocol (version 1), its fields, their types and bounds. The one definition.

pipe.py checks each line by it while a launch runs, box_lines.py when a launch file is read. A field may be missing or null
unless it is required. Fields that are not listed may have any value: they are kept, and at most shown. A new event needs a new
version of the protocol.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchmatrix.facts.checked import Malformed, Record, short
from torchmatrix.facts.events import ARRIVED

COUNT = 2**53
"""Larger whole numbers are not exact as a float."""
SECONDS = 1e9
"""Some thirty years."""
HOST_EVENTS = frozenset({"launch", "telemetry", "exit", "damaged", "run", "planned", "skip", "batch", "run-exit"})
"""What only the tool writes, into launch files and the records of runs."""

_NUMBERS = frozenset({int, float})
_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One field: `fits` says whether a value is valid, `wanted` what is valid, in words. `required`: it can't be null."""

    name: str
    fits: Callable[[Any], bool]
    wanted: str
    required: bool = False


def check(event: Record) -> None:
    """Raises Malformed if a field of an event of the box is missing or not valid; unknown events are not checked."""
    if not _is_valid(event):
        for field in (*_TIMES, *BOX_EVENTS.get(event["event"], ())):
            _check_field(event, field)


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


def _check_field(record: Record, field: Field) -> None:
    value = record.get(field.name)
    if value is None and field.name in record and field.required:
        raise Malformed(f"{field.name} is null, not {field.wanted}")
    if value is None and field.required:
        raise Malformed(f"{field.name} is missing")
    if value is not None and not field.fits(value):
        raise Malformed(f"{field.name} is {short(value)}, not {field.wanted}")


def _text(name: str, required: bool = False) -> Field:
    return Field(name=name, fits=lambda value: type(value) is str, wanted="a text", required=required)


def _flag(name: str) -> Field:
    return Field(name=name, fits=lambda value: type(value) is bool, wanted="true or false")


def _word(name: str) -> Field:
    def fits(value: Any) -> bool:
        return type(value) is str and _WORD.fullmatch(value) is not None

    return Field(name=name, fits=fits, wanted="a short word", required=True)


def _one_of(name: str, *words: str) -> Field:
    listed = f"{', '.join(words[:-1])} or {words[-1]}"
    return Field(name=name, fits=lambda value: type(value) is str and value in words, wanted=listed, required=True)


def _number(name: str, most: float, required: bool = False) -> Field:
    def fits(value: Any) -> bool:
        return (type(value) is float or type(value) is int) and 0 <= value <= most

    return Field(name=name, fits=fits, wanted=f"a number from 0 to {most:g}", required=required)


def _ratio(name: str) -> Field:
    """A relative change; more than a hundredfold is none."""

    def fits(value: Any) -> bool:
        return (type(value) is float or type(value) is int) and -100 <= value <= 100

    return Field(name=name, fits=fits, wanted="a number from -100 to 100")


def _whole(name: str, least: int = 0, required: bool = False) -> Field:
    def fits(value: Any) -> bool:
        return type(value) is int and least <= value <= COUNT

    return Field(name=name, fits=fits, wanted=f"a whole number from {least} to {COUNT}", required=required)


def _numbers(name: str, most: float, required: bool = False) -> Field:
    def fits(value: Any) -> bool:
        return type(value) is list and _are_numbers(value, most) and (bool(value) or not required)

    return Field(name=name, fits=fits, wanted=f"a list of numbers from 0 to {most:g}", required=required)


def _known_numbers(name: str, most: float) -> Field:
    """A list of numbers and nulls."""

    def fits(value: Any) -> bool:
        return type(value) is list and _are_numbers([one for one in value if one is not None], most)

    return Field(name=name, fits=fits, wanted=f"a list of nulls and numbers from 0 to {most:g}")


def _rows(name: str, most: float) -> Field:
    """A list of lists of numbers, one for each rank."""

    def fits(value: Any) -> bool:
        return type(value) is list and all(type(row) is list and _are_numbers(row, most) for row in value)

    return Field(name=name, fits=fits, wanted=f"a list of lists of numbers from 0 to {most:g}")


def _square(name: str, *types: type) -> Field:
    """As many lists as each of them is long, with values of these types."""

    def fits(value: Any) -> bool:
        if type(value) is not list or not all(type(row) is list and len(row) == len(value) for row in value):
            return False
        return {type(one) for row in value for one in row} <= set(types)

    return Field(name=name, fits=fits, wanted="a square of lists")


def _wholes(name: str) -> Field:
    def fits(value: Any) -> bool:
        return type(value) is list and bool(value) and set(map(type, value)) == {int} and 0 <= min(value) <= max(value) <= COUNT

    return Field(name=name, fits=fits, wanted=f"a list of whole numbers from 0 to {COUNT}", required=True)


def _texts(name: str) -> Field:
    return Field(name=name, fits=lambda value: type(value) is list and set(map(type, value)) <= {str}, wanted="a list of texts")


def _list(name: str) -> Field:
    return Field(name=name, fits=lambda value: type(value) is list, wanted="a list")


def _object(name: str) -> Field:
    return Field(name=name, fits=lambda value: type(value) is dict, wanted="an object")


def _named_numbers(name: str, most: float) -> Field:
    def fits(value: Any) -> bool:
        return type(value) is dict and _are_numbers(list(value.values()), most)

    return Field(name=name, fits=fits, wanted=f"an object of numbers from 0 to {most:g}")


def _parts(name: str, *fields: Field) -> Field:
    """A list of objects with these fields; what is wrong inside is reported by its own name."""

    def fits(value: Any) -> bool:
        if type(value) is not list or not set(map(type, value)) <= {dict}:
            return False
        for record in value:
            for field in fields:
                _check_inside(name, record, field)
        return True

    return Field(name=name, fits=fits, wanted="a list of objects")


def _check_inside(name: str, record: Record, field: Field) -> None:
    try:
        _check_field(record, field)
    except Malformed as why:
        raise Malformed(f"{name}: {why}") from None


def _are_numbers(values: Sequence[Any], most: float) -> bool:
    """Whether all are numbers from 0 to `most`; NaN is neither."""
    if not set(map(type, values)) <= _NUMBERS:
        return False
    return not values or (min(values) >= 0 and max(values) <= most and not any(map(math.isnan, values)))


_TIMES = (_number("unix_seconds", 1e12), _number("monotonic_seconds", 1e12), _number(ARRIVED, 1e12))

BOX_EVENTS: Mapping[str, tuple[Field, ...]] = {
    "hello": (_text("compile_cache"), _object("arguments"), _texts("argv"), _object("removed")),
    "phase": (_word("phase"), _number("seconds", SECONDS, required=True)),
    "environment": (
        *map(_text, ("python", "torch", "torch_git", "torch_config", "cuda", "hip", "nccl", "triton")),
        *map(_text, ("glibc", "os", "compiler", "executable")),
        _texts("packages"),
        _object("variables"),
    ),
    "setup": (
        _parts("devices", _text("name"), _whole("memory_bytes"), _whole("multiprocessors"), _text("uuid")),
        _whole("world_size"),
        _whole("parameters"),
        *map(_text, ("backend", "parallel")),
    ),
    "sample": (
        _one_of("phase", "warm-up", "measure"),
        _whole("window"),
        _whole("steps", least=1, required=True),
        _whole("items", least=1, required=True),
        _number("start_monotonic_seconds", 1e12),
        _number("stop_monotonic_seconds", 1e12),
        _numbers("seconds", SECONDS, required=True),
        _numbers("enqueue_seconds", SECONDS),
        _rows("step_seconds", SECONDS),
        _list("loss"),
        _list("losses"),
        _numbers("scale", 1e38),
        _numbers("skipped_steps", COUNT),
    ),
    "steps": (
        _one_of("phase", "warm-up", "measure"),
        _whole("window"),
        _whole("first"),
        replace(_rows("step_seconds", SECONDS), required=True),
        _list("losses"),
    ),
    "warm-up": (_whole("steps"), _number("seconds", SECONDS), _flag("flat"), _ratio("drift")),
    "memory": (_one_of("phase", "cold", "warm"), _wholes("peak_bytes")),
    "enqueue": (_known_numbers("step_seconds", SECONDS),),
    "compile": (_whole("graph_breaks"),),
    "all-reduce": (
        _parts("sizes", _whole("bytes"), _number("seconds", SECONDS), _number("bus_bytes_per_second", 1e18)),
        _whole("gradient_bytes"),
        _numbers("wrong_elements", COUNT),
    ),
    "devices": (_parts("devices", _text("name"), _text("uuid")), _text("backend")),
    "peers": (
        _square("access", bool),
        _square("bytes_per_second", int, float, type(None)),
        _rows("wrong", COUNT),
    ),
    "load": (
        _number("start_monotonic_seconds", 1e12, required=True),
        _number("stop_monotonic_seconds", 1e12, required=True),
        _text("dtype"),
        replace(_rows("flops_per_second", 1e20), required=True),
        replace(_list("finite"), required=True),
    ),
    "precision": (
        _text("requested"),
        _parts("effective", _text("matmul", required=True), _text("convolution", required=True)),
        _text("unsupported"),
        _texts("problems"),
    ),
    "reference": (
        _number("flops_per_item", 1e30),
        *map(_list, ("losses", "measured", "differences", "tolerances")),
        *map(_flag, ("agrees", "quiet")),
        *map(_text, ("error", "proof", "flops_scope")),
        _texts("problems"),
        _parts("groups", _text("name"), *(_number(name, 1e300) for name in ("norm", "distance", "tolerance", "noise"))),
        _named_numbers("fingerprint", 1e300),
    ),
    "self-test": (*map(_text, ("python", "torch")), _texts("packages")),
    "failure": (_one_of("kind", "crashed", "oom", "numerics", "unsupported"), _whole("rank"), _text("message")),
    "done": (),
}
"""The events of a box and their fields."""


_Checks = tuple[Mapping[str, Callable[[Any], bool]], tuple[str, ...]]


def _checks(fields: Sequence[Field]) -> _Checks:
    """By the field's name, what its value must fit; and the names of the required ones."""
    return {field.name: field.fits for field in fields}, tuple(field.name for field in fields if field.required)


_OF_ANY = _checks(_TIMES)
_BY_NAME = {kind: _checks((*_TIMES, *fields)) for kind, fields in BOX_EVENTS.items()}
