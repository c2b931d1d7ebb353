"""GPUs beside a baseline GPU: a bar for the geometric mean of each, a dot for every cell that is in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from torchmatrix.reporting import words
from torchmatrix.reporting.charts import INK, PALETTE, Chart
from torchmatrix.reporting.charts.drawing import BELOW, GREY, ROW, WIDTH, caption, captions, finish, on, row


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One GPU: its geometric mean over `cells`, each a workload on a stack and its ratio. `missing`: cells without a ratio.

    `place`: among all GPUs of the page, which gives it its colour.
    """

    place: int
    gpu: str
    mean: float
    cells: tuple[tuple[str, float], ...]
    missing: int


def chart(bars: Sequence[Bar], baseline: str, count: int, title: str, note: str) -> Chart:
    """`bars` from top to bottom, the baseline's among them; `count`: how many devices of each."""
    table = [
        {"GPU": bar.gpu, "cell": name, "throughput over the baseline GPU": value} for bar in bars for name, value in bar.cells
    ]
    return Chart(
        id=f"relative-{words.slug(count, 'over', baseline)}",
        section="relative",
        title=title,
        note=note,
        spec=_spec(bars, baseline, f"throughput over {count} × {baseline}"),
        table=pd.DataFrame(table),
    )


def _spec(bars: Sequence[Bar], baseline: str, axis: str) -> dict[str, Any]:
    rows = [_row(number, bar) for number, bar in enumerate(bars)]
    dots = [
        {"row": number, "value": value, "cell": name, "said": f"×{words.times(value)}", "gpu": bar.gpu}
        for number, bar in enumerate(bars) for name, value in bar.cells if bar.gpu != baseline
    ]  # fmt: skip
    scale = alt.Scale(range=[0, WIDTH - 12], nice=False, zero=True)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title=axis, axis=alt.Axis(tickCount=6, grid=False))

    y = row(len(rows))
    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in (("gpu", "GPU"), ("cell", "cell"), ("said", "ratio"))]
    places = on("rows").encode(y=y)
    layers = [
        places.mark_bar(height=11, yOffset=BELOW, opacity=0.85).encode(x=x("value"), color=alt.Color("colour:N", scale=None)),
        places.mark_tick(color=GREY, thickness=1.5, size=13, yOffset=BELOW).encode(x=x("one")),
        on("dots").encode(y=y, tooltip=tips).mark_point(
            filled=True, size=34, opacity=0.75, color=INK, yOffset=BELOW
        ).encode(x=x("value")),
    ]  # fmt: skip
    return finish(alt.layer(*captions(rows), *layers, width=WIDTH, height=alt.Step(ROW)), rows=rows, dots=dots)


def _row(number: int, bar: Bar) -> dict[str, Any]:
    counts = f"n = {len(bar.cells)}" + (f", {bar.missing} missing" if bar.missing else "")
    said = f"×{words.times(bar.mean)} ({counts})" if bar.cells else "no cell in common"
    return caption(number, bar.gpu, said) | {"value": bar.mean, "one": 1, "colour": PALETTE[bar.place % len(PALETTE)]}
