"""News -> text on stderr: lines that stay and, on a terminal, what runs now and the time left below them."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from torchmatrix.cli.console import Volume
from torchmatrix.core.formatting import clipped, figure, printable
from torchmatrix.facts.launch import throughput
from torchmatrix.planning import plan
from torchmatrix.planning.plan import Cell
from torchmatrix.reporting import words
from torchmatrix.running.launch_order import Lane
from torchmatrix.running.news import (
    BatchFound,
    BatchTried,
    BuildFinished,
    BuildLine,
    Heated,
    ImagesSized,
    LanesDecided,
    LanesProbed,
    LaunchCommand,
    LaunchFinished,
    LaunchPhase,
    LaunchStarted,
    LaunchWaits,
    News,
    ProbeFinished,
)

BAR_LETTERS = 20
REFRESHES_PER_SECOND = 4
NOW = {
    "hello": "importing PyTorch",
    "import": "loading the model",
    "environment": "loading the model",
    "model": "first step",
    "setup": "first step",
    "first-step": "warming up",
    "cold": "warming up",
    "warm-up": "warming up",
    "warmed-up": "measuring",
    "measure": "measuring",
    "warm": "checking numbers",
    "enqueue": "checking numbers",
    "compile": "checking numbers",
    "all-reduce": "checking numbers",
    "precision": "checking numbers",
    **dict.fromkeys(
        ("proof-windows", "proof-precision", "proof-model", "proof-steps", "proof-ranks", "proof-reference", "proof-glance"),
        "checking numbers",
    ),
    "proof-judgement": "finishing",
    "reference": "finishing",
    "done": "finishing",
}
"""What the box does after it has reported the end of a phase, in the user's terms. Waits already come with a text."""


@dataclass(kw_only=True, slots=True)
class _Doing:
    """What a lane does. `current`: its launch, as cell id and round, which began at `begin`; `now`: that in words."""

    begin: float
    current: tuple[str, int] | None = None
    now: str = ""


class Narrator:
    """Reports a run as it happens.

    `known`: seconds by cell id from earlier runs, for the time left; `build_seconds`: what comes before the first launch may
    take. `clock`: seconds, as time.monotonic gives them. `lanes`: those that may run at once.
    """

    def __init__(
        self,
        console: Console,
        launches: Iterable[tuple[Cell, int]],
        known: Mapping[str, float],
        *,
        build_seconds: float = 0.0,
        volume: Volume = Volume.NORMAL,
        clock: Callable[[], float] = time.monotonic,
        lanes: Sequence[Lane] = (),
    ) -> None:
        self._console, self._volume, self._clock = console, volume, clock
        self._left = {(cell.id, number): plan.launch_seconds(cell, number, known) for cell, number in launches}
        self._total, self._done = len(self._left), 0
        self._spent, self._expected = 0.0, 0.0
        self._taken: dict[str, list[float]] = {}
        self._build_seconds = build_seconds
        self._lane_of = {cell.id: lane.devices for lane in lanes for cell in lane.cells}
        self._doing: dict[str, _Doing] = {}
        self._begin = clock()
        self._builds: dict[str, str] = {}
        self._built = False
        self.ready: list[str] = []
        is_shown = console.is_terminal and volume > Volume.QUIET
        live = Live(get_renderable=self._picture, console=console, transient=True, refresh_per_second=REFRESHES_PER_SECOND)
        self._live = live if is_shown else None

    def __enter__(self) -> "Narrator":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def tell(self, news: News) -> None:
        """Report one piece of news."""
        if isinstance(news, BuildLine):
            self._tell_build_line(news)
        elif isinstance(news, BuildFinished):
            self._tell_build(news)
        elif isinstance(news, ImagesSized):
            self._tell_sizes(news)
        elif isinstance(news, LaunchFinished):
            self._tell_launch(news)
        elif isinstance(news, BatchFound):
            self._tell_batch(news)
        elif isinstance(news, LanesProbed | LanesDecided):
            self._tell_lanes(news)
        elif isinstance(news, Heated):
            self._line("heated", "green", f"{news.devices} for {plan.duration_in_words(news.seconds)}")
        elif isinstance(news, LaunchWaits):
            self._line("waits", "yellow", f"{news.cell.id} for {news.place}: {printable(news.reason)}")
        else:
            self._tell_progress(news)

    def _lane(self, cell: Cell) -> _Doing:
        """What the lane of a cell does; all cells without one share one."""
        return self._doing.setdefault(self._lane_of.get(cell.id, ""), _Doing(begin=self._begin))

    def _tell_progress(self, news: LaunchStarted | LaunchCommand | LaunchPhase | ProbeFinished | BatchTried) -> None:
        if isinstance(news, LaunchStarted):
            lane = self._lane(news.cell)
            lane.current, lane.begin, self._build_seconds = (news.cell.id, news.number), self._clock(), 0.0
            self._show(news.cell, "starting")
        elif isinstance(news, LaunchCommand):
            if self._volume is Volume.VERBOSE:
                self._console.print(Text(f"$ {news.command}", style="dim"), soft_wrap=True)
        elif isinstance(news, LaunchPhase):
            self._show(news.cell, _in_words(news))
        elif isinstance(news, ProbeFinished):
            self._lane(news.cell).now = ""
        else:
            fits = {"ok": "fits", "oom": "is too large"}.get(news.outcome, news.outcome)
            self._show(news.cell, f"batch {news.batch} {fits}")

    def _show(self, cell: Cell, doing: str) -> None:
        """Show what runs now. A long id loses its end, so that stack and model stay."""
        lane = self._lane(cell)
        said = f"  round {lane.current[1]}: {doing}" if lane.current and lane.current[0] == cell.id else f"  {doing}"
        said = clipped(printable(said), self._console.width // 2)
        lane.now = clipped(cell.id, self._console.width - len(said)) + said

    def _tell_build_line(self, news: BuildLine) -> None:
        self._builds[news.stack] = f"building {news.stack}: {printable(news.line)}"
        if self._volume is Volume.VERBOSE:
            self._console.print(Text.assemble((f"{news.stack} | ", "dim"), printable(news.line)), soft_wrap=True)

    def _tell_sizes(self, news: ImagesSized) -> None:
        """If something was built: how much disk space each image adds to the ones before it."""
        if not self._built:
            return
        for stack, (size, own) in news.sizes.items():
            self._line("image", "green", f"{stack}: {size / 1e9:.2f} GB, of which {(size - own) / 1e9:.2f} GB shared")
        total, own = (sum(pair[i] for pair in news.sizes.values()) for i in (0, 1))
        self._line("images", "green", f"{own / 1e9:.2f} GB on disk, {(total - own) / 1e9:.2f} GB saved by shared layers")

    def _tell_build(self, news: BuildFinished) -> None:
        """A stack without any log line was already built: an engine logs each step of a build and of a self-test."""
        was_built = self._builds.pop(news.stack, None) is not None
        if news.error:
            self._line("build failed", "red", f"{news.stack}: {news.error}; log: {news.log}")
        elif was_built:
            self._built = True
            self._line("built", "green", f"{news.stack} in {plan.duration_in_words(news.seconds)}")
        else:
            self.ready.append(news.stack)

    def _tell_batch(self, news: BatchFound) -> None:
        why = "not even 1 fits" if news.outcome == "oom" else f"unknown: the trial {words.failed(news.outcome)}"
        said = f"{news.batch} is the largest that fits" if news.batch else why
        self._line("batch", "green" if news.batch else "red", f"{news.cell.id}: {said}")

    def _tell_lanes(self, news: LanesProbed | LanesDecided) -> None:
        if isinstance(news, LanesProbed):
            often = f"{news.least} to {news.most} launches of each, alone and beside the others"
            self._line("test", "green", f"do {', '.join(news.devices)} disturb each other? {often}")
            return
        self._lane_of = self._lane_of if news.at_once else {}
        self._doing.clear()
        self._line("at once" if news.at_once else "in turn", "green", news.why)

    def _tell_launch(self, news: LaunchFinished) -> None:
        expected = self._left.pop((news.cell.id, news.number), 0.0)
        self._spent, self._expected = self._spent + news.seconds, self._expected + expected
        if news.launch.is_ok and not (news.cell.workload.compile and news.number == 1):
            self._taken.setdefault(news.cell.id, []).append(news.seconds)
        self._done += 1
        self._total = max(self._total, self._done + len(self._left))
        lane = self._lane(news.cell)
        lane.current, lane.now = None, ""
        outcome = news.launch.outcome
        said = f"{figure(throughput(news.launch))} {news.cell.workload.unit}/s" if outcome == "ok" else f"{news.launch.error}"
        left = self._time_left()
        left = f"  ({left})" if left and not self._console.is_terminal else ""
        said = f"{news.cell.id} round {news.number}: {said}{f' ({news.note})' if news.note else ''}{left}"
        self._line(outcome, "green" if outcome == "ok" else "red", said, before=f"[{self._done}/{self._total}] ")

    def _line(self, mark: str, color: str, text: str, before: str = "") -> None:
        """Print a line that stays; with --quiet only for failures. Never as markup, since `text` comes from outside."""
        if self._volume is Volume.QUIET and color != "red":
            return
        self._console.print(Text.assemble(before, (f"{mark:<8}", color), " ", text), highlight=False, soft_wrap=True)

    def _picture(self) -> Group:
        """What is under way: a line for each build or for the launch, then the bar with the time left."""
        lines = [*self._builds.values(), *(lane.now for lane in list(self._doing.values()) if lane.now)]
        shown: list[Text | Table] = [Text(clipped(line, self._console.width), no_wrap=True) for line in lines]
        if self._total:
            bar = Table.grid(padding=(0, 1))
            progress = ProgressBar(total=self._total, completed=self._done, width=BAR_LETTERS)
            bar.add_row(progress, f"{self._done}/{self._total}", self._time_left())
            shown.append(bar)
        return Group(*shown)

    def _time_left(self) -> str:
        """The estimated time left, by how long finished launches of the same cell took, or others against their estimates; it
        counts down.

        Of lanes that run at once the longest counts, and then what runs after them.
        """
        left: dict[str, float] = {}
        for launch in list(self._left):
            lane = self._lane_of.get(launch[0], "")
            left[lane] = left.get(lane, 0.0) + self._expected_of(launch)
        waiting = {lane: self._waiting(lane, expected) for lane, expected in left.items()}
        after = waiting.pop("", 0.0)
        builds = max(0.0, self._build_seconds - (self._clock() - self._begin))
        seconds = max(waiting.values(), default=0.0) + after + builds
        return f"about {plan.duration_in_words(seconds)} left" if seconds >= 1 else ""

    def _expected_of(self, launch: tuple[str, int]) -> float:
        """Seconds that a launch may take: a cell that drifts does so in most of its launches."""
        if taken := self._taken.get(launch[0]):
            return fmean(taken)
        return self._left.get(launch, 0.0) * (self._spent / self._expected if self._expected else 1.0)

    def _waiting(self, lane: str, expected: float) -> float:
        """Seconds until a lane is done; `expected`: of all that it has not finished."""
        doing = self._doing.get(lane)
        if doing is None or doing.current not in self._left:
            return expected
        return expected - min(self._clock() - doing.begin, self._expected_of(doing.current))


def _in_words(news: LaunchPhase) -> str:
    said = NOW.get(news.phase, news.phase)
    return "compiling, first step" if said == "first step" and news.cell.workload.compile else said
