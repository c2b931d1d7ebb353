"""What is kept on this machine between commands: marks of self-tests, images and virtualenvs, what killed runs left."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from torchmatrix.engines import lockfile, recipes
from torchmatrix.engines.choose import choose
from torchmatrix.engines.engine import Engine, Leftover
from torchmatrix.facts.store import Results
from torchmatrix.ground.settings import cache_folder
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.stacks import Stack
from torchmatrix.running.session import Session


def remove_orphans(s: Session) -> None:
    for engine in s.engines.every:
        engine.remove_orphans(s.results.owner)


def marks_folder() -> Path:
    """Where it is remembered what the self-tests of images found."""
    return cache_folder() / "self-tests"


def leftovers(matrix_path: Path, results: Path, engine: str, everything: bool) -> list[tuple[Engine, Leftover]]:
    """What the engines keep that the matrix's stacks don't need, or all of it; each with its engine."""
    stacks = () if everything else matrix_file.load(matrix_path).stacks
    locks = {} if everything else lockfile.read(recipes.lock_path(matrix_path))
    keep = {r.environment for stack in stacks for held in (None, locks.get(stack.name)) for r in recipes.recipes(stack, held)}
    engines = choose(engine, Results(results).owner)
    return [(engine, leftover) for engine in engines.every for leftover in engine.leftovers(keep)]


def lockable(matrix_path: Path, results: Path, engine: str, globs: Sequence[str]) -> tuple[list[Stack], Engine, frozenset[str]]:
    """The stacks of the matrix that can be locked, the engine that resolves them, and the indexes that don't answer."""
    engines = choose(engine, Results(results).owner)
    held = [stack for stack in matrix_file.load(matrix_path).stacks if stack.source != "interpreter"]
    chosen = [stack for stack in held if not globs or any(fnmatchcase(stack.name, glob) for glob in globs)]
    unreachable = frozenset(recipes.unreachable_indexes(recipes.indexes_to_probe(chosen)))
    return chosen, engines.builder, unreachable
