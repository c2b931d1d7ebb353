"""What happens during a run, as values: yielded by the rooms that do it, told by the one that narrates."""

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
    """A stack was built (or found built): `error` is None; or it could not be."""

    stack: str
    seconds: float
    error: str | None
    log: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesSized:
    """What the images of one engine take. `sizes`: by stack, in bytes: all of it, and what it adds to those before it."""

    sizes: dict[str, tuple[int, int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchStarted:
    """A launch begins."""

    cell: Cell
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchCommand:
    """The command of the launch that begins, as a person can paste it."""

    cell: Cell
    command: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPhase:
    """How far the launch is, or what it waits for."""

    cell: Cell
    phase: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchFinished:
    """A launch ended; its outcome is derived from its facts. `note`: what else is worth saying."""

    cell: Cell
    number: int
    launch: Launch
    seconds: float
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchWaits:
    """A launch waits for a cluster, which says why."""

    cell: Cell
    place: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LanesProbed:
    """It is tested now whether launches on these devices disturb each other. `least`, `most`: rounds that it may take."""

    devices: tuple[str, ...]
    least: int
    most: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeFinished:
    """A launch of that test ended."""

    cell: Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class LanesDecided:
    """Whether launches on different devices run at once, and why, in words."""

    at_once: bool
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Heated:
    """All devices were in use for so many seconds before the first launch."""

    devices: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchTried:
    """A batch was tried in a fresh process, to find the largest that fits."""

    cell: Cell
    batch: int
    outcome: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchFound:
    """The largest batch that fits, or None; `outcome` says why not."""

    cell: Cell
    batch: int | None
    outcome: str


News = (
    BuildLine
    | BuildFinished
    | ImagesSized
    | LaunchStarted
    | LaunchCommand
    | LaunchPhase
    | LaunchFinished
    | LaunchWaits
    | LanesProbed
    | ProbeFinished
    | Heated
    | LanesDecided
    | BatchTried
    | BatchFound
)
