"""What every column of every exported table means: the files, their types and their descriptions all follow from this.

Units stand in the names. Kinds: text; number; whole (a whole number); flag (true or false); list (of texts, in files as JSON).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.matrix.factors import BY_NAME, COLUMNS, CONTRASTED, Factor


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """`source`: the key of the rows that it is made from (see rows.py)."""

    name: str
    kind: str
    meaning: str
    source: str


def _column(kind: str, name: str, meaning: str, source: str = "") -> Column:
    return Column(name=name, kind=kind, meaning=meaning, source=source or name)


def _text(name: str, meaning: str, source: str = "") -> Column:
    return _column("text", name, meaning, source)


def _number(name: str, meaning: str, source: str = "") -> Column:
    return _column("number", name, meaning, source)


def _whole(name: str, meaning: str, source: str = "") -> Column:
    return _column("whole", name, meaning, source)


def _flag(name: str, meaning: str, source: str = "") -> Column:
    return _column("flag", name, meaning, source)


def _list(name: str, meaning: str, source: str = "") -> Column:
    return _column("list", name, meaning, source)


def _interval(name: str, meaning: str, source: str, unit: str = "") -> Iterable[Column]:
    """A figure and both ends of its 95 % interval."""
    yield _number(name + unit, meaning, source)
    for end in ("low", "high"):
        yield _number(f"{name}_{end}{unit}", f"{end}er end of its 95 % interval; unknown with one launch", f"{source}_{end}")


def _factor(factor: Factor) -> Column:
    return _column("flag" if factor.kind is bool else "text", factor.name, factor.meaning)


_PAIRS = ", ".join(pair.name for factor in CONTRASTED for pair in factor.contrasts)
_WHERE = (
    _text("cell", "stack/workload/devices; torchmatrix run 'CELL' measures it again"),
    _text("stack", "the software combination, as the matrix names it"),
    _text("workload", "the job: model, mode, precision, batch per device and all other settings"),
    _text("devices", "the device set, such as gpu0+1; on a CPU a device is an equal share of the cores"),
)
_JOB = (
    _list("device_list", "the devices one by one"),
    _whole("device_count", "how many devices (N)", "count"),
    _text("parallel", "ddp, or how an explained cell ran its processes instead: independent, no-sync"),
    _text("model", "what is trained or run"),
    _text("mode", "train or infer"),
    _text("unit", "what an item is: images or sequences"),
    _factor(BY_NAME["precision"]),
    _text("effective_precision", DEFINITIONS["effective_precision"], "effective"),
    *(_factor(factor) for factor in COLUMNS if factor.name not in ("model", "mode", "precision")),
    _whole("batch_per_device", "items per device and step", "batch"),
    _text("batch_requested_per_device", "the batch that the matrix asks for; auto: the largest that fits", "batch_requested"),
    _whole("image_size_pixels", "of one side"),
    _whole("sequence_length_tokens", "of one sequence"),
    _text("torch", "version that the stack requests"),
    _text("torch_build", "version that ran, as it reports itself"),
    _text("device_name", "the first device, as the driver names it"),
    _whole("device_memory_bytes", "memory of the first device"),
    _whole("device_multiprocessors", "multiprocessors (AMD: compute units) of the first device"),
    _text("method", DEFINITIONS["method"]),
    _text("statistic", "median or mean: how launches combine into one figure"),
)
_RUNNING = (
    _number(
        "host_bound_fraction", "host time to enqueue a step over the time of a step; near 1 the device waits", "host_bound"
    ),
    _number("flops_per_item", "floating-point operations of the model for one item; every multiplication and addition counts"),
    _number("bus_bytes_per_second", DEFINITIONS["bus_bandwidth"]),
    _number("power_watts", "mean over the timed windows, all devices together"),
    _number("joules_per_item", DEFINITIONS["energy"], "energy_per_item"),
    _number("items_per_joule", "the inverse: items per second and watt"),
    _text("energy_problem", "why the energy is unknown, or that the power readings disagree with it"),
    _whole("peak_memory_bytes", "largest process in the timed windows; allocated on a GPU, resident on a CPU", "peak_bytes"),
    _whole("peak_memory_cold_bytes", "the same up to the end of the first step", "cold_peak_bytes"),
    _flag("mixed", "the set has GPUs of different models"),
    _number("ecc_errors", "uncorrected memory errors counted in the timed windows; 0 also where the device has no counter"),
    _list("foreign", "who else used the devices in the timed windows"),
    _text("unchecked", "why the losses could not be compared with eager fp32"),
)

_CELLS = (
    *_WHERE, *_JOB,
    _text("outcome", "of the last ok launch, or else of the last launch: ok, oom, timeout, crashed, numerics, …"),
    _text("error", "the first line that says what went wrong in it"),
    _whole("launches_ok", "launches that count (n)", "n"),
    _whole("launches_not_ok", "launches that gave no figure", "failed"),
    *_interval("items_per_second", DEFINITIONS["throughput"], "throughput"),
    _number("items_per_second_per_device", "throughput over the number of devices", "per_device"),
    _number("cv_fraction", DEFINITIONS["cv"], "cv"),
    _text("verdict", "stable, ok or noisy, by the coefficient of variation; n/a with one launch"),
    _number("mfu_fraction", DEFINITIONS["MFU"], "mfu"),
    _number("items_per_currency", "items per unit of the currency at the hourly price of the devices; needs a price list"),
    _number("items_per_second_per_currency", "items per second and unit of the currency that the devices cost to buy"),
    _text("currency", "currency of the price list"),
    *_RUNNING,
    _number("temperature_last_celsius", "hottest device at the end of the windows, median over launches", "temperature_last"),
    _number("first_step_cold_seconds", "first step with torch.compile from an empty compile cache", "cold_compile_seconds"),
    _whole("launches_not_flat", "launches whose warm-up ended at its cap, before the step time was flat", "not_flat"),
    _whole("launches_throttled", DEFINITIONS["throttled"], "throttled"),
    _whole("launches_not_steady", "launches in which temperature or clock still changed", "not_steady"),
    _whole("launches_too_warm", "launches that began above the method's temperature", "too_warm"),
    _whole("launches_start_unknown", "launches whose temperature at the start could not be read", "start_unknown"),
    _whole("launches_clock_jumped", "launches in which the wall clock was set", "clock_jumps"),
)  # fmt: skip

_LAUNCHES = (
    _text("run", "the run's id"), _whole("round", "which of the interleaved rounds"),
    *_WHERE, _text("ddp_workload", "the workload that an explained cell belongs to; otherwise the workload itself"), *_JOB,
    _text("outcome", "ok, oom, timeout, crashed, numerics, unsupported, build-failed, interrupted or lost"),
    _text("error", "the first line that says what went wrong"),
    _number("started_unix_seconds", "when it began, in seconds since 1970 UTC"),
    _number("launch_seconds", "from start to exit", "seconds"),
    _number("items_per_second", "items of all processes in the timed windows over the wall time of the slowest", "throughput"),
    _number("items_per_second_per_device", "the same over the number of devices", "per_device"),
    *_RUNNING,
    _number("energy_joules", "energy of all devices in all timed windows"),
    _number("temperature_first_celsius", "hottest device at the beginning of the timed windows", "temperature_first"),
    _number("temperature_last_celsius", "hottest device at their end", "temperature_last"),
    _number("clock_mhz", "mean over the timed windows, the slowest device"),
    _flag("throttled", DEFINITIONS["throttled"]),
    _flag("steady", "temperature and clock stayed constant; unknown with fewer than three readings"),
    _flag("too_warm", "the launch began above the method's temperature"),
    _flag("start_unknown", "the method limits the temperature at the start, but it could not be read"),
    _number("first_step_seconds", "first step, with compilation if there is any"),
    _text("compile_cache", "cold: the compile cache was empty; warm: it was not"),
    _flag("flat", "the warm-up ended because the step time was flat"),
    _number("loss_difference", "largest relative difference of the first losses from those of eager fp32"),
    _number("clock_jump_seconds", "by how much the wall clock was changed during the launch"),
    _text("other_settings", "the workload's further settings, as JSON"),
    _text("command", "what started it, to be pasted"),
    _text("work", "what must be equal in launches whose throughputs are compared, as JSON"),
    _text("file", "its facts, as named in the archive of the run's facts"),
)  # fmt: skip


def _ratio(name: str, key: str) -> Iterable[Column]:
    return _interval(name, DEFINITIONS[key], key)


_SHOWN = (
    *_WHERE[1:], _text("model", "what is trained or run"), _text("mode", "train or infer"), _text("unit", "what an item is"),
    _whole("batch_per_device", "items per device and step", "batch"),
)  # fmt: skip
_COMPARED = (
    *_interval("ratio", "this cell's throughput over the other cell's", "ratio"),
    _whole("launches_ok", "launches behind this cell", "n"),
    _whole("baseline_launches_ok", "launches behind the other cell", "baseline_n"),
    _text("why", "why there is no ratio"),
)
_VERDICT = _text("verdict", DEFINITIONS["reproduced"])

TABLES: dict[str, tuple[Column, ...]] = {
    "cells": _CELLS,
    "launches": _LAUNCHES,
    "scaling": (
        *_WHERE, _whole("device_count", "how many devices (N)", "count"),
        _text("baseline", "the one-device cell that T_1 comes from"),
        *_ratio("speedup_S", "S"), *_ratio("efficiency_E", "E"), *_ratio("scale_factor_s", "s"),
        *_ratio("efficiency_E_star", "E_star"), _flag("impossible", DEFINITIONS["impossible"]),
    ),
    "decomposition": (
        *_WHERE, _whole("device_count", "how many devices (N)", "count"),
        *(column for name in ("E", "E_hetero", "E_corun", "E_ddp", "E_comm") for column in _ratio(f"efficiency_{name}", name)),
        _number("exposed_communication_seconds_per_step", "the step with all-reduce minus the step without", "exposed_seconds"),
        _number("step_seconds", "time of the step with all-reduce"),
        _number("bus_bytes_per_second", DEFINITIONS["bus_bandwidth"]),
    ),
    "devices": (
        _text("stack", _WHERE[1].meaning), _text("workload", _WHERE[2].meaning),
        _text("device_name", "the GPU model, as the driver names it"), _text("device", "which of the devices"),
        _text("unit", "what an item is"),
        _number("items_per_second", "throughput of this device alone", "throughput"),
        *_interval("ratio", "over the median device of the same model", "ratio"),
        _flag("weak", "below 0.97 of the median device, beyond the interval"),
    ),
    "speedups": (*_SHOWN, _text("baseline", "the stack that it is compared with"), *_COMPARED),
    "settings": (
        _text("setting", f"the setting that differs: {_PAIRS}"), *_SHOWN,
        _text("over", "the workload that it is compared with: the same except for this setting"), *_COMPARED,
    ),
    "gpus": (
        _text("device_name", "the GPU model, as the driver names it"),
        _text("gpu", "the name in reports/published/gpus.csv; unknown: not there"),
        _text("vendor", "who makes it"), _text("architecture", "its generation"),
        _text("compute_capability", "of CUDA; for AMD the gfx target"),
        _whole("multiprocessors", "of one device, as torch counts them; AMD: compute units"),
        _whole("devices_per_card", "how many devices the driver shows for one card"),
        _number("memory_gb", "of one card, in 2^30 bytes, as the vendor rounds it"), _text("memory_type", "such as HBM3"),
        _whole("device_memory_bytes", "of one device, as torch sees it"),
        _number("bandwidth_gb_per_second", "of one card's memory, in 10^9 bytes"),
        _number("power_watts", "power limit of one card, by its data sheet"),
        _text("launch_date", "first sale or announcement"),
        *(_number(f"peak_{word}_tflops", "dense peak of one device in this precision, by its data sheet, in 10^12 per second")
          for word in ("fp32", "tf32", "amp", "amp_bf16")),
        *(_number(f"mfu_{word}_fraction", "best MFU of the run's cells in this precision", f"mfu_{word}")
          for word in ("fp32", "tf32", "amp", "amp_bf16")),
        _text("status", "verified or partly: how sure the data sheet's figures are"), _text("source", "where they come from"),
    ),
    "stacks": (
        _text("stack", _WHERE[1].meaning), _text("torch", "version that ran"), _text("torchvision", "version of torchvision"),
        _text("transformers", "version of transformers"), _text("python", "version of Python in the box"),
        _text("cuda", "CUDA that torch was built with"),
        _text("hip", "ROCm's HIP that torch was built with"), _text("cudnn", "version of cuDNN, as torch writes it"),
        _text("nccl", "version of NCCL, on AMD of RCCL"),
        _text("triton", "version of Triton"), _text("glibc", "version of the C library"),
        _text("os", "operating system in the box"),
        _text("image", "the image, or the virtualenv's interpreter"), _text("image_id", "the image's id"),
        _text("base", "the image that this one was built on"), _text("base_digest", "the digest of the base"),
        _text("lock_sha256", "SHA-256 of the lock that lists its contents"), _text("engine", "the engine that ran it"),
        _text("engine_version", "version of the engine"), _list("packages", "every Python package, NAME==VERSION"),
    ),
    "skips": (
        _text("cell", "a cell of the matrix that was not run"), _text("stack", _WHERE[1].meaning),
        _text("reason", "why this machine can't run it"), _text("fix", "how to fix that, if possible"),
    ),
    "failures": (
        *_WHERE, _whole("round", "which of the interleaved rounds"), _text("outcome", "how the launch ended"),
        _text("error", "the first line that says what went wrong"), _list("seen", "what the host observed during the launch"),
        _text("command", "what started it, to be pasted"),
        _text("file", "its facts, as named in the archive of the run's facts"),
    ),
    "findings": (
        _text("cell", _WHERE[0].meaning), _text("field", "what is impossible or can't be judged"), _text("value", "its value"),
        _text("limit", "the limit that it exceeds"), _text("reason", "the finding as a sentence"),
    ),
    "published": (
        _text("cell", _WHERE[0].meaning), _text("vendor", "who published it"), _text("published_gpu", "GPU, in their words"),
        _whole("gpus", "how many GPUs"), _text("published_model", "model, in their words"),
        _text("published_precision", "precision, in their words"), _text("torch", "version of torch, in their words"),
        _text("date", "when they measured or published it"),
        _text("unit", "unit of the throughputs"), *_interval("ours", "our throughput in that unit", "ours"),
        _number("theirs", "their throughput in that unit"),
        *_interval("ratio", "ours over theirs; unknown if not comparable", "ratio"),
        _number("reproduced_from", "from here on ours counts as reproduced", "low"),
        _number("reproduced_to", "up to here", "high"),
        _VERDICT, _list("differs", "why they are not comparable"), _list("besides", "what else differs"),
        _list("doubts", "what the audit finds in their figure"), _text("source", "where it was published"),
    ),
    "claims": (
        _text("vendor", "who claims it"), _text("quantity", "scale-factor, speed-up or ratio"), _text("against", "over what"),
        _list("models", "models that it covers; empty: not stated"), _list("precisions", "the same for precisions"),
        _text("published_gpu", "GPU, in their words"), _whole("gpus", "how many GPUs, or at least how many", "count"),
        _number("claimed_low", "the claim"), _number("claimed_high", "its upper end; unknown: \"more than\""),
        _text("what", "the cells that we measured for it"), *_interval("ours", "what we measured", "ours"),
        _number("reproduced_from", "from here on ours counts as reproduced", "low"),
        _number("reproduced_to", "up to here; unknown: no upper end", "high"),
        _VERDICT, _list("differs", "why it can't be compared"), _text("source", "where it was published"),
    ),
    "prices": (
        _text("gpu", "one card of this model"), _number("price_per_hour", "in the currency", "per_hour"),
        _number("purchase_price", "in the currency", "purchase"), _text("currency", "currency of the list"),
        _text("source", "who states the price"), _text("date", "when it was valid"),
    ),
}  # fmt: skip
"""Every table that is exported, with its columns in order."""

ABOUT = {
    "cells": "one row per cell: its figure over all launches, with its interval",
    "launches": "one row per launch, the last try of each: the samples behind every figure",
    "scaling": "one row per cell of several devices: speed-up, efficiency and scale factor",
    "decomposition": "one row per explained cell: where its scaling loss comes from",
    "devices": "one row per device measured alone, if several were",
    "speedups": "one row per cell: its throughput over that of a baseline stack",
    "settings": "one row per pair of cells that differ in one setting only",
    "gpus": "one row per GPU model measured: its data sheet, and the best MFU reached here",
    "stacks": "one row per stack: the versions that were really installed",
    "skips": "one row per cell that this machine can't run",
    "failures": "one row per launch that is not ok",
    "findings": "one row per figure of ours that is impossible or can't be judged",
    "published": "one row per published throughput beside one of our cells",
    "claims": "one row per claim of an article and what we measured for it",
    "prices": "the price list that was used",
}
"""One line about each table."""
