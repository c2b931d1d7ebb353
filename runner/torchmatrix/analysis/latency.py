"""Launches that served requests -> a table for each kind: latency (device to device) and end to end (host to host)."""

from collections.abc import Iterable

from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.column import Row
from torchmatrix.analysis.metrics import OF_REQUESTS, PERCENTILES

_OF_CELL = ("cell", "stack", "workload", "model", "precision", "devices", "count", "batch", "unit", "statistic")


def latency_rows(launches: Iterable[Row], kind: str) -> list[Row]:
    """One row per cell with requests of this kind, from the rows of its launches (launch_row.py), of one machine or several.

    For each of PERCENTILES: the median over ok launches of that percentile in seconds, with `_low` and `_high`, the ends of its
    95 % interval over launches. `n`: launches; `requests`: of all of them together.
    """
    return [_row(cell, kind) for cell in CellIndex(row for row in launches if row["requests"]).figures]


def _row(cell: Cell, kind: str) -> Row:
    requests = int(sum(row["requests"] for row in cell.launches))
    found = {name: cell.last[name] for name in _OF_CELL} | cell.fleet | {"n": len(cell.launches), "requests": requests}
    for name, metric in zip(PERCENTILES, OF_REQUESTS[kind], strict=True):
        of = cell.estimate(metric.column)
        found |= {name: of.value, f"{name}_low": of.low, f"{name}_high": of.high}
    return found
