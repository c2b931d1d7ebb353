"""Prepare what all commands share: the matrix, the machine, the engines and the plan, once per command; prints nothing."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from torchmatrix.core.errors import BadInput
from torchmatrix.core.settings import cache_folder
from torchmatrix.engines import lockfile, recipes
from torchmatrix.engines.choose import Engines, choose
from torchmatrix.engines.engine import Engine, Leftover, Recipe
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.engines.recipes import find_prerequisites, prerequisites_unseen
from torchmatrix.facts.store import Results
from torchmatrix.machine.host import Host, detect
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.method import Request
from torchmatrix.matrix.stacks import Stack
from torchmatrix.planning import selection
from torchmatrix.planning.fit import Prerequisites, why_not_supplied
from torchmatrix.planning.plan import Cell, Plan, make_plan, withheld
from torchmatrix.planning.selection import TwoStacks, select
from torchmatrix.running import launch_order

AS_THE_MATRIX_SAYS = Request()


@dataclass(frozen=True, kw_only=True)
class Session:
    """Everything that one command works with. `key`: what was requested.

    `is_here`: the engine runs on this machine, so that its devices can be watched. `locks`: of the stacks that are built from
    matrix.lock; `notes`: which stacks are not, and why.
    """

    matrix: Matrix
    host: Host
    engines: Engines
    plan: Plan
    prerequisites: Prerequisites
    locks: Mapping[str, StackLock]
    notes: tuple[str, ...]
    results: Results
    key: str
    is_here: bool

    @cached_property
    def launches(self) -> list[tuple[Cell, int]]:
        """Return the launches known beforehand, as (cell, round), in order."""
        return list(launch_order.interleave(self.plan.cells, self.matrix.method.launches, self.matrix.seed))

    def engine_for(self, stack: Stack) -> Engine:
        """Return the engine that builds and runs `stack`."""
        return self.engines.for_stack(stack)

    def recipe_for(self, stack: Stack) -> Recipe:
        """Return the recipe that is built or can be built; the locked one if there is a lock."""
        return recipes.choose_recipe(stack, self.engine_for(stack), self.prerequisites.unreachable, self.locks.get(stack.name))


def prepare(
    path: Path,
    results: Path,
    engine: str,
    globs: Sequence[str],
    where: Sequence[str],
    request: Request = AS_THE_MATRIX_SAYS,
    explain: bool = False,
    locked: bool = False,
    ab: TwoStacks | None = None,
) -> Session:
    """Read the matrix, look at the machine, choose the engine, make the plan. Raises ToolError.

    `explain`: for every selected cell, add the cells that show where the scaling loss comes from. `locked`: refuse if
    matrix.lock doesn't match the current matrix. `ab`: only what these two stacks share.
    """
    matrix = selection.matrix_of_two(matrix_file.load(path), request, ab)
    place = recipes.lock_path(path)
    held = lockfile.read(place)
    s = assemble(matrix_file.explained(matrix) if explain else matrix, held, results, engine, globs, where)
    if ab:  # a run of its own: another selection of the same cells doesn't continue it
        s = replace(s, plan=selection.shared_cells(s.plan, ab), key=_digest([s.key, *sorted(ab)]))
    if locked:
        refuse_unlocked(place, s.notes)
    return s if held else without_locks(s)


def refuse_unlocked(place: Path, notes: Sequence[str]) -> None:
    """Raise BadInput if there are notes on how the lock at `place` differs from the matrix."""
    if notes:
        listing = "".join(f"\n  {line}" for line in notes)
        raise BadInput(f"{place} does not match the matrix:{listing}", hint="torchmatrix lock brings it up to date")


def _digest(key: object) -> str:
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def assemble(
    matrix: Matrix,
    held: Mapping[str, StackLock],
    results: Path,
    engine: str,
    globs: Sequence[str],
    where: Sequence[str],
    nodes: int = 1,
) -> Session:
    """Assemble the session of `matrix` on this machine; `held`: the existing locks, used where they match the matrix.

    `nodes`: on how many machines like this one it may run at once.
    """
    store = Results(results)
    engines = choose(engine, store.owner)
    here = detect()
    host = engines.builder.machine(here)
    locks, drifts = recipes.applicable_locks(held, matrix.stacks, engines.builder)
    plan, prerequisites, wanted = _plan(matrix, host, engines, locks, globs, where, is_here=host is here, nodes=nodes)
    ids = sorted(cell.id for cell in plan.cells)
    identity = [matrix.digest, ids, [gpu.uuid for gpu in host.gpus], asdict(matrix.method), recipes.workload_hash()]
    identity += [sorted(used.name for used in engines.every), *sorted(lock.sha256 for lock in locks.values())]
    return Session(
        matrix=matrix,
        host=host,
        engines=engines,
        plan=plan,
        prerequisites=prerequisites,
        locks=locks,
        notes=recipes.unlocked_stacks(wanted, locks, drifts),
        is_here=host is here,
        results=store,
        key=_digest(identity),
    )


def without_locks(s: Session) -> Session:
    """Return the same session, but with the stacks' own recipes."""
    return replace(s, locks={}, notes=())


def _plan(
    matrix: Matrix,
    host: Host,
    engines: Engines,
    locks: Mapping[str, StackLock],
    globs: Sequence[str],
    where: Sequence[str],
    *,
    is_here: bool,
    nodes: int,
) -> tuple[Plan, Prerequisites, list[Stack]]:
    """Return the selected plan, what there is to build with, and the stacks that fit this machine, for which it was looked up.

    A stack that can't be built is taken out of the finished plan, so that the fit to this machine is checked only once.
    """
    unseen = replace(prerequisites_unseen(engines.builder), nodes=nodes, elsewhere=not is_here)
    plan = make_plan(matrix, host, unseen)
    chosen = select(plan, globs, where)
    wanted = recipes.stacks_of(chosen.cells)
    prerequisites = replace(find_prerequisites(wanted, engines.builder, locks, is_here), nodes=nodes, elsewhere=not is_here)
    reasons = {stack.name: why for stack in wanted if (why := why_not_supplied(stack, prerequisites))}
    return select(withheld(plan, reasons), globs, where) if reasons else chosen, prerequisites, wanted


# What stays on this machine between commands: marks of self-tests, images and virtualenvs, leftovers of killed runs.


def remove_orphans(s: Session) -> None:
    for engine in s.engines.every:
        engine.remove_orphans(s.results.owner)


def marks_folder() -> Path:
    """Return the folder that remembers the results of the images' self-tests."""
    return cache_folder() / "self-tests"


def leftovers(matrix_path: Path, results: Path, engine: str, everything: bool) -> list[tuple[Engine, Leftover]]:
    """Return what the engines keep that the matrix's stacks don't need, or all of it; each with its engine."""
    stacks = () if everything else matrix_file.load(matrix_path).stacks
    locks = {} if everything else lockfile.read(recipes.lock_path(matrix_path))
    keep = {r.environment for stack in stacks for held in (None, locks.get(stack.name)) for r in recipes.recipes(stack, held)}
    engines = choose(engine, Results(results).owner)
    return [(engine, leftover) for engine in engines.every for leftover in engine.leftovers(keep)]


def lockable(matrix_path: Path, results: Path, engine: str, globs: Sequence[str]) -> tuple[list[Stack], Engine, frozenset[str]]:
    """Return the matrix's stacks that can be locked, the engine that resolves them, and the indexes that don't answer."""
    engines = choose(engine, Results(results).owner)
    stacks = [stack for stack in matrix_file.load(matrix_path).stacks if stack.source != "interpreter"]
    chosen = [stack for stack in stacks if not globs or any(fnmatchcase(stack.name, glob) for glob in globs)]
    unreachable = frozenset(recipes.unreachable_indexes(recipes.indexes_to_probe(chosen)))
    return chosen, engines.builder, unreachable
