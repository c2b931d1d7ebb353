"""A schedule -> launches on disk: builds the images, finds batches, repeats what was throttled. Yields news."""

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

import psutil

from torchmatrix.analysis import watched
from torchmatrix.core import settings
from torchmatrix.core.errors import BuildFailed, EngineUnusable
from torchmatrix.core.files import plain_open
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Image, with_hint
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import Proven, proof_of
from torchmatrix.machine.host import Host
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import AUTO, changed, ddp_id
from torchmatrix.planning.fit import why_not_slices
from torchmatrix.planning.plan import Cell
from torchmatrix.running import readiness
from torchmatrix.running.launch_cell import HEATING, Attempt, Job, launch, record_failed_build, record_failure
from torchmatrix.running.news import (
    BatchFound,
    BatchTried,
    BuildFinished,
    BuildLine,
    Heated,
    ImagesSized,
    LaunchFinished,
    LaunchStarted,
    News,
)

# Stacks -> images or virtualenvs, a few at a time. Yields news.

_BuildNews = queue.Queue[tuple[Stack, str | None, Image | BuildFailed | None, float]]


def _tell_line(news: _BuildNews, stack: Stack, line: str) -> None:
    news.put((stack, line, None, 0.0))


def build_all(job: Job, stacks: list[Stack]) -> Generator[News, None, dict[str, Image | BuildFailed]]:
    """Build every stack, a few at a time; returns (as the generator's value) an Image or a BuildFailed by stack name."""
    news: _BuildNews = queue.Queue()
    waiting = list(reversed(build_families(stacks)))
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


def build_families(stacks: list[Stack]) -> list[list[Stack]]:
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


# The largest batch that fits: tried in fresh processes, first doubling, then bisecting.

FIRST_BATCH = 8
LARGEST_BATCH = 65_536
LONGEST_CPU_STEP_SECONDS = 2.0
"""On a CPU no larger batch is tried once a step takes longer: it would only take longer still."""
MEMORY_SHARE = 0.5
"""On a CPU a batch is tried only if it is expected to take less than this share of the free memory: there nothing fails
cleanly, the machine swaps or the kernel ends somebody else's process."""


def search_batch(first: int = FIRST_BATCH, largest: int = LARGEST_BATCH) -> Generator[int, bool, int | None]:
    """Yields a batch, is sent whether it fits; returns the largest that does, a power of two or 1.5 times one; or None."""
    batch, best = first, None
    if (yield batch):
        while batch < largest:
            best, batch = batch, 2 * batch
            if not (yield batch):
                break
        else:
            return batch
    else:
        while batch > 1:
            batch //= 2
            if (yield batch):
                best = batch
                break
        else:
            return None
    between = best + best // 2
    if between > best and (yield between):
        return between
    return best


def find_batch(job: Job, cell: Cell, image: Image) -> Generator[News, None, int | None]:
    """Search on the devices of `cell`; each trial is a launch file of its own. Returns the batch or None."""
    trials: list[tuple[int, Launch]] = []
    looking = search_batch()
    batch = next(looking)
    try:
        while True:
            fits = False
            if _is_safe(cell, batch, trials):
                done = yield from _try(job, Attempt(cell=cell, number=1, batch=batch, trial=True), image)
                trials.append((batch, done))
                fits = done.outcome == "ok"
                yield BatchTried(cell=cell, batch=batch, outcome=done.outcome)
                if done.outcome not in ("ok", "oom") and not any(past.outcome == "ok" for _, past in trials):
                    yield BatchFound(cell=cell, batch=None, outcome=done.outcome)
                    return batch  # it isn't the memory: the launch itself will tell what it is
            batch = looking.send(fits)
    except StopIteration as over:
        yield BatchFound(cell=cell, batch=over.value, outcome="ok" if over.value else "oom")
        return over.value if isinstance(over.value, int) else None


def _try(job: Job, attempt: Attempt, image: Image) -> Generator[News, None, Launch]:
    for item in launch(job, attempt, image):
        if isinstance(item, LaunchFinished):
            return item.launch
        yield item
    raise AssertionError("a launch ends with LaunchFinished")


def _is_safe(cell: Cell, batch: int, trials: list[tuple[int, Launch]]) -> bool:
    """On a CPU: is the straight line through the last two peaks below the limit, and was the last step short enough?

    A GPU says itself that its memory is full, without harm.
    """
    if cell.gpus.vendor != "cpu":
        return True
    if any(w.slowest / w.steps > LONGEST_CPU_STEP_SECONDS for t, done in trials if t < batch for w in done.windows):
        return False
    points = [(tried, sum(peaks)) for tried, peaks in _peaks(trials)]
    if len(points) < 2:
        return True
    (b0, p0), (b1, p1) = points[-2:]
    slope = max(0.0, (p1 - p0) / (b1 - b0)) if b1 != b0 else 0.0
    return p1 + slope * (batch - b1) < MEMORY_SHARE * psutil.virtual_memory().available


def _peaks(trials: list[tuple[int, Launch]]) -> Iterator[tuple[int, tuple[int, ...]]]:
    for batch, done in trials:
        for memory in done.memory[-1:]:
            yield batch, memory.peak_bytes


# Before the first launch of a run: all devices of the machine in use until they, and what is beside them, are hot.


def heating_cell(cells: Sequence[Cell]) -> Cell:
    """The one whose load heats: on one node, not compiled if possible, on most devices."""
    return max(cells, key=lambda cell: (cell.gpus.nodes == 1, not cell.workload.compile, len(cell.gpus.indices)))


def heat_devices(job: Job, chosen: Cell, image: Image, batch: int | None) -> Iterator[News]:
    """Launch its load on all devices, as a probe whose figure doesn't count. Raises EngineUnusable if it fails, since the
    launches after it would not be what the method claims.
    """
    cell = load_on_all(chosen, job.host, job.method.warm_seconds or 0.0)
    why = None if batch else "not even a batch of 1 fits"
    for item in launch(job, Attempt(cell=cell, number=1, batch=batch, probe=HEATING), image) if batch else ():
        if not isinstance(item, LaunchFinished):
            yield item
        elif item.launch.is_ok:
            yield Heated(devices=cell.gpus.label, seconds=item.seconds)
        else:
            why = f"{item.launch.outcome}: {item.launch.error}"
    if why:
        raise EngineUnusable(
            f"{cell.gpus.label} could not be heated: {why}",
            hint=f"the method {job.method.name} needs all devices; --method steady measures without",
        )


def load_on_all(cell: Cell, host: Host, seconds: float) -> Cell:
    """Its load for so long on all GPUs; on a CPU on the slots that it has, and on slices of GPUs likewise."""
    brief = changed(cell.workload, warmup_cap_seconds=0.0, seconds=0.0, windows=1, steps=1, requests=0)
    workload, gpus = changed(brief, warmup_seconds=seconds), cell.gpus
    if gpus.gpus and not why_not_slices(host.gpus):
        gpus = replace(gpus, indices=tuple(range(len(host.gpus))), gpus=host.gpus)
    return replace(cell, id=f"{cell.stack.name}/{workload.id}/{gpus.label}", workload=workload, gpus=gpus)


def execute(job: Job, stacks: list[Stack], cells: list[Cell], schedule: Iterable[tuple[Cell, int]]) -> Iterator[News]:
    """Build `stacks`, heat, if the method does, then run `schedule` in its order. `cells`: all of the plan, among which a batch
    is searched for.
    """
    built = yield from build_all(job, stacks)
    yield from heat(job, built, cells)
    yield from measure(job, built, cells, schedule)


def measure(
    job: Job,
    built: Mapping[str, Image | BuildFailed],
    cells: list[Cell],
    schedule: Iterable[tuple[Cell, int]],
    known: Mapping[tuple[str, int], Proven] | None = None,
    batches: Mapping[tuple[str, str], int | None] | None = None,
) -> Iterator[News]:
    """As `execute`, with what was `built`, by stack.

    `known`: the launches that were proven before, by cell and batch. `batches`: those found already, by searched_key.
    """
    recorded: set[str] = set()
    compiled: set[str] = set()
    suspects: set[str] = set()
    proven = dict(known or {})
    for cell, number in schedule:
        if cell.id in recorded:  # a failure recorded once is enough: the other rounds could only say the same
            continue
        image = built[cell.stack.name]
        if isinstance(image, BuildFailed):
            recorded.add(cell.id)
            yield record_failed_build(job, cell, number, image)
            continue
        if gone := _lost_gpu(job, cell, suspects):
            recorded.add(cell.id)
            yield record_failure(job, cell, number, "crashed", gone, f"torchmatrix run --new '{cell.id}'")
            continue
        batch = yield from batch_of(job, cell, cells, image, batches)
        if batch is None:
            recorded.add(cell.id)
            yield record_failure(job, cell, number, "oom", "not even a batch of 1 fits", f"torchmatrix batch '{cell.id}'")
            continue
        fresh = cell.workload.compile and number <= job.method.cold_compiles
        attempt = Attempt(cell=cell, number=number, batch=batch, fresh=fresh, proven=proven.get((cell.id, batch)))
        cold = fresh or (cell.workload.compile and cell.id not in compiled)  # its compiler would disturb the other lanes
        compiled.add(cell.id)
        with turn(job, cell, alone=cold):
            yield LaunchStarted(cell=cell, number=number)
            for item in _launch(job, attempt, image):
                if isinstance(item, LaunchFinished):
                    suspects |= _unread(item.launch)
                    if found := proof_of(item.launch):
                        proven.setdefault((cell.id, batch), found)
                yield item


def heat(job: Job, built: Mapping[str, Image | BuildFailed], cells: list[Cell]) -> Iterator[News]:
    """Heat all devices of the machine, if the method does."""
    fit = [cell for cell in cells if isinstance(built[cell.stack.name], Image)]
    if job.method.warm_seconds is None or not fit:
        return
    chosen = heating_cell(fit)
    image = built[chosen.stack.name]
    assert isinstance(image, Image)
    batch = yield from batch_of(job, chosen, cells, image)
    yield from heat_devices(job, chosen, image, batch)


def turn(job: Job, cell: Cell, *, alone: bool) -> AbstractContextManager[None]:
    """The turn of a cell's launch among those of other lanes, if there are any."""
    return job.turns.taken(cell.id, alone=alone) if job.turns else nullcontext()


def _unread(launch: Launch) -> set[str]:
    """The devices that could not be read at some moment of the launch."""
    return {str(reading["device"]) for told in launch.telemetry for reading in told.readings if "error" in reading}


def _lost_gpu(job: Job, cell: Cell, suspects: set[str]) -> str | None:
    """Which GPU of the cell was lost meanwhile, in words; what doesn't need it can still be measured.

    Only `suspects` are looked at: reading all before each launch would take what the launch itself waits for.
    """
    asked = [gpu.uuid for gpu in cell.gpus.gpus if gpu.uuid in suspects]
    found = readiness.lost(job.sensors, asked) if asked else None
    if found is None:
        return None
    (index,) = (i for i, gpu in zip(cell.gpus.indices, cell.gpus.gpus, strict=True) if gpu.uuid == found[0])
    return f"gpu{index} ({found[0]}) is lost, so nothing was launched: {found[1]}"


def find_batches(job: Job, stacks: list[Stack], cells: list[Cell]) -> Generator[News, None, list[int | None]]:
    """The largest batch of each of `cells`, and nothing else. Returns them; None where there is none."""
    built = yield from build_all(job, stacks)
    found: list[int | None] = []
    for cell in cells:
        image = built[cell.stack.name]
        if isinstance(image, BuildFailed):
            yield record_failed_build(job, cell, 1, image)
            found.append(None)
            continue
        for item in find_batch(job, cell, image):
            found += [item.batch] if isinstance(item, BatchFound) else []
            yield item
    return found


def _launch(job: Job, attempt: Attempt, image: Image) -> Iterator[News]:
    """One launch; once more if its devices were slowed down by heat or hardware, and the first try is kept beside it."""
    again = True
    while again:
        again = False
        for item in launch(job, attempt, image):
            if isinstance(item, LaunchFinished) and item.launch.is_ok and watched.summarize(item.launch).throttled:
                again = job.folder.tries(attempt.cell.id, attempt.number) == 1
                yield replace(item, note="throttled, once more" if again else "throttled again: kept and marked")
            else:
                yield item


def batch_of(
    job: Job, cell: Cell, cells: list[Cell], image: Image, batches: Mapping[tuple[str, str], int | None] | None = None
) -> Generator[News, None, int | None]:
    """The batch of a cell; where it is to be found, once per run, stack and workload."""
    if cell.workload.batch != AUTO:
        return int(cell.workload.batch)
    key = searched_key(cell)
    if batches and key in batches:
        return batches[key]
    found = [b for b in job.folder.read_record().batches if (b.stack, b.workload) == key]
    if found:
        return found[0].batch or None
    batch = yield from find_batch(job, searched_on(cell, cells), image)
    job.folder.append("batch", stack=cell.stack.name, workload=key[1], batch=batch)
    return batch


def searched_key(cell: Cell) -> tuple[str, str]:
    """Cells that agree in it have the same batch, where it is searched for."""
    return cell.stack.name, ddp_id(cell.workload)


def searched_on(cell: Cell, cells: Iterable[Cell]) -> Cell:
    """On which of these a cell's batch is searched for: its workload on the largest set of devices of one node."""
    stack, workload = searched_key(cell)
    alike = [c for c in cells if (c.stack.name, c.workload.id) == (stack, workload) and c.gpus.nodes == 1]
    return max(alike, key=lambda c: c.gpus.count, default=cell)
