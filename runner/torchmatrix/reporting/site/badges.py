"""A small image for every cell, to be shown on other pages: left what was measured, right the newest figure and its date.

badges/MACHINE/CELL.svg: red without a number if the newest launch failed, grey if a newer run didn't launch the cell.
"""

import hashlib
import math
import re
import time
from collections.abc import Sequence
from pathlib import PurePosixPath

from torchmatrix.analysis.history import Newest
from torchmatrix.ground.formatting import figure, printable
from torchmatrix.reporting.report import page

FOLDER = "badges"
_COLOURS = {"ok": "#0b6bcb", "failed": "#b42318", "stale": "#656d76"}
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST = 100
_NARROW, _WIDE = frozenset("fijlrtI.,:;|'!()[]-/ "), frozenset("mwMW%@±")
_PADDING = 6


def address_of(host: str, cell: str) -> str:
    """Of a cell's badge, relative to the site: always the same, and safe as a path and in a link, whatever the names are."""
    return "/".join([FOLDER, *map(_safe, (host, *PurePosixPath(cell).parts))]) + ".svg"


def svg(newest: Newest) -> bytes:
    """The badge of a cell."""
    left, right = printable(f"{newest.workload} · {_devices(newest.devices)} · {newest.stack}"), printable(said(newest))
    widths = [_width(left), _width(right)]
    context = {
        "title": printable(f"{newest.cell} on {newest.host}: {said(newest)}"),
        "texts": [(left, _PADDING, widths[0]), (right, widths[0] + 3 * _PADDING, widths[1])],
        "edge": widths[0] + 2 * _PADDING,
        "width": sum(widths) + 4 * _PADDING,
        "colour": _COLOURS[state(newest)],
    }
    return page.small("badge.svg.j2", **context).encode()


def state(newest: Newest) -> str:
    """ok, failed or stale."""
    return "failed" if newest.outcome != "ok" else "stale" if newest.is_stale else "ok"


def said(newest: Newest) -> str:
    """Such as "2412 ± 8.3 images/s · 2026-03-01"."""
    day = "n/a" if math.isnan(newest.started) else time.strftime("%Y-%m-%d", time.gmtime(newest.started))
    what = f"failed: {newest.outcome}" if newest.outcome != "ok" else f"{with_margin(newest)} {newest.unit}/s"
    return f"{what} · {'stale, ' if newest.is_stale else ''}{day}"


def with_margin(newest: Newest) -> str:
    """The figure ± half its interval; alone if it has none."""
    half = (newest.high - newest.low) / 2
    return figure(newest.throughput) + ("" if math.isnan(half) else f" ± {float(f'{half:.2g}'):g}")


def _devices(label: str) -> str:
    """As in the cell's id; from three numbers in a row on only the ends: gpu0+1+2+3 is gpu0–3."""
    found = re.fullmatch(r"(\D+)(\d+(?:\+\d+){2,})", label)
    numbers: Sequence[int] = [int(number) for number in found[2].split("+")] if found else ()
    if not found or list(numbers) != list(range(numbers[0], numbers[0] + len(numbers))):
        return label
    return f"{found[1]}{numbers[0]}–{numbers[-1]}"


def _safe(name: str) -> str:
    """The name itself if it is safe; else what is safe of it, and enough of its hash to be nobody else's."""
    plain = _UNSAFE.sub("-", name).strip(".-")[:_LONGEST]
    return plain if plain == name else f"{plain or 'cell'}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"


def _width(text: str) -> int:
    """About the width in a sans-serif of 11 pixels; the image tells the browser to make it fit."""
    return round(sum(4.0 if letter in _NARROW else 9.5 if letter in _WIDE else 6.8 for letter in text))
