"""Tables -> charts: one question each, answered in the title. As Vega-Lite for a page with a script, as SVG and PNG without.

This module knows what a chart is and how it is drawn; throughput, scaling, speedups and inside make them.
"""

import re
import textwrap
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import pandas as pd
import vl_convert

VEGA_LITE = "v6.4"
"""The Vega-Lite that Altair writes; stills and a page's runtime use the same (vl_convert's `vl_version`)."""
INK = "#010203"
"""Stands for the page's text colour while Vega draws."""
PALETTE = ["#0072B2", "#C58400", "#009E73", "#CC6699", "#3A9BD5", "#D55E00", "#808080", "#8A7D00"]
"""Okabe and Ito's colours (https://jfly.uni-koeln.de/color/), the light ones darkened: 3 to 1 on white and on #0d1117."""
FONT = "system-ui, sans-serif"
_TITLE_LETTERS = 58
_ARIA_OFF = {"aria": False}
"""A still is one image with one name; a label on each of its marks would only make it four times as large."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One question, answered in its title.

    `id`: [a-z0-9-], unique on a page, usable in HTML and as a file's name. `section`: "throughput", "scaling", "speedup",
    "inside" or "trend". `note`: how to read it, with the definitions used. `spec`: Vega-Lite with its data inside, INK as the
    text's colour, no background. `table`: what is drawn, with readable column names and units, at full precision.
    """

    id: str
    section: str
    title: str
    note: str
    spec: dict[str, Any]
    table: pd.DataFrame


@dataclass(frozen=True, kw_only=True, slots=True)
class Charts:
    """What a page shows of one section. `left_out`: how many rows of the tables it would have shown, but for the limits."""

    charts: tuple[Chart, ...] = ()
    left_out: int = 0


def to_svg(chart: Chart) -> str:
    """The chart as an SVG element that scales with the page, takes its font and colour, and says its title to who can't see."""
    svg = vl_convert.vegalite_to_svg(chart.spec, vl_version=VEGA_LITE, config=_ARIA_OFF).replace(INK, "currentColor")
    svg = svg.replace(f' font-family="{FONT}"', "")  # the page has one
    return _named(chart, re.sub(r'(<svg[^>]*?) width="([\d.]+)" height="[\d.]+"', r'\1 style="width:\2px"', svg, count=1))


def file_svg(chart: Chart) -> str:
    """The chart as a file of its own: on white, under its title."""
    return _named(chart, vl_convert.vegalite_to_svg(_alone(chart), vl_version=VEGA_LITE, config=_ARIA_OFF))


def file_png(chart: Chart, scale: float = 2.0) -> bytes:
    """As file_svg, drawn with `scale` dots for each of its points."""
    return bytes(vl_convert.vegalite_to_png(_alone(chart), vl_version=VEGA_LITE, scale=scale))


def _alone(chart: Chart) -> dict[str, Any]:
    lines = textwrap.wrap(chart.title, _TITLE_LETTERS)
    title = {"text": lines, "anchor": "start", "color": INK, "fontSize": 14, "fontWeight": "bold", "offset": 12, "limit": 0}
    return chart.spec | {"background": "white", "title": title}


def _named(chart: Chart, svg: str) -> str:
    """The SVG as one image with a name and a description (https://www.w3.org/TR/svg-aam-1.0/)."""
    words = f"<title>{escape(chart.title)}</title><desc>{escape(chart.note)}</desc>"
    return re.sub(
        r"<svg\b([^>]*)>", lambda found: f'<svg role="img" aria-label={quoteattr(chart.title)}{found[1]}>{words}', svg, count=1
    )
