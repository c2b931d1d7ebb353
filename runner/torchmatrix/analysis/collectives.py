"""Launches -> how fast the devices of each cell exchange data, operation by operation."""

import json
import math
from typing import Any

import pandas as pd

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.centers import median_of
from torchmatrix.ground.numbers import is_known

_OF_CELL = ("cell", "stack", "workload", "devices", "count", "nodes")
_COLUMNS = [*_OF_CELL, "operation", "bytes", "n", "seconds", "bus_bytes_per_second", "link_bytes_per_second", "of_link"]


def collectives_table(launches: pd.DataFrame) -> pd.DataFrame:
    """One row per cell, operation and size: the medians over the ok launches that probed it, whose number is `n`.

    `launches`: a table of tables.launches_table. Bus bandwidths as nccl-tests define them (glossary). `of_link`: over what the
    devices' links carry in one direction by their data sheets; NaN where that is unknown, or other links are used.
    """
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    cells: dict[str, Any] = {}
    links: dict[str, float] = {}
    for row in launches[launches["outcome"] == "ok"].itertuples():
        for operation, size, seconds, bus, linked in json.loads(row.collectives):
            found.setdefault((row.cell, operation, size), []).append((seconds, bus))
            cells[row.cell], links[row.cell] = row, _peak(row) if linked else math.nan
    rows = [
        {
            **{name: getattr(cells[cell], name) for name in _OF_CELL},
            "operation": operation, "bytes": size, "n": len(told), "seconds": median_of([seconds for seconds, _ in told]),
            "bus_bytes_per_second": (bus := median_of([bus for _, bus in told])), "link_bytes_per_second": links[cell],
            "of_link": bus / links[cell],
        }
        for (cell, operation, size), told in found.items()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=_COLUMNS)


def _peak(row: Any) -> float:
    """Of the links of the launch's devices; NaN if unknown."""
    memory = int(row.device_memory_bytes) if is_known(row.device_memory_bytes) else None
    found = gpu_specs.link_peak(gpu_specs.find(row.device_name, memory)) if row.device_name else None
    return math.nan if found is None else found
