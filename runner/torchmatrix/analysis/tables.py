"""Launches -> rows: one per launch, one per cell, as dictionaries. Unknown numbers are NaN, other unknowns None.

Definitions are in glossary.py.
"""

import math
from collections.abc import Iterable, Sequence

from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.column import Row, is_ok
from torchmatrix.analysis.launch_row import cell_values, row_of
from torchmatrix.facts.launch import Launch


def launch_rows(launches: Iterable[Launch]) -> list[Row]:
    """One row per launch (launch_row.py)."""
    rows = [row_of(launch) for launch in launches]
    borrow_flops(rows)
    return rows


def cells_table(cells: CellIndex) -> list[Row]:
    """One row per cell: median throughput over its ok launches, interval, n, CV, verdict; failed launches are counted."""
    return [_cell_row(cell) for cell in cells.every]


def borrow_flops(rows: Sequence[Row]) -> None:
    """A launch that counted nothing takes what its stack counted for the same operations; where the stack's torch has no
    counter, what another stack did (`flops_from`: which). What a launch counted itself stays.
    """
    told = [row for row in rows if is_ok(row) and not row["flops_from"] and not math.isnan(row["flops_per_item"])]
    own = {(row["stack"], row["recipe"], row["operations"]): row for row in reversed(told)}
    others = {row["operations"]: row for row in reversed(told)}
    for row in rows:
        if not math.isnan(row["flops_per_item"]):
            continue
        same = own.get((row["stack"], row["recipe"], row["operations"]))
        found = same or others.get(row["operations"])
        if found and _same_model(row, found):
            row |= {"flops_per_item": found["flops_per_item"], "flops_from": None if same else found["stack"]}


def _same_model(row: Row, other: Row) -> bool:
    """As far as both tell."""
    return None in (row["parameters"], other["parameters"]) or row["parameters"] == other["parameters"]


_OF_ONE = ("run", "round", "throughput", "requests", "path", "seconds", "stall", "left_out")
"""What is of one launch, and not of the cell that it stands for."""


def _cell_row(cell: Cell) -> Row:
    return {key: value for key, value in cell.last.items() if key not in _OF_ONE} | cell.summary() | cell_values(cell)
