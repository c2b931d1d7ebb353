"""An A/B: of a matrix two stacks, of its plan the cells that both have. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.toml_keys import nearest, shown
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.method import Request
from torchmatrix.planning.fit import Why
from torchmatrix.planning.plan import Cell, Plan, Skip

Two: TypeAlias = tuple[str, str]
"""The names of A and B."""
_Job: TypeAlias = tuple[str, str]


def asked(matrix: Matrix, request: Request, ab: Two | None) -> Matrix:
    """The matrix as the command line wants it: under its request and, for an A/B, with these two stacks. Raises BadInput."""
    every = matrix_file.under(matrix, request)
    return _only(every, ab) if ab else every


def _only(matrix: Matrix, ab: Two) -> Matrix:
    """Raises BadInput for one stack twice and for one that the matrix doesn't have."""
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


def shared(plan: Plan, ab: Two) -> Plan:
    """The plan of which only cells run whose workload and devices both stacks have; the others are skipped.

    Raises BadInput if cells would run, but none for both.
    """
    jobs: dict[str, set[_Job]] = {name: {_job(cell) for cell in plan.cells if cell.stack.name == name} for name in ab}
    reasons = {(skip.cell.stack.name, _job(skip.cell)): skip.why for skip in plan.skips}
    both = jobs[ab[0]] & jobs[ab[1]]
    if plan.cells and not both:
        first = plan.cells[0]
        why = _why(first, ab, reasons)
        raise BadInput(f"{ab[0]} and {ab[1]} share no cell; the first: {first.id}: {why.reason}", hint=why.fix)

    def kept(entry: Cell | Skip) -> Cell | Skip:
        if isinstance(entry, Skip) or _job(entry) in both:
            return entry
        return Skip(cell=entry, why=_why(entry, ab, reasons))

    return Plan(entries=tuple(map(kept, plan.entries)))


def _job(cell: Cell) -> _Job:
    return cell.workload.id, cell.gpus.label


def _why(cell: Cell, ab: Two, reasons: Mapping[tuple[str, _Job], Why]) -> Why:
    """Why the other stack doesn't run what `cell` does."""
    (other,) = (name for name in ab if name != cell.stack.name)
    why = reasons.get((other, _job(cell)))
    if why:
        return Why(reason=f"{other} can't do the same: {why.reason}", fix=why.fix)
    return Why(
        reason=f"{other} doesn't do the same, which --ab asks for",
        fix=f"select workloads that both stacks have; torchmatrix plan '{other}/*' lists those of {other}",
    )
