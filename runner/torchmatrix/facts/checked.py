"""JSON values -> values of the required type; any other type raises Malformed. The border of the facts."""

import json
import math
import time
from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]
"""One JSON object."""

_NUMBERS = frozenset({int, float})
_END_OF_TIME = 253402300800
"""The year 10000, which no calendar here can write; in seconds since 1970 UTC."""
_SKEW_SECONDS = 3600.0
"""The clocks of two machines differ by less, unless one is wrong."""


class Malformed(ValueError):
    """A value of the wrong type for its place; the text names the place."""


def text(record: Record, key: str) -> str:
    """A text; required."""
    value = record.get(key)
    return value if type(value) is str else _refuse(record, key, "a text")


def text_or_none(record: Record, key: str) -> str | None:
    """A text, if there is one."""
    value = record.get(key)
    return value if value is None or type(value) is str else _refuse(record, key, "a text")


def number(record: Record, key: str) -> float:
    """A finite number; required."""
    value: float = record.get(key)  # type: ignore[assignment]  # checked in the next line
    return value if is_number(value) else float(_refuse(record, key, "a number"))


def number_or_none(record: Record, key: str) -> float | None:
    """A finite number, if there is one."""
    value = record.get(key)
    return value if value is None or is_number(value) else _refuse(record, key, "a number")


def number_or_nan(record: Record, key: str) -> float:
    """A finite number; NaN if there is none."""
    value = record.get(key)
    return math.nan if value is None else float(number(record, key))


def moment(record: Record, key: str) -> float:
    """A time in seconds since 1970 UTC, not negative and before the year 10000; required."""
    value = number(record, key)
    return value if 0 <= value < _END_OF_TIME else float(_refuse(record, key, "a time"))


def moment_or_nan(record: Record, key: str) -> float:
    """A time in seconds since 1970 UTC; NaN if there is none."""
    return math.nan if record.get(key) is None else moment(record, key)


def is_to_come(unix_seconds: float) -> bool:
    """Whether a time lies an hour or more in the future: a clock that keeps local time is wrong by hours before it is set."""
    return unix_seconds >= time.time() + _SKEW_SECONDS


def whole(record: Record, key: str) -> int:
    """A whole number; required."""
    value = record.get(key)
    return value if type(value) is int and is_number(value) else _refuse(record, key, "a whole number")


def whole_or_none(record: Record, key: str) -> int | None:
    """A whole number, if there is one."""
    return None if record.get(key) is None else whole(record, key)


def whole_up_to(record: Record, key: str, most: int, default: int) -> int:
    """A whole number from 1 to `most`; `default` if there is none."""
    value = default if record.get(key) is None else whole(record, key)
    return value if 1 <= value <= most else _refuse(record, key, f"from 1 to {most}")


def flag(record: Record, key: str, default: bool = False) -> bool:
    """True or false; `default` if it is missing."""
    value = record.get(key)
    return value if type(value) is bool else default if value is None else _refuse(record, key, "true or false")


def part(record: Record, key: str) -> dict[str, Any]:
    """An object; an empty one if there is none."""
    value = record.get(key)
    return value if type(value) is dict else {} if value is None else _refuse(record, key, "an object")


def parts(record: Record, key: str) -> list[dict[str, Any]]:
    """A list of objects; an empty one if there is none."""
    value = record.get(key)
    if value is None:
        return []
    return value if type(value) is list and set(map(type, value)) <= {dict} else _refuse(record, key, "a list of objects")


def texts(record: Record, key: str) -> tuple[str, ...]:
    """A list of texts; empty if there is no list."""
    value = record.get(key)
    if value is None:
        return ()
    return tuple(value) if type(value) is list and set(map(type, value)) <= {str} else _refuse(record, key, "a list of texts")


def wholes(record: Record, key: str) -> tuple[int, ...]:
    """A list of whole numbers; empty if there is no list."""
    found = numbers(record, key)
    return found if set(map(type, found)) <= {int} else _refuse(record, key, "a list of whole numbers")  # type: ignore[return-value]


def numbers(record: Record, key: str) -> tuple[float, ...]:
    """A list of finite numbers; empty if there is no list."""
    value = record.get(key)
    if value is None:
        return ()
    return tuple(value) if _are_numbers(value) else _refuse(record, key, "a list of numbers")


def is_number(value: object) -> bool:
    """Whether it is a finite number that a float can hold."""
    try:
        return (type(value) is float or type(value) is int) and math.isfinite(value)
    except OverflowError:
        return False


def _are_numbers(value: object) -> bool:
    try:
        return type(value) is list and set(map(type, value)) <= _NUMBERS and all(map(math.isfinite, value))
    except OverflowError:
        return False


def _refuse(record: Record, key: str, wanted: str) -> Any:
    if key not in record:
        raise Malformed(f"{key} is missing")
    raise Malformed(f"{key} is {short(record[key])}, not {wanted}")


def short(value: Any) -> str:
    """A value as JSON, at most 40 letters of it."""
    said = json.dumps(value, default=str)
    return said if len(said) <= 40 else f"{said[:39]}…"
