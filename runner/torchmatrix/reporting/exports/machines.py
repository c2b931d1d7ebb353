"""The tables of several machines, as columns.py and rows.py have those of one run: columns, their meanings, rows."""

from collections.abc import Sequence
from typing import Protocol

from torchmatrix.analysis import across
from torchmatrix.analysis.across import Relative
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.machines import Chosen, fleet_gpu_table, worth_table
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.rows import Column, Row, a_flag, a_list, a_number, a_text, a_whole, an_interval
from torchmatrix.reporting.exports import rows
from torchmatrix.reporting.exports.columns import ABOUT, TABLES

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
"""One line about each of them."""


_CELL = ("machine", "stack", "workload", "devices")


class Compared(Protocol):
    """What the rows are made from: the machines, each with its run, and the tables of all their launches."""

    @property
    def chosen(self) -> Sequence[Chosen]: ...
    @property
    def cells(self) -> list[Row]: ...
    @property
    def scaling(self) -> list[Row]: ...


def rows_of(facts: Compared, relative: Relative, held: PriceList) -> dict[str, list[Row]]:
    """Of each table."""
    machines, base = [one.machine for one in facts.chosen], {"baseline_gpu": relative.baseline}
    gpus = {machine.label: machine.gpu for machine in machines}
    return {
        "machines": [_machine(one) for one in facts.chosen],
        "machine_gpus": fleet_gpu_table(machines, facts.cells),
        "machine_cells": _cells(facts.cells, held),
        "machine_scaling": [row | {"gpu": gpus[row["machine"]]} for row in facts.scaling],
        "relative": [row | base for row in relative.table],
        "relative_means": [_mean(row) | base for row in across.relative_means(relative.table)],
        "not_compared": [
            {"gpu": one.a, "baseline_gpu": one.b, "field": one.field, "cells": one.rows, "values": _pairs(one.values)}
            for one in relative.refused
        ],
    }


def _machine(one: Chosen) -> Row:
    machine = one.machine
    names = ("gpu", "gpu_count", "cpu", "cores", "memory_bytes", "driver", "os", "kernel", "verified")
    return {name: getattr(machine, name) for name in names} | {"machine": machine.label, "run": one.run.id, "note": one.note}


def _cells(table: Sequence[Row], held: PriceList) -> list[Row]:
    """The cells with what they give per watt and GiB."""
    worth = {tuple(row[name] for name in _CELL): row for row in worth_table(table, held)}
    found = []
    for row in rows.cells(table, held):
        own = worth.get(tuple(row[name] for name in _CELL), {})
        found.append(row | {name: own.get(name) for name in ("per_watt", "per_gb")})
    return found


def _mean(row: Row) -> Row:
    return row | {"ratio_low": row["low"], "ratio_high": row["high"]}


def _pairs(values: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{a} and {b}" for a, b in values]
