"""The columns of every exported table: the files, their types and their descriptions all follow from this.
Units stand in the names. Kinds: text; number; whole (a whole number); flag (true or false); list (of texts, in files as JSON).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.launch_row import ENTRIES, WHERE
from torchmatrix.analysis.metrics import PERCENTILES
from torchmatrix.analysis.rows import CELLS, LAUNCHES, Column, a_flag, a_list, a_number, a_text, a_whole, an_interval
from torchmatrix.analysis.time_split import PHASES, QUANTILES
from torchmatrix.analysis.verdicts import REASONS
from torchmatrix.matrix.factors import CONTRASTED


def _of(table: str) -> tuple[Column, ...]:
    """Return the entries of one of the two tables that have the most."""
    columns = [column for column in ENTRIES if table in column.tables]
    return tuple(replace(entry, meaning=entry.each) if table == LAUNCHES and entry.each else entry for entry in columns)


def _requests(definition: str) -> Iterable[Column]:
    """Yield the columns behind a cell's name; `definition`: a key of the glossary."""
    yield a_whole("batch_per_request", "items of one request, per device", "batch")
    yield a_whole("device_count", "how many devices (N); all serve their own requests at once", "count")
    yield a_whole("launches_ok", "launches behind it", "n")
    yield a_whole("requests", "their requests together")
    for name in PERCENTILES:
        which = "the longest" if name == "max" else name
        yield from an_interval(name, f"{which}. {DEFINITIONS[definition]}", name, unit="_seconds")


PAIRS = ", ".join(pair.name for factor in CONTRASTED for pair in factor.contrasts)


def _ratio(name: str, key: str) -> Iterable[Column]:
    return an_interval(name, DEFINITIONS[key], key)


_CUBE = (
    a_text("model", "what is trained or run"), a_text("mode", "train or infer"), a_text("devices", "the device set"),
)  # fmt: skip
CUBE_TABLES: Mapping[str, tuple[Column, ...]] = {
    "effects": (
        *_CUBE, a_text("setting", "the setting with its value"), a_text("over", "the usual value"),
        *an_interval("ratio", DEFINITIONS["effect"], "ratio"),
        a_number("ratio_smallest", "the smallest ratio of a pair", "least"),
        a_number("ratio_largest", "the largest ratio of a pair", "most"),
        a_whole("pairs", "pairs of cells with a ratio", "n"), a_whole("pairs_missing", "pairs without one", "missing"),
        a_text("negative_control", "of a setting that can't matter: still, moved or uncertain; otherwise empty", "control"),
    ),
    "interactions": (
        *_CUBE, a_text("settings", "one setting, or two for what they do only together"),
        a_number("variance_fraction", DEFINITIONS["explained"], "share"),
        a_number("adjusted_p_value", "of the F test, corrected for all of the cube"),
        a_text("sentence", "what the two do together, where that is shown"),
    ),
    "cheap_way": (
        *_CUBE, a_whole("step", "the number of the step, from 1"), a_text("setting", "what is changed in it"),
        a_text("cell", "the cell that it leads to"), *an_interval("gain", "its speed over that of the cell before", "gain"),
        *an_interval("gain_so_far", "its speed over that of the usual settings", "so_far"),
    ),
}  # fmt: skip
ABOUT_CUBES = {
    "effects": "one row per setting of each job whose settings were varied together: what it does",
    "interactions": "one row per setting and pair of settings: how much of the variance of log speed it explains",
    "cheap_way": "one row per step from the usual settings towards the best combination",
}
_SHOWN = (
    *WHERE[1:], a_text("model", "what is trained or run"), a_text("mode", "train or infer"), a_text("unit", "what an item is"),
    a_whole("batch_per_device", "items per device and step", "batch"),
)  # fmt: skip
_COMPARED = (
    *an_interval("ratio", "this cell's throughput over the other cell's", "ratio"),
    a_whole("launches_ok", "launches behind this cell", "n"),
    a_whole("baseline_launches_ok", "launches behind the other cell", "baseline_n"),
    a_text("verdict", f"corrected for all comparisons of the run. {DEFINITIONS['corrected_verdict']}"),
    a_text("reason", f"the rule that decided the verdict: {'; '.join(f'{code}: {rule}' for code, rule in REASONS.items())}"),
    a_number("p_value", "of the test for a difference"),
    a_number("adjusted_p_value", "the same, corrected likewise"),
    a_number("same_p_value", "of the tests that the ratio is not within 1 ± 2 %"),
    a_text("why", "why there is no ratio"),
)
_VERDICT = a_text("verdict", DEFINITIONS["reproduced"])

TABLES: dict[str, tuple[Column, ...]] = {
    "cells": _of(CELLS),
    "launches": _of(LAUNCHES),
    "scaling": (
        *WHERE, a_whole("device_count", "how many devices (N)", "count"),
        a_text("baseline", "the one-device cell that T_1 comes from"),
        *_ratio("speedup_S", "S"), *_ratio("efficiency_E", "E"), *_ratio("scale_factor_s", "s"),
        *_ratio("efficiency_E_star", "E_star"), a_flag("impossible", DEFINITIONS["impossible"]),
    ),
    "decomposition": (
        *WHERE, a_whole("device_count", "how many devices (N)", "count"),
        *(column for name in ("E", "E_hetero", "E_corun", "E_ddp", "E_comm") for column in _ratio(f"efficiency_{name}", name)),
        a_number("exposed_communication_seconds_per_step", "the step with all-reduce minus that without", "exposed_seconds"),
        a_number("step_seconds", "time of the step with all-reduce"),
        a_number("bus_bytes_per_second", DEFINITIONS["bus_bandwidth"]),
    ),
    "nodes": (
        *WHERE, a_whole("device_count", "how many devices (N)", "count"), a_whole("nodes", "on how many nodes"),
        a_whole("devices_per_node", "how many of them on each", "per_node"),
        *_ratio("speedup_over_one_node", "S_nodes"),
        *(column for name in ("E", "E_inside", "E_between") for column in _ratio(f"efficiency_{name}", name)),
        a_number("bus_bytes_per_second", DEFINITIONS["bus_bandwidth"]),
        a_text("transport", "how nodes communicate, in the library's words"),
    ),
    "collectives": (
        *WHERE, a_whole("device_count", "how many devices (N)", "count"), a_whole("nodes", "on how many nodes"),
        a_text("operation", "all-reduce, all-gather, reduce-scatter or send-receive (to the next device, from the previous)"),
        a_whole("bytes", "of all parts together if each device has a part, else of each device's tensor"),
        a_whole("launches_ok", "launches behind it", "n"), a_number("seconds", "median of the launches' medians"),
        a_number("bus_bytes_per_second", DEFINITIONS["bus_bandwidth"]),
        a_number("link_bytes_per_second", DEFINITIONS["link_peak"]),
        a_number("bus_fraction_of_link", "bus bandwidth over the links' peak", "of_link"),
    ),
    "devices": (
        WHERE[0], a_text("stack", WHERE[1].meaning), a_text("workload", WHERE[2].meaning),
        a_text("device_name", "the GPU model, as the driver names it"), a_text("device", "which of the devices"),
        a_text("unit", "what an item is"),
        a_number("items_per_second", "throughput of this device alone", "throughput"),
        *an_interval("ratio", "over the median device of the same model", "ratio"),
        a_flag("weak", "below 0.97 of the median device, beyond the interval"),
    ),
    "phases": (
        *WHERE, a_text("model", "what is trained or run"), a_text("mode", "train or infer"),
        a_text("compile_cache", "cold or warm; empty without compilation", "cache"),
        *(a_number(f"{name.replace(' ', '_').replace('-', '_')}_seconds", f"median time of the phase: {name}", name)
          for name in PHASES),
        a_number("launch_seconds", "median time of the whole launch", "total"),
        a_whole("launches_ok", "launches behind it", "n"),
    ),
    "steps": (
        *WHERE, a_text("model", "what is trained or run"), a_text("mode", "train or infer"),
        a_whole("launches_ok", "launches behind it", "launches"),
        a_whole("steps", "steps of all their processes in the timed windows"),
        *(a_number(f"step_{name}_seconds", f"time of a step: {'the longest' if name == 'max' else f'quantile {share:g}'}", name)
          for name, share in QUANTILES.items()),
    ),
    "latency": (*WHERE, *_requests("latency")),
    "end_to_end": (*WHERE, *_requests("end_to_end")),
    "compiles": (
        *WHERE, a_whole("compiled_launches", "ok launches that compiled from an empty cache", "compiled"),
        a_number("first_step_seconds", "the median of their first steps"),
        a_number("first_step_shortest_seconds", "the shortest", "first_step_low"),
        a_number("first_step_longest_seconds", "the longest", "first_step_high"),
        a_number("scatter_between_compilations", "standard deviation of the logarithms of their throughputs",
                 "sd_between_artefacts"),
        a_whole("reusing_launches", "ok launches that ran the code of one earlier compilation", "reused"),
        a_number("scatter_of_one_compilation", "standard deviation of the logarithms of their throughputs", "sd_same_artefact"),
        a_number("p", "of an F test that the former is no larger"), a_flag("varies", DEFINITIONS["code_varies"]),
    ),
    **CUBE_TABLES,
    "speedups": (*_SHOWN, a_text("baseline", "the stack that it is compared with"), *_COMPARED),
    "settings": (
        a_text("setting", f"the setting that differs: {PAIRS}"), *_SHOWN,
        a_text("over", "the workload it is compared with, the same but for this setting"), *_COMPARED,
    ),
    "gpus": (
        a_text("device_name", "the GPU model, as the driver names it"),
        a_text("gpu", "the name in reports/published/gpus.csv; unknown: not there"),
        a_text("vendor", "who makes it"), a_text("architecture", "its generation"),
        a_text("compute_capability", "of CUDA; for AMD the gfx target"),
        a_whole("multiprocessors", "of one device, as torch counts them; AMD: compute units"),
        a_whole("devices_per_card", "how many devices the driver shows for one card"),
        a_number("memory_gb", "of one card, in 2^30 bytes, as the vendor rounds it"), a_text("memory_type", "such as HBM3"),
        a_whole("device_memory_bytes", "of one device, as torch sees it"),
        a_number("bandwidth_gb_per_second", "of one card's memory, in 10^9 bytes"),
        a_number("power_watts", "power limit of one card, by its data sheet"),
        a_text("launch_date", "first sale or announcement"),
        *(a_number(f"peak_{word}_tflops", "dense peak of one device in this precision, by its data sheet, in 10^12 per second")
          for word in ("fp32", "tf32", "amp", "amp_bf16", "fp8")),
        *(a_number(f"mfu_{word}_fraction", "best MFU of the run's cells in this precision", f"mfu_{word}")
          for word in ("fp32", "tf32", "amp", "amp_bf16", "fp8")),
        a_text("status", "verified or partly: how sure the data sheet's figures are"), a_text("source", "where they come from"),
    ),
    "stacks": (
        a_text("stack", WHERE[1].meaning), a_text("torch", "version that ran"),
        a_text("torchvision", "version of torchvision"),
        a_text("transformers", "version of transformers"), a_text("python", "version of Python in the container"),
        a_text("cuda", "CUDA that torch was built with"),
        a_text("hip", "ROCm's HIP that torch was built with"), a_text("cudnn", "version of cuDNN, as torch writes it"),
        a_text("nccl", "version of NCCL, on AMD of RCCL"),
        a_text("triton", "version of Triton"), a_text("glibc", "version of the C library"),
        a_text("os", "operating system in the container"),
        a_text("image", "the image, or the virtualenv's interpreter"), a_text("image_id", "the image's id"),
        a_text("base", "the image that this one was built on"), a_text("base_digest", "the digest of the base"),
        a_text("lock_sha256", "SHA-256 of the lock that lists its contents"), a_text("engine", "the engine that ran it"),
        a_text("engine_version", "version of the engine"), a_list("packages", "every Python package, NAME==VERSION"),
    ),
    "skips": (
        a_text("cell", "a cell of the matrix that was not run"), a_text("stack", WHERE[1].meaning),
        a_text("reason", "why this machine can't run it"), a_text("fix", "how to fix that, if possible"),
    ),
    "failures": (
        *WHERE, a_whole("round", "which of the interleaved rounds"), a_text("outcome", "how the launch ended"),
        a_text("error", "the first line that says what went wrong"), a_list("seen", "what the host observed during the launch"),
        a_text("command", "what started it, ready to paste"),
        a_text("file", "its file in the archive of the run's facts"),
    ),
    "findings": (
        a_text("cell", WHERE[0].meaning),
        a_text("level", "impossible; suspect; unclear: can't be judged well; unchecked: not compared with a peak"),
        a_text("field", "the field that the finding is about"), a_text("value", "its value"), a_text("unit", "of the value"),
        a_text("limit", "the limit it exceeds"), a_text("reason", "the finding as a sentence"),
    ),
    "published": (
        a_text("cell", WHERE[0].meaning), a_text("vendor", "who published it"), a_text("published_gpu", "GPU, in their words"),
        a_whole("gpus", "how many GPUs"), a_text("published_model", "model, in their words"),
        a_text("published_precision", "precision, in their words"), a_text("torch", "version of torch, in their words"),
        a_text("date", "when they measured or published it"),
        a_text("unit", "unit of the throughputs"), *an_interval("ours", "our throughput in that unit", "ours"),
        a_number("theirs", "their throughput in that unit"),
        *an_interval("ratio", "ours over theirs; unknown if not comparable", "ratio"),
        a_number("reproduced_from", "from here on ours counts as reproduced", "low"),
        a_number("reproduced_to", "up to here", "high"),
        _VERDICT, a_list("differs", "why they are not comparable"), a_list("besides", "what else differs"),
        a_text("to_match", "the settings of a workload that would be comparable, or why none would"),
        a_list("doubts", "what the audit finds in their figure"), a_text("source", "where it was published"),
    ),
    "claims": (
        a_text("vendor", "who claims it"), a_text("quantity", "scale-factor, speed-up, mean-speed-up or ratio"),
        a_text("against", "over what"),
        a_list("models", "models that it covers; empty: not stated"), a_list("precisions", "the same for precisions"),
        a_text("published_gpu", "GPU, in their words"), a_whole("gpus", "how many GPUs, or at least how many", "count"),
        a_number("claimed_low", "the claim"), a_number("claimed_high", "its upper end; unknown: \"more than\""),
        a_text("what", "the cells that we measured for it"), *an_interval("ours", "what we measured", "ours"),
        a_number("reproduced_from", "from here on ours counts as reproduced", "low"),
        a_number("reproduced_to", "up to here; unknown: no upper end", "high"),
        _VERDICT, a_list("differs", "why it can't be compared"), a_text("source", "where it was published"),
    ),
    "prices": (
        a_text("gpu", "one card of this model"), a_number("price_per_hour", "in the currency", "per_hour"),
        a_number("purchase_price", "in the currency", "purchase"),
        a_number("server_price", "of the card's share of the rest of the server", "server"),
        a_number("hours", "of use, over which a purchase is spread"),
        a_number("electricity_price", "of one kWh", "electricity"), a_text("currency", "currency of the list"),
        a_text("source", "who states the price"), a_text("date", "when it was valid"),
    ),
}  # fmt: skip
"""Every table that is exported, with its columns in order."""

ABOUT = {
    "cells": "one row per cell: its figure over all launches, with its interval",
    "launches": "one row per launch, the last try of each: the samples behind every figure",
    "scaling": "one row per cell of several devices: speed-up, efficiency and scale factor",
    "decomposition": "one row per explained cell: where its scaling loss comes from",
    "nodes": "one row per cell on several nodes: what is lost inside a node and what between nodes",
    "collectives": "one row per cell, collective operation and size: how fast the devices exchange data",
    "devices": "one row per device measured alone, if several were",
    "phases": "one row per cell and state of its compile cache: where the time of a launch goes",
    "latency": "one row per cell that infers: percentiles of single requests, from device to device",
    "end_to_end": "the same from host memory to host memory",
    "steps": "one row per cell: how much the times of its steps vary",
    "compiles": "one row per cell compiled from an empty cache: how long that took, and whether the code varies in speed",
    **ABOUT_CUBES,
    "speedups": "one row per cell: its throughput over that of a baseline stack",
    "settings": "one row per pair of cells that differ in one setting only",
    "gpus": "one row per GPU model measured: its data sheet, and the best MFU reached here",
    "stacks": "one row per stack: the versions that were really installed",
    "skips": "one row per cell that this machine can't run",
    "failures": "one row per failed launch",
    "findings": "one row per figure of ours that is impossible, can't be judged, or was not held against a peak",
    "published": "one row per published throughput beside one of our cells",
    "claims": "one row per claim of an article and what we measured for it",
    "prices": "the price list that was used",
}
"""One line about each table."""


# The tables of several machines.

_MACHINE = a_text("machine", "the machine's name on the page of machines")
_GPU = a_text("gpu", "the GPU model by its short name; of machines without GPUs their CPU")
_STACK, _WORKLOAD = a_text("stack", "the software combination"), a_text("workload", "the job")
_COUNT = a_whole("device_count", "how many devices (N)", "count")

MACHINE_TABLES: dict[str, tuple[Column, ...]] = {
    "machines": (
        _MACHINE, _GPU, a_whole("gpu_count", "how many GPUs it has"), a_text("cpu", "its CPU"), a_whole("cores", "of its CPUs"),
        a_number("memory_bytes", "of the host"), a_text("driver", "version of the GPUs' driver"),
        a_text("os", "operating system"), a_text("kernel", "version of the kernel"),
        a_flag("verified", "whether its facts recorded its identity"), a_text("run", "the run that represents it"),
        a_text("note", "remarks on the choice of this run"),
    ),
    "machine_gpus": (
        _GPU, a_list("machines", "the machines that have it"), a_list("counts", "how many each of them has"),
        a_list("drivers", "versions of their drivers"),
        a_number("power_limit_low_watts", "lowest power limit that a driver reports"),
        a_number("power_limit_high_watts", "highest power limit that a driver reports"),
        a_text("unlike", "conditions in which its machines differ"),
        *(column for column in TABLES["gpus"] if column.name not in ("gpu", "device_name")),
    ),
    "machine_cells": (
        _MACHINE, _GPU, *TABLES["cells"],
        a_number("items_per_second_per_watt", DEFINITIONS["per_watt"], "per_watt"),
        a_number("items_per_second_per_gib", "throughput over the memory of the devices (2^30 bytes)", "per_gb"),
    ),
    "machine_scaling": (_MACHINE, _GPU, *TABLES["scaling"]),
    "relative": (
        _GPU, a_text("machine", "one machine; unknown: all machines with this GPU together"),
        a_whole("machines", "how many machines are in the figure"),
        a_flag("of_gpu", "whether the row represents its GPU model"), _WORKLOAD, a_text("model", "what is trained or run"),
        a_text("mode", "train or infer"), a_text("precision", "of the computation"), a_text("unit", "what an item is"),
        _COUNT, _STACK, a_text("stack_class", "the release of torch by which stacks are compared"),
        a_whole("batch_per_device", "items per device and step", "batch"), a_whole("launches_ok", "launches behind it", "n"),
        *an_interval("items_per_second", DEFINITIONS["throughput"], "throughput"),
        a_text("baseline_gpu", "the GPU model that it is relative to"),
        a_text("baseline_stack", "the stack there"),
        a_whole("baseline_launches_ok", "launches behind the baseline", "baseline_n"),
        a_number("baseline_items_per_second", "throughput there", "baseline_throughput"),
        a_text("stack_match", "equal, or equivalent: the same release of torch, another CUDA or ROCm"),
        *an_interval("ratio", DEFINITIONS["relative"], "ratio"),
        a_text("interval_over", "what the ratio's interval is over: launches or machines", "level"),
        a_text("verdict", DEFINITIONS["corrected_verdict"]),
        a_number("adjusted_p_value", "corrected for the number of rows"), a_text("why", "why there is no ratio"),
    ),
    "relative_means": (
        _GPU, _COUNT, a_text("baseline_gpu", "the GPU model that it is relative to"),
        *an_interval("geometric_mean", DEFINITIONS["geometric_mean"], "ratio"), a_whole("cells", "ratios in it", "n"),
        a_whole("missing", "cells without a ratio"), a_text("missing_why", "why they have none"),
    ),
    "not_compared": (
        a_text("gpu", "one side"), a_text("baseline_gpu", "the other side"),
        a_text("field", "the field in which they differ"), a_list("values", "its values on both sides"),
        a_whole("cells", "how many cells differ in it"),
    ),
}  # fmt: skip

ABOUT_MACHINES = {
    "machines": "one row per machine: its hardware, and the run that represents it",
    "machine_gpus": "one row per GPU model: its data sheet, what the drivers report, the best MFU reached",
    "machine_cells": "one row per machine and cell: its figure with its interval, per watt, per price and per GiB",
    "machine_scaling": "one row per machine and cell of several devices: speed-up, efficiency and scale factor",
    "relative": "one row per GPU model, workload, stack and number of devices: throughput relative to the baseline GPU",
    "relative_means": "one row per GPU model and number of devices: the geometric mean of its ratios",
    "not_compared": "one row per pair of GPU models and field in which cells differ, so that they are not compared",
}

EVERY_TABLE = TABLES | MACHINE_TABLES
ABOUT_EACH = ABOUT | ABOUT_MACHINES
"""One line about each table."""
