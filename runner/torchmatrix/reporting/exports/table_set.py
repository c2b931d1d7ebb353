"""Rows -> named tables with exactly the documented columns, each of a fixed type; as plain values, and as pandas tables."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from torchmatrix.analysis.across import Relative
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.rows import Column, Row
from torchmatrix.ground.formatting import number_or_nan
from torchmatrix.reporting.exports import machines, rows
from torchmatrix.reporting.exports.columns import TABLES
from torchmatrix.reporting.exports.machines import EVERY_TABLE, MACHINE_TABLES
from torchmatrix.reporting.view import View

if TYPE_CHECKING:
    import pandas as pd

Values: TypeAlias = Mapping[str, list[Any]]
"""A table by columns: str, float, int, bool and None for what is unknown. Files need no pandas, which costs ten times more."""
_LARGEST = 2**63
_FEW_VALUES = frozenset({str, bool, type(None)})
"""Types whose values are few; none of one is equal to one of another."""


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The tables of one run by name, in the order of columns.TABLES; `run` is its id."""

    run: str
    values: Mapping[str, Values]

    @cached_property
    def frames(self) -> "Mapping[str, pd.DataFrame]":
        """The same as pandas tables: NaN or NA for what is unknown."""
        return {name: frame(name, table) for name, table in self.values.items()}


def of(view: View, held: PriceList = NONE) -> Tables:
    """All tables of a run; a table without rows still has its columns."""
    found = {"cells": rows.cells(view.every_cell, held), "launches": rows.launches(view), **rows.others(view, held)}
    return Tables(run=view.id, values={name: _values(columns, found[name]) for name, columns in TABLES.items()})


def of_machines(facts: machines.Compared, relative: Relative, held: PriceList = NONE) -> Tables:
    """All tables of several machines, and how they compare with the baseline GPU."""
    found = machines.rows_of(facts, relative, held)
    return Tables(run="of machines", values={name: _values(columns, found[name]) for name, columns in MACHINE_TABLES.items()})


def launched(view: View, held: PriceList = NONE) -> Tables:
    """Only the cells and launches, which are most of the data."""
    found = {"cells": rows.cells(view.every_cell, held), "launches": rows.launches(view)}
    return Tables(run=view.id, values={name: _values(TABLES[name], made) for name, made in found.items()})


def described(names: Iterable[str]) -> Values:
    """What every column of these tables means: one row each, with table, column, kind and meaning."""
    found = [(name, column.name, column.kind, column.meaning) for name in names for column in EVERY_TABLE[name]]
    return dict(zip(("table", "column", "kind", "meaning"), map(list, zip(*found, strict=True)), strict=True))


def frame(name: str, table: Values) -> "pd.DataFrame":
    """A documented table for pandas, which takes half a second to load."""
    import pandas as pd

    kinds = {column.name: column.kind for column in EVERY_TABLE[name]}
    return pd.DataFrame({column: pd.array(values, dtype=_TYPES[kinds[column]]) for column, values in table.items()})


def _values(kinds: Iterable[Column], found: Iterable[Row]) -> Values:
    """Rows as a table; lists as JSON text."""
    every = list(kinds)
    columns = list(zip(*([row.get(c.source) for c in every] for row in found), strict=True)) or [()] * len(every)
    return {c.name: _column(c.kind, list(values)) for c, values in zip(every, columns, strict=True)}


def _column(kind: str, values: list[Any]) -> list[Any]:
    """Of texts most are the same in many rows: each is looked at once. Of numbers most need no look."""
    made, types = _MADE[kind], set(map(type, values))
    if types <= _FEW_VALUES:
        known = {value: made(value) for value in set(values)}
        return [known[value] for value in values]
    if kind == "number" and types == {float}:
        return [None if value != value else value for value in values]
    return list(map(made, values))


def by_row(table: Values) -> list[Row]:
    """The rows of a table: str, float, int and bool; None for what is unknown."""
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _valid(value: Any) -> str | None:
    """Without half characters, which a box may print but no file can hold."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _whole(value: Any) -> int | None:
    """Pandas turns whole numbers into floats if one is unknown."""
    number = number_or_nan(value)
    return int(value) if number.is_integer() and abs(number) < _LARGEST else None


def _number(value: Any) -> float | None:
    number = number_or_nan(value)
    return None if math.isnan(number) else number


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _list(value: Any) -> str | None:
    return _valid(json.dumps([str(item) for item in value], ensure_ascii=False)) if isinstance(value, (list, tuple)) else None


_MADE: dict[str, Callable[[Any], Any]] = {
    "text": _valid,
    "number": _number,
    "whole": _whole,
    "flag": _flag,
    "list": _list,
}
_TYPES = {"text": "string", "number": "float64", "whole": "Int64", "flag": "boolean", "list": "string"}
