"""The scaling explorer: how well it scales. A panel for each model, a line over the number of devices for each stack."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import altair as alt

from torchmatrix.ground.numbers import figure
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import INK
from torchmatrix.reporting.charts.drawing import GREY, at, bottom, finish, on, top
from torchmatrix.reporting.explorers.choosing import Choice, Dim, Question, Row, grouped, telling
from torchmatrix.reporting.explorers.data import Data
from torchmatrix.reporting.explorers.looks import colour_of, shape_of
from torchmatrix.reporting.explorers.panels import Panel
from torchmatrix.reporting.explorers.saying import WHO, WIDTH, context, line, name_of, who

METRICS = (("E", "efficiency E"), ("s", "scale factor s"), ("S", "speed-up S"), ("throughput", "throughput"))
_ROOM = 1.3
"""An interval is cut off if it ends further above all lines than this factor."""
_LEFT = 40
_PLOT, _HEIGHT = WIDTH - _LEFT, 200
_NAME = 24
"""Letters of a name in a column of the legend."""
_BAND = 0.5
"""The share of the room for one number of devices in which lines stand side by side."""


def question(dims: Sequence[Dim]) -> Question:
    """Of several GPU models the lines are theirs, with one stack at a time."""
    several = any(dim.name == "gpu" and len(dim.values) > 1 for dim in dims)
    whole = {"gpu": 99, "machine": 99, "model": 6} | ({} if several else {"stack": 99})
    return Question(name="scaling", panels=("model", "mode"), whole=whole, free=("devices", "set"))


def rows_of(rows: Sequence[Row]) -> list[Row]:
    """The cells of which one of several devices has a speed-up."""
    return [row for row in rows if row["scales"]]


def panels(data: Data, asked: Question, choice: Choice, metric: str) -> list[Panel]:
    """One for each model and mode."""
    found = []
    for rows in grouped(choice.rows, asked.panels):
        settings = telling(data.dims, rows, (*WHO, *asked.panels, "devices", "set"))
        series = grouped(rows, [dim.name for dim in (*settings, *who(data.dims))])
        if any(row["S"] is not None for row in rows):
            found.append(_panel(data.dims, metric, [sorted(some, key=lambda row: row["N"]) for some in series], settings))
    return found


def _panel(dims: Sequence[Dim], metric: str, series: Sequence[Sequence[Row]], settings: Sequence[Dim]) -> Panel:
    (model,) = (dim for dim in dims if dim.name == "model")
    rows, params = _drawn(dims, metric, series, settings)
    name = words.slug(model.labels[series[0][0]["model"]])
    return Panel(name=name, title=_title(dims, series, settings), rows=rows, params=params)


def _title(dims: Sequence[Dim], series: Sequence[Sequence[Row]], settings: Sequence[Dim]) -> str:
    """What the most devices give over one; of several lines the lowest and the highest."""
    rows = [row for some in series for row in some if row["S"] is not None]
    most = max(row["N"] for row in rows)
    ranked = sorted((row for row in rows if row["N"] == most), key=lambda row: row["S"])
    model, mode = (dim.labels[rows[0][dim.name]] for dim in dims if dim.name in ("model", "mode"))
    wrong = [row for row in rows if row["impossible"]]
    what = context(dims, rows)
    if wrong:
        worst = max(wrong, key=lambda row: row["S"] / row["N"])
        place = f"{model}{what} on {_devices(dims, worst)} with {name_of(dims, worst, settings)}"
        return f"E = {words.times(worst['S'] / worst['N'])} of {place} is impossible: above 1.02; look for a wrong baseline"
    least, best = ranked[0], ranked[-1]
    begin, end = f"{_devices(dims, best)} {words.verb(mode, many=True)} {model}", f"as fast as one{what}"
    rest = f"{factors(least, best)}{tested(ranked)}"
    if least is best:
        return f"{begin} {gain(best)} {end}, {name_of(dims, best, settings)} {rest}"
    if None not in (least["S_high"], best["S_low"]) and least["S_high"] >= best["S_low"]:
        alike = f"{len(ranked)} {_many(dims, settings)} alike within their intervals"
        return f"{begin} {words.span(least['S'], best['S'])} × {end}, {alike} {rest}"
    ends = f"{gain(least)} ({name_of(dims, least, settings)}) to {gain(best)} ({name_of(dims, best, settings)})"
    return f"{begin} {ends} {end} {rest}"


def _many(dims: Sequence[Dim], settings: Sequence[Dim]) -> str:
    names = {dim.name for dim in who(dims)} | {dim.name for dim in settings}
    return "stacks" if names == {"stack"} else "lines"


def _devices(dims: Sequence[Dim], row: Row) -> str:
    (count,) = (dim.labels[row["devices"]] for dim in dims if dim.name == "devices")
    return str(count)


def gain(row: Row) -> str:
    """A speed-up with its interval: 7.52 [7.50 to 7.54] ×."""
    limits = "" if row["S_low"] is None else f" [{words.span(row['S_low'], row['S_high'])}]"
    return f"{words.times(row['S'])}{limits} ×"


def tested(rows: Sequence[Row]) -> str:
    """What a sentence on speed-ups ends with where one has no interval."""
    return ", too few launches: not tested" if any(row["S_low"] is None for row in rows) else ""


def factors(least: Row, best: Row) -> str:
    """Such as "(E = 0.93, s = 0.92)"."""
    efficiency = words.span(least["S"] / least["N"], best["S"] / best["N"])
    return f"(E = {efficiency}, s = {words.span((least['S'] - 1) / (least['N'] - 1), (best['S'] - 1) / (best['N'] - 1))})"


def value_of(metric: str, row: Row) -> tuple[float, float | None, float | None] | None:
    """The metric of a cell with its limits; None if it has none."""
    if metric == "throughput":
        return (row["rate"], row["low"], row["high"]) if row["n"] else None
    if row["S"] is None:
        return None
    n = row["N"]
    a, b = {"S": (1.0, 0.0), "E": (1 / n, 0.0), "s": (1 / (n - 1), -1 / (n - 1))}[metric]
    low, high = (None if row[end] is None else a * row[end] + b for end in ("S_low", "S_high"))
    return a * row["S"] + b, low, high


def _drawn(
    dims: Sequence[Dim], metric: str, series: Sequence[Sequence[Row]], settings: Sequence[Dim]
) -> tuple[dict[str, list[Row]], dict[str, Any]]:
    """The data sets and the parameters of the specification. x is from 0 to 1."""
    counts = sorted({row["N"] for some in series for row in some if value_of(metric, row)})
    is_linear = metric in ("S", "throughput")

    def x(n: int, place: int) -> float:
        side = _BAND * ((place + 0.5) / len(series) - 0.5)
        return n / counts[-1] * 0.96 if is_linear else (counts.index(n) + 0.5 + side) / len(counts)

    points = [
        _point(dims, metric, row, place, x(row["N"], place), name_of(dims, row, settings))
        for place, some in enumerate(series) for row in some if value_of(metric, row)
    ]  # fmt: skip
    ideal = _ideal(metric, series, counts, is_linear)
    low, high = _domain([point["value"] for point in points] + [end["value"] for end in ideal], points, is_linear)
    for point in points:
        point |= {end: min(max(point[end], low), high) for end in ("low", "high") if point.get(end) is not None}
    labels = [{"x": x(n, 0) if is_linear else (place + 0.5) / len(counts), "label": str(n)} for place, n in enumerate(counts)]
    unit = f"{series[0][0]['unit']}/s" if metric == "throughput" else dict(METRICS)[metric]
    drawn = {
        "rows": points,
        "ideal": ideal,
        "ticks": labels,
        "one": [{"unit": unit}],
        "legend": _legend(dims, series, settings),
    }
    return drawn, {"low": low, "high": high}


def _legend(dims: Sequence[Dim], series: Sequence[Sequence[Row]], settings: Sequence[Dim]) -> list[Row]:
    """The lines' names below the chart, in two columns where they fit; none for a single line, because the title has it."""
    names = [name_of(dims, some[0], settings) for some in series]
    columns = 2 if max(map(len, names)) <= _NAME else 1
    looks = [{"colour": colour_of(dims, some[0]), "shape": shape_of(place)} for place, some in enumerate(series)]
    return [
        look | {"label": line(name), "px": place % columns * (_PLOT // 2) - 20, "py": _HEIGHT + 46 + 16 * (place // columns)}
        for place, (name, look) in enumerate(zip(names, looks, strict=True))
        if names[1:]
    ]


def _point(dims: Sequence[Dim], metric: str, row: Row, place: int, x: float, name: str) -> Row:
    found = value_of(metric, row)
    assert found is not None
    value, low, high = found
    write = figure if metric == "throughput" else words.times
    limits = "n/a" if low is None or high is None else f"{write(low)} to {write(high)}"
    ends = {} if low is None or high is None else {"low": low, "high": high}
    return {
        "x": x, "value": value, **ends, "series": name, "colour": colour_of(dims, row), "shape": shape_of(place),
        "N": row["N"], "said": write(value), "interval": limits, "bs": str(row["bs"]),
        "wrong": "impossible" if row["impossible"] else "",
    }  # fmt: skip


def _ideal(metric: str, series: Sequence[Sequence[Row]], counts: Sequence[int], is_linear: bool) -> list[Row]:
    """Dashed: what perfect scaling would give."""
    if not is_linear:
        return [{"x": x, "value": 1.0, "series": "", "colour": GREY} for x in (0.0, 1.0)]
    ends = (1 / counts[-1] * 0.96, 0.96)
    if metric == "S":
        return [{"x": x, "value": x / 0.96 * counts[-1], "series": "", "colour": GREY} for x in ends]
    found = []
    for place, some in enumerate(series):
        known = next((row for row in some if row["S"]), None)
        if known:
            one = known["rate"] / known["S"]
            found += [{"x": x, "value": x / 0.96 * counts[-1] * one, "series": str(place), "colour": GREY} for x in ends]
    return found


def _domain(values: Sequence[float], points: Sequence[Row], is_linear: bool) -> tuple[float, float]:
    if is_linear:
        most = max(values)
        return 0.0, 1.02 * max(most, min(max((p["high"] for p in points if "high" in p), default=most), _ROOM * most))
    room = 0.02 + (max(values) - min(values)) / 4
    return max(0.0, min(values) - room), max(1.02, max(values) + room / 2)


@cache
def skeleton() -> dict[str, Any]:
    """The specification without rows."""
    scale = alt.Scale(domain=[alt.ExprRef("low"), alt.ExprRef("high")], clamp=True, nice=False, zero=False)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, 1], nice=False, range=[0, _PLOT]))

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5))

    own, form = alt.Color("colour:N", scale=None), alt.Shape("shape:N", scale=None)
    key = on("legend").encode(x=alt.X("px:Q", scale=None), y=alt.Y("py:Q", scale=None))
    told = {"series": "of", "N": "devices", "said": "value", "interval": "95 % interval", "bs": "batch per device"}
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in told.items()]
    base = on("rows").encode(x=x, tooltip=tips)
    layers = [
        on("ideal").mark_line(strokeDash=[5, 4], strokeWidth=1.2).encode(x=x, y=y("value"), detail="series:N", color=own),
        on("rows").mark_line(strokeWidth=1.6, opacity=0.7).encode(x=x, y=y("value"), color=own, detail="series:N"),
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.8)
        .encode(y=y("low"), y2=alt.Y2("high:Q"), color=own),
        base.mark_point(filled=True, size=65, opacity=1).encode(y=y("value"), shape=form, color=own),
        on("rows").mark_text(dy=-12, fontWeight="bold", color=INK).encode(x=x, y=y("value"), text=alt.Text("wrong:N")),
        on("ticks").mark_text(dy=12, fontSize=11).encode(x=x, y=bottom(), text=alt.Text("label:N")),
        on("one").mark_text(align="left", dy=-10, fontSize=11).encode(x=at(-_LEFT + 6), y=top(), text=alt.Text("unit:N")),
        key.mark_point(filled=True, size=65, opacity=1).encode(color=own, shape=form),
        key.mark_text(align="left", dx=8, fontSize=11).encode(text=alt.Text("label:N")),
        on("one").mark_text(dy=27, fontSize=11, text="devices (N)").encode(x=at(_PLOT / 2), y=bottom()),
    ]
    chart = alt.layer(*layers, width=_PLOT, height=_HEIGHT).add_params(
        alt.param(name="low", value=0), alt.param(name="high", value=1)
    )
    return finish(chart, rows=[], ideal=[], ticks=[], one=[], legend=[])
