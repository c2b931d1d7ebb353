"""What the columns of the tables of cells, launches and requests mean, and what names a cell in all tables."""

from collections.abc import Iterable

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.metrics import OF_REQUESTS, PERCENTILES
from torchmatrix.matrix.factors import BY_NAME, COLUMNS, CONTRASTED, Factor
from torchmatrix.reporting.exports.column import Column, a_flag, a_list, a_number, a_text, a_whole, an_interval


def request_columns(definition: str) -> Iterable[Column]:
    """Behind what names a cell; `definition`: a key of the glossary."""
    yield a_whole("batch_per_request", "items of one request, per device", "batch")
    yield a_whole("device_count", "how many devices (N); all serve their own requests at once", "count")
    yield a_whole("launches_ok", "launches behind it", "n")
    yield a_whole("requests", "their requests together")
    for name in PERCENTILES:
        which = "the longest" if name == "max" else name
        yield from an_interval(name, f"{which}. {DEFINITIONS[definition]}", name, unit="_seconds")


def _of_a_launch() -> Iterable[Column]:
    for metric in (one for some in OF_REQUESTS.values() for one in some):
        yield a_number(f"{metric.name}_seconds", f"{metric.title} of this launch's requests", metric.name)


def _factor(factor: Factor) -> Column:
    return (a_flag if factor.kind is bool else a_text)(factor.name, factor.meaning)


PAIRS = ", ".join(pair.name for factor in CONTRASTED for pair in factor.contrasts)
_PARITY = {
    "largest_absolute": "inference: largest difference of an output from that of eager fp32, in launches proven in full",
    "largest_relative": "the same over the largest output of that tensor",
    "cosine": "smallest cosine of an output with that of eager fp32",
    "top1": "share of rows whose largest output is that of eager fp32",
}
WHERE = (
    a_text("cell", "stack/workload/devices; torchmatrix run 'CELL' measures it again"),
    a_text("stack", "the software combination, as the matrix names it"),
    a_text("workload", "model, mode, precision, batch per device and all other settings"),
    a_text("devices", "the device set, such as gpu0+1; on a CPU a device is a group of cores that one process is pinned to"),
)
_JOB = (
    a_list("device_list", "the devices one by one"),
    a_whole("device_count", "how many devices (N)", "count"),
    a_whole("nodes", "on how many machines of a cluster"),
    a_text("parallel", "ddp or fsdp; of explained cells also independent or no-sync"),
    a_text("model", "what is trained or run"),
    a_text("mode", "train or infer"),
    a_text("unit", "what an item is: images or sequences"),
    _factor(BY_NAME["precision"]),
    a_text("effective_precision", DEFINITIONS["effective_precision"], "effective"),
    *(_factor(factor) for factor in COLUMNS if factor.name not in ("model", "mode", "precision")),
    a_whole("batch_per_device", "items per device and step", "batch"),
    a_text("batch_requested_per_device", "the batch that the matrix asks for; auto: the largest that fits", "batch_requested"),
    a_whole("image_size_pixels", "of one side"),
    a_whole("sequence_length_tokens", "of one sequence"),
    a_text("torch", "version that the stack requests"),
    a_text("torch_build", "version that ran, as it reports itself"),
    a_text("device_name", "the first device, as the driver names it"),
    a_whole("device_memory_bytes", "memory of the first device"),
    a_whole("device_multiprocessors", "multiprocessors (AMD: compute units) of the first device"),
    a_text("method", DEFINITIONS["method"]),
    a_text("statistic", "median or mean: how launches combine into one figure"),
)
_RUNNING = (
    a_number(
        "host_bound_fraction",
        "host time to enqueue a step (training in amp: without the optimizer) over the step's time; near 1 the device waits",
        "host_bound",
    ),
    a_whole("parameters", "of the model, as the workload counted them"),
    a_number("flops_per_item", "FLOPs of the model for one item; each multiplication and addition counts"),
    a_text("flops_from", "the stack that counted them, where this one has no counter"),
    a_number("bus_bytes_per_second", DEFINITIONS["bus_bandwidth"]),
    a_text("transport", "how nodes communicate, in the library's words"),
    a_number("power_watts", "mean over the timed windows, all devices together"),
    a_number("joules_per_item", DEFINITIONS["energy"], "energy_per_item"),
    a_number("items_per_joule", "the inverse: items per second and watt"),
    a_text("energy_problem", "why the energy is unknown, or that the power readings disagree with it"),
    a_whole(
        "peak_memory_bytes", "of the largest process in the timed windows; allocated on a GPU, resident on a CPU", "peak_bytes"
    ),
    a_whole("peak_memory_cold_bytes", "the same up to the end of the first step", "cold_peak_bytes"),
    a_flag("mixed", "the set has GPUs of different models"),
    a_text("conditions_differ", DEFINITIONS["apart"], "apart"),
    a_text("unlike", "in what the core groups of the set differ"),
    a_number("quota_seconds", "how long a CPU quota made processes wait in the timed windows; 0 also if none was reported"),
    a_number("ecc_errors", "uncorrected memory errors in the timed windows; 0 also if the device has no counter"),
    a_list("foreign", "who else used the devices in the timed windows"),
    a_text("changed_settings", "what the model's code changed in torch"),
    a_text("remarks", "remarks on what ran, such as parameters without a gradient"),
    a_text("unchecked", "which checks of the work could not be made, and why"),
    a_text("only_seen", "why no step was timed on a batch that none had seen"),
    *(a_number(f"parity_{name}", meaning, f"parity_{name}") for name, meaning in _PARITY.items()),
)

CELLS = (
    *WHERE, *_JOB,
    a_text("outcome", "of the last ok launch, or else of the last: ok, oom (out of memory), timeout, crashed, numerics, …"),
    a_text("error", "the first line that says what went wrong in it"),
    a_whole("launches_ok", "launches in the figure (n)", "n"),
    a_whole("launches_not_ok", "failed launches", "failed"),
    a_whole("launches_left_out", DEFINITIONS["left_out"], "left_out"),
    a_text("left_out_why", "in what they are unlike the others"),
    *an_interval("items_per_second", DEFINITIONS["throughput"], "throughput"),
    a_number("items_per_second_per_device", "throughput over the number of devices", "per_device"),
    a_number("cv_fraction", DEFINITIONS["cv"], "cv"),
    a_number("detectable_fraction", DEFINITIONS["detectable"], "detectable"),
    a_whole("launches_outlying", DEFINITIONS["outlier"], "outliers"),
    a_text("verdict", "stable, ok or noisy, by cv_fraction; n/a: one launch"),
    a_number("mfu_fraction", DEFINITIONS["MFU"], "mfu"),
    a_number("items_per_currency", "items per unit of the currency, by the devices' hourly price; needs a price list"),
    a_number("items_per_second_per_currency", "items per second and unit of the currency, by the devices' purchase price"),
    a_text("currency", "currency of the price list"),
    *_RUNNING,
    a_number("temperature_last_celsius", "hottest device at the windows' end, median of the launches", "temperature_last"),
    a_number("first_step_cold_seconds", "first step with torch.compile from an empty compile cache", "cold_compile_seconds"),
    a_whole("launches_not_flat", "launches whose warm-up ended at its cap, before the step time was flat", "not_flat"),
    a_number("drift_fraction", DEFINITIONS["drift"], "drift"),
    a_whole("launches_stalled", DEFINITIONS["stall"], "stalled"),
    a_whole("launches_with_skipped_steps", "launches in which GradScaler skipped timed steps", "skipped_steps"),
    a_whole("launches_throttled", DEFINITIONS["throttled"], "throttled"),
    a_whole("launches_not_steady", "launches in which temperature, clock or power changed", "not_steady"),
    a_number("temperature_celsius_per_minute", "largest temperature trend in the timed windows; empty: no trend", "warming"),
    a_number("clock_change_fraction", DEFINITIONS["clock_change"], "clock_change"),
    a_number("power_change_fraction", "power trend over the timed windows; empty: no trend", "power_change"),
    a_number("clock_later_fraction", "a GPU's clock after the windows over that in them, less 1, if lower", "later_clock"),
    a_number("power_at_limit_fraction", "share of readings in which the power was at its limit", "at_limit"),
    a_number("under_load_seconds", "from the start of the warm-up to the end of the windows: what the figure speaks for"),
    a_whole("launches_throttled_later", "launches with a thermal or hardware slow-down after the windows", "throttled_later"),
    a_whole("launches_too_warm", "launches that began above the method's temperature", "too_warm"),
    a_whole("launches_start_unknown", "launches whose temperature at the start could not be read", "start_unknown"),
    a_whole("launches_clock_jumped", "launches in which the wall clock was set", "clock_jumps"),
)  # fmt: skip

LAUNCHES = (
    a_text("run", "the run's id"), a_whole("round", "which of the interleaved rounds"),
    *WHERE, a_text("ddp_workload", "the workload; of an explained cell the one that it belongs to"), *_JOB,
    a_text("outcome", "ok, oom, timeout, crashed, numerics, unsupported, build-failed, interrupted, lost, unlike (left out)"),
    a_text("error", "the first line that says what went wrong"),
    a_text("left_out_why", "in what it is unlike the others of its cell, if it is", "left_out"),
    a_number("started_unix_seconds", "start, in seconds since 1970 UTC"),
    a_number("launch_seconds", "from start to exit", "seconds"),
    a_number("items_per_second", "items of all processes in the timed windows over the wall time of the slowest", "throughput"),
    a_number("items_per_second_per_device", "the same over the number of devices", "per_device"),
    *_of_a_launch(),
    *_RUNNING,
    a_number("energy_joules", "energy of all devices in all timed windows"),
    a_number("temperature_first_celsius", "hottest device at the start of the timed windows", "temperature_first"),
    a_number("temperature_last_celsius", "hottest device at their end", "temperature_last"),
    a_number("clock_mhz", "mean over the timed windows, the slowest device"),
    a_flag("throttled", DEFINITIONS["throttled"]),
    a_flag("steady", DEFINITIONS["steady"]),
    a_number("temperature_celsius_per_minute", "temperature trend in the timed windows; empty: no trend", "warming"),
    a_number("clock_change_fraction", DEFINITIONS["clock_change"], "clock_change"),
    a_number("power_change_fraction", "power trend over the timed windows; empty: no trend", "power_change"),
    a_number("clock_later_fraction", "a GPU's clock after the windows over that in them, less 1, if lower", "later_clock"),
    a_number("power_at_limit_fraction", "share of readings in which the power was at its limit", "at_limit"),
    a_number("under_load_seconds", "from the start of the warm-up to the end of the windows: what the figure speaks for"),
    a_flag("throttled_later", "a thermal or hardware slow-down after the windows"),
    a_flag("too_warm", "the launch began above the method's temperature"),
    a_flag("start_unknown", "the method limits the temperature at the start, but it could not be read"),
    a_number("first_step_seconds", "first step, with compilation if there is any"),
    a_text("compile_cache", "cold: the compile cache was empty; warm: it was not"),
    a_flag("flat", "the warm-up ended because the step time was flat"),
    a_number("drift_fraction", DEFINITIONS["drift"], "drift"),
    a_whole("skipped_steps", "timed steps that GradScaler skipped: gradients did not fit into float16"),
    a_number("stall_fraction", DEFINITIONS["stall"], "stall"),
    a_number("loss_difference", "largest relative difference of the first losses from those of eager fp32"),
    a_number("clock_jump_seconds", "by how much the wall clock was changed during the launch"),
    a_text("other_settings", "the workload's further settings, as JSON"),
    a_text("command", "what started it, ready to paste"),
    a_text("work", "what must be equal for throughputs to be compared, as JSON"),
    a_text("file", "its file in the archive of the run's facts"),
)  # fmt: skip
