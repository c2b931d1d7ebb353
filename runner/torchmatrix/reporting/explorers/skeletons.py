"""What the explorers draw with: a Vega-Lite specification each, without rows and width, which the page's script adds."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import altair as alt

from torchmatrix.analysis.time_split import QUANTILES
from torchmatrix.analysis.traces import QUANTITIES
from torchmatrix.reporting.charts import INK, PALETTE
from torchmatrix.reporting.charts.drawing import GREY, LOSS, Drawing, at, bottom, finish, on, top

_STEP = 38
"""Height of a row, whose label and text stand above its marks; where that is too narrow, in two lines, 2 `lift` apart."""
_BELOW = alt.ExprRef("9 + lift")
"""How far the marks are below the middle of a row."""
_Y = alt.Y("row:O", axis=None, scale=alt.Scale(padding=0))
_COLOUR = alt.Color("colour:N", scale=None, legend=None)
_LIMITS = [alt.ExprRef("low"), alt.ExprRef("high")]
_FACTORS = "← slower · times as fast · faster →"
_TEXT = {"text": {"color": INK, "fontSize": 13}}


def of(name: str, parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The specification of an explorer; `parts`: the rows of parts.py that it is about."""
    if name == "trace":
        return _trace(frozenset(quantity for part in parts for device in part["devices"] for quantity in device))
    return _same(name)


@cache
def _same(name: str) -> dict[str, Any]:
    return _MADE[name]()


def _tips(**titles: str) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()]


def _valid(base: alt.Chart, name: str) -> alt.Chart:
    return base.transform_filter(f"isValid(datum.{name})")


def _finished(chart: Drawing, params: Mapping[str, Any], **rows: list[Any]) -> dict[str, Any]:
    spec = finish(chart, **rows)
    spec["config"] = {**spec["config"], **_TEXT}
    return spec | {"params": [{"name": name, "value": value} for name, value in params.items()]}


def _rows(base: alt.Chart, layers: list[alt.Chart], params: Mapping[str, Any], **rows: list[Any]) -> dict[str, Any]:
    """Marks in rows, each below its `label` at the left and its `words` at the right."""
    limit, lifted = alt.ExprRef("lift ? width : width - 12 - 7.4 * length(datum.words)"), alt.ExprRef("-9 - lift")
    label = base.mark_text(align="left", yOffset=lifted, limit=limit).encode(x=at(0), text=alt.Text("label:N"))
    said = base.mark_text(align="right", yOffset=alt.ExprRef("lift - 9"), fontWeight="bold")
    said = said.encode(x=_at_the_end(), text=alt.Text("words:N"))
    chart = alt.layer(label, said, *layers, height=alt.Step(_STEP))
    return _finished(chart, {**params, "lift": 0}, rows=[], **rows)


def _at_the_end() -> alt.XValue:
    return alt.XValue("width")  # type: ignore[no-untyped-call]


def _bars() -> dict[str, Any]:
    scale = alt.Scale(domain=[0, alt.ExprRef("most")], range=[0, alt.ExprRef("width - 12")], nice=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title=None, axis=None)

    base = on("rows").encode(y=_Y, tooltip=_tips(label="of", words="figure", launches="launches"))
    spans = _valid(base, "low")
    theirs = _valid(base, "theirs").encode(tooltip=_tips(source="published", label="of", words="figure"))
    layers = [
        _valid(base, "value").mark_bar(height=13, yOffset=_BELOW).encode(x=x("value"), color=_COLOUR),
        spans.mark_rule(strokeWidth=1.5, color=INK, yOffset=_BELOW).encode(x=x("low"), x2=alt.X2("high:Q")),
        *(spans.mark_tick(thickness=1.5, size=9, color=INK, yOffset=_BELOW).encode(x=x(end)) for end in ("low", "high")),
        theirs.mark_point(shape="diamond", size=70, filled=False, color=INK, strokeWidth=1.8, yOffset=_BELOW).encode(
            x=x("theirs")
        ),
        spans.mark_text(align="left", dx=2, yOffset=_BELOW).encode(x=x("high"), text=alt.Text("cut:N")),
    ]
    return _rows(base, layers, {"most": 1})


def _ratios(axis: str) -> dict[str, Any]:
    scale = alt.Scale(type="log", domain=_LIMITS, range=[6, alt.ExprRef("width - 6")], clamp=True, nice=False)
    marks = alt.Axis(values=alt.ExprRef("ticks"), format="~g", grid=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title=axis, axis=marks)

    base = on("rows").encode(y=_Y, tooltip=_tips(label="of", words="ratio", counts="from"))
    valued = _valid(base, "value")
    layers = [
        valued.mark_tick(color=GREY, thickness=2, size=14, yOffset=_BELOW).encode(x=x("one")),
        _valid(base, "low").mark_rule(strokeWidth=2.5, yOffset=_BELOW).encode(x=x("low"), x2=alt.X2("high:Q"), color=_COLOUR),
        valued.mark_point(filled=True, size=75, opacity=1, yOffset=_BELOW).encode(x=x("value"), color=_COLOUR),
    ]
    return _rows(base, layers, {"low": 0.9, "high": 1.1, "ticks": [1]})


def _losses() -> dict[str, Any]:
    scale = alt.Scale(domain=_LIMITS, range=[6, alt.ExprRef("width - 6")], clamp=True, nice=False, zero=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title="of perfect scaling", axis=alt.Axis(tickCount=5, grid=False))

    base = on("rows").encode(y=_Y, tooltip=_tips(label="cause", words="factor"))
    layers = [
        base.mark_tick(color=GREY, thickness=2, size=16, yOffset=_BELOW).encode(x=x("one")),
        _valid(base, "to").mark_bar(height=13, yOffset=_BELOW).encode(x=x("from"), x2=alt.X2("to:Q"), color=_COLOUR),
        _valid(base, "low").mark_rule(strokeWidth=1.5, color=INK, yOffset=_BELOW).encode(x=x("low"), x2=alt.X2("high:Q")),
        _valid(base, "end")
        .mark_point(shape="diamond", filled=True, size=120, color=INK, opacity=1, yOffset=_BELOW)
        .encode(x=x("end")),
    ]
    return _rows(base, layers, {"low": 0, "high": 1})


def _phases() -> dict[str, Any]:
    scale = alt.Scale(domain=[0, alt.ExprRef("most")], range=[0, alt.ExprRef("width - 6")], nice=False)
    x = alt.X("start:Q", scale=scale, title="seconds since the launch started", axis=alt.Axis(tickCount=6, grid=False))
    base = on("rows").encode(y=_Y, tooltip=_tips(label="of"))
    bars = on("parts").mark_bar(height=13, yOffset=_BELOW, stroke=INK, strokeWidth=0.4)
    bars = bars.encode(y=_Y, x=x, x2=alt.X2("stop:Q"), color=_COLOUR, tooltip=_tips(phase="phase", said="median"))
    return _rows(base, [bars], {"most": 1}, parts=[])


def _steps() -> dict[str, Any]:
    scale = alt.Scale(domain=_LIMITS, range=[6, alt.ExprRef("width - 6")], clamp=True, nice=False, zero=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title="milliseconds per step", axis=alt.Axis(tickCount=6, grid=False))

    tips = [alt.Tooltip(f"{name}:Q", format=".4g", title=f"{name} in ms") for name in QUANTILES]
    base = on("rows").encode(y=_Y, tooltip=[*_tips(label="of"), *tips])
    layers = [
        base.mark_rule(strokeWidth=2, yOffset=_BELOW, color=GREY).encode(x=x("p1"), x2=alt.X2("p99:Q")),
        base.mark_bar(height=7, yOffset=_BELOW).encode(x=x("p5"), x2=alt.X2("p95:Q"), color=_COLOUR),
        base.mark_bar(height=13, yOffset=_BELOW).encode(x=x("p25"), x2=alt.X2("p75:Q"), color=_COLOUR),
        base.mark_tick(thickness=2, size=17, yOffset=_BELOW, color=INK).encode(x=x("p50")),
        base.mark_point(size=34, yOffset=_BELOW, opacity=1, filled=False, strokeWidth=1.6).encode(x=x("last"), color=_COLOUR),
        base.mark_text(align="right", dx=-8, yOffset=_BELOW).encode(x=x("last"), text=alt.Text("cut:N")),
    ]
    return _rows(base, layers, {"low": 0, "high": 1})


def _lines() -> dict[str, Any]:
    scale = alt.Scale(domain=_LIMITS, clamp=True, nice=False, zero=False)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, 1], nice=False))

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5))

    own, form = alt.Color("colour:N", scale=None), alt.Shape("shape:N", scale=None)
    tips = _tips(series="of", N="devices", said="value", interval="95 % interval", bs="batch per device")
    base, points = on("rows").encode(x=x), on("rows").encode(x=x, tooltip=tips)
    layers = [
        on("ideal").mark_line(strokeDash=[5, 4], strokeWidth=1.2, color=GREY).encode(x=x, y=y("value"), detail="series:N"),
        base.mark_line(strokeWidth=1.6, opacity=0.7).encode(y=y("value"), color=own, detail="series:N"),
        _valid(points, "low").mark_rule(strokeWidth=1.8).encode(y=y("low"), y2=alt.Y2("high:Q"), color=own),
        points.mark_point(filled=True, size=65, opacity=1).encode(y=y("value"), shape=form, color=own),
        base.mark_text(dy=-12, fontWeight="bold", color=INK).encode(y=y("value"), text=alt.Text("wrong:N")),
        on("ticks").mark_text(dy=12).encode(x=x, y=bottom(), text=alt.Text("label:N")),
        on("one").mark_text(align="left", dy=-10).encode(x=at(0), y=top(), text=alt.Text("unit:N")),
        on("one").mark_text(align="right", dy=28, text="devices").encode(x=_at_the_end(), y=bottom()),
    ]
    chart = alt.layer(*layers, height=220)
    return _finished(chart, {"low": 0, "high": 1}, rows=[], ideal=[], ticks=[], one=[])


_MADE: Mapping[str, Callable[[], dict[str, Any]]] = {
    "throughput": _bars, "scaling": _lines, "speedup": lambda: _ratios(_FACTORS), "loss": _losses,
    "alone": lambda: _ratios("times the median device"), "phases": _phases, "steps": _steps,
}  # fmt: skip
_DASHES: tuple[list[int], ...] = ([], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [10, 4], [1, 3], [8, 2, 2, 2, 2, 2])
_FROM_ZERO = ("power_watts", "busy_cpus")


@cache
def _trace(told: frozenset[str]) -> dict[str, Any]:
    """A plot for each quantity that some device reports."""
    known = [name for name in QUANTITIES if name in told]
    plots = alt.vconcat(*(_plot(name, is_last=name == known[-1]) for name in known), spacing=8)
    return _finished(plots.resolve_scale(color="shared", strokeDash="shared"), {"last": 1}, rows=[], windows=[], slow=[])


def _plot(name: str, is_last: bool) -> Drawing:
    """One quantity over time, one line for each device."""
    axis = alt.Axis(tickCount=6, labels=is_last, ticks=is_last, grid=False)
    time = alt.Scale(domain=[0, alt.ExprRef("last")], nice=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=time, title="seconds since the launch started" if is_last else None, axis=axis)

    key = alt.Legend(title=None, orient="top", columns=4, symbolSize=80)
    colour = alt.Color("device:N", scale=alt.Scale(range=PALETTE), legend=key)
    dash = alt.StrokeDash("device:N", scale=alt.Scale(range=list(_DASHES)), legend=key)
    y = alt.Y(f"{name}:Q", title=QUANTITIES[name], axis=alt.Axis(tickCount=4), scale=alt.Scale(zero=name in _FROM_ZERO))
    slowed = on("slow").mark_rect(color=LOSS, opacity=0.35, stroke=LOSS)
    layers = [
        on("windows").mark_rect(color=GREY, opacity=0.22).encode(x=x("start"), x2=alt.X2("stop:Q")),
        slowed.encode(x=x("start"), x2=alt.X2("stop:Q"), tooltip=alt.Tooltip("reason:N")),
        on("rows").mark_line(strokeWidth=1.8, point={"size": 12}).encode(x=x("seconds"), y=y, color=colour, strokeDash=dash),
    ]
    return alt.layer(*layers, height=95)
