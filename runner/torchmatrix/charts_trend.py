"""One cell's runs -> a chart of its throughput over time."""

import math
from collections.abc import Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

from torchmatrix.charts import INK, WIDTH, svg
from torchmatrix.trends import Change, Row, Trend

HEIGHT = 150
MOST_RUNS = 2000
"""The newest, about five to a pixel; all of them stand in the tables."""
MOST_RULES = 20
"""Changes of the environment that are drawn, the newest; where every night has a new image they would hide the line."""
_LINE, _DOWN, _UP, _QUIET, _BAD = "#0072B2", "#D55E00", "#009E73", "#8c8c8c", "#b42318"


def trend_svg(trend: Trend) -> str | None:
    """The chart of a trend's newest runs as an SVG element; None where fewer than two of them were measured."""
    rows = [row for row in trend.rows[-MOST_RUNS:] if math.isfinite(row["started"])]
    since = rows[0]["started"] if rows else math.inf
    newest = replace(trend, rows=tuple(rows), changes=tuple(c for c in trend.changes if c.started >= since))
    return svg(trend_chart(newest)) if len(newest.measured) > 1 else None


def trend_chart(trend: Trend) -> alt.LayerChart:
    """Throughput over time: a line through the measured runs with its 95 % band; the axis begins where the figures do.

    On the axis a cross for each run without a figure (grey: skipped); a vertical line where the level changes, with the
    percentage; dotted ones where the environment did. Every run has a time, and one at least a figure.
    """
    bottom, top = _domain(trend)
    x = alt.X("time:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(grid=False, tickCount=6, labelOverlap=True))
    unit = trend.unit or "items"
    scale = alt.Scale(domain=[bottom, top], zero=False, nice=False)
    y = alt.Y("throughput:Q", title=f"{unit} per second", scale=scale, axis=alt.Axis(tickCount=4))
    line = alt.Chart(_points(trend, bottom, top))
    layers = [
        *_environment_rules(trend, x),
        line.mark_area(opacity=0.25, color=_LINE).encode(x=x, y=alt.Y("low:Q", title=None, scale=scale), y2="high:Q"),
        line.mark_line(strokeWidth=1.5, color=_LINE, strokeCap="round", strokeJoin="round").encode(x=x, y=y),
        *_crosses(trend, x, bottom, scale),
        *_level_rules(trend.changes, x),
    ]
    return alt.LayerChart(layer=layers).properties(width=WIDTH, height=HEIGHT)


def _domain(trend: Trend) -> tuple[float, float]:
    """Of the figures themselves, with room; a band that is wider is cut there."""
    values = [row["throughput"] for row in trend.measured]
    room = max(0.15 * (max(values) - min(values)), 0.02 * max(values))
    return max(0.0, min(values) - room), max(values) + room


def _points(trend: Trend, bottom: float, top: float) -> pd.DataFrame:
    """Runs without a figure are NaN, so that line and band have a gap there."""
    rows = [
        {
            "time": _milliseconds(row),
            "throughput": row["throughput"],
            "low": max(row["low"], bottom) if row["high"] > bottom else math.nan,
            "high": min(row["high"], top) if row["low"] < top else math.nan,
        }
        for row in trend.rows
    ]
    return pd.DataFrame(rows)


def _crosses(trend: Trend, x: alt.X, bottom: float, scale: alt.Scale) -> list[alt.Chart]:
    missing = [row for row in trend.rows if not row["throughput"] > 0]
    if not missing:
        return []
    kinds = ["skipped" if row["outcome"] == "skipped" else "not ok" for row in missing]
    data = pd.DataFrame({"time": map(_milliseconds, missing), "y": [bottom] * len(missing), "kind": kinds})
    color = alt.Color("kind:N", legend=None, scale=alt.Scale(domain=["not ok", "skipped"], range=[_BAD, _QUIET]))
    marks = alt.Chart(data).mark_point(shape="cross", filled=True, size=45, angle=45, opacity=1)
    return [marks.encode(x=x, y=alt.Y("y:Q", title=None, scale=scale), color=color)]


def _level_rules(changes: Sequence[Change], x: alt.X) -> list[alt.Chart]:
    if not changes:
        return []
    rows = [
        {
            "time": 1000 * change.started,
            "word": f"{100 * (change.ratio.value - 1):+.1f} %".replace("-", "−"),
            "color": _DOWN if change.ratio.value < 1 else _UP,
        }
        for change in changes
    ]
    base = alt.Chart(pd.DataFrame(rows))
    rules = base.mark_rule(strokeWidth=1.5).encode(x=x, color=alt.Color("color:N", scale=None))
    words = base.mark_text(align="left", dx=4, dy=-4, fontWeight="bold", color=INK).encode(x=x, y=alt.value(0), text="word:N")
    return [rules, words]


def _environment_rules(trend: Trend, x: alt.X) -> list[alt.Chart]:
    changed = [row for row in trend.rows if row["environment"]][-MOST_RULES:]
    if not changed:
        return []
    data = pd.DataFrame({"time": map(_milliseconds, changed)})
    return [alt.Chart(data).mark_rule(strokeDash=[2, 3], color=_QUIET).encode(x=x)]


def _milliseconds(row: Row) -> float:
    return 1000 * float(row["started"])
