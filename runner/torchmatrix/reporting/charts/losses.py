"""Where a scaling loss comes from, as a waterfall of its causes, and each device alone relative to the median device."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.reporting.charts import INK, Chart, Charts, words
from torchmatrix.reporting.charts.drawing import GAIN, GREY, LOSS, WIDTH, at, finish, on, row
from torchmatrix.reporting.charts.forest import Line, forest

MOST_WATERFALLS = 4
MOST_STRIPS = 3
MOST_DEVICES = 16
_FACTORS = {
    "E_hetero": "unequal devices",
    "E_corun": "shared power, PCIe, CPU",
    "E_ddp": "DDP overhead",
    "E_comm": "waiting for all-reduce",
}


def charts(decomposition: pd.DataFrame, devices: pd.DataFrame, stacks: Sequence[str]) -> Charts:
    """A waterfall of each explained cell; a strip of each set of devices measured alone, those with a weak one first.

    `decomposition` and `devices` as of the module scaling, `stacks` all stacks in their order.
    """
    falls = words.rows_of(decomposition)
    groups = [rows for _, rows in devices.groupby(["stack", "workload", "device_name"], sort=False)]
    groups.sort(key=lambda rows: not rows["weak"].any())
    found = [_waterfall(number, fall) for number, fall in enumerate(falls[:MOST_WATERFALLS], 1)]
    found += [_strip(number, rows, stacks) for number, rows in enumerate(groups[:MOST_STRIPS], 1)]
    rest = [*groups[MOST_STRIPS:], *(rows.iloc[MOST_DEVICES:] for rows in groups[:MOST_STRIPS])]
    return Charts(charts=tuple(found), left_out=sum(map(len, rest)) + len(falls[MOST_WATERFALLS:]))


def _waterfall(number: int, fall: Any) -> Chart:
    steps = _steps(fall)
    names = ["step", "factor", "95 % from", "95 % to"]
    rows = [(s["label"], s["factor"].value, s["factor"].low, s["factor"].high) for s in steps]
    parts = " ".join(DEFINITIONS[name] for name in _FACTORS)
    return Chart(
        id=f"scaling-waterfall-{number}-{words.slug(fall.cell)}",
        section="scaling",
        title=_waterfall_title(fall),
        note=f"From top to bottom, each cause takes a part of what is left. {parts} {DEFINITIONS['ratio_interval']}",
        spec=_waterfall_spec(steps),
        table=pd.DataFrame(rows, columns=names),
    )


def _waterfall_title(fall: Any) -> str:
    known = {name: getattr(fall, name) for name in _FACTORS if not math.isnan(getattr(fall, name))}
    cell = f"{fall.workload} on {fall.devices} with {fall.stack}"
    if not known:
        return f"{cell} scales at E = {words.times(fall.E)}; the launches that would explain it are not ok"
    worst = min(known, key=lambda name: known[name])
    if known[worst] >= 1:
        return f"{cell} scales at E = {words.times(fall.E)}; no cause accounts for a loss"
    found = words.pick(fall, worst)
    factor = f"{worst} = {words.times(found.value)} ({words.interval(found.low, found.high)})"
    if found.high > 1:
        return f"{cell} scales at E = {words.times(fall.E)}; no loss exceeds its interval, the largest: {factor}"
    return f"{cell} scales at E = {words.times(fall.E)}; most is lost to {_FACTORS[worst]}: {factor}"


def _steps(fall: Any) -> list[dict[str, Any]]:
    """Each factor continues the product so far. After an unknown factor everything but E is unknown."""
    found, level = [], 1.0
    for name, cause in _FACTORS.items():
        factor = words.pick(fall, name)
        found.append({"label": f"{name}: {cause}", "factor": factor, "from": level, "to": level * factor.value})
        level *= factor.value
    return [*found, {"label": "E", "factor": words.pick(fall, "E"), "from": math.nan, "to": fall.E}]


def _waterfall_spec(steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows = [_fallen(number, step) for number, step in enumerate(steps)]
    known = [value for r in rows for value in (r["from"], r["to"]) if not math.isnan(value)]
    room = 0.05 + (max([1.0, *known]) - min([1.0, *known])) / 4
    domain = [max(0.0, min([1.0, *known]) - room), max([1.0, *known]) + room / 2]
    scale, y = alt.Scale(domain=domain, range=[200, 350], clamp=True, nice=False), row(len(rows))

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title=None, axis=alt.Axis(tickCount=3))

    tips = [alt.Tooltip("label:N", title="cause"), alt.Tooltip("said:N", title="factor"), alt.Tooltip("interval:N")]
    base = on("rows").encode(y=y, tooltip=tips)
    losses = alt.Color("kind:N", legend=None, scale=alt.Scale(domain=["loss", "gain"], range=[LOSS, GAIN]))
    layers = [
        on("one").mark_rule(strokeDash=[5, 4], color=GREY).encode(x=x("from")),
        base.mark_text(align="right").encode(x=at(192), text=alt.Text("label:N")),
        base.transform_filter("datum.kind != 'end'").mark_bar(height=14).encode(x=x("from"), x2=alt.X2("to:Q"), color=losses),
        base.mark_rule(strokeWidth=1.5, color=INK).encode(x=x("low"), x2=alt.X2("high:Q")),
        base.transform_filter("datum.kind == 'end'")
        .mark_point(shape="diamond", filled=True, size=140, color=INK, opacity=1)
        .encode(x=x("to")),
        base.mark_text(align="right", fontWeight="bold").encode(x=at(WIDTH), text=alt.Text("words:N")),
    ]
    return finish(alt.layer(*layers, width=WIDTH, height=alt.Step(26)), rows=rows, one=[{"from": 1}])


def _fallen(number: int, step: dict[str, Any]) -> dict[str, Any]:
    factor, is_end = step["factor"], step["label"] == "E"
    start = 1.0 if is_end else step["from"]
    kind = "end" if is_end else "loss" if factor.value < 1 else "gain"
    sign = "= " if is_end else "× "
    return {
        "row": number,
        "label": step["label"],
        "kind": kind,
        "from": step["from"],
        "to": step["to"],
        "low": start * factor.low,
        "high": start * factor.high,
        "words": f"{sign}{factor.value:.3f}" if not math.isnan(factor.value) else "n/a",
        "said": words.times(factor.value),
        "interval": words.span(factor.low, factor.high),
    }


def _strip(number: int, rows: pd.DataFrame, stacks: Sequence[str]) -> Chart:
    shown = words.rows_of(rows.head(MOST_DEVICES))
    first = shown[0]
    lines = [_device_line(device) for device in shown]
    columns = {"device": "device", "throughput": f"{first.unit}/s", "ratio": "over the median device", "ratio_low": "95 % from",
               "ratio_high": "95 % to", "weak": "weak"}  # fmt: skip
    left_out = f" {len(rows) - len(shown)} more devices are in the table." if len(rows) > len(shown) else ""
    return Chart(
        id=f"scaling-devices-{number}-{words.slug(first.stack, first.workload)}",
        section="scaling",
        title=_strip_title(rows),
        note=f"{DEFINITIONS['weak']} {DEFINITIONS['ratio_interval']}{left_out}",
        spec=forest(lines, stacks, axis="times the median device"),
        table=rows.head(MOST_DEVICES)[list(columns)].rename(columns=columns).reset_index(drop=True),
    )


def _device_line(device: Any) -> Line:
    limits = "" if math.isnan(device.ratio_low) else f" ({words.span(device.ratio_low, device.ratio_high)})"
    is_median = device.ratio_low == device.ratio_high == 1
    said = "the median device" if is_median else f"{'weak: ' if device.weak else ''}{words.times(device.ratio)}{limits}"
    stack = None if device.weak else device.stack
    return Line(label=device.device, words=said, value=device.ratio, low=device.ratio_low, high=device.ratio_high, stack=stack)


def _strip_title(rows: pd.DataFrame) -> str:
    first, weak = words.rows_of(rows)[0], words.rows_of(rows[rows["weak"]].sort_values("ratio"))
    of = f"the median {first.device_name or 'device'} ({first.workload}, {first.stack})"
    if weak:
        worst = weak[0]
        more = f"; also weak: {', '.join(d.device for d in weak[1:])}" if len(weak) > 1 else ""
        limits = words.interval(worst.ratio_low, worst.ratio_high)
        return f"{worst.device} is weak: {words.times(worst.ratio)} × {of}, {limits}{more}"
    low, high = words.times(rows["ratio"].min()), words.times(rows["ratio"].max())
    if rows["ratio_low"].isna().any():
        return f"Too few launches to tell whether a device is weak: they run at {low} to {high} × {of}"
    return f"No device is weak beyond its interval: they run at {low} to {high} × {of}"
