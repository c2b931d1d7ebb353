"""What every column of every exported table means: files, their types and their descriptions are all made from this.

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
    _text("workload", "the job: model, mode, precision, batch per device and what else makes it"),
    _text("devices", "the device set, such as gpu0+1; on a CPU a device is an equal share of the cores"),
)
_JOB = (
    _list("device_list", "the devices one by one"),
    _whole("device_count", "how many devices (N)", "count"),
    _text("parallel", "ddp, or in what other way an explained cell ran its processes: independent, no-sync"),
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
    _text("torch", "version that the stack asks for"),
    _text("torch_build", "version that ran, as it calls itself"),
    _text("device_name", "the first device, as the driver calls it"),
    _whole("device_memory_bytes", "memory of the first device"),
    _whole("device_multiprocessors", "multiprocessors (AMD: compute units) of the first device"),
    _text("method", DEFINITIONS["method"]),
    _text("statistic", "median or mean: what makes one figure of the launches"),
)
_RUNNING = (
    _number(
        "host_bound_fraction", "host time to enqueue a step over the time of a step; near 1 the device waits", "host_bound"
    ),
    _number("flops_per_item", "floating-point operations of the model for one item; every multiplication and addition counts"),
    _number("bus_bytes_per_second", DEFINITIONS["bus_bandwidth"]),
    _number("power_watts", "mean over the timed windows, all devices together"),
    _number("joules_per_item", DEFINITIONS["energy"], "energy_per_item"),
    _number("items_per_joule", "the same, turned round: items per second and watt"),
    _text("energy_problem", "why the energy is unknown, or that the power readings disagree with it"),
    _whole("peak_memory_bytes", "largest process in the timed windows; allocated on a GPU, resident on a CPU", "peak_bytes"),
    _whole("peak_memory_cold_bytes", "the same up to the end of the first step", "cold_peak_bytes"),
    _flag("mixed", "GPUs of different models in one set"),
    _number("ecc_errors", "uncorrected memory errors counted in the timed windows; 0 also where the device has no counter"),
    _list("foreign", "who else used the devices in the timed windows"),
    _text("unchecked", "why the losses could not be compared with eager fp32"),
)

_CELLS = (
    *_WHERE, *_JOB,
    _text("outcome", "of the last launch that is ok, else of the last: ok, oom, timeout, crashed, numerics, …"),
    _text("error", "the first line that says what went wrong in it"),
    _whole("launches_ok", "launches that count (n)", "n"),
    _whole("launches_not_ok", "launches that gave no number", "failed"),
    *_interval("items_per_second", DEFINITIONS["throughput"], "throughput"),
    _number("items_per_second_per_device", "throughput over the number of devices", "per_device"),
    _number("cv_fraction", DEFINITIONS["cv"], "cv"),
    _text("verdict", "stable, ok or noisy, by the coefficient of variation; n/a with one launch"),
    _number("mfu_fraction", DEFINITIONS["MFU"], "mfu"),
    _number("items_per_currency", "items per unit of the currency at the hourly price of the devices; needs a price list"),
    _number("items_per_second_per_currency", "items per second and unit of the currency that the devices cost to buy"),
    _text("currency", "of the price list"),
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
    *_WHERE, _text("ddp_workload", "the workload without the way in which an explained cell ran it"), *_JOB,
    _text("outcome", "ok, oom, timeout, crashed, numerics, unsupported, build-failed, interrupted or lost"),
    _text("error", "the first line that says what went wrong"),
    _number("started_unix_seconds", "when it began, in seconds since 1970 UTC"),
    _number("launch_seconds", "from start to exit", "seconds"),
    _number("items_per_second", "items of all processes in the timed windows over the wall time of the slowest", "throughput"),
    _number("items_per_second_per_device", "the same over the number of devices", "per_device"),
    *_RUNNING,
    _number("energy_joules", "of all devices in all timed windows"),
    _number("temperature_first_celsius", "hottest device at the beginning of the timed windows", "temperature_first"),
    _number("temperature_last_celsius", "hottest device at their end", "temperature_last"),
    _number("clock_mhz", "mean over the timed windows, the slowest device"),
    _flag("throttled", DEFINITIONS["throttled"]),
    _flag("steady", "temperature and clock stayed; unknown with fewer than three readings"),
    _flag("too_warm", "it began above the method's temperature"),
    _flag("start_unknown", "the method has a temperature to start below, and none could be read"),
    _number("first_step_seconds", "first step, with compilation if there is any"),
    _text("compile_cache", "cold: the compile cache was empty; warm: it was not"),
    _flag("flat", "the warm-up ended because the step time was flat"),
    _number("loss_difference", "largest relative difference of the first losses from those of eager fp32"),
    _number("clock_jump_seconds", "by how much the wall clock was set meanwhile"),
    _text("other_settings", "the workload's further settings, as JSON"),
    _text("command", "what started it, to be pasted"),
    _text("work", "what must be the same in launches whose throughputs are compared, as JSON"),
    _text("file", "its facts, as named in the archive of the run's facts"),
)  # fmt: skip


def _ratio(name: str, key: str) -> Iterable[Column]:
    return _interval(name, DEFINITIONS[key], key)


_SHOWN = (
    *_WHERE[1:], _text("model", "what is trained or run"), _text("mode", "train or infer"), _text("unit", "what an item is"),
    _whole("batch_per_device", "items per device and step", "batch"),
)  # fmt: skip
_COMPARED = (
    *_interval("ratio", "its throughput over the other's", "ratio"),
    _whole("launches_ok", "launches behind it", "n"),
    _whole("baseline_launches_ok", "launches behind the other", "baseline_n"),
    _text("why", "why there is no ratio"),
)
_VERDICT = _text("verdict", DEFINITIONS["reproduced"])

TABLES: dict[str, tuple[Column, ...]] = {
    "cells": _CELLS,
    "launches": _LAUNCHES,
    "scaling": (
        *_WHERE, _whole("device_count", "how many devices (N)", "count"),
        _text("baseline", "the cell of one device that T_1 is of"),
        *_ratio("speedup_S", "S"), *_ratio("efficiency_E", "E"), *_ratio("scale_factor_s", "s"),
        *_ratio("efficiency_E_star", "E_star"), _flag("impossible", DEFINITIONS["impossible"]),
    ),
    "decomposition": (
        *_WHERE, _whole("device_count", "how many devices (N)", "count"),
        *(column for name in ("E", "E_hetero", "E_corun", "E_ddp", "E_comm") for column in _ratio(f"efficiency_{name}", name)),
        _number("exposed_communication_seconds_per_step", "the step with all-reduce less the step without", "exposed_seconds"),
        _number("step_seconds", "of the step with all-reduce"),
        _number("bus_bytes_per_second", DEFINITIONS["bus_bandwidth"]),
    ),
    "devices": (
        _text("stack", _WHERE[1].meaning), _text("workload", _WHERE[2].meaning),
        _text("device_name", "the model, as the driver calls it"), _text("device", "which of the devices"),
        _text("unit", "what an item is"),
        _number("items_per_second", "of this device alone", "throughput"),
        *_interval("ratio", "over the median device of the same model", "ratio"),
        _flag("weak", "below 0.97 of the median device, beyond the interval"),
    ),
    "speedups": (*_SHOWN, _text("baseline", "the stack that it is compared with"), *_COMPARED),
    "settings": (
        _text("setting", f"what differs: {_PAIRS}"), *_SHOWN,
        _text("over", "the workload that it is compared with: the same but for this setting"), *_COMPARED,
    ),
    "gpus": (
        _text("device_name", "as the driver calls it"),
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
        _text("status", "verified or partly: how sure the data sheet's figures are"), _text("source", "where they stem from"),
    ),
    "stacks": (
        _text("stack", _WHERE[1].meaning), _text("torch", "version that ran"), _text("torchvision", "version of torchvision"),
        _text("transformers", "version of transformers"), _text("python", "version of Python in the box"),
        _text("cuda", "CUDA that torch was built with"),
        _text("hip", "ROCm's HIP that torch was built with"), _text("cudnn", "version of cuDNN, as torch writes it"),
        _text("nccl", "version of NCCL, on AMD of RCCL"),
        _text("triton", "version of Triton"), _text("glibc", "version of the C library"),
        _text("os", "operating system in the box"),
        _text("image", "the image, or the virtualenv's interpreter"), _text("image_id", "id of the image"),
        _text("base", "the image that it was built on"), _text("base_digest", "and its digest"),
        _text("lock_sha256", "of the lock that says what it is made of"), _text("engine", "the engine that ran it"),
        _text("engine_version", "version of the engine"), _list("packages", "every Python package, NAME==VERSION"),
    ),
    "skips": (
        _text("cell", "a cell of the matrix that was not run"), _text("stack", _WHERE[1].meaning),
        _text("reason", "why this machine can't run it"), _text("fix", "the way out, where there is one"),
    ),
    "failures": (
        *_WHERE, _whole("round", "which of the interleaved rounds"), _text("outcome", "what became of the launch"),
        _text("error", "the first line that says what went wrong"), _list("seen", "what the host saw meanwhile"),
        _text("command", "what started it, to be pasted"),
        _text("file", "its facts, as named in the archive of the run's facts"),
    ),
    "findings": (
        _text("cell", _WHERE[0].meaning), _text("field", "what can't be, or can't be judged"), _text("value", "what it is"),
        _text("limit", "what was overstepped"), _text("reason", "in a sentence"),
    ),
    "published": (
        _text("cell", _WHERE[0].meaning), _text("vendor", "who published it"), _text("published_gpu", "GPU, in their words"),
        _whole("gpus", "how many GPUs"), _text("published_model", "model, in their words"),
        _text("published_precision", "precision, in their words"), _text("torch", "version of torch, in their words"),
        _text("date", "when they measured or published it"),
        _text("unit", "of the throughputs"), *_interval("ours", "our throughput in that unit", "ours"),
        _number("theirs", "their throughput in that unit"),
        *_interval("ratio", "ours over theirs; unknown if not comparable", "ratio"),
        _number("reproduced_from", "from here on ours counts as reproduced", "low"),
        _number("reproduced_to", "up to here", "high"),
        _VERDICT, _list("differs", "why they are not comparable"), _list("besides", "what else differs"),
        _list("doubts", "what the audit finds in their figure"), _text("source", "where it was published"),
    ),
    "claims": (
        _text("vendor", "who claims it"), _text("quantity", "scale-factor, speed-up or ratio"), _text("against", "over what"),
        _list("models", "which models it is about; none: not said"), _list("precisions", "which precisions; none: not said"),
        _text("published_gpu", "GPU, in their words"), _whole("gpus", "how many, or at least", "count"),
        _number("claimed_low", "the claim"), _number("claimed_high", "its upper end; unknown: \"more than\""),
        _text("what", "the cells that we measured of it"), *_interval("ours", "what we measured", "ours"),
        _number("reproduced_from", "from here on ours counts as reproduced", "low"),
        _number("reproduced_to", "up to here; unknown: no upper end", "high"),
        _VERDICT, _list("differs", "why it can't be compared"), _text("source", "where it was published"),
    ),
    "prices": (
        _text("gpu", "one card of this model"), _number("price_per_hour", "in the currency", "per_hour"),
        _number("purchase_price", "in the currency", "purchase"), _text("currency", "of the list"),
        _text("source", "who says so"), _text("date", "when that was so"),
    ),
}  # fmt: skip
"""Every table that is exported, with its columns in order."""

ABOUT = {
    "cells": "one row per cell: its figure over all launches, with its interval",
    "launches": "one row per launch, the last try of each: the samples behind every figure",
    "scaling": "one row per cell of several devices: speed-up, efficiency and scale factor",
    "decomposition": "one row per explained cell: where its loss of scaling comes from",
    "devices": "one row per device measured alone, where several were",
    "speedups": "one row per cell: its throughput over that of a baseline stack",
    "settings": "one row per pair of cells that differ in one setting only",
    "gpus": "one row per GPU model measured: its data sheet, and the best MFU reached here",
    "stacks": "one row per stack: what it really was",
    "skips": "one row per cell that this machine can't run",
    "failures": "one row per launch that is not ok",
    "findings": "one row per figure of ours that can't be, or can't be judged",
    "published": "one row per published throughput beside one of our cells",
    "claims": "one row per claim of an article and what we measured of it",
    "prices": "the price list that was used",
}
"""What each table is, in a line."""
