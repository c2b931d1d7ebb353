"""Progress events of a run, as values: yielded by the packages that do the work, printed by the command line."""

from dataclasses import dataclass
from pathlib import Path

from torchmatrix.facts.launch import Launch
from torchmatrix.planning.plan import Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildLine:
    """One line of a stack's build log."""

    stack: str
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildFinished:
    """The end of a stack's build; `error` is None if the stack was built or was built already."""

    stack: str
    seconds: float
    error: str | None
    log: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesSized:
    """The sizes of one engine's images. `sizes`: by stack, in bytes: the image, and what it adds to the images before it."""

    sizes: dict[str, tuple[int, int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchStarted:
    """The beginning of a launch."""

    cell: Cell
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundAdded:
    """A round that nobody could know of before: an adaptive method makes it."""

    number: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetSpent:
    """The end of further rounds by the budget, although so many cells need more."""

    cells: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchCommand:
    """The command of the launch that begins, as a person can paste it."""

    cell: Cell
    command: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPhase:
    """The phase of a launch, or what it waits for."""

    cell: Cell
    phase: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchFinished:
    """The end of a launch; its outcome is derived from its facts. `note`: a remark for the user. `is_last`: no further round of
    its cell is launched, since it could only repeat the failure.
    """

    cell: Cell
    number: int
    launch: Launch
    seconds: float
    note: str = ""
    is_last: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchWaits:
    """A launch that waits for a cluster, with the reason that the cluster gives."""

    cell: Cell
    place: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Heated:
    """The end of heating: all devices were in use for so many seconds before the first launch."""

    devices: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchTried:
    """The outcome of a batch tried in a fresh process, to find the largest that fits."""

    cell: Cell
    batch: int
    outcome: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchFound:
    """The largest batch that fits, or None; `outcome` says why not. Beside a batch it is ok, or that of a trial that failed."""

    cell: Cell
    batch: int | None
    outcome: str


ProgressEvent = (
    BuildLine
    | BuildFinished
    | ImagesSized
    | LaunchStarted
    | RoundAdded
    | BudgetSpent
    | LaunchCommand
    | LaunchPhase
    | LaunchFinished
    | LaunchWaits
    | Heated
    | BatchTried
    | BatchFound
)
