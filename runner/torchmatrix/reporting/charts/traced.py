"""One launch over time -> temperature, clock and power in stacked plots, with timed windows and slow-downs marked."""

import math
from typing import Any

import altair as alt

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.traces import QUANTITIES, Trace
from torchmatrix.reporting.charts import PALETTE, Chart, words
from torchmatrix.reporting.charts.drawing import GREY, LOSS, WIDTH, Drawing, finish, legend, on

_PLOT = WIDTH - 52
_DASHES: tuple[list[int], ...] = ([], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [10, 4], [1, 3], [8, 2, 2, 2, 2, 2])
_FEW = 20
"""With at most this many readings, a device's points are drawn too."""


def chart(number: int, trace: Trace) -> Chart:
    """The readings of one launch."""
    known = [name for name in QUANTITIES if name in trace.readings]
    thinned = f" Every {trace.every}th reading is drawn." if trace.every > 1 else ""
    spells = f" Vermilion: {_spells(trace)}." if trace.slowdowns else ""
    shares = "; ".join(f"{reason} in {100 * share:.3g} % of the readings" for reason, share in trace.seen.reasons.items())
    reasons = f" Why the clock was below its maximum in the timed windows: {shares}." if shares else ""
    columns = {"seconds": "seconds since the launch started", "device": "device", **{name: QUANTITIES[name] for name in known}}
    return Chart(
        id=f"inside-trace-{number}-{words.slug(trace.cell)}",
        section="inside",
        title=_title(trace),
        note=f"Round {trace.round} of {trace.cell}. {DEFINITIONS['trace']}{thinned}{spells}{reasons}",
        spec=_spec(trace, known),
        table=trace.readings[list(columns)].rename(columns=columns),
    )


def _spells(trace: Trace) -> str:
    found = [f"{start:.0f} s to {stop:.0f} s {reason}" for start, stop, reason in trace.slowdowns]
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return "; ".join(found[:5]) + more


def _title(trace: Trace) -> str:
    seen = trace.seen
    slowed = sorted({reason for *_, reason in trace.slowdowns})
    if seen.throttled:
        return f"{trace.cell} was throttled during the timed windows{': ' if slowed else ''}{', '.join(slowed)}"
    facts = [
        _heat(seen.temperature_first, seen.temperature_last),
        "" if math.isnan(seen.clock_mhz) else f"its clock was {seen.clock_mhz:.0f} MHz",
        "" if math.isnan(seen.power_watts) else f"it drew {seen.power_watts:.0f} W",
    ]
    said = ", ".join(fact for fact in facts if fact) or f"{trace.readings['device'].nunique()} device was monitored"
    if seen.steady is None:
        return f"During the timed windows of {trace.cell}, {said}"
    return f"{trace.cell} {'held steady' if seen.steady else 'was not yet steady'} during the timed windows: {said}"


def _heat(first: float, last: float) -> str:
    if math.isnan(first):
        return ""
    return f"{last:.0f} °C throughout" if round(first) == round(last) else f"from {first:.0f} to {last:.0f} °C"


def _spec(trace: Trace, known: list[str]) -> dict[str, Any]:
    last = max([trace.readings["seconds"].max(), *(stop for _, stop in trace.windows)])
    panels = [_panel(trace, name, last, is_last=name == known[-1]) for name in known]
    windows = ({"start": start, "stop": stop} for start, stop in trace.windows)
    slowdowns = ({"start": start, "stop": stop, "reason": reason} for start, stop, reason in trace.slowdowns)
    readings = trace.readings.to_dict("records")
    chart = alt.vconcat(*panels, spacing=8).resolve_scale(color="shared", strokeDash="shared")
    return finish(chart, windows=windows, slowdowns=slowdowns, readings=readings)


def _panel(trace: Trace, name: str, last: float, is_last: bool) -> Drawing:
    """One quantity over time, one line for each device."""
    devices = list(dict.fromkeys(trace.readings["device"]))
    axis = alt.Axis(tickCount=6, labels=is_last, ticks=is_last, grid=False)
    time = alt.Scale(domain=[0, last], nice=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=time, title="seconds since the launch started" if is_last else None, axis=axis)

    colours = alt.Scale(domain=devices, range=[PALETTE[i % len(PALETTE)] for i in range(len(devices))])
    dashes = alt.Scale(domain=devices, range=[_DASHES[i % len(_DASHES)] for i in range(len(devices))])
    key = legend(devices)
    color, dash = alt.Color("device:N", scale=colours, legend=key), alt.StrokeDash("device:N", scale=dashes, legend=key)
    y = alt.Y(f"{name}:Q", title=QUANTITIES[name], axis=alt.Axis(tickCount=4), scale=alt.Scale(zero=name in _FROM_ZERO))
    few = len(trace.readings) <= _FEW * len(devices)
    slowed = on("slowdowns").mark_rect(color=LOSS, opacity=0.35, stroke=LOSS)
    layers = [
        on("windows").mark_rect(color=GREY, opacity=0.22).encode(x=x("start"), x2=alt.X2("stop:Q")),
        *([slowed.encode(x=x("start"), x2=alt.X2("stop:Q"), tooltip=alt.Tooltip("reason:N"))] if trace.slowdowns else ()),
        on("readings").mark_line(strokeWidth=1.8, point=few).encode(x=x("seconds"), y=y, color=color, strokeDash=dash),
    ]
    return alt.layer(*layers, width=_PLOT, height=95)


_FROM_ZERO = ("power_watts", "busy_cpus")
