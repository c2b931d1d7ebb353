"""Measure a plan's cells on disjoint devices concurrently, if they don't disturb each other. Yields progress events."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace

from msgspec.structs import asdict

from torchmatrix.analysis import pairs
from torchmatrix.analysis.intervals import UNKNOWN
from torchmatrix.core.errors import BuildFailed
from torchmatrix.core.formatting import none_for_nan
from torchmatrix.engines.engine import Image
from torchmatrix.facts.launch import throughput
from torchmatrix.facts.reading import Proven, proof_of
from torchmatrix.facts.run_record import LaneTest, ParallelTest
from torchmatrix.machine.telemetry import Sensor
from torchmatrix.planning import plan
from torchmatrix.planning.plan import Cell
from torchmatrix.running import rounds
from torchmatrix.running.lanes import LaneLock, run_concurrently
from torchmatrix.running.launch_cell import Attempt, Job, launch
from torchmatrix.running.launch_order import Allocation, Lane
from torchmatrix.running.progress import LanesDecided, LanesProbed, LaunchFinished, ProbeFinished, ProgressEvent
from torchmatrix.running.rounds import hold_lock

# The test whether launches on different devices disturb each other: each lane is measured alone and beside the others.

UNCOUNTED, ALONE, BESIDE = "uncounted", "alone", "beside"
"""The purposes of a probe. Not counted: a cell's first launch, which compiles and is proven in full, and mere disturbances."""


@dataclass(kw_only=True, slots=True)
class Probe:
    """One lane while it is tested: the cell that is launched, its throughputs by purpose, the seconds of its last launch."""

    lane: Lane
    job: Job
    cell: Cell
    image: Image
    batch: int
    rates: dict[str, list[float]] = field(default_factory=lambda: {UNCOUNTED: [], ALONE: [], BESIDE: []})
    seconds: float = 0.0
    proven: Proven | None = None
    failure: str = ""

    @property
    def result(self) -> LaneTest:
        """Return the test's result as far as it was measured."""
        alone, beside = self.rates[ALONE], self.rates[BESIDE]
        ratio = pairs.ratio_of(beside, alone) if len(beside) == len(alone) else UNKNOWN
        return LaneTest(
            devices=self.lane.devices, cell=self.cell.id, ratio=ratio.value, low=ratio.low, high=ratio.high, alone=tuple(alone),
            beside=tuple(beside),
        )  # fmt: skip


def probe_cell(cells: Sequence[Cell]) -> Cell:
    """Return the cell of a lane that is launched: on most devices, not compiled if possible, as that needs more of the host."""
    return max(cells, key=lambda cell: (len(cell.gpus.indices), not cell.workload.compile))


def least_test_seconds(lanes: Sequence[Lane], known: Mapping[str, float]) -> float:
    """Estimate the test if its first look decides; `known`: seconds by cell id."""
    seconds = [plan.launch_seconds(probe_cell(lane.cells), 2, known) for lane in lanes]
    return (1 + pairs.LOOKS[0]) * sum(seconds) + 1.5 * pairs.LOOKS[0] * max(seconds)


def test_lanes(probes: Sequence[Probe]) -> Generator[ProgressEvent, None, ParallelTest]:
    """Launch each lane's cell alone and beside the other lanes' cells, alternately, until the test can be decided.

    The order of the two changes from round to round, so that a drift of the machine falls out. Beside the others, all lanes
    begin together in one round, and in the next one half of them begins in the midst of the others' launches: windows lie
    beside windows, and beside the start of launches. A failed launch ends the test.
    """
    yield LanesProbed(devices=tuple(probe.lane.devices for probe in probes), least=pairs.LOOKS[0], most=pairs.LOOKS[-1])
    for probe in probes:
        yield from _launch_probe(probe, UNCOUNTED)
    for number in range(1, pairs.LOOKS[-1] + 1):
        order = (ALONE, BESIDE) if number % 2 else (BESIDE, ALONE)
        for purpose in order:
            if any(probe.failure for probe in probes):
                return _verdict(probes)
            if purpose == BESIDE:
                yield from _launch_concurrently(probes, number)
                continue
            for probe in probes:
                yield from _launch_probe(probe, ALONE)
        if number in pairs.LOOKS and _is_settled(probes):
            break
    return _verdict(probes)


def _is_settled(probes: Sequence[Probe]) -> bool:
    ratios = [pairs.ratio_of(probe.rates[BESIDE], probe.rates[ALONE]) for probe in probes if not probe.failure]
    within = probes[0].job.method.parallel_within
    return all(pairs.is_shown(ratio, within) for ratio in ratios) or any(pairs.is_disturbed(ratio, within) for ratio in ratios)


def _verdict(probes: Sequence[Probe]) -> ParallelTest:
    within = probes[0].job.method.parallel_within
    lanes, failures = tuple(probe.result for probe in probes), [probe.failure for probe in probes if probe.failure]
    why = f"a launch of the test failed: {failures[0]}" if failures else pairs.why(lanes, within)
    return ParallelTest(shown=not failures and pairs.all_shown(lanes, within), why=why, lanes=lanes)


def _launch_concurrently(probes: Sequence[Probe], number: int) -> Iterator[ProgressEvent]:
    """Launch all lanes together; in even rounds every second lane half a launch later, and the others once more."""
    lock = probes[0].job.lanes
    assert lock is not None

    def late(probe: Probe) -> Iterator[ProgressEvent]:
        lock.pause(probe.seconds / 2)
        yield from _launch_probe(probe, BESIDE)

    def early(probe: Probe) -> Iterator[ProgressEvent]:
        yield from _launch_probe(probe, BESIDE)
        yield from _launch_probe(probe, UNCOUNTED)

    if number % 2:
        return run_concurrently([_launch_probe(probe, BESIDE) for probe in probes], lock)
    order = (late, early) if number // 2 % 2 == 0 else (early, late)
    return run_concurrently([order[place % 2](probe) for place, probe in enumerate(probes)], lock)


def _launch_probe(probe: Probe, purpose: str) -> Iterator[ProgressEvent]:
    """Launch once and add the throughput to the probe. Yields ProbeFinished at the end, since it is no launch of the matrix."""
    number = 1 + sum(map(len, probe.rates.values()))
    attempt = Attempt(cell=probe.cell, number=number, batch=probe.batch, probe=purpose, proven=probe.proven)
    is_first = not any(probe.rates.values())
    with hold_lock(probe.job, probe.cell, alone=purpose == ALONE or is_first):
        for event in launch(probe.job, attempt, probe.image):
            if not isinstance(event, LaunchFinished):
                yield event
                continue
            probe.proven = probe.proven or proof_of(event.launch)
            rate, probe.seconds = throughput(event.launch), event.seconds
            if math.isnan(rate):
                probe.failure = f"{probe.cell.id}: {event.launch.outcome}: {event.launch.error}"
            else:
                probe.rates[purpose].append(rate)
            yield ProbeFinished(cell=probe.cell)


Built = Mapping[str, Image | BuildFailed]


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedules:
    """The launches of a plan. `cells`: all of its cells; `of`: the launches left of some cells, in order; `left`: their ids.

    `watch`: opens the sensors of a lane's own devices, so that lanes share no handle and read nothing twice.
    """

    cells: Sequence[Cell]
    of: Callable[[Sequence[Cell]], Iterable[tuple[Cell, int]]]
    left: frozenset[str]
    watch: Callable[[Lane], AbstractContextManager[Sequence[Sensor]]]


def measure(job: Job, built: Built, allocation: Allocation, schedules: Schedules) -> Iterator[ProgressEvent]:
    """Measure the lanes that may run concurrently, then the other cells one after the other."""
    lock, cells, done = LaneLock(), list(schedules.cells), set[str]()
    with ExitStack() as stack:
        jobs = [
            replace(job, lane=lane.devices, lanes=lock, sensors=stack.enter_context(schedules.watch(lane)))
            for lane in allocation.together
        ]
        if (yield from _may_run_concurrently(job, jobs, built, allocation, schedules)):
            each = zip(jobs, allocation.together, strict=True)
            yield from run_concurrently(
                [rounds.measure(lane_job, built, cells, schedules.of(lane.cells)) for lane_job, lane in each], lock
            )
            done = {cell.id for lane in allocation.together for cell in lane.cells}
    yield from rounds.measure(job, built, cells, schedules.of([cell for cell in cells if cell.id not in done]))


def _may_run_concurrently(
    job: Job, jobs: Sequence[Job], built: Built, allocation: Allocation, schedules: Schedules
) -> Generator[ProgressEvent, None, bool]:
    """Check whether the lanes may run concurrently, by a test in this run, now or before; yields the decision."""
    if not allocation.together:
        yield LanesDecided(at_once=False, why=f"nothing can run at once: {allocation.why_alone}")
        return False
    test = job.folder.read_record().parallel
    if test is None:
        probes = yield from _make_probes(job, jobs, built, allocation, schedules)
        if len(probes) < 2:
            yield LanesDecided(at_once=False, why="nothing is left that could run at once")
            return False
        test = yield from test_lanes(probes)
        lane_records = [none_for_nan(asdict(lane)) for lane in test.lanes]
        job.folder.append("parallel", shown=test.shown, why=test.why, within=job.method.parallel_within, lanes=lane_records)
    yield LanesDecided(at_once=test.shown, why=pairs.in_words(test))
    return test.shown


def _make_probes(
    job: Job, jobs: Sequence[Job], built: Built, allocation: Allocation, schedules: Schedules
) -> Generator[ProgressEvent, None, list[Probe]]:
    """Return a probe for each lane that has launches left, after finding missing batches while nothing else runs."""
    probes: list[Probe] = []
    for lane_job, lane in zip(jobs, allocation.together, strict=True):
        batches: dict[str, int] = {}
        for cell in lane.cells:
            image = built[cell.stack.name]
            if cell.id in schedules.left and isinstance(image, Image):
                batch = yield from rounds.batch_of(job, cell, list(schedules.cells), image)
                batches |= {cell.id: batch} if batch else {}
        if fit := [cell for cell in lane.cells if cell.id in batches]:
            cell = probe_cell(fit)
            image = built[cell.stack.name]
            assert isinstance(image, Image)
            probes.append(Probe(lane=lane, job=lane_job, cell=cell, image=image, batch=batches[cell.id]))
    return probes
