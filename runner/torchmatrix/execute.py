"""Cells -> launches on disk: builds their images, runs them in order, records what happened. Yields news, prints nothing."""

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torchmatrix import __version__, images, protocol
from torchmatrix.engines import Engine, Image, LaunchSpec, Recipe
from torchmatrix.errors import BuildFailed, EngineLost, LaunchFailed, with_way_out
from torchmatrix.host import Host
from torchmatrix.plan import Cell
from torchmatrix.stacks import Stack
from torchmatrix.store import Launch, RunFolder, read_launch

PARALLEL_BUILDS = 2
DEADLINE_MARGIN_SECONDS = 60.0
"""A box ends itself so long after the host should have ended it: for the case that the host is dead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildLine:
    """One line of a stack's build log."""

    stack: str
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildFinished:
    """A stack was built (or found built): `error` is None; or it could not be."""

    stack: str
    seconds: float
    error: str | None
    log: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchStarted:
    """A launch begins."""

    cell: Cell
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPhase:
    """The box says how far it is."""

    cell: Cell
    phase: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchFinished:
    """A launch ended; its outcome is derived from its facts."""

    cell: Cell
    number: int
    launch: Launch
    seconds: float


News = BuildLine | BuildFinished | LaunchStarted | LaunchPhase | LaunchFinished


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What `execute` needs besides the plan. `host_record` goes into every launch's header."""

    folder: RunFolder
    host: Host
    owner: str
    timeout_seconds: float
    seed: int
    engine_for: Callable[[Stack], Engine]
    recipe_for: Callable[[Stack], Recipe]
    engine_facts: dict[str, dict[str, Any]] = field(default_factory=dict)


def execute(job: Job, launches: list[tuple[Cell, int]]) -> Iterator[News]:
    """Run `launches` in their order, after building their stacks."""
    built = yield from build_all(job, images.stacks_of(cell for cell, _ in launches))
    recorded: set[str] = set()
    for cell, number in launches:
        image = built[cell.stack.name]
        if isinstance(image, BuildFailed):
            if cell.id not in recorded:  # once is enough: the other rounds could only say the same
                yield _record_failed_build(job, cell, number, image)
            recorded.add(cell.id)
            continue
        yield LaunchStarted(cell=cell, number=number)
        yield from _launch(job, cell, number, image)


_BuildNews = queue.Queue[tuple[Stack, str | None, Image | BuildFailed | None, float]]


def _tell_line(news: _BuildNews, stack: Stack, line: str) -> None:
    news.put((stack, line, None, 0.0))


def build_all(job: Job, stacks: list[Stack]) -> Generator[News, None, dict[str, Image | BuildFailed]]:
    """Build every stack, a few at a time; returns (as the generator's value) an Image or a BuildFailed by stack name."""
    news: _BuildNews = queue.Queue()
    waiting = list(reversed(stacks))
    built: dict[str, Image | BuildFailed] = {}

    def work() -> None:
        while True:
            try:
                stack = waiting.pop()
            except IndexError:
                return
            begin = time.monotonic()
            result = _build(job, stack, partial(_tell_line, news, stack))
            news.put((stack, None, result, time.monotonic() - begin))

    for _ in range(PARALLEL_BUILDS):
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
        waiting.clear()  # an interruption must not let the threads begin another build
    return built


def _build(job: Job, stack: Stack, tell: Callable[[str], None]) -> Image | BuildFailed:
    """One stack, its log kept; any surprise becomes a failed build, so that the other stacks go on."""
    try:
        with job.folder.build_log(stack.name).open("a") as log:

            def keep(line: str) -> None:
                print(line, file=log, flush=True)
                tell(line)

            return job.engine_for(stack).build(job.recipe_for(stack), keep)
    except BuildFailed as failure:
        return BuildFailed(with_way_out(str(failure)))
    except Exception as error:  # a thread has nobody to raise to
        return BuildFailed(f"{type(error).__name__}: {error}")


def bench_arguments(cell: Cell, timeout_seconds: float, seed: int) -> tuple[str, ...]:
    """The workload's flags for one cell; a person can paste them."""
    workload, gpus = cell.workload, cell.gpus
    options: Mapping[str, object] = {
        "--model": workload.model,
        "--mode": workload.mode,
        "--precision": workload.precision,
        "--batch": workload.batch,
        "--image-size": workload.image_size,
        "--sequence-length": workload.sequence_length,
        "--attention": workload.attention,
        "--optimizer": workload.optimizer,
        "--steps": workload.steps,
        "--windows": workload.windows,
        "--warmup-steps": workload.warmup_steps,
        "--warmup-cap": workload.warmup_cap,
        "--device": "cpu" if gpus.vendor == "cpu" else "cuda",
        "--threads": gpus.threads,
        "--cpus": ":".join(gpus.cpus) or None,
        "--seed": seed,
        "--deadline": round(timeout_seconds + DEADLINE_MARGIN_SECONDS),
    }
    words = [word for key, value in options.items() if value is not None for word in (key, str(value))]
    flags = {"--compile": workload.compile, "--channels-last": workload.channels_last}
    return (*words, *(flag for flag, on in flags.items() if on))


def _launch(job: Job, cell: Cell, number: int, image: Image) -> Iterator[News]:
    begin = time.monotonic()
    spec = LaunchSpec(
        arguments=bench_arguments(cell, job.timeout_seconds, job.seed),
        processes=len(cell.gpus.indices),
        gpus=cell.gpus,
        cache=f"{cell.workload.id}-n{len(cell.gpus.indices)}-{images.workload_hash()[:8]}",
        owner=job.owner,
    )
    execution = job.engine_for(cell.stack).start(image, spec)
    file = job.folder.new_launch(cell.id, number)
    timed_out = threading.Event()
    try:
        file.event("launch", **_header(job, cell, number), image=_image_record(image), command=execution.command)
        with execution:
            watchdog = threading.Timer(job.timeout_seconds, _stop, (execution.stop, timed_out))
            watchdog.daemon = True
            watchdog.start()
            try:
                for stream, line in execution.lines():
                    event = protocol.parse_line(line) if stream == "out" else None
                    if event is None:
                        file.log(line)
                    else:
                        file.copy(event)
                        yield LaunchPhase(cell=cell, phase=str(event.get("phase") or event["event"]))
                end = execution.wait()
            finally:
                watchdog.cancel()
        if timed_out.is_set():
            message = f"ended after the time-out of {job.timeout_seconds:g} s ([run] timeout_minutes)"
            file.close(reason="timeout", message=message, returncode=end.returncode)
        else:
            file.close(returncode=end.returncode, oom_killed=end.oom_killed)
    except LaunchFailed as failure:
        file.close(reason="crashed", message=str(failure))
    except EngineLost as lost:
        file.close(reason="interrupted", message=str(lost))
        raise
    except (KeyboardInterrupt, GeneratorExit):
        file.close(reason="interrupted", message="interrupted by the user")
        raise
    finally:
        file.abandon()
    launch = read_launch(file.path)
    yield LaunchFinished(cell=cell, number=number, launch=launch, seconds=time.monotonic() - begin)


def _stop(stop: Callable[[], None], timed_out: threading.Event) -> None:
    timed_out.set()
    with suppress(Exception):  # the launch may just have ended by itself
        stop()


def _record_failed_build(job: Job, cell: Cell, number: int, failure: BuildFailed) -> LaunchFinished:
    file = job.folder.new_launch(cell.id, number)
    file.event("launch", **_header(job, cell, number), image=None, command=f"torchmatrix build '{cell.stack.name}/*'")
    file.close(reason="build-failed", message=str(failure))
    return LaunchFinished(cell=cell, number=number, launch=read_launch(file.path), seconds=0.0)


def _header(job: Job, cell: Cell, number: int) -> dict[str, Any]:
    """Who, where and what: enough to repeat the launch and to compare it."""
    return {
        "protocol": protocol.VERSION,
        "tool": __version__,
        "run": job.folder.id,
        "cell": cell.id,
        "round": number,
        "stack": asdict(cell.stack),
        "workload": asdict(cell.workload),
        "workload_hash": images.workload_hash(),
        "gpus": {**asdict(cell.gpus), "label": cell.gpus.label},
        "engine": job.engine_facts.get(job.engine_for(cell.stack).name, {}),
        "host": job.host.as_record(),
    }


def _image_record(image: Image) -> dict[str, Any]:
    return {"reference": image.reference, "environment": image.environment, **image.facts}
