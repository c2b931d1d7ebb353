"""One column of a table, and short ways to write it down."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torchmatrix.facts.launch import OK, ONE_MODEL, UNLIKE

Row: TypeAlias = dict[str, Any]
"""Of a launch or a cell, by the sources of columns: unknown numbers are NaN, other unknowns None, sequences tuples."""
CELLS, LAUNCHES = "cells", "launches"


def is_ok(row: Row) -> bool:
    """Has this launch a figure?"""
    return bool(row["outcome"] == OK)


def has_failed(row: Row) -> bool:
    """Has it failed? What is left out of its cell's figure has not."""
    return row["outcome"] not in (OK, UNLIKE)


def makes_figures(row: Row) -> bool:
    """Is this launch or cell of a model that its devices train or run together? All others explain the loss of such a one."""
    return row["parallel"] in ONE_MODEL


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """`name`: in files, with its unit. `kind`: text; number; whole; flag (true or false); list (of texts). `source`: its key in
    rows.

    Of a column of cells or launches (launch_row.py): `of`: its value for a launch as read; `cell`: for a cell, None: as of
    the launch that stands for it. `tables`: where it is exported; `each`: its meaning for a single launch, if that differs.
    """

    name: str
    kind: str
    meaning: str
    source: str
    of: Callable[[Any], Any] | None = None
    cell: Callable[[Any], Any] | None = None
    tables: tuple[str, ...] = (CELLS, LAUNCHES)
    each: str = ""


def _column(kind: str, name: str, meaning: str, source: str = "", **more: Any) -> Column:
    return Column(name=name, kind=kind, meaning=meaning, source=source or name, **more)


def a_text(name: str, meaning: str, source: str = "", **more: Any) -> Column:
    return _column("text", name, meaning, source, **more)


def a_number(name: str, meaning: str, source: str = "", **more: Any) -> Column:
    return _column("number", name, meaning, source, **more)


def a_whole(name: str, meaning: str, source: str = "", **more: Any) -> Column:
    return _column("whole", name, meaning, source, **more)


def a_flag(name: str, meaning: str, source: str = "", **more: Any) -> Column:
    return _column("flag", name, meaning, source, **more)


def a_list(name: str, meaning: str, source: str = "", **more: Any) -> Column:
    return _column("list", name, meaning, source, **more)


def an_interval(name: str, meaning: str, source: str = "", unit: str = "", **more: Any) -> Iterable[Column]:
    """A figure and both ends of its 95 % interval."""
    yield a_number(name + unit, meaning, source, **more)
    for end in ("low", "high"):
        said = f"{end}er end of its 95 % interval; unknown with one launch"
        yield a_number(f"{name}_{end}{unit}", said, f"{source}_{end}", **more)
