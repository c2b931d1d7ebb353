"""Which cells a view shows: selectors that depend on those before them, so that no choice leads to an empty chart.

reports/templates/explore.js chooses by the same rules when a reader picks something; a test holds the two together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
"""A cell: for each dimension the index of its value, and its figures; None is unknown."""

ALL = "all"
OWN = "own"
FAVOURED = {"precision": ("amp", "amp-bf16")}
"""Values that a view starts with where a cell with them was measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dim:
    """What cells differ in. `values`: as they stand in an address, in order; `labels`: for readers.

    `own`: each group of cells may have a value of its own (a batch, a set of devices); the others are chosen for all.
    """

    name: str
    title: str
    values: tuple[str, ...]
    labels: tuple[str, ...]
    own: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """How an explorer chooses. `panels`: dimensions with a chart for each value; `whole`: those that begin with all values,
    if they are at most so many; `free`: those without a selector, because the chart shows all their values."""

    name: str
    panels: tuple[str, ...]
    whole: Mapping[str, int]
    free: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """`picked`: by dimension, a value, ALL or OWN. `offered`: the values that lead to cells. `rows`: the cells shown."""

    picked: dict[str, str]
    offered: dict[str, list[str]]
    rows: list[Row]


def choose(dims: Sequence[Dim], question: Question, rows: Sequence[Row], asked: Mapping[str, str]) -> Choice:
    """Dimension by dimension, in order: what was asked for, where it leads to cells, else the default."""
    found = Choice(picked={}, offered={}, rows=list(rows))
    for dim in dims if rows else ():
        if dim.name not in question.free:
            pick = _pick_own if dim.own else _pick
            found = pick(dims, dim, question, found, asked.get(dim.name))
    return found


def _pick(dims: Sequence[Dim], dim: Dim, question: Question, so_far: Choice, wanted: str | None) -> Choice:
    present = sorted({row[dim.name] for row in so_far.rows})
    offered = [dim.values[place] for place in present]
    if len(offered) > 1 and (wanted == ALL or (wanted not in offered and len(offered) <= question.whole.get(dim.name, 0))):
        return _with(so_far, dim, ALL, offered, so_far.rows)
    place = dim.values.index(wanted) if wanted in offered else default(dim, so_far.rows)
    kept = [row for row in so_far.rows if row[dim.name] == place]
    return _with(so_far, dim, dim.values[place] if offered else "", offered, kept)


def _pick_own(dims: Sequence[Dim], dim: Dim, question: Question, so_far: Choice, wanted: str | None) -> Choice:
    """The asked value for all, or each group's default. A group: cells that differ in stack and own dimensions only."""
    offered = [dim.values[place] for place in sorted({row[dim.name] for row in so_far.rows})]
    if len(offered) == 1 and wanted not in offered:
        return _with(so_far, dim, offered[0], [], so_far.rows)  # there is nothing to choose
    besides = [d.name for d in dims if d.own or d.name == "stack" or (d.name in question.free and dim.name != "set")]
    apart = [d.name for d in varying(dims, so_far.rows, besides)]
    groups: dict[tuple[int, ...], list[Row]] = {}
    for row in so_far.rows:
        groups.setdefault(tuple(row[name] for name in apart), []).append(row)
    defaults = {key: default(dim, group) for key, group in groups.items()}
    if wanted == ALL and len(offered) > 1:
        return _with(so_far, dim, ALL, offered, so_far.rows)
    if wanted is not None and wanted in offered:
        place = dim.values.index(wanted)
        return _with(so_far, dim, wanted, offered, [row for row in so_far.rows if row[dim.name] == place])
    kept = [row for row in so_far.rows if row[dim.name] == defaults[tuple(row[name] for name in apart)]]
    if not any(len({row[dim.name] for row in group}) > 1 for group in groups.values()):
        offered = []  # there is nothing to choose
    several = len(set(defaults.values())) > 1
    return _with(so_far, dim, OWN if several else dim.values[next(iter(defaults.values()), 0)], offered, kept)


def _with(so_far: Choice, dim: Dim, picked: str, offered: list[str], rows: list[Row]) -> Choice:
    return Choice(picked=so_far.picked | {dim.name: picked}, offered=so_far.offered | {dim.name: offered}, rows=rows)


def default(dim: Dim, rows: Sequence[Row]) -> int:
    """A rule that doesn't look at how fast: the most devices, AMP, otherwise the value that most stacks measured.

    Of values that equally many stacks measured: the first. Of devices and precisions: among those that were measured.
    """
    stacks: dict[int, set[tuple[int, ...]]] = {}
    for row in rows:
        own = stacks.setdefault(row[dim.name], set())
        if row["n"]:
            own.add((row["gpu"], row["machine"], row["stack"]))
    places = sorted(stacks)
    if len(places) == 1:
        return places[0]
    measured = [place for place in places if stacks[place]]
    if dim.name == "devices" and measured:
        return measured[-1]
    for value in FAVOURED.get(dim.name, ()):
        if value in dim.values and dim.values.index(value) in measured:
            return dim.values.index(value)
    return max(places, key=lambda place: len(stacks[place]), default=0)


def grouped(rows: Iterable[Row], names: Sequence[str]) -> list[list[Row]]:
    """The rows by their values in these dimensions, in the dimensions' order."""
    found: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return [found[key] for key in sorted(found)]


def varying(dims: Sequence[Dim], rows: Sequence[Row], besides: Iterable[str]) -> list[Dim]:
    """The dimensions in which these rows differ, other than `besides`."""
    left = set(besides)
    return [dim for dim in dims if dim.name not in left and len({row[dim.name] for row in rows}) > 1]


def telling(dims: Sequence[Dim], rows: Sequence[Row], besides: Iterable[str]) -> list[Dim]:
    """As few of the dimensions in which these rows differ as tell them apart as well as all do."""
    found: list[Dim] = []
    for dim in varying(dims, rows, besides):
        if len(grouped(rows, [one.name for one in (*found, dim)])) > len(grouped(rows, [one.name for one in found])):
            found.append(dim)
    return found


def named(dims: Iterable[Dim], name: str) -> Dim:
    """The dimension of this name."""
    return next(dim for dim in dims if dim.name == name)


def said(dims: Iterable[Dim], row: Row) -> list[str]:
    """The row's values in these dimensions, for a reader."""
    return [dim.labels[row[dim.name]] for dim in dims]
