"""The largest batch that fits: tried in fresh processes, first doubling, then bisecting."""

from collections.abc import Generator, Iterator

import psutil

from torchmatrix.engines.engine import Image
from torchmatrix.facts.launch import Launch
from torchmatrix.planning.plan import Cell
from torchmatrix.running.launch_cell import Attempt, Job, launch
from torchmatrix.running.news import BatchFound, BatchTried, LaunchFinished, News

FIRST = 8
LARGEST = 65_536
LONGEST_CPU_STEP_SECONDS = 2.0
"""On a CPU no larger batch is tried once a step takes longer: it would only take longer still."""
MEMORY_SHARE = 0.5
"""On a CPU a batch is tried only if it is expected to take less than this share of the free memory: there nothing fails
cleanly, the machine swaps or the kernel ends somebody else's process."""


def search(first: int = FIRST, largest: int = LARGEST) -> Generator[int, bool, int | None]:
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


def find(job: Job, cell: Cell, image: Image) -> Generator[News, None, int | None]:
    """Search on the devices of `cell`; each trial is a launch file of its own. Returns the batch or None."""
    trials: list[tuple[int, Launch]] = []
    looking = search()
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
