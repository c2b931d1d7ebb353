"""What a run tells of its cells besides throughput, as rows that name their cell by its place."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pandas as pd

from torchmatrix.analysis.scaling import FACTORS
from torchmatrix.analysis.tables import records
from torchmatrix.analysis.time_split import PHASES, QUANTILES
from torchmatrix.analysis.traces import QUANTITIES, Readings, Trace
from torchmatrix.ground.numbers import in_digits
from torchmatrix.reporting.explorers.nouns import Row

Parts: TypeAlias = Mapping[str, tuple[Row, ...]]
"""By explorer its rows; `at`: the place of the cell."""
_DIGITS = 6
_SHOWN_DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class Within:
    """The tables of one run: scaling.decomposition_table and devices_table, rows of time_split, traces."""

    decomposition: pd.DataFrame = field(default_factory=pd.DataFrame)
    devices: pd.DataFrame = field(default_factory=pd.DataFrame)
    phases: Sequence[Row] = ()
    steps: Sequence[Row] = ()
    traces: Sequence[Trace] = ()


def parts_of(within: Within, cells: Sequence[str]) -> Parts:
    """The rows of each explorer; `cells`: of one run, in the order of their places."""
    at = {cell: place for place, cell in enumerate(cells)}
    return {
        "loss": tuple(_loss(row, at[row["cell"]]) for row in records(within.decomposition)),
        "alone": tuple(_alone(row, at[row["cell"]]) for row in records(within.devices)),
        "phases": tuple(_phases(row, at[row["cell"]]) for row in within.phases),
        "steps": tuple(_steps(row, at[row["cell"]]) for row in within.steps),
        "trace": tuple(_trace(trace, at[trace.cell]) for trace in within.traces),
    }


def _loss(row: Row, at: int) -> Row:
    names = [f"{name}{end}" for name in ("E", *FACTORS) for end in ("", "_low", "_high")]
    return {"at": at} | {name: _short(row[name]) for name in names}


def _alone(row: Row, at: int) -> Row:
    limits = {"low": _short(row["ratio_low"]), "high": _short(row["ratio_high"])}
    return {"at": at, "ratio": _short(row["ratio"]), **limits, "weak": int(row["weak"])}


def _phases(row: Row, at: int) -> Row:
    seconds = [_short(row[phase], _SHOWN_DIGITS) for phase in PHASES]
    return {"at": at, "cache": row["cache"], "seconds": seconds, "total": _short(row["total"], _SHOWN_DIGITS)}


def _steps(row: Row, at: int) -> Row:
    return {"at": at, "steps": row["steps"], "ms": [_short(1e3 * row[name], _SHOWN_DIGITS) for name in QUANTILES]}


def _trace(trace: Trace, at: int) -> Row:
    seen = trace.seen
    return {
        "at": at, "round": trace.round, "every": trace.every, "more": trace.more_devices, "picked": trace.picked,
        "devices": [_readings(one) for one in trace.readings],
        "windows": [[round(time, 1) for time in window] for window in trace.windows],
        "slow": [[round(start, 1), round(stop, 1), reason] for start, stop, reason in trace.slowdowns],
        "throttled": int(seen.throttled), "steady": seen.steady,
        "hot": [_short(seen.temperature_first), _short(seen.temperature_last)],
        "mhz": _short(seen.clock_mhz), "watts": _short(seen.power_watts),
    }  # fmt: skip


def _readings(one: Readings) -> dict[str, Any]:
    """With three digits after the point for busy CPUs, none for degrees, megahertz and watts above 100."""
    values = {name: [_brief(value) for value in one.values[name]] for name in QUANTITIES if name in one.values}
    return {"device": one.device, "seconds": [_brief(seconds) for seconds in one.seconds], **values}


def _brief(value: float | None) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    short = round(value) if abs(value) >= 100 else round(value, 2)
    return int(short) if short == int(short) else short


def _short(value: float, digits: int = _DIGITS) -> float | int | None:
    return in_digits(value, digits) if math.isfinite(value) else None
