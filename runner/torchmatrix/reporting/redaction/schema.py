"""What the wire schema declares about each field: what its texts may reveal, and the struct whose fields it holds."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import Struct

from torchmatrix.facts.wire import Reveals


class Field(NamedTuple):
    """What a field may reveal; None for numbers and closed lists of words. `struct`: of it, or of each in its list."""

    reveals: Reveals | None
    struct: type[Struct] | None


@cache
def fields_of(struct: type[Struct]) -> Mapping[str, Field]:
    """Return the fields of a struct by their names on the wire. Raises TypeError if one may hold texts and has no class."""
    hints = get_type_hints(struct, include_extras=True)
    pairs = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
    return {encoded: _field(f"{struct.__name__}.{name}", hints[name]) for name, encoded in pairs if name != "facts"}


@cache
def may_name(struct: type[Struct]) -> bool:
    """Check whether a struct has a field that may hold a name."""
    fields = fields_of(struct).values()
    return any(field.reveals in (Reveals.TEXT, Reveals.GPU) or (field.struct and may_name(field.struct)) for field in fields)


def _field(name: str, hint: Any) -> Field:
    found = list(_classes(hint, name))
    reveals = next((part for part in found if isinstance(part, Reveals)), None)
    return Field(reveals, next((part for part in found if isinstance(part, type)), None))


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
