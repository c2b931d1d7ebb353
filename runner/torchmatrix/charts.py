"""Tables -> charts, as SVG text that stands in the page: no script, no network, readable in light, dark and print."""

import math
import re

import altair as alt
import pandas as pd
import vl_convert

PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C", "#B8A900"]
"""Okabe and Ito's colours, distinguishable with colour-blind eyes (https://jfly.uni-koeln.de/color/)."""
INK = "#010203"
"""Stands for the page's text colour while Vega draws."""
WIDTH = 420


def scaling_chart(rows: pd.DataFrame) -> str:
    """S over N for one workload, one line per stack with its limits, and the ideal S = N. Columns as scaling_table."""
    starts = rows.drop_duplicates("stack").assign(count=1, S=1.0, S_low=math.nan, S_high=math.nan)
    data = pd.concat([starts, rows])[["stack", "count", "S", "S_low", "S_high"]].dropna(subset=["S"])
    counts = sorted({int(n) for n in data["count"]})
    ideal = pd.DataFrame({"count": counts, "S": [float(n) for n in counts]})
    top = max([*counts, *data["S"], *data["S_high"].dropna()]) * 1.05
    axis = alt.Axis(values=counts, format="d", grid=False)
    x = alt.X("count:Q", title="devices (N)", axis=axis, scale=alt.Scale(domain=[0, counts[-1] * 1.05]))
    y = alt.Y("S:Q", title="speed-up S over one device", scale=alt.Scale(domain=[0, top]), axis=alt.Axis(tickCount=5))
    color = alt.Color(
        "stack:N",
        title=None,
        scale=_colors(data["stack"]),
        legend=alt.Legend(orient="top", labelLimit=400, columnPadding=30, columns=3),
    )
    lines = (
        alt.Chart(data)
        .mark_line(strokeWidth=2.5, opacity=0.85, point=alt.OverlayMarkDef(size=70, opacity=0.85))
        .encode(x=x, y=y, color=color)
    )
    ranges = alt.Chart(data.dropna()).mark_rule(strokeWidth=2).encode(x=x, y="S_low:Q", y2="S_high:Q", color=color)
    dashes = alt.Chart(ideal).mark_line(strokeDash=[5, 4], color="#8c8c8c").encode(x=x, y=y)
    last = alt.Chart(ideal.tail(1)).mark_text(text="ideal", align="right", dx=-8, dy=-6, color="#8c8c8c").encode(x=x, y=y)
    return svg(alt.layer(dashes, last, lines, ranges).properties(width=WIDTH, height=220))


def speedup_chart(rows: pd.DataFrame) -> str:
    """Throughput of each stack over the baseline stack, one bar per stack and workload. Columns as speedup_table."""
    data = rows.rename(columns={"ratio": "x"})[["workload", "stack", "x", "low", "high"]]
    order = list(dict.fromkeys(data["stack"]))
    y = alt.Y("stack:N", title=None, sort=order, axis=alt.Axis(labelLimit=200))
    scale = alt.Scale(domain=[0, max([1.0, *data["x"], *data["high"].dropna()]) * 1.12])
    color = alt.Color("stack:N", legend=None, scale=_colors(data["stack"]))
    base = alt.Chart(data)
    bars = base.mark_bar(height={"band": 0.7}).encode(
        y=y, x=alt.X("x:Q", title="times the baseline", scale=scale, axis=alt.Axis(tickCount=5)), color=color
    )
    ranges = base.mark_rule(strokeWidth=1.5, color=INK).encode(y=y, x="low:Q", x2="high:Q")
    words = base.mark_text(align="left", dx=4, color=INK).encode(y=y, x="end:Q", text=alt.Text("x:Q", format=".2f"))
    words = words.transform_calculate(end="isValid(datum.high) ? max(datum.x, datum.high) : datum.x")
    panel = alt.layer(bars, ranges, words).properties(width=WIDTH - 130, height={"step": 22})
    header = alt.Header(labelAnchor="start", labelFontWeight="bold", labelLimit=WIDTH, title=None)
    faceted = panel.facet(facet=alt.Facet("workload:N", header=header, sort=list(dict.fromkeys(data["workload"]))), columns=1)
    return svg(faceted.resolve_scale(y="independent"))


def _colors(stacks: "pd.Series[str]") -> alt.Scale:
    names = list(dict.fromkeys(stacks))
    return alt.Scale(domain=names, range=[PALETTE[i % len(PALETTE)] for i in range(len(names))])


def svg(chart: alt.Chart | alt.LayerChart | alt.FacetChart) -> str:
    """The chart as an SVG element that scales with the page and takes its text colour."""
    font = {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
    axis = {**font, "gridColor": "#8c8c8c", "gridOpacity": 0.25, "domainColor": "#8c8c8c", "tickColor": "#8c8c8c"}
    padding = {"left": 30, "right": 10, "top": 5, "bottom": 5}  # the reader's font may be wider than the one measured here
    configured = chart.configure(background="transparent", padding=padding, font="system-ui, sans-serif", text={"fontSize": 12})
    configured = configured.configure_axis(**axis).configure_legend(**font).configure_header(**font)
    drawn = vl_convert.vegalite_to_svg(configured.configure_view(stroke=None).to_dict(validate=False))
    drawn = re.sub(r'(<svg[^>]*?) width="([\d.]+)" height="[\d.]+"', r'\1 style="width:\2px"', drawn, count=1)
    return drawn.replace(INK, "currentColor")
