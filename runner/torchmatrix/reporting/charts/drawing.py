"""What the explorers' specifications share: colours, shapes, fonts; the only place that configures Altair.

Text from the facts goes into rows, never into titles, sort orders or filters: Vega-Lite turns those into expressions.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import altair as alt
from altair.utils.schemapi import disable_debug_mode

from torchmatrix.reporting.charts import INK, PALETTE
from torchmatrix.reporting.charts.rows import FONT

disable_debug_mode()  # validating every part as it is made takes longer than everything else; the tests validate instead

Drawing: TypeAlias = alt.LayerChart | alt.FacetChart | alt.VConcatChart
GREY = "#8c8c8c"
LOSS = PALETTE[5]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]
_DIGITS = 6


def on(name: str) -> alt.Chart:
    """Refers to the rows of this name, which `finish` adds; Altair would copy rows inside a chart repeatedly."""
    return alt.Chart(alt.NamedData(name=name))


def finish(chart: Drawing, **rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The specification with its rows by name: no background, texts in INK."""
    spec: dict[str, Any] = chart.to_dict(validate=False)
    return spec | {"config": _CONFIG, "datasets": {name: [_drawable(row) for row in some] for name, some in rows.items()}}


_FONT = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"}
_CONFIG = {
    "background": "transparent",
    "padding": {"left": 4, "right": 12, "top": 4, "bottom": 4},  # the reader's font may be wider than ours
    "font": FONT,
    "axis": {**_FONT, "gridColor": GREY, "gridOpacity": 0.3, "domainColor": GREY, "tickColor": GREY},
    "legend": _FONT,
    "text": {"color": INK, "fontSize": 12},
    "view": {"stroke": None},
}


def _drawable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers to six digits, which is less than a pixel; null if unknown."""
    return {str(key): _six_digits(value) if isinstance(value, float) else value for key, value in row.items()}


def _six_digits(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def at(pixels: float) -> alt.XValue:
    """A fixed horizontal position. (alt.value returns a dictionary, which takes Altair much longer.)"""
    return alt.XValue(pixels)  # type: ignore[no-untyped-call]


def bottom() -> alt.YValue:
    """The lower edge of the drawing."""
    return alt.YValue("height")  # type: ignore[no-untyped-call]


def top() -> alt.YValue:
    """The upper edge of the drawing."""
    return alt.YValue(0)  # type: ignore[no-untyped-call]
