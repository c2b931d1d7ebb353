"""Sentences and labels of the explorers; reports/templates/explore.js says the same of what a reader picks."""

from collections.abc import Sequence

from torchmatrix.analysis.verdicts import Significance
from torchmatrix.ground.numbers import HUGE, UNKNOWN, figure
from torchmatrix.reporting import words
from torchmatrix.reporting.charts.drawing import shorten
from torchmatrix.reporting.explorers.choosing import Dim, Row, named, said, varying

WIDTH = 360
"""Of a panel in pixels: three stand side by side on a screen, one on a phone."""
WHO = ("gpu", "machine", "stack")
_LETTER, _BOLD = 6.8, 7.6
_LINE = int(WIDTH / _LETTER)


def who(dims: Sequence[Dim]) -> list[Dim]:
    """What tells bars or lines of one setting apart: of GPU, machine and stack those with several values, else the stack."""
    several = [dim for dim in dims if dim.name in WHO and len(dim.values) > 1]
    return several or [dim for dim in dims if dim.name == "stack"]


def name_of(dims: Sequence[Dim], row: Row, settings: Sequence[Dim]) -> str:
    """Such as "torch2.7.1-cu128, torch.compile"."""
    return ", ".join([" · ".join(said(who(dims), row)), *said(settings, row)])


def context(dims: Sequence[Dim], rows: Sequence[Row], besides: Sequence[str] = ()) -> str:
    """The settings that all these rows share and others don't, as a sentence ends: "with amp, torch.compile, batch 64"."""
    differing = {dim.name for dim in varying(dims, rows, ())}
    unsaid = {*WHO, "model", "mode", "devices", "set", "variant", *besides} | differing
    shared = [
        dim for dim in dims if dim.name not in unsaid and (dim.name == "precision" or len(set(dim.values) - {"none"}) > 1)
    ]
    found = [word for word in said(shared, rows[0]) if word != UNKNOWN]
    return f" with {', '.join(found)}" if found else ""


def where(dims: Sequence[Dim], row: Row) -> str:
    """The devices: 8 × H100 SXM; which of them, if there are other sets of so many."""
    gpu, count = (dim.labels[row[dim.name]] for dim in dims if dim.name in ("gpu", "devices"))
    found = count if gpu.startswith("CPU") else gpu if row["N"] == 1 else f"{row['N']} × {gpu}"
    return f"{found} ({row['which']})" if row["which"] else found


def shared_place(dims: Sequence[Dim], rows: Sequence[Row]) -> str:
    """The devices of rows that are compared on equal numbers of them; only their number, if the rows differ in which."""
    places = {where(dims, row) for row in rows}
    (count,) = (dim.labels[rows[0]["devices"]] for dim in dims if dim.name == "devices")
    return places.pop() if len(places) == 1 else count


def places(dims: Sequence[Dim], rows: Sequence[Row]) -> str:
    """The devices of several cells."""
    found = list(dict.fromkeys(where(dims, row) for row in rows))
    return found[0] if len(found) == 1 else f"{len(found)} sets of devices"


def of_machine(dims: Sequence[Dim], row: Row) -> str:
    """Such as " of gpu01", for what is of one machine among several."""
    machine = named(dims, "machine")
    return f" of {machine.labels[row['machine']]}" if len(machine.values) > 1 else ""


def job(dims: Sequence[Dim], row: Row) -> str:
    """Such as "a trains resnet50 with amp"; with the workload's name if other settings differ from another cell's."""
    model, mode, variant = said([named(dims, name) for name in ("model", "mode", "variant")], row)
    name = " · ".join(said(who(dims), row))
    return f"{name} {words.verb(mode)} {model}{context(dims, [row])}{f' ({variant})' if variant else ''}"


def doing(dims: Sequence[Dim], row: Row) -> str:
    """Such as "a trains resnet50 with amp on 8 × H200 SXM"."""
    return f"{job(dims, row)} on {where(dims, row)}"


def short(value: float) -> str:
    """Three significant digits, or whole above 100."""
    return f"{value:.0f}" if 100 <= value < HUGE else f"{value + 0.0:.3g}"


def captions(labels: Sequence[str], texts: Sequence[str]) -> tuple[list[Row], list[int]]:
    """A label and a text above each row of marks, and the rows of the marks; a label that is too long has a row to itself."""
    found: list[Row] = []
    marks = []
    for label, text, fits in zip(labels, texts, fitting(labels, [room(text) for text in texts]), strict=True):
        if fits is None:
            found.append({"row": len(found), "label": label, "short": "", "words": "", "whole": line(label)})
        marks.append(len(found))
        found.append({"row": len(found), "label": label, "short": fits or "", "words": text, "whole": ""})
    return found, marks


def limits(low: float | None, high: float | None) -> str:
    """Of a figure; "" without an interval."""
    return "" if low is None or high is None else f"95 % interval {figure(low)} to {figure(high)}"


def confidence(level: Significance) -> str:
    """Of the intervals that agree with what is told at this level, such as "98.75 %"."""
    return f"{100 * (1 - level.differs):.4g} %"


def corrected(level: Significance) -> str:
    """How what a page says of differences is corrected; "" for a single comparison."""
    if level.comparisons < 2:
        return ""
    return (
        f"This report makes {level.comparisons} comparisons; a difference counts if its p-value is at most "
        f"{level.differs:.3g}, so that at most 5 % of those told are false (Benjamini and Hochberg)."
    )


def fitting(labels: Sequence[str], room: Sequence[int]) -> list[str | None]:
    """Each label in its room, shortened only where all labels agree; None where it doesn't fit even so."""
    distinct = list(dict.fromkeys(labels))
    start, end = _common(distinct), _common([label[::-1] for label in distinct])
    return [_fitted(label, letters, start, end) for label, letters in zip(labels, room, strict=True)]


def _common(texts: Sequence[str]) -> int:
    """How many letters all texts begin with; 0 of a single one."""
    if len(texts) < 2:
        return 0
    first, last = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def _fitted(label: str, letters: int, start: int, end: int) -> str | None:
    short = label
    if len(short) > letters and start > 3:
        kept = max(2, start - 1 - (len(short) - letters))
        short = f"{short[:kept]}…{short[start:]}"
    if len(short) > letters and end > 3:
        kept = max(2, end - 1 - (len(short) - letters))
        short = f"{short[:-end]}…{short[-kept:]}"
    return short if len(short) <= letters else None


def line(label: str) -> str:
    """A label that has a line to itself, shortened in its middle only where even that is too short."""
    return shorten(label, _LINE)


def room(text: str) -> int:
    """How many letters fit left of this bold text."""
    return int((WIDTH - _BOLD * len(text) - 10) / _LETTER)
