"""Write a matrix as manifests for Kubernetes: a ConfigMap with its files and an Indexed Job, one pod per node. Pure.

Each pod runs the whole matrix on the GPUs of its node, in virtualenvs, and writes a results folder of its own into one volume,
like machines that share nothing but a file system.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmatrix.core.errors import BadInput
from torchmatrix.core.inputs import LARGE_FILE_BYTES, read_text
from torchmatrix.engines import lockfile, recipes
from torchmatrix.machine.vendors import VENDORS
from torchmatrix.matrix import matrix_file

GPUS = {vendor.name: vendor.pod_resource for vendor in VENDORS.values() if vendor.pod_resource}
"""The resource that each vendor's device plugin offers."""
USER = 1000
"""The user id of the pods; the tool's own image has this user."""
MOST_BYTES = 1_000_000
"""The largest size of all files: the API server refuses objects of more than 1 MiB."""
_SCRATCH = [{"name": "cache", "mountPath": "/cache"}, {"name": "shm", "mountPath": "/dev/shm"}]
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Options of the manifests. `image`: of the tool; `claim`: a PersistentVolumeClaim for the results; `nodes`: pods, each
    with `gpus` of `vendor`.

    `words`: further words of the command, such as cells.
    """

    name: str
    image: str
    claim: str
    gpus: int
    vendor: str
    nodes: int
    words: tuple[str, ...] = ()


def manifests(matrix: Path, wanted: Wanted) -> dict[str, Any]:
    """Return a List of the two objects. Raises BadInput if the matrix can't be read or is too large."""
    files = _files(matrix)
    keys = {name: f"file{number}" for number, name in enumerate(files)}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": wanted.name},
        "data": {keys[name]: text for name, text in files.items()},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [config, _job(wanted, keys)]}


def _files(matrix: Path) -> dict[str, str]:
    """Return the matrix, its lock and the users' own models, by their paths from its folder."""
    loaded = matrix_file.load(matrix)
    lock = recipes.lock_path(matrix)
    files = {"matrix.toml": loaded.text}
    lockfile.read(lock)  # raises BadInput for what is none
    if lock.exists():
        files["matrix.lock"] = read_text(lock, hint="torchmatrix lock makes it again", most_bytes=LARGE_FILE_BYTES)
    files |= {model.path: model.content.decode() for workload in loaded.workloads if (model := workload.own)}
    size = sum(len(text.encode()) for text in files.values())
    if size > MOST_BYTES:
        raise BadInput(
            f"the matrix and its files have {size:,} bytes, and a ConfigMap takes 1 MiB",
            hint="put them into the volume of the results, and name them there: --matrix FILE",
        )
    return files


def _job(wanted: Wanted, keys: Mapping[str, str]) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "torchmatrix", "app.kubernetes.io/instance": wanted.name}
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    files = {"name": wanted.name, "items": [{"key": keys[path], "path": path} for path in keys]}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    spec = pod(_container(wanted), wanted.claim, USER, affinity, {"name": "matrix", "configMap": files})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": wanted.name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": wanted.nodes,
            "parallelism": wanted.nodes,
            "backoffLimit": 2 * wanted.nodes,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def pod(container: dict[str, Any], claim: str, user: int, affinity: dict[str, Any], *volumes: dict[str, Any]) -> dict[str, Any]:
    """Return a pod that runs a container once, as `user`, without privileges. `claim`: for the results."""
    limits = container.pop("limits")
    contained = {
        "resources": {"limits": limits, "requests": limits},
        "volumeMounts": [*container.pop("volumeMounts"), *_SCRATCH],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, "fsGroup": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": affinity,
        "containers": [container | contained],
        "volumes": [
            *volumes,
            {"name": "results", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "cache", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }  # fmt: skip


def _container(wanted: Wanted) -> dict[str, Any]:
    """Return the pod's container. A restarted pod continues the run of its index, with the same name, machine and folder."""
    results = "/results/$(INDEX)"
    limits = {GPUS[wanted.vendor]: wanted.gpus} if wanted.gpus else {}
    return {
        "name": "torchmatrix",
        "image": wanted.image,
        "args": [
            "run", "--engine", "local", "--matrix", "/matrix/matrix.toml", "--results", results,
            "--output", f"{results}/index.html", *wanted.words,
        ],
        "workingDir": "/cache",
        "env": [
            {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
            {"name": "TORCHMATRIX_MACHINE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "TORCHMATRIX_CACHE", "value": "/cache/torchmatrix"},
            {"name": "HOME", "value": "/cache"},
        ],
        "limits": limits,
        "volumeMounts": [
            {"name": "matrix", "mountPath": "/matrix", "readOnly": True},
            {"name": "results", "mountPath": "/results"},
        ],
    }  # fmt: skip
