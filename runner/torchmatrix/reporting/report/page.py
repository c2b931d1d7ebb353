"""Templates -> one self-contained HTML file with its styles and its script.

Everything from the facts is escaped, and the page's own policy lets a browser run our own scripts only.
"""

import base64
import hashlib
import math
import re
import time
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from torchmatrix import __version__
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.published.claims import Claim, Tested
from torchmatrix.core import assets
from torchmatrix.core.errors import EngineUnusable
from torchmatrix.core.files import write_to
from torchmatrix.core.formatting import figure, is_known
from torchmatrix.reporting import words
from torchmatrix.reporting.charts.rows import Panel, scale_of
from torchmatrix.reporting.redaction.secrets import without_secrets

# Figures as a reader sees them: four significant digits, n/a if unknown. These are the filters of the templates.


def ratio(value: Any) -> str:
    """Three decimals."""
    return f"{round(value, 3) + 0.0:.3f}" if is_known(value) else "n/a"


def times(value: Any) -> str:
    """A ratio with its sign: ×1.234."""
    return f"×{ratio(value)}" if is_known(value) else "n/a"


def utc(seconds: float | None) -> str:
    """To the minute."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds)) if is_known(seconds) else "n/a"


def _limits(found: Interval, kind: str) -> str:
    """Both ends of an interval, written as `kind` of number: figure or ratio."""
    write = figure if kind == "figure" else ratio
    return "n/a" if math.isnan(found.low) else f"{write(found.low)} – {write(found.high)}"


def _range(found: Claim | Tested) -> str:
    """From low to high; one number if they are equal, "more than" if there is no upper end."""
    if math.isinf(found.high):
        return f"more than {found.low:g}"
    return f"{found.low:g}" if found.low == found.high else f"{found.low:g} – {found.high:g}"


def _written(pattern: str, factor: float = 1.0) -> Any:
    """A filter that writes `factor` times a number by `pattern`."""
    return lambda value: pattern.format(factor * value) if is_known(value) else "n/a"


def _with_unit(unit: str, factor: float = 1.0) -> Any:
    """A filter that writes four significant digits and the unit."""
    return lambda value: f"{figure(factor * value)} {unit}" if is_known(value) else "n/a"


FILTERS = {
    "devices": words.devices,
    "outcome": lambda outcome: words.OUTCOMES.get(outcome, outcome),
    "verdict": words.verdict,
    "figure": figure,
    "ratio": ratio,
    "times": times,
    "limits": _limits,
    "range": _range,
    "whole": _written("{:.0f}"),
    "percent": _written("{:.2f} %", 100),
    "share": _written("{:.1f} %", 100),
    "bytes": _written("{:.2f} GiB", 2**-30),
    "mebibytes": _written("{:.1f} MiB", 2**-20),
    "seconds": _written("{:.1f} s"),
    "latency": _with_unit("ms", 1e3),
    "known": is_known,
    "milliseconds": _written("{:.2f} ms", 1e3),
    "degrees": _written("{:.0f} °C"),
    "watts": _written("{:.0f} W"),
    "joules": _with_unit("J"),
    "bandwidth": _with_unit("GB/s", 1e-9),
}


_INDENTED = re.compile(r"\n[ \t]*(?=</?t[dhr]\b)")
"""White space between the parts of a table. Browsers ignore it, and it would be a tenth of a large page."""
_ENDS = re.compile(r"</t[dr]>\s*(?=<t[dr][\s>]|</t(?:r|body)>)")
MOST_UNPACKED = 200
"""A table with more rows is parsed when its fold is opened (fold.html.j2)."""
_MARKING = 'document.documentElement.classList.add("scripted")'
"""Tells the styles that our scripts run. The media feature `scripting` is true also where a website forbids them."""
_PACKING = """document.write('<noscript class="packed">')"""
"""Makes what follows text, up to the end of this element."""


def render(template: str, **context: Any) -> str:
    """The page made from `template`."""
    hashes = " ".join(_hash(text) for text in (_script(), _MARKING, _PACKING))
    fixed = {"version": __version__, "script": _script(), "script_hashes": Markup(hashes)}
    page = _INDENTED.sub("", _environment().get_template(template).render(fixed | context))
    return page.replace('<td class="n">', "<td class=n>")  # the quotes of a large page's cells are 70 KB


def small(template: str, **context: Any) -> str:
    """What `template` makes without the frame of a page, such as an image."""
    return _environment().get_template(template).render(context)


def save(page: str, output: Path) -> Path:
    """Write a page atomically. Raises EngineUnusable."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_to(output, page.encode())
    except OSError as error:
        raise EngineUnusable(
            f"can't write {output}: {error.strerror}",
            hint="the facts are safe; write elsewhere: --output FILE",
        ) from None
    return output


SCRIPTS = ("page", "choose", "draw", "explore", "start")
"""The files of the page's script, in the order in which they are joined."""


@cache
def _script() -> str:
    """What the files in templates/scripts do, as one script without their comments that leaves no names in the page."""
    return "\n".join(['(() => {\n"use strict";', source(*SCRIPTS), "})();"])


def source(*names: str) -> str:
    """These files of the page's script."""
    files = [(assets.TEMPLATES / "scripts" / f"{name}.js").read_text(encoding="utf-8") for name in names]
    return "\n".join(re.sub(r"(?m)^ *//.*\n", "", text) for text in files)


def _hash(script: str) -> str:
    """The hash by which a Content-Security-Policy names a script: https://www.w3.org/TR/CSP3/#grammardef-hash-source."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _cell(value: Any) -> str:
    """A value of a chart's table: numbers to four significant digits (counts whole), n/a for what is unknown."""
    if value is None or (isinstance(value, float) and not is_known(value)):
        return "n/a"
    return figure(value) if isinstance(value, float) else str(value)


def _spans(panels: Sequence[Panel]) -> str:
    """How wide the second panel's scale is in terms of the first's, so that both have as many pixels per unit."""
    first, second = (scale_of(panel.rows) if any(row.value for row in panel.rows) else 0.0 for panel in panels)
    if not first or not second:
        return "1fr"
    return f"{min(12.0, max(1 / 12, second / first)):.4f}fr"


def _without_end_tags(table: Markup) -> Markup:
    """The same table: a cell or row ends where the next begins (https://html.spec.whatwg.org/#optional-tags)."""
    return Markup(_ENDS.sub("", table))


def _without_secrets(value: Any) -> Any:
    """Escape every text from the facts; what the templates mark as safe is our own."""
    return _cleaned(value) if type(value) is str and len(value) > 12 else value


_cleaned = lru_cache(16384)(without_secrets)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(assets.TEMPLATES),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        finalize=_without_secrets,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS | {"cell": _cell, "without_end_tags": _without_end_tags, "spans": _spans}
    environment.globals |= {"most_unpacked": MOST_UNPACKED, "marking": _MARKING, "packing": _PACKING}
    return environment
