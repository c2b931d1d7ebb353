"""The explorer of step times: how much steps vary. A panel for each model, a bar from quantile to quantile for each cell."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import altair as alt

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.time_split import QUANTILES
from torchmatrix.ground.numbers import figure
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import INK
from torchmatrix.reporting.charts.drawing import BELOW, GREY, at, finish, on
from torchmatrix.reporting.explorers import phases
from torchmatrix.reporting.explorers.choosing import Choice, Dim, Question, Row, grouped, named, telling
from torchmatrix.reporting.explorers.data import Data
from torchmatrix.reporting.explorers.looks import colour_of
from torchmatrix.reporting.explorers.panels import Panel
from torchmatrix.reporting.explorers.saying import WHO, WIDTH, captions, context, name_of, places, who

QUESTION = Question(name="steps", panels=("model", "mode"), whole=phases.QUESTION.whole)
NOTE = DEFINITIONS["steps"]
_P1, _P50, _P99, _MAX = (list(QUANTILES).index(name) for name in ("p1", "p50", "p99", "max"))
_REACH = 2.0
"""The longest step is drawn only up to this many times the 99th percentile."""
_FEW = 100
"""Fewer steps have no 99th percentile."""


def panels(data: Data, choice: Choice) -> list[Panel]:
    """One for each model and mode."""
    return [_panel(data.dims, rows) for rows in grouped(choice.rows, QUESTION.panels)]


def _panel(dims: Sequence[Dim], rows: Sequence[Row]) -> Panel:
    settings = telling(dims, rows, (*WHO, *QUESTION.panels))
    ordered = [row for group in grouped(rows, [dim.name for dim in (*settings, *who(dims))]) for row in group]
    quantiles = [row["part"]["ms"] for row in ordered]
    top = min(max(ms[_MAX] for ms in quantiles), _REACH * max(ms[_P99] for ms in quantiles))
    least = min(ms[_P1] for ms in quantiles)
    lines, marks = captions([name_of(dims, row, settings) for row in ordered], [_said(row["part"]) for row in ordered])
    for mark, ms, row in zip(marks, quantiles, ordered, strict=True):
        cut = "›" if ms[_MAX] > top else ""
        last = {"last": min(ms[_MAX], top), "cut": cut, "colour": colour_of(dims, row)}
        lines[mark] |= dict(zip(QUANTILES, ms, strict=True)) | last
    params = {"low": max(0.0, least - (top - least) / 20), "high": top}
    name = words.slug(named(dims, "model").labels[rows[0]["model"]])
    return Panel(name=name, title=_title(dims, ordered, settings), rows={"rows": lines}, params=params)


def _said(part: Row) -> str:
    return f"{figure(part['ms'][_P50])} ms · {part['steps']} steps"


def _title(dims: Sequence[Dim], rows: Sequence[Row], settings: Sequence[Dim]) -> str:
    """How far slow steps are from the median; of few steps the slowest counts."""
    few = min(row["part"]["steps"] for row in rows) < _FEW

    def slow(row: Row) -> float:
        ms = row["part"]["ms"]
        return float(ms[_MAX if few else _P99] / ms[_P50])

    ranked = sorted(rows, key=slow)
    even, uneven = ranked[0], ranked[-1]
    model = named(dims, "model").labels[even["model"]]
    what = f"{'All' if few else '99 of 100'} steps of {model}{context(dims, rows)} on {places(dims, rows)}"
    start = f"{what} take at most {words.times(slow(even))} × their median"
    if even is uneven:
        return f"{start} of {figure(even['part']['ms'][_P50])} ms ({name_of(dims, even, settings)})"
    if words.times(slow(even)) == words.times(slow(uneven)):
        return start
    return f"{start} ({name_of(dims, even, settings)}) to {words.times(slow(uneven))} × ({name_of(dims, uneven, settings)})"


def skeleton(_data: Data) -> dict[str, Any]:
    """The specification without rows."""
    return _specification()


@cache
def _specification() -> dict[str, Any]:
    domain = [alt.ExprRef("low"), alt.ExprRef("high")]
    scale = alt.Scale(domain=domain, range=[6, WIDTH - 6], clamp=True, nice=False, zero=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title="milliseconds per step", axis=alt.Axis(tickCount=6, grid=False))

    tips = [alt.Tooltip(f"{name}:Q", format=".4g", title=f"{name} in ms") for name in QUANTILES]
    y = alt.Y("row:O", axis=None, scale=alt.Scale(padding=0))
    told = on("rows").encode(y=y, tooltip=alt.Tooltip("label:N", title="of"))
    base = on("rows").transform_filter("isValid(datum.p50)").encode(y=y, tooltip=[alt.Tooltip("label:N", title="of"), *tips])
    colour = alt.Color("colour:N", scale=None, legend=None)
    layers = [
        told.mark_text(align="left", yOffset=BELOW).encode(x=at(0), text=alt.Text("whole:N")),
        told.mark_text(align="left", yOffset=-BELOW).encode(x=at(0), text=alt.Text("short:N")),
        told.mark_text(align="right", yOffset=-BELOW, fontWeight="bold").encode(x=at(WIDTH), text=alt.Text("words:N")),
        base.mark_rule(strokeWidth=2, yOffset=BELOW, color=GREY).encode(x=x("p1"), x2=alt.X2("p99:Q")),
        base.mark_bar(height=7, yOffset=BELOW).encode(x=x("p5"), x2=alt.X2("p95:Q"), color=colour),
        base.mark_bar(height=13, yOffset=BELOW).encode(x=x("p25"), x2=alt.X2("p75:Q"), color=colour),
        base.mark_tick(thickness=2, size=17, yOffset=BELOW, color=INK).encode(x=x("p50")),
        base.mark_point(size=34, yOffset=BELOW, opacity=1, filled=False, strokeWidth=1.6).encode(x=x("last"), color=colour),
        base.mark_text(align="right", dx=-8, yOffset=BELOW).encode(x=x("last"), text=alt.Text("cut:N")),
    ]
    chart = alt.layer(*layers, width=WIDTH, height=alt.Step(31))
    return finish(chart.add_params(alt.param(name="low", value=0), alt.param(name="high", value=1)), rows=[])
