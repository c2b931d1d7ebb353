"""Profiles -> charts: what of a step is spent where, bars from one step time to another, memory over time."""

from itertools import pairwise
from typing import Any

from torchmatrix.analysis.profiles import Memory, Shares
from torchmatrix.analysis.why import MOST_BARS, NOT_ATTRIBUTED, Bar, Why, largest
from torchmatrix.ground.formatting import clipped
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import lines
from torchmatrix.reporting.charts.rows import Chart, Panel, Row, scale_of

_LETTERS = 60
"""Of a name; a reader who points at it sees the whole."""
LESS, LONGER, WHOLE = 0, 1, 2
"""The colours of bars in page.css's .steps."""
_GAP_NOTE = (
    "On a device the gap is the time in which no kernel and no copy runs; on a CPU the time of the step outside all operators, "
    "such as Python's."
)
WHY_NOTE = (
    "From A's step at the top to B's at the bottom; each bar begins where the one above it ends. Orange: B takes longer; "
    "blue: B takes less. Columns: time, share of the difference of profiled steps, to which the operators and the gap add up; "
    "the bar before the last is what that lacks of the difference of steps without the profiler. " + _GAP_NOTE
)
SHARES_NOTE = (
    "A profiled step by what ran: of operators inside each other the innermost; where several streams or threads are busy at "
    "once, each gets an equal part. The bars add up to the step. Columns: time, share of the step. " + _GAP_NOTE
)


def waterfall(found: Why, title: str) -> Chart:
    """From A's step time to B's, bar by bar."""
    first, last = found.steps
    rows, now = [_whole("A", found.a.cell, first)], first
    for bar in (*largest(found), Bar(name=NOT_ATTRIBUTED, seconds=(0.0, found.not_attributed))):
        rows.append(_difference(found, bar, now))
        now += bar.difference
    rows.append(_whole("B", found.b.cell, last))
    low, high = _zoomed(rows)
    ticks = tuple((value, f"{text}{words.THIN}ms") for value, text in lines.ticks(low, high))
    panel = Panel(title="", rows=tuple(rows), low=low, high=high, kind="latency steps", ticks=ticks)
    return Chart(id="why", title=title, sub=WHY_NOTE + (" The scale does not begin at 0." if low else ""), panels=((panel,),))


def _whole(side: str, cell: str, seconds: float) -> Row:
    return Row(label=f"{side}: {cell}", value=1e3 * seconds, figures=(words.milliseconds(seconds), ""), colour=WHOLE)


def _difference(found: Why, bar: Bar, begin: float) -> Row:
    is_rest = bar.name == NOT_ATTRIBUTED
    colour = WHOLE if is_rest else LONGER if bar.difference >= 0 else LESS
    share = "" if is_rest or found.is_scatter else words.percent(found.share(bar))
    figures, end = (words.more_milliseconds(bar.difference), share), 1e3 * (begin + bar.difference)
    return Row(label=clipped(bar.name, _LETTERS), note=bar.name, begin=1e3 * begin, value=end, figures=figures, colour=colour)


def _zoomed(rows: list[Row]) -> tuple[float, float]:
    """Where the scale begins: of two large steps that differ little, not at 0. Bars of whole steps are then cut off."""
    ends = [end for row in rows for end in (row.begin, row.value) if end is not None]
    low, high = min(ends), max(ends)
    return (0.0, high) if low < 2 * (high - low) or low == high else (low - 0.15 * (high - low), high)


def parts(found: Shares, title: str) -> Chart:
    """Where the time of a step goes, the largest first."""
    shown, others = found.parts[:MOST_BARS], found.parts[MOST_BARS:]
    named = [(part.name, part.seconds) for part in shown]
    named += [(f"({len(others)} others)", sum(part.seconds for part in others))] if others else []
    rows = tuple(_part(name, seconds, found.seconds) for name, seconds in (*named, (found.gap_name, found.gap)))
    panel = Panel(title="", rows=rows, high=scale_of(rows), kind="latency steps")
    return Chart(id="parts", title=title, sub=SHARES_NOTE, panels=((panel,),))


def _part(name: str, seconds: float, step: float) -> Row:
    figures = (words.milliseconds(seconds), words.percent(seconds / step, 1))
    return Row(label=clipped(name, _LETTERS), note=name, value=1e3 * seconds, figures=figures)


def table(found: Shares) -> list[dict[str, Any]]:
    """All parts of a step and the gap."""
    every = [*((part.name, part.seconds) for part in found.parts), (found.gap_name, found.gap)]
    return [{"what": name, "ms of a step": 1e3 * seconds} for name, seconds in every]


def memory(found: Memory, title: str) -> lines.Chart:
    """Bytes over the time of a few steps."""
    steps = [(x, taken) for (x, taken), (end, _) in pairwise(found.points) for x in (x, end)] + list(found.points[-1:])
    points = [lines.Point(x=seconds, value=taken / 2**20, low=0.0, high=taken / 2**20) for seconds, taken in steps]
    beyond = "" if found.of_device else " On a CPU beyond the least of these steps: what was allocated before is unknown."
    return lines.Chart(
        id="memory",
        title=title,
        sub=f"MiB of tensors, in steps of their own: recording each allocation takes time.{beyond}",
        points=tuple(points),
        low=0.0,
        high=1.05 * found.peak / 2**20 or 1.0,
        ends=(words.milliseconds(found.points[0][0]), f"{words.milliseconds(found.points[-1][0])} since the steps began"),
        table=tuple({"ms since the steps began": 1e3 * seconds, "MiB": taken / 2**20} for seconds, taken in found.points),
    )
