"""Turn a stack into recipes: which Dockerfile or virtualenv, with which arguments, under which content hash."""

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
from torchmatrix.core.inputs import Malformed
from torchmatrix.engines import lockfile, packages
from torchmatrix.engines.choose import HOW_TO_HAVE_CONTAINERS
from torchmatrix.engines.engine import Engine, Image, LaunchSpec, Log, Recipe, line_text, requested_lock, time_limit
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.engines.packages import lacks_python, python_sources
from torchmatrix.facts import launch_file, wire
from torchmatrix.matrix import catalog
from torchmatrix.matrix.stacks import PYPI, Stack
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import Cell, GpuSet


def recipes(stack: Stack, lock: StackLock | None = None) -> list[Recipe]:
    """Return the recipes of `stack`, best first: one per package index that can serve it; with `lock`, just the locked one."""
    if stack.source == "wheels":
        every = [
            _recipe(
                stack, "wheels.Dockerfile", {}, lock=lock, base=stack.base, index=index.url,
                requires=(*index.requirements, *stack.packages),
            )
            for index in stack.indexes
        ]  # fmt: skip
        return [recipe for recipe in every if lock is None or recipe.index == lock.index] or every
    if stack.source == "image":
        usual = " ".join(catalog.load().vendor_packages)
        arguments = {"PACKAGES": " ".join(stack.packages), "USUAL_PACKAGES": usual}
        return [_recipe(stack, "vendor.Dockerfile", arguments, lock=lock, base=stack.image, requires=stack.packages)]
    return [_recipe(stack, None, {"PYTHON": stack.python or ""})]


def ready_recipe(stack: Stack, engine: Engine, lock: StackLock | None = None) -> Recipe | None:
    """Return the recipe of `stack` that `engine` has already built, if any."""
    return next((recipe for recipe in recipes(stack, lock) if engine.is_ready(recipe)), None)


def choose_recipe(stack: Stack, engine: Engine, unreachable: Iterable[str], lock: StackLock | None = None) -> Recipe:
    """Return the recipe that is already built, else the best one whose index answers, else the best."""
    every = recipes(stack, lock)
    excluded = set(unreachable)
    reachable = (recipe for recipe in every if recipe.index not in excluded)
    return ready_recipe(stack, engine, lock) or next(reachable, every[0])


def indexes_to_probe(stacks: Iterable[Stack]) -> set[str]:
    """Return the package indexes that building `stacks` may need, as the catalog names them."""
    return {index.url for stack in stacks for index in stack.indexes}


def unreachable_indexes(urls: Iterable[str], timeout_seconds: float = 3.0) -> set[str]:
    """Return the `urls` that don't answer at all; all are tried at once, so that the wait is at most one time-out.

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
    """Return the stacks of `cells`, each once, in order."""
    return list({cell.stack.name: cell.stack for cell in cells}.values())


@cache
def workload_hash() -> str:
    """Return the SHA-256 over the names and contents of images/workload: launches are comparable only if it is equal."""
    return hash_files(assets.WORKLOAD)


def hash_files(folder: Path) -> str:
    """Return the SHA-256 over the relative names and contents of the Python and JSON files in `folder`."""
    digest = hashlib.sha256()
    for path in assets.sources_in(folder):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _recipe(
    stack: Stack,
    dockerfile: str | None,
    arguments: dict[str, str],
    lock: StackLock | None = None,
    base: str | None = None,
    index: str | None = None,
    requires: tuple[str, ...] = (),
) -> Recipe:
    """Make a recipe. The parts of `environment` distinguish two images; a mirror or a proxy doesn't."""
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


# The self-test after a build: does the image contain what its recipe says, and does it train? Once per image, and stored.

TIMEOUT_SECONDS = 900.0


def ensure_selftest(engine: Engine, image: Image, recipe: Recipe, marks: Path, owner: str, log: Log) -> dict[str, Any]:
    """Return the result of the self-test of `image`, run now or when it was built. Raises BuildFailed.

    `marks`: the folder that stores it, one file per engine and environment; editing the workload needs no new test.
    """
    stored, of = _marked(engine, recipe, marks)
    if stored is not None and of == _identity(image):
        return stored
    result, mark = run_selftest(engine, image, recipe, owner, log), _mark_path(engine, recipe, marks)
    try:
        marks.mkdir(parents=True, exist_ok=True)
        write_whole(mark, json.dumps({**result, _OF: _identity(image)}).encode())
    except OSError as error:
        raise BuildFailed(f"can't write {mark}: {error.strerror}") from None
    return result


def known_selftest(engine: Engine, recipe: Recipe, marks: Path) -> dict[str, Any] | None:
    """Return the result of the self-test when the recipe was built here, or None."""
    return _marked(engine, recipe, marks)[0]


_OF = "image"
"""Of which image the result of a self-test is: a tag, or a virtualenv's path, may stand for another one later."""


def _identity(image: Image) -> list[str]:
    return [image.reference, str(image.facts.get("lock_sha256") or "")]


def _marked(engine: Engine, recipe: Recipe, marks: Path) -> tuple[dict[str, Any] | None, Any]:
    """Return the result of a self-test that was stored, None without one, and the image that was tested."""
    try:
        stored = dict(json.loads(_mark_path(engine, recipe, marks).read_text(encoding="utf-8")))
        of = stored.pop(_OF, None)
        wire.decoded(stored, wire.SelfTest)
    except (OSError, ValueError, TypeError, RecursionError, Malformed):
        return None, None
    return stored, of


def _mark_path(engine: Engine, recipe: Recipe, marks: Path) -> Path:
    return marks / f"{engine.name}-{recipe.stack}-{recipe.environment}.json"


def run_selftest(engine: Engine, image: Image, recipe: Recipe, owner: str, log: Log) -> dict[str, Any]:
    """Run the self-test in the image as a launch would run: no network, no privileges, only the CPU."""
    events, errors, line_mb = [], list[str](), settings.load().line_mb
    try:
        execution = engine.start(image, _selftest_spec(recipe, owner))
        log(f"$ {execution.command}")
        with execution, time_limit(execution, TIMEOUT_SECONDS):
            for stream, line in execution.lines():
                log(line_text(line))
                errors += [line_text(line)] if stream == "err" else []
                event = launch_file.event_in(stream, line, line_mb)
                events += [event] if event else []
            end = execution.wait()
    except launch_file.Refused as why:
        raise BuildFailed(f"self-test: {why}") from None
    except LaunchFailed as error:
        raise BuildFailed(f"the self-test could not be started: {error}") from None
    result = next((event for event in events if event["event"] == "self-test"), None)
    failure = next((event.get("message") for event in events if event["event"] == "failure"), None)
    if failure or result is None or end.returncode:
        message = packages.first_error(errors) if errors else "no message"
        raise BuildFailed(f"self-test: {failure or f'exit code {end.returncode}, {message}'}")
    return result


def _selftest_spec(recipe: Recipe, owner: str) -> LaunchSpec:
    flags = [part for requirement in recipe.requires if "==" in requirement for part in ("--require", requirement)]
    built_for = ("--built-for", recipe.accelerator) if recipe.source == "wheels" else ()
    arguments = (*flags, *built_for, *(["--compile"] if recipe.can_compile else []))
    gpus = GpuSet(indices=(0,), vendor="cpu")
    return LaunchSpec(program="selftest.py", arguments=arguments, gpus=gpus, cache="", owner=owner)


# The lock file beside the matrix (matrix.lock): which of its entries match the current matrix, and how they are made.

Drifts = dict[str, list[str]]
"""How the matrix differs from the lock, in words, by stack."""


def lock_path(matrix_path: Path) -> Path:
    """Return the lock's path, such as matrix.lock for matrix.toml."""
    return matrix_path.with_suffix(".lock")


def applicable_locks(
    held: Mapping[str, StackLock], stacks: Iterable[Stack], engine: Engine
) -> tuple[dict[str, StackLock], Drifts]:
    """Return the locks that match their stacks, by stack; and for the others, how they differ."""
    good: dict[str, StackLock] = {}
    drifts: Drifts = {}
    for stack in (stack for stack in stacks if stack.name in held and stack.source != "interpreter"):
        lock = held[stack.name]
        differences = [lockfile.drift(lock, requested_lock(recipe, engine.platform())) for recipe in recipes(stack, lock)]
        if engine.capabilities.runs_images and not (lock.digest or lock.image_id):
            differences = [["base image: not locked, since the local engine made the lock"]]
        if [] in differences:
            good[stack.name] = lock
        else:
            drifts[stack.name] = differences[0]
    return good, drifts


def unlocked_stacks(
    stacks: Iterable[Stack], locks: Mapping[str, StackLock], drifts: Mapping[str, list[str]]
) -> tuple[str, ...]:
    """List the stacks that don't match the lock, and why."""
    names = [stack.name for stack in stacks if stack.source != "interpreter"]
    different = [f"not as locked: {name}: {'; '.join(drifts[name])}" for name in names if name in drifts]
    return (*different, *(f"not in the lock: {name}" for name in names if name not in drifts and name not in locks))


def resolve_stacks(
    stacks: Sequence[Stack], engine: Engine, unreachable: Collection[str], marks: Path, log: Callable[[str], None]
) -> Iterator[tuple[Stack, StackLock | BuildFailed]]:
    """Resolve each stack now, a few at a time, in order. `marks`: the folder that stores the self-tests of images."""

    def resolve(stack: Stack) -> StackLock | BuildFailed:
        try:
            recipe = next((recipe for recipe in recipes(stack) if recipe.index not in unreachable), None)
            if recipe is None:
                return BuildFailed(f"no answer from {', '.join(index.url for index in stack.indexes)}")
            lock = engine.resolve(recipe, log, fresh=True)
            return _with_added(lock, known_selftest(engine, recipe, marks), log) if recipe.source == "image" else lock
        except BuildFailed as failure:
            return failure

    with ThreadPoolExecutor(max_workers=4) as pool:
        yield from zip(stacks, pool.map(resolve, stacks), strict=True)


def _with_added(lock: StackLock, tested: Mapping[str, Any] | None, log: Callable[[str], None]) -> StackLock:
    """Add to the lock the packages that building here added to a vendor's image: only the image knows what fits."""
    added = ((tested or {}).get("vendor") or {}).get("added")
    if not tested or not added:
        return lock
    python = ".".join(str(tested["python"]).split(".")[:2])
    return replace(lock, packages=packages.resolve(added, PYPI, python, log, lock.platform, alone=True))


def lock_changes(old: StackLock | None, new: StackLock) -> list[str]:
    """Describe how a lock differs from the previous one, one phrase per fact or package."""
    if old is None:
        return ["new"]
    before, now = ({packages.name_of(line): _version(line) for line in lock.packages} for lock in (old, new))
    moved = [f"{name} {before[name]} -> {now[name]}" for name in before if name in now and before[name] != now[name]]
    removed = [f"without {name}" for name in before if name not in now]
    added = [f"with {name} {now[name]}" for name in now if name not in before]
    old_base, new_base = (lock.digest or lock.image_id for lock in (old, new))
    base = [f"base {old_base[:19]} -> {new_base[:19]}"] if old_base != new_base else []
    rest = ["hashes"] if old.text != new.text and not (moved or removed or added or base) else []
    return lockfile.drift(old, new) + base + moved + removed + added + rest


def _version(line: str) -> str:
    return line.partition(" ")[0].partition("==")[2]


# Prerequisites: what is built, which indexes and Pythons are available, how much disk is free.


def prerequisites_unseen(engine: Engine) -> Prerequisites:
    """Return the assumption without looking: nothing is built, and everything is available."""
    return Prerequisites(containers=engine.capabilities.runs_images, how_to_have_containers=HOW_TO_HAVE_CONTAINERS)


def find_prerequisites(stacks: Iterable[Stack], engine: Engine, locks: Mapping[str, StackLock], is_here: bool) -> Prerequisites:
    """Find the prerequisites for the stacks that `engine` would build; networks and Pythons only for stacks that are not built.

    `locks`: those of stacks that are built from one. `is_here`: the engine runs on this machine, so that its disk can be seen.
    """
    to_build = [stack for stack in stacks if stack.source != "interpreter"]
    built = frozenset(stack.name for stack in to_build if ready_recipe(stack, engine, locks.get(stack.name)))
    missing = [stack for stack in to_build if stack.name not in built]
    why_not = engine.why_not_built() if missing else ""
    return replace(
        prerequisites_unseen(engine),
        built=built,
        stored=built | {s.name for s in missing if any(map(engine.is_stored, recipes(s, locks.get(s.name))))},
        unbuildable=why_not,
        unreachable=frozenset() if why_not else frozenset(unreachable_indexes(indexes_to_probe(missing))),
        pythonless=frozenset() if engine.capabilities.isolates else _pythonless(missing, locks),
        disk=engine.disk() if is_here else None,
    )


def _pythonless(stacks: Sequence[Stack], locks: Mapping[str, StackLock]) -> frozenset[str]:
    """Return the stacks whose Python is neither here nor available from where uv gets it; a lock leaves no choice of Python."""
    is_lacking = cache(lacks_python)
    wheels = {
        s: (locks[s.name].python,) if s.name in locks else (s.python, s.python_range) for s in stacks if s.source == "wheels"
    }
    lacking = [stack for stack, requests in wheels.items() if all(is_lacking(request) for request in requests if request)]
    sources = set(python_sources()) if lacking else set()
    remote = {url for url in sources if url.startswith("http")}
    if sources - unreachable_indexes(remote):
        return frozenset()
    return frozenset(stack.name for stack in lacking)
