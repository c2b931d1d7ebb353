"""Where the time of launches went -> tables: the phases of a launch, and the step times inside the timed windows."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from torchmatrix.analysis.centers import median_of
from torchmatrix.analysis.column import Row
from torchmatrix.analysis.spent import Spent

PHASES = ("import", "init", "model to device", "first step", "warm-up", "measure", "the rest")
QUANTILES = {"p1": 0.01, "p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "max": 1.0}
_SHARES = np.array(list(QUANTILES.values()))


def phases_table(launches: Iterable[Spent]) -> list[Row]:
    """One row per cell and state of its compile cache (cold, warm, or "" without compilation), over its ok launches.

    The columns PHASES and `total` are the medians in seconds, `n` the number of launches. A phase that no launch tells is NaN;
    its time is in "the rest", as are the engine, the process's start and end, and the proofs after the windows.
    """
    cells: dict[tuple[Any, ...], list[Spent]] = {}
    for launch in launches:
        cells.setdefault(tuple(launch.cell.values()), []).append(launch)
    return [_phases(some) for some in cells.values()]


def _phases(launches: Sequence[Spent]) -> Row:
    known = {
        name: [found for one in launches if (found := one.phases.get(name, math.nan)) == found] for name in (*PHASES, "total")
    }
    return (
        launches[0].cell | {name: median_of(some) if some else math.nan for name, some in known.items()} | {"n": len(launches)}
    )


def steps_table(launches: Iterable[Spent]) -> list[Row]:
    """One row per cell: QUANTILES in seconds of all its ranks' steps in the timed windows of its ok launches.

    `steps` and `launches` say how many. Between two steps a quantile is interpolated.
    """
    cells: dict[str, list[Spent]] = {}
    for launch in launches:
        cells.setdefault(launch.cell["cell"], []).append(launch)
    return [
        some[0].cell | {"launches": len(some)} | _quantiles(some) for some in cells.values() if any(one.steps for one in some)
    ]


def _quantiles(launches: Iterable[Spent]) -> dict[str, Any]:
    """As np.quantile, to the last bit, which takes five times as long for a few steps."""
    seconds = np.concatenate([np.frombuffer(launch.steps) for launch in launches])
    seconds.sort()
    places = (len(seconds) - 1) * _SHARES
    before = places.astype(int)
    low, high, part = seconds[before], seconds[np.minimum(before + 1, len(seconds) - 1)], places - before
    values = np.where(part < 0.5, low + (high - low) * part, high - (high - low) * (1 - part))
    return {"steps": len(seconds), **dict(zip(QUANTILES, values.tolist(), strict=True))}
