"""Split the time of a launch: its phases, compilation, the parts of a step, and the latency of requests."""

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from torchmatrix.analysis.centers import median_of, variance_of
from torchmatrix.analysis.metrics import OF_REQUESTS, PERCENTILES
from torchmatrix.analysis.rows import LaunchRow, Row, group_by
from torchmatrix.core.secrets import cleaned
from torchmatrix.facts.launch import Launch, measured_seconds

if TYPE_CHECKING:
    from torchmatrix.analysis.cells import Cell, CellIndex

# Where a launch's time went: its phases, and its step times inside the timed windows.

_PHASE_NAMES = {"import": "import", "init": "init", "model": "model to device", "first-step": "first step"}
"""Our names of phases by the workload's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """The time of an ok launch. `cell`: the columns that identify its row in a table; `cache` is "" without compilation.

    `phases`: seconds by name, NaN if unknown. `steps`: seconds of all ranks' steps in the timed windows.
    """

    cell: dict[str, str]
    phases: dict[str, float]
    steps: "array[float]"


def spent_by(launch: Launch) -> Spent | None:
    """Return the time of a launch; None if it isn't ok, or explains a scaling loss: that has its own table."""
    if not launch.makes_figures or not launch.is_ok:
        return None
    steps = chain.from_iterable(rank for window in launch.windows for rank in window.step_seconds)
    return Spent(cell=_cell_of(launch), phases=_seconds_of(launch), steps=array("d", steps))


def _cell_of(launch: Launch) -> dict[str, str]:
    workload = launch.workload
    return {
        "cell": launch.cell,
        "stack": launch.stack.name,
        "workload": workload.id,
        "model": workload.model,
        "mode": workload.mode,
        "devices": launch.devices.label,
        "cache": cleaned(launch.compile_cache or "") if workload.compile else "",
    }


def _seconds_of(launch: Launch) -> dict[str, float]:
    seconds_by_phase = {ours: launch.phases.get(theirs, math.nan) for theirs, ours in _PHASE_NAMES.items()}
    seconds_by_phase |= {"warm-up": _warm_up(launch), "measure": measured_seconds(launch)}
    accounted = sum(seconds for seconds in seconds_by_phase.values() if not math.isnan(seconds))
    return seconds_by_phase | {"the rest": launch.seconds - accounted, "total": launch.seconds}


def _warm_up(launch: Launch) -> float:
    """Return the seconds of the warm-up; NaN where the workload reported neither the sum nor the blocks."""
    if launch.warm_up and launch.warm_up.seconds is not None:
        return launch.warm_up.seconds
    return sum(block.slowest for block in launch.warm_up_blocks) if launch.warm_up_blocks else math.nan


PHASES = ("import", "init", "model to device", "first step", "warm-up", "measure", "the rest")
QUANTILES = {"p1": 0.01, "p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "max": 1.0}


def phases_table(launches: Iterable[Spent]) -> list[Row]:
    """Return one row per cell and state of its compile cache (cold, warm, or "" without compilation), over its ok launches.

    The columns PHASES and `total` are the medians in seconds, `n` the number of launches. A phase that no launch recorded is
    NaN; its time is in "the rest", as are the engine, the process's start and end, and the proofs after the windows.
    """
    return [_phases(group) for group in group_by(launches, lambda launch: tuple(launch.cell.values())).values()]


def _phases(launches: Sequence[Spent]) -> Row:
    by_phase = {
        name: [seconds for launch in launches if (seconds := launch.phases.get(name, math.nan)) == seconds]
        for name in (*PHASES, "total")
    }
    return (
        launches[0].cell
        | {name: median_of(values) if values else math.nan for name, values in by_phase.items()}
        | {"n": len(launches)}
    )


def steps_table(launches: Iterable[Spent]) -> list[Row]:
    """Return one row per cell: QUANTILES in seconds of all its ranks' steps in the timed windows of its ok launches.

    `steps` and `launches` say how many. Between two steps a quantile is interpolated.
    """
    return [
        group[0].cell | {"launches": len(group)} | _quantiles(group)
        for group in group_by(launches, lambda launch: launch.cell["cell"]).values()
        if any(spent.steps for spent in group)
    ]


def _quantiles(launches: Iterable[Spent]) -> dict[str, Any]:
    """Return the quantiles as np.quantile does, to the last bit, which takes five times as long for a few steps."""
    import numpy as np  # which readers of facts, who import this module, don't need

    seconds = np.concatenate([np.frombuffer(launch.steps) for launch in launches])
    seconds.sort()
    places = (len(seconds) - 1) * np.array(list(QUANTILES.values()))
    before = places.astype(int)
    low, high, part = seconds[before], seconds[np.minimum(before + 1, len(seconds) - 1)], places - before
    values = np.where(part < 0.5, low + (high - low) * part, high - (high - low) * (1 - part))
    return {"steps": len(seconds), **dict(zip(QUANTILES, values.tolist(), strict=True))}


# How long torch.compile takes from an empty cache, and whether one compilation makes faster code than another.

FEWEST = 3
"""The fewest launches of either kind with which scatters are compared."""
LEVEL = 0.05


def compiles_table(cells: "CellIndex") -> list[Row]:
    """Return one row per cell that was compiled from an empty cache in some ok launch.

    `compiled` launches did so: the median, least and largest time of their first step in seconds; `sd_between_artefacts` is the
    standard deviation of the logarithms of their throughputs. The `reused` launches all ran the code of one compilation:
    `sd_same_artefact`. `varies`: the former scatter is larger than the latter beyond chance, by an F test of the variances of
    the logarithms, one-sided, at LEVEL over the number of tests (Bonferroni); None with fewer than FEWEST launches of a kind.
    """
    shown = [row for row in map(_compile_row, cells.figures) if row]
    tests = sum(not math.isnan(row["p"]) for row in shown)
    return [row | {"varies": None if math.isnan(row["p"]) else row["p"] * tests < LEVEL} for row in shown]


def _compile_row(cell: "Cell") -> Row | None:
    ok = [row for row in cell.ok if row.compile]
    cold, warm = ([row for row in ok if row.compile_cache == state] for state in ("cold", "warm"))
    if not cold:
        return None
    first = [row.first_step_seconds for row in cold if not math.isnan(row.first_step_seconds)]
    between, same = (_scatter(row.throughput for row in rows) for rows in (cold, warm))
    return {name: cell.row.value(name) for name in ("cell", "stack", "workload", "devices", "unit")} | {
        "compiled": len(cold),
        "first_step_seconds": median_of(first) if first else math.nan,
        "first_step_low": min(first, default=math.nan),
        "first_step_high": max(first, default=math.nan),
        "sd_between_artefacts": between,
        "reused": len(warm),
        "sd_same_artefact": same,
        "p": _f_test(between, len(cold), same, len(warm)),
    }


def _scatter(throughputs: Iterable[float]) -> float:
    """Return the standard deviation of the logarithms; NaN of fewer than two."""
    logarithms = [math.log(rate) for rate in throughputs]
    return math.sqrt(variance_of(logarithms)) if len(logarithms) > 1 else math.nan


def _f_test(between: float, compiled: int, same: float, reused: int) -> float:
    """Return the probability that equal variances give such a ratio or a larger one."""
    from torchmatrix.analysis.special import fdtrc  # with NumPy: see _quantiles

    if min(compiled, reused) < FEWEST or not same > 0:
        return math.nan
    return float(fdtrc(compiled - 1, reused - 1, (between / same) ** 2))


# Tables of requests, one for each kind: latency (device to device) and end to end (host to host).

_CELL_COLUMNS = ("cell", "stack", "workload", "model", "precision", "devices", "count", "batch", "unit", "statistic")


def latency_rows(launches: Iterable[LaunchRow], kind: str) -> list[Row]:
    """Return one row per cell with requests of this kind, from the rows of its launches, of one machine or several.

    For each of PERCENTILES: the median over ok launches of that percentile in seconds, with `_low` and `_high`, the ends of its
    95 % interval over launches. `n`: launches; `requests`: of all of them together.
    """
    from torchmatrix.analysis.cells import CellIndex  # with NumPy: see _quantiles

    return [_latency_row(cell, kind) for cell in CellIndex(row for row in launches if row.requests).figures]


def _latency_row(cell: "Cell", kind: str) -> Row:
    requests = sum(row.requests for row in cell.launches)
    columns = (
        {name: cell.last.value(name) for name in _CELL_COLUMNS} | cell.fleet | {"n": len(cell.launches), "requests": requests}
    )
    for name, metric in zip(PERCENTILES, OF_REQUESTS[kind], strict=True):
        columns |= cell.estimate(metric.column).columns(name)
    return columns
