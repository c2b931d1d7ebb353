"""A schedule -> launches on disk: builds the images, finds batches, repeats what was throttled. Yields news."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from torchmatrix.analysis import watched
from torchmatrix.engines.engine import Image
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import Proven, proof_of
from torchmatrix.ground.errors import BuildFailed
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import AUTO, ddp_id
from torchmatrix.planning.plan import Cell
from torchmatrix.running import batch_search, heating, readiness
from torchmatrix.running.build_stacks import build_all
from torchmatrix.running.launch_cell import Attempt, Job, launch, record_failed_build, record_failure
from torchmatrix.running.news import BatchFound, LaunchFinished, LaunchStarted, News


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
    chosen = heating.chosen_cell(fit)
    image = built[chosen.stack.name]
    assert isinstance(image, Image)
    batch = yield from batch_of(job, chosen, cells, image)
    yield from heating.heat(job, chosen, image, batch)


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
        for item in batch_search.find(job, cell, image):
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
    batch = yield from batch_search.find(job, searched_on(cell, cells), image)
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
