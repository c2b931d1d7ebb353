"""Select cells of a plan: by globs and conditions, with suggestions where none matches, and of two stacks (--ab)."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher, get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import TypeAlias

from torchmatrix.core.errors import BadInput
from torchmatrix.core.toml_keys import nearest, shown
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.method import Request
from torchmatrix.matrix.workloads import ddp_id
from torchmatrix.planning.fit_gpu import Why
from torchmatrix.planning.plan import Cell, Plan, Skip

# The cells that match globs and conditions, with those that they depend on.


def select(plan: Plan, globs: Iterable[str], where: Iterable[str]) -> Plan:
    """Return the part of the plan that matches any glob on ids or stacks (none: all), and all key=value conditions.
    Raises BadInput.

    Cells that a selected cell depends on are kept: its one-device baselines, and the cells that explain it.
    """
    patterns = tuple(globs)
    tests = [_parse_condition(text) for text in where]

    def chosen(cell: Cell) -> bool:
        return (not patterns or any(_is_named(cell, p) for p in patterns)) and all(test(cell) for test in tests)

    if not patterns and not tests:
        return plan
    families = {(c.stack.name, ddp_id(c.workload), c.gpus.indices, c.gpus.nodes) for c in plan.cells if chosen(c)}
    families |= {(stack, workload, indices, 1) for stack, workload, indices, _ in families}
    families |= {(stack, workload, (index,), 1) for stack, workload, indices, _ in families for index in indices}

    def kept(entry: Cell | Skip) -> bool:
        if isinstance(entry, Skip):
            return chosen(entry.cell)
        return (entry.stack.name, ddp_id(entry.workload), entry.gpus.indices, entry.gpus.nodes) in families

    return Plan(entries=tuple(filter(kept, plan.entries)))


def _is_named(cell: Cell, word: str) -> bool:
    """Check whether a word names a cell: a glob on its id, or on its stack's name."""
    return fnmatchcase(cell.id, word) or fnmatchcase(cell.stack.name, word)


def _factor_value(name: str, cell: Cell) -> object:
    value = cell.workload.factors[name]
    return str(value).lower() if isinstance(value, bool) else value


_FIELDS: dict[str, Callable[[Cell], object]] = {
    "stack": lambda c: c.stack.name,
    "torch": lambda c: c.stack.torch,
    "variant": lambda c: c.stack.variant,
    "accelerator": lambda c: c.stack.accelerator,
    **{factor.name: partial(_factor_value, factor.name) for factor in FACTORS},
    "gpus": lambda c: c.gpus.label,
    "count": lambda c: c.gpus.count,
    "nodes": lambda c: c.gpus.nodes,
}


def values_of(cells: Iterable[Cell], key: str) -> set[str]:
    """Return the values that `cells` have for a key of --where."""
    return {str(_FIELDS[key](cell)) for cell in cells}


def _parse_condition(text: str) -> Callable[[Cell], bool]:
    key, equals, value = text.partition("=")
    if not equals or key not in _FIELDS:
        raise BadInput(
            f"--where {text!r} is not a condition", hint=f"write KEY=VALUE; {nearest(key, _FIELDS)}; VALUE may be a glob"
        )
    read = _FIELDS[key]
    return lambda cell: fnmatchcase(str(read(cell)), value)


# Suggestions for a selection that matches nothing: the ids, or values, that may have been meant.

MOST = 3
_WILD = re.compile(r"[*?/]+|\[[^\]]*\]")


def misses(cells: Sequence[Cell], globs: Iterable[str], where: Iterable[str]) -> dict[str, list[str]]:
    """Return each glob and each condition that matches none of `cells`, with the ids or conditions nearest to it."""
    ids = [cell.id for cell in cells]
    nearest_by_text = {glob: nearest_ids(glob, ids) for glob in globs if not any(_is_named(cell, glob) for cell in cells)}
    for condition in where:
        key, _, value = condition.partition("=")
        values = values_of(cells, key)
        if not any(fnmatchcase(cell_value, value) for cell_value in values):
            nearest_by_text[condition] = [f"{key}={word}" for word in nearest_words(value, values)]
    return {text: near for text, near in nearest_by_text.items() if near}


def nearest_ids(glob: str, ids: Iterable[str], most: int = MOST) -> list[str]:
    """Return the ids most like `glob`, the nearest first.

    A glob is compared piece by piece, since it is usually much shorter than an id: each piece between its wildcards counts
    by the piece of the id whose beginning it resembles most.
    """
    wanted = [piece for piece in (piece.strip("-") for piece in _WILD.split(glob.lower())) if piece]
    scored = sorted((-_likeness(wanted, id_), place, id_) for place, id_ in enumerate(ids))
    return [id_ for _, _, id_ in scored[:most]]


def nearest_words(word: str, words: Collection[str], most: int = MOST) -> list[str]:
    """Return the `words` that are most like `word`; the first few of them if none is."""
    close = get_close_matches(_WILD.sub("", word), sorted(words), n=most, cutoff=0.4)
    return close or sorted(words)[:most]


def _likeness(wanted: Sequence[str], cell_id: str) -> float:
    parts = _parts_of(cell_id)
    return sum(max(_ratio(piece, part[: len(piece) + more]) for part in parts for more in (0, 1, 2)) for piece in wanted)


def _parts_of(cell_id: str) -> list[str]:
    """Return the id, the parts between slashes, and each run of words of a part."""
    parts = {cell_id.lower(): None}
    for part in cell_id.lower().split("/"):
        words = part.split("-")
        runs = ("-".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1))
        parts |= dict.fromkeys(runs)
    return list(parts)


@lru_cache(maxsize=100_000)
def _ratio(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b).ratio()


# --ab: two stacks of a matrix, and the cells of its plan that both have.

TwoStacks: TypeAlias = tuple[str, str]
"""The names of A and B."""
_Job: TypeAlias = tuple[str, str]


def matrix_of_two(matrix: Matrix, request: Request, ab: TwoStacks | None) -> Matrix:
    """Return the matrix under the command line's request and, for an A/B, with these two stacks only. Raises BadInput."""
    matrix = matrix_file.under(matrix, request)
    return _with_stacks(matrix, ab) if ab else matrix


def _with_stacks(matrix: Matrix, ab: TwoStacks) -> Matrix:
    """Keep two stacks. Raises BadInput for one stack twice and for one that the matrix doesn't have."""
    a, b = ab
    if a == b:
        raise BadInput(
            f"--ab {shown(a)} {shown(b)} is one stack twice",
            hint="name two stacks; to see how much one differs from itself, give its table a second time with another `name`",
        )
    for name in ab:
        if name not in (names := [stack.name for stack in matrix.stacks]):
            raise BadInput(f"--ab: the matrix has no stack {shown(name)}", hint=nearest(name, names))
    return replace(matrix, stacks=tuple(stack for stack in matrix.stacks if stack.name in ab))


def shared_cells(plan: Plan, ab: TwoStacks) -> Plan:
    """Return the plan with every cell skipped whose workload and devices aren't in both stacks.

    Raises BadInput if cells would run, but none for both.
    """
    jobs: dict[str, set[_Job]] = {name: {_job(cell) for cell in plan.cells if cell.stack.name == name} for name in ab}
    reasons = {(skip.cell.stack.name, _job(skip.cell)): skip.why for skip in plan.skips}
    both = jobs[ab[0]] & jobs[ab[1]]
    if plan.cells and not both:
        first = plan.cells[0]
        why = _why_not_shared(first, ab, reasons)
        raise BadInput(f"{ab[0]} and {ab[1]} share no cell; the first: {first.id}: {why.reason}", hint=why.fix)

    def keep_or_skip(entry: Cell | Skip) -> Cell | Skip:
        if isinstance(entry, Skip) or _job(entry) in both:
            return entry
        return Skip(cell=entry, why=_why_not_shared(entry, ab, reasons))

    return Plan(entries=tuple(map(keep_or_skip, plan.entries)))


def _job(cell: Cell) -> _Job:
    return cell.workload.id, cell.gpus.label


def _why_not_shared(cell: Cell, ab: TwoStacks, reasons: Mapping[tuple[str, _Job], Why]) -> Why:
    """Return why the other stack doesn't run what `cell` does."""
    (other,) = (name for name in ab if name != cell.stack.name)
    why = reasons.get((other, _job(cell)))
    if why:
        return Why(reason=f"{other} can't do the same: {why.reason}", fix=why.fix)
    return Why(
        reason=f"{other} doesn't do the same, which --ab asks for",
        fix=f"select workloads that both stacks have; torchmatrix plan '{other}/*' lists those of {other}",
    )
