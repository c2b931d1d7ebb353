"""Several machines -> the rows of the tables that are exported, under the keys that machine_columns.py calls sources."""

from collections.abc import Sequence
from typing import Protocol

import pandas as pd

from torchmatrix.analysis import across, fleet_tables
from torchmatrix.analysis.across import Relative
from torchmatrix.analysis.machines import Chosen
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.tables import records
from torchmatrix.reporting.exports import rows
from torchmatrix.reporting.exports.rows import Row

_CELL = ("machine", "stack", "workload", "devices")


class Compared(Protocol):
    """What the rows are made from: the machines, each with its run, and the tables of all their launches."""

    @property
    def chosen(self) -> Sequence[Chosen]: ...
    @property
    def cells(self) -> pd.DataFrame: ...
    @property
    def scaling(self) -> pd.DataFrame: ...


def rows_of(facts: Compared, relative: Relative, held: PriceList) -> dict[str, list[Row]]:
    """Of each table."""
    machines, base = [one.machine for one in facts.chosen], {"baseline_gpu": relative.baseline}
    gpus = {machine.label: machine.gpu for machine in machines}
    return {
        "machines": [_machine(one) for one in facts.chosen],
        "machine_gpus": records(fleet_tables.fleet_gpu_table(machines, facts.cells)),
        "machine_cells": _cells(facts.cells, held),
        "machine_scaling": [row | {"gpu": gpus[row["machine"]]} for row in records(facts.scaling)],
        "relative": [row | base for row in records(relative.table)],
        "relative_means": [_mean(row) | base for row in records(across.relative_means(relative.table))],
        "not_compared": [
            {"gpu": one.a, "baseline_gpu": one.b, "field": one.field, "cells": one.rows, "values": _pairs(one.values)}
            for one in relative.refused
        ],
    }


def _machine(one: Chosen) -> Row:
    machine = one.machine
    names = ("gpu", "gpu_count", "cpu", "cores", "memory_bytes", "driver", "os", "kernel", "verified")
    return {name: getattr(machine, name) for name in names} | {"machine": machine.label, "run": one.run.id, "note": one.note}


def _cells(table: pd.DataFrame, held: PriceList) -> list[Row]:
    """The cells with what they give per watt and GiB."""
    worth = {tuple(row[name] for name in _CELL): row for row in records(fleet_tables.worth_table(table, held))}
    found = []
    for row in rows.cells(table, held):
        own = worth.get(tuple(row[name] for name in _CELL), {})
        found.append(row | {name: own.get(name) for name in ("per_watt", "per_gb")})
    return found


def _mean(row: Row) -> Row:
    return row | {"ratio_low": row["low"], "ratio_high": row["high"]}


def _pairs(values: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{a} and {b}" for a, b in values]
