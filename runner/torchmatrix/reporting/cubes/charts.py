"""The charts of a cube: what each setting does, and what a faster combination costs."""

import math
from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from torchmatrix.analysis.cube import Cube
from torchmatrix.analysis.cube.effects import Effect
from torchmatrix.analysis.cube.front import front_of
from torchmatrix.analysis.cube.points import COSTS, Cost, Point, word_of
from torchmatrix.ground.numbers import figure
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import INK, PALETTE, Chart
from torchmatrix.reporting.charts.drawing import BELOW, GREY, ROW, WIDTH, caption, captions, finish, on, row
from torchmatrix.reporting.cubes import telling

FEWEST_ON_FRONT = 3
"""Cells whose cost is known; fewer make no picture."""
ALIKE = 1.02
"""Costs whose ratio is smaller are the same: there is nothing to choose."""
_HEIGHT = 260
_EFFECTS = (
    "A bar: the geometric mean over all pairs of cells that differ in this setting only. The thin line: from the smallest to "
    "the largest ratio of a pair. A short thick bar with a long line means that it depends on the other settings."
)

_FRONT = (
    "Each point is one combination of settings; the line joins those that no other beats in one without being worse in the "
    "other. Hover over a point for its settings. Medians over launches."
)


def of(cube: Cube, place: int) -> Iterator[Chart]:
    """`place`: of the cube on its page, for the ids."""
    if any(effect.n for effect in cube.effects):
        yield _effects(cube, place)
    for cost in COSTS:
        known = [point for point in cube.points.measured if point.costs[cost.name] > 0]
        costs = [point.costs[cost.name] for point in known]
        if len(known) >= FEWEST_ON_FRONT and max(costs) > ALIKE * min(costs):
            yield _front(cube, cost, known, place)


def _effects(cube: Cube, place: int) -> Chart:
    shown = sorted((one for one in cube.effects if one.n), key=lambda one: -abs(math.log(one.found.value)))
    first = shown[0]
    name = word_of(first.setting, first.value)
    rows = []
    for number, one in enumerate(shown):
        label = _label(one)
        said = f"×{words.times(one.found.value)} (pairs: {words.span(one.least, one.most)})"
        span = {"value": one.found.value, "least": one.least, "most": one.most, "one": 1.0}
        rows.append(caption(number, label, said) | span | {"colour": PALETTE[0] if one.found.value >= 1 else PALETTE[5]})
    table = [
        {"setting": word_of(one.setting, one.value), "over": word_of(one.setting, one.over), "ratio": one.found.value,
         "smallest": one.least, "largest": one.most, "pairs": one.n, "pairs without a ratio": one.missing}
        for one in shown
    ]  # fmt: skip
    return Chart(
        id=f"effects-{place}-{words.slug(cube.points.model, cube.points.mode)}",
        section="settings",
        title=f"Of {len(shown)} settings of {telling.title(cube)}, the mean ratio of {name} is farthest from 1: "
        f"×{words.times(first.found.value)}, not tested",
        note=_EFFECTS,
        spec=_effects_spec(rows),
        table=pd.DataFrame(table),
    )


def _label(one: Effect) -> str:
    """Such as "precision amp over fp32"; of what is on or off the word alone."""
    name = word_of(one.setting, one.value)
    return name if isinstance(one.value, bool) else f"{name} over {one.over}"


def _effects_spec(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ends = [end for one in rows for end in (one["least"], one["most"], 1.0)]
    scale = alt.Scale(type="log", domain=[min(ends) * 0.97, max(ends) * 1.03], range=[0, WIDTH - 12], nice=False)

    def x(field: str) -> alt.X:
        return alt.X(
            f"{field}:Q", scale=scale, title="speed over that without the setting", axis=alt.Axis(tickCount=5, grid=False)
        )

    places = on("rows").encode(y=row(len(rows)))
    layers = [
        places.mark_bar(height=9, yOffset=BELOW, opacity=0.85).encode(
            x=x("one"), x2=alt.X2("value:Q"), color=alt.Color("colour:N", scale=None)
        ),
        places.mark_rule(color=INK, strokeWidth=1, yOffset=BELOW).encode(x=x("least"), x2=alt.X2("most:Q")),
        places.mark_tick(color=GREY, thickness=1.5, size=13, yOffset=BELOW).encode(x=x("one")),
    ]
    return finish(alt.layer(*captions(rows), *layers, width=WIDTH, height=alt.Step(ROW)), rows=rows)


def _front(cube: Cube, cost: Cost, known: list[Point], place: int) -> Chart:
    points, front = cube.points, front_of(cube.points, cost)
    metric, unit = points.metric, str(known[0].row["unit"])
    least = front[0]
    rows = [
        {"cost": cost.times * one.costs[cost.name], "value": metric.times * metric.speed(one.speed), "front": int(one in front),
         "name": telling.combination(one.settings), 
         "said": f"{figure(metric.times * metric.speed(one.speed))} {metric.said(unit)}",
         "costs": f"{figure(cost.times * one.costs[cost.name])} {cost.unit}"}
        for one in known
    ]  # fmt: skip
    table = [
        {"combination": one["name"], metric.said(unit): one["value"], f"{cost.title} ({cost.unit})": one["cost"],
         "beaten by another": "no" if one["front"] else "yes"}
        for one in rows
    ]  # fmt: skip
    said = f"{figure(cost.times * least.costs[cost.name])} {cost.unit}"
    many = f"{len(front)} of {len(known)} combinations are beaten by none"
    return Chart(
        id=f"front-{place}-{words.slug(points.model, points.mode, cost.name)}",
        section="settings",
        title=f"{telling.title(cube)}: {many}; the least {cost.title} is {said}",
        note=_FRONT,
        spec=_front_spec(rows, metric.said(unit), f"{cost.title} ({cost.unit})"),
        table=pd.DataFrame(sorted(table, key=lambda one: str(one["beaten by another"]))),
    )


def _front_spec(rows: list[dict[str, Any]], speed: str, cost: str) -> dict[str, Any]:
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in (("name", "of"), ("said", speed), ("costs", cost))]
    log = alt.Scale(type="log", nice=False, padding=12)
    base = on("points").encode(
        x=alt.X("cost:Q", scale=log, title=cost, axis=alt.Axis(tickCount=5)),
        y=alt.Y("value:Q", scale=log, title=speed, axis=alt.Axis(tickCount=5)),
    )
    first = base.transform_filter("datum.front == 1")
    layers = [
        base.transform_filter("datum.front == 0")
        .mark_point(filled=True, size=36, opacity=0.55, color=GREY)
        .encode(tooltip=tips),
        first.mark_line(interpolate="step-after", strokeWidth=1.5, color=PALETTE[0]),
        first.mark_point(filled=True, size=52, color=PALETTE[0]).encode(tooltip=tips),
    ]
    return finish(alt.layer(*layers, width=WIDTH, height=_HEIGHT), points=rows)
