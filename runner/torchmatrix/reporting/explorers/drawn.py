"""Cells -> what the explorers draw of them: values to place and all that is written beside them; as one JSON for the script.

A row has `at`, the cell's place, and of these what it needs: `value`, `low`, `high`; `ideal`; `theirs`, a published value, and
its `source`; `spans` of begin, end and look; `ring`, a value beyond them; `label`, after the cell's name; `mark`, a warning
beside it; `text`, `interval` and `more`, in columns; `problem`, why there is no figure; `title`, for who points at it;
`is_best`; `colour`, instead of the cell's own. None is unknown.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis.rows import Row
from torchmatrix.ground.formatting import is_known
from torchmatrix.matrix.factors import CONTRASTED
from torchmatrix.reporting import words
from torchmatrix.reporting.explorers.data import Data
from torchmatrix.reporting.explorers.figures import Metric, rounded

_CARRIED = ("n", "failed", "bs", "unit", "which")


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """What an explorer can show. `unit`: {unit} is that of the items. `unsaid`: a dimension that no title names."""

    name: str
    title: str
    rows: Sequence[Row]
    unit: str = ""
    note: str = ""
    unsaid: str = ""


def throughput(data: Data) -> Iterator[View]:
    """Throughput, and what else is known of some cell: a row for each cell, also for one that failed."""
    if any(row["n"] for row in data.rows):
        for metric in data.metrics:
            rows = [_bar(metric, at, row) for at, row in enumerate(data.rows)]
            yield View(name=metric.name, title=metric.title, rows=rows, unit=metric.unit, note=metric.note)


def _bar(metric: Metric, at: int, row: Row) -> Row:
    value, low, high = metric.of(row)
    found = {"at": at, "text": words.short(value), "interval": words.rate_interval(value or 0.0, low, high)}
    source = row["source"] and f"published by {row['source']}"
    published = {"theirs": row["theirs"], "source": source} if metric.name == "throughput" else {}
    return found | _placed(value, low, high) | published | {"problem": "" if row["n"] else words.failed(row["outcome"])}


def scaling(data: Data) -> Iterator[View]:
    """Of the cells on a line over the number of devices."""
    lines = [(at, row) for at, row in enumerate(data.rows) if row["scales"]]
    for name, (title, unit, write, of) in _SCALING.items() if lines else ():
        rows = [_scaled(at, row, of(row), write) for at, row in lines if (row["n"] if name == "throughput" else row["S"])]
        yield View(name=name, title=title, rows=rows, unit=unit)


def _scaled(at: int, row: Row, values: Sequence[float | None], write: Callable[[Any], str]) -> Row:
    value, low, high, ideal = values
    limits = f"{write(low)} to {write(high)}" if is_known(low) and is_known(high) else ""
    found = {"at": at, **_placed(value, low, high), "ideal": rounded(ideal), "text": write(value), "interval": limits}
    return found | {"mark": "impossible" if row["impossible"] else ""}


def _line(row: Row, times: float, plus: float, ideal: float) -> Sequence[float | None]:
    return *(None if row[name] is None else times * row[name] + plus for name in ("S", "S_low", "S_high")), ideal


def _rate(row: Row) -> Sequence[float | None]:
    return row["rate"], row["low"], row["high"], row["N"] * row["rate"] / row["S"] if row["S"] else None


_SCALING: Mapping[str, tuple[str, str, Callable[[Any], str], Callable[[Row], Sequence[float | None]]]] = {
    "E": ("efficiency", "share of the ideal", lambda v: words.percent(v, 1), lambda row: _line(row, 1 / row["N"], 0, 1)),
    "s": ("scale factor", "1: ideal", words.ratio, lambda row: _line(row, 1 / (row["N"] - 1), -1 / (row["N"] - 1), 1)),
    "S": ("speed-up", "times one device", words.ratio, lambda row: _line(row, 1, 0, row["N"])),
    "throughput": ("throughput", "{unit}/s", words.short, _rate),
}


def speedup(data: Data) -> Iterator[View]:
    """Stacks over their baseline and settings over what they replace, where some such pair has a ratio."""
    factors = {pair.name: factor.name for factor in CONTRASTED for pair in factor.contrasts}
    for kind in dict.fromkeys(pair["kind"] for pair in data.pairs if pair["ratio"]):
        title = "stacks over the baseline" if kind == "stack" else " over ".join(words.CONTRASTS[kind])
        own = [pair for pair in data.pairs if pair["kind"] == kind and pair["at"] is not None]
        rows = [_pair(pair, _over(data, pair) if kind == "stack" else title) for pair in own]
        yield View(name=kind, title=title, rows=rows, unsaid=factors.get(kind, "stack"))


def _over(data: Data, pair: Row) -> str:
    stacks = next(dim for dim in data.dims if dim.name == "stack")
    labels = dict(zip(stacks.values, stacks.labels, strict=True))
    return f"{stacks.labels[data.rows[pair['at']]['stack']]} over {labels.get(pair['base'], pair['base'])}"


def _pair(pair: Row, what: str) -> Row:
    """With the words of the verdict, from which colour and weight follow."""
    value, low, high = (pair[name] for name in ("ratio", "low", "high"))
    found = {"at": pair["at"], "over": pair["over"], "what": what, "n": int(bool(pair["n"] and pair["base_n"]))}
    found |= _placed(value, low, high)
    if value is None:
        return found | {"problem": _reason(pair["why"])}
    return found | {
        "text": words.effect(value), "interval": words.effect_interval(value, low, high),
        "more": words.verdict(pair["verdict"]),
        "is_best": int(pair["verdict"] == "FASTER"), "colour": "bad" if pair["verdict"] == "SLOWER" else "0",
        "title": f"{pair['n']} and {pair['base_n']} launches",
    }  # fmt: skip


def _reason(why: str) -> str:
    """Why there is no ratio."""
    of, _, outcome = why.rpartition("baseline: ")
    return f"{'baseline ' if len(outcome) < len(why) else of}{words.failed(outcome)}" if outcome in words.OUTCOMES else why


def _placed(value: float | None, low: float | None, high: float | None) -> Row:
    return {"value": rounded(value), "low": rounded(low), "high": rounded(high)}


def as_json(data: Data, explorers: Sequence[Mapping[str, Any]]) -> str:
    """For the page: the cells, which their dimensions name, and the rows of each explorer's views."""
    names = [*(dim.name for dim in data.dims), *_CARRIED]
    cells = [{name: row[name] for name in names} for row in data.rows]
    dims = [
        {"name": one.name, "title": one.title, "values": one.values, "labels": one.labels, "own": one.own} for one in data.dims
    ]
    found = {"dims": dims, "cells": _columns(cells), "explorers": explorers}
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def packed(view: View) -> dict[str, Any]:
    return {"name": view.name, "title": view.title, "unit": view.unit, "unsaid": view.unsaid, "rows": _columns(view.rows)}


def _columns(rows: Sequence[Row]) -> dict[str, Any]:
    """Of texts the different ones and each row's place among them; what all rows share, once."""
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
