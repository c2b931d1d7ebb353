"""Charts of profiles: where the time of a step goes, bars from one step time to another, memory over time."""

from itertools import pairwise
from typing import Any

from torchmatrix.core.formatting import clipped
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import BarRow, Chart, Panel, scale_of
from torchmatrix.reporting.charts.lines import LineChart, Point, ticks
from torchmatrix_plugins.profile.explanation import MOST_BARS, NOT_ATTRIBUTED, Bar, Why, largest
from torchmatrix_plugins.profile.profiles import Memory, Shares

_NAME_WIDTH = 60
"""Most characters of a name; its tooltip has the whole."""
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


def waterfall(why: Why, title: str) -> Chart:
    """Draw the difference of two step times, from A's to B's, bar by bar."""
    first, last = why.steps
    rows, now = [_whole("A", why.a.cell, first)], first
    for bar in (*largest(why), Bar(name=NOT_ATTRIBUTED, seconds=(0.0, why.not_attributed))):
        rows.append(_difference(why, bar, now))
        now += bar.difference
    rows.append(_whole("B", why.b.cell, last))
    low, high = _zoomed(rows)
    marks = tuple((value, f"{text}{words.SPACE}ms") for value, text in ticks(low, high))
    panel = Panel(title="", rows=tuple(rows), low=low, high=high, kind="latency steps", ticks=marks)
    return Chart(id="why", title=title, sub=WHY_NOTE + (" The scale does not begin at 0." if low else ""), panels=((panel,),))


def _whole(side: str, cell: str, seconds: float) -> BarRow:
    return BarRow(label=f"{side}: {cell}", value=1e3 * seconds, figures=(words.milliseconds(seconds), ""), colour=WHOLE)


def _difference(why: Why, bar: Bar, begin: float) -> BarRow:
    is_rest = bar.name == NOT_ATTRIBUTED
    colour = WHOLE if is_rest else LONGER if bar.difference >= 0 else LESS
    share = "" if is_rest or why.is_scatter else words.percent(why.share(bar))
    figures, end = (words.more_milliseconds(bar.difference), share), 1e3 * (begin + bar.difference)
    return BarRow(
        label=clipped(bar.name, _NAME_WIDTH), note=bar.name, begin=1e3 * begin, value=end, figures=figures, colour=colour
    )


def _zoomed(rows: list[BarRow]) -> tuple[float, float]:
    """Return the scale's ends, not from 0 for large steps that differ little. Bars of whole steps are then cut off."""
    ends = [end for row in rows for end in (row.begin, row.value) if end is not None]
    low, high = min(ends), max(ends)
    return (0.0, high) if low < 2 * (high - low) or low == high else (low - 0.15 * (high - low), high)


def parts(profile: Shares, title: str) -> Chart:
    """Draw where the time of a step goes, the largest part first."""
    shown, others = profile.parts[:MOST_BARS], profile.parts[MOST_BARS:]
    named = [(part.name, part.seconds) for part in shown]
    named += [(f"({len(others)} others)", sum(part.seconds for part in others))] if others else []
    rows = tuple(
        BarRow(
            label=clipped(name, _NAME_WIDTH), note=name, value=1e3 * seconds,
            figures=(words.milliseconds(seconds), words.percent(seconds / profile.seconds, 1)),
        )
        for name, seconds in (*named, (profile.gap_name, profile.gap))
    )  # fmt: skip
    panel = Panel(title="", rows=rows, high=scale_of(rows), kind="latency steps")
    return Chart(id="parts", title=title, sub=SHARES_NOTE, panels=((panel,),))


def table(profile: Shares) -> list[dict[str, Any]]:
    """Return all parts of a step and the gap."""
    every = [*((part.name, part.seconds) for part in profile.parts), (profile.gap_name, profile.gap)]
    return [{"what": name, "ms of a step": 1e3 * seconds} for name, seconds in every]


def memory(profile: Memory, title: str) -> LineChart:
    """Draw the bytes over the time of a few steps."""
    steps = [(x, taken) for (x, taken), (end, _) in pairwise(profile.points) for x in (x, end)] + list(profile.points[-1:])
    points = [Point(x=seconds, value=taken / 2**20, low=0.0, high=taken / 2**20) for seconds, taken in steps]
    beyond = "" if profile.of_device else " On a CPU beyond the least of these steps: what was allocated before is unknown."
    return LineChart(
        id="memory",
        title=title,
        sub=f"MiB of tensors, in steps of their own: recording each allocation takes time.{beyond}",
        points=tuple(points),
        low=0.0,
        high=1.05 * profile.peak / 2**20 or 1.0,
        ends=(words.milliseconds(profile.points[0][0]), f"{words.milliseconds(profile.points[-1][0])} since the steps began"),
        table=tuple({"ms since the steps began": 1e3 * seconds, "MiB": taken / 2**20} for seconds, taken in profile.points),
    )
