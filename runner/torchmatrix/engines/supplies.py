"""Looks at what there is to run with: what is built, which indexes and Pythons can be had, how much disk is free."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Engine
from torchmatrix.engines.local import finds_python, python_sources
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.matrix.stacks import Stack
from torchmatrix.planning.fit import Disk, Supplies


def find(
    stacks: Iterable[Stack], engine: Engine, locks: Mapping[str, StackLock], cache_folder: Path, is_here: bool
) -> Supplies:
    """For the stacks that `engine` would build. Networks and Pythons are asked only for those that are not built yet.

    `locks`: of the stacks that are built from one. `cache_folder`: where the local engine builds. `is_here`: the engine runs
    on this machine, so that its disk can be seen.
    """
    to_build = [stack for stack in stacks if stack.source != "interpreter"]
    built = frozenset(stack.name for stack in to_build if recipes.ready_recipe(stack, engine, locks.get(stack.name)))
    missing = [stack for stack in to_build if stack.name not in built]
    return Supplies(
        containers=engine.name == "docker",
        built=built,
        stored=built | {s.name for s in missing if any(map(engine.is_stored, recipes.recipes(s, locks.get(s.name))))},
        unreachable=frozenset(recipes.unreachable_indexes(recipes.indexes_to_probe(missing))),
        pythonless=frozenset() if engine.name == "docker" else _pythonless(missing, locks),
        disk=_disk(engine, cache_folder) if is_here else None,
    )


def _disk(engine: Engine, cache_folder: Path) -> Disk | None:
    if engine.name == "docker":
        folder = Path(engine.facts().get("DockerRootDir") or "/nonexistent")  # not ours to see in Docker's own machine
    else:
        folder = next(path for path in (cache_folder, *cache_folder.parents) if path.exists())
    try:
        return Disk(place=str(folder), free_bytes=shutil.disk_usage(folder).free)
    except OSError:
        return None


def _pythonless(stacks: Sequence[Stack], locks: Mapping[str, StackLock]) -> frozenset[str]:
    """The stacks whose Python is neither here nor to be had from where uv gets it; a lock leaves no choice among Pythons."""
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
