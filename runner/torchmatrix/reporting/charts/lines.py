"""Charts of a value along an axis: a line, its intervals as a band, and what happened. No script, and type never scales.

Places are in per cent of the drawing; lines.html.j2 writes it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torchmatrix.reporting import words
from torchmatrix.reporting.charts.rows import hundredths, inside
from torchmatrix.reporting.charts.ticks import round_values


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A place on the line. `value`: None where the line has a gap. `note`: what a reader sees who points at it."""

    x: float
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Something that happened. `kind`: "cross" on the axis, "level" (a line with `text`) or "changed" (a dotted line).

    `tone`: a colour of page.css, "bad", "good" or "soft".
    """

    x: float
    kind: str
    tone: str
    note: str
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One line from `low` to `high`. `id`: [a-z0-9-]. `title`: the finding; `sub`: what and in which unit. `ends`: what stands
    below the first and the last point. `table`: what is drawn, by the columns' names."""

    id: str
    title: str
    sub: str
    points: tuple[Point, ...]
    low: float
    high: float
    ends: tuple[str, str]
    marks: tuple[Mark, ...] = ()
    table: tuple[Mapping[str, Any], ...] = ()

    def x(self, place: float) -> str:
        """A place along the line, from 0 to 100."""
        return _share(place, self.points[0].x, self.points[-1].x)

    def y(self, value: float) -> str:
        """A place from the top, from 0 to 100; the edge for what is beyond it."""
        return _share(value, self.high, self.low)

    def curve(self) -> str:
        """The line as a path; a single point between gaps is a dot."""
        parts = (of for drawn, of in groupby(self.points, lambda one: one.value is not None) if drawn)
        return "".join(f"M{'L'.join(self._at(one.x, one.value) for one in part)}h0" for part in parts)

    def band(self) -> str:
        """The intervals as a path."""
        found = []
        for drawn, of in groupby(self.points, lambda one: one.low is not None and one.high is not None):
            part = list(of) if drawn else []
            edge = [self._at(one.x, one.high) for one in part] + [self._at(one.x, one.low) for one in reversed(part)]
            found += [f"M{'L'.join(edge)}z"] if part else []
        return "".join(found)

    def _at(self, x: float, value: float | None) -> str:
        return f"{self.x(x)} {self.y(value or 0.0)}"

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Round values on the scale."""
        return ticks(self.low, self.high)


def _share(value: float, first: float, last: float) -> str:
    return hundredths(inside((value - first) / (last - first) if last != first else 0.0))


def ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Round values between two, with as many decimals as tell them from each other."""
    values = round_values(low, high, 4)
    step = values[1] - values[0] if len(values) > 1 else high - low
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return tuple((value, words.spaced(value, decimals)) for value in values)
