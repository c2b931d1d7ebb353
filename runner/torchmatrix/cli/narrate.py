"""News -> words for the terminal: a progress bar with ETA where there is a terminal, plain lines elsewhere."""

from collections.abc import Iterable, Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from torchmatrix.facts.launch import throughput
from torchmatrix.planning import estimate
from torchmatrix.planning.plan import Cell
from torchmatrix.running.news import (
    BatchFound,
    BatchTried,
    BuildFinished,
    BuildLine,
    ImagesSized,
    LaunchFinished,
    LaunchPhase,
    LaunchStarted,
    News,
)


class Narrator:
    """Tells a run as it happens. `known`: seconds by cell id from earlier runs, for the ETA."""

    def __init__(self, console: Console, launches: Iterable[tuple[Cell, int]], known: Mapping[str, float]) -> None:
        self._console = console
        self._left = {(cell.id, number): estimate.launch_seconds(cell, number, known) for cell, number in launches}
        self._total = len(self._left)
        self._spent, self._expected = 0.0, 0.0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[eta]}"))
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("starting", total=self._total, eta="")
        self._builds: dict[str, TaskID] = {}
        self._built = False
        self.ready: list[str] = []
        self._done = 0

    def __enter__(self) -> "Narrator":
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def tell(self, news: News) -> None:
        """One piece of news."""
        if isinstance(news, BuildLine):
            self._show_build(news)
        elif isinstance(news, BuildFinished):
            self._tell_build(news)
        elif isinstance(news, ImagesSized):
            self._tell_sizes(news)
        elif isinstance(news, LaunchStarted):
            self._show(f"{news.cell.id} (round {news.number})")
        elif isinstance(news, LaunchPhase):
            self._show(f"{news.cell.id}: {news.phase}")
        elif isinstance(news, LaunchFinished):
            self._tell_launch(news)
        elif isinstance(news, BatchTried):
            self._show(f"{news.cell.id}: batch {news.batch}: {news.outcome}")
        elif isinstance(news, BatchFound):
            why = "not even 1 fits" if news.outcome == "oom" else f"can't be told: the trial's outcome is {news.outcome}"
            said = f"{news.batch} is the largest that fits" if news.batch else why
            self._line("batch", "green" if news.batch else "red", f"{news.cell.id}: {said}")

    def _show(self, text: str) -> None:
        width = max(20, self._console.width - 50)
        self._progress.update(self._task, description=text[-width:].replace("[", r"\["), eta=self._eta())

    def _show_build(self, news: BuildLine) -> None:
        """One line on the screen per image that is being built, with its log's last line."""
        if news.stack not in self._builds:
            self._builds[news.stack] = self._progress.add_task("", total=None, eta="")
        width = max(20, self._console.width - 50)
        text = f"building {news.stack}: {news.line}"[:width]
        self._progress.update(self._builds[news.stack], description=text.replace("[", r"\["))

    def _tell_sizes(self, news: ImagesSized) -> None:
        """Only if something was built: what each image adds on disk to those before it."""
        if not self._built:
            return
        for stack, (size, own) in news.sizes.items():
            self._line("image", "green", f"{stack}: {size / 1e9:.2f} GB, of which {(size - own) / 1e9:.2f} GB shared")
        total, own = (sum(pair[i] for pair in news.sizes.values()) for i in (0, 1))
        self._line("images", "green", f"{own / 1e9:.2f} GB on disk, {(total - own) / 1e9:.2f} GB saved by shared layers")

    def _tell_build(self, news: BuildFinished) -> None:
        """Who said nothing meanwhile did nothing: an engine logs each step of a build and of a self-test."""
        row = self._builds.pop(news.stack, None)
        if row is not None:
            self._progress.remove_task(row)
        if news.error:
            self._line("build failed", "red", f"{news.stack}: {news.error}; log: {news.log}")
        elif row is not None:
            self._built = True
            self._line("built", "green", f"{news.stack} in {estimate.in_words(news.seconds)}")
        else:
            self.ready.append(news.stack)

    def _tell_launch(self, news: LaunchFinished) -> None:
        expected = self._left.pop((news.cell.id, news.number), 0.0)
        self._spent, self._expected = self._spent + news.seconds, self._expected + expected
        self._done += 1
        self._total = max(self._total, self._done + len(self._left))
        outcome = news.launch.outcome
        self._progress.update(self._task, completed=self._done, total=self._total, eta=self._eta())
        color = "green" if outcome == "ok" else "red"
        said = f"{throughput(news.launch):.4g} {news.cell.workload.unit}/s" if outcome == "ok" else f"{news.launch.error}"
        eta = "" if self._console.is_terminal else f"  ({self._eta()})"
        said = f"{news.cell.id} round {news.number}: {said}{f' ({news.note})' if news.note else ''}{eta}"
        self._line(outcome, color, said, before=f"[{self._done}/{self._total}] ")

    def _line(self, mark: str, color: str, text: str, before: str = "") -> None:
        """One line that stays; never markup, since `text` comes from outside."""
        self._console.print(Text.assemble(before, (f"{mark:<8}", color), " ", text), highlight=False, soft_wrap=True)

    def _eta(self) -> str:
        """What is left by the estimates, corrected by how the finished launches compared with theirs."""
        pace = self._spent / self._expected if self._expected else 1.0
        return f"about {estimate.in_words(sum(self._left.values()) * pace)} left"
