"""What the jobs of a run are told, in files below the results folder, which the nodes share.

results/.slurm/RUN/order.json         who submitted what: the command line's wishes, the matrix's folder, the engine
results/.slurm/RUN/matrix.toml        the matrix as it was when the run began, and its matrix.lock
results/.slurm/RUN/groups.json        which nodes measure together
results/.slurm/RUN/nodes/NODE.json    what a node said of itself
results/.slurm/RUN/batches/HOME/*     the batches that were searched for, by the folder of the runs
results/.slurm/RUN/jobs/N.json        the launches of one array: task 0 is the first
results/.slurm/RUN/jobs/*.out         what the jobs printed
"""

import hashlib
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchmatrix.engines import lockfile
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.facts.disk import disk_errors
from torchmatrix.ground.files import write_whole
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.method import Request
from torchmatrix.planning import two_stacks
from torchmatrix.planning.two_stacks import Two

Launches = list[tuple[str, int]]
"""(cell id, round), in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """`folder`: that of the matrix, for the user's own models. `engine`: what runs a launch on its node.

    `globs`, `where`: which cells. `ab`: only what these two stacks share.
    """

    run: str
    results: Path
    folder: Path
    engine: str
    globs: tuple[str, ...]
    where: tuple[str, ...]
    request: Request
    ab: Two | None = None

    @property
    def place(self) -> Path:
        """The folder of this order."""
        return self.results / ".slurm" / self.run

    @property
    def job_name(self) -> str:
        """Of its jobs of Slurm's: other results folders, of anybody's, have others, also in the same second."""
        return f"torchmatrix-{self.run}-{hashlib.sha256(bytes(self.results)).hexdigest()[:6]}"

    def matrix(self) -> Matrix:
        """The matrix as it was when the run began, under the command line's wishes. Raises BadInput."""
        return two_stacks.asked(matrix_file.parse(text_of(self), folder=self.folder), self.request, self.ab)

    @property
    def lock(self) -> Path:
        """The lock as it was; no such file if there was none."""
        return self.place / "matrix.lock"

    def held(self) -> Mapping[str, StackLock]:
        """The locks as they were."""
        return lockfile.read(self.lock)


def keep(order: Order, matrix: str, lock: bytes | None) -> None:
    """Write an order, for the nodes and for the command that continues it. Raises EngineUnusable."""
    with disk_errors(order.place):
        for name in ("nodes", "jobs"):
            (order.place / name).mkdir(parents=True, exist_ok=True)
        write_whole(order.place / "matrix.toml", matrix.encode())
        if lock is not None:
            write_whole(order.lock, lock)
        record = asdict(order) | {"results": str(order.results), "folder": str(order.folder)}
        write_whole(order.place / "order.json", json.dumps(record).encode())


def read(place: Path) -> Order:
    """The order in this folder."""
    said = json.loads((place / "order.json").read_bytes())
    return Order(
        run=said["run"],
        results=Path(said["results"]),
        folder=Path(said["folder"]),
        engine=said["engine"],
        globs=tuple(said["globs"]),
        where=tuple(said["where"]),
        request=Request(**said["request"]),
        ab=tuple(said["ab"]) if said["ab"] else None,
    )


def text_of(order: Order) -> str:
    """The matrix file as it was when the run began."""
    return (order.place / "matrix.toml").read_text(encoding="utf-8")


def unfinished(results: Path) -> list[Order]:
    """The orders that aren't done, newest first; what another version wrote, or no version, is left out."""
    found = []
    for path in sorted((results / ".slurm").glob("*/order.json"), reverse=True):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found.append(read(path.parent))
    return [order for order in found if (order.place / "matrix.toml").exists() and not is_done(order)]


def keep_groups(order: Order, groups: Sequence[Sequence[str]]) -> None:
    """Write the names of the nodes that measure together."""
    with disk_errors(order.place):
        write_whole(order.place / "groups.json", json.dumps(groups).encode())


def groups_of(order: Order) -> list[list[str]] | None:
    """What `keep_groups` wrote; None if it didn't yet."""
    try:
        found: list[list[str]] = json.loads((order.place / "groups.json").read_bytes())
    except FileNotFoundError:
        return None
    return found


def keep_node(order: Order, name: str, said: Mapping[str, Any]) -> None:
    """Write what a node says of itself; it appears whole."""
    with disk_errors(order.place):
        write_whole(order.place / "nodes" / f"{name}.json", json.dumps(said).encode())


def said_by(order: Order, name: str) -> dict[str, Any] | None:
    """What a node said of itself; None as long as it said nothing."""
    try:
        found: dict[str, Any] = json.loads((order.place / "nodes" / f"{name}.json").read_bytes())
    except FileNotFoundError:
        return None
    return found


def keep_batch(order: Order, home: str, key: tuple[str, str], batch: int | None) -> None:
    """Write the batch that was found for a stack and a workload (rounds.searched_key); None: not even 1 fits."""
    path = _batch_path(order, home, key)
    with disk_errors(order.place):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"key": key, "batch": batch}).encode())


def batches_of(order: Order, home: str, key: tuple[str, str]) -> dict[tuple[str, str], int | None]:
    """What `keep_batch` wrote; empty if it didn't yet."""
    try:
        return {key: json.loads(_batch_path(order, home, key).read_bytes())["batch"]}
    except FileNotFoundError:
        return {}


def _batch_path(order: Order, home: str, key: tuple[str, str]) -> Path:
    return order.place / "batches" / home / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"


def keep_launches(order: Order, home: str, launches: Sequence[tuple[str, int]]) -> int:
    """Write the launches of one array on the node whose runs are in the folder `home`; returns the array's number."""
    number = len(list((order.place / "jobs").glob("*.json"))) + 1
    with disk_errors(order.place):
        content = json.dumps({"home": home, "launches": list(launches)}).encode()
        write_whole(order.place / "jobs" / f"{number}.json", content)
    return number


def launches_of(order: Order, number: int) -> tuple[str, Launches]:
    """The folder and the launches of an array."""
    said = json.loads((order.place / "jobs" / f"{number}.json").read_bytes())
    return said["home"], [(cell, int(its)) for cell, its in said["launches"]]


def keep_job(order: Order, number: int, job: str) -> None:
    """Write which job of Slurm's an array became."""
    with disk_errors(order.place):
        write_whole(order.place / "jobs" / f"{number}.id", job.encode())


def jobs_of(order: Order) -> dict[str, int]:
    """The arrays by their jobs of Slurm's."""
    return {path.read_text(): int(path.stem) for path in (order.place / "jobs").glob("*.id")}


def close(order: Order) -> None:
    """All is measured: the same command begins anew."""
    with disk_errors(order.place):
        write_whole(order.place / "done", b"")


def is_done(order: Order) -> bool:
    return (order.place / "done").exists()


def script(verb: str, *words: str) -> str:
    """A batch script that runs a verb of the tool on the node; Slurm's signals reach the tool itself."""
    command = shlex.join([sys.executable, "-m", "torchmatrix", "on-node", verb, *words])
    return f"#!/bin/sh\nexec {command}\n"
