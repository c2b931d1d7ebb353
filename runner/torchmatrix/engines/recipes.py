"""Stack -> Recipe: which Dockerfile or virtualenv, with which arguments, under which content hash."""

import hashlib
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from torchmatrix.core import assets, settings
from torchmatrix.core.errors import BuildFailed, LaunchFailed
from torchmatrix.core.files import write_whole
from torchmatrix.engines import lockfile, packages
from torchmatrix.engines.engine import Engine, Image, LaunchSpec, Log, Recipe, asked_lock, line_text, time_limit
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.facts import launch_file
from torchmatrix.matrix import catalog
from torchmatrix.matrix.stacks import PYPI, Index, Stack
from torchmatrix.planning.plan import Cell, GpuSet


def recipes(stack: Stack, lock: StackLock | None = None) -> list[Recipe]:
    """The recipes that make `stack`, best first: one per package index that can serve it; with `lock`, just the locked one."""
    if stack.source == "wheels":
        every = [_wheels_recipe(stack, index, lock) for index in stack.indexes]
        return [recipe for recipe in every if lock is None or recipe.index == lock.index] or every
    if stack.source == "image":
        usual = " ".join(catalog.load().vendor_packages)
        arguments = {"PACKAGES": " ".join(stack.packages), "USUAL_PACKAGES": usual}
        return [_recipe(stack, "vendor.Dockerfile", arguments, lock=lock, base=stack.image, requires=stack.packages)]
    return [_recipe(stack, None, {"PYTHON": stack.python or ""})]


def ready_recipe(stack: Stack, engine: Engine, lock: StackLock | None = None) -> Recipe | None:
    """The recipe of `stack` that `engine` has already built, if any."""
    return next((recipe for recipe in recipes(stack, lock) if engine.is_ready(recipe)), None)


def choose_recipe(stack: Stack, engine: Engine, unreachable: Iterable[str], lock: StackLock | None = None) -> Recipe:
    """The recipe that is already built, else the best one whose index answers, else the best."""
    every = recipes(stack, lock)
    lost = set(unreachable)
    reachable = (r for r in every if r.index not in lost)
    return ready_recipe(stack, engine, lock) or next(reachable, every[0])


def indexes_to_probe(stacks: Iterable[Stack]) -> set[str]:
    """The package indexes that building `stacks` may need, as the catalog names them."""
    return {index.url for stack in stacks for index in stack.indexes}


def unreachable_indexes(urls: Iterable[str], timeout_seconds: float = 3.0) -> set[str]:
    """Those of `urls` that don't answer at all; all are tried at once, so that the wait is at most one time-out.

    If the site has a mirror, the mirror is tried instead. None is tried if a wheelhouse replaces them, nor PyPI if the user has
    set a mirror of it for uv or pip.
    """
    site = settings.load()
    mirrored = any(name in os.environ for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"))
    wanted = [] if site.wheelhouse else [url for url in urls if not (mirrored and url == PYPI)]
    if not wanted:
        return set()
    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        answers = pool.map(lambda url: _answers(site.index(url), timeout_seconds), wanted)
        return {url for url, answered in zip(wanted, answers, strict=True) if not answered}


def _answers(url: str, timeout_seconds: float) -> bool:
    request = urllib.request.Request(url.rstrip("/") + "/", method="HEAD")
    bundle = settings.load().ca_bundle
    try:
        trusted = ssl.create_default_context(cafile=bundle) if bundle else None
        urllib.request.urlopen(request, timeout=timeout_seconds, context=trusted).close()
    except urllib.error.HTTPError as error:
        return error.code < 500
    except (OSError, ValueError):
        return False
    return True


def stacks_of(cells: Iterable[Cell]) -> list[Stack]:
    """The stacks of `cells`, each once, in order."""
    return list({cell.stack.name: cell.stack for cell in cells}.values())


@cache
def workload_hash() -> str:
    """SHA-256 over the names and contents of images/workload: launches are comparable only if it is equal."""
    return hash_files(assets.WORKLOAD)


def hash_files(folder: Path) -> str:
    """SHA-256 over the relative names and contents of the Python and JSON files in `folder`."""
    digest = hashlib.sha256()
    for path in assets.sources_in(folder):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _wheels_recipe(stack: Stack, index: Index, lock: StackLock | None) -> Recipe:
    requires = (*index.requirements, *stack.packages)
    return _recipe(stack, "wheels.Dockerfile", {}, lock=lock, base=stack.base, index=index.url, requires=requires)


def _recipe(
    stack: Stack,
    dockerfile: str | None,
    arguments: dict[str, str],
    lock: StackLock | None = None,
    base: str | None = None,
    index: str | None = None,
    requires: tuple[str, ...] = (),
) -> Recipe:
    """The contents of `environment` distinguish two images; a mirror or a proxy doesn't."""
    texts = [path.read_text(encoding="utf-8") for path in assets.build_files(dockerfile)] if dockerfile else []
    python = [stack.python or "", stack.python_range or ""]
    locked = lock.text if lock else None
    environment = _digest([dockerfile or "interpreter", texts, arguments, python, base, index, requires, locked])
    return Recipe(
        stack=stack.name,
        source=stack.source,
        accelerator=stack.accelerator,
        dockerfile=dockerfile,
        arguments=arguments,
        python=lock.python if lock and stack.python_range else stack.python,
        python_range=stack.python_range,
        base=base,
        index=index,
        requires=requires,
        lock=lock,
        environment=environment,
        content=_digest([environment, workload_hash()]),
        can_compile=stack.compile_python is not None,
    )


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


# After a build: does the image contain what its recipe says, and does it train? Once per image; the result is stored.

TIMEOUT_SECONDS = 900.0


def ensure_selftest(engine: Engine, image: Image, recipe: Recipe, marks: Path, owner: str, log: Log) -> dict[str, Any]:
    """What the self-test of `image` found, now or when it was built. Raises BuildFailed.

    `marks`: the folder that stores it, one file per engine and environment; editing the workload needs no new test.
    """
    before = known_selftest(engine, recipe, marks)
    if before is not None:
        return before
    found, mark = run_selftest(engine, image, recipe, owner, log), _mark(engine, recipe, marks)
    try:
        marks.mkdir(parents=True, exist_ok=True)
        write_whole(mark, json.dumps(found).encode())
    except OSError as error:
        raise BuildFailed(f"can't write {mark}: {error.strerror}") from None
    return found


def known_selftest(engine: Engine, recipe: Recipe, marks: Path) -> dict[str, Any] | None:
    """What the self-test found when the recipe was built here, or None."""
    try:
        return dict(json.loads(_mark(engine, recipe, marks).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _mark(engine: Engine, recipe: Recipe, marks: Path) -> Path:
    return marks / f"{engine.name}-{recipe.stack}-{recipe.environment}.json"


def run_selftest(engine: Engine, image: Image, recipe: Recipe, owner: str, log: Log) -> dict[str, Any]:
    """Run the self-test in the image as a launch would run: no network, no privileges, only the CPU."""
    events, told, line_mb = [], list[str](), settings.load().line_mb
    try:
        execution = engine.start(image, _spec(recipe, owner))
        log(f"$ {execution.command}")
        with execution, time_limit(execution, TIMEOUT_SECONDS):
            for stream, line in execution.lines():
                log(line_text(line))
                told += [line_text(line)] if stream == "err" else []
                event = launch_file.event_in(stream, line, line_mb)
                events += [event] if event else []
            end = execution.wait()
    except launch_file.Refused as why:
        raise BuildFailed(f"self-test: {why}") from None
    except LaunchFailed as failure:
        raise BuildFailed(f"the self-test could not be started: {failure}") from None
    found = next((event for event in events if event["event"] == "self-test"), None)
    said = next((event.get("message") for event in events if event["event"] == "failure"), None)
    if said or found is None or end.returncode:
        words = packages.first_error(told) if told else "no message"
        raise BuildFailed(f"self-test: {said or f'exit code {end.returncode}, {words}'}")
    return found


def _spec(recipe: Recipe, owner: str) -> LaunchSpec:
    exact = [word for word in recipe.requires if "==" in word]
    flags = [part for word in exact for part in ("--require", word)]
    gpus = GpuSet(indices=(0,), vendor="cpu")
    return LaunchSpec(
        program="selftest.py",
        arguments=(*flags, *(["--compile"] if recipe.can_compile else [])),
        processes=1,
        gpus=gpus,
        cache="",
        owner=owner,
    )


# matrix.lock beside the matrix: which of its entries match the current matrix, and how to make them.

Drifts = dict[str, list[str]]
"""By stack: how the matrix differs from the lock, in words."""


def lock_path(matrix_path: Path) -> Path:
    """The lock's path, such as matrix.lock for matrix.toml."""
    return matrix_path.with_suffix(".lock")


def applicable_locks(
    held: Mapping[str, StackLock], stacks: Iterable[Stack], engine: Engine
) -> tuple[dict[str, StackLock], Drifts]:
    """The locks that match their stacks, by stack; and for the others, how they differ."""
    good: dict[str, StackLock] = {}
    drifts: Drifts = {}
    for stack in (stack for stack in stacks if stack.name in held and stack.source != "interpreter"):
        found = held[stack.name]
        differences = [lockfile.drift(found, asked_lock(recipe, engine.platform())) for recipe in recipes(stack, found)]
        if engine.capabilities.runs_images and not (found.digest or found.image_id):
            differences = [["base image: not locked, since the local engine made the lock"]]
        if [] in differences:
            good[stack.name] = found
        else:
            drifts[stack.name] = differences[0]
    return good, drifts


def unlocked_stacks(
    stacks: Iterable[Stack], locks: Mapping[str, StackLock], drifts: Mapping[str, list[str]]
) -> tuple[str, ...]:
    """Those of `stacks` that don't match the lock, and why."""
    names = [stack.name for stack in stacks if stack.source != "interpreter"]
    said = [f"not as locked: {name}: {'; '.join(drifts[name])}" for name in names if name in drifts]
    return (*said, *(f"not in the lock: {name}" for name in names if name not in drifts and name not in locks))


def resolve_stacks(
    stacks: Sequence[Stack], engine: Engine, unreachable: Collection[str], marks: Path, log: Callable[[str], None]
) -> Iterator[tuple[Stack, StackLock | BuildFailed]]:
    """Resolve each stack now, a few at a time, in order. `marks`: the folder that stores the self-tests of images."""

    def one(stack: Stack) -> StackLock | BuildFailed:
        try:
            recipe = next((r for r in recipes(stack) if r.index not in unreachable), None)
            if recipe is None:
                return BuildFailed(f"no answer from {', '.join(index.url for index in stack.indexes)}")
            found = engine.resolve(recipe, log, fresh=True)
            return _with_added(found, known_selftest(engine, recipe, marks), log) if recipe.source == "image" else found
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


def lock_changes(old: StackLock | None, new: StackLock) -> list[str]:
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
