"""Launches -> how fast the devices of each cell exchange data, operation by operation."""

import json
import math
from collections.abc import Iterable

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.centers import median_of
from torchmatrix.analysis.column import Row, is_ok
from torchmatrix.ground.formatting import is_known

_OF_CELL = ("cell", "stack", "workload", "devices", "count", "nodes")


def collectives_table(launches: Iterable[Row]) -> list[Row]:
    """One row per cell, operation and size: the medians over the ok launches that probed it, whose number is `n`.

    `launches`: as of tables.launch_rows. Bus bandwidths as nccl-tests define them (glossary). `of_link`: over what the
    devices' links carry in one direction by their data sheets; NaN where that is unknown, or other links are used.
    """
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    cells: dict[str, Row] = {}
    links: dict[str, float] = {}
    for row in (row for row in launches if is_ok(row)):
        for operation, size, seconds, bus, linked in json.loads(row["collectives"]):
            found.setdefault((row["cell"], operation, size), []).append((seconds, bus))
            cells[row["cell"]], links[row["cell"]] = row, _peak(row) if linked else math.nan
    return [
        {
            **{name: cells[cell][name] for name in _OF_CELL},
            "operation": operation, "bytes": size, "n": len(told), "seconds": median_of([seconds for seconds, _ in told]),
            "bus_bytes_per_second": (bus := median_of([bus for _, bus in told])), "link_bytes_per_second": links[cell],
            "of_link": bus / links[cell],
        }
        for (cell, operation, size), told in found.items()
    ]  # fmt: skip


def _peak(row: Row) -> float:
    """Of the links of the launch's devices; NaN if unknown."""
    memory = int(row["device_memory_bytes"]) if is_known(row["device_memory_bytes"]) else None
    found = gpu_specs.link_peak(gpu_specs.find(row["device_name"], memory)) if row["device_name"] else None
    return math.nan if found is None else found
