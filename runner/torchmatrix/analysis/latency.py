"""Launches that served requests -> a table for each kind: latency (device to device) and end to end (host to host)."""

from collections.abc import Iterable, Sequence
from typing import Any

from torchmatrix.analysis.intervals import center_interval
from torchmatrix.analysis.metrics import OF_REQUESTS, PERCENTILES, Metric, value_in
from torchmatrix.analysis.tables import CellKey, key_of, shown, told_by
from torchmatrix.matrix.factors import ONE_MODEL

Row = dict[str, Any]
_OF_CELL = ("cell", "stack", "workload", "model", "precision", "devices", "count", "batch", "unit", "statistic")


def latency_rows(launches: Iterable[Row], kind: str) -> list[Row]:
    """One row per cell with requests of this kind, from the rows of its launches (launch_row.py), of one machine or several.

    For each of PERCENTILES: the median over ok launches of that percentile in seconds, with `_low` and `_high`, the ends of its
    95 % interval over launches. `n`: launches; `requests`: of all of them together.
    """
    cells: dict[CellKey, list[Row]] = {}
    for row in launches:
        if row["requests"] and row["parallel"] in ONE_MODEL:
            cells.setdefault(key_of(row), []).append(row)
    return [_row(some, kind) for some in cells.values()]


def _row(launches: Sequence[Row], kind: str) -> Row:
    last = shown(launches)
    own = {name: last[name] for name in (*_OF_CELL, *told_by(last))}
    found: Row = own | {"n": len(launches), "requests": int(sum(row["requests"]["requests"] for row in launches))}
    for name, metric in zip(PERCENTILES, OF_REQUESTS[kind], strict=True):
        found |= _interval(launches, name, metric)
    return found


def _interval(launches: Sequence[Row], name: str, metric: Metric) -> Row:
    values = [value for row in launches if (value := value_in(row, metric)) == value]
    found = center_interval(values, shown(launches)["statistic"])
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
