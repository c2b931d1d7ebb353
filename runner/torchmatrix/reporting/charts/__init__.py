"""Tables -> charts. The title of each answers one question. Vega-Lite for pages with JavaScript, otherwise SVG and PNG.

This module knows what a chart is and how it is drawn; throughput, scaling, speedups and inside make them.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import vl_convert

from torchmatrix.ground import address_space
from torchmatrix.ground.texts import in_one_line

if TYPE_CHECKING:
    import pandas as pd

VEGA_LITE = "v6.4"
"""The Vega-Lite version that Altair writes; stills and the page's runtime use the same (vl_convert's `vl_version`)."""
INK = "#010203"
"""Stands for the page's text colour while Vega draws."""
PALETTE = ["#0072B2", "#C58400", "#009E73", "#CC6699", "#3A9BD5", "#D55E00", "#808080", "#8A7D00"]
"""Okabe and Ito's colours (https://jfly.uni-koeln.de/color/), the light ones darkened: 3 to 1 on white and on #0d1117."""
FONT = "system-ui, sans-serif"
_TITLE_LETTERS = 58
_V8_BYTES = 66 * 2**30
"""What V8 reserves, with some room."""
_ARIA_OFF = {"aria": False}
"""A still is one image with one name; a label on each mark would make it four times as large for nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A chart that answers one question in its title.

    `id`: [a-z0-9-], unique on a page, usable in HTML and as a file's name. `section`: "throughput", "scaling", "speedup",
    "inside" or "trend". `note`: how to read it, with the definitions used. `spec`: Vega-Lite with its data inside, INK as the
    text's colour, no background. `table`: what is drawn, with readable column names and units, at full precision.
    """

    id: str
    section: str
    title: str
    note: str
    spec: dict[str, Any]
    table: "pd.DataFrame"


@dataclass(frozen=True, kw_only=True, slots=True)
class Charts:
    """What a page shows of one section. `left_out`: how many rows of the tables the limits left out."""

    charts: tuple[Chart, ...] = ()
    left_out: int = 0


def to_svg(chart: Chart) -> str:
    """As svg_of."""
    return svg_of(chart.title, chart.note, chart.spec)


def svg_of(title: str, note: str, spec: Mapping[str, Any]) -> str:
    """A chart as an SVG element that scales with the page, takes its font and colour, and gives screen readers its title."""
    svg = _drawn(title, note, spec)
    svg.set("style", f"width:{svg.attrib.pop('width')}px")
    del svg.attrib["height"]
    text = ElementTree.tostring(svg, encoding="unicode").replace(INK, "currentColor")
    return text.replace(f' font-family="{FONT}"', "")  # the page has one


def file_svg(chart: Chart) -> str:
    """The chart as a separate file: on white, below its title."""
    return ElementTree.tostring(_drawn(chart.title, chart.note, _alone(chart)), encoding="unicode")


def png_of(svg: str, scale: float = 2.0) -> bytes:
    """A drawing with `scale` pixels per point."""
    with _renderer():
        return bytes(vl_convert.svg_to_png(svg, scale=scale))


def runtime_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which sets window.vegaEmbed. Takes a second."""
    with _renderer():
        return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE))


def _alone(chart: Chart) -> dict[str, Any]:
    lines = textwrap.wrap(chart.title, _TITLE_LETTERS)
    title = {"text": lines, "anchor": "start", "color": INK, "fontSize": 14, "fontWeight": "bold", "offset": 12, "limit": 0}
    return chart.spec | {"background": "white", "title": title}


def _drawn(title: str, note: str, spec: Mapping[str, Any]) -> ElementTree.Element:
    """One image with a name and a description (https://www.w3.org/TR/svg-aam-1.0/)."""
    with _renderer():
        svg = ElementTree.fromstring(vl_convert.vegalite_to_svg(legible(spec), vl_version=VEGA_LITE, config=_ARIA_OFF))
    _slim(svg)
    for number, (tag, words) in enumerate((("title", title), ("desc", note))):
        about = ElementTree.Element(f"{{{_SVG}}}{tag}")
        about.text = legible(words)
        svg.insert(number, about)
    svg.set("role", "img")
    svg.set("aria-label", str(svg[0].text))
    return svg


@contextmanager
def _renderer() -> Iterator[None]:
    """Where vl_convert works: if it can't open files or start threads, it panics, which is no ordinary exception, or its thread
    ends without a result. Without room for its V8 that would abort the whole process."""
    _require_room()
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException" and not re.search(r"Failed to (send|retrieve)", str(error)):
            raise
        raise OSError(f"a chart can't be drawn: {in_one_line(str(error))}") from None


@cache
def _require_room() -> None:
    address_space.require(_V8_BYTES, "drawing a chart")


def legible(value: Any) -> Any:
    """The same without the characters that XML can't represent (https://www.w3.org/TR/xml/#charsets).

    vl_convert measures texts as XML; one such character in the facts would abort the whole process.
    """
    if isinstance(value, str):
        return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {key: legible(part) for key, part in value.items()}
    return [legible(part) for part in value] if isinstance(value, list) else value


def _slim(element: ElementTree.Element) -> None:
    """Remove what nobody sees (two fifths of the size): unused attributes, unpainted paths, hundredths of a pixel."""
    for child in list(element):
        is_painted = child.get("display") != "none" and (child.get("fill") or child.get("stroke"))
        if child.get("class") in ("background", "foreground") and not is_painted:
            element.remove(child)
        else:
            _slim(child)
    for name, value in list(element.items()):
        if name in _IDLE or (name, value) == ("opacity", "1"):
            del element.attrib[name]
        else:
            element.set(name, _LONG.sub(lambda found: f"{float(found[0]):.2f}", value))


_SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", _SVG)
_IDLE = frozenset({"pointer-events", "role", "aria-label", "aria-hidden", "aria-roledescription"})
_LONG = re.compile(r"-?\d+\.\d{3,}")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
