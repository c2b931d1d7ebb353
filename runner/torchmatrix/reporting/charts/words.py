"""Numbers and sentences as the titles say them."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd

from torchmatrix.analysis.intervals import Interval, difference_verdict
from torchmatrix.ground.numbers import figure as figure

_VERBS = {"train": ("trains", "train"), "infer": ("runs inference of", "run inference of")}


def times(value: float) -> str:
    """A ratio: two decimals, or three significant digits below 1 and above 100; n/a if unknown."""
    if math.isnan(value):
        return "n/a"
    return f"{value:.2f}" if 0.995 <= value < 100 else f"{value:#.3g}".rstrip(".")


def span(low: float, high: float) -> str:
    """The limits of a ratio with enough digits to distinguish them, up to three decimals; one number if they are equal."""
    if math.isnan(low) or low == high:
        return times(low)
    near = times(low) == times(high)
    return f"{low:.3f} to {high:.3f}" if near else f"{times(low)} to {times(high)}"


def interval(low: float, high: float) -> str:
    """The interval of a ratio, for a title."""
    return "too few launches for an interval" if math.isnan(low) else f"95 % interval {span(low, high)}"


def verb(mode: str, many: bool = False) -> str:
    """What a stack does with a model, or what several do."""
    return _VERBS.get(mode, (f"runs {mode} of", f"run {mode} of"))[many]


def where(row: Any) -> str:
    """The devices of a cell in words."""
    name = row.device_name
    if not isinstance(name, str) or name == "cpu":
        return str(row.devices)
    return f"{name} ({row.devices})" if row.count == 1 else f"{row.count} × {name} ({row.devices})"


def compared(own: str, other: str, mode: str, what: str, found: Interval) -> str:
    """Which of two stacks does `what` faster, as far as the launches show."""
    limits = f"({interval(found.low, found.high)})"
    verdict = difference_verdict(found)
    if verdict == "SAME":
        return f"{own} and {other} {verb(mode, many=True)} {what} equally fast: {times(found.value)} × {limits}"
    if verdict == "AMBIGUOUS":
        return f"Unclear whether {own} {verb(mode)} {what} faster than {other}: {times(found.value)} × {limits}"
    return f"{own} {verb(mode)} {what} {times(found.value)} × as fast as {other} {limits}"


def counted(words: Iterable[str]) -> str:
    """Such as "3 × oom, 1 × crashed"."""
    return ", ".join(f"{times_seen} × {word}" for word, times_seen in Counter(words).most_common())


def pick(row: Any, name: str) -> Interval:
    """The value called `name` of a table's row with its limits."""
    return Interval(value=getattr(row, name), low=getattr(row, f"{name}_low"), high=getattr(row, f"{name}_high"))


def slug(*words: object) -> str:
    """An id: [a-z0-9-]. Names that differ in other characters only get the same id, so callers add a number."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, words)).lower()).strip("-")[:60].strip("-")


def rows_of(table: pd.DataFrame) -> list[Any]:
    """The rows of a table as named tuples."""
    return list(table.itertuples(index=False))
