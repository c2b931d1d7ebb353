"""Rows -> named tables with exactly the documented columns, each of a fixed type; as plain values and as pandas tables."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from torchmatrix.analysis import across
from torchmatrix.analysis.across import Relative
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.machines import Chosen, fleet_gpu_table, worth_table
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.rows import Column, Row, a_flag, a_list, a_number, a_text, a_whole, an_interval
from torchmatrix.core.formatting import number_or_nan
from torchmatrix.reporting.exports import rows
from torchmatrix.reporting.exports.columns import ABOUT, TABLES
from torchmatrix.reporting.view import View

# The tables of several machines: columns, their meanings, rows. columns.py and rows.py have those of one run.

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


_CELL = ("machine", "stack", "workload", "devices")


class Compared(Protocol):
    """The source of the rows: the machines, each with its run, and the tables of all their launches."""

    @property
    def chosen(self) -> Sequence[Chosen]: ...
    @property
    def cells(self) -> list[Row]: ...
    @property
    def scaling(self) -> list[Row]: ...


def rows_of(facts: Compared, relative: Relative, price_list: PriceList) -> dict[str, list[Row]]:
    """Return the rows of each table."""
    machines, base = [choice.machine for choice in facts.chosen], {"baseline_gpu": relative.baseline}
    gpus = {machine.label: machine.gpu for machine in machines}
    return {
        "machines": [_machine(choice) for choice in facts.chosen],
        "machine_gpus": fleet_gpu_table(machines, facts.cells),
        "machine_cells": _cells(facts.cells, price_list),
        "machine_scaling": [row | {"gpu": gpus[row["machine"]]} for row in facts.scaling],
        "relative": [row | base for row in relative.table],
        "relative_means": [
            row | {"ratio_low": row["low"], "ratio_high": row["high"]} | base for row in across.relative_means(relative.table)
        ],
        "not_compared": [
            {
                "gpu": pair.a, "baseline_gpu": pair.b, "field": pair.field, "cells": pair.rows,
                "values": [f"{a} and {b}" for a, b in pair.values],
            }
            for pair in relative.refused
        ],
    }  # fmt: skip


def _machine(choice: Chosen) -> Row:
    machine = choice.machine
    names = ("gpu", "gpu_count", "cpu", "cores", "memory_bytes", "driver", "os", "kernel", "verified")
    values = {name: getattr(machine, name) for name in names}
    return values | {"machine": machine.label, "run": choice.run.id, "note": choice.note}


def _cells(table: Sequence[Row], price_list: PriceList) -> list[Row]:
    """Return the cells with their yield per watt and GiB."""
    worth = {tuple(row[name] for name in _CELL): row for row in worth_table(table, price_list)}
    cells = []
    for row in rows.cells(table, price_list):
        yields = worth.get(tuple(row[name] for name in _CELL), {})
        cells.append(row | {name: yields.get(name) for name in ("per_watt", "per_gb")})
    return cells


if TYPE_CHECKING:
    import pandas as pd

Values: TypeAlias = Mapping[str, list[Any]]
"""A table by columns: str, float, int, bool and None for what is unknown. Files need no pandas, which costs ten times more."""
_LARGEST = 2**63
_FEW_VALUES = frozenset({str, bool, type(None)})
"""Types with few distinct values; no value of one equals a value of another."""


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The tables of one run by name, in the order of columns.TABLES; `run` is its id."""

    run: str
    values: Mapping[str, Values]

    @cached_property
    def frames(self) -> "Mapping[str, pd.DataFrame]":
        """Return the tables as pandas tables: NaN or NA for what is unknown."""
        return {name: frame(name, table) for name, table in self.values.items()}


def of(view: View, price_list: PriceList = NONE) -> Tables:
    """Build all tables of a run; a table without rows still has its columns."""
    by_table = {
        "cells": rows.cells(view.every_cell, price_list),
        "launches": rows.launches(view),
        **rows.others(view, price_list),
    }
    return Tables(run=view.id, values={name: _values(columns, by_table[name]) for name, columns in TABLES.items()})


def of_machines(facts: Compared, relative: Relative, price_list: PriceList = NONE) -> Tables:
    """Build all tables of several machines, and how they compare with the baseline GPU."""
    by_table = rows_of(facts, relative, price_list)
    values = {name: _values(columns, by_table[name]) for name, columns in MACHINE_TABLES.items()}
    return Tables(run="of machines", values=values)


def launched(view: View, price_list: PriceList = NONE) -> Tables:
    """Build only the tables of cells and launches, which are most of the data."""
    by_table = {"cells": rows.cells(view.every_cell, price_list), "launches": rows.launches(view)}
    return Tables(run=view.id, values={name: _values(TABLES[name], table) for name, table in by_table.items()})


def described(names: Iterable[str]) -> Values:
    """Describe every column of these tables: one row each, with table, column, kind and meaning."""
    entries = [(name, column.name, column.kind, column.meaning) for name in names for column in EVERY_TABLE[name]]
    return dict(zip(("table", "column", "kind", "meaning"), map(list, zip(*entries, strict=True)), strict=True))


def frame(name: str, table: Values) -> "pd.DataFrame":
    """Convert a documented table for pandas, which takes half a second to load."""
    import pandas as pd

    kinds = {column.name: column.kind for column in EVERY_TABLE[name]}
    return pd.DataFrame({column: pd.array(values, dtype=_TYPES[kinds[column]]) for column, values in table.items()})


def _values(columns: Sequence[Column], rows: Iterable[Row]) -> Values:
    """Convert rows to a table; lists become JSON text."""
    contents = list(zip(*([row.get(column.source) for column in columns] for row in rows), strict=True)) or [()] * len(columns)
    return {column.name: _column(column.kind, list(values)) for column, values in zip(columns, contents, strict=True)}


def _column(kind: str, values: list[Any]) -> list[Any]:
    """Convert a column's values: most texts repeat, so each is converted once; most numbers need no conversion."""
    convert, types = _CONVERTERS[kind], set(map(type, values))
    if types <= _FEW_VALUES:
        converted = {value: convert(value) for value in set(values)}
        return [converted[value] for value in values]
    if kind == "number" and types == {float}:
        return [None if math.isnan(value) else value for value in values]
    return list(map(convert, values))


def by_row(table: Values) -> list[Row]:
    """Return the rows of a table: str, float, int and bool; None for what is unknown."""
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _text(value: Any) -> str | None:
    """Return a text without lone surrogates, which a workload may print but no file can hold."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _whole(value: Any) -> int | None:
    """Return a whole number, although pandas turns whole numbers into floats if one is unknown."""
    number = number_or_nan(value)
    return int(value) if number.is_integer() and abs(number) < _LARGEST else None


def _number(value: Any) -> float | None:
    number = number_or_nan(value)
    return None if math.isnan(number) else number


def _list(value: Any) -> str | None:
    return _text(json.dumps([str(item) for item in value], ensure_ascii=False)) if isinstance(value, (list, tuple)) else None


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "text": _text,
    "number": _number,
    "whole": _whole,
    "flag": lambda value: value if isinstance(value, bool) else None,
    "list": _list,
}
_TYPES = {"text": "string", "number": "float64", "whole": "Int64", "flag": "boolean", "list": "string"}
