"""Numbers as a reader sees them: four significant digits, n/a for what is unknown."""

import math
from typing import Any


def is_known(value: Any) -> bool:
    """A number that isn't NaN?"""
    return isinstance(value, (int, float)) and not math.isnan(value)


def figure(value: Any) -> str:
    """Four significant digits; n/a for what is unknown."""
    if not is_known(value):
        return "n/a"
    text = f"{value:#.4g}".rstrip(".")
    return f"{value:.0f}" if "e" in text and value >= 1e4 else text
