"""matrix.lock beside the matrix: which of its entries match the current matrix, and how to make them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchmatrix.engines import lockfile, packages, recipes, selftest
from torchmatrix.engines.engine import Engine, asked_lock
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.ground.errors import BuildFailed
from torchmatrix.matrix.stacks import PYPI, Stack

Drifts = dict[str, list[str]]
"""By stack: how the matrix differs from the lock, in words."""


def path_beside(matrix_path: Path) -> Path:
    """The lock's path, such as matrix.lock for matrix.toml."""
    return matrix_path.with_suffix(".lock")


def applicable(held: Mapping[str, StackLock], stacks: Iterable[Stack], engine: Engine) -> tuple[dict[str, StackLock], Drifts]:
    """The locks that match their stacks, by stack; and for the others, how they differ."""
    good: dict[str, StackLock] = {}
    drifts: Drifts = {}
    for stack in (stack for stack in stacks if stack.name in held and stack.source != "interpreter"):
        found = held[stack.name]
        differences = [lockfile.drift(found, asked_lock(recipe, engine.platform())) for recipe in recipes.recipes(stack, found)]
        if engine.capabilities.runs_images and not (found.digest or found.image_id):
            differences = [["base image: not locked, since the local engine made the lock"]]
        if [] in differences:
            good[stack.name] = found
        else:
            drifts[stack.name] = differences[0]
    return good, drifts


def unlocked(stacks: Iterable[Stack], locks: Mapping[str, StackLock], drifts: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Those of `stacks` that don't match the lock, and why."""
    names = [stack.name for stack in stacks if stack.source != "interpreter"]
    said = [f"not as locked: {name}: {'; '.join(drifts[name])}" for name in names if name in drifts]
    return (*said, *(f"not in the lock: {name}" for name in names if name not in drifts and name not in locks))


def resolve(
    stacks: Sequence[Stack], engine: Engine, unreachable: Collection[str], marks: Path, log: Callable[[str], None]
) -> Iterator[tuple[Stack, StackLock | BuildFailed]]:
    """Resolve each stack now, a few at a time, in order. `marks`: the folder that stores the self-tests of images."""

    def one(stack: Stack) -> StackLock | BuildFailed:
        try:
            recipe = next((r for r in recipes.recipes(stack) if r.index not in unreachable), None)
            if recipe is None:
                return BuildFailed(f"no answer from {', '.join(index.url for index in stack.indexes)}")
            found = engine.resolve(recipe, log, fresh=True)
            return _with_added(found, selftest.known(engine, recipe, marks), log) if recipe.source == "image" else found
        except BuildFailed as failure:
            return failure

    with ThreadPoolExecutor(max_workers=4) as pool:
        yield from zip(stacks, pool.map(one, stacks), strict=True)


def _with_added(found: StackLock, tested: Mapping[str, Any] | None, log: Callable[[str], None]) -> StackLock:
    """The lock with the packages that were added to a vendor's image when it was built here: only the image knows what fits."""
    added = (tested or {}).get("vendor", {}).get("added", [])
    if not tested or not added:
        return found
    python = ".".join(str(tested["python"]).split(".")[:2])
    return replace(found, packages=packages.resolve(added, PYPI, python, log, found.platform, alone=True))


def changes(old: StackLock | None, new: StackLock) -> list[str]:
    """How a lock differs from the previous one, one phrase per fact or package."""
    if old is None:
        return ["new"]
    before, now = ({packages.name_of(line): _version(line) for line in one.packages} for one in (old, new))
    moved = [f"{name} {before[name]} -> {now[name]}" for name in before if name in now and before[name] != now[name]]
    gone = [f"without {name}" for name in before if name not in now]
    came = [f"with {name} {now[name]}" for name in now if name not in before]
    was, now_is = (one.digest or one.image_id for one in (old, new))
    base = [f"base {was[:19]} -> {now_is[:19]}"] if was != now_is else []
    rest = ["hashes"] if old.text != new.text and not (moved or gone or came or base) else []
    return lockfile.drift(old, new) + base + moved + gone + came + rest


def _version(line: str) -> str:
    return line.partition(" ")[0].partition("==")[2]
