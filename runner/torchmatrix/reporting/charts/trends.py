"""Trends -> charts: the throughput of one cell over time, with the changes of its level and of its environment."""

import math
import time
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.history import Change, Row, Trend
from torchmatrix.facts.environments import differences_in_words
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import PALETTE, Chart, Charts
from torchmatrix.reporting.charts.drawing import GAIN, GREY, LOSS, WIDTH, at, finish, on, top

MOST_CHARTS = 40
MOST_RUNS = 1000
"""The most runs drawn for a cell: the newest, two per pixel."""
MOST_TIPS = 60
"""The most figures that show their numbers on hover, the newest; more would double the page. The table has them all."""
MOST_RULES = 20
"""The most changes of the environment that are drawn, the newest; a new image every night would hide the line."""
_BAD = "#b42318"
_LINE = PALETTE[0]


def charts(trends: Sequence[Trend]) -> Charts:
    """One chart for each cell with at least two figures, the largest newest change of level first."""
    pairs = [(_newest(trend), len(trend.rows)) for trend in trends]
    ranked = sorted((pair for pair in pairs if len(pair[0].measured) > 1), key=lambda pair: _weight(pair[0]), reverse=True)
    found = [_chart(number, trend) for number, (trend, _) in enumerate(ranked[:MOST_CHARTS], 1)]
    left_out = sum(rows for _, rows in ranked) - sum(len(chart.table) for chart in found)
    return Charts(charts=tuple(found), left_out=left_out)


def _newest(trend: Trend) -> Trend:
    """Its newest runs that have a known time."""
    return trend.since([row for row in trend.rows if math.isfinite(row["started"])][-MOST_RUNS:])


def _weight(trend: Trend) -> tuple[float, float]:
    """By the newest change of level; without one by the last figure over the first."""
    newest = abs(math.log(trend.changes[-1].ratio.value)) if trend.changes else 0.0
    return newest, abs(trend.change)


def _chart(number: int, trend: Trend) -> Chart:
    said = [f"The newest {MOST_RULES} changes of the environment are drawn."] if len(_changed(trend)) > MOST_RULES else []
    return Chart(
        id=f"trend-{number}-{words.slug(trend.cell)}",
        section="trend",
        title=_title(trend),
        note=" ".join([DEFINITIONS["trend"], DEFINITIONS["level"], *said]),
        spec=_spec(trend),
        table=_table(trend),
    )


def _title(trend: Trend) -> str:
    """The answer as a sentence."""
    now = f"{words.figure(trend.last)} {trend.unit}/s"
    if not trend.changes:
        return f"{trend.cell} holds its level in {len(trend.measured)} runs: {now} in the last"
    newest = trend.changes[-1]
    environment = differences_in_words(newest.environment, most=2)
    cause = f", when {environment}" if environment and newest.environment_run == newest.run else ""
    return f"{trend.cell} runs at {_signed(newest)} since {_day(newest.started)}{cause}: {now} in the last"


def _spec(trend: Trend) -> dict[str, Any]:
    low, high = _domain(trend)
    rows = {
        "points": _points(trend, low, high),
        "touched": _touched(trend),
        "crosses": _crosses(trend, low),
        "levels": _levels(trend.changes),
        "environment": _environment(trend),
        "one": [{"unit": f"{trend.unit}/s"}],
    }
    scale = alt.Scale(domain=[low, high], zero=False, nice=False)
    x = alt.X("time:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(grid=False, tickCount=6, labelOverlap=True))

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, scale=scale, axis=alt.Axis(tickCount=4))

    line, own = on("points").encode(x=x), alt.Color("color:N", scale=None)
    levels = on("levels").encode(x=x, color=own, tooltip=_tips("run", "change", "interval", "environment"))
    layers = {
        "environment": [
            on("environment")
            .mark_rule(strokeDash=[2, 3], color=GREY, strokeWidth=2)
            .encode(x=x, tooltip=_tips("run", "changed"))
        ],
        "points": [
            line.mark_area(opacity=0.25, color=_LINE).encode(y=y("low"), y2=alt.Y2("high:Q")),
            line.mark_line(strokeWidth=1.5, color=_LINE, strokeCap="round", strokeJoin="round").encode(y=y("value")),
        ],
        "touched": [
            on("touched")
            .mark_point(opacity=0, size=40, filled=True)
            .encode(x=x, y=y("value"), tooltip=_tips("run", "said", "interval"))
        ],
        "crosses": [
            on("crosses")
            .mark_point(shape="cross", filled=True, size=50, angle=45, opacity=1)
            .encode(x=x, y=y("value"), color=own, tooltip=_tips("run", "outcome", "reason"))
        ],
        "levels": [
            levels.mark_rule(strokeWidth=2),
            on("levels")
            .mark_text(align="left", dx=4, dy=-6, fontWeight="bold")
            .encode(x=x, y=top(), text=alt.Text("change:N")),
        ],
        "one": [on("one").mark_text(align="left", dy=-10, fontSize=11).encode(x=at(-44), y=top(), text=alt.Text("unit:N"))],
    }
    drawn = [layer for name, some in layers.items() if rows[name] for layer in some]
    return finish(alt.layer(*drawn, width=WIDTH - 52, height=150), **rows)


_TITLES = {"said": "throughput", "interval": "95 % interval"}


def _tips(*names: str) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{name}:N", title=_TITLES.get(name, name)) for name in names]


def _domain(trend: Trend) -> tuple[float, float]:
    """The range of the figures, with a margin; a wider band is cut off."""
    values = [row["throughput"] for row in trend.measured]
    room = max(0.15 * (max(values) - min(values)), 0.02 * max(values))
    return max(0.0, min(values) - room), max(values) + room


def _points(trend: Trend, bottom: float, top: float) -> list[dict[str, Any]]:
    """Runs without a figure are null, so that line and band have a gap there."""
    return [
        {
            "time": _milliseconds(row["started"]),
            "value": row["throughput"],
            "low": max(row["low"], bottom) if row["high"] > bottom else math.nan,
            "high": min(row["high"], top) if row["low"] < top else math.nan,
        }
        for row in trend.rows
    ]


def _touched(trend: Trend) -> list[dict[str, Any]]:
    """The newest figures as invisible points that show their numbers on hover."""
    return [
        {
            "time": _milliseconds(row["started"]),
            "run": row["run"],
            "value": row["throughput"],
            "said": f"{words.figure(row['throughput'])} {trend.unit}/s",
            "interval": _interval(row),
        }
        for row in trend.measured[-MOST_TIPS:]
    ]


def _crosses(trend: Trend, low: float) -> list[dict[str, Any]]:
    """The runs without a figure."""
    return [
        {
            "time": _milliseconds(row["started"]),
            "value": low,
            "run": row["run"],
            "outcome": row["outcome"],
            "reason": row["reason"] or "n/a",
            "color": GREY if row["outcome"] == "skipped" else _BAD,
        }
        for row in trend.rows
        if not row["n"]
    ]


def _levels(changes: Sequence[Change]) -> list[dict[str, Any]]:
    return [
        {
            "time": _milliseconds(change.started),
            "run": change.run,
            "change": _signed(change),
            "interval": words.span(change.ratio.low, change.ratio.high),
            "environment": change.cause,
            "color": LOSS if change.ratio.value < 1 else GAIN,
        }
        for change in changes
    ]


def _environment(trend: Trend) -> list[dict[str, Any]]:
    return [
        {"time": _milliseconds(row["started"]), "run": row["run"], "changed": differences_in_words(row["environment"])}
        for row in _changed(trend)[-MOST_RULES:]
    ]


def _changed(trend: Trend) -> list[Row]:
    return [row for row in trend.rows if row["environment"]]


def _table(trend: Trend) -> pd.DataFrame:
    levels = {change.run: change for change in trend.changes}
    rows = [
        (
            row["run"],
            row["throughput"],
            row["low"],
            row["high"],
            row["n"],
            _signed(levels[row["run"]]) if row["run"] in levels else "",
            differences_in_words(row["environment"]) if row["n"] else f"{row['outcome']}: {row['reason']}",
        )
        for row in trend.rows
    ]
    names = [
        "run",
        f"{trend.unit}/s",
        "95 % from",
        "95 % to",
        "launches",
        "new level",
        "what had changed, or why no launch was ok",
    ]
    return pd.DataFrame(rows, columns=names)


def _interval(row: Row) -> str:
    return "n/a" if math.isnan(row["low"]) else f"{words.figure(row['low'])} to {words.figure(row['high'])}"


def _signed(change: Change) -> str:
    return f"{100 * (change.ratio.value - 1):+.1f} %".replace("-", "−")


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
