"""What several rooms write alike: a number as a reader sees it, a file that is there whole or not at all."""

import math
from pathlib import Path
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


def write_whole(path: Path, content: bytes) -> None:
    """Write a file by way of another beside it: nobody reads a half, and a failure leaves what was there. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
