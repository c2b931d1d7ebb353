"""One run of a session's plan: opened, measured, closed. Yields news, prints nothing."""

import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from torchmatrix import __version__
from torchmatrix.engines import recipes
from torchmatrix.facts.launch import last_tries, throughput
from torchmatrix.facts.store import run_event
from torchmatrix.ground.errors import BuildFailed, EngineUnusable
from torchmatrix.machine.telemetry import Sensor
from torchmatrix.matrix.workloads import AUTO, changed, ddp_id
from torchmatrix.planning import estimate
from torchmatrix.planning.plan import Cell
from torchmatrix.running import housekeeping, launch_order, rounds
from torchmatrix.running.build_stacks import build_all
from torchmatrix.running.launch_cell import Job
from torchmatrix.running.news import News
from torchmatrix.running.session import Session


@contextmanager
def opened(s: Session, *, new: bool = False, command: str = "") -> Iterator[Job]:
    """Lock the results, remove orphans, open the run to continue or a new one; cleans up again on the way out."""
    with s.results.hold(), watching(s) as (sensors, notes):
        housekeeping.remove_orphans(s)
        home = s.results.home(s.host.name, s.host.machine)
        folder = None if new else s.results.unfinished(home, s.key)
        if folder is None:
            folder = s.results.new_run(home)
        job = Job(
            folder=folder,
            host=s.host,
            owner=s.results.owner,
            timeout_seconds=s.matrix.timeout_seconds,
            seed=s.matrix.seed,
            method=s.matrix.method,
            engine_for=s.engine_for,
            recipe_for=s.recipe_for,
            sensors=sensors,
            watch_notes=notes,
            marks=housekeeping.marks_folder(),
            engine_facts={engine.name: engine.facts() for engine in s.engines.every},
        )
        if command and not folder.record.exists():
            _open_record(s, job, command)
        try:
            yield job
        finally:
            with suppress(EngineUnusable):  # a lost engine has been reported; the next start finds what it left
                housekeeping.remove_orphans(s)


@contextmanager
def watching(s: Session) -> Iterator[tuple[Sequence[Sensor], Sequence[str]]]:
    """The machine's sensors; none where the engine runs elsewhere."""
    if not s.is_here:
        yield (), ("the engine runs on another machine: no temperature, clocks, power, energy",)
        return
    from torchmatrix.machine.telemetry.sensors import opened

    with opened(s.host) as found:
        yield found


def _open_record(s: Session, job: Job, command: str) -> None:
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
        watch_notes=list(job.watch_notes),
        seed=s.matrix.seed,
        workload_hash=recipes.workload_hash(),
    )
    planned = [{"event": "planned", **_cell_record(cell)} for cell in s.plan.cells]
    skips = [{"event": "skip", **_cell_record(k.cell), "reason": k.why.reason, "fix": k.why.fix} for k in s.plan.skips]
    job.folder.open_record([header, *planned, *skips])


def _cell_record(cell: Cell) -> dict[str, Any]:
    """A cell's id and the fields that it is made of, so that no reader has to take it apart."""
    return {
        "cell": cell.id,
        "stack": cell.stack.name,
        "workload": cell.workload.id,
        "ddp_workload": ddp_id(cell.workload),
        "parallel": cell.workload.parallel,
        "devices": cell.gpus.label,
        "indices": list(cell.gpus.indices),
    }


def todo(s: Session, job: Job) -> list[tuple[Cell, int]]:
    """The launches known beforehand that an earlier session of this run hasn't done."""
    return [(cell, number) for cell, number in s.launches if not job.folder.is_done(cell.id, number)]


def _scheduled(s: Session, job: Job, left: list[tuple[Cell, int]]) -> Iterator[tuple[Cell, int]]:
    """`left`, in its order; with an adaptive method what is left depends on what was measured meanwhile."""
    method, begin = s.matrix.method, time.monotonic()
    if method.until is None:
        yield from left
        return

    def is_over() -> bool:
        return method.budget_seconds is not None and time.monotonic() - begin > method.budget_seconds

    def rates(cell: Cell) -> list[float]:
        return [throughput(launch) for launch in last_tries(job.folder.of_cell(cell.id)) if launch.outcome == "ok"]

    for cell, number in launch_order.adaptive(s.plan.cells, method, s.matrix.seed, rates, is_over):
        if not job.folder.is_done(cell.id, number):
            yield cell, number


def known_seconds(s: Session) -> dict[str, float]:
    """How long cells took on this machine before, by id."""
    return s.results.seconds_by_cell(s.results.home(s.host.name, s.host.machine))


def estimate_seconds(s: Session, launches: list[tuple[Cell, int]], known: dict[str, float]) -> float:
    """For the launches and for the stacks among them that are not built."""
    stacks = recipes.stacks_of(cell for cell, _ in launches)
    builds = [
        s.engine_for(stack).capabilities.build_seconds
        for stack in stacks
        if not recipes.ready_recipe(stack, s.engine_for(stack), s.locks.get(stack.name))
    ]
    return estimate.total_seconds(launches, builds, known)


def measure(s: Session, job: Job, left: list[tuple[Cell, int]], estimated: float) -> Generator[News, None, None]:
    """Execute what is left of the run (see `todo`) and, at its end, say so in its record, with its estimate in seconds."""
    begin = time.monotonic()
    yield from rounds.execute(job, recipes.stacks_of(s.plan.cells), list(s.plan.cells), _scheduled(s, job, left))
    job.folder.append("run-exit", complete=True, seconds=time.monotonic() - begin, estimated_seconds=estimated)


def build(s: Session, job: Job) -> Generator[News, None, tuple[str, ...]]:
    """Build the stacks of the plan and nothing else; returns those that could not be built."""
    built = yield from build_all(job, recipes.stacks_of(s.plan.cells))
    return tuple(name for name, image in built.items() if isinstance(image, BuildFailed))


def find_batches(s: Session, job: Job) -> Generator[News, None, list[int | None]]:
    """The largest batch of every stack and workload, each on the largest of its device sets; None where there is none."""
    largest: dict[tuple[str, str], Cell] = {}
    for cell in s.plan.cells:
        key = (cell.stack.name, changed(cell.workload, batch=AUTO).id)
        if key not in largest or len(cell.gpus.indices) > len(largest[key].gpus.indices):
            largest[key] = cell
    return (yield from rounds.find_batches(job, recipes.stacks_of(s.plan.cells), list(largest.values())))


def outcomes(job: Job) -> dict[str, int]:
    """How many launches ended how, counting the last try of each."""
    return dict(Counter(launch.outcome for launch in last_tries(job.folder.launches())))
