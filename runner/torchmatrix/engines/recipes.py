"""Stack -> Recipe: which Dockerfile or virtualenv, with which arguments, under which content hash."""

import hashlib
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from torchmatrix.engines.engine import Engine, Recipe
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.ground import assets, settings
from torchmatrix.matrix import catalog
from torchmatrix.matrix.stacks import PYPI, Index, Stack
from torchmatrix.planning.plan import Cell


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
