"""The explorer of scaling losses: where the loss of each explained cell comes from. A waterfall for each cell."""

import math
from functools import cache
from typing import Any

import altair as alt

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.scaling import FACTORS
from torchmatrix.ground.numbers import number_or_nan
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import INK
from torchmatrix.reporting.charts.drawing import GAIN, GREY, LOSS, at, finish, on
from torchmatrix.reporting.explorers.choosing import Choice, Question, Row
from torchmatrix.reporting.explorers.data import Data
from torchmatrix.reporting.explorers.panels import Panel
from torchmatrix.reporting.explorers.saying import WIDTH, doing

QUESTION = Question(name="loss", panels=(), whole={"gpu": 6, "machine": 6, "stack": 6})
NOTE = " ".join([
    "From top to bottom, each cause takes a part of what is left.", *(DEFINITIONS[name] for name in FACTORS),
    DEFINITIONS["ratio_interval"],
])  # fmt: skip
CAUSES = {
    "E_hetero": "unequal devices",
    "E_corun": "shared power, PCIe, CPU",
    "E_ddp": "DDP overhead",
    "E_comm": "waiting for all-reduce",
}
_LEFT, _RIGHT = 196, 296


def panels(data: Data, choice: Choice) -> list[Panel]:
    """One for each cell."""
    return [Panel(name=words.slug(row["cell"]), title=_title(data, row), **_drawn(row["part"])) for row in choice.rows]


def _title(data: Data, row: Row) -> str:
    part = row["part"]
    known = {name: part[name] for name in FACTORS if part[name] is not None}
    start = f"{doing(data.dims, row)} at E = {words.times(number_or_nan(part['E']))}"
    if not known:
        return f"{start}; the launches that would explain it are not ok"
    worst = min(known, key=lambda name: known[name])
    if known[worst] >= 1:
        return f"{start}; no cause accounts for a loss"
    low, high = number_or_nan(part[f"{worst}_low"]), number_or_nan(part[f"{worst}_high"])
    factor = f"{worst} = {words.times(known[worst])} ({words.interval(low, high)})"
    if math.isnan(high):
        return f"{start}; the lowest factor is not tested: {factor}"
    if high > 1:
        return f"{start}; no loss exceeds its interval, the largest: {factor}"
    return f"{start}; most is lost to {CAUSES[worst]}: {factor}"


def _drawn(part: Row) -> dict[str, Any]:
    """Each factor continues the product so far. After an unknown factor everything but E is unknown."""
    rows: list[Row] = []
    level = 1.0
    for name, cause in CAUSES.items():
        factor, start = number_or_nan(part[name]), level
        level *= factor
        colour = LOSS if factor < 1 else GAIN
        rows.append(_step(part, name, start, f"{name}: {cause}") | {"colour": colour, "sign": "× ", "from": start, "to": level})
    rows.append(_step(part, "E", 1.0, "E") | {"sign": "= ", "end": number_or_nan(part["E"])})
    ends = [one[key] for one in rows for key in ("from", "to", "end") if not math.isnan(one.get(key, math.nan))]
    room = 0.05 + (max([1.0, *ends]) - min([1.0, *ends])) / 4
    low, high = max(0.0, min([1.0, *ends]) - room), max([1.0, *ends]) + room / 2
    made = [_known(one | {"row": place, "words": f"{one['sign']}{one['factor']}"}) for place, one in enumerate(rows)]
    return {"rows": {"rows": made, "one": [{"from": 1}]}, "params": {"low": low, "high": high}}


def _step(part: Row, name: str, start: float, label: str) -> Row:
    low, high = number_or_nan(part[f"{name}_low"]), number_or_nan(part[f"{name}_high"])
    said = words.times(number_or_nan(part[name]))
    return {"label": label, "factor": said, "low": start * low, "high": start * high, "interval": words.span(low, high)}


def _known(row: Row) -> Row:
    return {key: value for key, value in row.items() if not (isinstance(value, float) and math.isnan(value))}


def skeleton(_data: Data) -> dict[str, Any]:
    """The specification without rows."""
    return _specification()


@cache
def _specification() -> dict[str, Any]:
    domain = [alt.ExprRef("low"), alt.ExprRef("high")]
    scale = alt.Scale(domain=domain, range=[_LEFT, _RIGHT], clamp=True, nice=False, zero=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title=None, axis=alt.Axis(tickCount=3))

    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in
            (("label", "cause"), ("factor", "factor"), ("interval", "95 % interval"))]  # fmt: skip
    base = on("rows").encode(y=alt.Y("row:O", axis=None, scale=alt.Scale(padding=0)), tooltip=tips)
    fallen, ends = (base.transform_filter(f"isValid(datum.{name})") for name in ("to", "end"))
    layers = [
        on("one").mark_rule(strokeDash=[5, 4], color=GREY).encode(x=x("from")),
        base.mark_text(align="right", fontSize=11).encode(x=at(_LEFT - 8), text=alt.Text("label:N")),
        fallen.mark_bar(height=14).encode(x=x("from"), x2=alt.X2("to:Q"), color=alt.Color("colour:N", scale=None)),
        base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.5, color=INK).encode(
            x=x("low"), x2=alt.X2("high:Q")
        ),
        ends.mark_point(shape="diamond", filled=True, size=140, color=INK, opacity=1).encode(x=x("end")),
        base.mark_text(align="right", fontWeight="bold").encode(x=at(WIDTH), text=alt.Text("words:N")),
    ]  # fmt: skip
    chart = alt.layer(*layers, width=WIDTH, height=alt.Step(26))
    return finish(chart.add_params(alt.param(name="low", value=0), alt.param(name="high", value=1)), rows=[], one=[])
