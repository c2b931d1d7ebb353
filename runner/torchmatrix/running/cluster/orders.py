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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from torchmatrix.core import inputs
from torchmatrix.core.errors import BadInput, ExitCode
from torchmatrix.core.files import disk_errors, write_whole
from torchmatrix.core.formatting import printable
from torchmatrix.engines import lockfile
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.method import Request
from torchmatrix.planning import selection
from torchmatrix.planning.fit import Supplies
from torchmatrix.planning.selection import TwoStacks

Launches = list[tuple[str, int]]
"""(cell id, round), in order."""


Told = TypeVar("Told")
_NEW = "torchmatrix run --engine slurm --new begins a new run"


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
    ab: TwoStacks | None = None

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
        return selection.matrix_of_two(matrix_file.parse(text_of(self), folder=self.folder), self.request, self.ab)

    @property
    def lock(self) -> Path:
        """The lock as it was; no such file if there was none."""
        return self.place / "matrix.lock"

    def held(self) -> Mapping[str, StackLock]:
        """The locks as they were."""
        return lockfile.read(self.lock)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What a node says of itself. `engine`: which one it chose and why; `wrong`: why it can't be used."""

    host: Host
    machine: str | None
    supplies: Supplies
    engine: str
    notes: tuple[str, ...]
    wrong: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeError:
    """What is wrong with the order, as a node found."""

    error: str
    hint: str
    exit_code: ExitCode


@dataclass(frozen=True, kw_only=True, slots=True)
class _Batch:
    key: tuple[str, str]
    batch: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Array:
    home: str
    launches: Launches


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
    """The order in this folder. Raises BadInput."""
    return _said(place / "order.json", lambda _: Order, _NEW)


def _said(path: Path, kind: Callable[[Any], type[Told]], hint: str) -> Told:
    """What a file of an order says. `kind`: by its content. Raises FileNotFoundError, and BadInput for what isn't ours."""
    told = inputs.json_of(inputs.read_bytes(path, hint=hint, most_bytes=inputs.LARGE_FILE_BYTES), str(path), hint=hint)
    try:
        found: Told = inputs.construct(kind(told), told, path.stem)
    except ValueError as why:
        raise BadInput(f"{path} is damaged, or of another version: {printable(str(why))}", hint=hint) from None
    return found


def text_of(order: Order) -> str:
    """The matrix file as it was when the run began."""
    return (order.place / "matrix.toml").read_text(encoding="utf-8")


def unfinished(results: Path, tell: Callable[[str], None]) -> list[Order]:
    """The orders that aren't done, newest first; one that can't be read is told and left out."""
    found = []
    for path in sorted((results / ".slurm").glob("*/order.json"), reverse=True):
        try:
            found.append(read(path.parent))
        except BadInput as why:
            tell(f"note: this run can't be continued: {why}")
    return [order for order in found if (order.place / "matrix.toml").exists() and not is_done(order)]


def keep_groups(order: Order, groups: Sequence[Sequence[str]]) -> None:
    """Write the names of the nodes that measure together."""
    with disk_errors(order.place):
        write_whole(order.place / "groups.json", json.dumps(groups).encode())


def groups_of(order: Order) -> list[list[str]] | None:
    """What `keep_groups` wrote; None if it didn't yet. Raises BadInput."""
    try:
        return _said(order.place / "groups.json", lambda _: list[list[str]], _NEW)
    except FileNotFoundError:
        return None


def keep_node(order: Order, name: str, said: NodeFacts | NodeError) -> None:
    """Write what a node says of itself; it appears whole."""
    with disk_errors(order.place):
        write_whole(_node_path(order, name), json.dumps(asdict(said), default=sorted).encode())


def said_by(order: Order, name: str) -> NodeFacts | NodeError | None:
    """What a node said of itself; None as long as it said nothing. Raises BadInput."""
    try:
        return _said(_node_path(order, name), _kind_of_node, "remove this file: the node is then asked again")
    except FileNotFoundError:
        return None


def _kind_of_node(told: Any) -> type[NodeFacts | NodeError]:
    return NodeError if isinstance(told, dict) and "error" in told else NodeFacts


def _node_path(order: Order, name: str) -> Path:
    return order.place / "nodes" / f"{name}.json"


def keep_batch(order: Order, home: str, key: tuple[str, str], batch: int | None) -> None:
    """Write the batch that was found for a stack and a workload (rounds.searched_key); None: not even 1 fits."""
    path = _batch_path(order, home, key)
    with disk_errors(order.place):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"key": key, "batch": batch}).encode())


def batches_of(order: Order, home: str, key: tuple[str, str]) -> dict[tuple[str, str], int | None]:
    """What `keep_batch` wrote; empty if it didn't yet. Raises BadInput."""
    try:
        found = _said(_batch_path(order, home, key), lambda _: _Batch, "remove this file: the batch is then searched again")
        return {key: found.batch}
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
    """The folder and the launches of an array. Raises BadInput."""
    path = order.place / "jobs" / f"{number}.json"
    try:
        said = _said(path, lambda _: _Array, _NEW)
    except FileNotFoundError:
        raise BadInput(f"{path} is gone", hint=_NEW) from None
    return said.home, said.launches


def keep_job(order: Order, number: int, job: str) -> None:
    """Write which job of Slurm's an array became."""
    with disk_errors(order.place):
        write_whole(order.place / "jobs" / f"{number}.id", job.encode())


def jobs_of(order: Order) -> dict[str, int]:
    """The arrays by their jobs of Slurm's."""
    return {path.read_text(): int(path.stem) for path in (order.place / "jobs").glob("*.id") if path.stem.isdecimal()}


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
