"""One column of an exported table, and short ways to write it down."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """`source`: the key of the rows that it is made from (see rows.py)."""

    name: str
    kind: str
    meaning: str
    source: str


def _column(kind: str, name: str, meaning: str, source: str = "") -> Column:
    return Column(name=name, kind=kind, meaning=meaning, source=source or name)


def a_text(name: str, meaning: str, source: str = "") -> Column:
    return _column("text", name, meaning, source)


def a_number(name: str, meaning: str, source: str = "") -> Column:
    return _column("number", name, meaning, source)


def a_whole(name: str, meaning: str, source: str = "") -> Column:
    return _column("whole", name, meaning, source)


def a_flag(name: str, meaning: str, source: str = "") -> Column:
    return _column("flag", name, meaning, source)


def a_list(name: str, meaning: str, source: str = "") -> Column:
    return _column("list", name, meaning, source)


def an_interval(name: str, meaning: str, source: str, unit: str = "") -> Iterable[Column]:
    """A figure and both ends of its 95 % interval."""
    yield a_number(name + unit, meaning, source)
    for end in ("low", "high"):
        yield a_number(f"{name}_{end}{unit}", f"{end}er end of its 95 % interval; unknown with one launch", f"{source}_{end}")
