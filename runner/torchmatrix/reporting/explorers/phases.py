"""The explorer of phases: where the time of a launch goes. A panel for each model, a bar for each cell and cache."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import altair as alt

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.time_split import PHASES
from torchmatrix.ground.numbers import UNKNOWN
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import INK, PALETTE
from torchmatrix.reporting.charts.drawing import BELOW, at, finish, on
from torchmatrix.reporting.explorers.choosing import Choice, Dim, Question, Row, grouped, named, telling
from torchmatrix.reporting.explorers.data import Data
from torchmatrix.reporting.explorers.panels import Panel
from torchmatrix.reporting.explorers.saying import WHO, WIDTH, captions, context, name_of, short, who

QUESTION = Question(
    name="phases", panels=("model", "mode"), whole={"gpu": 99, "machine": 99, "stack": 99, "model": 3, "compile": 2}
)
NOTE = DEFINITIONS["phases"]
_MEASURE, _REST = PHASES.index("measure"), len(PHASES) - 1
_COLOURS = [PALETTE[6], PALETTE[3], PALETTE[7], PALETTE[5], PALETTE[1], PALETTE[0], PALETTE[4]]


def panels(data: Data, choice: Choice) -> list[Panel]:
    """One for each model and mode."""
    return [_panel(data.dims, rows) for rows in grouped(choice.rows, QUESTION.panels)]


def _panel(dims: Sequence[Dim], rows: Sequence[Row]) -> Panel:
    settings = telling(dims, rows, (*WHO, *QUESTION.panels))
    ordered = [row for group in grouped(rows, [dim.name for dim in (*settings, *who(dims))]) for row in group]
    names = [
        name_of(dims, row, settings) + (f", {row['part']['cache']} cache" if row["part"]["cache"] else "") for row in ordered
    ]
    lines, places = captions(names, [_length(row["part"]) for row in ordered])
    parts = [part for place, row in zip(places, ordered, strict=True) for part in _parts(place, row["part"])]
    most = max([part["stop"] for part in parts], default=1.0)
    name = words.slug(named(dims, "model").labels[rows[0]["model"]])
    return Panel(name=name, title=_title(dims, ordered), rows={"rows": lines, "parts": parts}, params={"most": most})


def _length(part: Row) -> str:
    total, measured = part["total"], part["seconds"][_MEASURE]
    if total is None:
        return UNKNOWN
    return f"{short(total)} s" + ("" if measured is None else f", {short(100 * measured / total)} % timed")


def _parts(place: int, part: Row) -> list[Row]:
    """The phases in order; unknown ones are left out."""
    found, start = [], 0.0
    for phase, seconds in zip(PHASES, part["seconds"], strict=True):
        if seconds is not None and seconds > 0:
            found.append({"row": place, "phase": phase, "start": start, "stop": start + seconds, "said": f"{short(seconds)} s"})
            start += seconds
    return found


def _title(dims: Sequence[Dim], rows: Sequence[Row]) -> str:
    """The share of time that is measured, and what takes most of the rest."""
    model, mode = (named(dims, name).labels[rows[0][name]] for name in ("model", "mode"))
    parts = [row["part"] for row in rows]
    sums = [sum(part["seconds"][place] or 0.0 for part in parts) for place in range(len(PHASES))]
    most = max((place for place in range(len(PHASES)) if place != _MEASURE), key=lambda place: sums[place])
    rest = "the engine, start, end and proofs" if most == _REST else PHASES[most]
    what = f"launch of {model} ({mode}){context(dims, rows)}"
    known = [
        (part["total"], part["seconds"][_MEASURE]) for part in parts if None not in (part["total"], part["seconds"][_MEASURE])
    ]
    if not known:
        return f"Of a {what}, most of the time outside the timed windows goes to {rest}"
    length = _from_to([total for total, _ in known], "s")
    share = _from_to([100 * measured / total for total, measured in known], "%")
    return f"A {what} takes {length}, of which {share} is timed; most of the rest goes to {rest}"


def _from_to(values: Sequence[float], unit: str) -> str:
    least, most = short(min(values)), short(max(values))
    return f"{least} {unit}" if least == most else f"{least} to {most} {unit}"


def skeleton(_data: Data) -> dict[str, Any]:
    """The specification without rows."""
    return _specification()


@cache
def _specification() -> dict[str, Any]:
    scale = alt.Scale(domain=[0, alt.ExprRef("most")], range=[0, WIDTH - 6], nice=False)
    y = alt.Y("row:O", axis=None, scale=alt.Scale(padding=0))
    x = alt.X("start:Q", scale=scale, title="seconds since the launch started", axis=alt.Axis(tickCount=6, grid=False))
    key = alt.Legend(title=None, orient="top", columns=4, symbolType="square", symbolSize=90)
    colour = alt.Color("phase:N", scale=alt.Scale(domain=list(PHASES), range=_COLOURS), legend=key)
    tips = [alt.Tooltip("phase:N"), alt.Tooltip("said:N", title="median")]
    base = on("rows").encode(y=y, tooltip=alt.Tooltip("label:N", title="of"))
    bars = on("parts").mark_bar(height=12, yOffset=BELOW, stroke=INK, strokeWidth=0.4)
    layers = [
        base.mark_text(align="left", yOffset=BELOW).encode(x=at(0), text=alt.Text("whole:N")),
        base.mark_text(align="left", yOffset=-BELOW).encode(x=at(0), text=alt.Text("short:N")),
        base.mark_text(align="right", yOffset=-BELOW, fontWeight="bold").encode(x=at(WIDTH), text=alt.Text("words:N")),
        bars.encode(y=y, x=x, x2=alt.X2("stop:Q"), color=colour, tooltip=tips),
    ]
    chart = alt.layer(*layers, width=WIDTH, height=alt.Step(31)).add_params(alt.param(name="most", value=1))
    return finish(chart, rows=[], parts=[])
