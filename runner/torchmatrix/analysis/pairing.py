"""Two sides of launches -> the cells of both to compare: the same job on as many devices, on the same or on like stacks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from torchmatrix.analysis.cells import ALONE, Cell, Family
from torchmatrix.analysis.rows import (
    BATCH,
    EQUIVALENT,
    MOST_DIFFERENCES,
    Row,
    StackUsed,
    name_of,
    stack_match,
    stack_of,
    work_differences,
)

OTHER = "other"
"""The two sides are different stacks, as they were asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """Two cells that are asked to be compared. `stack_match`: equal, equivalent or other; `label`: what they have in common."""

    a: Cell
    b: Cell
    stack_match: str
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """`near`: cells that differ in their settings, so that only the difference can be told. `only_one`: the rest, by label."""

    pairs: tuple[Match, ...]
    near: tuple[Match, ...]
    only_one: tuple[tuple[str, Cell], ...]


def matched(
    a: Sequence[Row], b: Sequence[Row], families: Sequence[Mapping[str, Family]] = (MappingProxyType({}), MappingProxyType({}))
) -> Matched:
    """What of A is compared with what of B; both are rows of tables.launch_rows. `families`: of A and of B the cells by run.

    Stacks: those of one name; of the rest those of one torch release, where each side has one of it. If no stack has a
    counterpart, the sides themselves are the two stacks. Then for each such pair: cells of one workload (by its id, else by its
    settings and its batch) on the same devices, else on as many; at last, cells that differ in their batch only, the larger
    with the larger. Cells that are left over are near if they differ in a few settings, but not in the model or the mode.
    """
    found: list[Match] = []
    near: list[Match] = []
    left: list[tuple[str, Cell]] = []
    stacks = _stacks(a), _stacks(b)
    of_stacks = _stack_pairs(*stacks)
    for ours, theirs, match in of_stacks or _UNMATCHED:
        sides = (_cells(a, ours, families[0]), _cells(b, theirs, families[1]))
        order = {id(cell): place for place, cell in enumerate(sides[0])}
        alike = sorted(_alike(sides), key=lambda two: order[id(two[0])])
        found += [_match(*two, match, len(of_stacks)) for two in alike]
        near += [_match(*two, match, len(of_stacks)) for two in _near(sides)]
        left += [(_label(cell, name), cell) for side, name in zip(sides, (ours, theirs), strict=True) for cell in side]
    if of_stacks:
        left += _unmatched(a, set(stacks[0]) - {ours for ours, _, _ in of_stacks})
        left += _unmatched(b, set(stacks[1]) - {theirs for _, theirs, _ in of_stacks})
    return Matched(pairs=tuple(found), near=tuple(near), only_one=tuple(left))


def _unmatched(rows: Sequence[Row], stacks: set[str]) -> list[tuple[str, Cell]]:
    """The cells of stacks that have no counterpart, if others have."""
    return [(_label(cell, name), cell) for name in sorted(stacks) for cell in _cells(rows, name, {})]


def _stacks(rows: Iterable[Row]) -> dict[str, StackUsed]:
    """By name, in the order in which they first appear; as the first launch tells of them that knows the release."""
    found: dict[str, StackUsed] = {}
    for row in rows:
        known = found.get(row["stack"])
        if known is None or known.release is None or known.recipe is None:
            found[row["stack"]] = stack_of(row)
    return found


_Stacks = tuple[str | None, str | None, str]
_UNMATCHED: list[_Stacks] = [(None, None, OTHER)]


def _stack_pairs(a: dict[str, StackUsed], b: dict[str, StackUsed]) -> list[_Stacks]:
    """Names of stacks to compare, and how they match."""
    shared: list[_Stacks] = [(name, name, stack_match(a[name], b[name]) or OTHER) for name in a if name in b]
    ours, theirs = ([stack for name, stack in side.items() if not (name in a and name in b)] for side in (a, b))
    for own in ours:
        candidates = [other for other in theirs if stack_match(own, other)]
        rivals = [other for other in ours if stack_match(own, other)]
        if len(candidates) == len(rivals) == 1:
            shared.append((own.name, candidates[0].name, EQUIVALENT))
    return shared


def _cells(rows: Iterable[Row], stack: str | None, families: Mapping[str, Family]) -> list[Cell]:
    """By workload and devices, of one stack; None: of all. What several runs measured has no family."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if stack in (None, row["stack"]):
            groups.setdefault((row["workload"], row["devices"]), []).append(row)
    runs = [{row["run"] for row in own} for own in groups.values()]
    return [
        Cell(own, families.get(next(iter(ids)), ALONE) if len(ids) == 1 else ALONE)
        for own, ids in zip(groups.values(), runs, strict=True)
    ]


def _label(cell: Cell, stack: str | None) -> str:
    return "/".join(filter(None, (stack, cell["workload"], cell["devices"])))


Rule = Callable[[Cell, Cell], bool]
Sides = tuple[list[Cell], list[Cell]]
Two = tuple[Cell, Cell]


def _alike(sides: Sides) -> list[Two]:
    """The pairs by the rules, the closest matches first; they are taken out of `sides`."""
    found = [two for rule in _OF_ONE_BATCH for two in _taken(sides, rule)]
    for side in sides:
        side.sort(key=lambda cell: -(cell.work.get(BATCH) or 0))
    return found + [two for rule in _OF_OTHER_BATCHES for two in _taken(sides, rule)]


def _near(sides: Sides) -> list[Two]:
    """Of each cell that is left over, the one that differs in the fewest fields; both are taken out of `sides`."""
    found = []
    for own in list(sides[0]):
        differing = [(work_differences(own.work, cell.work), cell) for cell in sides[1] if _are_near(own, cell)]
        close = [(len(fields), cell) for fields, cell in differing if len(fields) <= MOST_DIFFERENCES]
        if close:
            found.append((own, min(close, key=lambda one: one[0])[1]))
            sides[0].remove(own)
            sides[1].remove(found[-1][1])
    return found


def _taken(sides: Sides, rule: Rule) -> list[Two]:
    """The pairs that obey a rule, each cell once; they are taken out of `sides`."""
    found = []
    for own in list(sides[0]):
        other = next((cell for cell in sides[1] if cell["count"] == own["count"] and rule(own, cell)), None)
        if other:
            found.append((own, other))
            sides[0].remove(own)
            sides[1].remove(other)
    return found


def _have_one_id(a: Cell, b: Cell) -> bool:
    return bool(a["workload"] == b["workload"])


def _have_one_job(a: Cell, b: Cell) -> bool:
    return a.job == b.job


def _have_one_batch(a: Cell, b: Cell) -> bool:
    return bool(a.work.get(BATCH) == b.work.get(BATCH))


def _are_on_the_same_devices(a: Cell, b: Cell) -> bool:
    return bool(a["devices"] == b["devices"])


def _are_near(a: Cell, b: Cell) -> bool:
    return a["count"] == b["count"] and all(a.work.get(name) == b.work.get(name) for name in ("model", "mode", "parallel"))


def _all_of(*rules: Rule) -> Rule:
    return lambda a, b: all(rule(a, b) for rule in rules)


_OF_ONE_BATCH: tuple[Rule, ...] = (
    _all_of(_have_one_id, _are_on_the_same_devices),
    _have_one_id,
    _all_of(_have_one_job, _have_one_batch, _are_on_the_same_devices),
    _all_of(_have_one_job, _have_one_batch),
)
_OF_OTHER_BATCHES: tuple[Rule, ...] = (_all_of(_have_one_job, _are_on_the_same_devices), _have_one_job)
"""From the closest match to the loosest."""


def _match(a: Cell, b: Cell, match: str, of_stacks: int) -> Match:
    """`of_stacks`: how many pairs of stacks there are; several: the label must say which."""
    stacks = (a["stack"], b["stack"])
    parts = [_both(*stacks)] if of_stacks > 1 or (of_stacks and stacks[0] == stacks[1]) else []
    parts += [_workload(a, b), _both(a["devices"], b["devices"])]
    return Match(a=a, b=b, stack_match=match, label="/".join(parts))


def _workload(a: Cell, b: Cell) -> str:
    if _have_one_id(a, b) or (_have_one_job(a, b) and _have_one_batch(a, b)):
        return str(a["workload"])
    if _have_one_job(a, b):
        return f"{name_of(a.work)} (batch {_both(str(a['batch']), str(b['batch']))})"
    return _both(a["workload"], b["workload"])


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} | {b}"
