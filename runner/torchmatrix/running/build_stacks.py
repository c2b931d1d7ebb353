"""Stacks -> images or virtualenvs, a few at a time. Yields news."""

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial

from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Image, with_hint
from torchmatrix.ground import settings
from torchmatrix.ground.errors import BuildFailed
from torchmatrix.ground.files import plain_open
from torchmatrix.matrix.stacks import Stack
from torchmatrix.running.launch_cell import Job
from torchmatrix.running.news import BuildFinished, BuildLine, ImagesSized, News

_BuildNews = queue.Queue[tuple[Stack, str | None, Image | BuildFailed | None, float]]


def _tell_line(news: _BuildNews, stack: Stack, line: str) -> None:
    news.put((stack, line, None, 0.0))


def build_all(job: Job, stacks: list[Stack]) -> Generator[News, None, dict[str, Image | BuildFailed]]:
    """Build every stack, a few at a time; returns (as the generator's value) an Image or a BuildFailed by stack name."""
    news: _BuildNews = queue.Queue()
    waiting = list(reversed(families(stacks)))
    built: dict[str, Image | BuildFailed] = {}
    stopped = threading.Event()

    def work() -> None:
        while waiting:
            try:
                family = waiting.pop()
            except IndexError:
                return
            for stack in family:
                if stopped.is_set():
                    return
                begin = time.monotonic()
                result = _build(job, stack, partial(_tell_line, news, stack))
                news.put((stack, None, result, time.monotonic() - begin))

    for _ in range(settings.load().parallel_builds):
        threading.Thread(target=work, daemon=True).start()
    try:
        while len(built) < len(stacks):
            stack, line, result, seconds = news.get()
            if line is not None:
                yield BuildLine(stack=stack.name, line=line)
            elif result is not None:
                built[stack.name] = result
                error = str(result) if isinstance(result, BuildFailed) else None
                log = job.folder.build_log(stack.name)
                yield BuildFinished(stack=stack.name, seconds=seconds, error=error, log=log)
    finally:
        stopped.set()  # an interruption must not let the threads begin another build
    yield from _sizes(job, stacks, built)
    return built


def families(stacks: list[Stack]) -> list[list[Stack]]:
    """Stacks of the same base and CUDA are built one after the other: the second one then finds the first one's layers."""
    found: dict[tuple[str | None, str | None], list[Stack]] = {}
    for stack in stacks:
        shares = stack.source == "wheels" and stack.variant != "cpu"
        found.setdefault((stack.base, stack.variant) if shares else (stack.name, None), []).append(stack)
    return list(found.values())


def _sizes(job: Job, stacks: list[Stack], built: dict[str, Image | BuildFailed]) -> Iterator[News]:
    """What the images take on disk, in the order of the stacks, where their engine can tell."""
    by_engine: dict[str, list[tuple[Stack, Image]]] = {}
    for stack in stacks:
        image = built[stack.name]
        if isinstance(image, Image):
            by_engine.setdefault(job.engine_for(stack).name, []).append((stack, image))
    for members in by_engine.values():
        sizes = job.engine_for(members[0][0]).sizes([image for _, image in members])
        if sizes:
            names = [stack.name for stack, _ in members]
            yield ImagesSized(sizes={name: pair for name, pair in zip(names, sizes, strict=True)})


def _build(job: Job, stack: Stack, tell: Callable[[str], None]) -> Image | BuildFailed:
    """One stack, its log kept; any surprise becomes a failed build, so that the other stacks go on."""
    try:
        with plain_open(job.folder.build_log(stack.name), "a") as log:

            def keep(line: str) -> None:
                print(line, file=log, flush=True)
                tell(line)

            engine, recipe = job.engine_for(stack), job.recipe_for(stack)
            image = engine.build(recipe, keep)
            if image.lock:
                job.folder.keep_lock(stack.name, image.lock.text)
            if job.marks is None or recipe.source == "interpreter":  # nothing was built
                return image
            found = recipes.ensure_selftest(engine, image, recipe, job.marks, job.owner, keep)
            kept = {key: found.get(key) for key in ("losses", "compiled", "vendor")}
            return replace(image, facts={**image.facts, "self_test": kept})
    except BuildFailed as failure:
        return BuildFailed(with_hint(str(failure)))
    except Exception as error:  # a thread has nobody to raise to
        return BuildFailed(f"{type(error).__name__}: {error}")
