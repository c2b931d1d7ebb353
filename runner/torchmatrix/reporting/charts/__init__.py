"""Charts as rows and lines, in pages and as files. overview, gpus and cubes make other charts of the same parts."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import vl_convert

from torchmatrix.core.formatting import in_one_line


def png_of(svg: str, scale: float = 2.0) -> bytes:
    """Render a drawing with `scale` pixels per point."""
    with _renderer():
        return bytes(vl_convert.svg_to_png(svg, scale=scale))


@contextmanager
def _renderer() -> Iterator[None]:
    """Raise OSError where vl_convert fails: if it can't open files or start threads, it panics, which is no ordinary
    exception, or its thread ends without a result.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException" and not re.search(r"Failed to (send|retrieve)", str(error)):
            raise
        raise OSError(f"a chart can't be drawn: {in_one_line(str(error))}") from None
