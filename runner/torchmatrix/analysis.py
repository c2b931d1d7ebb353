"""Launches -> tables (pandas): throughput with its interval, scale factors, speed-ups. Definitions are in DEFINITIONS."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from torchmatrix.store import Launch, measured, throughput

CONFIDENCE = 0.95
IMPOSSIBLE_EFFICIENCY = 1.02
DEFINITIONS = {
    "throughput": "Items processed by all processes in the timed windows, divided by the wall time of the slowest process; "
    "the median over launches.",
    "interval": "95 % confidence interval of the mean over launches (Student's t, n - 1 degrees of freedom). One launch has "
    "no interval: n/a.",
    "cv": "Launch-to-launch standard deviation divided by the mean. Verdict: stable below 1 %, ok below 3 %, else noisy.",
    "S": "Speed-up: T_N / T_1, the throughput on N devices over that on the first of these devices alone, same stack and "
    "workload, batch per device fixed (weak scaling).",
    "E": "Efficiency: S / N.",
    "s": "Marginal scale factor: (S - 1) / (N - 1). Each additional device adds s of one device.",
    "ratio_interval": "95 % interval of a ratio of two throughputs: Welch's t on the logarithms of the launches.",
    "impossible": "E above 1.02 is marked: no machine scales better than linearly; look for a wrong baseline.",
}
"""What every figure means; the report prints these beside the figures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A point with its 95 % limits; NaN limits mean that there are too few launches to say."""

    value: float
    low: float
    high: float


def launches_table(launches: Iterable[Launch]) -> pd.DataFrame:
    """One row per launch that has a header; the columns are those of `_launch_row`."""
    rows = [_launch_row(launch) for launch in launches if "workload" in launch.header]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def cells_table(launches: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: median throughput over its ok launches, interval, n, CV, verdict; failed launches are counted."""
    if launches.empty:
        return pd.DataFrame(columns=["cell", "n", "failed", "throughput", "low", "high", "cv", "verdict", "outcome"])
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in launches.to_dict("records"):
        groups.setdefault(row["cell"], []).append(row)
    return pd.DataFrame([_cell_row(group) for group in groups.values()])


def scaling_table(launches: pd.DataFrame) -> pd.DataFrame:
    """One row per cell of N > 1 devices with S, E, s and their limits; NaN where the baseline has no ok launch."""
    samples = _samples_by_cell(launches)
    baselines = {(row.stack, row.workload, row.devices): row.cell for row in _first_rows(launches) if row.count == 1}
    rows = []
    for row in _first_rows(launches):
        if row.count < 2:
            continue
        base = baselines.get((row.stack, row.workload, row.first_device))
        speedup = ratio(samples.get(row.cell, []), samples.get(base, []) if base else [])
        rows.append({"cell": row.cell, "stack": row.stack, "workload": row.workload, "count": row.count, "baseline": base,
                     **_scale_factors(speedup, int(row.count))})  # fmt: skip
    return pd.DataFrame(rows, columns=_SCALING_COLUMNS)


def speedup_table(launches: pd.DataFrame) -> pd.DataFrame:
    """Every cell over the same workload and devices on the baseline stack (the first in the matrix that ran it)."""
    samples = _samples_by_cell(launches)
    baselines: dict[tuple[str, str], Any] = {}
    rows = []
    for row in _first_rows(launches):
        base = baselines.setdefault((row.workload, row.devices), row) if samples.get(row.cell) else None
        if base is None:
            continue
        result = ratio(samples[row.cell], samples[base.cell])
        rows.append({"workload": row.workload, "devices": row.devices, "stack": row.stack, "baseline": base.stack,
                     "ratio": result.value, "low": result.low, "high": result.high})  # fmt: skip
    return pd.DataFrame(rows, columns=["workload", "devices", "stack", "baseline", "ratio", "low", "high"])


def mean_interval(values: Sequence[float]) -> Interval:
    """The median of `values` with the t interval of their mean."""
    n = len(values)
    if n == 0:
        return Interval(value=math.nan, low=math.nan, high=math.nan)
    median = float(np.median(values))
    if n == 1:
        return Interval(value=median, low=math.nan, high=math.nan)
    mean = float(np.mean(values))
    half = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Interval(value=median, low=mean - half, high=mean + half)


def ratio(above: Sequence[float], below: Sequence[float]) -> Interval:
    """Median over median, with Welch's interval on the logarithms; NaN limits unless both have two values or more."""
    if not above or not below:
        return Interval(value=math.nan, low=math.nan, high=math.nan)
    value = float(np.median(above) / np.median(below))
    if above is below or list(above) == list(below):
        return Interval(value=1.0, low=1.0, high=1.0)
    if len(above) < 2 or len(below) < 2:
        return Interval(value=value, low=math.nan, high=math.nan)
    logs = [np.log(np.asarray(values, dtype=float)) for values in (above, below)]
    errors = [float(np.var(log, ddof=1)) / len(log) for log in logs]
    total = sum(errors)
    if total == 0.0:
        return Interval(value=value, low=value, high=value)
    # Welch-Satterthwaite: B. L. Welch, Biometrika 34 (1947), 28-35.
    freedom = total**2 / sum(e**2 / (len(log) - 1) for e, log in zip(errors, logs, strict=True))
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * math.sqrt(total)
    center = float(logs[0].mean() - logs[1].mean())
    return Interval(value=value, low=math.exp(center - half), high=math.exp(center + half))


def verdict(cv: float, n: int) -> str:
    """stable, ok or noisy; n/a for a single launch."""
    if n < 2:
        return "n/a"
    return "stable" if cv < 0.01 else "ok" if cv < 0.03 else "noisy"


_COLUMNS = (
    "cell", "run", "round", "outcome", "error", "stack", "workload", "devices", "first_device", "count", "model", "mode",
    "unit", "precision", "compile", "channels_last", "attention", "batch", "torch", "torch_build", "device_name",
    "throughput", "per_device", "peak_bytes", "host_bound", "first_step_seconds", "compile_cache", "flat",
    "seconds", "command", "path",
)  # fmt: skip
_SCALING_COLUMNS = [
    "cell", "stack", "workload", "count", "baseline", "S", "S_low", "S_high", "E", "E_low", "E_high", "s", "s_low",
    "s_high", "impossible",
]  # fmt: skip


def _launch_row(launch: Launch) -> dict[str, Any]:
    header = launch.header
    workload, gpus = header["workload"], header["gpus"]
    rate, count = throughput(launch), len(gpus["indices"])
    windows = measured(launch)
    environment = next(iter(launch.of("environment")), {})
    devices = next(iter(launch.of("setup")), {}).get("devices") or [{}]
    prefix = "cpu" if gpus["vendor"] == "cpu" else "gpu"
    return {
        "cell": header["cell"],
        "run": header["run"],
        "round": header["round"],
        "outcome": launch.outcome,
        "error": launch.error,
        "stack": header["stack"]["name"],
        "workload": workload["id"],
        "devices": gpus["label"],
        "first_device": f"{prefix}{gpus['indices'][0]}",
        "count": count,
        **{key: workload[key] for key in
           ("model", "mode", "unit", "precision", "compile", "channels_last", "attention", "batch")},
        "torch": header["stack"]["torch"],
        "torch_build": environment.get("torch"),
        "device_name": devices[0].get("name"),
        "throughput": rate,
        "per_device": rate / count,
        "peak_bytes": _peak(launch),
        "host_bound": _host_bound(windows) if gpus["vendor"] != "cpu" else math.nan,
        "first_step_seconds": _phase_seconds(launch, "first-step"),
        "compile_cache": next(iter(launch.of("hello")), {}).get("compile_cache"),
        "flat": next(iter(launch.of("warm-up")), {}).get("flat"),
        "seconds": launch.exit["unix_seconds"] - header["unix_seconds"] if launch.exit else math.nan,
        "command": header["command"],
        "path": str(launch.path),
    }  # fmt: skip


def _peak(launch: Launch) -> float:
    peaks = [max(event["peak_bytes"]) for event in launch.of("memory") if event.get("phase") == "warm"]
    return float(max(peaks)) if peaks else math.nan


def _host_bound(windows: list[dict[str, Any]]) -> float:
    """Time to enqueue the windows over time to finish them; near 1 the device waits for the host."""
    finish = sum(max(window["seconds"]) for window in windows)
    return sum(max(window["enqueue_seconds"]) for window in windows) / finish if finish > 0 else math.nan


def _phase_seconds(launch: Launch, phase: str) -> float:
    return next((float(e["seconds"]) for e in launch.of("phase") if e.get("phase") == phase), math.nan)


def _cell_row(launches: list[dict[str, Any]]) -> dict[str, Any]:
    ok = [launch for launch in launches if launch["outcome"] == "ok"]
    values = [float(launch["throughput"]) for launch in ok]
    interval = mean_interval(values)
    cv = float(np.std(values, ddof=1) / np.mean(values)) if len(values) > 1 else math.nan
    shown = (ok or launches)[-1]
    cold = [launch["first_step_seconds"] for launch in ok if launch["compile"] and launch["compile_cache"] == "cold"]
    return {
        **{key: shown[key] for key in _COLUMNS if key not in ("run", "round", "throughput", "path", "seconds")},
        "n": len(values),
        "failed": len(launches) - len(values),
        "throughput": interval.value,
        "low": interval.low,
        "high": interval.high,
        "per_device": interval.value / shown["count"],
        "cv": cv,
        "verdict": verdict(cv, len(values)),
        "cold_compile_seconds": float(cold[0]) if cold else math.nan,
        "not_flat": sum(launch["flat"] is False for launch in ok),
    }


def _first_rows(launches: pd.DataFrame) -> list[Any]:
    """One row per cell, in the order in which the cells first appear."""
    if launches.empty:
        return []
    return list(launches.drop_duplicates("cell").itertuples(index=False))


def _samples_by_cell(launches: pd.DataFrame) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for cell, outcome, rate in zip(launches["cell"], launches["outcome"], launches["throughput"], strict=True):
        if outcome == "ok":
            found.setdefault(cell, []).append(float(rate))
    return found


def _scale_factors(speedup: Interval, count: int) -> dict[str, Any]:
    """S, E = S / N and s = (S - 1) / (N - 1), each with its limits (linear in S, so the limits map over)."""
    found: dict[str, Any] = {}
    for suffix, value in (("", speedup.value), ("_low", speedup.low), ("_high", speedup.high)):
        found |= {f"S{suffix}": value, f"E{suffix}": value / count, f"s{suffix}": (value - 1) / (count - 1)}
    return found | {"impossible": bool(speedup.value / count > IMPOSSIBLE_EFFICIENCY)}
