"""Launches -> where their time went: the phases of a launch, and the step times inside the timed windows."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from torchmatrix.facts.launch import Launch, measured_seconds

PHASES = ("import", "init", "model to device", "first step", "warm-up", "measure", "the rest")
_TOLD = {"import": "import", "init": "init", "model": "model to device", "first-step": "first step"}
"""What the box calls them."""
QUANTILES = {"p1": 0.01, "p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "max": 1.0}
_CELL = ("cell", "stack", "workload", "model", "mode", "devices", "cache")


def phases_table(launches: Iterable[Launch]) -> pd.DataFrame:
    """One row per cell and state of its compile cache (cold, warm, or "" without compilation), over its ok launches.

    The columns PHASES and `total` are the medians in seconds, `n` the number of launches. A phase that no launch tells is NaN;
    its time is in "the rest", as are the engine, the process's start and end, and the proofs after the windows.
    """
    rows = [_cell_of(launch) | _seconds_of(launch) for launch in _ok(launches)]
    names = [*PHASES, "total"]
    table = pd.DataFrame(rows, columns=[*_CELL, *names]).astype(dict.fromkeys(names, float))
    groups = table.groupby(list(_CELL), sort=False)
    return groups[names].median().assign(n=groups.size()).reset_index()


def steps_table(launches: Iterable[Launch]) -> pd.DataFrame:
    """One row per cell: QUANTILES in seconds of all its ranks' steps in the timed windows of its ok launches.

    `steps` and `launches` say how many. Between two steps a quantile is interpolated.
    """
    cells: dict[str, dict[str, Any]] = {}
    for launch in _ok(launches):
        cell = cells.setdefault(launch.cell, _cell_of(launch) | {"launches": 0, "seconds": []})
        cell["launches"] += 1
        cell["seconds"] += [s for window in launch.windows for rank in window.step_seconds for s in rank]
    rows = [cell | _quantiles(cell.pop("seconds")) for cell in cells.values() if cell["seconds"]]
    return pd.DataFrame(rows, columns=[*_CELL[:-1], "launches", "steps", *QUANTILES])


def _ok(launches: Iterable[Launch]) -> Iterator[Launch]:
    """Of the cells that a report shows; those that explain a scaling loss are left to its own table."""
    for launch in launches:
        if launch.workload.parallel == "ddp" and launch.outcome == "ok":
            yield launch


def _cell_of(launch: Launch) -> dict[str, Any]:
    workload = launch.workload
    return {
        "cell": launch.cell,
        "stack": launch.stack.name,
        "workload": workload.id,
        "model": workload.model,
        "mode": workload.mode,
        "devices": launch.devices.label,
        "cache": launch.compile_cache or "" if workload.compile else "",
    }


def _seconds_of(launch: Launch) -> dict[str, float]:
    found = {ours: launch.phases.get(theirs, math.nan) for theirs, ours in _TOLD.items()}
    found |= {"warm-up": _warm_up(launch), "measure": measured_seconds(launch)}
    known = sum(seconds for seconds in found.values() if not math.isnan(seconds))
    return found | {"the rest": launch.seconds - known, "total": launch.seconds}


def _warm_up(launch: Launch) -> float:
    """NaN where the box told neither the sum nor the blocks."""
    if launch.warm_up and launch.warm_up.seconds is not None:
        return launch.warm_up.seconds
    return sum(block.slowest for block in launch.warm_up_blocks) if launch.warm_up_blocks else math.nan


def _quantiles(seconds: list[float]) -> dict[str, float]:
    values = np.quantile(np.asarray(seconds, dtype=float), list(QUANTILES.values()))
    return {"steps": len(seconds), **dict(zip(QUANTILES, map(float, values), strict=True))}
