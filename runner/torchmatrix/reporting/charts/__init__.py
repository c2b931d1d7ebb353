"""Charts as rows and lines, in pages and as files. overview, gpus and cubes make others of the same nouns."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import vl_convert

from torchmatrix.ground import address_space
from torchmatrix.ground.texts import in_one_line

VEGA_LITE = "v6.4"
"""The Vega-Lite version that Altair writes; the page's runtime uses the same (vl_convert's `vl_version`)."""
INK = "#010203"
"""Stands for the page's text colour while Vega draws."""
PALETTE = ["#0072B2", "#C58400", "#009E73", "#CC6699", "#3A9BD5", "#D55E00", "#808080", "#8A7D00"]
"""Okabe and Ito's colours (https://jfly.uni-koeln.de/color/), the light ones darkened: 3 to 1 on white and on #0d1117."""
_V8_BYTES = 66 * 2**30
"""What V8 reserves, with some room."""


def png_of(svg: str, scale: float = 2.0) -> bytes:
    """A drawing with `scale` pixels per point."""
    with _renderer():
        return bytes(vl_convert.svg_to_png(svg, scale=scale))


def runtime_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which sets window.vegaEmbed. Takes a second."""
    _require_room()
    with _renderer():
        return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE))


@contextmanager
def _renderer() -> Iterator[None]:
    """Where vl_convert works: if it can't open files or start threads, it panics, which is no ordinary exception, or its thread
    ends without a result."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException" and not re.search(r"Failed to (send|retrieve)", str(error)):
            raise
        raise OSError(f"a chart can't be drawn: {in_one_line(str(error))}") from None


@cache
def _require_room() -> None:
    """Without room for V8, vl_convert would abort the whole process."""
    address_space.require(_V8_BYTES, "drawing a chart")
