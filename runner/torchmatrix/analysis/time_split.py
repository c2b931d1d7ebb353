"""Where the time of launches went -> tables: the phases of a launch, and the step times inside the timed windows."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from torchmatrix.analysis.spent import Spent

PHASES = ("import", "init", "model to device", "first step", "warm-up", "measure", "the rest")
QUANTILES = {"p1": 0.01, "p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "max": 1.0}
_SHARES = np.array(list(QUANTILES.values()))
_CELL = ("cell", "stack", "workload", "model", "mode", "devices", "cache")


def phases_table(launches: Iterable[Spent]) -> pd.DataFrame:
    """One row per cell and state of its compile cache (cold, warm, or "" without compilation), over its ok launches.

    The columns PHASES and `total` are the medians in seconds, `n` the number of launches. A phase that no launch tells is NaN;
    its time is in "the rest", as are the engine, the process's start and end, and the proofs after the windows.
    """
    rows = [launch.cell | launch.phases for launch in launches]
    names = [*PHASES, "total"]
    table = pd.DataFrame(rows, columns=[*_CELL, *names]).astype(dict.fromkeys(names, float))
    groups = table.groupby(list(_CELL), sort=False)
    return groups[names].median().assign(n=groups.size()).reset_index()


def steps_table(launches: Iterable[Spent]) -> pd.DataFrame:
    """One row per cell: QUANTILES in seconds of all its ranks' steps in the timed windows of its ok launches.

    `steps` and `launches` say how many. Between two steps a quantile is interpolated.
    """
    cells: dict[str, list[Spent]] = {}
    for launch in launches:
        cells.setdefault(launch.cell["cell"], []).append(launch)
    rows = [
        some[0].cell | {"launches": len(some)} | _quantiles(some) for some in cells.values() if any(one.steps for one in some)
    ]
    return pd.DataFrame(rows, columns=[*_CELL[:-1], "launches", "steps", *QUANTILES])


def _quantiles(launches: Iterable[Spent]) -> dict[str, Any]:
    """As np.quantile, to the last bit, which takes five times as long for a few steps."""
    seconds = np.concatenate([np.frombuffer(launch.steps) for launch in launches])
    seconds.sort()
    places = (len(seconds) - 1) * _SHARES
    before = places.astype(int)
    low, high, part = seconds[before], seconds[np.minimum(before + 1, len(seconds) - 1)], places - before
    values = np.where(part < 0.5, low + (high - low) * part, high - (high - low) * (1 - part))
    return {"steps": len(seconds), **dict(zip(QUANTILES, values.tolist(), strict=True))}
