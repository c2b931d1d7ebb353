"""Two sets of launches -> the pairs of cells to compare: the same job on as many devices, on the same or on like stacks."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis import comparable
from torchmatrix.analysis.comparable import StackUsed, Work
from torchmatrix.facts.launch import Launch

OTHER = "other"
"""The two sides are different stacks, as they were asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SideCell:
    """The launches of one side that have one workload and one set of devices, and one stack where the sides are so matched.

    `job`: the workload's settings (comparable.settings_of).
    """

    label: str
    launches: tuple[Launch, ...]
    work: Work
    job: tuple[Any, ...]

    @property
    def first(self) -> Launch:
        return self.launches[0]

    @property
    def told(self) -> Launch:
        """The launch that tells most of the cell: an ok one."""
        return _told(self.launches)

    @property
    def count(self) -> int:
        """Of devices."""
        return self.first.devices.count


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two cells that are asked to be compared. `stack_match`: equal, equivalent or other; `label`: what they have in common."""

    a: SideCell
    b: SideCell
    stack_match: str
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Paired:
    """`near`: pairs that differ in their settings, so that only the difference can be told. `only_one`: the rest."""

    pairs: tuple[Pair, ...]
    near: tuple[Pair, ...]
    only_one: tuple[SideCell, ...]


def paired(a: Sequence[Launch], b: Sequence[Launch]) -> Paired:
    """What of A is compared with what of B.

    Stacks: those of one name; of the rest those of one torch release, where each side has one of it. If no stack has a
    counterpart, the sides themselves are the two stacks. Then for each such pair: cells of one workload (by its id, else by its
    settings and its batch) on the same devices, else on as many; at last, cells that differ in their batch only, the larger
    with the larger. Cells that are left over are near if they differ in a few settings, but not in the model or the mode.
    """
    found: list[Pair] = []
    near: list[Pair] = []
    left: list[SideCell] = []
    matched = _stack_pairs(_stacks(a), _stacks(b))
    for ours, theirs, match in matched or _UNMATCHED:
        sides = (_cells(a, ours, bool(matched)), _cells(b, theirs, bool(matched)))
        order = {id(cell): place for place, cell in enumerate(sides[0])}
        alike = sorted(_alike(sides), key=lambda two: order[id(two[0])])
        found += [_pair(*two, match, len(matched) > 1) for two in alike]
        near += [_pair(*two, match, len(matched) > 1) for two in _near(sides)]
        left += [*sides[0], *sides[1]]
    left += [cell for side, names in _unmatched(a, b, matched) for name in names for cell in _cells(side, name, True)]
    return Paired(pairs=tuple(found), near=tuple(near), only_one=tuple(left))


def _stacks(launches: Iterable[Launch]) -> dict[str, StackUsed]:
    """By name, in the order in which they first appear; as the first launch tells of them that knows the release."""
    found: dict[str, StackUsed] = {}
    for launch in launches:
        known = found.get(launch.stack.name)
        if known is None or known.release is None or known.recipe is None:
            found[launch.stack.name] = stack_of(launch)
    return found


def stack_of(launch: Launch) -> StackUsed:
    recipe = launch.image.facts.get("environment") if launch.image else None
    release = comparable.release_of(launch.stack.torch, launch.box.torch if launch.box else None)
    return StackUsed(name=launch.stack.name, release=release, recipe=recipe if isinstance(recipe, str) else None)


_Stacks = tuple[str | None, str | None, str]
_UNMATCHED: list[_Stacks] = [(None, None, OTHER)]


def _stack_pairs(a: dict[str, StackUsed], b: dict[str, StackUsed]) -> list[_Stacks]:
    """Names of stacks to compare, and how they match."""
    shared: list[_Stacks] = [(name, name, comparable.stack_match(a[name], b[name]) or OTHER) for name in a if name in b]
    ours, theirs = ([stack for name, stack in side.items() if not (name in a and name in b)] for side in (a, b))
    for own in ours:
        candidates = [other for other in theirs if comparable.stack_match(own, other)]
        rivals = [other for other in ours if comparable.stack_match(own, other)]
        if len(candidates) == len(rivals) == 1:
            shared.append((own.name, candidates[0].name, comparable.EQUIVALENT))
    return shared


def _unmatched(
    a: Sequence[Launch], b: Sequence[Launch], matched: Sequence[_Stacks]
) -> list[tuple[Sequence[Launch], list[str]]]:
    """The stacks of each side that have no counterpart, if others have."""
    if not matched:
        return []
    taken = ({ours for ours, _, _ in matched}, {theirs for _, theirs, _ in matched})
    return [(side, [name for name in _stacks(side) if name not in names]) for side, names in zip((a, b), taken, strict=True)]


def _cells(launches: Iterable[Launch], stack: str | None, with_stack: bool) -> list[SideCell]:
    """By workload and devices, of one stack; None: of all."""
    groups: dict[str, list[Launch]] = {}
    for launch in launches:
        if stack in (None, launch.stack.name):
            parts = [launch.stack.name] if with_stack else []
            groups.setdefault("/".join([*parts, launch.workload.id, launch.devices.label]), []).append(launch)
    return [_cell(label, own) for label, own in groups.items()]


def _cell(label: str, launches: Sequence[Launch]) -> SideCell:
    work = comparable.work_of(_told(launches))
    return SideCell(label=label, launches=tuple(launches), work=work, job=comparable.settings_of(work))


def _told(launches: Sequence[Launch]) -> Launch:
    """The launch that tells most of its cell: an ok one."""
    return next((launch for launch in launches if launch.outcome == "ok"), launches[0])


Rule = Callable[[SideCell, SideCell], bool]
Sides = tuple[list[SideCell], list[SideCell]]
Two = tuple[SideCell, SideCell]


def _alike(sides: Sides) -> list[Two]:
    """The pairs by the rules, the closest matches first; they are taken out of `sides`."""
    found = [two for rule in _OF_ONE_BATCH for two in _taken(sides, rule)]
    for side in sides:
        side.sort(key=lambda cell: -(cell.work.get(comparable.BATCH) or 0))
    return found + [two for rule in _OF_OTHER_BATCHES for two in _taken(sides, rule)]


def _near(sides: Sides) -> list[Two]:
    """Of each cell that is left over, the one that differs in the fewest fields; both are taken out of `sides`."""
    found = []
    for own in list(sides[0]):
        differing = [(comparable.differences(own.work, cell.work), cell) for cell in sides[1] if _are_near(own, cell)]
        close = [(len(fields), cell) for fields, cell in differing if len(fields) <= comparable.MOST_DIFFERENCES]
        if close:
            found.append((own, min(close, key=lambda one: one[0])[1]))
            sides[0].remove(own)
            sides[1].remove(found[-1][1])
    return found


def _taken(sides: Sides, rule: Rule) -> list[Two]:
    """The pairs that obey a rule, each cell once; they are taken out of `sides`."""
    found = []
    for own in list(sides[0]):
        other = next((cell for cell in sides[1] if cell.count == own.count and rule(own, cell)), None)
        if other:
            found.append((own, other))
            sides[0].remove(own)
            sides[1].remove(other)
    return found


def _have_one_id(a: SideCell, b: SideCell) -> bool:
    return a.first.workload.id == b.first.workload.id


def _have_one_job(a: SideCell, b: SideCell) -> bool:
    return a.job == b.job


def _have_one_batch(a: SideCell, b: SideCell) -> bool:
    return a.work.get(comparable.BATCH) == b.work.get(comparable.BATCH)


def _are_on_the_same_devices(a: SideCell, b: SideCell) -> bool:
    return a.first.devices.label == b.first.devices.label


def _are_near(a: SideCell, b: SideCell) -> bool:
    return a.count == b.count and all(a.work.get(name) == b.work.get(name) for name in ("model", "mode", "parallel"))


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


def _pair(a: SideCell, b: SideCell, match: str, several: bool) -> Pair:
    """`several`: whether the label must say which stacks."""
    stacks = (a.first.stack.name, b.first.stack.name)
    parts = [_both(*stacks)] if several or (stacks[0] == stacks[1] and a.label.startswith(f"{stacks[0]}/")) else []
    parts += [_workload(a, b), _both(a.first.devices.label, b.first.devices.label)]
    return Pair(a=a, b=b, stack_match=match, label="/".join(parts))


def _workload(a: SideCell, b: SideCell) -> str:
    if _have_one_id(a, b) or (_have_one_job(a, b) and _have_one_batch(a, b)):
        return a.first.workload.id
    if _have_one_job(a, b):
        return f"{comparable.name_of(a.work)} (batch {_both(str(a.first.batch), str(b.first.batch))})"
    return _both(a.first.workload.id, b.first.workload.id)


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} | {b}"
