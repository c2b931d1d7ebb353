"""What a job does on its node: says what the node is, or makes one launch in the run's folder. Yields news, prints nothing."""

import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from torchmatrix.core import settings
from torchmatrix.core.errors import BadInput, BuildFailed, LaunchFailed, ToolError
from torchmatrix.core.formatting import count
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Execution, Image, LaunchSpec
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.parts import device_on
from torchmatrix.facts.reading import Proven, proof_of
from torchmatrix.facts.store import RunFolder
from torchmatrix.machine.host import Host
from torchmatrix.machine.telemetry import Watcher
from torchmatrix.matrix.matrix_file import MOST_NODES
from torchmatrix.matrix.workloads import AUTO
from torchmatrix.planning.plan import Cell
from torchmatrix.running import readiness, rounds, run, session
from torchmatrix.running.cluster import orders, several_nodes
from torchmatrix.running.cluster.orders import NodeError, NodeFacts, Order
from torchmatrix.running.cluster.several_nodes import meeting_of
from torchmatrix.running.cluster.slurm import WARNING_SECONDS, Slurm
from torchmatrix.running.launch_cell import (
    DeviceReadings,
    Job,
    as_set_now,
    devices_of,
    gpus_of,
    image_record,
    model_file_of,
    record_failure,
)
from torchmatrix.running.news import News
from torchmatrix.running.readiness import Ready
from torchmatrix.running.rounds import build_all
from torchmatrix.running.session import Session

GIVEN = "SLURM_GPUS_ON_NODE"
"""The variable in which Slurm says how many GPUs a job has on its node."""


def describe(place: Path, name: str) -> None:
    """Say what this node is, and what of the order it can run; an error of the user's is said, too. `place`: of the order."""
    order = orders.read(place)
    try:
        s = _assembled(order, order.globs, order.where)  # which says how the lock differs, also where there is none
    except ToolError as error:
        orders.keep_node(order, name, NodeError(error=str(error), hint=error.hint, exit_code=error.exit_code))
        return
    said = NodeFacts(
        host=s.host,
        machine=s.host.machine,
        supplies=s.supplies,
        engine=s.engines.why,
        notes=s.notes,
        wrong=why_not_given(s.host, os.environ.get(GIVEN)),
    )
    orders.keep_node(order, name, said)


def why_not_given(host: Host, given: str | None) -> str:
    """Why a node can't be used: it shows other GPUs than Slurm gave to the job; empty if it shows as many.

    `given`: how many, in Slurm's words; None where it gives none.
    """
    number = int(given) if given and given.isdigit() else 0
    if number == len(host.gpus):
        return ""
    notes = "".join(f"; {note}" for note in host.notes)
    return f"Slurm gave {count(number, 'GPU')}, but {host.gpus_in_words} can be seen{notes}"


def launch(place: Path, number: int, task: int) -> Generator[News, None, None]:
    """Make the launch `task` of the array `number`, unless another node has made it meanwhile."""
    order = orders.read(place)
    home, launches = orders.launches_of(order, number)
    cell, its_round = launches[task]
    folder = RunFolder(order.results / home / order.run)
    if folder.is_done(cell, its_round):
        return
    s = session_of(order, [cell], [])
    refuse_others(s.host)
    with run.at_work(s, lambda: folder) as job:
        try:
            peers = several_nodes.peers(place, number, task)
            yield from _launched(s, replace(job, peers=peers), cell, its_round, order, home)
        except KeyboardInterrupt:
            if not _is_out_of_time():
                raise
            planned = next(one for one in s.plan.cells if one.id == cell)
            message = "the job reached its time limit ([slurm] minutes, or the partition's)"
            yield record_failure(job, planned, its_round, "timeout", message, f"torchmatrix run --engine slurm '{cell}'")


def _is_out_of_time() -> bool:
    """Whether it was for the job's time limit that Slurm asked it to end."""
    left = Slurm(settings.load().slurm).seconds_left(os.environ.get("SLURM_JOB_ID", ""))
    return left is not None and left <= 2 * WARNING_SECONDS


def refuse_others(host: Host) -> None:
    """Raises BadInput if the node shows other GPUs than Slurm gave to the job."""
    if wrong := why_not_given(host, os.environ.get(GIVEN)):
        raise BadInput(f"{host.name}: {wrong}", hint="drain the node; its GPUs are not what Slurm takes them for")


def session_of(order: Order, globs: list[str] | tuple[str, ...], where: list[str] | tuple[str, ...]) -> Session:
    s = _assembled(order, globs, where)
    return s if order.held() else session.without_locks(s)


def _assembled(order: Order, globs: list[str] | tuple[str, ...], where: list[str] | tuple[str, ...]) -> Session:
    return session.assemble(order.matrix(), order.held(), order.results, order.engine, globs, where, nodes=MOST_NODES)


def _launched(s: Session, job: Job, cell: str, number: int, order: Order, home: str) -> Generator[News, None, None]:
    """The launch of one cell; the session's plan may have its baselines, too."""
    skip = next((one for one in s.plan.skips if one.cell.id == cell), None)
    if skip:
        message = f"{s.host.name} can't run it: {skip.why.reason}"
        yield record_failure(job, skip.cell, number, "crashed", message, f"torchmatrix run '{cell}'")
        return
    planned = [one for one in s.plan.cells if one.id == cell]
    if not planned:
        raise BadInput(
            f"{s.host.name} has no cell {cell}: {s.host.gpus_in_words}", hint="its devices differ from those asked for"
        )
    built = yield from build_all(job, recipes.stacks_of(planned))
    batches = yield from _batches(job, planned[0], built[planned[0].stack.name], order, home)
    here = [launch for launch in job.folder.of_cell(cell) if launch.machine == s.host.machine]
    yield from rounds.measure(job, built, planned, [(planned[0], number)], _proven(here), batches)


def _batches(
    job: Job, cell: Cell, image: Image | BuildFailed, order: Order, home: str
) -> Generator[News, None, dict[tuple[str, str], int | None]]:
    """The batch of a cell, where it is searched for: by the first launch of its stack and workload, for all of them.

    They are on the same node, which makes one launch at a time. It is searched for on this node alone.
    """
    key = rounds.searched_key(cell)
    if cell.workload.batch != AUTO or isinstance(image, BuildFailed):
        return {}
    if found := orders.batches_of(order, home, key):
        return found
    every = session_of(order, order.globs, order.where).plan.cells
    batch = yield from rounds.find_batch(replace(job, peers=None), rounds.searched_on(cell, every), image)
    orders.keep_batch(order, home, key, batch)
    return {key: batch}


def _proven(launches: list[Launch]) -> dict[tuple[str, int], Proven]:
    """Of each batch, the first launch of a cell that was proven in full."""
    found = [(launch, proof_of(launch)) for launch in sorted(launches, key=lambda one: one.unix_seconds, reverse=True)]
    return {(launch.cell, launch.batch_used): proof for launch, proof in found if proof and launch.batch_used}


# What a node does of a launch that another node records: it runs its ranks, watches its devices and tells both.
#
# several_nodes.py names the lines that it tells.

Result = TypeVar("Result")
Tell = Callable[[dict[str, Any]], None]


def take_part(place: Path, number: int, task: int, asked: Mapping[str, Any], tell: Tell, may_begin: Callable[[], bool]) -> None:
    """Run this node's ranks of the launch `task` of the array `number`.

    `asked`: what the recording node asks for. `may_begin`: waits for its word; False if it has gone.
    """
    order = orders.read(place)
    home, launches = orders.launches_of(order, number)
    name = os.environ["SLURMD_NODENAME"]

    def say(event: str, **fields: Any) -> None:
        tell({"event": event, "name": name, **fields})

    try:
        s = session_of(order, [launches[task][0]], [])
        refuse_others(s.host)
        cell = next((one for one in s.plan.cells if one.id == launches[task][0]), None)
        if cell is None:
            raise LaunchFailed(f"it has no cell {launches[task][0]}: {s.host.gpus_in_words}")
        with run.at_work(s, lambda: RunFolder(order.results / home / order.run)) as job:
            image = _built(job, cell, asked)
            ready = _result_of(readiness.wait(job.sensors, devices_of(cell), job.method))
            rank = 1 + asked["nodes"].index(name)
            execution = _execution(job, cell, image, asked, rank)
            say("node", number=1 + rank, **_facts(job, cell, image, ready, execution))
            if may_begin():
                _run(job, cell, execution, 1 + rank, say)
    except (ToolError, BuildFailed, LaunchFailed) as error:
        say("failed", message=str(error))


def _built(job: Job, cell: Cell, asked: Mapping[str, Any]) -> Image:
    """The stack, which must be that of the recording node."""
    image = _result_of(build_all(job, recipes.stacks_of([cell])))[cell.stack.name]
    if isinstance(image, BuildFailed):
        raise image
    if image.environment != asked["environment"]:
        raise LaunchFailed(f"its stack {cell.stack.name} is not that of the recording node")
    return image


def _result_of(doing: Generator[object, None, Result]) -> Result:
    """What a generator returns, whose news nobody wants."""
    while True:
        try:
            next(doing)
        except StopIteration as over:
            result: Result = over.value
            return result


def _execution(job: Job, cell: Cell, image: Image, asked: Mapping[str, Any], rank: int) -> Execution:
    address = asked["address"]
    spec = LaunchSpec(
        arguments=tuple(asked["arguments"]),
        processes=len(cell.gpus.indices),
        gpus=cell.gpus,
        cache=asked["cache"],
        owner=job.owner,
        model_file=model_file_of(job, cell),
        meeting=meeting_of(rank, 1 + len(asked["nodes"]), address, asked["port"], towards=address),
    )
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


def _run(job: Job, cell: Cell, execution: Execution, number: int, say: Callable[..., None]) -> None:
    """To the end of this node's ranks. Its readings say which node they are of."""

    def told(readings: list[dict[str, Any]]) -> None:
        say("telemetry", readings=[reading | {"device": device_on(number, reading["device"])} for reading in readings])

    with execution, Watcher(job.sensors, DeviceReadings(execution, told, job, cell)):
        for stream, line in execution.lines():
            say("line", stream=stream, text=line.decode(errors="replace"))
        end = execution.wait()
    say("exit", returncode=end.returncode, oom_killed=end.oom_killed, problem=end.problem)
