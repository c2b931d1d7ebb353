"""The speed-ups explorer: a stack over the baseline stack, or a setting over what it replaces. A panel for each stack.

Geometric means are of the ratios in view, which share the number of devices and the precision unless the reader wants all.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import altair as alt

from torchmatrix.analysis.intervals import Interval, geometric_mean
from torchmatrix.ground.numbers import number_or_nan
from torchmatrix.matrix.factors import CONTRASTED
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import INK
from torchmatrix.reporting.charts.drawing import BELOW, GREY, at, finish, on, ticks
from torchmatrix.reporting.explorers.choosing import Choice, Dim, Question, Row, grouped, said, telling
from torchmatrix.reporting.explorers.data import Data
from torchmatrix.reporting.explorers.looks import colour_of
from torchmatrix.reporting.explorers.panels import Panel
from torchmatrix.reporting.explorers.saying import WIDTH, context, fitting, line, of_machine, places, room

QUESTION = Question(
    name="speedup", panels=("gpu", "machine", "stack"),
    whole={"gpu": 6, "machine": 6, "stack": 6, "model": 12, "mode": 2, "compile": 2},
)  # fmt: skip
SETTINGS = {pair.name: pair.words for factor in CONTRASTED for pair in factor.contrasts}
STACK = "stack"
_STEP = 30
_LEAST = 1.05
"""The scale reaches at least this far to both sides of 1."""
_ROOM = 1.5
"""An interval is cut off if it ends further beyond all dots than this factor."""
_AXIS = "← slower · times as fast · faster →"


def metrics(data: Data) -> tuple[tuple[str, str], ...]:
    """What can be compared: stacks first, then the settings."""
    kinds = dict.fromkeys(pair["kind"] for pair in data.pairs if pair["ratio"] is not None)
    titles = {STACK: "stacks over the baseline"} | {name: f"{own} over {other}" for name, (own, other) in SETTINGS.items()}
    return tuple((kind, titles[kind]) for kind in kinds)


def rows_of(data: Data, kind: str) -> list[Row]:
    """The cells that are compared, each with its pair; without a ratio a cell counts as not measured."""
    return [
        data.rows[pair["at"]] | {"pair": pair, "n": pair["n"] and pair["base_n"]} for pair in data.pairs if pair["kind"] == kind
    ]


def panels(data: Data, choice: Choice, kind: str) -> list[Panel]:
    """One for each stack, against each of its baselines."""
    found = []
    for rows in grouped(choice.rows, QUESTION.panels):
        for base in dict.fromkeys(row["pair"]["base"] for row in rows):
            found.append(_panel(data, kind, base, [row for row in rows if row["pair"]["base"] == base]))
    return found


def _panel(data: Data, kind: str, base: str, rows: Sequence[Row]) -> Panel:
    (stack,) = (dim for dim in data.dims if dim.name == "stack")
    drawn, params = _drawn(data.dims, rows)
    own = stack.labels[rows[0]["stack"]]
    return Panel(name=words.slug(own, kind), title=_title(data, kind, own, base, rows), rows=drawn, params=params)


def _title(data: Data, kind: str, stack: str, base: str, rows: Sequence[Row]) -> str:
    """One pair: its ratio. Several: their geometric mean. None: the reasons."""
    dims = data.dims
    own, other = (stack, base) if kind == STACK else SETTINGS[kind]
    known = [row["pair"] for row in rows if row["pair"]["ratio"] is not None]
    settings = [name for name, _ in _contrasted(kind)]
    where = f"{places(dims, rows)}{of_machine(dims, rows[0])}"
    end = f" on {where}{context(dims, rows, settings)}" + ("" if kind == STACK else f" ({stack})")
    if not known:
        return f"No ratio of {own} over {other}{end}: {words.counted(row['pair']['why'] for row in rows)}"
    failed = f"; {len(rows) - len(known)} more without a ratio" if len(rows) > len(known) else ""
    found = _mean(known)
    limits = "" if math.isnan(found.low) else f", 95 % interval {words.span(found.low, found.high)}"
    count = f"geometric mean of {len(known)} cells" if len(known) > 1 else "one cell"
    verdict, why = _verdict(known)
    return words.compared(own, other, found.value, verdict, why) + f"{end} ({count}{limits}{failed})"


def _verdict(known: Sequence[Row]) -> tuple[str, str]:
    """Of one pair its own, and why it has none; of several pairs there is none of their mean."""
    if len(known) > 1:
        return "n/a", "a mean over cells is not tested"
    (pair,) = known
    return str(pair["verdict"] or "n/a"), words.untested(pair["n"], pair["base_n"])


def _contrasted(kind: str) -> list[tuple[str, Any]]:
    """The factor whose values are compared."""
    return [(factor.name, factor) for factor in CONTRASTED for pair in factor.contrasts if pair.name == kind]


def _mean(known: Sequence[Row]) -> Interval:
    """Of one pair its own interval; of several that of their mean."""
    if len(known) == 1:
        (one,) = known
        low, high = (number_or_nan(one[end]) for end in ("low", "high"))
        return Interval(value=one["ratio"], low=low, high=high)
    return geometric_mean([pair["ratio"] for pair in known])


def _drawn(dims: Sequence[Dim], rows: Sequence[Row]) -> tuple[dict[str, list[Row]], dict[str, Any]]:
    """The mean, a row for each pair with a ratio, the reasons of the others; the limits of the scale and its ticks."""
    known = [row for row in rows if row["pair"]["ratio"] is not None]
    settings = telling(dims, rows, QUESTION.panels) or [dim for dim in dims if dim.name == "model"]
    found: list[Row] = []
    if len(known) > 1:
        mean = _mean([row["pair"] for row in known])
        ends = {} if math.isnan(mean.low) else {"low": mean.low, "high": mean.high}
        found.append({"label": "geometric mean", "value": mean.value, **ends, "counts": f"{len(known)} cells", "mean": 1})
    found += [_line(dims, row, ", ".join(said(settings, row))) for row in known]
    failed = [row["pair"]["why"] for row in rows if row["pair"]["ratio"] is None]
    if failed:
        found.append({"label": f"without a ratio: {len(failed)}", "words": words.counted(failed), "counts": ""})
    return placed(found, [one.get("words") or ratio_words(one["value"], one.get("low"), one.get("high")) for one in found])


def placed(found: Sequence[Row], texts: Sequence[str]) -> tuple[dict[str, list[Row]], dict[str, Any]]:
    """Ratios with their texts as rows of the skeleton, and its parameters."""
    shorts = fitting([one["label"] for one in found], [room(text) for text in texts])
    low, high = _domain(found)
    whole = [
        {"colour": INK, **one, "row": place, "one": 1, "words": text, "short": line(one["label"]) if short is None else short}
        for place, (one, text, short) in enumerate(zip(found, texts, shorts, strict=True))
    ]
    drawn = [_within(one, low, high) for one in whole]
    return {"rows": drawn}, {"low": low, "high": high, "ticks": ticks(low, high)}


def _line(dims: Sequence[Dim], row: Row, label: str) -> Row:
    pair = row["pair"]
    ends = {} if pair["low"] is None else {"low": pair["low"], "high": pair["high"]}
    counts = f"{pair['n']} and {pair['base_n']} launches"
    return {"label": label, "value": pair["ratio"], **ends, "counts": counts, "colour": colour_of(dims, row)}


def ratio_words(value: float, low: float | None, high: float | None) -> str:
    """Such as 1.31 (1.27 to 1.35)."""
    return words.times(value) + ("" if low is None or high is None else f" ({words.span(low, high)})")


def _domain(found: Sequence[Row]) -> tuple[float, float]:
    values = [one["value"] for one in found if "value" in one]
    least, most = min([1 / _LEAST, *values]), max([_LEAST, *values])
    lows = [one["low"] for one in found if one.get("low", 0) >= least / _ROOM]
    highs = [one["high"] for one in found if one.get("high", math.inf) <= most * _ROOM]
    return min([least, *lows]) / 1.01, max([most, *highs]) * 1.01


def _within(one: Row, low: float, high: float) -> Row:
    return one | {end: min(max(one[end], low), high) for end in ("low", "high") if end in one}


@cache
def skeleton(axis: str = _AXIS) -> dict[str, Any]:
    """The specification without rows."""
    scale = alt.Scale(
        type="log", domain=[alt.ExprRef("low"), alt.ExprRef("high")], range=[6, WIDTH - 6], clamp=True, nice=False
    )
    marks = alt.Axis(values=alt.ExprRef("ticks"), format="~g", grid=False)
    y = alt.Y("row:O", axis=None, scale=alt.Scale(padding=0))

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title=axis, axis=marks)

    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in (("label", "of"), ("words", "ratio"), ("counts", "from"))]
    base = on("rows").encode(y=y, tooltip=tips)
    colour = alt.Color("colour:N", scale=None, legend=None)
    valued = base.transform_filter("isValid(datum.value)")
    spans = base.transform_filter("isValid(datum.low)")
    pairs, means = (valued.transform_filter(f"{sign}isValid(datum.mean)") for sign in ("!", ""))
    layers = [
        valued.mark_tick(color=GREY, thickness=2, size=14, yOffset=BELOW).encode(x=x("one")),
        base.mark_text(align="left", yOffset=-BELOW).encode(x=at(0), text=alt.Text("short:N")),
        base.mark_text(align="right", yOffset=-BELOW, fontWeight="bold").encode(x=at(WIDTH), text=alt.Text("words:N")),
        spans.mark_rule(strokeWidth=2.5, yOffset=BELOW).encode(x=x("low"), x2=alt.X2("high:Q"), color=colour),
        pairs.mark_point(filled=True, size=75, opacity=1, yOffset=BELOW).encode(x=x("value"), color=colour),
        means.mark_point(color=INK, filled=True, size=150, shape="diamond", opacity=1, yOffset=BELOW).encode(x=x("value")),
    ]
    params = [alt.param(name="low", value=0.9), alt.param(name="high", value=1.1), alt.param(name="ticks", value=[1])]
    return finish(alt.layer(*layers, width=WIDTH, height=alt.Step(_STEP)).add_params(*params), rows=[])
