"""What all readers of facts ask of a value, and the error for one that can't be read."""

import json
import math
import time
from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]
"""One JSON object."""

_SKEW_SECONDS = 3600.0
"""The clocks of two machines differ by less, unless one is wrong."""


class Malformed(ValueError):
    """A value of the wrong type for its place; the text names the place."""


def is_to_come(unix_seconds: float) -> bool:
    """Whether a time lies an hour or more in the future: a clock that keeps local time is wrong by hours before it is set."""
    return unix_seconds >= time.time() + _SKEW_SECONDS


def is_number(value: object) -> bool:
    """Whether it is a finite number that a float can hold."""
    try:
        return (type(value) is float or type(value) is int) and math.isfinite(value)
    except OverflowError:
        return False


def short(value: Any) -> str:
    """A value as JSON, at most 40 letters of it."""
    said = json.dumps(value, default=str)
    return said if len(said) <= 40 else f"{said[:39]}…"
