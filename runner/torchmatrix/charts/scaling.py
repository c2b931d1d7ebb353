"""Scaling tables -> charts: throughput, efficiency and scale factor over N."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from torchmatrix.charts import Chart, Charts, losses, words
from torchmatrix.charts.drawing import GREY, WIDTH, colour, data, finish, legend, shape
from torchmatrix.definitions import DEFINITIONS

MOST_WORKLOADS = 6
"""With two charts each."""
_PLOT = WIDTH - 48
"""Pixels beside the axis."""


def charts(
    cells: pd.DataFrame, scales: pd.DataFrame, decomposition: pd.DataFrame, devices: pd.DataFrame, stacks: Sequence[str]
) -> Charts:
    """Of each workload two charts over N, of each explained cell a waterfall, of devices measured alone a strip.

    `cells` as of analysis.cells_table, the others of the module scaling, `stacks` all stacks in their order.
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
    """What the largest number of devices gives, on the stack where it gives most."""
    largest = words.rows_of(scales[scales["count"] == scales["count"].max()].sort_values("S", kind="stable"))
    best, least = largest[-1], largest[0]
    said = f"{best.count} devices {words.verb(points['mode'].iloc[0], many=True)}"
    batches = points["batch"].drop_duplicates().tolist()
    batch = f", {batches[0]} items per device" if len(batches) == 1 else ""
    limits = words.interval(best.S_low, best.S_high)
    several = f", {words.times(least.S)} × on {least.stack}" if len(largest) > 1 else ""
    doubt = "; more than N × can’t be: look for a wrong baseline" if best.impossible else ""
    return f"{said} {best.workload} {words.times(best.S)} × as fast as one on {best.stack} ({limits}){several}{batch}{doubt}"


def _throughput_spec(points: pd.DataFrame, unit: str, stacks: Sequence[str]) -> dict[str, Any]:
    firsts = points.drop_duplicates(["stack", "count"])
    top = firsts.groupby("stack", sort=False)["count"].max()
    ones = firsts[firsts["count"] == 1]
    ideal = [
        {"stack": r.stack, "count": n, "throughput": r.throughput * n} for r in words.rows_of(ones) for n in (1, int(top[r.stack]))
    ]
    counts = sorted({int(n) for n in points["count"]})
    x = alt.X(
        "count:Q",
        title="devices (N)",
        axis=alt.Axis(values=counts, format="d", grid=False),
        scale=alt.Scale(domain=[0, counts[-1] * 1.05], nice=False),
    )
    y = alt.Y("throughput:Q", title=unit, axis=alt.Axis(tickCount=5), scale=alt.Scale(zero=True))
    color, form = _looks(points["stack"], stacks, legend(points["stack"]))
    tips = [alt.Tooltip("stack:N"), alt.Tooltip("devices:N"), alt.Tooltip("said:N", title=unit), alt.Tooltip("interval:N")]
    shown = alt.Chart(data(_point(r) for r in words.rows_of(points))).encode(x=x, color=color, tooltip=tips)
    layers = [
        alt.Chart(data(ideal)).mark_line(strokeDash=[5, 4], strokeWidth=1.2).encode(x=x, y=y, color=color),
        alt.Chart(data(_point(r) for r in words.rows_of(firsts))).mark_line(strokeWidth=2.2).encode(x=x, y=y, color=color),
        shown.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=unit), y2="high:Q"),
        shown.mark_point(filled=True, size=70, opacity=1).encode(y=y, shape=form),
    ]
    return finish(alt.layer(*layers).properties(width=_PLOT, height=230))


def _point(cell: Any) -> dict[str, Any]:
    limits = "n/a" if math.isnan(cell.low) else f"{words.figure(cell.low)} to {words.figure(cell.high)}"
    low = cell.low if math.isnan(cell.low) else max(0.0, cell.low)
    numbers = {"count": int(cell.count), "throughput": cell.throughput, "low": low, "high": cell.high}
    return numbers | {"stack": cell.stack, "devices": cell.devices, "said": words.figure(cell.throughput), "interval": limits}


def _looks(names: "pd.Series[str]", stacks: Sequence[str], key: alt.Legend | None) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape by stack, with one legend for both."""
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
    wrong = scales[scales["impossible"]]
    if len(wrong):
        worst = words.rows_of(wrong.sort_values("E"))[-1]
        return f"E = {words.times(worst.E)} of {worst.workload} on {worst.count} devices with {worst.stack} can’t be: above 1.02"
    best = words.rows_of(scales[scales["count"] == scales["count"].max()].sort_values("s", kind="stable"))[-1]
    others = "" if scales["stack"].nunique() == 1 else ", the best stack"
    return (
        f"Each device beyond the first adds {words.times(best.s)} of one to {best.workload} on {best.stack}{others}: "
        f"s at N = {best.count} ({words.interval(best.s_low, best.s_high)}), E = {words.times(best.E)}"
    )


def _efficiency_spec(scales: pd.DataFrame, stacks: Sequence[str]) -> dict[str, Any]:
    panels = [_panel(scales, name, stacks, bottom=name == "s") for name in ("E", "s")]
    return finish(alt.vconcat(*panels, spacing=10))


def _panel(scales: pd.DataFrame, name: str, stacks: Sequence[str], bottom: bool) -> alt.LayerChart:
    """One factor over N; the stacks stand beside each other, so that their intervals can be told apart."""
    rows = [_factor(r, name) for r in words.rows_of(scales)]
    values = [r["value"] for r in rows]
    room = 0.1 + (max(values) - min(values)) / 4
    domain = [max(0.0, min(values) - room), max(1.05, max(values) + room)]
    x = alt.X("count:O", title="devices (N)" if bottom else None, axis=alt.Axis(labelAngle=0, labels=bottom, ticks=bottom))
    scale = alt.Scale(domain=domain, clamp=True, nice=False)
    color, form = _looks(scales["stack"], stacks, None if bottom else legend(scales["stack"]))
    side = alt.XOffset("stack:N", sort=list(dict.fromkeys(scales["stack"])))

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=name, scale=scale, axis=alt.Axis(tickCount=5, titleAngle=0, titleFontSize=13))

    tips = [alt.Tooltip("stack:N"), alt.Tooltip("devices:N"), alt.Tooltip("said:N", title=name), alt.Tooltip("interval:N")]
    base = alt.Chart(data(rows)).encode(x=x, xOffset=side, color=color, tooltip=tips)
    wrong = alt.Chart(data(r for r in rows if r["impossible"])).encode(x=x, xOffset=side)
    layers = [
        alt.Chart(data([{"value": 1}])).mark_rule(strokeDash=[5, 4], color=GREY).encode(y=y("value")),
        base.mark_rule(strokeWidth=2).encode(y=y("low"), y2="high:Q"),
        base.mark_point(filled=True, size=75, opacity=1).encode(y=y("value"), shape=form),
        wrong.mark_text(text="impossible", dy=-12, fontWeight="bold").encode(y=y("value")),
    ]
    return alt.layer(*layers).properties(width=_PLOT, height=120)


def _factor(scale: Any, name: str) -> dict[str, Any]:
    found = words.pick(scale, name)
    said = {"said": words.times(found.value), "interval": words.span(found.low, found.high), "devices": scale.devices}
    place = {"count": int(scale.count), "stack": scale.stack, "impossible": bool(scale.impossible)}
    return place | said | {"value": found.value, "low": found.low, "high": found.high}
