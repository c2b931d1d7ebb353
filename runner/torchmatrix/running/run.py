"""Open, measure and close one run of a session's plan. Yields progress events, prints nothing."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from torchmatrix.core import __version__, settings
from torchmatrix.core.errors import BuildFailed, EngineUnusable, NothingSelected
from torchmatrix.engines import recipes
from torchmatrix.facts.alike import counting
from torchmatrix.facts.launch import UNFINISHED, Launch, throughput
from torchmatrix.facts.operations import MICRO
from torchmatrix.facts.store import RunFolder, run_event
from torchmatrix.machine.claims import claimed
from torchmatrix.machine.host_gpus import Gpu
from torchmatrix.machine.telemetry import UNWATCHED, Sensor
from torchmatrix.matrix.workloads import AUTO, changed, ddp_id
from torchmatrix.planning import plan
from torchmatrix.planning.plan import Cell
from torchmatrix.running import launch_order, rounds, session
from torchmatrix.running.launch_cell import Job
from torchmatrix.running.progress import BudgetSpent, ProgressEvent
from torchmatrix.running.readiness import Patience
from torchmatrix.running.rounds import build_all
from torchmatrix.running.session import Session

QUIET_WAIT_MINUTES = 5.0


@contextmanager
def open_job(
    s: Session, *, new: bool = False, command: str = "", beside: bool | None = None, measures: bool = True
) -> Iterator[Job]:
    """Lock the results, remove orphans, open the run to continue or a new one; clean up again on the way out.

    `beside`: as in `alone`. `measures`: else nothing is launched, only built.
    """

    def folder() -> RunFolder:
        home = s.results.home(s.host.name, s.host.machine)
        return (None if new else s.results.unfinished(home, s.key)) or s.results.new_run(home)

    seconds = measuring_seconds(s.launches, known_seconds(s), {}) if measures else 0.0
    with alone(s, (gpu for cell in s.plan.cells for gpu in cell.gpus.gpus), seconds, beside), at_work(s, folder) as job:
        if command and not job.folder.record.exists():
            open_record(s, job.folder, command, job.watch_notes)
        yield job


@contextmanager
def alone(s: Session, gpus: Iterable[Gpu], seconds: float, beside: bool | None = None) -> Iterator[None]:
    """Lock the results, and claim GPUs, and the CPUs, for about so many seconds; none for 0.

    Raises EngineUnusable if another run measures on them, unless this one may run `beside` that (claims.claimed).
    """
    claim = claimed(s.results.root, {gpu.uuid for gpu in gpus}, seconds, beside) if s.is_here and seconds else nullcontext()
    with s.results.hold(), claim:
        yield


@contextmanager
def at_work(s: Session, folder: Callable[[], RunFolder]) -> Iterator[Job]:
    """Prepare launches on this machine into `folder`: open sensors, remove orphans; clean up again on the way out."""
    with watching(s) as (sensors, notes):
        session.remove_orphans(s)
        job = replace(
            job_of(s, folder()),
            sensors=sensors,
            watch_notes=notes,
            marks=session.marks_folder(),
            engine_facts={engine.name: engine.facts() for engine in s.engines.every},
        )
        try:
            yield job
        finally:
            with suppress(EngineUnusable):  # a lost engine has been reported; the next start finds what it left
                session.remove_orphans(s)


def job_of(s: Session, folder: RunFolder) -> Job:
    """Return what launches need of a session, without sensors and engine facts of this machine."""
    return Job(
        folder=folder,
        host=s.host,
        owner=s.results.owner,
        timeout_seconds=s.matrix.timeout_seconds,
        seed=s.matrix.seed,
        method=s.matrix.method,
        patience=Patience(seconds=_quiet_wait_seconds(s) if s.is_here else 0.0),
        engine_for=s.engine_for,
        recipe_for=s.recipe_for,
    )


def _quiet_wait_seconds(s: Session) -> float:
    """Return how long launches wait for other programs: as the matrix says, or this site."""
    said = (s.matrix.quiet_wait_minutes, settings.load().quiet_wait_minutes, QUIET_WAIT_MINUTES)
    return 60 * next(minutes for minutes in said if minutes is not None)


@contextmanager
def watching(s: Session) -> Iterator[tuple[Sequence[Sensor], Sequence[str]]]:
    """Open the machine's sensors; none where the engine runs elsewhere."""
    if not s.is_here:
        yield (), (f"{UNWATCHED}: the engine runs on another machine",)
        return
    from torchmatrix.machine.telemetry.cpu import open_sensors

    with open_sensors(s.host) as sensors_and_notes:
        yield sensors_and_notes


def open_record(s: Session, folder: RunFolder, command: str, watch_notes: Sequence[str], **more: Any) -> None:
    """Begin the run's record: host, matrix, planned cells, skips; `more`: further fields of its first line."""
    header = run_event(
        "run",
        tool=__version__,
        key=s.key,
        command=command,
        machine=s.host.machine,
        host=s.host.as_record(),
        matrix=s.matrix.text,
        launches=s.matrix.method.launches,
        method=asdict(s.matrix.method),
        watch_notes=list(watch_notes),
        seed=s.matrix.seed,
        workload_hash=recipes.workload_hash(),
        **more,
    )
    planned = [{"event": "planned", **_cell_record(cell)} for cell in s.plan.cells]
    skips = [{"event": "skip", **_cell_record(skip.cell), **asdict(skip.why)} for skip in s.plan.skips]
    folder.open_record([header, *planned, *skips])


def _cell_record(cell: Cell) -> dict[str, Any]:
    """Return a cell's id and the fields that it is made of, so that no reader has to parse the id."""
    return {
        "cell": cell.id,
        "stack": cell.stack.name,
        "workload": cell.workload.id,
        "ddp_workload": ddp_id(cell.workload),
        "parallel": cell.workload.parallel,
        "devices": cell.gpus.label,
        "indices": list(cell.gpus.indices),
        "nodes": cell.gpus.nodes,
    }


def todo(s: Session, folder: RunFolder) -> list[tuple[Cell, int]]:
    """Return what an earlier session of this run hasn't done: repetitions of spoilt launches, and launches known beforehand."""
    cells, patience = {cell.id: cell for cell in s.plan.cells}, _quiet_wait_seconds(s) if s.is_here else 0.0
    ended = _ended(folder)
    tries = Counter((launch.cell, launch.round) for launch in ended)
    once = (launch for launch in ended if tries[launch.cell, launch.round] == 1 and launch.cell in cells)
    again = [(cells[launch.cell], launch.round) for launch in once if rounds.is_repeated(launch, patience)]
    never = {launch.cell for launch in ended if rounds.can_only_fail_again(launch)}
    left = [(cell, number) for cell, number in s.launches if not tries[cell.id, number] and cell.id not in never]
    return sorted([*again, *left], key=lambda launch: launch[1]) if again else left


def done(folder: RunFolder, left: Iterable[tuple[Cell, int]]) -> int:
    """Count the launches that earlier sessions of this run did, of whichever round, but those of which something is left."""
    return len({(launch.cell, launch.round) for launch in _ended(folder)} - {(cell.id, number) for cell, number in left})


def _ended(folder: RunFolder) -> list[Launch]:
    return [launch for launch in folder.launches() if launch.outcome not in UNFINISHED]


def further(s: Session, folder: RunFolder, cells: Sequence[Cell]) -> list[tuple[Cell, int]]:
    """Return the next launches of `cells`, whose first rounds are over, with an adaptive method; empty with another method.

    A cell whose newest launch failed has no further ones: what broke it would break them, too.
    """
    method = s.matrix.method
    if not method.further:
        return []
    launches = folder.launches()
    ended = {(launch.cell, launch.round) for launch in launches if launch.outcome not in UNFINISHED}

    def wanted(number: int) -> Collection[str]:
        before = counting(launch for launch in launches if launch.round < number)
        newest = {launch.cell: launch for launch in sorted(before, key=lambda launch: launch.round)}
        failed = {cell for cell, launch in newest.items() if launch.has_failed}
        if method.until is None:
            return _undecided(before, method.launches + method.further) - failed
        rates: dict[str, list[float]] = {cell.id: [] for cell in cells}
        for launch in before:
            if launch.is_ok and launch.cell in rates and launch.cell not in failed:
                rates[launch.cell].append(throughput(launch))
        return launch_order.too_wide(cells, method, rates)

    return launch_order.next_round(cells, method, s.matrix.seed, wanted, lambda cell, number: (cell.id, number) in ended)


def _undecided(launches: Sequence[Launch], most: int) -> set[str]:
    from torchmatrix.analysis import run_summary, speedups  # with numpy, which other methods don't need
    from torchmatrix.analysis.cells import CellIndex

    return speedups.undecided(CellIndex(run_summary.launch_rows(launches)), most)


def _scheduled(
    s: Session, job: Job, left: list[tuple[Cell, int]], passed: Callable[[], float], spent: list[BudgetSpent]
) -> Iterator[list[tuple[Cell, int]]]:
    """Yield the launches in `left` round by round; an adaptive method chooses further rounds by what was measured meanwhile.

    `passed`: seconds since the first launch. `spent`: gets the news that the budget ended further rounds.
    """
    passed()
    yield from launch_order.in_rounds(left)
    earlier: list[tuple[Cell, int]] = []
    while (launches := further(s, job.folder, s.plan.cells)) and launches != earlier:  # else nothing came of the last ones
        earlier = launches
        if s.matrix.method.budget_seconds is not None and passed() > s.matrix.method.budget_seconds:
            spent.append(BudgetSpent(cells=len({cell.id for cell, _ in launches})))
            return
        yield launches


def _stopwatch() -> Callable[[], float]:
    """Return a function that gives the seconds since its first call."""
    calls: list[float] = []

    def passed() -> float:
        calls.append(time.monotonic())
        return calls[-1] - calls[0]

    return passed


def measure(s: Session, job: Job, left: list[tuple[Cell, int]], estimated: float) -> Generator[ProgressEvent, None, None]:
    """Execute what is left of the run (see `todo`) and record its end, with its estimate in seconds."""
    begin = time.monotonic()
    cells = list(s.plan.cells)
    spent: list[BudgetSpent] = []
    yield from rounds.execute(job, recipes.stacks_of(cells), cells, _scheduled(s, job, left, _stopwatch(), spent))
    yield from spent
    job.folder.append("run-exit", complete=True, seconds=time.monotonic() - begin, estimated_seconds=estimated)


def build(s: Session, job: Job) -> Generator[ProgressEvent, None, tuple[str, ...]]:
    """Build the stacks of the plan and nothing else; return the names of those that could not be built."""
    built = yield from build_all(job, recipes.stacks_of(s.plan.cells))
    return tuple(name for name, image in built.items() if isinstance(image, BuildFailed))


def find_batches(s: Session, job: Job) -> Generator[ProgressEvent, None, list[int | None]]:
    """Return the largest batch of every stack and workload, each on its largest device set; None where there is none."""
    largest: dict[tuple[str, str], Cell] = {}
    for cell in (cell for cell in s.plan.cells if cell.workload.mode != MICRO):  # an operation has no batch
        key = (cell.stack.name, changed(cell.workload, batch=AUTO).id)
        if key not in largest or cell.gpus.count > largest[key].gpus.count:
            largest[key] = cell
    if not largest:
        raise NothingSelected("operations of microbenchmarks have no batch", hint="select cells of models")
    return (yield from rounds.find_batches(job, recipes.stacks_of(s.plan.cells), list(largest.values())))


def outcomes(folder: RunFolder) -> dict[str, int]:
    """Count how many launches ended how, by the last try of each."""
    return dict(Counter(launch.outcome for launch in counting(folder.launches())))


# Estimates of the time that a session's launches, and the work before them, may take on this machine.


def known_seconds(s: Session) -> dict[str, float]:
    """Return the average seconds of each cell's earlier launches on this machine, by id; drifting launches take far longer."""
    return {cell: fmean(taken) for cell, taken in _earlier_seconds(s).items()}


def longest_seconds(s: Session, launches: list[tuple[Cell, int]]) -> float:
    """Add up the launches, one after the other, each as long as the longest earlier one of its cell; without one, as a launch
    that warms up until the cap and is timed once more.
    """
    earlier = _earlier_seconds(s)

    def longest(cell: Cell, number: int) -> float:
        factors = cell.workload.factors
        again = float(factors["warmup_cap_seconds"] + (factors["windows"] or 1) * factors["seconds"])
        return max(earlier.get(cell.id, ()), default=0.0) or plan.launch_seconds(cell, number, {}) + again

    return sum(longest(cell, number) for cell, number in launches)


def _earlier_seconds(s: Session) -> dict[str, list[float]]:
    return s.results.seconds_by_cell(s.results.home(s.host.name, s.host.machine), s.matrix.method.name)


def measuring_seconds(launches: list[tuple[Cell, int]], known: dict[str, float], node_of: Mapping[str, str]) -> float:
    """Estimate the launches: those of a cluster's node that takes longest. `node_of`: by cell id, empty on this machine."""
    by_node: dict[str, list[tuple[Cell, int]]] = {}
    for cell, number in launches:
        by_node.setdefault(node_of.get(cell.id, ""), []).append((cell, number))
    return max((plan.total_seconds(of_node, [], known) for of_node in by_node.values()), default=0.0)


def preparing_seconds(s: Session, launches: list[tuple[Cell, int]], known: dict[str, float]) -> float:
    """Estimate what comes before the launches: missing builds, and heating."""
    stacks = recipes.stacks_of(cell for cell, _ in launches)
    builds = [
        s.engine_for(stack).capabilities.build_seconds
        for stack in stacks
        if not recipes.ready_recipe(stack, s.engine_for(stack), s.locks.get(stack.name))
    ]
    if not s.matrix.method.warm_seconds or not launches:
        return sum(builds)
    chosen = rounds.heating_cell([cell for cell, _ in launches])  # at most as long as a launch of it, which has windows, too
    return sum(builds) + plan.launch_seconds(chosen, 2, known)
