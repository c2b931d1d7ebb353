"""Orders: the files of a run below the results folder, by which the submitting machine and the nodes communicate
(those of Kubernetes are in .kubernetes).

results/.slurm/RUN/order.json         what was submitted: the command line's request, the matrix's folder, the engine
results/.slurm/RUN/matrix.toml        the matrix as it was when the run began, and its matrix.lock
results/.slurm/RUN/groups.json        which nodes measure together
results/.slurm/RUN/nodes/NODE.json    a node's description of itself
results/.slurm/RUN/batches/HOME/*     the batches that were searched for, by the folder of the runs
results/.slurm/RUN/jobs/N.json        the launches of one array: task 0 is the first
results/.slurm/RUN/jobs/*.out         what the jobs printed
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.selection import TwoStacks

Launches = list[tuple[str, int]]
"""(cell id, round), in order."""

Content = TypeVar("Content")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """The request of a run. `folder`: of the matrix, for the user's own models. `engine`: runs a launch on its node.

    `globs`, `where`: which cells. `ab`: only the cells that these two stacks share. `digests`: of the matrix and its lock as
    they were; empty in orders of earlier versions.
    """

    run: str
    results: Path
    folder: Path
    engine: str
    globs: tuple[str, ...]
    where: tuple[str, ...]
    request: Request
    ab: TwoStacks | None = None
    scheduler: str = "slurm"
    digests: tuple[str, ...] = ()

    @property
    def place(self) -> Path:
        """Return the folder of this order."""
        return self.results / f".{self.scheduler}" / self.run

    @property
    def job_name(self) -> str:
        """Return the name of its jobs; other results folders, of anybody's, have other names, even in the same second."""
        return f"torchmatrix-{self.run}-{hashlib.sha256(bytes(self.results)).hexdigest()[:6]}"

    def matrix(self) -> Matrix:
        """Return the matrix as it was when the run began, under the command line's request. Raises BadInput."""
        return selection.matrix_of_two(matrix_file.parse(text_of(self), folder=self.folder), self.request, self.ab)

    @property
    def lock(self) -> Path:
        """Return the path of the lock as it was; no such file if there was none."""
        return self.place / "matrix.lock"

    def held(self) -> Mapping[str, StackLock]:
        """Return the locks as they were."""
        return lockfile.read(self.lock)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """A node's description of itself. `engine`: which one it chose and why; `wrong`: why it can't be used."""

    host: Host
    machine: str | None
    prerequisites: Prerequisites
    engine: str
    notes: tuple[str, ...]
    wrong: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeError:
    """An error in the order, as a node found it."""

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
    key: str = ""


def keep(order: RunRequest, matrix: str, lock: bytes | None) -> None:
    """Write an order, for the nodes and for the command that continues it. Raises EngineUnusable."""
    with disk_errors(order.place):
        for name in ("nodes", "jobs"):
            (order.place / name).mkdir(parents=True, exist_ok=True)
        write_whole(order.place / "matrix.toml", matrix.encode())
        if lock is not None:
            write_whole(order.lock, lock)
        record = asdict(order) | {"results": str(order.results), "folder": str(order.folder)}
        write_whole(order.place / "order.json", json.dumps(record).encode())


def read(place: Path) -> RunRequest:
    """Return the order in this folder. Raises BadInput."""
    order = _read(place / "order.json", lambda _: RunRequest, _how_to_begin(place))
    if order.run != place.name:
        raise BadInput(f"{place / 'order.json'} is damaged: it is of another run", hint=_how_to_begin(place))
    return order


def _how_to_begin(place: Path) -> str:
    return f"torchmatrix run --engine {place.parent.name[1:]} --new begins a new run"


def _read(path: Path, type_of: Callable[[Any], type[Content]], hint: str) -> Content:
    """Return a file's content. `type_of`: its type, by its JSON. Raises FileNotFoundError, and BadInput for what isn't ours."""
    record = inputs.json_of(inputs.read_bytes(path, hint=hint, most_bytes=inputs.LARGE_FILE_BYTES), str(path), hint=hint)
    try:
        content: Content = inputs.construct(type_of(record), record, path.stem)
    except ValueError as error:
        raise BadInput(f"{path} is damaged, or of another version: {printable(str(error))}", hint=hint) from None
    return content


def _read_if_written(path: Path, type_of: Callable[[Any], type[Content]], hint: str) -> Content | None:
    try:
        return _read(path, type_of, hint)
    except FileNotFoundError:
        return None


def text_of(order: RunRequest) -> str:
    """Return the matrix file as it was when the run began. Raises BadInput."""
    path, hint = order.place / "matrix.toml", _how_to_begin(order.place)
    try:
        return inputs.read_text(path, hint=hint)
    except FileNotFoundError:
        raise BadInput(f"{path} is gone", hint=hint) from None


def content_of(path: Path, hint: str) -> bytes | None:
    """Return the content of a file; None if there is none. Raises BadInput."""
    try:
        return inputs.read_bytes(path, hint=hint, most_bytes=inputs.LARGE_FILE_BYTES)
    except FileNotFoundError:
        return None


def digests(matrix: str, lock: bytes | None) -> tuple[str, ...]:
    """Return checksums of a matrix and its lock, by which damage is told from another matrix."""
    return tuple(hashlib.sha256(content).hexdigest()[:16] for content in (matrix.encode(), lock or b""))


def found_digests(order: RunRequest) -> tuple[str, ...]:
    """Return the checksums of an order's matrix and lock, as they are. Raises BadInput."""
    return digests(text_of(order), content_of(order.lock, _how_to_begin(order.place)))


def refuse_damaged(order: RunRequest) -> None:
    """Raise BadInput if the matrix or its lock is not as it was when the run began."""
    for path, was, is_now in zip((order.place / "matrix.toml", order.lock), order.digests, found_digests(order), strict=False):
        if is_now != was:
            raise BadInput(f"{path} is damaged: it is not as it was when the run began", hint=_how_to_begin(order.place))


def unfinished(results: Path, tell: Callable[[str], None], scheduler: str = "slurm") -> list[RunRequest]:
    """Return the orders that aren't done, newest first; an order that can't be read is reported and left out."""
    readable = []
    for path in sorted((results / f".{scheduler}").glob("*/order.json"), reverse=True):
        try:
            readable.append(read(path.parent))
        except BadInput as error:
            tell(f"note: this run can't be continued: {error}")
    return [order for order in readable if not is_done(order)]


def keep_groups(order: RunRequest, groups: Sequence[Sequence[str]]) -> None:
    """Write the names of the nodes that measure together."""
    with disk_errors(order.place):
        write_whole(order.place / "groups.json", json.dumps(groups).encode())


def groups_of(order: RunRequest) -> list[list[str]] | None:
    """Return what `keep_groups` wrote; None if it hasn't yet. Raises BadInput."""
    path, hint = order.place / "groups.json", _how_to_begin(order.place)
    groups = _read_if_written(path, lambda _: list[list[str]], hint)
    if groups is not None and not all((groups, *groups)):
        raise BadInput(f"{path} is damaged: it has a group without nodes", hint=hint)
    return groups


def keep_node(order: RunRequest, name: str, facts: NodeFacts | NodeError) -> None:
    """Write a node's description of itself; the file appears whole."""
    with disk_errors(order.place):
        write_whole(_node_path(order, name), json.dumps(asdict(facts), default=sorted).encode())


def node_facts(order: RunRequest, name: str) -> NodeFacts | NodeError | None:
    """Return what `keep_node` wrote for a node; None if it hasn't yet. Raises BadInput."""
    hint = "remove this file: the node is then asked again"
    return _read_if_written(_node_path(order, name), _type_of_node, hint)


def _type_of_node(record: Any) -> type[NodeFacts | NodeError]:
    return NodeError if isinstance(record, dict) and "error" in record else NodeFacts


def _node_path(order: RunRequest, name: str) -> Path:
    return order.place / "nodes" / f"{name}.json"


def keep_batch(order: RunRequest, home: str, key: tuple[str, str], batch: int | None) -> None:
    """Write the batch that was found for a stack and a workload (rounds.searched_key); None: not even 1 fits."""
    path = _batch_path(order, home, key)
    with disk_errors(order.place):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"key": key, "batch": batch}).encode())


def batches_of(order: RunRequest, home: str, key: tuple[str, str]) -> dict[tuple[str, str], int | None]:
    """Return what `keep_batch` wrote; empty if it hasn't yet. Raises BadInput."""
    hint = "remove this file: the batch is then searched again"
    record = _read_if_written(_batch_path(order, home, key), lambda _: _Batch, hint)
    return {key: record.batch} if record else {}


def _batch_path(order: RunRequest, home: str, key: tuple[str, str]) -> Path:
    return order.place / "batches" / home / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"


def keep_launches(order: RunRequest, home: str, launches: Sequence[tuple[str, int]], key: str = "") -> int:
    """Write the launches of one array on the node whose runs are in the folder `home`; return the array's number.

    `key`: under which it will be submitted, however often its answer is lost.
    """
    number = len(list((order.place / "jobs").glob("*.json"))) + 1
    with disk_errors(order.place):
        content = json.dumps({"home": home, "launches": list(launches), "key": key}).encode()
        write_whole(order.place / "jobs" / f"{number}.json", content)
    return number


def launches_of(order: RunRequest, number: int) -> tuple[str, Launches]:
    """Return the folder and the launches of an array. Raises BadInput."""
    array = _array(order, number)
    return array.home, array.launches


def _array(order: RunRequest, number: int) -> _Array:
    path = order.place / "jobs" / f"{number}.json"
    try:
        return _read(path, lambda _: _Array, _how_to_begin(order.place))
    except FileNotFoundError:
        raise BadInput(f"{path} is gone", hint=_how_to_begin(order.place)) from None


def drop_launches(order: RunRequest, number: int) -> None:
    """Remove an array that was refused."""
    (order.place / "jobs" / f"{number}.json").unlink()
    _job_path(order, number).unlink(missing_ok=True)


def keep_job(order: RunRequest, number: int, job: str) -> str:
    """Write the id of the job that an array became, unless one is written; return the one that is.

    The job that begins first writes it, too: a submission whose answer came late may have become two jobs.
    """
    with disk_errors(order.place), suppress(FileExistsError), _job_path(order, number).open("xb") as file:
        file.write(job.encode())
    return _job(order, number) or job


def _job_path(order: RunRequest, number: int) -> Path:
    return order.place / "jobs" / f"{number}.id"


def _job(order: RunRequest, number: int) -> str:
    """Return the id of an array's job; empty where none was written, or it can't be read."""
    path = _job_path(order, number)
    written = path.read_bytes() if path.is_file() else b""
    return written.decode() if re.fullmatch(rb"\w[\w-]*", written) else ""


def jobs_of(order: RunRequest) -> dict[int, tuple[str, str]]:
    """Return the key of each array, and the id of its job; empty where no answer was noted, or can be read. Raises BadInput."""
    numbers = sorted(int(path.stem) for path in (order.place / "jobs").glob("*.json") if path.stem.isdecimal())
    return {number: (_array(order, number).key, _job(order, number)) for number in numbers}


def close(order: RunRequest) -> None:
    """Mark the order as measured, so that the same command begins anew."""
    with disk_errors(order.place):
        write_whole(order.place / "done", b"")


def is_done(order: RunRequest) -> bool:
    return (order.place / "done").exists()
