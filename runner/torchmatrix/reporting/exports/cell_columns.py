"""What every column of the tables `cells` and `launches` means, and what names a cell in all tables. Kinds as in columns.py."""

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.matrix.factors import BY_NAME, COLUMNS, CONTRASTED, Factor
from torchmatrix.reporting.exports.column import Column, a_flag, a_list, a_number, a_text, a_whole, an_interval
from torchmatrix.reporting.exports.request_columns import launch_columns


def _factor(factor: Factor) -> Column:
    return (a_flag if factor.kind is bool else a_text)(factor.name, factor.meaning)


PAIRS = ", ".join(pair.name for factor in CONTRASTED for pair in factor.contrasts)
_PARITY = {
    "largest_absolute": "largest difference of an inference's outputs from those of eager fp32; of the launches proven in full",
    "largest_relative": "the same over the largest output of that tensor",
    "cosine": "least cosine of an output with that of eager fp32",
    "top1": "share of rows whose largest output is that of eager fp32",
}
WHERE = (
    a_text("cell", "stack/workload/devices; torchmatrix run 'CELL' measures it again"),
    a_text("stack", "the software combination, as the matrix names it"),
    a_text("workload", "the job: model, mode, precision, batch per device and all other settings"),
    a_text("devices", "the device set, such as gpu0+1; on a CPU a device is an equal share of the cores"),
)
_JOB = (
    a_list("device_list", "the devices one by one"),
    a_whole("device_count", "how many devices (N)", "count"),
    a_whole("nodes", "on how many machines of a cluster"),
    a_text("parallel", "ddp or fsdp, or how an explained cell ran its processes instead: independent, no-sync"),
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
        "host time to enqueue a step (training in amp: without the optimizer) over the time of a step; near 1 the device waits",
        "host_bound",
    ),
    a_number("flops_per_item", "floating-point operations of the model for one item; every multiplication and addition counts"),
    a_number("bus_bytes_per_second", DEFINITIONS["bus_bandwidth"]),
    a_text("transport", "how several nodes talk, in the words of the communication library"),
    a_number("power_watts", "mean over the timed windows, all devices together"),
    a_number("joules_per_item", DEFINITIONS["energy"], "energy_per_item"),
    a_number("items_per_joule", "the inverse: items per second and watt"),
    a_text("energy_problem", "why the energy is unknown, or that the power readings disagree with it"),
    a_whole("peak_memory_bytes", "largest process in the timed windows; allocated on a GPU, resident on a CPU", "peak_bytes"),
    a_whole("peak_memory_cold_bytes", "the same up to the end of the first step", "cold_peak_bytes"),
    a_flag("mixed", "the set has GPUs of different models"),
    a_text("conditions_differ", DEFINITIONS["apart"], "apart"),
    a_text("unlike", "in what the CPU slots of the set differ"),
    a_number("quota_seconds", "how long a CPU quota made processes wait in the timed windows; 0 also where none was told"),
    a_number("ecc_errors", "uncorrected memory errors counted in the timed windows; 0 also where the device has no counter"),
    a_list("foreign", "who else used the devices in the timed windows"),
    a_text("changed_settings", "what the model's code changed in torch"),
    a_text("unchecked", "why the losses could not be compared with eager fp32"),
    *(a_number(f"parity_{name}", meaning, f"parity_{name}") for name, meaning in _PARITY.items()),
)

CELLS = (
    *WHERE, *_JOB,
    a_text("outcome", "of the last ok launch, or else of the last launch: ok, oom, timeout, crashed, numerics, …"),
    a_text("error", "the first line that says what went wrong in it"),
    a_whole("launches_ok", "launches that count (n)", "n"),
    a_whole("launches_not_ok", "launches that gave no figure", "failed"),
    a_whole("launches_left_out", DEFINITIONS["left_out"], "left_out"),
    a_text("left_out_why", "in what they are unlike the others"),
    *an_interval("items_per_second", DEFINITIONS["throughput"], "throughput"),
    a_number("items_per_second_per_device", "throughput over the number of devices", "per_device"),
    a_number("cv_fraction", DEFINITIONS["cv"], "cv"),
    a_number("detectable_fraction", DEFINITIONS["detectable"], "detectable"),
    a_whole("launches_outlying", DEFINITIONS["outlier"], "outliers"),
    a_text("verdict", "stable, ok or noisy, by the coefficient of variation; n/a with one launch"),
    a_number("mfu_fraction", DEFINITIONS["MFU"], "mfu"),
    a_number("items_per_currency", "items per unit of the currency at the hourly price of the devices; needs a price list"),
    a_number("items_per_second_per_currency", "items per second and unit of the currency that the devices cost to buy"),
    a_text("currency", "currency of the price list"),
    *_RUNNING,
    a_number("temperature_last_celsius", "hottest device at the end of the windows, median over launches", "temperature_last"),
    a_number("first_step_cold_seconds", "first step with torch.compile from an empty compile cache", "cold_compile_seconds"),
    a_whole("launches_not_flat", "launches whose warm-up ended at its cap, before the step time was flat", "not_flat"),
    a_number("drift_fraction", DEFINITIONS["drift"], "drift"),
    a_whole("launches_stalled", DEFINITIONS["stall"], "stalled"),
    a_whole("launches_with_skipped_steps", "launches in which GradScaler skipped timed steps", "skipped_steps"),
    a_whole("launches_throttled", DEFINITIONS["throttled"], "throttled"),
    a_whole("launches_not_steady", "launches in which temperature or clock still changed", "not_steady"),
    a_number("temperature_celsius_per_minute", "largest trend of the temperature in the timed windows; none: n/a", "warming"),
    a_number("clock_change_fraction", DEFINITIONS["clock_change"], "clock_change"),
    a_whole("launches_too_warm", "launches that began above the method's temperature", "too_warm"),
    a_whole("launches_start_unknown", "launches whose temperature at the start could not be read", "start_unknown"),
    a_whole("launches_clock_jumped", "launches in which the wall clock was set", "clock_jumps"),
)  # fmt: skip

LAUNCHES = (
    a_text("run", "the run's id"), a_whole("round", "which of the interleaved rounds"),
    *WHERE, a_text("ddp_workload", "the workload that an explained cell belongs to; otherwise the workload itself"), *_JOB,
    a_text("outcome", "ok, oom, timeout, crashed, numerics, unsupported, build-failed, interrupted, lost, or unlike: left out"),
    a_text("error", "the first line that says what went wrong"),
    a_text("left_out_why", "in what it is unlike the others of its cell, if it is", "left_out"),
    a_number("started_unix_seconds", "when it began, in seconds since 1970 UTC"),
    a_number("launch_seconds", "from start to exit", "seconds"),
    a_number("items_per_second", "items of all processes in the timed windows over the wall time of the slowest", "throughput"),
    a_number("items_per_second_per_device", "the same over the number of devices", "per_device"),
    *launch_columns(),
    *_RUNNING,
    a_number("energy_joules", "energy of all devices in all timed windows"),
    a_number("temperature_first_celsius", "hottest device at the beginning of the timed windows", "temperature_first"),
    a_number("temperature_last_celsius", "hottest device at their end", "temperature_last"),
    a_number("clock_mhz", "mean over the timed windows, the slowest device"),
    a_flag("throttled", DEFINITIONS["throttled"]),
    a_flag("steady", DEFINITIONS["steady"]),
    a_number("temperature_celsius_per_minute", "trend of the temperature in the timed windows; none: n/a", "warming"),
    a_number("clock_change_fraction", DEFINITIONS["clock_change"], "clock_change"),
    a_flag("too_warm", "the launch began above the method's temperature"),
    a_flag("start_unknown", "the method limits the temperature at the start, but it could not be read"),
    a_number("first_step_seconds", "first step, with compilation if there is any"),
    a_text("compile_cache", "cold: the compile cache was empty; warm: it was not"),
    a_flag("flat", "the warm-up ended because the step time was flat"),
    a_number("drift_fraction", DEFINITIONS["drift"], "drift"),
    a_whole("skipped_steps", "timed steps that GradScaler skipped, since gradients did not fit into float16"),
    a_number("stall_fraction", DEFINITIONS["stall"], "stall"),
    a_number("loss_difference", "largest relative difference of the first losses from those of eager fp32"),
    a_number("clock_jump_seconds", "by how much the wall clock was changed during the launch"),
    a_text("other_settings", "the workload's further settings, as JSON"),
    a_text("command", "what started it, to be pasted"),
    a_text("work", "what must be equal in launches whose throughputs are compared, as JSON"),
    a_text("file", "its facts, as named in the archive of the run's facts"),
)  # fmt: skip
