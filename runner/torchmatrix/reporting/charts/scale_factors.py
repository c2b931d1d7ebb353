"""Scaling tables -> charts: throughput, efficiency and scale factor over N."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.reporting.charts import Chart, Charts, losses, words
from torchmatrix.reporting.charts.drawing import GREY, WIDTH, Drawing, at, colour, finish, legend, on, shape, top

MOST_WORKLOADS = 4
"""The most workloads with charts, two each."""
_ROOM = 1.3
"""An interval is cut off if it ends further above all lines than this factor."""
_TITLES = {"E": "efficiency E", "s": "scale factor s"}
_PLOT = WIDTH - 48
"""Pixels beside the axis."""


def charts(
    cells: pd.DataFrame, scales: pd.DataFrame, decomposition: pd.DataFrame, devices: pd.DataFrame, stacks: Sequence[str]
) -> Charts:
    """Two charts over N for each workload, a waterfall for each explained cell, a strip for devices measured alone.

    `cells` as of tables.cells_table, the others of the module scaling, `stacks` all stacks in their order.
    """
    workloads = [rows for _, rows in scales.dropna(subset=["S"]).groupby("workload", sort=False)]
    over_n = [
        chart
        for number, rows in enumerate(workloads[:MOST_WORKLOADS], 1)
        for chart in (_throughput(number, rows, cells, stacks), _efficiency(number, rows, stacks))
    ]
    causes = losses.charts(decomposition, devices, stacks)
    left_out = sum(map(len, workloads[MOST_WORKLOADS:])) + causes.left_out
    return Charts(charts=(*over_n, *causes.charts), left_out=left_out)


def _throughput(number: int, scales: pd.DataFrame, cells: pd.DataFrame, stacks: Sequence[str]) -> Chart:
    ids = pd.concat([scales["baseline"], scales["cell"]]).drop_duplicates()
    points = cells[cells["cell"].isin(ids)].sort_values("count", kind="stable")
    unit = points["unit"].iloc[0]
    columns = {"stack": "stack", "devices": "devices", "count": "N", "batch": "batch per device", "throughput": f"{unit}/s",
               "low": "95 % from", "high": "95 % to"}  # fmt: skip
    return Chart(
        id=f"scaling-{number}-throughput-{words.slug(scales['workload'].iloc[0])}",
        section="scaling",
        title=_throughput_title(scales, points),
        note=f"Dashed: N times the throughput of one device. {DEFINITIONS['S']} {DEFINITIONS['interval']}",
        spec=_throughput_spec(points, f"{unit}/s", stacks),
        table=points[list(columns)].rename(columns=columns).reset_index(drop=True),
    )


def _throughput_title(scales: pd.DataFrame, points: pd.DataFrame) -> str:
    """The speed-up at the largest number of devices; with several stacks, the lowest and the highest."""
    least, best = _extremes(scales, "S")
    batches = points["batch"].drop_duplicates().tolist()
    batch = f"; {batches[0]} items per device and step" if len(batches) == 1 else ""
    doubt = "; more than N × is impossible, look for a wrong baseline" if best.impossible else ""
    found = f"{best.count} devices {words.verb(points['mode'].iloc[0], many=True)} {best.workload}"
    if least is best:
        limits = words.interval(best.S_low, best.S_high)
        return f"{found} {words.times(best.S)} × as fast as one ({best.stack}; {limits}){batch}{doubt}"
    if words.times(least.S) == words.times(best.S):
        return f"{found} {words.times(best.S)} × as fast as one on each of {scales['stack'].nunique()} stacks{batch}{doubt}"
    both = f"{words.times(least.S)} × ({least.stack}) to {words.times(best.S)} × ({best.stack})"
    return f"{found} {both} as fast as one{batch}{doubt}"


def _extremes(scales: pd.DataFrame, name: str) -> tuple[Any, Any]:
    """At the largest number of devices, the row of the lowest and the one of the highest `name`."""
    ranked = words.rows_of(scales[scales["count"] == scales["count"].max()].sort_values(name, kind="stable"))
    return ranked[0], ranked[-1]


def _throughput_spec(points: pd.DataFrame, unit: str, stacks: Sequence[str]) -> dict[str, Any]:
    firsts = points.drop_duplicates(["stack", "count"])
    furthest = firsts.groupby("stack", sort=False)["count"].max()
    ones = firsts[firsts["count"] == 1]
    ideal = [
        {"stack": r.stack, "count": n, "throughput": r.throughput * n}
        for r in words.rows_of(ones)
        for n in (1, int(furthest[r.stack]))
    ]
    counts = sorted({int(n) for n in points["count"]})
    x = alt.X(
        "count:Q",
        title="devices (N)",
        axis=alt.Axis(values=counts, format="d", grid=False),
        scale=alt.Scale(domain=[0, counts[-1] * 1.05], nice=False),
    )

    most = max(line["throughput"] for line in ideal) if ideal else firsts["throughput"].max()
    upper = max(most, min(points["high"].max(), _ROOM * most)) if points["high"].notna().any() else most
    scale = alt.Scale(domain=[0, upper * 1.02], clamp=True, nice=False)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, axis=alt.Axis(tickCount=5), scale=scale)

    color, form = _looks(points["stack"], stacks)
    tips = [
        alt.Tooltip("stack:N"),
        alt.Tooltip("devices:N"),
        alt.Tooltip("said:N", title="throughput"),
        alt.Tooltip("interval:N"),
    ]
    shown = on("points").encode(x=x, color=color, tooltip=tips)
    layers = [
        on("ideal").mark_line(strokeDash=[5, 4], strokeWidth=1.2).encode(x=x, y=y("throughput"), color=color),
        on("firsts").mark_line(strokeWidth=2.2).encode(x=x, y=y("throughput"), color=color),
        shown.mark_rule(strokeWidth=1.5).encode(y=y("low"), y2=alt.Y2("high:Q")),
        shown.mark_point(filled=True, size=70, opacity=1).encode(y=y("throughput"), shape=form),
        on("one").mark_text(align="left", dy=-10, fontSize=11).encode(x=at(-30), y=top(), text=alt.Text("unit:N")),
    ]
    chart = alt.layer(*layers, width=_PLOT, height=230)
    return finish(
        chart,
        one=[{"unit": unit}],
        ideal=ideal,
        firsts=map(_point, words.rows_of(firsts)),
        points=map(_point, words.rows_of(points)),
    )


def _point(cell: Any) -> dict[str, Any]:
    limits = "n/a" if math.isnan(cell.low) else f"{words.figure(cell.low)} to {words.figure(cell.high)}"
    low = cell.low if math.isnan(cell.low) else max(0.0, cell.low)
    numbers = {"count": int(cell.count), "throughput": cell.throughput, "low": low, "high": cell.high}
    return numbers | {"stack": cell.stack, "devices": cell.devices, "said": words.figure(cell.throughput), "interval": limits}


def _looks(names: "pd.Series[str]", stacks: Sequence[str]) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape by stack, with one legend for both."""
    key = legend(names)
    form = alt.Shape("stack:N", scale=shape(stacks, names), legend=key)
    return alt.Color("stack:N", scale=colour(stacks, names), legend=key), form


def _efficiency(number: int, scales: pd.DataFrame, stacks: Sequence[str]) -> Chart:
    columns = {"stack": "stack", "devices": "devices", "count": "N", "E": "E", "E_low": "E, 95 % from", "E_high": "E, 95 % to",
               "s": "s", "s_low": "s, 95 % from", "s_high": "s, 95 % to", "impossible": "impossible"}  # fmt: skip
    parts = (f"{name}: {DEFINITIONS[name]}" for name in ("E", "s", "S"))
    note = " ".join([*parts, DEFINITIONS["ratio_interval"], DEFINITIONS["impossible"]])
    return Chart(
        id=f"scaling-{number}-efficiency-{words.slug(scales['workload'].iloc[0])}",
        section="scaling",
        title=_efficiency_title(scales),
        note=note,
        spec=_efficiency_spec(scales, stacks),
        table=scales[list(columns)].rename(columns=columns).reset_index(drop=True),
    )


def _efficiency_title(scales: pd.DataFrame) -> str:
    wrong = words.rows_of(scales[scales["impossible"]].sort_values("E"))
    if wrong:
        worst = wrong[-1]
        what = f"{worst.workload} on {worst.count} devices with {worst.stack}"
        return f"E = {words.times(worst.E)} of {what} is impossible: above 1.02"
    least, best = _extremes(scales, "s")
    adds, at = f"Each device beyond the first adds to {best.workload}", f"of one at N = {best.count}"
    if least is best:
        limits = words.interval(best.s_low, best.s_high)
        return f"{adds} {words.times(best.s)} {at} ({best.stack}; {limits}; E = {words.times(best.E)})"
    if words.times(least.s) == words.times(best.s):
        return f"{adds} {words.times(best.s)} {at} on each of {scales['stack'].nunique()} stacks"
    return f"{adds} {words.times(least.s)} ({least.stack}) to {words.times(best.s)} ({best.stack}) {at}"


def _efficiency_spec(scales: pd.DataFrame, stacks: Sequence[str]) -> dict[str, Any]:
    places = {stack: place for place, stack in enumerate(dict.fromkeys(scales["stack"]))}
    rows = {name: [_factor(r, name) | {"place": places[r.stack]} for r in words.rows_of(scales)] for name in ("E", "s")}
    panels = [_panel(name, some, scales["stack"], stacks) for name, some in rows.items()]
    chart = alt.vconcat(*panels, spacing=10).resolve_scale(color="shared", shape="shared")  # with one legend
    return finish(chart, **rows, one=[{"value": 1}])


def _panel(name: str, rows: Sequence[dict[str, Any]], names: "pd.Series[str]", stacks: Sequence[str]) -> Drawing:
    """One factor over N. Stacks are drawn side by side, so that their intervals stay apart."""
    bottom, values = name == "s", [row["value"] for row in rows]
    room = 0.1 + (max(values) - min(values)) / 4
    domain = [max(0.0, min(values) - room), max(1.05, max(values) + room)]
    axis = alt.Axis(labelAngle=0, labels=bottom, ticks=bottom)
    counts = alt.Scale(domain=sorted({row["count"] for row in rows}))
    x = alt.X("count:O", title="devices (N)" if bottom else None, axis=axis, scale=counts)
    scale = alt.Scale(domain=domain, clamp=True, nice=False)
    color, form = _looks(names, stacks)
    side = alt.XOffset("place:O", scale=alt.Scale(domain=sorted({row["place"] for row in rows})))

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=_TITLES[name], scale=scale, axis=alt.Axis(tickCount=5))

    tips = [alt.Tooltip("stack:N"), alt.Tooltip("devices:N"), alt.Tooltip("said:N", title=name), alt.Tooltip("interval:N")]
    base = on(name).encode(x=x, xOffset=side, color=color, tooltip=tips)
    wrong = on(name).transform_filter("datum.impossible").encode(x=x, xOffset=side)
    layers = [
        on("one").mark_rule(strokeDash=[5, 4], color=GREY).encode(y=y("value")),
        base.mark_rule(strokeWidth=2).encode(y=y("low"), y2=alt.Y2("high:Q")),
        base.mark_point(filled=True, size=75, opacity=1).encode(y=y("value"), shape=form),
        wrong.mark_text(text="impossible", dy=-12, fontWeight="bold").encode(y=y("value")),
    ]
    return alt.layer(*layers, width=_PLOT, height=120)


def _factor(scale: Any, name: str) -> dict[str, Any]:
    found = words.pick(scale, name)
    said = {"said": words.times(found.value), "interval": words.span(found.low, found.high), "devices": scale.devices}
    place = {"count": int(scale.count), "stack": scale.stack, "impossible": bool(scale.impossible)}
    return place | said | {"value": found.value, "low": found.low, "high": found.high}
