"""Work of a job on its node: describe the node, or make one launch in the run's folder. Yields progress events."""

import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from torchmatrix.core import settings
from torchmatrix.core.errors import BadInput, BuildFailed, LaunchFailed, ToolError
from torchmatrix.core.formatting import count
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Execution, Image
from torchmatrix.facts.host_parts import device_on
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import Proven, proof_of
from torchmatrix.facts.store import RunFolder
from torchmatrix.machine.host import Host
from torchmatrix.machine.telemetry import Watcher
from torchmatrix.matrix.matrix_file import MOST_NODES
from torchmatrix.matrix.workloads import AUTO
from torchmatrix.planning.plan import Cell
from torchmatrix.running import readiness, rounds, run, session
from torchmatrix.running.launch_cell import (
    DeviceReadings,
    Job,
    as_set_now,
    devices_of,
    gpus_of,
    image_record,
    record_failure,
    spec_of,
)
from torchmatrix.running.progress import ProgressEvent
from torchmatrix.running.readiness import Ready
from torchmatrix.running.rounds import build_all
from torchmatrix.running.session import Session
from torchmatrix_plugins.cluster import orders, several_nodes
from torchmatrix_plugins.cluster.orders import NodeError, NodeFacts, RunRequest
from torchmatrix_plugins.cluster.several_nodes import rendezvous_of
from torchmatrix_plugins.cluster.slurm import WARNING_SECONDS, Slurm

GIVEN = {"SLURM_GPUS_ON_NODE": "Slurm", "TORCHMATRIX_POD_GPUS": "Kubernetes"}
"""The variables in which schedulers state how many GPUs a job has on its node."""


def describe(place: Path, name: str) -> None:
    """Write what this node is and what of the order it can run, or the user's error in the order. `place`: of the order."""
    order = orders.read(place)
    try:
        s = _assemble(order, order.globs, order.where)  # with notes on how the lock differs, also where there is none
    except ToolError as error:
        orders.keep_node(order, name, NodeError(error=str(error), hint=error.hint, exit_code=error.exit_code))
        return
    facts = NodeFacts(
        host=s.host,
        machine=s.host.machine,
        prerequisites=s.prerequisites,
        engine=s.engines.why,
        notes=s.notes,
        wrong=why_not_given(s.host),
    )
    orders.keep_node(order, name, facts)


def why_not_given(host: Host) -> str:
    """Return why a node shows other GPUs than its scheduler gave to the job, so that it can't be used; or ""."""
    variable = next((variable for variable in GIVEN if variable in os.environ), "SLURM_GPUS_ON_NODE")
    given = os.environ.get(variable, "")
    number = int(given) if given.isdigit() else 0
    if number == len(host.gpus):
        return ""
    notes = "".join(f"; {note}" for note in host.notes)
    return f"{GIVEN[variable]} gave {count(number, 'GPU')}, but {host.gpus_in_words} can be seen{notes}"


def launch(place: Path, number: int, task: int) -> Generator[ProgressEvent, None, None]:
    """Make the launch `task` of the array `number`, unless another node has made it, or another job makes its array."""
    order = orders.read(place)
    home, launches = orders.launches_of(order, number)
    cell, its_round = launches[task]
    folder = RunFolder(order.results / home / order.run)
    job_id = os.environ.get("SLURM_ARRAY_JOB_ID")
    if folder.is_done(cell, its_round) or (job_id and orders.keep_job(order, number, job_id) != job_id):
        return
    s = session_of(order, [cell], [])
    refuse_others(s.host)
    with run.at_work(s, lambda: folder) as job:
        try:
            peers = several_nodes.peers(place, number, task)
            yield from _launch_cell(s, replace(job, peers=peers), cell, its_round, order, home)
        except KeyboardInterrupt:
            if not _is_out_of_time():
                raise
            planned = next(planned for planned in s.plan.cells if planned.id == cell)
            message = "the job reached its time limit ([slurm] minutes, or the partition's)"
            yield record_failure(
                job, planned, its_round, "timeout", message, f"torchmatrix run --engine {order.scheduler} '{cell}'"
            )


def _is_out_of_time() -> bool:
    """Check whether Slurm asked the job to end because of its time limit."""
    job = os.environ.get("SLURM_JOB_ID")
    left = Slurm(settings.load().slurm).seconds_left(job) if job else None
    return left is not None and left <= 2 * WARNING_SECONDS


def refuse_others(host: Host) -> None:
    """Raise BadInput if the node shows other GPUs than its scheduler gave to the job."""
    if wrong := why_not_given(host):
        raise BadInput(f"{host.name}: {wrong}", hint="drain the node; its GPUs are not what its scheduler takes them for")


def session_of(order: RunRequest, globs: list[str] | tuple[str, ...], where: list[str] | tuple[str, ...]) -> Session:
    s = _assemble(order, globs, where)
    return s if order.held() else session.without_locks(s)


def _assemble(order: RunRequest, globs: list[str] | tuple[str, ...], where: list[str] | tuple[str, ...]) -> Session:
    return session.assemble(order.matrix(), order.held(), order.results, order.engine, globs, where, nodes=MOST_NODES)


def _launch_cell(
    s: Session, job: Job, cell: str, number: int, order: RunRequest, home: str
) -> Generator[ProgressEvent, None, None]:
    """Make the launch of one cell; the session's plan may have its baselines, too."""
    skip = next((skip for skip in s.plan.skips if skip.cell.id == cell), None)
    if skip:
        message = f"{s.host.name} can't run it: {skip.why.reason}"
        yield record_failure(job, skip.cell, number, "crashed", message, f"torchmatrix run '{cell}'")
        return
    planned = next((planned for planned in s.plan.cells if planned.id == cell), None)
    if planned is None:
        raise BadInput(
            f"{s.host.name} has no cell {cell}: {s.host.gpus_in_words}", hint="its devices differ from those asked for"
        )
    built = yield from build_all(job, recipes.stacks_of([planned]))
    batches = yield from _find_batch(job, planned, built[planned.stack.name], order, home)
    here = [launch for launch in job.folder.of_cell(cell) if launch.machine == s.host.machine]
    yield from rounds.measure(job, built, [planned], [[(planned, number)]], _first_proofs(here), batches)


def _find_batch(
    job: Job, cell: Cell, image: Image | BuildFailed, order: RunRequest, home: str
) -> Generator[ProgressEvent, None, dict[tuple[str, str], int | None]]:
    """Return the batch of a cell if it is searched for: the first launch of its stack and workload finds it for all launches.

    These launches are on the same node, which makes one at a time. The batch is searched for on this node alone.
    """
    key = rounds.searched_key(cell)
    if cell.workload.batch != AUTO or isinstance(image, BuildFailed):
        return {}
    if batches := orders.batches_of(order, home, key):
        return batches
    every = session_of(order, order.globs, order.where).plan.cells
    batch = yield from rounds.find_batch(replace(job, peers=None), rounds.searched_on(cell, every), image)
    orders.keep_batch(order, home, key, batch)
    return {key: batch}


def _first_proofs(launches: list[Launch]) -> dict[tuple[str, int], Proven]:
    """Return for each batch the first launch of a cell that was proven in full."""
    newest_first = sorted(launches, key=lambda launch: launch.unix_seconds, reverse=True)
    proofs = [(launch, proof_of(launch)) for launch in newest_first]
    return {(launch.cell, launch.batch_used): proof for launch, proof in proofs if proof and launch.batch_used}


# Taking part in a launch that another node records: run ranks, watch devices, report both in the lines that several_nodes.py
# describes.

Result = TypeVar("Result")
Report = Callable[[dict[str, Any]], None]


def take_part(
    place: Path, number: int, task: int, request: Mapping[str, Any], report: Report, may_begin: Callable[[], bool]
) -> None:
    """Run this node's ranks of the launch `task` of the array `number`.

    `request`: of the recording node. `may_begin`: waits for its signal; False if the recording node has gone.
    """
    order = orders.read(place)
    home, launches = orders.launches_of(order, number)
    name = os.environ["SLURMD_NODENAME"]

    def send(event: str, **fields: Any) -> None:
        report({"event": event, "name": name, **fields})

    try:
        s = session_of(order, [launches[task][0]], [])
        refuse_others(s.host)
        cell = next((cell for cell in s.plan.cells if cell.id == launches[task][0]), None)
        if cell is None:
            raise LaunchFailed(f"it has no cell {launches[task][0]}: {s.host.gpus_in_words}")
        with run.at_work(s, lambda: RunFolder(order.results / home / order.run)) as job:
            image = _build_same(job, cell, request)
            ready = _result_of(readiness.wait(job.sensors, devices_of(cell), job.method))
            rank = 1 + request["nodes"].index(name)
            execution = _start(job, cell, image, request, rank)
            send("node", number=1 + rank, **_facts(job, cell, image, ready, execution))
            if may_begin():
                _run(job, cell, execution, 1 + rank, send)
    except (ToolError, BuildFailed, LaunchFailed) as error:
        send("failed", message=str(error))


def _build_same(job: Job, cell: Cell, request: Mapping[str, Any]) -> Image:
    """Build the stack, which must be that of the recording node."""
    image = _result_of(build_all(job, recipes.stacks_of([cell])))[cell.stack.name]
    if isinstance(image, BuildFailed):
        raise image
    if image.environment != request["environment"]:
        raise LaunchFailed(f"its stack {cell.stack.name} is not that of the recording node")
    return image


def _result_of(work: Generator[object, None, Result]) -> Result:
    """Run a generator without its progress events, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as over:
            result: Result = over.value
            return result


def _start(job: Job, cell: Cell, image: Image, request: Mapping[str, Any], rank: int) -> Execution:
    address = request["address"]
    rendezvous = rendezvous_of(rank, 1 + len(request["nodes"]), address, request["port"], towards=address)
    spec = spec_of(cell, job.owner, tuple(request["arguments"]), request["cache"], job.folder.models, rendezvous)
    return job.engine_for(cell.stack).start(image, spec)


def _facts(job: Job, cell: Cell, image: Image, ready: Ready, execution: Execution) -> dict[str, Any]:
    host = as_set_now(job, cell)
    return {
        "machine": job.host.machine,
        "host": host.as_record(),
        "gpus": asdict(gpus_of(cell, host)),
        "engine": job.engine_facts.get(job.engine_for(cell.stack).name, {}),
        "image": image_record(image),
        "start": ready.as_record(),
        "command": execution.command,
        "started": execution.started,
    }


def _run(job: Job, cell: Cell, execution: Execution, number: int, send: Callable[..., None]) -> None:
    """Watch and read this node's ranks to their end; the readings name their node."""

    def send_readings(readings: list[dict[str, Any]]) -> None:
        send("telemetry", readings=[reading | {"device": device_on(number, reading["device"])} for reading in readings])

    with execution, Watcher(job.sensors, DeviceReadings(execution, send_readings, job, cell)):
        for stream, line in execution.lines():
            send("line", stream=stream, text=line.decode(errors="replace"))
        end = execution.wait()
    send("exit", returncode=end.returncode, oom_killed=end.oom_killed, problem=end.problem)
