"""The explorer of single devices: is one weak? A panel for each stack and job, a dot for each device."""

from collections.abc import Sequence
from typing import Any

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import INK
from torchmatrix.reporting.explorers import pairs
from torchmatrix.reporting.explorers.choosing import Choice, Dim, Question, Row, grouped, named, said
from torchmatrix.reporting.explorers.data import Data
from torchmatrix.reporting.explorers.looks import colour_of
from torchmatrix.reporting.explorers.panels import Panel
from torchmatrix.reporting.explorers.saying import job

QUESTION = Question(name="alone", panels=(), whole={"gpu": 6, "machine": 6, "stack": 6}, free=("set",))
NOTE = f"{DEFINITIONS['weak']} {DEFINITIONS['ratio_interval']}"
_AXIS = "times the median device"


def panels(data: Data, choice: Choice) -> list[Panel]:
    """One for each stack and job."""
    groups = grouped(choice.rows, [dim.name for dim in data.dims if dim.name != "set"])
    return [_panel(data.dims, rows) for rows in groups]


def _panel(dims: Sequence[Dim], rows: Sequence[Row]) -> Panel:
    found = [_line(dims, row) for row in rows]
    drawn, params = pairs.placed(found, [one["words"] for one in found])
    return Panel(name=words.slug(rows[0]["cell"]), title=_title(dims, rows), rows=drawn, params=params)


def _line(dims: Sequence[Dim], row: Row) -> Row:
    part = row["part"]
    limits = {} if part["low"] is None else {"low": part["low"], "high": part["high"]}
    is_median = bool(limits) and part["low"] == part["high"] == 1
    ratio = pairs.ratio_words(part["ratio"], part["low"], part["high"])
    text = "the median device" if is_median else f"{'weak: ' if part['weak'] else ''}{ratio}"
    look = {"colour": INK, "mean": 1} if part["weak"] else {"colour": colour_of(dims, row)}
    return {
        "label": _device(dims, row),
        "words": text,
        "value": part["ratio"],
        **limits,
        "counts": f"{row['n']} launches",
        **look,
    }


def _device(dims: Sequence[Dim], row: Row) -> str:
    return said([named(dims, "set")], row)[0]


def _title(dims: Sequence[Dim], rows: Sequence[Row]) -> str:
    of = f"the median {named(dims, 'gpu').labels[rows[0]['gpu']]} ({job(dims, rows[0])})"
    weak = sorted((row for row in rows if row["part"]["weak"]), key=lambda row: float(row["part"]["ratio"]))
    if weak:
        worst = weak[0]["part"]
        more = f"; also weak: {', '.join(_device(dims, row) for row in weak[1:])}" if weak[1:] else ""
        limits = words.interval(worst["low"], worst["high"])
        return f"{_device(dims, weak[0])} is weak: {words.times(worst['ratio'])} × {of}, {limits}{more}"
    ratios = [row["part"]["ratio"] for row in rows]
    ends = f"they run at {words.times(min(ratios))} to {words.times(max(ratios))} × {of}"
    if any(row["part"]["low"] is None for row in rows):
        return f"Too few launches to tell whether a device is weak: {ends}"
    return f"No device is weak beyond its interval: {ends}"


def skeleton(_data: Data) -> dict[str, Any]:
    """That of the speed-ups, with its own axis."""
    return pairs.skeleton(_AXIS)
