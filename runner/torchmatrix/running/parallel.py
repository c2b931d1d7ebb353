"""A plan's cells on disjoint devices at once, if they don't disturb each other; else one after the other. Yields news."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

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
from torchmatrix.running.lanes import Turns, run_concurrently
from torchmatrix.running.launch_cell import Attempt, Job, launch
from torchmatrix.running.launch_order import Allocation, Lane
from torchmatrix.running.news import LanesDecided, LanesProbed, LaunchFinished, News, ProbeFinished
from torchmatrix.running.rounds import turn

# Do launches on different devices disturb each other on this machine? Measured: each lane alone and beside the others.

UNCOUNTED, ALONE, BESIDE = "uncounted", "alone", "beside"
"""What a probe is for. Not counted: the first of a cell, which compiles and is proven in full, and what only disturbs."""


@dataclass(kw_only=True, slots=True)
class Probe:
    """One lane while it is tested: the cell that is launched, the throughputs so far by what they are for, the last seconds."""

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
        """As far as it was measured."""
        alone, beside = self.rates[ALONE], self.rates[BESIDE]
        found = pairs.ratio_of(beside, alone) if len(beside) == len(alone) else UNKNOWN
        return LaneTest(
            devices=self.lane.devices, cell=self.cell.id, ratio=found.value, low=found.low, high=found.high, alone=tuple(alone),
            beside=tuple(beside),
        )  # fmt: skip


def probe_cell(cells: Sequence[Cell]) -> Cell:
    """The cell of a lane that is launched: on most devices, not compiled if possible, as that needs more of the host."""
    return max(cells, key=lambda cell: (len(cell.gpus.indices), not cell.workload.compile))


def least_test_seconds(lanes: Sequence[Lane], known: Mapping[str, float]) -> float:
    """How long the test takes if its first look decides; `known`: seconds by cell id."""
    each = [plan.launch_seconds(probe_cell(lane.cells), 2, known) for lane in lanes]
    return (1 + pairs.LOOKS[0]) * sum(each) + 1.5 * pairs.LOOKS[0] * max(each)


def test_lanes(probes: Sequence[Probe]) -> Generator[News, None, ParallelTest]:
    """Launch the cell of each lane alone and beside those of the others, in turns, until it can be decided.

    The order of the two changes from round to round, so that a drift of the machine falls out. Beside the others, all lanes
    begin together in one round, and in the next one half of them begins in the midst of the others' launches: windows lie
    beside windows, and beside the start of launches. A failed launch ends the test.
    """
    yield LanesProbed(devices=tuple(p.lane.devices for p in probes), least=pairs.LOOKS[0], most=pairs.LOOKS[-1])
    yield from _one_by_one(probes, UNCOUNTED)
    for number in range(1, pairs.LOOKS[-1] + 1):
        order = (ALONE, BESIDE) if number % 2 else (BESIDE, ALONE)
        for kind in order:
            if any(probe.failure for probe in probes):
                return _decided(probes)
            yield from _one_by_one(probes, ALONE) if kind == ALONE else _at_once(probes, number)
        if number in pairs.LOOKS and _is_settled(probes):
            break
    return _decided(probes)


def _is_settled(probes: Sequence[Probe]) -> bool:
    ratios = [pairs.ratio_of(probe.rates[BESIDE], probe.rates[ALONE]) for probe in probes if not probe.failure]
    within = _within(probes)
    return all(pairs.is_shown(one, within) for one in ratios) or any(pairs.is_disturbed(one, within) for one in ratios)


def _within(probes: Sequence[Probe]) -> float:
    return probes[0].job.method.parallel_within


def _decided(probes: Sequence[Probe]) -> ParallelTest:
    within = _within(probes)
    lanes, failures = tuple(probe.result for probe in probes), [probe.failure for probe in probes if probe.failure]
    why = f"a launch of the test failed: {failures[0]}" if failures else pairs.why(lanes, within)
    return ParallelTest(shown=not failures and pairs.all_shown(lanes, within), why=why, lanes=lanes)


def _one_by_one(probes: Sequence[Probe], kind: str) -> Iterator[News]:
    for probe in probes:
        yield from _launched(probe, kind)


def _at_once(probes: Sequence[Probe], number: int) -> Iterator[News]:
    """All lanes together; in even rounds every second one half a launch later, and those before them launch once more."""
    turns = probes[0].job.turns
    assert turns is not None
    if number % 2:
        return run_concurrently([_launched(probe, BESIDE) for probe in probes], turns)
    is_late = [(place + number // 2) % 2 == 0 for place in range(len(probes))]
    return run_concurrently([_late(p, turns) if late else _early(p) for p, late in zip(probes, is_late, strict=True)], turns)


def _late(probe: Probe, turns: Turns) -> Iterator[News]:
    turns.pause(probe.seconds / 2)
    yield from _launched(probe, BESIDE)


def _early(probe: Probe) -> Iterator[News]:
    yield from _launched(probe, BESIDE)
    yield from _launched(probe, UNCOUNTED)


def _launched(probe: Probe, kind: str) -> Iterator[News]:
    """One launch; its throughput goes to the probe, and its end is no news, since it isn't one of the matrix."""
    number = 1 + sum(map(len, probe.rates.values()))
    attempt = Attempt(cell=probe.cell, number=number, batch=probe.batch, probe=kind, proven=probe.proven)
    is_first = not any(probe.rates.values())
    with turn(probe.job, probe.cell, alone=kind == ALONE or is_first):
        for item in launch(probe.job, attempt, probe.image):
            if not isinstance(item, LaunchFinished):
                yield item
                continue
            probe.proven = probe.proven or proof_of(item.launch)
            rate, probe.seconds = throughput(item.launch), item.seconds
            if math.isnan(rate):
                probe.failure = f"{probe.cell.id}: {item.launch.outcome}: {item.launch.error}"
            else:
                probe.rates[kind].append(rate)
            yield ProbeFinished(cell=probe.cell)


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
            yield from run_concurrently(
                [rounds.measure(own, built, cells, schedules.of(lane.cells)) for own, lane in each], turns
            )
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
        test = yield from test_lanes(probes)
        job.folder.append("parallel", **_record(test, job.method.parallel_within))
    yield LanesDecided(at_once=test.shown, why=pairs.in_words(test))
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
            cell = probe_cell(fit)
            image = built[cell.stack.name]
            assert isinstance(image, Image)
            found.append(Probe(lane=lane, job=own, cell=cell, image=image, batch=batches[cell.id]))
    return found


def _record(test: ParallelTest, within: float) -> dict[str, Any]:
    """A line of the run's record."""
    lanes = [none_for_nan(asdict(lane)) for lane in test.lanes]
    return {"shown": test.shown, "why": test.why, "within": within, "lanes": lanes}
