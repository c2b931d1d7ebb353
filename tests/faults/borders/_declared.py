"""Lines that only the host writes, with every field that is declared, and the same with any one field replaced."""

import copy
import types
from collections.abc import Iterator, Mapping
from functools import cache
from random import Random
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from faults.borders.box_lines import WRONG
from support.records import launch_lines
from torchmatrix.facts.reveals import HOST_LINES
from torchmatrix.facts.wire import shape_of

_DEEP = 400
_VALUES: tuple[Any, ...] = (
    *WRONG, 2**53 + 1, 2**63, -(2**63) - 1, -1.5, 1e-300, "NaN", "Infinity", "null", "1", "cpu", "ddp", "../../etc", "a\0b",
    "\u202e", "'", "<b>", "{{ x }}", "n" * 100_000, [0], [""], ["\ud800"], [True], [{"x": [1]}], [[1, 2], [3]], {"": None},
    {"x": "\ud800"}, {"x": [1]}, [1] * 10_000,
)  # fmt: skip
_MEANINGS = {"arrived_monotonic_seconds": None, "reason": None, "message": None, "event": None, "trial": False}
"""Values of fields by which a line means something else."""
Path = tuple[str | int, ...]


def whole(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line with what is given, and every other field that is declared for it."""
    filled: dict[str, Any] = {"event": kind, **_with(_sample(HOST_LINES[kind]), given)}
    return filled


def launch(**more: Any) -> list[dict[str, Any]]:
    """Return the lines of an ok launch that have every field; `more`: as launch_lines takes it."""
    first, *others, last = launch_lines(**more)
    host_lines = [whole("telemetry", {"monotonic_seconds": 105.0}), whole("transport", {}), whole("node", {"name": "node2"})]
    told = [line for line in others if line["event"] not in HOST_LINES]
    return [whole("launch", first), *told, *host_lines[: 2 if first["gpus"]["nodes"] == 1 else 3], whole("exit", last)]


def changed(random: Random, line: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a line with one field, at any depth, replaced or left out, and what was done."""
    other = copy.deepcopy(dict(line))
    path = random.choice([path for path in _paths(line) if path != ("event",)])
    inside: Any = other
    for key in path[:-1]:
        inside = inside[key]
    how = random.random()
    if how < 0.1:
        del inside[path[-1]]
        return other, f"{line['event']} without {path}"
    value = inside[path[-1]]
    if how < 0.2:
        value = random.choice(([value], {"x": value}, [value, value], str(value), _nested(random.choice(("[", "{")))))
    else:
        value = copy.deepcopy(random.choice(_VALUES))
    inside[path[-1]] = value
    return other, f"{line['event']} {path}: {str(value)[:60]!r}"


def _nested(kind: str) -> Any:
    value: Any = 1
    for _ in range(_DEEP):
        value = [value] if kind == "[" else {"x": value}
    return value


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each part of a value; of the first items of lists."""
    inside = value.items() if isinstance(value, Mapping) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*path, key)
        yield from _paths(inner, (*path, key))


def _with(sample: Any, given: Any) -> Any:
    """Return the given value, and what the sample has besides."""
    if isinstance(sample, dict) and isinstance(given, Mapping):
        return {**given, **{name: _with(value, given.get(name, value)) for name, value in sample.items()}}
    return given


@cache
def _sample(hint: Any) -> Any:
    """Return a value of a declared type; of structs with all their fields."""
    if get_origin(hint) is Annotated:
        return _sample(shape_of(hint) or hint.__origin__)
    if isinstance(hint, type) and issubclass(hint, Struct):
        hints = get_type_hints(hint, include_extras=True)
        names = zip(hint.__struct_encode_fields__, hint.__struct_fields__, strict=True)
        return {name: _MEANINGS.get(name, _sample(hints[of])) for name, of in names if of != "facts"}
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType, Literal):
        return parts[0] if origin is Literal else _sample(parts[0])
    if origin is tuple:
        return [_sample(part) for part in parts if part is not ...]
    if origin is dict:
        return {"x": _sample(parts[1])}
    return {int: 1, float: 1.0, bool: False, str: "x"}.get(hint, [])
