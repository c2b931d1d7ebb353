"""Charts of a value along an axis: a line, its intervals as a band, and events. No script, and type never scales.
Places are in per cent of the drawing; lines.html.j2 writes it.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torchmatrix.analysis.history import Trend
from torchmatrix.analysis.rows import CellNight
from torchmatrix.core.formatting import is_known
from torchmatrix.facts.environments import differences_in_words
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import hundredths, inside, round_values


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A place on the line. `value`: None where the line has a gap. `note`: its tooltip."""

    x: float
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """An event. `kind`: "cross" on the axis, "level" (a line with `text`) or "changed" (a dotted line).
    `tone`: a colour of page.css, "bad", "good" or "soft".
    """

    x: float
    kind: str
    tone: str
    note: str
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineChart:
    """One line from `low` to `high`. `id`: [a-z0-9-]. `title`: the finding; `sub`: subject and unit. `ends`: the texts below
    the first and the last point. `table`: what is drawn, by the columns' names.
    """

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
        """Return a place along the line, from 0 to 100."""
        return _share(place, self.points[0].x, self.points[-1].x)

    def y(self, value: float) -> str:
        """Return a place from the top, from 0 to 100; the edge for what is beyond it."""
        return _share(value, self.high, self.low)

    def curve(self) -> str:
        """Return the line as a path; a single point between gaps is a dot."""
        parts = (points for drawn, points in groupby(self.points, lambda point: point.value is not None) if drawn)
        return "".join(f"M{'L'.join(self._at(point.x, point.value) for point in part)}h0" for part in parts)

    def band(self) -> str:
        """Return the intervals as a path."""
        paths = []
        for drawn, points in groupby(self.points, lambda point: point.low is not None and point.high is not None):
            part = list(points) if drawn else []
            edge = [self._at(point.x, point.high) for point in part] + [
                self._at(point.x, point.low) for point in reversed(part)
            ]
            paths += [f"M{'L'.join(edge)}z"] if part else []
        return "".join(paths)

    def _at(self, x: float, value: float | None) -> str:
        return f"{self.x(x)} {self.y(value or 0.0)}"

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Return round values on the scale."""
        return ticks(self.low, self.high)


def _share(value: float, first: float, last: float) -> str:
    return hundredths(inside((value - first) / (last - first) if last != first else 0.0))


def ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Return round values between two, with as many decimals as distinguish them."""
    values = round_values(low, high, 4)
    step = values[1] - values[0] if len(values) > 1 else high - low
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return tuple((value, words.spaced(value, decimals)) for value in values)


# Trends -> charts: the throughput of one cell over time, with the changes of its level and of its environment.

MOST_CHARTS = 40
MOST_RUNS = 1000
"""The most runs drawn for a cell: the newest, two per pixel."""
MOST_TIPS = 60
"""The most figures that show their numbers on hover, the newest; more would double the page. The table has them all."""
MOST_RULES = 20
"""The most changes of the environment that are drawn, the newest; a new image every night would hide the line."""
TEXT_WIDTH = 0.18
"""The width of a change of level's text on the narrowest drawing, as a share of it."""


def charts(trends: Sequence[Trend]) -> tuple[tuple[LineChart, ...], int]:
    """Draw each cell with at least two figures, the largest newest change of level first, and count the rows left out."""
    pairs = [(_newest_runs(trend), len(trend.rows)) for trend in trends]
    ranked = sorted(
        (pair for pair in pairs if len(pair[0].measured) > 1), key=lambda pair: _latest_change(pair[0]), reverse=True
    )
    drawn = tuple(_chart(number, trend) for number, (trend, _) in enumerate(ranked[:MOST_CHARTS], 1))
    return drawn, sum(rows for _, rows in ranked) - sum(len(chart.points) for chart in drawn)


def _newest_runs(trend: Trend) -> Trend:
    """Keep the newest runs that have a known time."""
    return trend.since([row for row in trend.rows if math.isfinite(row.started)][-MOST_RUNS:])


def _latest_change(trend: Trend) -> tuple[float, float]:
    """Return a sort key: the newest change of level; without one the last figure over the first."""
    newest = abs(math.log(trend.changes[-1].ratio.value)) if trend.changes else 0.0
    return newest, abs(trend.change)


def _chart(number: int, trend: Trend) -> LineChart:
    low, high = _domain(trend)
    return LineChart(
        id=f"trend-{number}-{words.slug(trend.cell)}",
        title=_title(trend),
        sub=" ".join(_sub(trend)),
        points=tuple(_points(trend)),
        low=low,
        high=high,
        ends=(_day(trend.rows[0].started), _day(trend.rows[-1].started)),
        marks=(*_environment(trend), *_crosses(trend), *_levels(trend)),
        table=tuple(_table(trend)),
    )


def _title(trend: Trend) -> str:
    if not trend.changes:
        return f"{trend.cell}: the same level in {len(trend.measured)} runs"
    newest = trend.changes[-1]
    return f"{trend.cell}: {words.change(newest.ratio.value)} since {_day(newest.started)}"


def _sub(trend: Trend) -> Iterator[str]:
    where = "the last run" if trend.rows[-1].n else "the last run with a figure"
    yield f"{trend.shown_unit} on {trend.host}: {words.short(trend.shown(trend.last))} in {where}."
    newest = trend.changes[-1] if trend.changes else None
    if newest and newest.environment and newest.environment_run == newest.run:
        yield f"With the new level: {differences_in_words(newest.environment, most=2)}."
    if len(_changed(trend)) > MOST_RULES:
        yield f"The newest {MOST_RULES} changes of the environment are drawn."


def _domain(trend: Trend) -> tuple[float, float]:
    """Return the range of the figures, with a margin; a wider band is cut off."""
    values = [trend.shown(row.value) for row in trend.measured]
    margin = max(0.15 * (max(values) - min(values)), 0.02 * max(values))
    return max(0.0, min(values) - margin), max(values) + margin


def _points(trend: Trend) -> Iterator[Point]:
    """Yield the runs; those without a figure are gaps in line and band."""
    tips = {row.run for row in trend.measured[-MOST_TIPS:]}
    for row in trend.rows:
        value, low, high = (trend.shown(figure) if is_known(figure) else None for figure in (row.value, row.low, row.high))
        note = f"{row.run}: {_figure(trend, row)}" if row.run in tips else ""
        yield Point(x=row.started, value=value, low=low, high=high, note=note)


def _figure(trend: Trend, row: CellNight) -> str:
    value, low, high = map(trend.shown, (row.value, row.low, row.high))
    return f"{words.with_unit(value, trend.shown_unit)} {words.rate_interval(value, low, high)}".strip()


def _crosses(trend: Trend) -> Iterator[Mark]:
    """Yield a mark for each run without a figure."""
    for row in trend.rows:
        if not row.n:
            tone = "soft" if row.outcome in ("skipped", "ok") else "bad"
            yield Mark(x=row.started, kind="cross", tone=tone, note=f"{row.run}: {_why(row)}")


def _levels(trend: Trend) -> Iterator[Mark]:
    """Yield the changes of level, newest first; the text of one near a newer one would cover it and is left out."""
    last, span = math.inf, trend.rows[-1].started - trend.rows[0].started
    for change in reversed(trend.changes):
        is_near = last - change.started < TEXT_WIDTH * span
        last = last if is_near else change.started
        value, low, high = change.ratio.value, change.ratio.low, change.ratio.high
        limits = f", 95 % interval {words.change(low)} to {words.change(high)}" if is_known(low) else ""
        note = f"{change.run}: {words.change(value)}{limits}; {change.cause}"
        tone = "bad" if trend.is_worse(value) else "good"
        yield Mark(x=change.started, kind="level", tone=tone, note=note, text="" if is_near else words.change(value))


def _environment(trend: Trend) -> Iterator[Mark]:
    for row in _changed(trend)[-MOST_RULES:]:
        note = f"{row.run}: {differences_in_words(row.environment)}"
        yield Mark(x=row.started, kind="changed", tone="soft", note=note)


def _changed(trend: Trend) -> list[CellNight]:
    return [row for row in trend.rows if row.environment]


def _table(trend: Trend) -> Iterator[dict[str, Any]]:
    levels = {change.run: words.change(change.ratio.value) for change in trend.changes}
    for row in trend.rows:
        yield {
            "run": row.run,
            trend.shown_unit: trend.shown(row.value),
            "95 % from": trend.shown(row.low),
            "95 % to": trend.shown(row.high),
            "launches": row.n,
            "new level": levels.get(row.run, ""),
            "what had changed, or why no launch was ok": differences_in_words(row.environment) if row.n else _why(row),
        }


def _why(row: CellNight) -> str:
    reason = "it has no such figure" if row.outcome == "ok" else row.reason
    return ": ".join(filter(None, (words.OUTCOMES.get(row.outcome, row.outcome), reason)))


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
