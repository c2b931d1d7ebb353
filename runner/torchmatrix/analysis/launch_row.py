"""A launch -> its row: as it was asked for, as the box told, as it was timed. tables.py makes tables of such rows."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from torchmatrix.analysis import comparable, metrics, watched
from torchmatrix.facts import plausible
from torchmatrix.facts.launch import UNLIKE, Launch, measured_items, measured_seconds, throughput
from torchmatrix.facts.parts import AskedWorkload, Facts, SeenDevice
from torchmatrix.ground.texts import as_text
from torchmatrix.matrix.factors import COLUMNS, CONTRASTED, FACTORS

Row = dict[str, Any]

_COMPACT, _SORTED = json.JSONEncoder(separators=(",", ":")), json.JSONEncoder(sort_keys=True)
"""Made once: json.dumps makes one for each call with other settings than its own."""
_FACTORS = tuple(factor.name for factor in COLUMNS)
_NO_OTHER_SETTING = frozenset(
    {
        "id",
        "batch",
        "batch_for",
        "parallel",
        "explain",
        "stacks",
        "counts",
        *(factor.name for factor in CONTRASTED),
        *(factor.name for factor in FACTORS if not factor.decides),
    }
)
_FROM_WATCH = (
    "temperature_first", "temperature_last", "clock_mhz", "power_watts", "energy_joules", "energy_problem", "throttled",
    "throttled_later", "steady", "warming", "clock_change", "power_change", "later_clock", "at_limit", "under_load_seconds",
    "foreign", "ecc_errors", "quota_seconds",
)  # fmt: skip
PARITY = ("largest_absolute", "largest_relative", "cosine", "top1")
"""The figures of an inference's outputs beside those of eager fp32, as the box names them."""
COLUMNS_OF_LAUNCHES = (
    "cell", "run", "round", "outcome", "error", "left_out", "apart", "stack", "accelerator", "recipe", "gpu_names",
    "workload", "ddp_workload", "parallel", "devices", "device_list",
    "count", "nodes", "unit", *_FACTORS, "other_settings", "batch", "batch_requested", "torch", "torch_build", "device_name",
    "device_memory_bytes", "device_multiprocessors", "method", "statistic", "too_warm", "start_unknown", "throughput",
    "requests", "skipped_steps", "per_device", "energy_per_item", *_FROM_WATCH, "flops_key", "operations",
    "parameters", "flops_per_item", "flops_from", "peak_bytes",
    "cold_peak_bytes", "mixed", "unlike", "host_bound", "first_step_seconds", "compile_cache", "flat", "drift", "stall",
    "effective", "changed_settings", "remarks", "loss_difference", *(f"parity_{name}" for name in PARITY), "unchecked",
    "only_seen", "bus_bytes_per_second", "transport", "collectives", "seconds", "clock_jump_seconds", "command", "work", "path",
)  # fmt: skip

MAY_BE_NONE = (
    "error", "accelerator", "recipe", *(factor.name for factor in COLUMNS if factor.may_be_none), "torch", "torch_build",
    "device_name", "device_memory_bytes", "device_multiprocessors", "parameters", "flops_from", "energy_problem", "steady",
    "compile_cache", "flat", "effective", "changed_settings", "remarks", "unchecked", "only_seen", "requests", "transport",
)  # fmt: skip


def row_of(launch: Launch) -> Row:
    """Unknown numbers are NaN, other unknowns None, sequences tuples."""
    return _as_asked(launch) | _as_the_box_told(launch) | _as_timed(launch)


def left_out(launches: Sequence[Row]) -> Row:
    """How many launches are left out of the figure, and why, such as "power limit 500 W, the others 700 W"."""
    whys = Counter(launch["left_out"] for launch in launches if launch["outcome"] == UNLIKE)
    return {"left_out": sum(whys.values()), "left_out_why": "; ".join(_each(why, number, whys) for why, number in whys.items())}


def _each(why: str, number: int, whys: Mapping[str, int]) -> str:
    return f"{number} of them: {why}" if len(whys) > 1 else why


def columns_of(rows: Sequence[Row], names: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Two columns or more. Each row is visited once: to visit all for each column takes several times as long."""
    columns = zip(*map(itemgetter(*names), rows), strict=True) if rows else ((),) * len(names)
    return dict(zip(names, columns, strict=True))


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
        "count": launch.devices.count,
        "nodes": launch.devices.nodes,
        "mixed": len({gpu.name for gpu in launch.devices.gpus}) > 1,
        "unlike": launch.devices.unlike,
        "unit": launch.workload.unit,
        **{factor.name: factor.recorded_in(launch.workload.factors) for factor in COLUMNS},
        "other_settings": _other_settings(launch.workload.factors),
        "batch": launch.batch,
        "batch_requested": launch.batch if launch.batch_requested is None else launch.batch_requested,
        "method": launch.method.name,
        "statistic": launch.method.statistic,
        "flops_key": _flops_key(launch.workload),
        "operations": _operations(launch),
        "work": _COMPACT.encode(comparable.work_of(launch)),
        "path": as_text(launch.path),
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
        "changed_settings": "; ".join(launch.changed_settings) or None,
        "parameters": launch.parameters,
        "remarks": "; ".join(launch.remarks) or None,
        "flops_per_item": launch.reference.flops_per_item if launch.reference else math.nan,
        "flops_from": None,
        "loss_difference": max(launch.reference.differences, default=math.nan) if launch.reference else math.nan,
        **_parity(launch),
        "unchecked": launch.unchecked,
        "only_seen": launch.unseen.error,
        "bus_bytes_per_second": launch.bus_bytes_per_second,
        "transport": _transport(launch),
        "collectives": _COMPACT.encode(_collectives(launch)),
        "peak_bytes": _peak(launch, "warm"),
        "cold_peak_bytes": _peak(launch, "cold"),
    }


def _as_timed(launch: Launch) -> Row:
    """How it ended, how fast it was, and what was seen of the machine meanwhile."""
    rate, seen = throughput(launch), watched.summarize(launch)
    return {
        "outcome": launch.outcome,
        "error": launch.error,
        "left_out": launch.left_out,
        "apart": launch.apart,
        "too_warm": bool(launch.start and launch.start.too_warm),
        "start_unknown": _is_start_unknown(launch),
        "throughput": rate,
        "requests": metrics.requests_of(launch),
        "per_device": rate / launch.devices.count,
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
    """What is trained or run, and the size of an image or a text."""
    return workload.model, workload.mode, workload.image_size, workload.sequence_length


def _operations(launch: Launch) -> str:
    """Launches that agree in it do the same operations per item: all that the reference in eager fp32 takes from its launch."""
    names = ("model", "mode", "image_size", "sequence_length", "audio_seconds", "eval")
    return _COMPACT.encode([*map(launch.workload.factors.get, names), launch.batch, launch.workload_hash])


def _other_settings(factors: Facts) -> str:
    return _SORTED.encode({key: value for key, value in factors.items() if key not in _NO_OTHER_SETTING})


def _is_start_unknown(launch: Launch) -> bool:
    """Did the method set a temperature to start below, and none could be read?"""
    known = launch.start is not None and launch.start.temperature_celsius is not None
    return launch.method.start_below_celsius is not None and not known


_OWN_LINK = re.compile(r"NV\d+|XGMI")
_UNSEEN = SeenDevice(name=None, memory_bytes=None, multiprocessors=None, uuid=None)


def _device(launch: Launch) -> SeenDevice:
    """The first device, as torch sees it in the box."""
    return next(iter(launch.seen_devices), _UNSEEN)


def _effective(launch: Launch) -> str | None:
    """Such as "fp32", "tf32 (convolution: fp32)" where two kinds of operation differ, "mixed: …" where a model's types do."""
    if not launch.precision:
        return None
    first = next((rank for rank in launch.precision if rank.mixed), launch.precision[0])
    if first.mixed:
        return first.mixed
    others = {"convolution": first.convolution, "linear layers": first.linear or first.matmul}
    others |= {"matmul backward": first.matmul_backward or first.matmul}
    others |= {"convolution backward": first.convolution_backward or first.convolution}
    differing = ", ".join(f"{name}: {one}" for name, one in others.items() if one != first.matmul)
    return f"{first.matmul} ({differing})" if differing else first.matmul


def _collectives(launch: Launch) -> list[list[Any]]:
    """Operation, bytes, seconds, bus bandwidth, and whether all devices are linked by NVLink or Infinity Fabric."""
    linked = launch.devices.nodes == 1 and _are_linked(launch.host.get("links"), launch.devices.indices)
    return [[one.operation, *size, linked] for one in launch.collectives for size in one.sizes]


def _are_linked(links: object, indices: Sequence[int]) -> bool:
    """`links`: a row and a column per GPU, in the words of machine/topology.py, as the host recorded them."""
    if not isinstance(links, list) or not all(isinstance(row, list) and len(row) > max(indices) for row in links):
        return False
    words = (str(links[one][other]) for one in indices for other in indices if one != other)
    return max(indices) < len(links) and all(map(_OWN_LINK.fullmatch, words))


def _transport(launch: Launch) -> str | None:
    """Such as "nccl over IB (NET/IB/0/GDRDMA)"; None on one node."""
    found = launch.transport
    if found is None:
        return None
    paths = f" ({', '.join(found.paths)})" if found.paths else ""
    return f"{found.library} over {found.network or 'an unknown network'}{paths}"


def _parity(launch: Launch) -> Row:
    """How far the outputs of an inference are from eager fp32."""
    told = launch.reference.parity if launch.reference else {}
    return {f"parity_{name}": told.get(name, math.nan) for name in PARITY}


def _peak(launch: Launch, phase: str) -> float:
    """Of the largest process: cold up to the end of the first step, warm during the timed windows."""
    return max((float(max(memory.peak_bytes)) for memory in launch.memory if memory.phase == phase), default=math.nan)


def _host_bound(launch: Launch) -> float:
    """Host time to enqueue one step on an idle device over the time of a step; near 1 the device waits for the host."""
    seconds = measured_seconds(launch)
    steps = sum(window.steps for window in launch.windows)
    return max(launch.enqueue_seconds) * steps / seconds if launch.enqueue_seconds and seconds > 0 else math.nan
