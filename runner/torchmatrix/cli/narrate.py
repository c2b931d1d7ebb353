"""Print progress events on stderr: lines that stay and, below them on a terminal, what runs now and the time left."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from torchmatrix.cli.options import Volume
from torchmatrix.core.formatting import clipped, count, figure, printable
from torchmatrix.core.secrets import cleaned
from torchmatrix.facts.launch import throughput
from torchmatrix.planning import plan
from torchmatrix.planning.plan import Cell
from torchmatrix.reporting import words
from torchmatrix.running.progress import (
    BatchFound,
    BatchTried,
    BudgetSpent,
    BuildFinished,
    BuildLine,
    Heated,
    ImagesSized,
    LaunchCommand,
    LaunchFinished,
    LaunchPhase,
    LaunchStarted,
    LaunchWaits,
    ProgressEvent,
    RoundAdded,
)

BAR_CHARACTERS = 20
REFRESHES_PER_SECOND = 4
FEWEST_COLUMNS = 100
"""On a narrower terminal a launch's line leaves out the stack, if there is only one."""
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
"""What the workload does after it has reported the end of a phase, in the user's terms. Waits already come with a text."""


def _line_of(*parts: str | tuple[str, str]) -> Text:
    """Return one line of texts, some with a style. They come from outside: no markup, nothing that controls a terminal."""
    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(*((printable(text), style) for text, style in pairs), no_wrap=True)


@dataclass(kw_only=True, slots=True)
class _NodeState:
    """The state of a node. `current`: its launch, as cell id and round, which began at `begin`; `now`: that in words."""

    begin: float
    current: tuple[str, int] | None = None
    now: str = ""


class Narrator:
    """Reports a run as it happens.

    `earlier`: seconds by cell id from earlier runs, for the time left; `build_seconds`: how long the time before the first
    launch may be. `clock`: seconds, as time.monotonic gives them. `node_of`: the node of a cluster that measures a cell, by id.
    """

    def __init__(
        self,
        console: Console,
        launches: Iterable[tuple[Cell, int]],
        earlier: Mapping[str, float],
        *,
        build_seconds: float = 0.0,
        volume: Volume = Volume.NORMAL,
        clock: Callable[[], float] = time.monotonic,
        node_of: Mapping[str, str] | None = None,
    ) -> None:
        self._console, self._volume, self._clock = console, volume, clock
        self._earlier = earlier
        self._left = {(cell.id, number): plan.launch_seconds(cell, number, earlier) for cell, number in launches}
        self._total, self._done = len(self._left), 0
        is_narrow = console.is_terminal and console.width < FEWEST_COLUMNS
        stacks = {cell.partition("/")[0] for cell, _ in self._left}
        self._only_stack = f"{stacks.pop()}/" if len(stacks) == 1 and is_narrow else ""
        self._spent, self._expected = 0.0, 0.0
        self._taken: dict[str, list[float]] = {}
        self._build_seconds = build_seconds
        self._node_of = node_of or {}
        self._node_states: dict[str, _NodeState] = {}
        self._begin = clock()
        self._builds: dict[str, str] = {}
        self._built = False
        self.ready: list[str] = []
        is_shown = console.is_terminal and volume > Volume.QUIET
        live = Live(
            get_renderable=self._render, console=console, transient=True, refresh_per_second=REFRESHES_PER_SECOND,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._live = live if is_shown else None

    def __enter__(self) -> "Narrator":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def tell(self, event: ProgressEvent) -> None:
        """Report a progress event."""
        if isinstance(event, BuildLine):
            self._tell_build_line(event)
        elif isinstance(event, BuildFinished):
            self._tell_build(event)
        elif isinstance(event, ImagesSized):
            self._tell_sizes(event)
        elif isinstance(event, RoundAdded):
            self._tell_round(event)
        elif isinstance(event, BudgetSpent):
            self._line("budget", "yellow", f"spent: {count(event.cells, 'cell')} would have been launched again")
        elif isinstance(event, LaunchFinished):
            self._tell_launch(event)
        elif isinstance(event, BatchFound):
            self._tell_batch(event)
        elif isinstance(event, Heated):
            self._line("heated", "green", f"{event.devices} for {plan.duration_in_words(event.seconds)}")
        elif isinstance(event, LaunchWaits):
            self._line("waits", "yellow", f"{event.cell.id} for {event.place}: {cleaned(event.reason)}")
        else:
            self._tell_progress(event)

    def _node(self, cell: Cell) -> _NodeState:
        """Return the state of the node that measures a cell; this machine is one."""
        return self._node_states.setdefault(self._node_of.get(cell.id, ""), _NodeState(begin=self._begin))

    def _tell_progress(self, event: LaunchStarted | LaunchCommand | LaunchPhase | BatchTried) -> None:
        if isinstance(event, LaunchStarted):
            node = self._node(event.cell)
            node.current, node.begin, self._build_seconds = (event.cell.id, event.number), self._clock(), 0.0
            self._show(event.cell, "starting")
        elif isinstance(event, LaunchCommand):
            if self._volume is Volume.VERBOSE:
                self._print((f"$ {event.command}", "dim"))
        elif isinstance(event, LaunchPhase):
            phase = NOW.get(event.phase, event.phase)
            compiles = phase == "first step" and event.cell.workload.compile
            self._show(event.cell, "compiling, first step" if compiles else phase)
        else:
            fits = {"ok": "fits", "oom": "is too large"}.get(event.outcome, event.outcome)
            self._show(event.cell, f"batch {event.batch} {fits}")

    def _show(self, cell: Cell, doing: str) -> None:
        """Show what runs now. A long id loses its end, so that stack and model stay."""
        node = self._node(cell)
        text = f"  round {node.current[1]}: {doing}" if node.current and node.current[0] == cell.id else f"  {doing}"
        text = clipped(text, self._console.width // 2)
        node.now = clipped(cell.id, self._console.width - len(text)) + text

    def _tell_build_line(self, event: BuildLine) -> None:
        self._builds[event.stack] = f"building {event.stack}: {event.line}"
        if self._volume is Volume.VERBOSE:
            self._print((f"{event.stack} | ", "dim"), event.line)

    def _tell_sizes(self, event: ImagesSized) -> None:
        """Print how much disk space each image adds to the ones before it, if something was built."""
        if not self._built:
            return
        for stack, (size, added) in event.sizes.items():
            self._line("image", "green", f"{stack}: {size / 1e9:.2f} GB, of which {(size - added) / 1e9:.2f} GB shared")
        total, added = (sum(pair[i] for pair in event.sizes.values()) for i in (0, 1))
        self._line("images", "green", f"{added / 1e9:.2f} GB on disk, {(total - added) / 1e9:.2f} GB saved by shared layers")

    def _tell_build(self, event: BuildFinished) -> None:
        """Print how a build ended. A stack without log lines was already built: engines log each step and self-test."""
        was_built = self._builds.pop(event.stack, None) is not None
        if event.error:
            self._line("build failed", "red", f"{event.stack}: {event.error}; log: {event.log}")
        elif was_built:
            self._built = True
            self._line("built", "green", f"{event.stack} in {plan.duration_in_words(event.seconds)}")
        else:
            self.ready.append(event.stack)

    def _tell_batch(self, event: BatchFound) -> None:
        why = "not even 1 fits" if event.outcome == "oom" else f"unknown: the trial {words.failed(event.outcome)}"
        if event.batch:
            is_known = event.outcome == "ok"
            why = f"{event.batch} " + ("is the largest that fits" if is_known else f"fits; whether more does is {why}")
        self._line("batch", "green" if event.batch else "red", f"{event.cell.id}: {why}")

    def _tell_round(self, event: RoundAdded) -> None:
        for cell in event.cells:
            self._left[cell.id, event.number] = plan.launch_seconds(cell, event.number, self._earlier)
        self._total = max(self._total, self._done + len(self._left))
        self._line("further", "yellow", f"round {event.number}: {count(len(event.cells), 'launch')} of cells that need more")

    def _tell_launch(self, event: LaunchFinished) -> None:
        expected = self._left.pop((event.cell.id, event.number), 0.0)
        further = [launch for launch in self._left if event.is_last and launch[0] == event.cell.id]
        for launch in further:
            del self._left[launch]
        self._total -= len(further)
        self._spent, self._expected = self._spent + event.seconds, self._expected + expected
        if event.launch.is_ok and not (event.cell.workload.compile and event.number == 1):
            self._taken.setdefault(event.cell.id, []).append(event.seconds)
        self._done += 1
        self._total = max(self._total, self._done + len(self._left))
        node = self._node(event.cell)
        node.current, node.now = None, ""
        outcome = event.launch.outcome
        message = (
            f"{figure(throughput(event.launch))} {event.cell.workload.unit}/s" if outcome == "ok" else f"{event.launch.error}"
        )
        left = self._time_left()
        left = f"  ({left})" if left and not self._console.is_terminal else ""
        name = event.cell.id.removeprefix(self._only_stack)
        message = f"{name} round {event.number}: {message}{f' ({event.note})' if event.note else ''}{left}"
        done = f"[{self._done:>{len(str(self._total))}}/{self._total}] "
        self._line(outcome, "green" if outcome == "ok" else "red", message, before=done)

    def _line(self, mark: str, color: str, text: str, before: str = "") -> None:
        """Print a line that stays; with --quiet only for failures."""
        if self._volume is not Volume.QUIET or color == "red":
            self._print(before, (f"{mark:<8}", color), " ", text)

    def _print(self, *parts: str | tuple[str, str]) -> None:
        self._console.print(_line_of(*parts), highlight=False, soft_wrap=True)

    def _render(self) -> Group:
        """Return what is under way: a line for each build or for the launch, then the bar with the time left."""
        lines = [*self._builds.values(), *(node.now for node in list(self._node_states.values()) if node.now)]
        shown: list[Text | Table] = [_line_of(clipped(line, self._console.width)) for line in lines]
        if self._total:
            bar = Table.grid(padding=(0, 1))
            progress = ProgressBar(total=self._total, completed=self._done, width=BAR_CHARACTERS)
            bar.add_row(progress, f"{self._done}/{self._total}", self._time_left())
            shown.append(bar)
        return Group(*shown)

    def _time_left(self) -> str:
        """Estimate the time left, by finished launches of the same cell, or of others against their estimates; it counts down.

        On a cluster, the node counts whose launches take longest.
        """
        left: dict[str, float] = {}
        for launch in list(self._left):
            node = self._node_of.get(launch[0], "")
            left[node] = left.get(node, 0.0) + self._expected_of(launch)
        builds = max(0.0, self._build_seconds - (self._clock() - self._begin))
        seconds = builds + max((self._seconds_left(node, expected) for node, expected in left.items()), default=0.0)
        return f"about {plan.duration_in_words(seconds)} left" if seconds >= 1 else ""

    def _expected_of(self, launch: tuple[str, int]) -> float:
        """Return the seconds that a launch may take: a cell that drifts does so in most of its launches."""
        if taken := self._taken.get(launch[0]):
            return fmean(taken)
        return self._left.get(launch, 0.0) * (self._spent / self._expected if self._expected else 1.0)

    def _seconds_left(self, node: str, expected: float) -> float:
        """Return the seconds until a node is done; `expected`: those of all launches that it has not finished."""
        state = self._node_states.get(node)
        if state is None or state.current not in self._left:
            return expected
        return expected - min(self._clock() - state.begin, self._expected_of(state.current))
