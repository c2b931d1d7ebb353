"""Cells -> explorers: one for each question of a reader, with selectors, drawn by the page's script when they are opened.
In: the tables of the analysis, of one machine or (with the columns `machine` and `gpu`) of several. Out: the cells and, for
each explorer, the rows that it draws with all their texts; the script chooses among them and places the marks.
Open first: data.py, which has the cells and their figures.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torchmatrix.analysis.cells import CellIndex as CellIndex
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.prices import NONE as NONE
from torchmatrix.analysis.prices import PriceList as PriceList
from torchmatrix.analysis.rows import Row
from torchmatrix.analysis.scaling import FACTORS
from torchmatrix.analysis.speedups import Ratios as Ratios
from torchmatrix.analysis.verdicts import Significance
from torchmatrix.core.formatting import is_known
from torchmatrix.core.secrets import without_secrets
from torchmatrix.matrix.factors import CONTRASTED
from torchmatrix.reporting import words
from torchmatrix.reporting.explorers.data import (
    NONE_PUBLISHED as NONE_PUBLISHED,
)
from torchmatrix.reporting.explorers.data import (
    NOTHING as NOTHING,
)
from torchmatrix.reporting.explorers.data import (
    Data,
    Metric,
    ShownCell,
    ShownPair,
    legend,
    rounded,
)
from torchmatrix.reporting.explorers.data import (
    Published as Published,
)
from torchmatrix.reporting.explorers.data import RunTables as RunTables
from torchmatrix.reporting.explorers.data import (
    data_of as data_of,
)

# Rows of the explorers: values to place and their texts, as one JSON for the script.
#
# A row has `at`, the cell's place, and those of these that it needs: `value`, `low`, `high`; `ideal`; `theirs`, a published
# value, and its `source`; `spans` of begin, end and look; `ring`, a value beyond them; `label`, after the cell's name; `mark`,
# a warning; `text`, `interval` and `more`, in columns; `problem`, why there is no figure; `title`, a tooltip; `is_best`;
# `colour`, which replaces the cell's. None is unknown.

_CARRIED_COLUMNS = ("n", "failed", "bs", "unit", "which")


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A view of an explorer. `unit`: {unit} is that of the items. `unsaid`: a dimension that no title names."""

    name: str
    title: str
    rows: Sequence[Row]
    unit: str = ""
    note: str = ""
    unsaid: str = ""


def throughput(data: Data) -> Iterator[View]:
    """Yield a view of each metric that some cell has, throughput first: a row for each cell, also for one that failed."""
    if any(row.n for row in data.rows):
        for metric in data.metrics:
            rows = [_bar(metric, row) for row in data.rows]
            yield View(name=metric.name, title=metric.title, rows=rows, unit=metric.unit, note=metric.note)


def _bar(metric: Metric, row: ShownCell) -> Row:
    value, low, high = metric.of(row)
    texts = {"at": row.place, "text": words.short(value), "interval": words.rate_interval(value or 0.0, low, high)}
    source = row.source and f"published by {row.source}"
    published = {"theirs": row.theirs, "source": source} if metric.name == "throughput" else {}
    return texts | _positions(value, low, high) | published | {"problem": "" if row.n else words.failed(row.outcome)}


def scaling(data: Data) -> Iterator[View]:
    """Yield the views of the cells on a line over the number of devices."""
    lines = [row for row in data.rows if row.scales]
    for name, (title, unit, write, of) in _SCALING.items() if lines else ():
        rows = [_scaled(row, of(row), write) for row in lines if (row.n if name == "throughput" else row.S)]
        yield View(name=name, title=title, rows=rows, unit=unit)


def _scaled(row: ShownCell, values: Sequence[float | None], write: Callable[[Any], str]) -> Row:
    value, low, high, ideal = values
    limits = f"{write(low)} to {write(high)}" if is_known(low) and is_known(high) else ""
    drawn = {"at": row.place, **_positions(value, low, high), "ideal": rounded(ideal), "text": write(value), "interval": limits}
    return drawn | {"mark": "impossible" if row.impossible else ""}


def _line(row: ShownCell, times: float, plus: float, ideal: float) -> Sequence[float | None]:
    return *(None if value is None else times * value + plus for value in (row.S, row.S_low, row.S_high)), ideal


def _rate(row: ShownCell) -> Sequence[float | None]:
    return row.rate, row.low, row.high, row.N * row.rate / row.S if row.S else None


_SCALING: Mapping[str, tuple[str, str, Callable[[Any], str], Callable[[ShownCell], Sequence[float | None]]]] = {
    "E": ("efficiency", "share of the ideal", lambda v: words.percent(v, 1), lambda row: _line(row, 1 / row.N, 0, 1)),
    "s": ("scale factor", "1: ideal", words.ratio, lambda row: _line(row, 1 / (row.N - 1), -1 / (row.N - 1), 1)),
    "S": ("speed-up", "times one device", words.ratio, lambda row: _line(row, 1, 0, row.N)),
    "throughput": ("throughput", "{unit}/s", words.short, _rate),
}


def speedup(data: Data) -> Iterator[View]:
    """Yield stacks over their baseline and settings over what they replace, where some such pair has a ratio."""
    factors = {pair.name: factor.name for factor in CONTRASTED for pair in factor.contrasts}
    for kind in dict.fromkeys(pair.kind for pair in data.pairs if pair.ratio):
        title = "stacks over the baseline" if kind == "stack" else " over ".join(words.CONTRASTS[kind])
        pairs = [pair for pair in data.pairs if pair.kind == kind and pair.at is not None]
        rows = [_pair(pair, _over(data, pair) if kind == "stack" else title) for pair in pairs]
        yield View(name=kind, title=title, rows=rows, unsaid=factors.get(kind, "stack"))


def _over(data: Data, pair: ShownPair) -> str:
    stacks = next(dim for dim in data.dims if dim.name == "stack")
    labels = dict(zip(stacks.values, stacks.labels, strict=True))
    return f"{stacks.labels[data.rows[pair.at].stack]} over {labels.get(pair.base, pair.base)}"


def _pair(pair: ShownPair, what: str) -> Row:
    """Return the row of a pair with the words of its verdict, which determine colour and weight."""
    value, low, high = pair.ratio, pair.low, pair.high
    drawn = {"at": pair.at, "over": pair.over, "what": what, "n": int(bool(pair.n and pair.base_n))}
    drawn |= _positions(value, low, high)
    if value is None:
        return drawn | {"problem": _reason(pair.why)}
    return drawn | {
        "text": words.effect(value, low, high), "interval": words.effect_interval(value, low, high),
        "more": words.verdict(pair.verdict),
        "is_best": int(pair.verdict == "FASTER"), "colour": "bad" if pair.verdict == "SLOWER" else "0",
        "title": f"{pair.n} and {pair.base_n} launches",
    }  # fmt: skip


def _reason(why: str) -> str:
    """Return why there is no ratio."""
    of, _, outcome = why.rpartition("baseline: ")
    return f"{'baseline ' if len(outcome) < len(why) else of}{words.failed(outcome)}" if outcome in words.OUTCOMES else why


def _positions(value: float | None, low: float | None, high: float | None) -> Row:
    return {"value": rounded(value), "low": rounded(low), "high": rounded(high)}


def _cleaned(names: Iterable[str]) -> list[str]:
    """Redact credentials: the template takes the JSON as it is."""
    return [without_secrets(name) for name in names]


def as_json(data: Data, explorers: Sequence[Mapping[str, Any]]) -> str:
    """Return the JSON of a page: the cells, which their dimensions name, and the rows of each explorer's views."""
    names = [*(dim.name for dim in data.dims), *_CARRIED_COLUMNS]
    cells = [{name: row.value(name) for name in names} for row in data.rows]
    dims = [
        {"name": dim.name, "title": dim.title, "values": _cleaned(dim.values), "labels": _cleaned(dim.labels), "own": dim.own}
        for dim in data.dims
    ]
    content = {"dims": dims, "cells": _columns(cells), "explorers": explorers}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def packed(view: View) -> dict[str, Any]:
    return {"name": view.name, "title": view.title, "unit": view.unit, "unsaid": view.unsaid, "rows": _columns(view.rows)}


def _columns(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the rows by column: of texts the distinct ones and each row's index; a value that all rows share, once."""
    return {name: _column([row.get(name) for row in rows]) for name in dict.fromkeys(name for row in rows for name in row)}


def _column(values: list[Any]) -> Any:
    if len(values) > 1 and all(type(value) is type(values[0]) and value == values[0] for value in values):
        return {"same": values[0], "count": len(values)}
    if values == list(range(len(values))):
        return {"places": len(values)}
    if not any(isinstance(value, str) for value in values):
        return values
    texts = list(dict.fromkeys(values))
    places = {text: place for place, text in enumerate(texts)}
    return {"words": texts, "at": [places[value] for value in values]}


TITLES = {
    "throughput": "Throughput", "scaling": "Scaling", "speedup": "Speed-ups", "loss": "What scaling loses",
    "alone": "Each device alone", "phases": "Where the time of a launch goes", "steps": "How much steps vary",
    "trace": "Temperature, clock and power",
}  # fmt: skip
_UNITS = {"alone": "times the median device", "loss": "of perfect scaling", "phases": "seconds since the launch started",
          "steps": "median ms per step"}  # fmt: skip
_DIAMOND_NOTE = "A hollow diamond is a published throughput of the same work on the same GPU: point at it for its source."


@dataclass(frozen=True, kw_only=True)
class Explorers:
    """The explorers of a page."""

    data: Data

    @cached_property
    def views(self) -> dict[str, list[View]]:
        """Return the views of each explorer that has a figure."""
        makers = {"throughput": throughput, "scaling": scaling, "speedup": speedup}
        every = {name: list(make(self.data)) for name, make in makers.items()}
        every |= {
            name: [View(name=name, title=name, rows=rows, unit=_UNITS.get(name, ""))]
            for name, rows in self.data.parts.items()
            if rows
        }
        return {name: every[name] for name in TITLES if every.get(name)}

    def as_json(self) -> str:
        """Return the JSON for the page's script."""
        explorers = [
            {
                "name": name, "title": TITLES[name], "note": " ".join(filter(None, _notes(self.data, name, views))),
                "legend": legend() if name == "phases" else [], "metrics": [packed(view) for view in views],
            }
            for name, views in self.views.items()
        ]  # fmt: skip
        return as_json(self.data, explorers)


_DEFINITIONS_OF: dict[str, Sequence[str]] = {
    "throughput": ("throughput", "interval"), "scaling": ("S", "E", "s", "ratio_interval", "impossible"),
    "speedup": ("speedup", "setting", "ratio_interval"), "loss": (*FACTORS, "ratio_interval"),
    "alone": ("weak", "ratio_interval"), "phases": ("phases",), "steps": ("steps",), "trace": ("trace",),
}  # fmt: skip


def _notes(data: Data, name: str, views: Sequence[View]) -> Iterator[str]:
    """Yield notes on how to read the charts of an explorer."""
    yield from (DEFINITIONS[word] for word in _DEFINITIONS_OF[name])
    if name == "throughput":
        yield from (view.note for view in views)
        yield _DIAMOND_NOTE if any(row.theirs is not None for row in data.rows) else ""
    if name == "scaling":
        yield "Dashed: what perfect scaling would give; grey: what is missing from it."
    if name == "speedup":
        yield corrected(data.significance)
    if name == "loss":
        yield "From top to bottom, each cause takes a part of what is left."
    if name == "trace":
        yield "Red: the device was slowed down. In long traces every k-th reading is drawn."


def corrected(level: Significance) -> str:
    """Describe how the verdicts of a page are corrected; "" for a single comparison."""
    if level.comparisons < 2:
        return ""
    return (
        f"Verdicts allow for the {level.comparisons} comparisons of this report: at most 5 % of the differences reported are "
        "expected to be false."
    )
