"""Charts as rows of HTML: a label, a drawing in per cent of its column, figures in columns. No script, and type never scales.

A panel has one scale for all its rows; panels side by side share it. rows.html.j2 writes them, files.py separate files.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torchmatrix.analysis.rows import group_by

# Round values for a scale.


def round_values(low: float, high: float, most: int = 7, is_log: bool = False) -> list[float]:
    """Return at most about `most` round values from `low` to `high`: multiples of 1, 2 or 5 times a power of ten; on a wide
    logarithmic scale 1, 2, 5, 10, … , or the powers of ten alone. They include 1 (and 0) where it lies inside.
    """
    if is_log and high >= 4 * low:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        values = [digit * 10.0**power for power in decades for digit in (1, 2, 5) if low <= digit * 10.0**power <= high]
        return values if len(values) <= most else [value for value in values if math.log10(value) % 1 == 0]
    if not 0 < high - low < math.inf:
        return [low]
    power = math.floor(math.log10((high - low) / most))
    step = next(step for digit in (1, 2, 5, 10) if (high - low) / (step := digit * 10.0**power) <= most * (1 + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, max(0, -power) + 1) for place in range(first, last + 1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class BarRow:
    """One bar or dot. `value`, `low`, `high`: in the panel's unit; None: unknown. `figures`: the text of each column.
    `begin`: where the bar begins, by default at the scale's low end.
    `head`: a line above the row, where a group begins. `problem`: instead of a drawing, why there is none. `strokes`: single
    values behind a mean. `ideal`: a dashed mark. `colour`: the number of a series. `marks`: words with their explanations.
    `layers`: bars over each other instead of one, each with its colour, the longest first. `note`: the row's tooltip.
    """

    label: str
    value: float | None = None
    begin: float | None = None
    low: float | None = None
    high: float | None = None
    figures: tuple[str, ...] = ()
    head: str = ""
    problem: str = ""
    strokes: tuple[float, ...] = ()
    ideal: float | None = None
    layers: tuple[tuple[float, int], ...] = ()
    colour: int = 0
    shape: str = "bar"
    is_best: bool = False
    marks: tuple[tuple[str, str], ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """Rows on one scale from `low` to `high`; with `is_log` a logarithmic one. `unit`: beside the title. `ticks`: value, text.

    `heads`: above the columns of figures. `kind`: the columns' layout in page.css.
    """

    title: str
    rows: tuple[BarRow, ...]
    high: float
    low: float = 0.0
    unit: str = ""
    kind: str = "bars"
    is_log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    heads: tuple[str, ...] = ()

    def at(self, value: float | None) -> str:
        """Return a place on the scale in per cent, such as "73.2%"."""
        return f"{hundredths(self.share(value))}%"

    def share(self, value: float | None) -> float:
        """Return a place on the scale from 0 to 1; the end of the scale for what is beyond it."""
        if value is None or not math.isfinite(value):
            return 0.0
        if self.is_log:
            value = max(value, 1e-12)
            return inside(math.log(value / self.low) / math.log(self.high / self.low))
        return inside((value - self.low) / (self.high - self.low)) if self.high > self.low else 0.0

    def bar(self, row: BarRow) -> tuple[str, str]:
        """Return where a row's bar begins, and how wide it is, in per cent."""
        left, right = sorted((self.share(row.begin), self.share(row.value)))
        return f"{hundredths(left)}%", f"{hundredths(right - left)}%"

    def is_cut(self, row: BarRow) -> bool:
        """Check whether the interval goes on beyond the scale."""
        return row.high is not None and row.high > self.high * (1 + 1e-9)


def inside(share: float) -> float:
    """Limit a share to the ends of the scale."""
    return min(1.0, max(0.0, share))


def hundredths(share: float) -> str:
    """Write a share in per cent to two decimals, such as "73.2"."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A finding with its panels; a tuple holds panels side by side. `id`: [a-z0-9-]. `title`: the finding; `sub`: what, on
    what, unit and scale. `legend`: number of a colour and its meaning. `more`: what is not drawn, in words. `nav`: its name in
    the page's navigation, which has charts of one place and name once. `instead_of`: the id of the chart in whose place a
    reader may choose it; `choice`: its name there.
    """

    id: str
    title: str
    sub: str
    panels: tuple[tuple[Panel, ...], ...]
    legend: tuple[tuple[int, str], ...] = ()
    more: str = ""
    nav: str = ""
    instead_of: str = ""
    choice: str = ""

    @property
    def has_intervals(self) -> bool:
        """Check whether some row has an interval."""
        return any(row.low is not None for beside in self.panels for panel in beside for row in panel.rows)

    @property
    def has_values(self) -> bool:
        """Check whether some row has a value."""
        return any(row.value is not None for beside in self.panels for panel in beside for row in panel.rows)


def by_section(charts: Iterable[Chart]) -> list[tuple[Chart, ...]]:
    """Return each chart with those that a reader may choose in its place, in their order."""
    return [tuple(group) for group in group_by(charts, lambda chart: chart.instead_of or chart.id).values()]


ROOM = 1.25
"""An interval is cut off if it ends further beyond the longest bar than this factor."""


def scale_of(rows: Iterable[BarRow]) -> float:
    """Return where a scale from 0 ends that shows all values, and their intervals if they are not far beyond."""
    every = [row for row in rows if row.value is not None]
    longest = max((row.value or 0.0 for row in every), default=1.0) or 1.0
    return max([longest, *(min(row.high, ROOM * longest) for row in every if row.high is not None and math.isfinite(row.high))])
