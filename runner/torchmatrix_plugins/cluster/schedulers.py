"""What `run --engine` names: Slurm and Kubernetes."""

from functools import partial

from torchmatrix.core.errors import BadInput
from torchmatrix.running.scheduler import RunRequest, Scheduler
from torchmatrix_plugins.cluster import cluster
from torchmatrix_plugins.cluster.jobs import Clustered


def slurm(asked: RunRequest) -> Scheduler:
    """Return the nodes of Slurm."""
    return _clustered("slurm", asked)


def kubernetes(asked: RunRequest) -> Scheduler:
    """Return the nodes of Kubernetes. Raises BadInput for --detach."""
    if asked.detach:
        raise BadInput("--detach works only with --engine slurm", hint="in the background: nohup torchmatrix run &")
    return _clustered("kubernetes", asked)


def _clustered(name: str, asked: RunRequest) -> Scheduler:
    prepare = partial(
        cluster.prepare, name, asked.matrix, asked.results, asked.globs, asked.where, asked.request, locked=asked.locked,
        ab=asked.ab, new=asked.new, tell=asked.tell,
    )  # fmt: skip
    return Clustered(prepare, asked.results, asked.tell)
