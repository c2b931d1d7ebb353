"""Objects of ours that another process wrote as JSON: made again by the types that their classes declare, or refused."""

import types
from collections.abc import Collection
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints


def made(kind: Any, told: Any, name: str) -> Any:
    """A value of the type `kind`: a dataclass, a list, tuple or other collection, a path, an enum, a text or number, or None.

    `name`: of what is told, for messages. Raises ValueError for what the type doesn't allow, such as an unknown field.
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        kinds = [one for one in get_args(kind) if one is not type(None)]
        return None if told is None and len(kinds) < len(get_args(kind)) else made(kinds[0], told, name)
    if origin in (list, tuple, Collection):
        return _collection(origin, get_args(kind), told, name)
    if is_dataclass(kind):
        return _object(kind, told, name)
    if isinstance(kind, type) and issubclass(kind, Path):
        return kind(_plain(str, told, name))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(told)
    return _plain(kind, told, name)


def _object(kind: Any, told: Any, name: str) -> Any:
    if not isinstance(told, dict):
        raise ValueError(f"{name} is no table")
    needed = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
    known = get_type_hints(kind)
    for problem, names in (("lacks", needed - told.keys()), ("has an unknown", told.keys() - known.keys())):
        if names:
            raise ValueError(f"{name} {problem} {min(names)}")
    return kind(**{key: made(known[key], value, f"{name}.{key}") for key, value in told.items()})


def _collection(origin: Any, inner: tuple[Any, ...], told: Any, name: str) -> Any:
    """A tuple of two types has two values; a collection becomes a tuple."""
    if not isinstance(told, list):
        raise ValueError(f"{name} is no list")
    is_fixed = origin is tuple and ... not in inner
    if is_fixed and len(told) != len(inner):
        raise ValueError(f"{name} has {len(told)} values instead of {len(inner)}")
    kinds = inner if is_fixed else inner[:1] * len(told)
    return (list if origin is list else tuple)(made(kind, one, name) for kind, one in zip(kinds, told, strict=True))


def _plain(kind: type, told: Any, name: str) -> Any:
    allowed = (int, float) if kind is float else kind
    if not isinstance(told, allowed) or (isinstance(told, bool) and kind is not bool):
        raise ValueError(f"{name} is a {type(told).__name__}, not a {kind.__name__}")
    return told
