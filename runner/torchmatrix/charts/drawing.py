"""How the charts look: colours, shapes, fonts, rows with a line of words above each; the only settings of Altair."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
from altair.utils.schemapi import disable_debug_mode

from torchmatrix.charts import INK, PALETTE

disable_debug_mode()  # else every part is validated as it is made, which takes longer than all the rest; the tests validate

WIDTH = 420
"""Of a whole chart in pixels, so that a phone shows it almost unscaled."""
GREY = "#8c8c8c"
LOSS, GAIN = PALETTE[5], PALETTE[0]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]
ROW = 34
"""Height of a row that has its words above its marks."""
BELOW = 7
"""So far below the middle of such a row are its marks."""
_DIGITS = 6
_LADDERS = (
    (1e-4, 1e-3, 0.01, 0.1, 1, 10, 100, 1e3, 1e4),
    (0.1, 0.2, 0.5, 1, 2, 5, 10, 20),
    (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4),
    (0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.6),
    (0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15),
    (0.97, 0.98, 0.99, 1, 1.01, 1.02, 1.03),
)


def data(rows: Iterable[Mapping[str, Any]]) -> alt.InlineData:
    """Rows as Vega-Lite takes them; numbers to six digits, which is less than a pixel."""
    return alt.InlineData(values=[{key: _plain(value) for key, value in row.items()} for row in rows])


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def finish(chart: alt.LayerChart | alt.VConcatChart) -> dict[str, Any]:
    """The specification: no background, texts in INK."""
    font = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"}
    axis = {**font, "gridColor": GREY, "gridOpacity": 0.3, "domainColor": GREY, "tickColor": GREY}
    title = {"color": INK, "fontSize": 11, "fontWeight": "normal"}
    padding = {"left": 4, "right": 12, "top": 4, "bottom": 4}  # the reader's font may be wider than the one measured here
    configured = chart.configure(background="transparent", padding=padding, font="system-ui, sans-serif")
    configured = configured.configure_axis(**axis).configure_legend(**font).configure_title(**title)
    configured = configured.configure_text(color=INK, fontSize=12).configure_view(stroke=None)
    return dict(configured.to_dict(validate=False))


def colour(stacks: Sequence[str], shown: Iterable[str]) -> alt.Scale:
    """One colour per stack, the same in all charts of a report: `stacks` are all of its stacks in their order."""
    return _scale(stacks, shown, lambda place: PALETTE[place % len(PALETTE)])


def shape(stacks: Sequence[str], shown: Iterable[str]) -> alt.Scale:
    """One shape per stack; stacks of one colour differ in shape."""
    return _scale(stacks, shown, lambda place: SHAPES[(place + place // len(PALETTE)) % len(SHAPES)])


def _scale(stacks: Sequence[str], shown: Iterable[str], look: Any) -> alt.Scale:
    names = list(dict.fromkeys(shown))
    return alt.Scale(domain=names, range=[look(stacks.index(name)) for name in names])


def legend(names: Iterable[str]) -> alt.Legend | None:
    """Two columns above the chart; none for a single name, which the title says."""
    several = len(set(names)) > 1
    return alt.Legend(title=None, orient="top", columns=2, labelLimit=180, symbolSize=80) if several else None


def row(count: int) -> alt.Y:
    """The place of row 0 to `count` - 1, from above."""
    return alt.Y("row:O", axis=None, scale=alt.Scale(domain=list(range(count)), padding=0))


def captions(rows: Sequence[Mapping[str, Any]]) -> list[alt.Chart]:
    """Above the marks of each row: its `label` at the left and its `words` at the right."""
    base = alt.Chart(data({"row": r["row"], "label": r["label"], "words": r["words"]} for r in rows)).encode(y=row(len(rows)))
    longest = max((len(r["words"]) for r in rows), default=0)
    label = base.mark_text(align="left", yOffset=-BELOW, limit=max(80, WIDTH - 7 * longest - 10))
    words = base.mark_text(align="right", yOffset=-BELOW, fontWeight="bold")
    tip = alt.Tooltip("label:N", title="of")  # the whole label, where it was too long
    return [label.encode(x=alt.value(0), text="label:N", tooltip=[tip]), words.encode(x=alt.value(WIDTH), text="words:N")]


def ticks(low: float, high: float) -> list[float]:
    """Round ratios between two, as few and as fine as can be read."""
    fitting = [[value for value in ladder if low <= value <= high] for ladder in _LADDERS]
    return next((found for found in reversed(fitting) if 3 <= len(found) <= 8), max(fitting, key=len))
