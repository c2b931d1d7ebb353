"""Before the first launch of a run: all devices of the machine in use until they, and what is beside them, are hot."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torchmatrix.engines.engine import Image
from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.machine.host import Host
from torchmatrix.matrix.workloads import changed
from torchmatrix.planning.fit import why_not_slices
from torchmatrix.planning.plan import Cell
from torchmatrix.running.launch_cell import HEATING, Attempt, Job, launch
from torchmatrix.running.news import Heated, LaunchFinished, News


def chosen_cell(cells: Sequence[Cell]) -> Cell:
    """The one whose load heats: on one node, not compiled if possible, on most devices."""
    return max(cells, key=lambda cell: (cell.gpus.nodes == 1, not cell.workload.compile, len(cell.gpus.indices)))


def heat(job: Job, chosen: Cell, image: Image, batch: int | None) -> Iterator[News]:
    """Launch its load on all devices, as a probe whose figure doesn't count. Raises EngineUnusable if it fails, since the
    launches after it would not be what the method claims.
    """
    cell = load_on_all(chosen, job.host, job.method.warm_seconds or 0.0)
    why = None if batch else "not even a batch of 1 fits"
    for item in launch(job, Attempt(cell=cell, number=1, batch=batch, probe=HEATING), image) if batch else ():
        if not isinstance(item, LaunchFinished):
            yield item
        elif item.launch.is_ok:
            yield Heated(devices=cell.gpus.label, seconds=item.seconds)
        else:
            why = f"{item.launch.outcome}: {item.launch.error}"
    if why:
        raise EngineUnusable(
            f"{cell.gpus.label} could not be heated: {why}",
            hint=f"the method {job.method.name} needs all devices; --method steady measures without",
        )


def load_on_all(cell: Cell, host: Host, seconds: float) -> Cell:
    """Its load for so long on all GPUs; on a CPU on the slots that it has, and on slices of GPUs likewise."""
    brief = changed(cell.workload, warmup_cap_seconds=0.0, seconds=0.0, windows=1, steps=1, requests=0)
    workload, gpus = changed(brief, warmup_seconds=seconds), cell.gpus
    if gpus.gpus and not why_not_slices(host.gpus):
        gpus = replace(gpus, indices=tuple(range(len(host.gpus))), gpus=host.gpus)
    return replace(cell, id=f"{cell.stack.name}/{workload.id}/{gpus.label}", workload=workload, gpus=gpus)
