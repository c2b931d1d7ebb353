"""The throughput explorer: which stack is fastest. A panel for each model, a bar for each stack and setting."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import altair as alt

from torchmatrix.analysis.verdicts import Significance
from torchmatrix.ground.numbers import figure
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import INK
from torchmatrix.reporting.charts.drawing import BELOW, at, finish, on
from torchmatrix.reporting.explorers import fastest
from torchmatrix.reporting.explorers.choosing import Choice, Dim, Question, Row, grouped, said, telling
from torchmatrix.reporting.explorers.data import Data
from torchmatrix.reporting.explorers.looks import colour_of
from torchmatrix.reporting.explorers.metrics import Metric, measure
from torchmatrix.reporting.explorers.panels import Panel
from torchmatrix.reporting.explorers.saying import (
    WHO,
    WIDTH,
    context,
    fitting,
    line,
    name_of,
    room,
    shared_place,
    who,
)

QUESTION = Question(
    name="throughput", panels=("model", "mode"), whole={"gpu": 99, "machine": 99, "stack": 99, "model": 6, "compile": 2}
)
_STEP = 30
_ENDS = ("value", "high", "theirs")
_ROOM = 1.5
"""An interval is cut off if it ends further beyond the longest bar than this factor."""
_CUT = "»"
_NOTHING = {"head": "", "short": "", "words": "", "cut": ""}


def panels(data: Data, choice: Choice, metric: Metric) -> list[Panel]:
    """One for each model and mode."""
    groups = grouped(choice.rows, QUESTION.panels)
    return [_panel(data, metric, rows) for rows in groups]


def _panel(data: Data, metric: Metric, rows: Sequence[Row]) -> Panel:
    settings = telling(data.dims, rows, (*WHO, *QUESTION.panels))
    named = [dim.name for dim in (*settings, *who(data.dims))]
    ordered = [row for group in grouped(rows, named) for row in group]
    (model,) = (dim for dim in data.dims if dim.name == "model")
    drawn = _rows(data.dims, metric, ordered, settings)
    return Panel(
        name=words.slug(model.labels[rows[0]["model"]]),
        title=sentence(data.dims, metric, ordered, data.significance),
        rows={"rows": drawn},
        params={"most": max([end for bar in drawn for name in _ENDS if (end := bar.get(name))], default=1)},
    )


def sentence(dims: Sequence[Dim], metric: Metric, rows: Sequence[Row], level: Significance) -> str:
    """Of throughputs all that may be the highest; of other metrics, which no test compares, the first two."""
    of = measure(metric)
    (model,) = (dim.labels[rows[0][dim.name]] for dim in dims if dim.name == "model")
    ranked = sorted((row for row in rows if of(row)[0] is not None), key=lambda row: of(row)[0] or 0, reverse=not metric.least)
    if not ranked:
        return f"No figure for {model}{context(dims, rows)}: {words.counted(row['outcome'] for row in rows)}"
    if metric.name == "throughput":
        return fastest.sentence(dims, ranked, level)
    two = ranked[:2]
    settings = telling(dims, two, (*WHO, *QUESTION.panels))
    names = [name_of(dims, row, settings) for row in two]
    rates = [f"{figure(of(row)[0])} {unit_of(metric, row)}" for row in two]
    what = f"{model}{context(dims, two)} on {shared_place(dims, two)}"
    most = f"The {'lowest' if metric.least else 'highest'} {metric.title} of {what}: {rates[0]}, {names[0]}"
    return most + (f"; next {names[1]}, {rates[1]}: not tested" if two[1:] else "")


def _rows(dims: Sequence[Dim], metric: Metric, rows: Sequence[Row], settings: Sequence[Dim]) -> list[Row]:
    """A headline for each combination of settings, then a row for each bar; a name that is too long has a row above it."""
    of = measure(metric)
    longest = max((of(row)[0] or 0.0 for row in rows), default=0.0)
    names = [" · ".join(said(who(dims), row)) for row in rows]
    texts = [_words(of(row)[0], row, metric) for row in rows]
    found: list[Row] = []
    before = None
    for row, name, text, short in zip(rows, names, texts, fitting(names, [room(text) for text in texts]), strict=True):
        head = ", ".join(said(settings, row))
        if head != before and settings:
            found.append({"row": len(found), **_NOTHING, "head": line(head)})
        if short is None:
            found.append({"row": len(found), **_NOTHING, "short": line(name), "label": name})
        before = head
        bar = _bar(of(row), _ROOM * longest) | (_theirs(row) if metric.name == "throughput" else {})
        tips = {"label": f"{name}{', ' if head else ''}{head}", "words": text, "colour": colour_of(dims, row)}
        counts = f"{row['n']}" + (f" and {row['failed']} not ok" if row["failed"] else "")
        found.append({"row": len(found), **_NOTHING, "short": short or "", **tips, **bar, "launches": counts})
    return found


def unit_of(metric: Metric, row: Row) -> str:
    return metric.unit.replace("{unit}", row["unit"])


def _words(value: float | None, row: Row, metric: Metric) -> str:
    if not row["n"]:
        return f"no number: {row['outcome']}"
    return f"{figure(value)} {unit_of(metric, row)} · bs {row['bs']}"


def _theirs(row: Row) -> Row:
    """The published figure, if there is one for this cell."""
    return {} if row["theirs"] is None else {"theirs": row["theirs"], "source": row["source"]}


def _bar(found: tuple[float | None, float | None, float | None], most: float) -> Row:
    """The figure and its limits, as far as the chart reaches."""
    value, low, high = found
    span = "n/a" if low is None or high is None else f"{figure(low)} to {figure(high)}"
    if low is None or high is None:
        return {"value": value, "interval": span}
    cut = {"cut": _CUT} if high > most else {}
    return {"value": value, "low": max(0.0, low), "high": min(high, most), "interval": span, **cut}


@cache
def skeleton() -> dict[str, Any]:
    """The specification without rows."""
    y = alt.Y("row:O", axis=None, scale=alt.Scale(padding=0))
    scale = alt.Scale(domain=[0, alt.ExprRef("most")], range=[0, WIDTH - 10], nice=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title=None, axis=None)

    names = {"label": "of", "words": "figure", "interval": "95 % interval", "launches": "launches"}
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in names.items()]
    base = on("rows").encode(y=y)
    bars = base.transform_filter("isValid(datum.value)").encode(tooltip=tips)
    spans = base.transform_filter("isValid(datum.low)").encode(tooltip=tips)
    source = alt.Tooltip("source:N", title="published")
    marks = base.transform_filter("isValid(datum.theirs)").encode(tooltip=[source, *tips[:2]])
    colour = alt.Color("colour:N", scale=None, legend=None)
    layers = [
        base.mark_text(align="left", fontWeight="bold", yOffset=4).encode(x=at(0), text=alt.Text("head:N")),
        base.mark_text(align="left", yOffset=-BELOW).encode(x=at(0), text=alt.Text("short:N"), tooltip=alt.Tooltip("label:N")),
        base.mark_text(align="right", yOffset=-BELOW, fontWeight="bold").encode(x=at(WIDTH), text=alt.Text("words:N")),
        bars.mark_bar(height=11, yOffset=BELOW).encode(x=x("value"), color=colour),
        spans.mark_rule(strokeWidth=1.5, color=INK, yOffset=BELOW).encode(x=x("low"), x2=alt.X2("high:Q")),
        *(spans.mark_tick(thickness=1.5, size=8, color=INK, yOffset=BELOW).encode(x=x(end)) for end in ("low", "high")),
        marks.mark_point(shape="diamond", size=70, filled=False, color=INK, strokeWidth=1.8, yOffset=BELOW).encode(
            x=x("theirs")
        ),
        spans.mark_text(align="left", dx=2, yOffset=BELOW).encode(x=x("high"), text=alt.Text("cut:N")),
    ]
    return finish(alt.layer(*layers, width=WIDTH, height=alt.Step(_STEP)).add_params(alt.param(name="most", value=1)), rows=[])
