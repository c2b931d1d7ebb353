"""Launches -> tables (pandas): one row per launch, one row per cell. Definitions are in glossary.py."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from torchmatrix.analysis import comparable, gpu_specs, watched
from torchmatrix.analysis.centers import mean_of, median_of, variance_of
from torchmatrix.analysis.intervals import center_interval, noise_verdict
from torchmatrix.facts import plausible
from torchmatrix.facts.launch import Launch, measured_items, measured_seconds, throughput
from torchmatrix.facts.parts import AskedWorkload, Facts, SeenDevice
from torchmatrix.matrix.factors import COLUMNS, CONTRASTED

Row = dict[str, Any]
CellKey = tuple[str, ...]
"""What tells one cell from all others: its id, and in tables of several machines the machine before it."""

OF_A_FLEET = ("machine", "gpu")
"""The columns that a table of several machines has besides (see machines.py)."""


def launches_table(launches: Iterable[Launch]) -> pd.DataFrame:
    """One row per launch; the columns are those of `_launch_row`."""
    return table_of(launch_rows(launches))


def launch_rows(launches: Iterable[Launch]) -> list[Row]:
    """The rows of launches_table as dictionaries: unknown numbers are NaN, other unknowns None, sequences tuples."""
    rows = [_launch_row(launch) for launch in launches]
    borrow_flops(rows)
    return rows


def table_of(rows: Sequence[Row]) -> pd.DataFrame:
    """The table of what launch_rows made, of one run or of several; of a fleet if the rows say so."""
    return with_none(pd.DataFrame(rows, columns=[*_COLUMNS, *told_by(rows[0] if rows else ())]), rows, _MAY_BE_NONE)


def told_by(columns: Iterable[str]) -> list[str]:
    """Those of OF_A_FLEET that are among `columns`."""
    return [name for name in OF_A_FLEET if name in columns]


def with_none(table: pd.DataFrame, rows: Sequence[Row], names: Iterable[str]) -> pd.DataFrame:
    """None where a row has it: pandas makes NaN of it, which is true. Texts as they are: pandas 3 reads its own slowly."""
    for column in names:
        table[column] = pd.Series([row[column] for row in rows], dtype=object)
    return table.astype({name: object for name, kind in table.dtypes.items() if kind == "str"})


def cells_table(launches: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: median throughput over its ok launches, interval, n, CV, verdict; failed launches are counted."""
    if launches.empty:
        return pd.DataFrame(
            columns=["cell", "n", "failed", "throughput", "low", "high", "cv", "verdict", "outcome", "parallel"]
        )
    groups: dict[CellKey, list[Row]] = {}
    for row in records(launches):
        groups.setdefault(key_of(row), []).append(row)
    rows = [_cell_row(group) for group in groups.values()]
    return with_none(pd.DataFrame(rows), rows, _MAY_BE_NONE)


def records(table: pd.DataFrame) -> list[Row]:
    """The rows of a table as dictionaries by column, their numbers as Python's own. Faster than pandas' to_dict by far."""
    names, columns = list(table.columns), [_values(table[name]) for name in table.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: pd.Series) -> list[Any]:
    """A text that is unknown is None, also from pandas 3, where a column of texts has NaN for it."""
    values: list[Any] = column.tolist()
    return [None if value != value else value for value in values] if isinstance(column.dtype, pd.StringDtype) else values


def by_cell(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The launches of each cell of one machine, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["cell"], []).append(row)
    return groups


def key_of(row: Row) -> CellKey:
    """Of a row's cell: what two machines call the same is not the same cell."""
    return (row["machine"], row["cell"]) if "machine" in row else (row["cell"],)


def summary(launches: Sequence[Row]) -> Row:
    """What the launches of one cell say of its throughput: n (ok), failed, throughput, low and high (95 %), cv.

    Items per second; NaN where there are too few ok launches to say.
    """
    values = [float(launch["throughput"]) for launch in launches if launch["outcome"] == "ok"]
    interval = center_interval(values, shown(launches)["statistic"])
    return {
        "n": len(values),
        "failed": len(launches) - len(values),
        "throughput": interval.value,
        "low": interval.low,
        "high": interval.high,
        "cv": math.sqrt(variance_of(values)) / mean_of(values) if len(values) > 1 else math.nan,
    }


def shown(launches: Sequence[Row]) -> Row:
    """The launch that stands for its cell where they can't be pooled: the last ok one, else the last."""
    return next((launch for launch in reversed(launches) if launch["outcome"] == "ok"), launches[-1])


_COMPACT, _SORTED = json.JSONEncoder(separators=(",", ":")), json.JSONEncoder(sort_keys=True)
"""Made once: json.dumps makes one for each call with other settings than its own."""
_FACTORS = tuple(factor.name for factor in COLUMNS)
_NO_OTHER_SETTING = frozenset(
    {"id", "batch", "batch_for", "parallel", "explain", "stacks", "counts", *(factor.name for factor in CONTRASTED)}
)
_FROM_WATCH = (
    "temperature_first", "temperature_last", "clock_mhz", "power_watts", "energy_joules", "energy_problem", "throttled",
    "steady", "foreign", "ecc_errors",
)  # fmt: skip
_COLUMNS = (
    "cell", "run", "round", "outcome", "error", "stack", "accelerator", "recipe", "gpu_names", "workload", "ddp_workload",
    "parallel", "devices", "device_list",
    "count", "unit", *_FACTORS, "other_settings", "batch", "batch_requested", "torch", "torch_build", "device_name",
    "device_memory_bytes", "device_multiprocessors", "method", "statistic", "too_warm", "start_unknown", "throughput",
    "skipped_steps", "per_device", "energy_per_item", *_FROM_WATCH, "flops_key", "flops_per_item", "peak_bytes",
    "cold_peak_bytes", "mixed", "host_bound", "first_step_seconds", "compile_cache", "flat", "drift", "stall",
    "effective", "loss_difference", "unchecked",
    "bus_bytes_per_second", "seconds", "clock_jump_seconds", "command", "work", "path",
)  # fmt: skip

_MAY_BE_NONE = (
    "error", "accelerator", "recipe", *(factor.name for factor in COLUMNS if factor.may_be_none), "torch", "torch_build",
    "device_name", "device_memory_bytes", "device_multiprocessors", "energy_problem", "steady", "compile_cache", "flat",
    "effective", "unchecked",
)  # fmt: skip


def _launch_row(launch: Launch) -> Row:
    return _as_asked(launch) | _as_the_box_told(launch) | _as_timed(launch)


def _as_asked(launch: Launch) -> Row:
    """Which launch it is, of what, on what, and how it was to be measured."""
    return {
        "cell": launch.cell,
        "run": launch.run,
        "round": launch.round,
        "command": launch.command,
        "stack": launch.stack.name,
        "torch": launch.stack.torch,
        "accelerator": launch.stack.accelerator,
        "recipe": _recipe(launch),
        "gpu_names": tuple(gpu.name or "" for gpu in launch.devices.gpus),
        "workload": launch.workload.id,
        "ddp_workload": launch.workload.ddp_id,
        "parallel": launch.workload.parallel,
        "devices": launch.devices.label,
        "device_list": launch.devices.names,
        "count": len(launch.devices.indices),
        "mixed": len({gpu.name for gpu in launch.devices.gpus}) > 1,
        "unit": launch.workload.unit,
        **{factor.name: factor.recorded_in(launch.workload.factors) for factor in COLUMNS},
        "other_settings": _other_settings(launch.workload.factors),
        "batch": launch.batch,
        "batch_requested": launch.batch if launch.batch_requested is None else launch.batch_requested,
        "method": launch.method.name,
        "statistic": launch.method.statistic,
        "flops_key": _flops_key(launch.workload),
        "work": _COMPACT.encode(comparable.work_of(launch)),
        "path": str(launch.path),
    }


def _as_the_box_told(launch: Launch) -> Row:
    """What the box found out about itself and its work."""
    device = _device(launch)
    return {
        "torch_build": launch.box.torch if launch.box else None,
        "device_name": device.name,
        "device_memory_bytes": device.memory_bytes,
        "device_multiprocessors": device.multiprocessors,
        "compile_cache": launch.compile_cache,
        "effective": _effective(launch),
        "flops_per_item": launch.reference.flops_per_item if launch.reference else math.nan,
        "loss_difference": max(launch.reference.differences, default=math.nan) if launch.reference else math.nan,
        "unchecked": launch.reference.error if launch.reference else None,
        "bus_bytes_per_second": launch.bus_bytes_per_second,
        "peak_bytes": _peak(launch, "warm"),
        "cold_peak_bytes": _peak(launch, "cold"),
    }


def _as_timed(launch: Launch) -> Row:
    """How it ended, how fast it was, and what was seen of the machine meanwhile."""
    rate, seen = throughput(launch), watched.summarize(launch)
    return {
        "outcome": launch.outcome,
        "error": launch.error,
        "too_warm": bool(launch.start and launch.start.too_warm),
        "start_unknown": _is_start_unknown(launch),
        "throughput": rate,
        "per_device": rate / len(launch.devices.indices),
        **{key: getattr(seen, key) for key in _FROM_WATCH},
        "energy_per_item": seen.energy_joules / measured_items(launch) if launch.windows else math.nan,
        "host_bound": _host_bound(launch),
        "first_step_seconds": launch.phases.get("first-step", math.nan),
        "flat": launch.warm_up.flat if launch.warm_up else None,
        "skipped_steps": sum(window.skipped_steps for window in launch.windows),
        "drift": _drift(launch),
        "stall": plausible.stall(launch.windows),
        "seconds": launch.seconds,
        "clock_jump_seconds": watched.clock_jump_seconds(launch),
    }


def _drift(launch: Launch) -> float:
    """NaN where the step time was flat, or nothing is known of it."""
    found = launch.warm_up.drift if launch.warm_up else None
    return math.nan if found is None else found


def _recipe(launch: Launch) -> str | None:
    """What the stack was built by: equal recipes give equal software."""
    found = launch.image.facts.get("environment") if launch.image else None
    return found if isinstance(found, str) else None


def _flops_key(workload: AskedWorkload) -> tuple[object, ...]:
    """Launches that agree in it do the same operations per item."""
    return workload.model, workload.mode, workload.image_size, workload.sequence_length


def _other_settings(factors: Facts) -> str:
    return _SORTED.encode({key: value for key, value in factors.items() if key not in _NO_OTHER_SETTING})


def _is_start_unknown(launch: Launch) -> bool:
    """Did the method set a temperature to start below, and none could be read?"""
    known = launch.start is not None and launch.start.temperature_celsius is not None
    return launch.method.start_below_celsius is not None and not known


_UNSEEN = SeenDevice(name=None, memory_bytes=None, multiprocessors=None, uuid=None)


def _device(launch: Launch) -> SeenDevice:
    """The first device, as torch sees it in the box."""
    return next(iter(launch.seen_devices), _UNSEEN)


def _effective(launch: Launch) -> str | None:
    """Such as "fp32", or "tf32 (convolution: fp32)" where the two kinds of operation differ."""
    if not launch.precision:
        return None
    first = launch.precision[0]
    return first.matmul if first.matmul == first.convolution else f"{first.matmul} (convolution: {first.convolution})"


def borrow_flops(rows: Sequence[Row]) -> None:
    """A launch that counted nothing takes what its stack counted for the same model, mode and sizes; where the stack's torch
    has no counter, what another stack did.
    """
    told = [row for row in rows if row["outcome"] == "ok" and not math.isnan(row["flops_per_item"])]
    own = {(row["stack"], row["flops_key"]): row["flops_per_item"] for row in told}
    others = {row["flops_key"]: row["flops_per_item"] for row in told}
    for row in rows:
        key = row["flops_key"]
        row["flops_per_item"] = own.get((row["stack"], key), others.get(key, math.nan))


def _peak(launch: Launch, phase: str) -> float:
    """Of the largest process: cold up to the end of the first step, warm during the timed windows."""
    return max((float(max(memory.peak_bytes)) for memory in launch.memory if memory.phase == phase), default=math.nan)


def _host_bound(launch: Launch) -> float:
    """Host time to enqueue one step on an idle device over the time of a step; near 1 the device waits for the host."""
    seconds = measured_seconds(launch)
    steps = sum(window.steps for window in launch.windows)
    return max(launch.enqueue_seconds) * steps / seconds if launch.enqueue_seconds and seconds > 0 else math.nan


def _cell_row(launches: list[Row]) -> Row:
    ok = [launch for launch in launches if launch["outcome"] == "ok"]
    last, found = shown(launches), summary(launches)
    cold = [launch["first_step_seconds"] for launch in ok if launch["compile"] and launch["compile_cache"] == "cold"]
    per_device = found["throughput"] / last["count"]
    return {
        **{
            key: last[key]
            for key in (*_COLUMNS, *told_by(last))
            if key not in ("run", "round", "throughput", "path", "seconds", "stall")
        },
        **found,
        "peak_bytes": max((launch["peak_bytes"] for launch in ok), default=math.nan),
        "per_device": per_device,
        "verdict": noise_verdict(found["cv"], found["n"]),
        "cold_compile_seconds": median_of(cold) if cold else math.nan,
        "not_flat": sum(launch["flat"] is False for launch in ok),
        "drift": _median(launch["drift"] for launch in ok),
        "stalled": sum(launch["stall"] > 0 for launch in ok),
        "throttled": sum(bool(launch["throttled"]) for launch in ok),
        "not_steady": sum(launch["steady"] is False for launch in ok),
        "too_warm": sum(bool(launch["too_warm"]) for launch in ok),
        "skipped_steps": sum(launch["skipped_steps"] > 0 for launch in ok),
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
    return median_of(known) if known else math.nan
