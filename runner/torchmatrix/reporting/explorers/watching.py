"""The explorer of traces: temperature, clock and power while a launch ran. A panel for each cell."""

from functools import cache
from typing import Any

import altair as alt

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.traces import QUANTITIES
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import PALETTE
from torchmatrix.reporting.charts.drawing import GREY, LOSS, Drawing, finish, on
from torchmatrix.reporting.explorers.choosing import Choice, Question, Row
from torchmatrix.reporting.explorers.data import Data
from torchmatrix.reporting.explorers.panels import Panel
from torchmatrix.reporting.explorers.saying import WIDTH, doing, short

QUESTION = Question(name="trace", panels=(), whole={"gpu": 3, "machine": 3, "stack": 3})
NOTE = f"{DEFINITIONS['trace']} Vermilion: the device was slowed down. In long traces every k-th reading is drawn."
_PLOT = WIDTH - 48
_DASHES: tuple[list[int], ...] = ([], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [10, 4], [1, 3], [8, 2, 2, 2, 2, 2])
_FROM_ZERO = ("power_watts", "busy_cpus")


def panels(data: Data, choice: Choice) -> list[Panel]:
    """One for each cell."""
    return [Panel(name=words.slug(row["cell"]), title=_title(data, row), **_drawn(row["part"])) for row in choice.rows]


def _title(data: Data, row: Row) -> str:
    part, start = row["part"], doing(data.dims, row)
    if part["throttled"]:
        reasons = ", ".join(sorted({reason for _, _, reason in part["slow"]}))
        return f"{start} and was throttled during the timed windows{': ' if reasons else ''}{reasons}{_picked(part)}"
    begin, end = part["hot"]
    facts = [
        "" if begin is None or end is None else _heat(begin, end),
        "" if part["mhz"] is None else f"clock {short(part['mhz'])} MHz",
        "" if part["watts"] is None else f"{short(part['watts'])} W",
    ]
    told = ", ".join(fact for fact in facts if fact) or "monitored"
    state = {None: "", True: "steady, ", False: "not yet steady, "}[part["steady"]]
    return f"{start}; during the timed windows {state}{told}{_picked(part)}"


_PICKED = {"slowed": "drawn: one that was slowed down, of", "hottest": "drawn: the hottest of", "first": "drawn: the first of"}


def _picked(part: Row) -> str:
    """Which of several devices is drawn, if not all are, and why."""
    return f" ({_PICKED[part['picked']]} {part['more'] + 1} devices)" if part["more"] else ""


def _heat(begin: float, end: float) -> str:
    first, last = short(begin), short(end)
    return f"{last} °C" if first == last else f"{first} to {last} °C"


def _drawn(part: Row) -> dict[str, Any]:
    rows = [
        {"device": one["device"], "seconds": seconds} | {name: one[name][place] for name in QUANTITIES if name in one}
        for one in part["devices"]
        for place, seconds in enumerate(one["seconds"])
    ]
    windows = [{"start": start, "stop": stop} for start, stop in part["windows"]]
    slow = [{"start": start, "stop": stop, "reason": reason} for start, stop, reason in part["slow"]]
    last = max([row["seconds"] for row in rows] + [window["stop"] for window in windows])
    return {"rows": {"rows": rows, "windows": windows, "slow": slow}, "params": {"last": last}}


def skeleton(data: Data) -> dict[str, Any]:
    """The specification without rows: a plot for each quantity that some device reports."""
    told = {name for part in data.parts["trace"] for one in part["devices"] for name in one}
    return _specification(tuple(name for name in QUANTITIES if name in told))


@cache
def _specification(known: tuple[str, ...]) -> dict[str, Any]:
    plots = [_plot(name, is_last=name == known[-1]) for name in known]
    spec = finish(
        alt.vconcat(*plots, spacing=8).resolve_scale(color="shared", strokeDash="shared"), rows=[], windows=[], slow=[]
    )
    return spec | {"params": [{"name": "last", "value": 1}]}


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
    return alt.layer(*layers, width=_PLOT, height=95)
