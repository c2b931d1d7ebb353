"""Match the cells of two sides: the same job on as many devices, on the same or on like stacks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from torchmatrix.analysis.cells import ALONE, Cell, Family
from torchmatrix.analysis.rows import (
    BATCH,
    EQUIVALENT,
    MOST_DIFFERENCES,
    LaunchRow,
    StackUsed,
    group_by,
    name_of,
    stack_match,
    stack_of,
    work_differences,
)

_NO_FAMILIES = (MappingProxyType[str, Family]({}),) * 2
OTHER = "other"
"""The two sides are different stacks, as requested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """Two cells to compare. `stack_match`: equal, equivalent or other; `label`: what they have in common."""

    a: Cell
    b: Cell
    stack_match: str
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """All matches. `near`: cells that differ in their settings, so that only the difference can be reported. `only_one`: the
    rest, by label.
    """

    pairs: tuple[Match, ...]
    near: tuple[Match, ...]
    only_one: tuple[tuple[str, Cell], ...]


def matched(
    a: Sequence[LaunchRow],
    b: Sequence[LaunchRow],
    families: Sequence[Mapping[str, Family]] = _NO_FAMILIES,
) -> Matched:
    """Match cells of A and of B; both are rows of launch_rows. `families`: of A and of B the cells by run.

    Stacks: those of one name; of the rest those of one torch release, where each side has one of it. If no stack has a
    counterpart, the sides themselves are the two stacks. Then for each such pair: cells of one workload (by its id, else by its
    settings and its batch) on the same devices, else on as many; at last, cells that differ in their batch only, the larger
    with the larger. Cells that are left over are near if they differ in a few settings, but not in the model or the mode.
    """
    pairs: list[Match] = []
    near: list[Match] = []
    only_one: list[tuple[str, Cell]] = []
    stacks = _stacks(a), _stacks(b)
    stack_pairs = _stack_pairs(*stacks)
    for ours, theirs, match in stack_pairs or _UNMATCHED:
        sides = (_cells(a, ours, families[0]), _cells(b, theirs, families[1]))
        order = {id(cell): place for place, cell in enumerate(sides[0])}
        alike = sorted(_alike(sides), key=lambda two: order[id(two[0])])
        pairs += [_match(*two, match, len(stack_pairs)) for two in alike]
        near += [_match(*two, match, len(stack_pairs)) for two in _near(sides)]
        only_one += [(_label(cell, name), cell) for side, name in zip(sides, (ours, theirs), strict=True) for cell in side]
    if stack_pairs:
        only_one += _unmatched(a, set(stacks[0]) - {ours for ours, _, _ in stack_pairs})
        only_one += _unmatched(b, set(stacks[1]) - {theirs for _, theirs, _ in stack_pairs})
    return Matched(pairs=tuple(pairs), near=tuple(near), only_one=tuple(only_one))


def _unmatched(rows: Sequence[LaunchRow], stacks: set[str]) -> list[tuple[str, Cell]]:
    """Return the cells of stacks that have no counterpart, if others have."""
    return [(_label(cell, name), cell) for name in sorted(stacks) for cell in _cells(rows, name, {})]


def _stacks(rows: Iterable[LaunchRow]) -> dict[str, StackUsed]:
    """Return stacks by name, in the order in which they first appear, by the first launch that knows release and recipe."""
    stacks: dict[str, StackUsed] = {}
    for row in rows:
        previous = stacks.get(row.stack)
        if previous is None or previous.release is None or previous.recipe is None:
            stacks[row.stack] = stack_of(row)
    return stacks


_Stacks = tuple[str | None, str | None, str]
_UNMATCHED: list[_Stacks] = [(None, None, OTHER)]


def _stack_pairs(a: dict[str, StackUsed], b: dict[str, StackUsed]) -> list[_Stacks]:
    """Return names of stacks to compare, and how they match."""
    shared: list[_Stacks] = [(name, name, stack_match(a[name], b[name]) or OTHER) for name in a if name in b]
    ours, theirs = ([used for name, used in side.items() if not (name in a and name in b)] for side in (a, b))
    for stack in ours:
        candidates = [other for other in theirs if stack_match(stack, other)]
        rivals = [other for other in ours if stack_match(stack, other)]
        if len(candidates) == len(rivals) == 1:
            shared.append((stack.name, candidates[0].name, EQUIVALENT))
    return shared


def _cells(rows: Iterable[LaunchRow], stack: str | None, families: Mapping[str, Family]) -> list[Cell]:
    """Return cells by workload and devices, of one stack; None: of all. Cells measured by several runs have no family."""
    chosen = (row for row in rows if stack in (None, row.stack))
    groups = group_by(chosen, lambda row: (row.workload, row.devices))
    runs = [{row.run for row in group} for group in groups.values()]
    return [
        Cell(group, families.get(next(iter(ids)), ALONE) if len(ids) == 1 else ALONE)
        for group, ids in zip(groups.values(), runs, strict=True)
    ]


def _label(cell: Cell, stack: str | None) -> str:
    return "/".join(filter(None, (stack, cell.row.workload, cell.row.devices)))


Rule = Callable[[Cell, Cell], bool]
Sides = tuple[list[Cell], list[Cell]]
Two = tuple[Cell, Cell]


def _alike(sides: Sides) -> list[Two]:
    """Return the pairs by the rules, the closest matches first, and take them out of `sides`."""
    pairs = [two for rule in _SAME_BATCH_RULES for two in _take_pairs(sides, rule)]
    for side in sides:
        side.sort(key=lambda cell: -(cell.work.get(BATCH) or 0))
    return pairs + [two for rule in _OTHER_BATCH_RULES for two in _take_pairs(sides, rule)]


def _near(sides: Sides) -> list[Two]:
    """Return for each cell that is left the one that differs in the fewest fields, and take both out of `sides`."""
    pairs = []
    for cell in list(sides[0]):
        differing = [
            (work_differences(cell.work, candidate.work), candidate) for candidate in sides[1] if _are_near(cell, candidate)
        ]
        close = [(len(fields), candidate) for fields, candidate in differing if len(fields) <= MOST_DIFFERENCES]
        if close:
            pairs.append((cell, min(close, key=lambda one: one[0])[1]))
            sides[0].remove(cell)
            sides[1].remove(pairs[-1][1])
    return pairs


def _take_pairs(sides: Sides, rule: Rule) -> list[Two]:
    """Return the pairs that obey a rule, each cell once, and take them out of `sides`."""
    pairs = []
    for cell in list(sides[0]):
        other = next(
            (candidate for candidate in sides[1] if candidate.row.count == cell.row.count and rule(cell, candidate)), None
        )
        if other:
            pairs.append((cell, other))
            sides[0].remove(cell)
            sides[1].remove(other)
    return pairs


def _have_one_id(a: Cell, b: Cell) -> bool:
    return bool(a.row.workload == b.row.workload)


def _have_one_job(a: Cell, b: Cell) -> bool:
    return a.job == b.job


def _have_one_batch(a: Cell, b: Cell) -> bool:
    return bool(a.work.get(BATCH) == b.work.get(BATCH))


def _are_on_the_same_devices(a: Cell, b: Cell) -> bool:
    return bool(a.row.devices == b.row.devices)


def _are_near(a: Cell, b: Cell) -> bool:
    return a.row.count == b.row.count and all(a.work.get(name) == b.work.get(name) for name in ("model", "mode", "parallel"))


def _all_of(*rules: Rule) -> Rule:
    return lambda a, b: all(rule(a, b) for rule in rules)


_SAME_BATCH_RULES: tuple[Rule, ...] = (
    _all_of(_have_one_id, _are_on_the_same_devices),
    _have_one_id,
    _all_of(_have_one_job, _have_one_batch, _are_on_the_same_devices),
    _all_of(_have_one_job, _have_one_batch),
)
_OTHER_BATCH_RULES: tuple[Rule, ...] = (_all_of(_have_one_job, _are_on_the_same_devices), _have_one_job)
"""Rules from the closest match to the loosest."""


def _match(a: Cell, b: Cell, match: str, stack_pairs: int) -> Match:
    """Make a match. `stack_pairs`: how many pairs of stacks there are; with several, the label must say which."""
    stacks = (a.row.stack, b.row.stack)
    parts = [_both(*stacks)] if stack_pairs > 1 or (stack_pairs and stacks[0] == stacks[1]) else []
    parts += [_workload(a, b), _both(a.row.devices, b.row.devices)]
    return Match(a=a, b=b, stack_match=match, label="/".join(parts))


def _workload(a: Cell, b: Cell) -> str:
    has_one_id = _have_one_id(a, b)
    if (has_one_id or _have_one_job(a, b)) and _have_one_batch(a, b):
        return str(a.row.workload)
    if has_one_id or _have_one_job(a, b):
        name = a.row.workload if has_one_id else name_of(a.work)
        return f"{name} (batch {_both(str(a.row.batch), str(b.row.batch))})"
    return _both(a.row.workload, b.row.workload)


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} | {b}"
