"""What each field of each line may reveal, as its struct declares it: the workload's in wire.py, the tool's own in HOST_LINES.

Only what may be published is decided by this. A field that stands nowhere is left out of everything that is redacted; fields
that only earlier versions recorded stay declared.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import Struct

from torchmatrix.facts import host_lines, host_parts, run_record
from torchmatrix.facts.wire import EVENTS, Clock, Noted, Number, Reveals, Text, Texts, shape_of


class Field(NamedTuple):
    """What the texts of a field may reveal (None: there should be none), or the fields of its objects by name. `is_number`:
    whether it holds numbers only.
    """

    reveals: Reveals | None = None
    fields: "Mapping[str, Field] | None" = None
    is_number: bool = False


Fields = Mapping[str, Field]


@cache
def fields_of(event: str) -> Fields | None:
    """Return the fields of a line by their names on the wire; None for an event that nobody declares."""
    struct = EVENTS.get(event) or HOST_LINES.get(event)
    return fields_of_struct(struct) if struct else None


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
    return Field(reveals, fields_of_struct(struct) if struct else None, _is_number(hint))


def _is_number(hint: Any) -> bool:
    """Check whether a type, or each of its parts, is one of numbers."""
    if get_origin(hint) is Annotated:
        return _is_number(hint.__origin__)
    parts = () if get_origin(hint) is Literal else get_args(hint)
    return all(map(_is_number, parts)) if parts else hint in (int, float, bool, type(None), ...)


def _classes(hint: Any, name: str) -> Iterator[Reveals | type[Struct]]:
    """Yield the classes and structs in a type."""
    if get_origin(hint) is Annotated:
        classes = [part for part in hint.__metadata__ if isinstance(part, Reveals)]
        yield from classes or _classes(shape_of(hint) or hint.__origin__, name)
    elif isinstance(hint, type) and issubclass(hint, Struct):
        yield hint
    elif hint in (str, Any, dict, list):
        raise TypeError(f"{name} may hold texts: say in facts/wire.py what they may reveal (Reveals)")
    elif get_origin(hint) is not Literal:
        for part in get_args(hint):
            yield from _classes(part, name)


HOST_LINES: Mapping[str, type[Struct]] = {
    "launch": host_lines.Header,
    "node": host_lines.OtherNode,
    "telemetry": host_lines.Readings,
    "transport": host_lines.Transport,
    "exit": host_lines.Exit,
    "damaged": host_lines.Damaged,
    "run": run_record.RunHeader,
    "planned": run_record.CellName,
    "skip": run_record.Skipped,
    "batch": run_record.FoundBatch,
    "parallel": run_record.ParallelTest,
    "run-exit": run_record.RunExit,
}
"""The lines that only the tool writes, by their event."""


class TimedReading(host_lines.Reading, frozen=True, kw_only=True):
    """A reading with its time."""

    monotonic_seconds: Clock | None = None


class SelfCheckFile(Struct, frozen=True, kw_only=True):
    """The file of `doctor --deep`, whose `events` are lines themselves."""

    torchmatrix: Text | None = None
    stack: Text | None = None
    engine: Text | None = None
    command: Text | None = None
    machine: host_parts.Identity | None = None
    host: host_parts.HostRecord = {}
    seconds: Number | None = None
    ended: Text | None = None
    watch_notes: Texts = ()
    tail: Texts = ()
    findings: Noted = None
    telemetry: tuple[TimedReading, ...] = ()
