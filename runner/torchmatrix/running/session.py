"""What the verbs share: the matrix, the machine, the engines and the plan, made once per command; prints nothing."""

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from torchmatrix import __version__
from torchmatrix.engines import locked_stacks, lockfile, recipes, supplies
from torchmatrix.engines.engine import Engine, Leftover, Recipe
from torchmatrix.engines.local import LocalEngine
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.facts.launch import last_tries, throughput
from torchmatrix.facts.store import Results, run_event
from torchmatrix.ground.errors import BadInput, EngineUnusable
from torchmatrix.ground.settings import cache_folder
from torchmatrix.machine.host import Host, detect, seen_through
from torchmatrix.machine.telemetry import Sensor
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.method import Request
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import AUTO, changed
from torchmatrix.planning import estimate
from torchmatrix.planning.fit import Supplies
from torchmatrix.planning.plan import Cell, Plan, make_plan, select
from torchmatrix.running import launch_order, rounds
from torchmatrix.running.build_stacks import build_all
from torchmatrix.running.launch_cell import Job
from torchmatrix.running.news import News

ENGINES = ("auto", "docker", "local")
AS_THE_MATRIX_SAYS = Request()


@dataclass(frozen=True, kw_only=True)
class Session:
    """One command's view of the world. `launches`: those known beforehand, in order; `key` says what was asked for.

    `is_here`: the engine runs on this machine, so that its devices can be watched. `locks`: of the stacks that are built
    from matrix.lock; `notes`: which stacks are not, and why.
    """

    matrix: Matrix
    host: Host
    engines: dict[str, Engine]
    engine_choice: str
    plan: Plan
    supplies: Supplies
    locks: Mapping[str, StackLock]
    notes: tuple[str, ...]
    launches: list[tuple[Cell, int]]
    results: Results
    key: str
    is_here: bool

    def engine_for(self, stack: Stack) -> Engine:
        """An interpreter of this machine runs locally whatever the engine; all else on the chosen one."""
        return self.engines["local"] if stack.source == "interpreter" else builder_of(self.engines)

    def recipe_for(self, stack: Stack) -> Recipe:
        """The recipe that is built, or can be; the locked one where there is a lock."""
        return recipes.choose_recipe(stack, self.engine_for(stack), self.supplies.unreachable, self.locks.get(stack.name))


def prepare(
    path: Path,
    results: Path,
    engine: str,
    globs: Sequence[str],
    where: Sequence[str],
    request: Request = AS_THE_MATRIX_SAYS,
    explain: bool = False,
    locked: bool = False,
) -> Session:
    """Read the matrix, look at the machine, choose the engine, make the plan. Raises ToolError.

    `explain`: with the cells that tell where the scaling loss comes from, for every selected one. `locked`: refuse what
    matrix.lock doesn't hold as the matrix asks for it now.
    """
    asked = matrix_file.under(matrix_file.load(path), request)
    place = locked_stacks.path_beside(path)
    held = lockfile.read(place)
    s = assemble(matrix_file.explained(asked) if explain else asked, held, results, engine, globs, where)
    if locked and s.notes:
        listing = "".join(f"\n  {line}" for line in s.notes)
        hint = "torchmatrix lock brings it up to date"
        raise BadInput(f"{place} does not hold what the matrix asks for:{listing}", hint=hint)
    return s if held else without_locks(s)


def assemble(
    asked: Matrix,
    held: Mapping[str, StackLock],
    results: Path,
    engine: str,
    globs: Sequence[str],
    where: Sequence[str],
) -> Session:
    """What `asked` means on this machine; `held`: the locks there are, used where they hold what the matrix asks for."""
    store = Results(results)
    engines, choice = choose_engines(engine, store)
    here = host = detect()
    if "docker" in engines:
        over_network = os.environ.get("DOCKER_HOST", "").startswith(("ssh://", "tcp://"))
        host = seen_through(host, engines["docker"].facts(), over_network)
    locks, drifts = locked_stacks.applicable(held, asked.stacks, builder_of(engines))
    plan, found, wanted = _plan(asked, host, engines, locks, globs, where, is_here=host is here)
    ids = sorted(cell.id for cell in plan.cells)
    key = [asked.digest, ids, [gpu.uuid for gpu in host.gpus], asdict(asked.method), recipes.workload_hash(), sorted(engines)]
    key += sorted(one.sha256 for one in locks.values())
    return Session(
        matrix=asked,
        host=host,
        engines=engines,
        engine_choice=choice,
        plan=plan,
        supplies=found,
        locks=locks,
        notes=locked_stacks.unlocked(wanted, locks, drifts),
        launches=list(launch_order.interleave(plan.cells, asked.method.launches, asked.seed)),
        is_here=host is here,
        results=store,
        key=hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16],
    )


def without_locks(s: Session) -> Session:
    """The same, on what the stacks' own recipes give."""
    return replace(s, locks={}, notes=())


def choose_engines(asked: str, results: Results) -> tuple[dict[str, Engine], str]:
    """The engines by name and a sentence saying which and why. Raises EngineUnusable where Docker was asked for by name."""
    if asked not in ENGINES:
        raise BadInput(f'unknown engine "{asked}"', hint=f"engines: {', '.join(ENGINES)}")
    cache = cache_folder()
    engines: dict[str, Engine] = {"local": LocalEngine(cache, results.owner)}
    if asked == "local":
        return engines, f"local (as asked); virtualenvs under {cache}"
    if asked == "auto" and not _docker_may_answer():
        return engines, f"local, since no Docker socket was found; virtualenvs under {cache}"
    from torchmatrix.engines.docker import DockerEngine, connect

    try:
        engines["docker"] = DockerEngine(connect())
    except EngineUnusable as error:
        if asked == "docker" or "DOCKER_HOST" in os.environ:
            raise
        return engines, f"local, since {error}; virtualenvs under {cache}"
    return engines, f"docker at {os.environ.get('DOCKER_HOST', 'the default socket')}"


def builder_of(engines: Mapping[str, Engine]) -> Engine:
    """The engine that builds and runs all but interpreters of this machine."""
    return engines.get("docker") or engines["local"]


def marks_folder() -> Path:
    """Where it is remembered what the self-tests of images found."""
    return cache_folder() / "self-tests"


def docker_answers() -> bool:
    """Is there a Docker daemon to build with?"""
    from torchmatrix.engines.docker import connect

    try:
        connect().close()
    except EngineUnusable:
        return False
    return True


def _docker_may_answer() -> bool:
    return "DOCKER_HOST" in os.environ or Path("/var/run/docker.sock").exists()


def _plan(
    asked: Matrix,
    host: Host,
    engines: dict[str, Engine],
    locks: Mapping[str, StackLock],
    globs: Sequence[str],
    where: Sequence[str],
    *,
    is_here: bool,
) -> tuple[Plan, Supplies, list[Stack]]:
    """The selected plan. What building takes is looked at only for stacks that run here otherwise; these are named too."""
    containers = "docker" in engines
    plan = select(make_plan(asked, host, Supplies(containers=containers)), globs, where)
    wanted = recipes.stacks_of(plan.cells)
    found = supplies.find(wanted, builder_of(engines), locks, cache_folder(), is_here)
    if any(stack.name not in found.built for stack in wanted if stack.source != "interpreter"):
        plan = select(make_plan(asked, host, found), globs, where)
    return plan, found, wanted


@contextmanager
def hold(s: Session, *, new: bool = False, command: str = "") -> Iterator[Job]:
    """Lock the results, remove orphans, open the run to continue or a new one; cleans up again on the way out."""
    with s.results.hold(), watching(s) as (sensors, notes):
        _remove_orphans(s)
        folder = None if new else s.results.unfinished(s.host.name, s.key)
        if folder is None:
            folder = s.results.new_run(s.host.name)
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
            marks=marks_folder(),
            engine_facts={name: engine.facts() for name, engine in s.engines.items()},
        )
        if command and not folder.record.exists():
            _open_record(s, job, command)
        try:
            yield job
        finally:
            with suppress(EngineUnusable):  # a lost engine has been reported; the next start finds what it left
                _remove_orphans(s)


@contextmanager
def watching(s: Session) -> Iterator[tuple[Sequence[Sensor], Sequence[str]]]:
    """The machine's sensors; none where the engine runs elsewhere."""
    if not s.is_here:
        yield (), ("the engine runs on another machine: no temperature, clocks, power, energy",)
        return
    from torchmatrix.machine.telemetry.sensors import opened

    with opened(s.host) as found:
        yield found


def _remove_orphans(s: Session) -> None:
    for engine in s.engines.values():
        engine.remove_orphans(s.results.owner)


def _open_record(s: Session, job: Job, command: str) -> None:
    header = run_event(
        "run",
        tool=__version__,
        key=s.key,
        command=command,
        host=s.host.as_record(),
        matrix=s.matrix.text,
        launches=s.matrix.method.launches,
        method=asdict(s.matrix.method),
        watch_notes=list(job.watch_notes),
        seed=s.matrix.seed,
        workload_hash=recipes.workload_hash(),
    )
    planned = [{"event": "planned", "cell": cell.id} for cell in s.plan.cells]
    skips = [{"event": "skip", "cell": k.cell.id, "reason": k.why.reason, "fix": k.why.fix} for k in s.plan.skips]
    job.folder.open_record([header, *planned, *skips])


def todo(s: Session, job: Job) -> list[tuple[Cell, int]]:
    """The launches known beforehand that an earlier session of this run hasn't done."""
    return [(cell, number) for cell, number in s.launches if not job.folder.is_done(cell.id, number)]


def scheduled(s: Session, job: Job, left: list[tuple[Cell, int]]) -> Iterator[tuple[Cell, int]]:
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
    return s.results.seconds_by_cell(s.host.name)


def estimate_seconds(s: Session, launches: list[tuple[Cell, int]], known: dict[str, float]) -> float:
    """For the launches and for the stacks among them that are not built."""
    stacks = recipes.stacks_of(cell for cell, _ in launches)
    builds = [
        s.engine_for(stack).name
        for stack in stacks
        if not recipes.ready_recipe(stack, s.engine_for(stack), s.locks.get(stack.name))
    ]
    return estimate.total_seconds(launches, builds, known)


def run(s: Session, job: Job, left: list[tuple[Cell, int]]) -> Iterator[News]:
    """Execute what is left of the run (see `todo`) and, at its end, say so in its record."""
    begin = time.monotonic()
    yield from rounds.execute(job, recipes.stacks_of(s.plan.cells), list(s.plan.cells), scheduled(s, job, left))
    job.folder.append("run-exit", complete=True, seconds=time.monotonic() - begin)


def build(s: Session, job: Job) -> Iterator[News]:
    """Build the stacks of the plan and nothing else."""
    yield from build_all(job, recipes.stacks_of(s.plan.cells))


def find_batches(s: Session, job: Job) -> Iterator[News]:
    """The largest batch of every stack and workload, each on the largest of its device sets."""
    largest: dict[tuple[str, str], Cell] = {}
    for cell in s.plan.cells:
        key = (cell.stack.name, changed(cell.workload, batch=AUTO).id)
        if key not in largest or len(cell.gpus.indices) > len(largest[key].gpus.indices):
            largest[key] = cell
    yield from rounds.find_batches(job, recipes.stacks_of(s.plan.cells), list(largest.values()))


def lockable(matrix_path: Path, results: Path, engine: str, globs: Sequence[str]) -> tuple[list[Stack], Engine, frozenset[str]]:
    """The stacks of the matrix that can be locked, the engine that resolves them, and the indexes that don't answer."""
    engines, _ = choose_engines(engine, Results(results))
    held = [stack for stack in matrix_file.load(matrix_path).stacks if stack.source != "interpreter"]
    chosen = [stack for stack in held if not globs or any(fnmatchcase(stack.name, glob) for glob in globs)]
    unreachable = frozenset(recipes.unreachable_indexes(recipes.indexes_to_probe(chosen)))
    return chosen, builder_of(engines), unreachable


def leftovers(matrix_path: Path, results: Path, engine: str, everything: bool) -> list[tuple[Engine, Leftover]]:
    """What the engines keep that the matrix's stacks don't need, or all of it; each with its engine."""
    stacks = () if everything else matrix_file.load(matrix_path).stacks
    locks = {} if everything else lockfile.read(locked_stacks.path_beside(matrix_path))
    keep = {r.environment for stack in stacks for held in (None, locks.get(stack.name)) for r in recipes.recipes(stack, held)}
    engines, _ = choose_engines(engine, Results(results))
    return [(engine, leftover) for engine in engines.values() for leftover in engine.leftovers(keep)]


def final_outcomes(job: Job) -> dict[str, int]:
    """How many launches ended how, counting the last try of each."""
    return dict(Counter(launch.outcome for launch in last_tries(job.folder.launches())))
