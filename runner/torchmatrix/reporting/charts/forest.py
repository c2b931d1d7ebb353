"""Ratios as dots with intervals around 1, on a logarithmic scale: twice as fast is as far from 1 as half as fast."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from torchmatrix.reporting.charts import INK
from torchmatrix.reporting.charts.drawing import (
    BELOW,
    GREY,
    ROW,
    WIDTH,
    caption,
    captions,
    colour,
    finish,
    on,
    row,
    shape,
    ticks,
)

_LEAST = 1.05
"""The scale reaches at least this far to both sides of 1."""
_ROOM = 1.5
"""An interval is cut off if it ends further beyond all dots than this factor."""
AXIS = "← slower · times as fast · faster →"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One ratio. `words`: text beside its label, or the reason if it has no value. `stack`: gives colour and shape; None: a
    diamond. `counts`: what it was made from."""

    label: str
    words: str
    value: float
    low: float
    high: float
    stack: str | None
    counts: str = ""


def forest(lines: Sequence[Line], stacks: Sequence[str], axis: str = AXIS) -> dict[str, Any]:
    """The specification: one row for each of `lines`, means as diamonds."""
    rows = [_row(number, line) for number, line in enumerate(lines)]
    low, high = _domain(lines)
    scale = alt.Scale(type="log", domain=[low, high], range=[6, WIDTH - 6], clamp=True, nice=False)
    marks = alt.Axis(values=ticks(low, high), format="~g", grid=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title=axis, axis=marks)

    names = [line.stack for line in lines if line.stack is not None]
    color = alt.Color("stack:N", scale=colour(stacks, names), legend=None)
    form = alt.Shape("stack:N", scale=shape(stacks, names), legend=None)
    tips = [alt.Tooltip("label:N", title="of"), alt.Tooltip("words:N", title="ratio"), alt.Tooltip("counts:N", title="from")]
    base = on("rows").encode(y=row(len(rows)), tooltip=tips)
    pairs = base.transform_filter("isValid(datum.stack)").encode(color=color)
    means = base.transform_filter("!isValid(datum.stack)")
    ratios = base.transform_filter("isValid(datum.value)")
    layers = [
        ratios.mark_tick(color=GREY, thickness=2, size=14, yOffset=BELOW).encode(x=x("one")),
        pairs.mark_rule(strokeWidth=2.5, yOffset=BELOW).encode(x=x("low"), x2=alt.X2("high:Q")),
        pairs.mark_point(filled=True, size=75, opacity=1, yOffset=BELOW).encode(x=x("value"), shape=form),
        means.mark_rule(color=INK, strokeWidth=2, yOffset=BELOW).encode(x=x("low"), x2=alt.X2("high:Q")),
        means.mark_point(color=INK, filled=True, size=150, shape="diamond", opacity=1, yOffset=BELOW).encode(x=x("value")),
    ]
    chart = alt.layer(*captions(rows), *layers, width=WIDTH, height=alt.Step(ROW))
    return finish(chart, rows=rows)


def _row(number: int, line: Line) -> dict[str, Any]:
    figures = {"one": 1, "value": line.value, "low": line.low, "high": line.high}
    return caption(number, line.label, line.words) | figures | {"stack": line.stack, "counts": line.counts}


def _domain(lines: Sequence[Line]) -> tuple[float, float]:
    values = [line.value for line in lines if not math.isnan(line.value)]
    least, most = min([1 / _LEAST, *values]), max([_LEAST, *values])
    lows = [line.low for line in lines if line.low >= least / _ROOM]
    highs = [line.high for line in lines if line.high <= most * _ROOM]
    return min([least, *lows]) / 1.01, max([most, *highs]) * 1.01
