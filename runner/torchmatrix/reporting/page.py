"""Templates -> one self-contained HTML file with its styles and its script.
Everything from the facts is escaped, and the page's own policy lets a browser run the page's scripts only.
"""

import base64
import gzip
import hashlib
import json
import math
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from torchmatrix.analysis.intervals import Interval
from torchmatrix.core import __version__, assets
from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import disk_errors, write_to
from torchmatrix.core.formatting import UNKNOWN, figure, is_known
from torchmatrix.core.inputs import LARGE_FILE_BYTES, read_bytes, toml_of
from torchmatrix.core.secrets import cleaned, cleaned_value
from torchmatrix.core.toml_keys import shown
from torchmatrix.matrix.matrix_file import ACCENT
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import Chart, Panel, by_section, scale_of
from torchmatrix.reporting.charts.files import Style, file_csv, file_svg
from torchmatrix.reporting.exports.formats import png_of

if TYPE_CHECKING:
    from torchmatrix.analysis.published.claims import Claim, Tested
    from torchmatrix.reporting.overview.answers import Answers

# The templates' filters, which write figures: four significant digits, a dash if unknown.


def ratio(value: Any) -> str:
    """Write a ratio with three decimals."""
    return f"{round(value, 3) + 0.0:.3f}" if is_known(value) else UNKNOWN


def utc(seconds: float | None) -> str:
    """Write a time to the minute."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds)) if is_known(seconds) else UNKNOWN


def _limits(interval: Interval, kind: str) -> str:
    """Write both ends of an interval as `kind` of number: figure or ratio."""
    write = figure if kind == "figure" else ratio
    return UNKNOWN if math.isnan(interval.low) else f"{write(interval.low)} – {write(interval.high)}"


def _range(claim: "Claim | Tested") -> str:
    """Write a range from low to high; one number if they are equal, "more than" if there is no upper end."""
    if math.isinf(claim.high):
        return f"more than {claim.low:g}"
    return f"{claim.low:g}" if claim.low == claim.high else f"{claim.low:g} – {claim.high:g}"


def _pattern_filter(pattern: str, factor: float = 1.0) -> Any:
    """Make a filter that writes `factor` times a number by `pattern`."""
    return lambda value: pattern.format(factor * value) if is_known(value) else UNKNOWN


def _in_unit(value: Any, unit: str) -> str:
    """Write four significant digits and the unit."""
    return f"{figure(value)} {unit}" if is_known(value) else UNKNOWN


def _unit_filter(unit: str, factor: float = 1.0) -> Any:
    """Make a filter that writes four significant digits and the unit."""
    return lambda value: _in_unit(factor * value, unit) if is_known(value) else UNKNOWN


FILTERS = {
    "devices": words.devices,
    "outcome": lambda outcome: words.OUTCOMES.get(outcome, outcome),
    "verdict": words.verdict,
    "figure": figure,
    "in_unit": _in_unit,
    "ratio": ratio,
    "effect": words.effect,
    "limits": _limits,
    "range": _range,
    "whole": _pattern_filter("{:.0f}"),
    "percent": _pattern_filter(f"{{:.2f}}{words.THIN}%", 100),
    "share": _pattern_filter(f"{{:.1f}}{words.THIN}%", 100),
    "bytes": _pattern_filter("{:.2f} GiB", 2**-30),
    "mebibytes": _pattern_filter("{:.1f} MiB", 2**-20),
    "seconds": _pattern_filter("{:.1f} s"),
    "latency": _unit_filter("ms", 1e3),
    "known": is_known,
    "milliseconds": _pattern_filter("{:.2f} ms", 1e3),
    "degrees": _pattern_filter("{:.0f} °C"),
    "watts": _pattern_filter("{:.0f} W"),
    "joules": _unit_filter("J"),
    "bandwidth": _unit_filter("GB/s", 1e-9),
}


_INDENTED = re.compile(r"\n[ \t]*(?=</?t[dhr]\b)")
"""White space between the parts of a table: browsers ignore it, and it would be a tenth of a large page."""
_ENDS = re.compile(r"</t[dr]>\s*(?=<t[dr][\s>]|</t(?:r|body)>)")
_CONTROLLING = re.compile("[\0-\b\v-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""C0 and C1 but tab and line feed, and the bidirectional controls: https://www.unicode.org/reports/tr9/"""
MOST_UNPACKED = 200
"""A table with more rows is parsed when its fold is opened (fold.html.j2)."""
_MARKING = 'document.documentElement.classList.add("scripted")'
"""Tells the styles that the page's scripts run. The media feature `scripting` is true also where a website forbids them."""
_PACKING = """document.write('<noscript class="packed">')"""
"""Turns the following HTML into text, up to the end of this element."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Brand:
    """Whose page it is: its `title` instead of ours, its `logo` (an image as the address of data), its `accent`, as #rrggbb."""

    title: str = ""
    logo: str = ""
    accent: str = ""


OURS = Brand()
LOGOS = {"png": "image/png", "svg": "image/svg+xml", "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp"}
MOST_LOGO_BYTES = 200_000


def brand_of(title: str | None, logo: Path | None, accent: str | None) -> Brand:
    """Return the brand of a page. Raises BadInput for a colour or a logo that can't be used."""
    if accent and not re.fullmatch(ACCENT, accent):
        raise BadInput(f"{shown(accent)} is no colour", hint="a colour is # and six hexadecimal digits, such as #0a5aa8")
    return Brand(title=title or "", logo=_logo(logo) if logo else "", accent=accent or "")


def brand_in(matrix: str) -> Brand:
    """Return the brand of the [report] table of a matrix file's text. Raises BadInput for one that can't be used."""
    table = toml_of(matrix, "the matrix", hint="torchmatrix plan names its faults").get("report")
    keys = table if isinstance(table, dict) else {}
    title, logo, accent = (value if isinstance(value := keys.get(name), str) else None for name in ("title", "logo", "accent"))
    return brand_of(title, Path(logo) if logo else None, accent)


def _logo(path: Path) -> str:
    mime = LOGOS.get(path.suffix.lower().removeprefix("."))
    if mime is None:
        raise BadInput(f"{path} is no image that a page can hold", hint=f"one of {', '.join(LOGOS)}")
    hint = "--logo FILE names an image"
    try:
        content = read_bytes(path, hint=hint, most_bytes=LARGE_FILE_BYTES)
    except FileNotFoundError:
        raise BadInput(f"can't read the logo {path}: there is no such file", hint=hint) from None
    if len(content) > MOST_LOGO_BYTES:
        raise BadInput(f"the logo {path} has {len(content):,} bytes", hint=f"at most {MOST_LOGO_BYTES:,}")
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What stands at the top of a page of figures and in a link to it. `heading`: what was measured; `title`: with its first
    figure; `description`: its first sentence; `source`: how it was measured.
    """

    heading: str
    title: str
    description: str
    source: str


def head_of(heading: str, versions: Iterable[str], answers: "Answers", source: str) -> Head:
    """Make the head of a page; `versions`: the stacks, if it is about one machine."""
    first = answers.each[0] if answers.each else None
    figure = f"{first.figure} " if first and first.unit == "×" else ""
    finding = f"{figure}{words.with_unit(first.value, first.unit).replace(f'{words.SPACE}×', '×')}" if first else ""
    title = ": ".join(filter(None, (", ".join(filter(None, (heading, words.enumerated(versions, 4)))), finding)))
    return Head(heading=heading, title=title, description=answers.lead, source=source)


def hardware(host: Mapping[str, Any]) -> str:
    """Describe a machine's devices, such as "4 × NVIDIA H200", or its CPU."""
    names = [str(gpu.get("name")) for gpu in host.get("gpus") or ()]
    counted = [f"{names.count(name)} × {name}" for name in sorted({*names})]
    return cleaned(", ".join(counted) or str(host.get("cpu") or "unknown hardware"))


def launches_each(counts: Collection[int]) -> str:
    """Write of how many launches figures are: "3 launches each"."""
    ends = dict.fromkeys(map(str, (min(counts), max(counts)))) if counts else ()
    return f"{' to '.join(ends)} launch{'es' * (max(counts) > 1)} each" if counts else "no figure"


def render(template: str, **context: Any) -> str:
    """Render a page from `template`. Bytes of a name that are no UTF-8 become escapes, such as \\udce9.

    What controls a terminal, or turns text round, becomes a blank: a reader sees, and copies, what was written.
    """
    hashes = " ".join(_hash(text) for text in (_script(), _MARKING, _PACKING))
    fixed = {"version": __version__, "script": _script(), "script_hashes": Markup(hashes), "links": {}, "brand": OURS}
    page = _INDENTED.sub("", _environment().get_template(template).render(fixed | context))
    page = page.replace('<td class="n">', "<td class=n>")  # the quotes of a large page's cells are 70 KB
    return _CONTROLLING.sub(" ", page).encode(errors="backslashreplace").decode()


def chart_files(charts: Iterable[Chart], style: Style) -> str:
    """Return every chart as SVG and CSV for the page's script: by id JSON in gzip in base64; "" where none has a value."""
    drawn = [chart for chart in charts if chart.has_values]
    if not drawn:
        return ""
    held = {chart.id: {"svg": file_svg(chart, style), "csv": file_csv(chart, style)} for chart in drawn}
    text = json.dumps(held, ensure_ascii=False)
    return base64.b64encode(gzip.compress(text.encode(errors="backslashreplace"), mtime=0)).decode()


APART, PREVIEW = "charts", "preview.png"


def charts_apart(
    charts: Sequence[Chart], style: Style, colours: Sequence[tuple[str, str]], head: Head, brand: Brand
) -> dict[str, bytes]:
    """Return each chart as a page of its own to be shown in other pages, and a picture of the first for links, by name."""
    files = {
        f"{APART}/{chart.id}.html": render("chart.html.j2", chart=chart, head=head, colours=colours, brand=brand).encode()
        for chart in charts
    }
    if charts:
        with suppress(BadInput, OSError):  # a link then shows no picture
            files[f"{APART}/{PREVIEW}"] = png_of(file_svg(charts[0], style), 1.25)
    return files


def small(template: str, **context: Any) -> str:
    """Render `template` without the frame of a page, such as an image."""
    return _environment().get_template(template).render(context)


def save(page: str, output: Path) -> Path:
    """Write a page atomically. Raises EngineUnusable."""
    with disk_errors(output, hint="the facts are safe; write elsewhere: --output FILE"):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_to(output, page.encode())
    return output


SCRIPTS = ("page", "choose", "draw", "explore", "start")
"""The files of the page's script, in the order in which they are joined."""


@cache
def _script() -> str:
    """Join the files in templates/scripts into one script without their comments that leaves no names in the page."""
    return "\n".join(['(() => {\n"use strict";', source(*SCRIPTS), "})();"])


def source(*names: str) -> str:
    """Read these files of the page's script, without their comments and indentation; no text in them spans lines."""
    files = [(assets.TEMPLATES / "scripts" / f"{name}.js").read_text(encoding="utf-8") for name in names]
    return "\n".join(re.sub(r"(?m)^ *(?://.*\n)?", "", text) for text in files)


def _hash(script: str) -> str:
    """Return the hash by which a Content-Security-Policy names a script: https://www.w3.org/TR/CSP3/#grammardef-hash-source."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _cell(value: Any) -> str:
    """Write a value of a chart's table: numbers to four significant digits (counts whole), a dash for what is unknown."""
    if value is None or (isinstance(value, float) and not is_known(value)):
        return UNKNOWN
    return figure(value) if isinstance(value, float) else str(value)


def _spans(panels: Sequence[Panel]) -> str:
    """Return the width of the second panel's scale relative to the first's, so that both have as many pixels per unit."""
    first, second = (scale_of(panel.rows) if any(row.value for row in panel.rows) else 0.0 for panel in panels)
    if not first or not second:
        return "1fr"
    return f"{min(12.0, max(1 / 12, second / first)):.4f}fr"


def _squeezed(styles: str) -> Markup:
    """Leave out white space that means nothing in styles: around braces, semicolons and commas, and after a property's name."""
    return Markup(re.sub(r"([a-z-]): ", r"\1:", re.sub(r"\s*([{};,])\s*", r"\1", styles)))


def _without_end_tags(table: Markup) -> Markup:
    """Remove end tags: a cell or row ends where the next begins (https://html.spec.whatwg.org/#optional-tags)."""
    return Markup(_ENDS.sub("", table))


class _Recorded(dict[str, Any]):
    """Facts of which a run may lack some: these are empty texts."""

    def __missing__(self, key: str) -> str:
        return ""


def recorded(facts: Any) -> Any:
    """Return recorded facts for a template, in which every fact that isn't there is an empty text."""
    if isinstance(facts, Mapping):
        return _Recorded((key, recorded(value)) for key, value in facts.items())
    return [recorded(value) for value in facts] if isinstance(facts, list | tuple) else facts


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(assets.TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else cleaned_value(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS | {
        "cell": _cell,
        "without_end_tags": _without_end_tags,
        "spans": _spans,
        "squeezed": _squeezed,
        "by_section": by_section,
    }
    environment.globals |= {"most_unpacked": MOST_UNPACKED, "marking": _MARKING, "packing": _PACKING}
    return environment
