"""Ask the scheduler of a cluster, whichever it is, for nodes and for jobs on them. Knows nothing of matrices and launches."""

import itertools
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from torchmatrix.core.errors import EngineUnusable, ToolError

POLL_SECONDS = 2.0
"""The interval at which the controller is asked, once for all jobs."""
PATIENCE_POLLS = 150
"""The time, in polls, for which a scheduler that gives no answer is asked again: about five minutes."""
REMOVAL_POLLS = 30
"""The same when jobs are ended, after which the command ends anyway."""
SETTLING_POLLS = 3
"""A job is over before its node's last line is seen on a shared file system."""
STALE_POLLS = 45
"""The output of a job that ended well exists, however late it is seen: NFS may show a folder as it was a minute ago."""
OVER = frozenset({
    "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "DEADLINE",
    "REVOKED", "SPECIAL_EXIT",
})  # fmt: skip
"""States from which a job doesn't come back, unless Slurm requeues it; all job systems use Slurm's words."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeState:
    """Whether a job can be expected to run on a node; `why` not, or what it waits for; empty: only for other jobs."""

    is_usable: bool
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A node as its scheduler describes it: `gres` such as gpu:a100:8, `state` in its own words."""

    name: str
    state: str
    gres: str
    features: str
    cpus: int
    memory_mb: int

    @property
    def standing(self) -> NodeState:
        """Check whether a job can be expected to run there."""
        raise NotImplementedError

    @property
    def in_words(self) -> str:
        """Return its state, as the scheduler calls it, and what that means."""
        return f"{self.state}: {self.standing.why}" if self.standing.why else self.state

    @property
    def gpus(self) -> int:
        """Return how many GPUs it offers."""
        return sum(int(number) for number in re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d{1,9})\b", self.gres))


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A task of an array. `id` such as 17_3; `state` in Slurm's words; `node`: where it runs or ran; `reason`: why it waits.

    `why`: why it ended so, where that is known.
    """

    id: str
    state: str
    node: str
    reason: str
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """A submission: an array of `tasks`, one at a time, on `nodes` with all their `gpus`, `after` other jobs.

    `words`: of the command of torchmatrix that each task runs. `key`: the same when it is sent again.
    """

    words: tuple[str, ...]
    name: str
    nodes: tuple[str, ...]
    tasks: Sequence[int]
    output: str
    key: str
    gpus: int = 0
    after: tuple[str, ...] = ()


class NotNow(EngineUnusable):
    """The error when a scheduler takes no more jobs for the time being: a limit on their number is reached."""


class Unanswered(EngineUnusable):
    """The error when a scheduler gave no answer, or one that soon may be another: what was asked may have been carried out."""


def answered(ask: Callable[[], Answer], tell: Callable[[str], None], polls: int | None = None) -> Answer:
    """Return what `ask` does, called again while it raises Unanswered, for the time of so many polls. Raises Unanswered."""
    patience_seconds = POLL_SECONDS * (PATIENCE_POLLS if polls is None else polls)
    since = time.monotonic()
    for attempt in itertools.count(1):
        try:
            return ask()
        except Unanswered as error:
            if time.monotonic() - since > patience_seconds:
                raise
            if attempt == 2:
                tell(f"note: {error}; asking again, for {patience_seconds / 60:.0f} minutes at most")
        time.sleep(POLL_SECONDS)
    raise AssertionError


class JobSystem(ABC):
    """The scheduler of a cluster. `look`: the command that shows its nodes. `engine`: of torchmatrix, for launches on a node.

    `nodes_used`: how many nodes to use at most. `gone`: the state of a job that it no longer lists. `queues`: it takes
    jobs that wait for others, and jobs over several nodes. `shared`: the folder that its nodes see, too; None: not known.
    """

    name: str
    title: str
    look: str
    engine = "local"
    nodes_used: int | None = None
    gone = "gone"
    queues = True
    shared: Path | None = None

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    @abstractmethod
    def version(self) -> str:
        """Return its version. Raises EngineUnusable where there is none."""

    @abstractmethod
    def nodes(self) -> Sequence[Node]:
        """Return the nodes that the settings allow, by name. Raises EngineUnusable, BadInput."""

    @abstractmethod
    def submit(self, submission: Submission) -> str:
        """Submit an array and return the job's id; the same one for the same key. Raises BadInput if it is refused, NotNow."""

    @abstractmethod
    def job_of(self, name: str, key: str) -> str:
        """Return the id of the job that is or would be submitted under this key; empty if there is none. Raises Unanswered."""

    @abstractmethod
    def has(self, job: str) -> bool:
        """Check whether a job, or one task of it, is there that `tasks` doesn't list, and isn't over. Raises Unanswered."""

    def hidden(self, job: str) -> str:
        """Say that a job is there that `tasks` doesn't list."""
        return f"{self.title} has its job {array_index(job)[0]}, but doesn't list it"

    @abstractmethod
    def tasks(self, name: str) -> list[Task]:
        """Return the tasks of all jobs of this name that are still listed, also those that are over. Raises EngineUnusable."""

    def forget(self, jobs: Collection[str]) -> None:  # noqa: B027 (nothing is to be done where jobs that are over count no more)
        """Remove jobs that are over and count towards a limit. Raises Unanswered."""

    @abstractmethod
    def cancel(self, name: str) -> None:
        """End all jobs of this name, waiting or running. Raises Unanswered."""

    @abstractmethod
    def how_to_cancel(self, name: str) -> str:
        """Return the command by which a user ends all jobs of this name."""

    def cancel_or_tell(self, name: str) -> bool:
        """End all jobs of this name, or tell how to; return whether that worked."""
        try:
            self.cancel(name)
        except ToolError as error:
            self.tell(f"note: jobs may be left, as {self.title} was asked in vain to end them: {error}")
            self.tell(f"hint: {self.how_to_cancel(name)}")
            return False
        return True

    @abstractmethod
    def most_tasks(self) -> int:
        """Return how many tasks an array may have."""


def array_index(task: str) -> tuple[str, int]:
    """Return the job's id and the task's number from a task's id such as 17_3."""
    job, _, number = task.partition("_")
    return job, int(number) if number.isdigit() else 0
