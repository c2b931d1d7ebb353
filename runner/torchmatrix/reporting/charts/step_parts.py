"""Profiles -> charts: what of a step is spent where, bars from one step time to another, memory over time."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from torchmatrix.analysis.profiles.memory import Memory
from torchmatrix.analysis.profiles.shares import Shares
from torchmatrix.analysis.profiles.why import MOST_BARS, NOT_ATTRIBUTED, Why, largest
from torchmatrix.ground.numbers import figure, signed_milliseconds
from torchmatrix.reporting.charts import INK, PALETTE, Chart
from torchmatrix.reporting.charts.drawing import BELOW, GAIN, GREY, LOSS, ROW, WIDTH, caption, captions, finish, on, row

_STEP = PALETTE[6]
_GAP_NOTE = (
    "On a device the gap is the time in which no kernel and no copy runs; on a CPU the time of the step outside all operators, "
    "such as Python's."
)
WHY_NOTE = (
    "Seconds of a step, from A's at the top to B's at the bottom; each bar begins where the one above it ends. Orange: B takes "
    "longer; blue: B takes less. The operators and the gap add up to the difference of profiled steps; the bar before the last "
    "is what that lacks of the difference of steps without the profiler. " + _GAP_NOTE
)
SHARES_NOTE = (
    "Seconds of a profiled step, by what ran: of operators inside each other the innermost; where several streams or threads "
    "are busy at once, each gets an equal part. The bars add up to the step. " + _GAP_NOTE
)


def waterfall(found: Why, title: str) -> Chart:
    """From A's step time to B's, bar by bar."""
    first, last = found.steps
    named = [(bar.name, bar.difference) for bar in largest(found)] + [(NOT_ATTRIBUTED, found.not_attributed)]
    rows, now = [_whole(0, "A", found.a.cell, first)], first
    for name, seconds in named:
        rows.append(_bar(len(rows), name, now, now + seconds))
        now += seconds
    rows.append(_whole(len(rows), "B", found.b.cell, last))
    table = pd.DataFrame([{"what": one["label"], "ms of a step": 1e3 * (one["end"] - one["begin"])} for one in rows])
    return Chart(id="why", section="inside", title=title, note=WHY_NOTE, spec=_spans(rows, _zoomed(rows)), table=table)


def parts(found: Shares, title: str) -> Chart:
    """Where the time of a step goes, the largest first."""
    shown, others = found.parts[:MOST_BARS], found.parts[MOST_BARS:]
    named = [(part.name, part.seconds) for part in shown]
    named += [(f"({len(others)} others)", sum(part.seconds for part in others))] if others else []
    named.append((found.gap_name, found.gap))
    rows = [
        _span(place, name, f"{figure(1e3 * seconds)} ms · {100 * seconds / found.seconds:.1f} %", 0.0, seconds, GAIN)
        for place, (name, seconds) in enumerate(named)
    ]
    every = [*((part.name, part.seconds) for part in found.parts), (found.gap_name, found.gap)]
    table = pd.DataFrame([{"what": name, "ms of a step": 1e3 * seconds} for name, seconds in every])
    return Chart(id="parts", section="inside", title=title, note=SHARES_NOTE, spec=_spans(rows, (0.0, None)), table=table)


def memory(found: Memory, title: str) -> Chart:
    """Bytes over the time of a few steps."""
    rows = [{"ms": 1e3 * seconds, "mib": taken / 2**20} for seconds, taken in found.points]
    x = alt.X("ms:Q", title="ms since the steps began", axis=alt.Axis(grid=False))
    y = alt.Y("mib:Q", title="MiB", stack=None, scale=alt.Scale(zero=True))
    line = on("rows").mark_area(interpolate="step-after", color=GAIN, opacity=0.35, line={"color": GAIN, "strokeWidth": 1.5})
    drawn = line.encode(x=x, y=y, tooltip=[alt.Tooltip("ms:Q", format=".3g"), alt.Tooltip("mib:Q", title="MiB", format=".4g")])
    table = pd.DataFrame([{"ms since the steps began": one["ms"], "MiB": one["mib"]} for one in rows])
    note = "What tensors took, in steps of their own: recording each allocation takes time." + (
        "" if found.of_device else " On a CPU beyond the least of these steps: what was allocated before is unknown."
    )
    spec = finish(alt.layer(drawn, width=WIDTH, height=160), rows=rows)
    return Chart(id="memory", section="inside", title=title, note=note, spec=spec, table=table)


def _whole(place: int, side: str, cell: str, seconds: float) -> dict[str, Any]:
    return _span(place, f"{side}: {cell}", f"{figure(1e3 * seconds)} ms", 0.0, seconds, _STEP)


def _bar(place: int, name: str, begin: float, end: float) -> dict[str, Any]:
    words = signed_milliseconds(end - begin)
    return _span(place, name, words, begin, end, GREY if name == NOT_ATTRIBUTED else LOSS if end >= begin else GAIN)


def _span(place: int, name: str, words: str, begin: float, end: float, colour: str) -> dict[str, Any]:
    return {**caption(place, name, words), "begin": begin, "end": end, "colour": colour}


def _zoomed(rows: Sequence[dict[str, Any]]) -> tuple[float, float | None]:
    """Where the axis begins: of two large steps that differ little, not at 0. Bars of whole steps are then cut off."""
    ends = [end for one in rows[1:-1] for end in (one["begin"], one["end"])] + [rows[0]["end"], rows[-1]["end"]]
    low, high = min(ends), max(ends)
    return (0.0, None) if low < 2 * (high - low) else (low - 0.15 * (high - low), high)


def _spans(rows: list[dict[str, Any]], domain: tuple[float, float | None]) -> dict[str, Any]:
    """A bar in each row, from its begin to its end; the axis is in milliseconds."""
    low, high = domain[0], domain[1] if domain[1] is not None else max(max(one["begin"], one["end"]) for one in rows)
    shown = [one | {"from": 1e3 * max(low, one["begin"]), "to": 1e3 * one["end"]} for one in rows]
    scale = alt.Scale(domain=[1e3 * low, 1e3 * high], range=[0, WIDTH], nice=False, zero=False)
    title = "ms of a step" + (", not from 0" if low > 0 else "")
    bars = on("rows").encode(
        x=alt.X("from:Q", scale=scale, title=title, axis=alt.Axis(grid=True, tickCount=6)),
        x2=alt.X2("to:Q"),
        y=row(len(rows)),
        color=alt.Color("colour:N", scale=None, legend=None),
        tooltip=[alt.Tooltip("label:N", title="of"), alt.Tooltip("words:N", title="time")],
    )
    drawn = [*captions(rows), bars.mark_bar(height=9, yOffset=BELOW, minBandSize=1, stroke=INK, strokeWidth=0.3)]
    return finish(alt.layer(*drawn, width=WIDTH, height=alt.Step(ROW)), rows=shown)
