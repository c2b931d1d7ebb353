"""Launches -> how fast the devices of each cell exchange data, operation by operation."""

import json
from typing import Any

import pandas as pd

from torchmatrix.analysis.centers import median_of

_OF_CELL = ("cell", "stack", "workload", "devices", "count", "nodes")
_COLUMNS = [*_OF_CELL, "operation", "bytes", "n", "seconds", "bus_bytes_per_second"]


def collectives_table(launches: pd.DataFrame) -> pd.DataFrame:
    """One row per cell, operation and size: the medians over the ok launches that probed it, whose number is `n`.

    `launches`: a table of tables.launches_table. Bus bandwidths as nccl-tests define them (glossary).
    """
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    cells: dict[str, Any] = {}
    for row in launches[launches["outcome"] == "ok"].itertuples():
        for operation, size, seconds, bus in json.loads(row.collectives):
            found.setdefault((row.cell, operation, size), []).append((seconds, bus))
            cells[row.cell] = row
    rows = [
        {
            **{name: getattr(cells[cell], name) for name in _OF_CELL},
            "operation": operation, "bytes": size, "n": len(told), "seconds": median_of([seconds for seconds, _ in told]),
            "bus_bytes_per_second": median_of([bus for _, bus in told]),
        }
        for (cell, operation, size), told in found.items()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=_COLUMNS)
