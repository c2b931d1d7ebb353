"""A plan's cells on disjoint devices at once, if they don't disturb each other; else one after the other. Yields news."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import asdict

from torchmatrix.analysis import disturbance
from torchmatrix.engines.engine import Image
from torchmatrix.facts.run_record import ParallelTest
from torchmatrix.ground.errors import BuildFailed
from torchmatrix.ground.formatting import none_for_nan
from torchmatrix.machine.telemetry import Sensor
from torchmatrix.planning.plan import Cell
from torchmatrix.running import parallel_test, rounds
from torchmatrix.running.allocation import Allocation, Lane
from torchmatrix.running.at_once import drained
from torchmatrix.running.launch_cell import Job
from torchmatrix.running.news import LanesDecided, News
from torchmatrix.running.parallel_test import Probe, chosen_cell
from torchmatrix.running.turns import Turns

Built = Mapping[str, Image | BuildFailed]


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedules:
    """The launches of a plan. `cells`: all of it; `of`: what is to be launched of some of them, in order; `left`: their ids.

    `watch`: opens the sensors of a lane's own devices, so that lanes share no handle and read nothing twice.
    """

    cells: Sequence[Cell]
    of: Callable[[Sequence[Cell]], Iterable[tuple[Cell, int]]]
    left: frozenset[str]
    watch: Callable[[Lane], AbstractContextManager[Sequence[Sensor]]]


def measure(job: Job, built: Built, allocation: Allocation, schedules: Schedules) -> Iterator[News]:
    """Measure the lanes that may run at once, at once, then the others."""
    turns, cells, done = Turns(), list(schedules.cells), set[str]()
    with ExitStack() as stack:
        jobs = [
            replace(job, lane=lane.devices, turns=turns, sensors=stack.enter_context(schedules.watch(lane)))
            for lane in allocation.together
        ]
        if (yield from _may_run_at_once(job, jobs, built, allocation, schedules)):
            each = zip(jobs, allocation.together, strict=True)
            yield from drained([rounds.measure(own, built, cells, schedules.of(lane.cells)) for own, lane in each], turns)
            done = {cell.id for lane in allocation.together for cell in lane.cells}
    yield from rounds.measure(job, built, cells, schedules.of([cell for cell in cells if cell.id not in done]))


def _may_run_at_once(
    job: Job, jobs: Sequence[Job], built: Built, allocation: Allocation, schedules: Schedules
) -> Generator[News, None, bool]:
    """Whether the lanes may run at once, by a test in this run, now or before; says so."""
    if not allocation.together:
        yield LanesDecided(at_once=False, why=f"nothing can run at once: {allocation.why_alone}")
        return False
    test = job.folder.read_record().parallel
    if test is None:
        probes = yield from _probes(job, jobs, built, allocation, schedules)
        if len(probes) < 2:
            yield LanesDecided(at_once=False, why="nothing is left that could run at once")
            return False
        test = yield from parallel_test.tested(probes)
        job.folder.append("parallel", **_record(test, job.method.parallel_within))
    yield LanesDecided(at_once=test.shown, why=disturbance.in_words(test))
    return test.shown


def _probes(
    job: Job, jobs: Sequence[Job], built: Built, allocation: Allocation, schedules: Schedules
) -> Generator[News, None, list[Probe]]:
    """One for each lane that has something left to be launched. Batches that are to be found are, while nothing else runs."""
    found: list[Probe] = []
    for own, lane in zip(jobs, allocation.together, strict=True):
        batches: dict[str, int] = {}
        for cell in lane.cells:
            image = built[cell.stack.name]
            if cell.id in schedules.left and isinstance(image, Image):
                batch = yield from rounds.batch_of(job, cell, list(schedules.cells), image)
                batches |= {cell.id: batch} if batch else {}
        if fit := [cell for cell in lane.cells if cell.id in batches]:
            cell = chosen_cell(fit)
            image = built[cell.stack.name]
            assert isinstance(image, Image)
            found.append(Probe(lane=lane, job=own, cell=cell, image=image, batch=batches[cell.id]))
    return found


def _record(test: ParallelTest, within: float) -> dict[str, Any]:
    """A line of the run's record."""
    lanes = [none_for_nan(asdict(lane)) for lane in test.lanes]
    return {"shown": test.shown, "why": test.why, "within": within, "lanes": lanes}
