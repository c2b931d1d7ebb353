"""Finds out what there is to run with: what is built, which indexes and Pythons are available, how much disk is free."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from torchmatrix.engines import recipes
from torchmatrix.engines.choose import HOW_TO_HAVE_CONTAINERS
from torchmatrix.engines.engine import Engine
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.engines.pythons import finds_python, python_sources
from torchmatrix.matrix.stacks import Stack
from torchmatrix.planning.fit import Supplies


def unseen(engine: Engine) -> Supplies:
    """The assumption without looking: nothing is built, and everything is available."""
    return Supplies(containers=engine.capabilities.runs_images, how_to_have_containers=HOW_TO_HAVE_CONTAINERS)


def find(stacks: Iterable[Stack], engine: Engine, locks: Mapping[str, StackLock], is_here: bool) -> Supplies:
    """The supplies for the stacks that `engine` would build. Networks and Pythons are checked only for those not built yet.

    `locks`: those of stacks that are built from one. `is_here`: the engine runs on this machine, so that its disk can be seen.
    """
    to_build = [stack for stack in stacks if stack.source != "interpreter"]
    built = frozenset(stack.name for stack in to_build if recipes.ready_recipe(stack, engine, locks.get(stack.name)))
    missing = [stack for stack in to_build if stack.name not in built]
    why_not = engine.why_not_built() if missing else ""
    return replace(
        unseen(engine),
        built=built,
        stored=built | {s.name for s in missing if any(map(engine.is_stored, recipes.recipes(s, locks.get(s.name))))},
        unbuildable=why_not,
        unreachable=frozenset() if why_not else frozenset(recipes.unreachable_indexes(recipes.indexes_to_probe(missing))),
        pythonless=frozenset() if engine.capabilities.isolates else _pythonless(missing, locks),
        disk=engine.disk() if is_here else None,
    )


def _pythonless(stacks: Sequence[Stack], locks: Mapping[str, StackLock]) -> frozenset[str]:
    """The stacks whose Python is neither here nor available from where uv gets it; a lock leaves no choice of Python."""
    found = cache(finds_python)
    wheels = {
        s: (locks[s.name].python,) if s.name in locks else (s.python, s.python_range) for s in stacks if s.source == "wheels"
    }
    lacking = [stack for stack, requests in wheels.items() if not any(found(request) for request in requests if request)]
    sources = set(python_sources()) if lacking else set()
    remote = {url for url in sources if url.startswith("http")}
    if sources - recipes.unreachable_indexes(remote):
        return frozenset()
    return frozenset(stack.name for stack in lacking)
