"""A chart as a file of its own: SVG on white with its source, and its figures as CSV."""

import csv
import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import zip_longest
from typing import Any

from torchmatrix.core.formatting import csv_field, in_one_line
from torchmatrix.core.secrets import cleaned
from torchmatrix.reporting.charts import BarRow, Chart, Panel

FONT = "system-ui, sans-serif"
_NOT_XML = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
"""Characters that XML can't represent (https://www.w3.org/TR/xml/#charsets), of which one would abort the process that makes a
PNG, and those that turn text round."""
_WIDTH, _LABEL, _CHARACTER, _ROW = 960, 230, 6.6, 24
_INK, _SOFT, _MISSING = "#14181d", "#57606b", "#dfe4e9"
_FILL, _BAD, _GOOD = "#2563a8", "#b3261e", "#1a6e3c"


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """What the charts of a page share. `colours`: by number, on white. `source`: where and how they were measured."""

    colours: Sequence[str] = ()
    source: str = ""

    def colour(self, number: int) -> str:
        """Return the colour of a series; of -1 and -2, those of slower and faster."""
        if number < 0:
            return _BAD if number == -1 else _GOOD
        return self.colours[number] if number < len(self.colours) else _FILL


PLAIN = Style()


def file_svg(chart: Chart, style: Style = PLAIN) -> str:
    """Draw the chart: its title, its panels one after the other, what is not drawn, and its source."""
    lines, y = [], 8
    title, sub = cleaned(chart.title), cleaned(chart.sub)
    for text, width, size, weight, colour in ((title, 88, 20, 700, _INK), (sub, 140, 13, 400, _SOFT)):
        for part in textwrap.wrap(text, width):
            y += size + 6
            lines.append(_text(16, y, part, size=size, weight=weight, colour=colour))
    if chart.legend:
        y += 30
        lines += _legend(chart, style, y)
    y += 30
    for panel in (panel for row in chart.panels for panel in row):
        lines.append(_text(16, y, panel.title, size=14, weight=700))
        lines.append(_text(_WIDTH - 16, y, panel.unit, size=13, colour=_SOFT, anchor="end"))
        columns = [panel.heads, *(row.figures for row in panel.rows)]
        widths = [_CHARACTER * max(map(len, texts)) + 14 for texts in zip_longest(*columns, fillvalue="")]
        for value, text in panel.ticks:
            lines.append(_text(_x(panel, widths, value), y, text, size=12, colour=_SOFT, anchor="middle"))
        if panel.heads:
            y += _ROW
            lines += _figures(panel.heads, widths, y, 400, _SOFT)
        y += 6
        for row in panel.rows:
            if row.head:
                y += _ROW
                lines.append(_text(16, y, row.head, size=13, colour=_SOFT))
            y += _ROW
            lines += _svg_row(panel, row, y, widths, style)
        y += 34
    notes = [f"Not drawn: {chart.more}." if chart.more else "", style.source]
    for part in (part for note in notes for part in textwrap.wrap(cleaned(note), 150)):
        lines.append(_text(16, y, part, size=12, colour=_SOFT))
        y += 18
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}" role="img"'
    about = f"<title>{_escaped(title)}</title><desc>{_escaped(sub)}</desc>"
    return f'{head} font-family="{FONT}">{about}<rect width="100%" height="100%" fill="white"/>{"".join(lines)}</svg>'


def _legend(chart: Chart, style: Style, y: float) -> Iterator[str]:
    x = 16.0
    for number, text in chart.legend:
        yield f'<rect x="{x:.1f}" y="{y - 11}" width="13" height="13" fill="{style.colour(number)}"/>'
        yield _text(x + 19, y, text, size=13)
        x += 19 + 1.1 * _CHARACTER * len(text) + 20


def _x(panel: Panel, widths: Sequence[float], value: float | None) -> float:
    """Return a place on the scale in pixels."""
    return 16 + _LABEL + panel.share(value) * (_WIDTH - 42 - _LABEL - sum(widths))


def _svg_row(panel: Panel, row: BarRow, y: float, widths: Sequence[float], style: Style) -> Sequence[str]:
    weight = 700 if row.is_best else 400
    label = _text(16, y, " ".join([row.label, *(word for word, _ in row.marks)]), size=13, weight=weight)
    if row.problem:
        colour = _BAD if row.problem.startswith("failed") else _SOFT
        return [label, _text(16 + _LABEL, y, row.problem, size=13, colour=colour)]
    return [label, *_drawing(panel, row, y, widths, style), *_figures(row.figures, widths, y, weight)]


def _drawing(panel: Panel, row: BarRow, y: float, widths: Sequence[float], style: Style) -> Iterator[str]:
    x = partial(_x, panel, widths)
    if row.value is not None:
        if row.ideal is not None and row.value < row.ideal:
            yield _bar(x(row.value), x(row.ideal), y, _MISSING)
        begin = x(panel.low if row.begin is None else row.begin)
        if row.layers:
            yield from (_bar(begin, x(value), y, style.colour(number)) for value, number in row.layers)
        elif row.shape == "bar":
            yield _bar(min(begin, x(row.value)), max(begin, x(row.value)), y, style.colour(row.colour))
        else:
            yield f'<circle cx="{x(row.value):.1f}" cy="{y - 5}" r="4.5" fill="{style.colour(row.colour)}"/>'
    yield from (_line(x(value), x(value), y - 13, y + 3, _SOFT) for value in row.strokes)
    if row.value is not None and row.low is not None and row.high is not None:
        yield _line(x(row.low), x(row.high), y - 5, y - 5, _INK)
    if row.ideal is not None:
        yield _line(x(row.ideal), x(row.ideal), y - 14, y + 4, _INK, ' stroke-dasharray="3 2.5"')


def _figures(texts: Sequence[str], widths: Sequence[float], y: float, weight: int, colour: str = _INK) -> Iterator[str]:
    ends = [_WIDTH - 16 - sum(widths[place + 1 :]) for place in range(len(texts))]
    for end, text in zip(ends, texts, strict=True):
        yield _text(end, y, text, size=13, anchor="end", weight=weight, colour=colour)


def _bar(begin: float, end: float, y: float, colour: str) -> str:
    return f'<rect x="{begin:.1f}" y="{y - 12}" width="{end - begin:.1f}" height="14" fill="{colour}"/>'


def _line(x1: float, x2: float, y1: float, y2: float, colour: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1}" y2="{y2}" stroke="{colour}" stroke-width="1.4"{more}/>'


def _text(x: float, y: float, text: str, *, size: int, colour: str = _INK, weight: int = 400, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" font-weight="{weight}" fill="{colour}">{_escaped(cleaned(text))}</text>'


def _escaped(text: str) -> str:
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))


def _field(value: Any) -> Any:
    return csv_field(cleaned(value) if isinstance(value, str) else value)


def file_csv(chart: Chart, style: Style = PLAIN) -> str:
    """Write a line for each bar or dot, or layer of a bar: where it is, its value, the ends of its interval, a note."""
    names, written = dict(chart.legend), io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(("panel", "unit", "group", "label", "series", "value", "low", "high", "note"))
    for panel in (panel for beside in chart.panels for panel in beside):
        group = ""
        for row in panel.rows:
            group = row.head or group
            what = [panel.title, panel.unit, group, row.label]
            note = row.problem or row.note
            for value, number in row.layers:
                ends = (row.low, row.high) if value == row.value else (None, None)
                table.writerow(map(_field, (*what, names.get(number, ""), value, *ends, note)))
            if not row.layers:
                table.writerow(map(_field, (*what, names.get(row.colour, ""), row.value, row.low, row.high, note)))
    return f"{written.getvalue()}# {in_one_line(style.source)}\n" if style.source else written.getvalue()
