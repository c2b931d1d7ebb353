"""What a job does on its node: says what the node is, or makes one launch in the run's folder. Yields news, prints nothing."""

import os
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Image
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import Proven, proof_of
from torchmatrix.facts.store import RunFolder
from torchmatrix.ground import settings
from torchmatrix.ground.errors import BadInput, BuildFailed, ToolError
from torchmatrix.ground.formatting import count
from torchmatrix.machine.host import Host
from torchmatrix.matrix.matrix_file import MOST_NODES
from torchmatrix.matrix.workloads import AUTO
from torchmatrix.planning.plan import Cell
from torchmatrix.running import batch_search, rounds, run, session
from torchmatrix.running.build_stacks import build_all
from torchmatrix.running.cluster import orders, several_nodes
from torchmatrix.running.cluster.orders import NodeError, NodeFacts, Order
from torchmatrix.running.cluster.slurm import WARNING_SECONDS, Slurm
from torchmatrix.running.launch_cell import Job, record_failure
from torchmatrix.running.news import News
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
            others = several_nodes.others(place, number, task)
            yield from _launched(s, replace(job, others=others), cell, its_round, order, home)
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
    batch = yield from batch_search.find(replace(job, others=None), rounds.searched_on(cell, every), image)
    orders.keep_batch(order, home, key, batch)
    return {key: batch}


def _proven(launches: list[Launch]) -> dict[tuple[str, int], Proven]:
    """Of each batch, the first launch of a cell that was proven in full."""
    found = [(launch, proof_of(launch)) for launch in sorted(launches, key=lambda one: one.unix_seconds, reverse=True)]
    return {(launch.cell, launch.batch_used): proof for launch, proof in found if proof and launch.batch_used}
