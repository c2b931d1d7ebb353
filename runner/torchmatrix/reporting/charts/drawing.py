"""How the charts look: colours, shapes, fonts, rows with a line of text above each; the only place that configures Altair.

Text from the facts goes into rows, never into titles, sort orders or filters: Vega-Lite turns those into expressions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt
from altair.utils.schemapi import disable_debug_mode

from torchmatrix.reporting.charts import FONT, INK, PALETTE

disable_debug_mode()  # validating every part as it is made takes longer than everything else; the tests validate instead

WIDTH = 420
"""Width of a whole chart in pixels, so that a phone shows it almost unscaled."""
Drawing: TypeAlias = alt.LayerChart | alt.FacetChart | alt.VConcatChart
GREY = "#8c8c8c"
LOSS, GAIN = PALETTE[5], PALETTE[0]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]
ROW = 31
"""Height of a row that has its text above its marks."""
BELOW = 7
"""How far the marks are below the middle of such a row."""
_DIGITS = 6
_LETTER, _BOLD = 6.8, 7.6
"""Width in pixels of an average letter of a label, and of a bold one."""
_MOST_WORDS = 42


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


def row(count: int) -> alt.Y:
    """The vertical positions of rows 0 to `count` - 1."""
    return alt.Y("row:O", axis=None, scale=alt.Scale(domain=list(range(count)), padding=0))


def captions(rows: Sequence[Mapping[str, Any]]) -> list[alt.Chart]:
    """Text above the marks of each row of "rows": its `label` at the left, shortened to fit, and its `words` at the right."""
    base = on("rows").encode(y=row(len(rows)))
    label = base.mark_text(align="left", yOffset=-BELOW).encode(x=at(0), text=alt.Text("short:N"))
    return [
        label.encode(tooltip=[alt.Tooltip("label:N", title="of")]),
        base.mark_text(align="right", yOffset=-BELOW, fontWeight="bold").encode(x=at(WIDTH), text=alt.Text("words:N")),
    ]


def caption(number: int, label: str, words: str) -> dict[str, Any]:
    """What `captions` shows of one row."""
    said = shorten(words, _MOST_WORDS)
    return {"row": number, "label": label, "short": shorten(label, (WIDTH - _BOLD * len(said) - 10) // _LETTER), "words": said}


def shorten(text: str, letters: float) -> str:
    """At most `kept` letters, including the end. Vega's own limit takes as long as the rest of a chart."""
    if len(text) <= letters:
        return text
    kept = max(int(letters) - 1, 2)
    return f"{text[: kept - kept // 3]}…{text[len(text) - kept // 3 :]}"
