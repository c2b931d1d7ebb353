"""Carry out the launches of a run: here, or as jobs of a cluster. Yields progress events, prints nothing."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from torchmatrix.engines import recipes
from torchmatrix.facts.store import RunFolder
from torchmatrix.matrix.method import Request
from torchmatrix.planning.plan import Cell
from torchmatrix.planning.selection import TwoStacks
from torchmatrix.running import run
from torchmatrix.running.progress import ProgressEvent
from torchmatrix.running.session import Session


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What `run --engine SCHEDULER` asks for. `tell`: takes a line for the user."""

    matrix: Path
    results: Path
    request: Request
    globs: Sequence[str]
    where: Sequence[str]
    locked: bool
    ab: TwoStacks | None
    new: bool
    detach: bool
    tell: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Part:
    """The run of one machine, or of nodes that are alike: what is left to do, and how long it may take.

    `done`: how many launches were made before. `earlier`: the seconds of earlier launches, by cell id. `before`: the seconds
    that builds may take first. `node_of`: the node that measures a cell, by its id. `places`: what measures, in words.
    """

    session: Session
    folder: RunFolder
    todo: list[tuple[Cell, int]]
    earlier: dict[str, float]
    places: str
    node_of: Mapping[str, str] = field(default_factory=dict)
    before: float = 0.0
    done: int = 0
    notes: Sequence[str] = ()

    @property
    def seconds(self) -> float:
        """Return the estimate of all that is left."""
        return self.before + run.measuring_seconds(self.todo, self.earlier, self.node_of)


class Scheduler(ExitStack, ABC):
    """Where the launches of a run are made, used in a `with` block. `is_cluster`: they may wait for other people's jobs.

    `stopping`, `how_to_stop`, `detached`: what a user reads when the run is stopped, before it begins, and who leaves it alone.
    """

    is_cluster = False
    stopping = "stopped; writing a report of what was measured so far"
    how_to_stop = "Ctrl-C stops the run; the same command continues it"
    detached = ""

    @abstractmethod
    def sessions(self) -> Sequence[Session]:
        """Return what each machine, or group of nodes that are alike, measures. Raises ToolError."""

    @abstractmethod
    def open(self, s: Session, command: str) -> Part:
        """Begin or continue the run of a session. `command`: for its record."""

    @abstractmethod
    def poll(self) -> Generator[ProgressEvent, None, None]:
        """Yield what becomes of the launches until none is left."""

    def submit(self) -> None:
        """Submit what is left of all runs that were opened. Raises ToolError."""

    def cancel(self) -> None:
        """End what was submitted and isn't over, after `poll` was stopped."""

    def collect(self) -> None:
        """Record the end of each run that is complete. Raises ToolError if launches are missing."""


def is_scheduler(made: object) -> bool:
    """Check what a plugin made."""
    return isinstance(made, Scheduler)


class Here(Scheduler):
    """This machine, on which launches are made one after the other; `poll` makes them and records the end."""

    def __init__(self, s: Session, *, new: bool = False, beside: bool | None = None) -> None:
        """Prepare the run of a session. `beside`: although another run measures on the same devices."""
        super().__init__()
        self._session, self._new, self._beside = s, new, beside

    def sessions(self) -> Sequence[Session]:
        return (self._session,)

    def open(self, s: Session, command: str) -> Part:
        self._job = job = self.enter_context(run.open_job(s, new=self._new, command=command, beside=self._beside))
        todo, earlier = run.todo(s, job.folder), run.known_seconds(s)
        before, done = run.preparing_seconds(s, todo, earlier), run.done(job.folder, todo)
        self._part = Part(
            session=s, folder=job.folder, todo=todo, earlier=earlier, before=before, done=done,
            places=f"stacks: {', '.join(stack.name for stack in recipes.stacks_of(s.plan.cells))}", notes=job.watch_notes,
        )  # fmt: skip
        return self._part

    def poll(self) -> Generator[ProgressEvent, None, None]:
        return run.measure(self._session, self._job, self._part.todo, self._part.seconds)
