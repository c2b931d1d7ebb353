"""Why two profiled cells take different times, beside their step times as a run measured them."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchmatrix.facts.alike import counting
from torchmatrix.facts.launch import Launch, measured_seconds
from torchmatrix.facts.store import Results
from torchmatrix_plugins.profile.profiles import Part, Shares


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The median step of a cell's ok launches in one run, in seconds; NaN, 0 and "" if no run has one."""

    seconds: float = math.nan
    launches: int = 0
    run: str = ""


NOT_MEASURED = Measured()


def recorded(store: Results, machine: str | None, cell: str) -> Iterator[tuple[str, Launch]]:
    """Yield the ok launches of a cell on a machine, with the id of their run; those of the newest run first."""
    for folder in reversed(store.runs()):
        for launch in counting(folder.of_cell(cell)):
            if launch.is_ok and launch.machine == machine:
                yield folder.id, launch


def measured(store: Results, machine: str | None, batches: Mapping[str, int]) -> list[Measured]:
    """Return for each cell with its batch the median of the newest run that measured all of them; its launches took turns."""
    runs: list[dict[str, list[Launch]]] = []
    for cell, batch in batches.items():
        of_cell: dict[str, list[Launch]] = {}
        for run, launch in recorded(store, machine, cell):
            if launch.batch == batch:
                of_cell.setdefault(run, []).append(launch)
        runs.append(of_cell)
    common = next((run for run in runs[0] if all(run in of_cell for of_cell in runs)), None)
    return [NOT_MEASURED if common is None else _median(of_cell[common], common) for of_cell in runs]


def _median(launches: Sequence[Launch], run: str) -> Measured:
    steps = [measured_seconds(launch) / sum(window.steps for window in launch.windows) for launch in launches]
    return Measured(seconds=statistics.median(steps), launches=len(launches), run=run)


# Bars that add up to the difference of two profiled cells' step times: the part of each operator or kernel.

MOST_BARS = 15
"""The most operators or kernels that are shown one by one; the others are one bar."""
NOT_ATTRIBUTED = "(not attributed: the profiler)"
"""The difference of measured steps less that of profiled ones."""
SCATTER = 0.02
"""For steps that differ by less than this ratio, one launch of each can't show why."""
CHANGED_BY = 0.5
"""A part of the difference that is larger than this, and not attributed, makes the attribution doubtful."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two cells. `plain`: seconds of a step in the same process, without the profiler."""

    cell: str
    shares: Shares
    plain: float
    measured: Measured = NOT_MEASURED


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """Seconds of a step in A and in B. `calls`: how often it ran in a step of each. `by`: what launched it if it's a kernel."""

    name: str
    seconds: tuple[float, float]
    calls: tuple[float, float] = (math.nan, math.nan)
    by: str = ""

    @property
    def difference(self) -> float:
        """Return B minus A."""
        return self.seconds[1] - self.seconds[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """The explanation. `bars`: operators or kernels, those that make most of the difference first; with `gap` they add up to
    `profiled`.
    """

    a: Side
    b: Side
    bars: tuple[Bar, ...]
    gap: Bar

    @property
    def profiled(self) -> float:
        """Return the difference of profiled steps, B minus A, in seconds."""
        return self.b.shares.seconds - self.a.shares.seconds

    @property
    def is_measured(self) -> bool:
        """Check whether both were measured in a run; else the steps without the profiler stand for that."""
        return bool(self.a.measured.launches and self.b.measured.launches)

    @property
    def steps(self) -> tuple[float, float]:
        """Return the seconds of a step that no profiler slowed down."""
        a, b = self.a, self.b
        return (a.measured.seconds, b.measured.seconds) if self.is_measured else (a.plain, b.plain)

    @property
    def told(self) -> float:
        """Return the difference that is to be explained, in seconds."""
        return self.steps[1] - self.steps[0]

    @property
    def not_attributed(self) -> float:
        """Return the part of the difference that all bars and the gap leave."""
        return self.told - self.profiled

    def share(self, bar: Bar) -> float:
        """Return a bar's share of the profiled difference; NaN where that is within the scatter of single launches."""
        return math.nan if self.is_scatter else bar.difference / self.profiled

    @property
    def is_scatter(self) -> bool:
        """Check whether the profiled steps differ too little to say why."""
        return abs(self.profiled) < SCATTER * max(self.a.shares.seconds, self.b.shares.seconds)

    @property
    def is_doubtful(self) -> bool:
        """Check whether the profiler changes most of the difference, or even its sign."""
        return abs(self.not_attributed) > CHANGED_BY * abs(self.told)


def why(a: Side, b: Side) -> Why:
    """Explain the difference. Both are traced by the same names: kernels or operators."""
    parts = {part.name: part for part in a.shares.parts}, {part.name: part for part in b.shares.parts}
    bars = [_bar(name, parts[0].get(name), parts[1].get(name)) for name in dict.fromkeys([*parts[0], *parts[1]])]
    name = " or ".join(dict.fromkeys((a.shares.gap_name, b.shares.gap_name)))
    return Why(
        a=a,
        b=b,
        bars=tuple(sorted(bars, key=lambda bar: (-abs(bar.difference), bar.name))),
        gap=Bar(name=name, seconds=(a.shares.gap, b.shares.gap)),
    )


def _bar(name: str, a: Part | None, b: Part | None) -> Bar:
    return Bar(
        name=name,
        seconds=(a.seconds if a else 0.0, b.seconds if b else 0.0),
        calls=(a.calls if a else 0.0, b.calls if b else 0.0),
        by=next((part.by for part in (a, b) if part), ""),
    )


def largest(explanation: Why, most: int = MOST_BARS) -> tuple[Bar, ...]:
    """Return the bars that make most of the difference, all others as one, and the gap; they add up to the profiled
    difference."""
    shown, others = explanation.bars[:most], explanation.bars[most:]
    return (*shown, *([_together(others)] if others else []), explanation.gap)


def _together(bars: Sequence[Bar]) -> Bar:
    sums = [math.fsum(bar.seconds[side] for bar in bars) for side in (0, 1)]
    return Bar(name=f"({len(bars)} others)", seconds=(sums[0], sums[1]))
