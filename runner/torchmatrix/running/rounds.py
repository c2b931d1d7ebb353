"""Turn a schedule into launches on disk: build images, find batches, repeat spoilt launches. Yields progress events."""

import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import psutil

from torchmatrix.analysis import sharing, watched
from torchmatrix.core import settings
from torchmatrix.core.errors import BuildFailed, EngineUnusable
from torchmatrix.core.files import plain_open
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Image, with_hint
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import Proven, proof_of
from torchmatrix.machine.host import Host
from torchmatrix.matrix.method import Method
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import AUTO, changed, ddp_id
from torchmatrix.planning.fit import why_not_slices
from torchmatrix.planning.plan import Cell
from torchmatrix.running import readiness
from torchmatrix.running.launch_cell import HEATING, Attempt, Job, launch, record_failed_build, record_failure
from torchmatrix.running.progress import (
    BatchFound,
    BatchTried,
    BuildFinished,
    BuildLine,
    Heated,
    ImagesSized,
    LaunchFinished,
    LaunchStarted,
    ProgressEvent,
    RoundAdded,
)

# Builds: stacks to images or virtualenvs, a few at a time.

_BuildEvents = queue.Queue[tuple[Stack, str | None, Image | BuildFailed | None, float]]


def build_all(job: Job, stacks: list[Stack]) -> Generator[ProgressEvent, None, dict[str, Image | BuildFailed]]:
    """Build every stack, a few at a time; returns (as the generator's value) an Image or a BuildFailed by stack name."""
    events: _BuildEvents = queue.Queue()
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
                result = _build(job, stack, events)
                events.put((stack, None, result, time.monotonic() - begin))

    for _ in range(settings.load().parallel_builds):
        threading.Thread(target=work, daemon=True).start()
    try:
        while len(built) < len(stacks):
            stack, line, result, seconds = events.get()
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
    """Group the stacks that are built one after the other: a stack finds the layers of another one of its base and CUDA."""
    families: dict[tuple[str | None, str | None], list[Stack]] = {}
    for stack in stacks:
        shares = stack.source == "wheels" and stack.variant != "cpu"
        families.setdefault((stack.base, stack.variant) if shares else (stack.name, None), []).append(stack)
    return list(families.values())


def _sizes(job: Job, stacks: list[Stack], built: dict[str, Image | BuildFailed]) -> Iterator[ProgressEvent]:
    """Yield what the images take on disk, in the order of the stacks, where their engine can tell."""
    by_engine: dict[str, list[tuple[Stack, Image]]] = {}
    for stack in stacks:
        image = built[stack.name]
        if isinstance(image, Image):
            by_engine.setdefault(job.engine_for(stack).name, []).append((stack, image))
    for members in by_engine.values():
        sizes = job.engine_for(members[0][0]).sizes([image for _, image in members])
        if sizes:
            yield ImagesSized(sizes=dict(zip((stack.name for stack, _ in members), sizes, strict=True)))


def _build(job: Job, stack: Stack, events: _BuildEvents) -> Image | BuildFailed:
    """Build one stack and keep its log; any exception becomes a failed build, so that the other stacks go on."""
    try:
        with plain_open(job.folder.build_log(stack.name), "a") as log:

            def keep(line: str) -> None:
                print(line, file=log, flush=True)
                events.put((stack, line, None, 0.0))

            engine, recipe = job.engine_for(stack), job.recipe_for(stack)
            image = engine.build(recipe, keep)
            if image.lock:
                job.folder.keep_lock(stack.name, image.lock.text)
            if job.marks is None or recipe.source == "interpreter":  # nothing was built
                return image
            self_test = recipes.ensure_selftest(engine, image, recipe, job.marks, job.owner, keep)
            kept = {key: self_test.get(key) for key in ("losses", "compiled", "vendor")}
            return replace(image, facts={**image.facts, "self_test": kept})
    except BuildFailed as failure:
        return BuildFailed(with_hint(str(failure)))
    except Exception as error:  # a thread has no caller to raise to
        return BuildFailed(f"{type(error).__name__}: {error}")


# The largest batch that fits: tried in fresh processes, first doubling, then bisecting.

FIRST_BATCH = 8
LARGEST_BATCH = 65_536
LONGEST_CPU_STEP_SECONDS = 2.0
"""On a CPU no larger batch is tried once a step takes longer than this."""
MEMORY_SHARE = 0.5
"""On a CPU a batch is tried only if it is expected to take less than this share of the free memory: there nothing fails
cleanly, the machine swaps or the kernel ends somebody else's process."""


def search_batch(first: int = FIRST_BATCH, largest: int = LARGEST_BATCH) -> Generator[int, bool, int | None]:
    """Yield a batch, receive whether it fits; return the largest that does, a power of two or 1.5 times one; or None."""
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


def find_batch(job: Job, cell: Cell, image: Image) -> Generator[ProgressEvent, None, int | None]:
    """Search on the devices of `cell`; each trial is a launch file of its own. Returns the batch or None."""
    trials: list[tuple[int, Launch]] = []
    search = search_batch()
    batch = next(search)
    try:
        while True:
            fits = False
            if _is_safe(cell, batch, trials):
                done = yield from _launch_trial(job, Attempt(cell=cell, number=1, batch=batch, trial=True), image)
                trials.append((batch, done))
                fits = done.outcome == "ok"
                yield BatchTried(cell=cell, batch=batch, outcome=done.outcome)
                if done.outcome not in ("ok", "oom") and not any(past.outcome == "ok" for _, past in trials):
                    yield BatchFound(cell=cell, batch=None, outcome=done.outcome)
                    return batch  # memory isn't the reason: the launch itself will show the reason
            batch = search.send(fits)
    except StopIteration as over:
        why = next((done.outcome for _, done in trials if done.outcome not in ("ok", "oom")), "ok" if over.value else "oom")
        yield BatchFound(cell=cell, batch=over.value, outcome=why)
        return over.value if isinstance(over.value, int) else None


def _launch_trial(job: Job, attempt: Attempt, image: Image) -> Generator[ProgressEvent, None, Launch]:
    for event in launch(job, attempt, image):
        if isinstance(event, LaunchFinished):
            return event.launch
        yield event
    raise AssertionError("a launch ends with LaunchFinished")


def _is_safe(cell: Cell, batch: int, trials: list[tuple[int, Launch]]) -> bool:
    """Check, on a CPU, that the line through the last two peaks stays below the limit and that the last step was short enough.

    A GPU reports a full memory itself, without harm.
    """
    if cell.gpus.vendor != "cpu":
        return True
    if any(w.slowest / w.steps > LONGEST_CPU_STEP_SECONDS for t, done in trials if t < batch for w in done.windows):
        return False
    points = [(tried, sum(memory.peak_bytes)) for tried, done in trials for memory in done.memory[-1:]]
    if len(points) < 2:
        return True
    (b0, p0), (b1, p1) = points[-2:]
    slope = max(0.0, (p1 - p0) / (b1 - b0)) if b1 != b0 else 0.0
    return p1 + slope * (batch - b1) < MEMORY_SHARE * psutil.virtual_memory().available


# Heating before the first launch of a run: all devices of the machine are in use until they and their surroundings are hot.


def heating_cell(cells: Sequence[Cell]) -> Cell:
    """Return the cell whose load heats: on one node, not compiled if possible, on most devices."""
    return max(cells, key=lambda cell: (cell.gpus.nodes == 1, not cell.workload.compile, len(cell.gpus.indices)))


def heat_devices(job: Job, chosen: Cell, image: Image, batch: int | None) -> Iterator[ProgressEvent]:
    """Launch the load of `chosen` on all devices, as a probe whose figure doesn't count.

    Raises EngineUnusable if it fails, since the launches after it would not be what the method claims.
    """
    cell = load_on_all(chosen, job.host, job.method.warm_seconds or 0.0)
    why = None if batch else "not even a batch of 1 fits"
    for event in launch(job, Attempt(cell=cell, number=1, batch=batch, probe=HEATING), image) if batch else ():
        if not isinstance(event, LaunchFinished):
            yield event
        elif event.launch.is_ok:
            yield Heated(devices=cell.gpus.label, seconds=event.seconds)
        else:
            why = f"{event.launch.outcome}: {event.launch.error}"
    if why:
        raise EngineUnusable(
            f"{cell.gpus.label} could not be heated: {why}",
            hint=f"the method {job.method.name} needs all devices; --method steady measures without",
        )


def load_on_all(cell: Cell, host: Host, seconds: float) -> Cell:
    """Return the cell's load for so long on all GPUs; on a CPU, and on slices of GPUs, on the devices that it has."""
    windows = cell.workload.factors["windows"] and 1
    brief = changed(cell.workload, warmup_cap_seconds=0.0, seconds=0.0, windows=windows, steps=1, requests=0)
    workload, gpus = changed(brief, warmup_seconds=seconds), cell.gpus
    if gpus.gpus and not why_not_slices(host.gpus):
        gpus = replace(gpus, indices=tuple(range(len(host.gpus))), gpus=host.gpus)
    return replace(cell, id=f"{cell.stack.name}/{workload.id}/{gpus.label}", workload=workload, gpus=gpus)


Schedule = Iterable[Sequence[tuple[Cell, int]]]
"""Rounds, each of cells and its number, in the order to launch. The next round is asked for when all of one is over."""


def execute(job: Job, stacks: list[Stack], cells: list[Cell], schedule: Schedule) -> Iterator[ProgressEvent]:
    """Build `stacks`, heat if the method does, then run `schedule` in its order.

    `cells`: all cells of the plan, on one of which a batch is searched for.
    """
    built = yield from build_all(job, stacks)
    yield from heat(job, built, cells)
    yield from measure(job, built, cells, schedule)


def measure(
    job: Job,
    built: Mapping[str, Image | BuildFailed],
    cells: list[Cell],
    schedule: Schedule,
    proofs: Mapping[tuple[str, int], Proven] | None = None,
    batches: Mapping[tuple[str, str], int | None] | None = None,
) -> Iterator[ProgressEvent]:
    """Run `schedule` as `execute` does, with what was `built`, by stack.

    `proofs`: launches that were proven before, by cell and batch. `batches`: the batches found before, by searched_key.
    """
    recorded: set[str] = set()
    suspects: set[str] = set()
    proven = dict(proofs or {})
    for launches in schedule:
        yield from _added(job.method, launches)
        queue = list(launches)
        for cell, number in queue:
            if cell.id in recorded:  # one recorded failure is enough: the other rounds could only repeat it
                continue
            image = built[cell.stack.name]
            if isinstance(image, BuildFailed):
                recorded.add(cell.id)
                yield replace(record_failed_build(job, cell, number, image), is_last=True)
                continue
            if reason := _lost_gpu(job, cell, suspects):
                recorded.add(cell.id)
                failed = record_failure(job, cell, number, "crashed", reason, f"torchmatrix run --new '{cell.id}'")
                yield replace(failed, is_last=True)
                continue
            batch = yield from batch_of(job, cell, cells, image, batches)
            if batch is None:
                recorded.add(cell.id)
                failed = record_failure(
                    job, cell, number, "oom", "not even a batch of 1 fits", f"torchmatrix batch '{cell.id}'"
                )
                yield replace(failed, is_last=True)
                continue
            fresh = cell.workload.compile and number <= job.method.cold_compiles
            attempt = Attempt(cell=cell, number=number, batch=batch, fresh=fresh, proven=proven.get((cell.id, batch)))
            yield LaunchStarted(cell=cell, number=number)
            for event in launch(job, attempt, image):
                if isinstance(event, LaunchFinished):
                    suspects |= _unread_devices(event.launch)
                    if proof := proof_of(event.launch):
                        proven.setdefault((cell.id, batch), proof)
                    event, again = _noted(job, event)
                    recorded |= {cell.id} if event.is_last else set()
                    queue += again
                yield event


def _added(method: Method, launches: Sequence[tuple[Cell, int]]) -> Iterator[RoundAdded]:
    (number,) = {number for _, number in launches}
    if number > method.launches:
        yield RoundAdded(number=number, cells=tuple(cell for cell, _ in launches))


def _noted(job: Job, event: LaunchFinished) -> tuple[LaunchFinished, list[tuple[Cell, int]]]:
    """Return the end of a launch with a note on what spoilt it, if anything did, and the launch if it is made once more."""
    why = _spoilt_by(event.launch)
    if not why:
        return replace(event, is_last=can_only_fail_again(event.launch)), []
    is_again = _asks_for_another(why, job.patience.seconds) and job.folder.tries(event.cell.id, event.number) == 1
    note = "; ".join(filter(None, (event.note, why, "once more at the end of the round" if is_again else "kept and marked")))
    return replace(event, note=note), [(event.cell, event.number)] if is_again else []


def can_only_fail_again(launch: Launch) -> bool:
    """Check whether further rounds of its cell would only repeat the failure of a launch."""
    return launch.outcome == "unsupported"


def is_repeated(launch: Launch, patience_seconds: float) -> bool:
    """Check whether a launch is to be made once more: it was throttled, or, with patience, other programs disturbed it.

    What decides is the state of the devices, never the figure: a rule that looks at the result would make intervals lie.
    """
    return _asks_for_another(_spoilt_by(launch), patience_seconds)


def _asks_for_another(why: str, patience_seconds: float) -> bool:
    return bool(why) and (patience_seconds > 0 or why == _THROTTLED)


_THROTTLED = "throttled"


def _spoilt_by(launch: Launch) -> str:
    """Say what spoilt an ok launch; empty if nothing did, or if it can't be told."""
    if not launch.is_ok:
        return ""
    if watched.summarize(launch).throttled:
        return _THROTTLED
    shared = sharing.shared_by(launch)
    return f"disturbed: {shared.in_words}" if shared.disturbed else ""


def heat(job: Job, built: Mapping[str, Image | BuildFailed], cells: list[Cell]) -> Iterator[ProgressEvent]:
    """Heat all devices of the machine, if the method does."""
    fit = [cell for cell in cells if isinstance(built[cell.stack.name], Image)]
    if job.method.warm_seconds is None or not fit:
        return
    chosen = heating_cell(fit)
    image = built[chosen.stack.name]
    assert isinstance(image, Image)
    batch = yield from batch_of(job, chosen, cells, image)
    yield from heat_devices(job, chosen, image, batch)


def _unread_devices(launch: Launch) -> set[str]:
    """Return the devices that could not be read at some moment of the launch."""
    return {str(reading["device"]) for event in launch.telemetry for reading in event.readings if "error" in reading}


def _lost_gpu(job: Job, cell: Cell, suspects: set[str]) -> str | None:
    """Return which GPU of the cell was lost meanwhile, in words, or None; cells without that GPU can still be measured.

    Only `suspects` are read: reading all devices before each launch would take as long as the launch's own check.
    """
    uuids = [gpu.uuid for gpu in cell.gpus.gpus if gpu.uuid in suspects]
    lost = readiness.lost(job.sensors, uuids) if uuids else None
    if lost is None:
        return None
    uuid, error = lost
    (index,) = (i for i, gpu in zip(cell.gpus.indices, cell.gpus.gpus, strict=True) if gpu.uuid == uuid)
    return f"gpu{index} ({uuid}) is lost, so nothing was launched: {error}"


def find_batches(job: Job, stacks: list[Stack], cells: list[Cell]) -> Generator[ProgressEvent, None, list[int | None]]:
    """Return the largest batch of each of `cells`, None where there is none; launch nothing else."""
    built = yield from build_all(job, stacks)
    batches: list[int | None] = []
    for cell in cells:
        image = built[cell.stack.name]
        if isinstance(image, BuildFailed):
            yield record_failed_build(job, cell, 1, image)
            batches.append(None)
            continue
        for event in find_batch(job, cell, image):
            batches += [event.batch] if isinstance(event, BatchFound) else []
            yield event
    return batches


def batch_of(
    job: Job, cell: Cell, cells: list[Cell], image: Image, batches: Mapping[tuple[str, str], int | None] | None = None
) -> Generator[ProgressEvent, None, int | None]:
    """Return the batch of a cell; a batch that is to be found is searched for once per run, stack and workload."""
    if cell.workload.batch != AUTO:
        return int(cell.workload.batch)
    key = searched_key(cell)
    if batches and key in batches:
        return batches[key]
    recorded = [record for record in job.folder.read_record().batches if (record.stack, record.workload) == key]
    if recorded:
        return recorded[0].batch or None
    batch = yield from find_batch(job, searched_on(cell, cells), image)
    job.folder.append("batch", stack=cell.stack.name, workload=key[1], batch=batch)
    return batch


def searched_key(cell: Cell) -> tuple[str, str]:
    """Return the stack and workload that cells with the same searched batch share."""
    return cell.stack.name, ddp_id(cell.workload)


def searched_on(cell: Cell, cells: Iterable[Cell]) -> Cell:
    """Return the cell on which a cell's batch is searched for: its workload on the largest set of devices of one node."""
    stack, workload = searched_key(cell)
    alike = [c for c in cells if (c.stack.name, c.workload.id) == (stack, workload) and c.gpus.nodes == 1]
    return max(alike, key=lambda c: c.gpus.count, default=cell)
