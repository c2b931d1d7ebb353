"""Launches -> tables (pandas): one row per launch, one row per cell. Definitions are in definitions.py."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from torchmatrix.analysis import comparable, gpu_specs, watched
from torchmatrix.analysis.intervals import mean_interval, noise_verdict
from torchmatrix.facts.launch import Launch, measured, throughput
from torchmatrix.ground.numbers import number_or_nan

Row = dict[str, Any]


def launches_table(launches: Iterable[Launch]) -> pd.DataFrame:
    """One row per launch that has a header; the columns are those of `_launch_row`."""
    return table_of(launch_rows(launches))


def launch_rows(launches: Iterable[Launch]) -> list[Row]:
    """The rows of launches_table as dictionaries: unknown numbers are NaN, other unknowns None, sequences tuples."""
    rows = [_launch_row(launch) for launch in launches if "workload" in launch.header]
    _borrow_flops(rows)
    return rows


def table_of(rows: Sequence[Row]) -> pd.DataFrame:
    """The table of what launch_rows made, of one run or of several."""
    return _with_none(pd.DataFrame(rows, columns=list(_COLUMNS)), rows)


def _with_none(table: pd.DataFrame, rows: Sequence[Row]) -> pd.DataFrame:
    """None where a row has it: pandas makes NaN of it, which is true. Texts as they are: pandas 3 reads its own slowly."""
    for column in _MAY_BE_NONE:
        table[column] = pd.Series([row[column] for row in rows], dtype=object)
    return table.astype({name: object for name, kind in table.dtypes.items() if kind == "str"})


def cells_table(launches: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: median throughput over its ok launches, interval, n, CV, verdict; failed launches are counted."""
    if launches.empty:
        return pd.DataFrame(
            columns=["cell", "n", "failed", "throughput", "low", "high", "cv", "verdict", "outcome", "parallel"]
        )
    rows = [_cell_row(group) for group in by_cell(launches.to_dict("records")).values()]
    return _with_none(pd.DataFrame(rows), rows)


def records(table: pd.DataFrame) -> list[Row]:
    """The rows of a table as dictionaries by column."""
    return cast(list[Row], table.to_dict("records"))


def by_cell(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The launches of each cell, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["cell"], []).append(row)
    return groups


def summary(launches: Sequence[Row]) -> Row:
    """What the launches of one cell say of its throughput: n (ok), failed, throughput, low and high (95 %), cv.

    Items per second; NaN where there are too few ok launches to say.
    """
    values = [float(launch["throughput"]) for launch in launches if launch["outcome"] == "ok"]
    interval = mean_interval(values, shown(launches)["statistic"])
    return {
        "n": len(values),
        "failed": len(launches) - len(values),
        "throughput": interval.value,
        "low": interval.low,
        "high": interval.high,
        "cv": float(np.std(values, ddof=1) / np.mean(values)) if len(values) > 1 else math.nan,
    }


def shown(launches: Sequence[Row]) -> Row:
    """The launch that stands for its cell where they can't be pooled: the last ok one, else the last."""
    return next((launch for launch in reversed(launches) if launch["outcome"] == "ok"), launches[-1])


_FROM_WORKLOAD = ("model", "mode", "unit", "precision", "compile", "channels_last", "attention")
_NO_OTHER_SETTING = (
    "id", "precision", "compile", "channels_last", "batch", "batch_for", "parallel", "explain", "stacks", "counts",
)  # fmt: skip
_FROM_WATCH = (
    "temperature_first", "temperature_last", "clock_mhz", "power_watts", "energy_joules", "energy_problem", "throttled",
    "steady", "foreign", "ecc_errors",
)  # fmt: skip
_COLUMNS = (
    "cell", "run", "round", "outcome", "error", "stack", "workload", "ddp_workload", "parallel", "devices", "device_list",
    "count", *_FROM_WORKLOAD, "other_settings", "batch", "batch_requested", "torch", "torch_build", "device_name",
    "device_memory_bytes", "device_multiprocessors", "method", "statistic", "too_warm", "start_unknown", "throughput",
    "per_device", "energy_per_item", *_FROM_WATCH, "flops_key", "flops_per_item", "peak_bytes", "cold_peak_bytes", "mixed",
    "host_bound", "first_step_seconds", "compile_cache", "flat", "effective", "loss_difference", "unchecked",
    "bus_bytes_per_second", "seconds", "clock_jump_seconds", "command", "work", "path",
)  # fmt: skip

_MAY_BE_NONE = (
    "error", "attention", "torch", "torch_build", "device_name", "device_memory_bytes", "device_multiprocessors",
    "energy_problem", "steady", "compile_cache", "flat", "effective", "unchecked",
)  # fmt: skip


def _launch_row(launch: Launch) -> Row:
    header = launch.header
    workload, devices = header["workload"], header["gpus"]
    rate, count = throughput(launch), len(devices["indices"])
    windows = measured(launch)
    seen, device = watched.summarize(launch), _device(launch)
    parallel, method = workload.get("parallel", "ddp"), header.get("method") or {}
    prefix = "cpu" if devices["vendor"] == "cpu" else "gpu"
    batch = header.get("batch_used") or workload["batch"]
    return {
        **{key: header[key] for key in ("cell", "run", "round", "command")},
        "outcome": launch.outcome,
        "error": launch.error,
        "stack": header["stack"]["name"],
        "workload": workload["id"],
        "ddp_workload": workload["id"].removesuffix(f"-{parallel}"),
        "parallel": parallel,
        "devices": devices["label"],
        "device_list": tuple(f"{prefix}{index}" for index in devices["indices"]),
        "count": count,
        **{key: workload[key] for key in _FROM_WORKLOAD},
        "other_settings": json.dumps({k: v for k, v in workload.items() if k not in _NO_OTHER_SETTING}, sort_keys=True),
        "batch": batch,
        "batch_requested": header.get("batch_requested", batch),
        "torch": header["stack"]["torch"],
        "torch_build": _first(launch, "environment").get("torch"),
        "device_name": device.get("name"),
        "device_memory_bytes": device.get("memory_bytes"),
        "device_multiprocessors": device.get("multiprocessors"),
        "method": method.get("name", "steady"),
        "statistic": method.get("statistic", "median"),
        "too_warm": bool((header.get("start") or {}).get("too_warm")),
        "start_unknown": _is_start_unknown(header),
        "throughput": rate,
        "per_device": rate / count,
        **{key: getattr(seen, key) for key in _FROM_WATCH},
        "energy_per_item": seen.energy_joules / sum(w["items"] for w in windows) if windows else math.nan,
        "flops_key": tuple(workload.get(key) for key in ("model", "mode", "image_size", "sequence_length")),
        "flops_per_item": number_or_nan(_first(launch, "reference").get("flops_per_item")),
        "peak_bytes": _peak(launch, "warm"),
        "cold_peak_bytes": _peak(launch, "cold"),
        "mixed": len({gpu.get("name") for gpu in devices.get("gpus") or ()}) > 1,
        "host_bound": _host_bound(launch, windows),
        "first_step_seconds": _phase_seconds(launch, "first-step"),
        "compile_cache": _first(launch, "hello").get("compile_cache"),
        "flat": _first(launch, "warm-up").get("flat"),
        "effective": _effective(launch),
        "loss_difference": max(_first(launch, "reference").get("differences") or [math.nan]),
        "unchecked": _first(launch, "reference").get("error"),
        "bus_bytes_per_second": _bus_bandwidth(launch),
        "seconds": launch.seconds,
        "clock_jump_seconds": watched.clock_jump_seconds(launch),
        "work": json.dumps(comparable.work_of(header), separators=(",", ":")),
        "path": str(launch.path),
    }


def _is_start_unknown(header: dict[str, Any]) -> bool:
    """Did the method set a temperature to start below, and none could be read?"""
    limit = (header.get("method") or {}).get("start_below_celsius")
    return limit is not None and (header.get("start") or {}).get("temperature_celsius") is None


def _first(launch: Launch, kind: str) -> dict[str, Any]:
    return next(iter(launch.of(kind)), {})


def _device(launch: Launch) -> dict[str, Any]:
    """The first device, as torch sees it in the box."""
    devices = _first(launch, "setup").get("devices") or [{}]
    return dict(devices[0])


def _effective(launch: Launch) -> str | None:
    """Such as "fp32", or "tf32 (convolution: fp32)" where the two kinds of operation differ."""
    probes = _first(launch, "precision").get("effective")
    if not probes:
        return None
    matmul, convolution = probes[0]["matmul"], probes[0]["convolution"]
    return str(matmul) if matmul == convolution else f"{matmul} (convolution: {convolution})"


def _bus_bandwidth(launch: Launch) -> float:
    """Of the largest all-reduce that was probed: the gradients of this model."""
    sizes = _first(launch, "all-reduce").get("sizes") or [{}]
    return number_or_nan(sizes[-1].get("bus_bytes_per_second"))


def _borrow_flops(rows: Sequence[Row]) -> None:
    """Where a stack's torch has no counter, take the count of the same model, mode and sizes on another stack."""
    told = [row for row in rows if row["outcome"] == "ok" and not math.isnan(row["flops_per_item"])]
    known = {row["flops_key"]: row["flops_per_item"] for row in told}
    for row in rows:
        row["flops_per_item"] = known.get(row["flops_key"], math.nan)


def _peak(launch: Launch, phase: str) -> float:
    """Of the largest process: cold up to the end of the first step, warm during the timed windows."""
    peaks = [max(event["peak_bytes"]) for event in launch.of("memory") if event.get("phase") == phase]
    return float(max(peaks)) if peaks else math.nan


def _host_bound(launch: Launch, windows: list[dict[str, Any]]) -> float:
    """Host time to enqueue one step on an idle device over the time of a step; near 1 the device waits for the host."""
    enqueue = [seconds for seconds in _first(launch, "enqueue").get("step_seconds") or () if seconds is not None]
    steps, finish = sum(w["steps"] for w in windows), sum(max(w["seconds"]) for w in windows)
    return max(enqueue) * steps / finish if enqueue and finish > 0 else math.nan


def _phase_seconds(launch: Launch, phase: str) -> float:
    return next((float(e["seconds"]) for e in launch.of("phase") if e.get("phase") == phase), math.nan)


def _cell_row(launches: list[Row]) -> Row:
    ok = [launch for launch in launches if launch["outcome"] == "ok"]
    last, found = shown(launches), summary(launches)
    cold = [launch["first_step_seconds"] for launch in ok if launch["compile"] and launch["compile_cache"] == "cold"]
    per_device = found["throughput"] / last["count"]
    return {
        **{key: last[key] for key in _COLUMNS if key not in ("run", "round", "throughput", "path", "seconds")},
        **found,
        "peak_bytes": max((launch["peak_bytes"] for launch in ok), default=math.nan),
        "per_device": per_device,
        "verdict": noise_verdict(found["cv"], found["n"]),
        "cold_compile_seconds": float(cold[0]) if cold else math.nan,
        "not_flat": sum(launch["flat"] is False for launch in ok),
        "throttled": sum(bool(launch["throttled"]) for launch in ok),
        "not_steady": sum(launch["steady"] is False for launch in ok),
        "too_warm": sum(bool(launch["too_warm"]) for launch in ok),
        "start_unknown": sum(bool(launch["start_unknown"]) for launch in ok),
        "ecc_errors": sum(launch["ecc_errors"] for launch in ok),
        "clock_jumps": sum(launch["clock_jump_seconds"] != 0 for launch in ok),
        "foreign": tuple(sorted({phrase for launch in ok for phrase in launch["foreign"]})),
        "mfu": _mfu(last, per_device),
        **{key: _median(launch[key] for launch in ok) for key in ("temperature_last", "power_watts", "energy_per_item")},
    }


def _mfu(launch: Row, per_device: float) -> float:
    facts = gpu_specs.find(launch["device_name"] or "", launch["device_memory_bytes"])
    peak = gpu_specs.peak_flops(facts, launch["precision"]) if facts else None
    return gpu_specs.mfu(per_device, launch["flops_per_item"], peak)


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.median(known)) if known else math.nan
