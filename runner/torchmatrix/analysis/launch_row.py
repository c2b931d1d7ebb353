"""Every column of the tables of launches and cells: one entry each, from which rows, files and their descriptions follow.

A launch's row has all entries with `of`. A cell's row is that of its representative launch, plus the values that are computed
from all its launches (`cell`). Unknown numbers are NaN, other unknowns None, sequences tuples.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import structs

from torchmatrix.analysis import gpu_specs, metrics, watched
from torchmatrix.analysis.centers import median_of
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.metrics import Metric, Read
from torchmatrix.analysis.rows import (
    CELLS,
    LAUNCHES,
    CellRow,
    Column,
    LaunchRow,
    NightRow,
    Row,
    ThoseRows,
    a_flag,
    a_list,
    a_number,
    a_text,
    a_whole,
    an_interval,
    counter_of,
    with_columns,
    work_of,
)
from torchmatrix.core.formatting import as_text, number_or_nan
from torchmatrix.core.secrets import cleaned_value
from torchmatrix.facts import plausible
from torchmatrix.facts.host_parts import AskedWorkload
from torchmatrix.facts.launch import Launch, measured_seconds, rates_of_ranks
from torchmatrix.facts.wire import Facts, SeenDevice
from torchmatrix.matrix.factors import BY_NAME, COLUMNS, FACTORS, IN_FLOAT8, SETTLED, Factor

if TYPE_CHECKING:
    from torchmatrix.analysis.cells import Cell

_COMPACT, _SORTED = json.JSONEncoder(separators=(",", ":")), json.JSONEncoder(sort_keys=True)
"""Encoders made once: json.dumps makes a new one in each call with settings other than its defaults."""
_NO_OTHER_SETTING = frozenset({
    "id", "batch", "batch_for", "parallel", "explain", "stacks", "counts", *(factor.name for factor in SETTLED),
    *(factor.name for factor in FACTORS if not factor.decides),
})  # fmt: skip


def row_of(launch: Launch) -> LaunchRow:
    """Return the row of a launch: all entries by their sources."""
    return _made(WholeRow, launch)


def night_row_of(launch: Launch, metric: Metric) -> NightRow:
    """Return the row of a launch as far as histories of a metric and the gate read it."""
    return _made(night_row(metric), launch)


@cache
def night_row(metric: Metric) -> type[NightRow]:
    """Return the class of rows for histories of a metric and the gate."""
    return with_columns("NightRow", NightRow, [metric.column, *(gated.column for gated in metrics.GATED)], __name__)


def _made(kind: type[ThoseRows], launch: Launch) -> ThoseRows:
    read = Read(launch)
    values = {name: _READERS[name](read) for name in kind.__struct_fields__ if name in _READERS}
    return kind(**{name: value if name in _KEYS else cleaned_value(value) for name, value in values.items()})


def cell_row(cell: "Cell") -> CellRow:
    """Return the row of a cell: its figure, and the values that are computed from all its launches."""
    values = {column.source: column.cell(cell) for column in ENTRIES if column.cell}
    return _WholeCell(of=cell.last, **cell.summary() | values)


def columns_of(row: LaunchRow | CellRow) -> Row:
    """Return all columns by their sources."""
    if isinstance(row, CellRow):
        return columns_of(row.of) | {name: row.value(name) for name in row.__struct_fields__}
    return structs.asdict(row)


Of = Callable[[Any], Any]


def _field(name: str) -> Of:
    """Return a reader of a field of the launch's header or events."""
    return attrgetter(f"launch.{name}")


def _telemetry(name: str) -> Of:
    """Return a reader of a value from telemetry."""
    return attrgetter(f"seen.{name}")


def _shared(name: str) -> Of:
    """Return a reader of how the launch shared its CPUs."""
    return attrgetter(f"shared.{name}")


def _each_once(name: str) -> Callable[["Cell"], str | None]:
    """Return what joins a text of a cell's launches, each that differs once."""
    return lambda cell: "; ".join(dict.fromkeys(value for row in cell.ok if (value := row.value(name)))) or None


def _median(name: str) -> Callable[["Cell"], float]:
    return lambda cell: cell.median(name)


def _farthest(name: str) -> Callable[["Cell"], float]:
    """Return a function that gives a cell's value farthest from 0."""
    return lambda cell: max(cell.values(name), key=abs, default=math.nan)


def _most(name: str, otherwise: float = math.nan) -> Callable[["Cell"], float]:
    return lambda cell: max(cell.values(name), default=otherwise)


def _count(name: str, counts: Callable[[Any], bool] = bool) -> Callable[["Cell"], int]:
    """Return a function that counts the ok launches of a cell whose value satisfies `counts`."""
    return lambda cell: sum(counts(row.value(name)) for row in cell.ok)


def _is_false(value: Any) -> bool:
    return value is False


def _factor(factor: Factor) -> Column:
    column = {bool: a_flag, int: a_whole}.get(factor.kind, a_text)
    return column(factor.name, factor.meaning, of=lambda read: factor.recorded_in(read.launch.workload.factors))


def _metric(metric: Metric, make: Callable[..., Column] = a_number, **more: Any) -> Column:
    """Return the column of a metric; a cell has the median of its ok launches."""
    meaning = metric.meaning or DEFINITIONS[metric.definition]
    return make(metric.exported, meaning, metric.column, of=metric.of, **{"cell": _median(metric.column), **more})


_LAUNCH_ONLY: dict[str, Any] = {"tables": (LAUNCHES,)}
_CELL_ONLY: dict[str, Any] = {"tables": (CELLS,)}


def _with_interval(metric: Metric, **more: Any) -> Iterator[Column]:
    """Yield the columns of a metric and, for cells, of both ends of its interval."""
    yield _metric(metric, **more)
    yield from _ends(
        metric.exported,
        metric.column,
        lambda cell: cell.interval(metric.column).low,
        lambda cell: cell.interval(metric.column).high,
    )


def _inverse(metric: Metric, name: str, meaning: str, source: str = "", **more: Any) -> Iterator[Column]:
    """Yield the columns of 1 over a metric and, for cells, of both ends of its interval."""

    def of(end: str) -> Of:
        return lambda cell: metrics.inverse(getattr(cell.interval(metric.column), end))

    yield a_number(name, meaning, source, cell=lambda cell: metrics.inverse(cell.median(metric.column)), **more)
    yield from _ends(name, source or name, of("high"), of("low"))


def _ends(name: str, source: str, low: Of, high: Of) -> Iterator[Column]:
    for end, of in (("low", low), ("high", high)):
        meaning = f"{end}er end of its 95 % interval; unknown with one launch"
        yield a_number(f"{name}_{end}", meaning, f"{source}_{end}", cell=of, **_CELL_ONLY)


_ROWS_ONLY: dict[str, Any] = {"tables": ()}
PARITY = {
    "largest_absolute": (max, "inference: largest difference of an output from that of eager fp32, in launches proven in full"),
    "largest_relative": (max, "the same over the largest output of that tensor"),
    "cosine": (min, "smallest cosine of an output with that of eager fp32"),
    "top1": (min, "share of rows whose largest output is that of eager fp32"),
}
"""Comparisons of an inference's outputs with those of eager fp32, by the workload's names: which is the worst, and what it is.
"""


def _parity(name: str) -> Column:
    worst, meaning = PARITY[name]
    source = f"parity_{name}"
    return a_number(
        source, meaning, cell=lambda cell: worst(cell.values(source), default=math.nan),
        of=lambda read: number_or_nan(read.launch.reference.parity.get(name)) if read.launch.reference else math.nan,
    )  # fmt: skip


WHERE = (
    a_text("cell", "stack/workload/devices; torchmatrix run 'CELL' measures it again", of=_field("cell")),
    a_text("stack", "the software combination, as the matrix names it", of=_field("stack.name")),
    a_text("workload", "model, mode, precision, batch per device and all other settings", of=_field("workload.id")),
    a_text("devices", "the device set, such as gpu0+1; on a CPU a device is a group of cores that one process is pinned to",
           of=_field("devices.label")),
)  # fmt: skip
"""The columns that identify a cell in all tables."""
_JOB_COLUMNS = (
    a_list("device_list", "the devices one by one", of=_field("devices.names")),
    a_whole("device_count", "how many devices (N)", "count", of=_field("devices.count")),
    a_whole("nodes", "on how many machines of a cluster", of=_field("devices.nodes")),
    a_text("parallel", "ddp, fsdp or tp; of explained cells also independent or no-sync", of=_field("workload.parallel")),
    _factor(BY_NAME["model"]), _factor(BY_NAME["mode"]),
    a_text("unit", "what an item is: images, sequences or tokens", of=_field("workload.unit")),
    _factor(BY_NAME["precision"]),
    a_text("effective_precision", DEFINITIONS["effective_precision"], "effective", of=lambda read: _effective(read.launch)),
    a_text("attention_kernels", "what ran as attention: flash, memory-efficient, cuDNN, math (sdpa without a kernel) or eager",
           of=lambda read: read.launch.attention),
    *(_factor(factor) for factor in COLUMNS if factor.name not in ("model", "mode", "precision")),
    a_whole("batch_per_device", "items per device (tp: of all) and step, or micro batch; in tokens: sequences", "batch",
            of=_field("batch")),
    a_text("batch_requested_per_device", "the batch that the matrix asks for; auto: the largest that fits", "batch_requested",
           of=lambda read: read.launch.batch if read.launch.batch_requested is None else read.launch.batch_requested),
    a_whole("image_size_pixels", "of one side", of=_field("workload.image_size")),
    a_whole("sequence_length_tokens", "of one sequence", of=_field("workload.sequence_length")),
    a_text("torch", "version that the stack requests", of=_field("stack.torch")),
    a_text("torch_build", "version that ran, as it reports itself",
           of=lambda read: read.launch.reported.torch if read.launch.reported else None),
    a_text("device_name", "the first device, as the driver names it", of=lambda read: _device(read.launch).name),
    a_whole("device_memory_bytes", "memory of the first device", of=lambda read: _device(read.launch).memory_bytes),
    a_whole("device_multiprocessors", "multiprocessors (AMD: compute units) of the first device",
            of=lambda read: _device(read.launch).multiprocessors),
    a_text("method", DEFINITIONS["method"], of=_field("method.name")),
    a_text("statistic", "median or mean: how launches combine into one figure", of=_field("method.statistic")),
    a_whole("launches_further", "how many launches could follow, until comparisons were decided", "further",
            of=lambda read: None if read.launch.method.until else read.launch.method.further or None),
)  # fmt: skip
_RESULT_COLUMNS = (
    a_text("outcome", "of the last ok launch, or else of the last: ok, oom (out of memory), timeout, crashed, numerics, …",
           of=_field("outcome"),
           each="ok, oom, timeout, crashed, numerics, unsupported, build-failed, interrupted, lost, unlike (left out)"),
    a_text("error", "the first line that says what went wrong in it", of=_field("error"),
           each="the first line that says what went wrong"),
    a_whole("launches_ok", "launches in the figure (n)", "n", **_CELL_ONLY),
    a_whole("launches_not_ok", "failed launches", "failed", **_CELL_ONLY),
    a_whole("launches_left_out", DEFINITIONS["left_out"], "left_out", **_CELL_ONLY),
    a_text("left_out_why", "in what they are unlike the others", **_CELL_ONLY),
    a_text("left_out_why", "in what it is unlike the others of its cell, if it is", "left_out", of=_field("left_out"),
           **_LAUNCH_ONLY),
    a_number("started_unix_seconds", "start, in seconds since 1970 UTC", **_LAUNCH_ONLY),
    a_number("launch_seconds", "from start to exit", "seconds", of=_field("seconds"), **_LAUNCH_ONLY),
    *an_interval("items_per_second", DEFINITIONS["throughput"], "throughput", **_CELL_ONLY),
    _metric(metrics.THROUGHPUT, tables=(LAUNCHES,), cell=None),
    a_number("items_per_second_per_device", "throughput over the number of devices", "per_device",
             of=lambda read: read.rate / read.launch.devices.count, cell=lambda cell: cell.estimate().value / cell.row.count,
             each="the same over the number of devices"),
    a_list("items_per_second_of_ranks", "the same of each device, where they work independently", "rank_rates",
           of=lambda read: tuple(map(str, rates_of_ranks(read.launch))), **_LAUNCH_ONLY),
    a_number("cv_fraction", DEFINITIONS["cv"], "cv", **_CELL_ONLY),
    a_number("detectable_fraction", DEFINITIONS["detectable"], "detectable", **_CELL_ONLY),
    a_whole("launches_outlying", DEFINITIONS["outlier"], "outliers", **_CELL_ONLY),
    a_text("levels", DEFINITIONS["levels"], **_CELL_ONLY),
    a_text("verdict", "stable, ok or noisy, by cv_fraction; n/a: one launch", **_CELL_ONLY),
    a_number("mfu_fraction", DEFINITIONS["MFU"], "mfu", cell=lambda cell: _mfu(cell), **_CELL_ONLY),
    a_number("mfu_by_formula_fraction", "the same with the FLOPs by formula", "mfu_by_formula",
             cell=lambda cell: _mfu(cell, "formula_flops_per_item"), **_CELL_ONLY),
    *_with_interval(metrics.COST),
    *_inverse(metrics.COST, "items_per_currency", "items per unit of the currency, 1 over the cost; needs a price list",
              **_CELL_ONLY),
    a_number("items_per_second_per_currency", "items per second and unit of the currency, by the devices' purchase price",
             **_CELL_ONLY),
    a_text("currency", "currency of the price list", **_CELL_ONLY),
    *(_metric(metric, tables=(LAUNCHES,), cell=None) for some in metrics.OF_REQUESTS.values() for metric in some),
)  # fmt: skip
_RUNNING_COLUMNS = (
    a_number("host_bound_fraction", "host time to enqueue a step (training in amp: without the optimizer) over the step's "
             "time; near 1 the device waits", "host_bound", of=lambda read: _host_bound(read.launch)),
    a_whole("parameters", "of the model, as the workload counted them", of=_field("parameters")),
    a_number("flops_per_item", "FLOPs of the model for one item; each multiplication and addition counts",
             of=lambda read: read.launch.reference.flops_per_item / read.launch.worth if read.launch.reference else math.nan),
    a_number("formula_flops_per_item", "FLOPs of a token by formula: in training 6 N + 12 · layers · width · length; N: the "
             "weights in products, of experts the active ones",
             of=lambda read: read.launch.reference.formula_flops_per_item if read.launch.reference else math.nan),
    a_text("flops_from", "the stack that counted them, where this one has no counter", of=lambda read: None),
    a_number("bus_bytes_per_second", DEFINITIONS["bus_bandwidth"], of=_field("bus_bytes_per_second")),
    a_text("transport", "how ranks communicate, in the library's words", of=lambda read: _transport(read.launch)),
    a_number("power_watts", "mean over the timed windows, all devices together", of=_telemetry("power_watts"),
             cell=_median("power_watts")),
    *_with_interval(metrics.ENERGY),
    *_inverse(metrics.ENERGY, metrics.PER_JOULE.exported, metrics.PER_JOULE.meaning, metrics.PER_JOULE.column,
              of=metrics.PER_JOULE.of),
    a_text("energy_problem", "why the energy is unknown, or that the power readings disagree with it",
           of=_telemetry("energy_problem")),
    _metric(metrics.MEMORY, a_whole, cell=_most("peak_bytes")),
    a_whole("peak_memory_cold_bytes", "the same up to the end of the first step", "cold_peak_bytes",
            of=lambda read: metrics.peak(read, "cold")),
    a_flag("mixed", "the set has GPUs of different models",
           of=lambda read: len({gpu.name for gpu in read.launch.devices.gpus}) > 1),
    a_text("conditions_differ", DEFINITIONS["apart"], "apart", of=_field("apart")),
    a_text("unlike", "in what the core groups of the set differ", of=_field("devices.unlike")),
    a_number("quota_seconds", "how long a CPU quota made processes wait in the timed windows; 0 also if none was reported",
             of=_telemetry("quota_seconds"), cell=_most("quota_seconds", 0.0)),
    a_number("ecc_errors", "uncorrected memory errors in the timed windows; 0 also if the device has no counter",
             of=_telemetry("ecc_errors"), cell=lambda cell: sum(row.ecc_errors for row in cell.ok)),
    a_list("foreign", "whose processes were seen on the GPUs in the timed windows", of=_telemetry("foreign"),
           cell=lambda cell: tuple(sorted({phrase for row in cell.ok for phrase in row.foreign}))),
    a_number("waited_fraction", "time in which its threads waited for CPUs that others used, over that in which they ran or "
             "waited, in the timed windows", "waited", of=_shared("waited"), cell=_most("waited")),
    a_number("others_cpus", "CPUs' worth of work of other programs on the launch's CPUs in the timed windows", "others",
             of=_shared("others"), cell=_most("others")),
    a_number("stolen_fraction", "share of the CPUs' time that a hypervisor took in the timed windows", "stolen",
             of=_shared("stolen"), cell=_most("stolen")),
    a_flag("disturbed", DEFINITIONS["disturbed"], of=_shared("disturbed"), **_LAUNCH_ONLY),
    a_whole("launches_disturbed", DEFINITIONS["disturbed"], "disturbed", cell=lambda cell: cell.disturbed, **_CELL_ONLY),
    a_number("loader_wait_fraction", "share of the timed windows in which the training process waited for the DataLoader; data "
             "from disk only", of=lambda read: read.launch.loading.waiting if read.launch.loading else math.nan,
             cell=_most("loader_wait_fraction")),
    a_text("changed_settings", "what the model's code changed in torch",
           of=lambda read: "; ".join(read.launch.changed_settings) or None),
    a_text("remarks", "remarks on what ran, such as parameters without a gradient",
           of=lambda read: "; ".join([*read.launch.remarks, *read.shared.remarks]) or None,
           cell=_each_once("remarks")),
    a_text("unchecked", "which checks of the work could not be made, and why", of=_field("unchecked")),
    a_text("only_seen", "why no step was timed on a batch that none had seen", of=_field("unseen.error")),
    *map(_parity, PARITY),
    *(column for metric in metrics.MORE for column in _with_interval(metric)),
)  # fmt: skip
_TELEMETRY_COLUMNS = (
    a_number("energy_joules", "energy of all devices in all timed windows", of=_telemetry("energy_joules"), **_LAUNCH_ONLY),
    a_number("temperature_first_celsius", "hottest device at the start of the timed windows", "temperature_first",
             of=_telemetry("temperature_first"), **_LAUNCH_ONLY),
    a_number("temperature_last_celsius", "hottest device at the windows' end, median of the launches", "temperature_last",
             of=_telemetry("temperature_last"), cell=_median("temperature_last"), each="hottest device at their end"),
    a_number("clock_mhz", "mean over the timed windows, the slowest device", of=_telemetry("clock_mhz"), **_LAUNCH_ONLY),
    a_text("impossible_readings", "how many readings of which kind are left out, as no device can have them",
           of=_telemetry("impossible_readings"), cell=_each_once("impossible_readings")),
    a_flag("throttled", DEFINITIONS["throttled"], of=_telemetry("throttled"), **_LAUNCH_ONLY),
    a_flag("steady", DEFINITIONS["steady"], of=_telemetry("steady"), **_LAUNCH_ONLY),
    a_number("first_step_cold_seconds", "first step with torch.compile from an empty compile cache", "cold_compile_seconds",
             cell=lambda cell: median_of(cold) if (cold := _cold_compile_seconds(cell)) else math.nan, **_CELL_ONLY),
    a_whole("launches_not_flat", "launches whose warm-up ended at its cap, before the step time was flat", "not_flat",
            cell=_count("flat", _is_false), **_CELL_ONLY),
    a_number("drift_fraction", DEFINITIONS["drift"], "drift", cell=_median("drift"), **_CELL_ONLY),
    a_whole("launches_stalled", DEFINITIONS["stall"], "stalled", cell=_count("stall", lambda share: share > 0), **_CELL_ONLY),
    a_whole("launches_with_skipped_steps", "launches in which GradScaler skipped timed steps", "skipped_steps",
            cell=_count("skipped_steps"), **_CELL_ONLY),
    a_whole("launches_throttled", DEFINITIONS["throttled"], "throttled", cell=_count("throttled"), **_CELL_ONLY),
    a_whole("launches_not_steady", "launches in which temperature, clock or power changed", "not_steady",
            cell=_count("steady", _is_false), **_CELL_ONLY),
    a_number("temperature_celsius_per_minute", "largest temperature trend in the timed windows; empty: no trend", "warming",
             of=_telemetry("warming"), cell=_farthest("warming"),
             each="temperature trend in the timed windows; empty: no trend"),
    a_number("clock_change_fraction", DEFINITIONS["clock_change"], "clock_change", of=_telemetry("clock_change"),
             cell=_farthest("clock_change")),
    a_number("power_change_fraction", "power trend over the timed windows; empty: no trend", "power_change",
             of=_telemetry("power_change"), cell=_farthest("power_change")),
    a_number("clock_later_fraction", "a GPU's clock after the windows over that in them, less 1, if lower", "later_clock",
             of=_telemetry("later_clock"), cell=_farthest("later_clock")),
    a_number("power_at_limit_fraction", "share of readings in which the power was at its limit", "at_limit",
             of=_telemetry("at_limit"), cell=_farthest("at_limit")),
    a_number("under_load_seconds", "from the start of the warm-up to the end of the windows: what the figure speaks for",
             of=_telemetry("under_load_seconds"),
             cell=lambda cell: min(cell.values("under_load_seconds"), default=math.nan)),
    a_flag("throttled_later", "a thermal or hardware slow-down after the windows", of=_telemetry("throttled_later"),
           **_LAUNCH_ONLY),
    a_whole("launches_throttled_later", "launches with a thermal or hardware slow-down after the windows", "throttled_later",
            cell=_count("throttled_later"), **_CELL_ONLY),
    a_flag("too_warm", "the launch began above the method's temperature",
           of=lambda read: bool(read.launch.start and read.launch.start.too_warm), **_LAUNCH_ONLY),
    a_whole("launches_too_warm", "launches that began above the method's temperature", "too_warm", cell=_count("too_warm"),
            **_CELL_ONLY),
    a_flag("start_unknown", "the method limits the temperature at the start, but it could not be read",
           of=lambda read: _is_start_unknown(read.launch), **_LAUNCH_ONLY),
    a_whole("launches_start_unknown", "launches whose temperature at the start could not be read", "start_unknown",
            cell=_count("start_unknown"), **_CELL_ONLY),
    a_whole("launches_clock_jumped", "launches in which the wall clock was set", "clock_jumps",
            cell=_count("clock_jump_seconds"), **_CELL_ONLY),
    a_text("compile_cache", "cold: the compile cache was empty; warm: it was not", of=_field("compile_cache"), **_LAUNCH_ONLY),
    a_flag("flat", "the warm-up ended because the step time was flat",
           of=lambda read: read.launch.warm_up.flat if read.launch.warm_up else None, **_LAUNCH_ONLY),
    a_number("drift_fraction", DEFINITIONS["drift"], "drift", of=lambda read: _drift(read.launch), **_LAUNCH_ONLY),
    a_whole("skipped_steps", "timed steps that GradScaler skipped: gradients did not fit into float16",
            of=lambda read: sum(window.skipped for window in read.launch.windows), **_LAUNCH_ONLY),
    a_number("stall_fraction", DEFINITIONS["stall"], "stall", of=lambda read: plausible.stall(read.launch.windows),
             **_LAUNCH_ONLY),
    a_number("loss_difference", "largest relative difference of the first losses from those of eager fp32",
             of=lambda read: read.launch.reference.difference if read.launch.reference else math.nan,
             **_LAUNCH_ONLY),
    a_number("clock_jump_seconds", "by how much the wall clock was changed during the launch",
             of=lambda read: watched.clock_jump_seconds(read.launch), **_LAUNCH_ONLY),
    a_text("other_settings", "the workload's further settings, as JSON",
           of=lambda read: _other_settings(read.launch.workload.factors), **_LAUNCH_ONLY),
    a_text("command", "what started it, ready to paste", of=_field("command"), **_LAUNCH_ONLY),
    a_text("work", "what must be equal for throughputs to be compared, as JSON",
           of=lambda read: _COMPACT.encode(work_of(read.launch)), **_LAUNCH_ONLY),
    a_text("file", "its file in the archive of the run's facts", **_LAUNCH_ONLY),
)  # fmt: skip
_INTERNAL = (
    a_text("accelerator", "what the stack asks for", of=_field("stack.accelerator"), **_ROWS_ONLY),
    a_text("recipe", "what the stack was built by: equal recipes give equal software",
           of=lambda read: _recipe(read.launch), **_ROWS_ONLY),
    a_list("gpu_names", "the GPUs, as the driver names them",
           of=lambda read: tuple(gpu.name or "" for gpu in read.launch.devices.gpus), **_ROWS_ONLY),
    a_text("cpu", "of the first node", of=lambda read: read.launch.host.get("cpu"), **_ROWS_ONLY),
    a_text("hardware", "which machine and GPUs it was, as far as that is known, as JSON",
           of=lambda read: _SORTED.encode(_hardware(read.launch)), **_ROWS_ONLY),
    a_text("flops_key", "what is trained or run, and the size of an image or a text",
           of=lambda read: _flops_key(read.launch.workload), **_ROWS_ONLY),
    a_text("flops_counter", "who counted the FLOPs", of=lambda read: counter_of(read.launch), **_ROWS_ONLY),
    a_text("flops_by_type", "of a step in eager mode, as JSON", of=lambda read: _COMPACT.encode(_flops_by_type(read.launch)),
           **_ROWS_ONLY),
    a_text("operations", "launches that agree in it do the same operations per item",
           of=lambda read: _operations(read.launch), **_ROWS_ONLY),
    a_text("collectives", "how fast the devices exchange data, as JSON",
           of=lambda read: _COMPACT.encode(_collectives(read.launch)), **_ROWS_ONLY),
    a_whole("items_each", "how many items a step does for each of its batch", of=_field("workload.items_each"), **_ROWS_ONLY),
    a_whole("requests", "how many of each kind it served", of=lambda read: min(map(len, read.served.values())), **_ROWS_ONLY),
    a_text("path", "of its file", of=lambda read: as_text(read.launch.path), **_ROWS_ONLY),
)  # fmt: skip
"""Columns for what is computed from rows; no table has them."""
ENTRIES: tuple[Column, ...] = (
    a_text("run", "the run's id", of=_field("run"), **_LAUNCH_ONLY),
    a_whole("round", "which of the interleaved rounds", of=_field("round"), **_LAUNCH_ONLY),
    *WHERE,
    a_text("ddp_workload", "the workload; of an explained cell the one that it belongs to", of=_field("ddp_id"),
           **_LAUNCH_ONLY),
    *_JOB_COLUMNS, *_RESULT_COLUMNS, *_RUNNING_COLUMNS, *_TELEMETRY_COLUMNS, *_INTERNAL,
)  # fmt: skip
_READERS: dict[str, Of] = {column.source: column.of for column in ENTRIES if column.of}
_KEYS = frozenset({
    "run", "cell", "stack", "workload", "devices", "device_list", "ddp_workload", "recipe", "operations", "work", "hardware",
    "path", "command",
})  # fmt: skip
"""Columns that are compared with what else is recorded, or shown as they are: they are cleaned there."""
WholeRow = with_columns("WholeRow", LaunchRow, _READERS, __name__)
"""The class of a launch's row with all columns."""
_WholeCell = with_columns("_WholeCell", CellRow, [column.source for column in ENTRIES if column.cell], __name__)


def _cold_compile_seconds(cell: "Cell") -> list[float]:
    """Return the seconds of first steps that compiled from an empty cache."""
    return [row.first_step_seconds for row in cell.ok if row.compile and row.compile_cache == "cold"]


def _mfu(cell: "Cell", flops: str = "flops_per_item") -> float:
    """Return the cell's model FLOPs utilization; NaN where the peak or the operations are unknown, or GPUs are mixed."""
    row = cell.last
    facts = None if row.mixed else gpu_specs.of_row(row)
    peak = None
    is_mixed = (row.effective or "").startswith("mixed") or row.precision in IN_FLOAT8
    if facts and is_mixed:
        peak = gpu_specs.mixed_peak(facts, row.precision, json.loads(row.flops_by_type))
    elif facts:
        peak = gpu_specs.peak_flops(facts, row.precision, row.runtime)
    return gpu_specs.mfu(cell.estimate().value / row.count, row.value(flops), peak)


def _drift(launch: Launch) -> float:
    """Return the drift of the step time; NaN where it was flat, or nothing is known of it."""
    drift = launch.warm_up.drift if launch.warm_up else None
    return math.nan if drift is None else drift


def _hardware(launch: Launch) -> dict[str, Any]:
    """Return the identities of the nodes, of the first node's main board and of the GPUs; for a slice of a GPU, that of the
    GPU."""
    gpus = [*launch.devices.gpus, *(gpu for node in launch.other_nodes for gpu in node.gpus)]
    identities = {
        "identity": [launch.machine, *(node.machine for node in launch.other_nodes)],
        "board": [launch.host.get("board_id")],
        "GPUs": [gpu.slice_of or gpu.uuid for gpu in gpus],
    }
    return {name: sorted(map(str, values)) for name, values in identities.items() if values and all(values)}


def _recipe(launch: Launch) -> str | None:
    """Return what the stack was built by: equal recipes give equal software."""
    recipe = launch.image.environment if launch.image else None
    return recipe if isinstance(recipe, str) else None


def _flops_key(workload: AskedWorkload) -> tuple[object, ...]:
    """Return what is trained or run, and the size of an image or a text."""
    return workload.model, workload.mode, workload.image_size, workload.sequence_length


def _operations(launch: Launch) -> str:
    """Return a key: launches with equal keys do the same operations per item, all that the reference in eager fp32 takes from
    its launch."""
    names = ("model", "mode", "image_size", "sequence_length", "output_length", "audio_seconds", "eval")
    return _COMPACT.encode([*map(launch.workload.factors.get, names), launch.batch, launch.workload_hash])


def _other_settings(factors: Facts) -> str:
    return _SORTED.encode({key: value for key, value in factors.items() if key not in _NO_OTHER_SETTING})


def _is_start_unknown(launch: Launch) -> bool:
    """Check whether the method limits the temperature at the start but none could be read."""
    is_measured = launch.start is not None and launch.start.temperature_celsius is not None
    return launch.method.start_below_celsius is not None and not is_measured


_FAST_LINK = re.compile(r"NV\d+|XGMI")
_UNKNOWN_DEVICE = SeenDevice()


def _effective(launch: Launch) -> str | None:
    """Return the precision in effect, such as "fp32", "tf32 (convolution: fp32)" where two kinds of operation differ, or
    "mixed: …" where a model's types differ."""
    if not launch.precision:
        return None
    first = next((rank for rank in launch.precision if rank.mixed), launch.precision[0])
    if first.mixed:
        return first.mixed
    others = {"convolution": first.convolution, "linear layers": first.linear or first.matmul}
    others |= {"matmul backward": first.matmul_backward or first.matmul}
    others |= {"convolution backward": first.convolution_backward or first.convolution}
    differing = ", ".join(f"{name}: {precision}" for name, precision in others.items() if precision != first.matmul)
    return f"{first.matmul} ({differing})" if differing else first.matmul


_MOST_FLOPS = 1e30
"""More no step has, and larger whole numbers may be no float."""


def _flops_by_type(launch: Launch) -> dict[str, float]:
    """Return the FLOPs of products by type in a step of a rank that computes in several; empty if none does or can tell."""
    mixed = next((rank for rank in launch.precision or () if rank.mixed), None)
    flops = mixed.types.get("flops") if mixed and isinstance(mixed.types, dict) else None
    if not isinstance(flops, dict) or not all(
        isinstance(count, (int, float)) and 0 <= count <= _MOST_FLOPS for count in flops.values()
    ):
        return {}
    return {str(name): float(count) for name, count in flops.items()}


def _device(launch: Launch) -> SeenDevice:
    """Return the first device, as torch sees it in the container."""
    return next(iter(launch.seen_devices), _UNKNOWN_DEVICE)


def _collectives(launch: Launch) -> list[list[Any]]:
    """Return operation, bytes, seconds, bus bandwidth, and whether all devices are linked by NVLink or Infinity Fabric."""
    linked = launch.devices.nodes == 1 and _are_linked(launch.host.get("links"), launch.devices.indices)
    probed = ((probe.operation, size) for probe in launch.collectives for size in probe.sizes)
    return [
        [operation, size.bytes or 0, number_or_nan(size.seconds), number_or_nan(size.bus_bytes_per_second), linked]
        for operation, size in probed
    ]


def _are_linked(links: object, indices: Sequence[int]) -> bool:
    """Check whether all pairs of devices are linked by NVLink or Infinity Fabric.

    `links`: a row and a column per GPU, in the words of machine/topology.py, as the host recorded them.
    """
    if not isinstance(links, list) or not all(isinstance(row, list) and len(row) > max(indices) for row in links):
        return False
    words = (str(links[index][other]) for index in indices for other in indices if index != other)
    return max(indices) < len(links) and all(map(_FAST_LINK.fullmatch, words))


def _transport(launch: Launch) -> str | None:
    """Return how ranks communicate, such as "nccl over IB (NET/IB/0/GDRDMA)" or, on one node, "nccl by P2P/CUMEM"; or None."""
    transport = launch.transport
    if transport is None:
        return None
    if launch.devices.nodes == 1 and transport.paths:
        return f"{transport.library} by {', '.join(transport.paths)}"
    paths = f" ({', '.join(transport.paths)})" if transport.paths else ""
    return f"{transport.library} over {transport.network or 'an unknown network'}{paths}"


def _host_bound(launch: Launch) -> float:
    """Return the host time to enqueue one step on an idle device over the time of a step; near 1 the device waits for the
    host."""
    seconds = measured_seconds(launch)
    steps = sum(window.steps for window in launch.windows)
    return max(launch.enqueue_seconds) * steps / seconds if launch.enqueue_seconds and seconds > 0 else math.nan
