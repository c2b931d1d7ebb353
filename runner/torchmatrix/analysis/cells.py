"""The measured cell, of which every comparison consists: machine × stack × workload × devices, and its launches."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, TypeAlias

from torchmatrix.analysis import intervals, levels, metrics, rows, successive
from torchmatrix.analysis.centers import mean_of, median_of, variance_of
from torchmatrix.analysis.pairs import ITSELF, Pair, pair, pair_by_rounds, pair_of_moments
from torchmatrix.analysis.rows import (
    AnyRow,
    Counted,
    LaunchRow,
    NightRow,
    Row,
    StackUsed,
    Work,
    has_failed,
    is_ok,
    makes_figures,
)
from torchmatrix.facts.launch import UNLIKE

CellKey: TypeAlias = tuple[str, str]
"""The identity of a cell: its machine, "" in rows of one machine, and its id."""


def key_of(row: NightRow) -> CellKey:
    """Return the key of a row's cell: cells of one id on two machines are different cells."""
    return row.machine, row.cell


class Family:
    """The cells of one run on one machine, which together show how much launches scatter, and whether they come in levels."""

    def __init__(self, cells: Sequence["Cell[NightRow]"] = ()) -> None:
        self._cells = cells
        self._priors: dict[tuple[str, bool], intervals.Prior] = {}
        self._jumps: dict[str, float] = {}

    def prior(self, column: str, disturbed: bool = False) -> intervals.Prior:
        """Return the prior of the variances of a metric, of cells that other programs disturbed or of the quiet ones: how
        much those scatter says nothing of these.
        """
        key = column, disturbed
        if key not in self._priors:
            self._priors[key] = intervals.learned_of(self._of(column, disturbed))
        return self._priors[key]

    def jump(self, column: str) -> float:
        """Return how far apart levels of a metric may lie that single cells don't show; 0: there is no sign of any."""
        if column not in self._jumps:
            logs = [[math.log(value) for value in values] for values in self._of(column, disturbed=False)]
            self._jumps[column] = levels.jump_of_run(logs)
        return self._jumps[column]

    @cached_property
    def resemble(self) -> bool:
        """Check whether successive launches of its cells resemble each other, so that intervals are too narrow."""
        return successive.resemble(
            [{(row.run, row.round): math.log(row.throughput) for row in cell.ok if row.throughput > 0} for cell in self._cells]
        )

    @cached_property
    def levels(self) -> dict[int, levels.Cut]:
        """Return the cuts of the throughputs of cells whose launches come in two levels, by the cells' ids as objects."""
        cells = [cell for cell in self._cells if len(cell.samples) >= levels.SEEN_IN_CELL and min(cell.samples) > 0]
        cuts = levels.best_cuts([[math.log(rate) for rate in cell.samples] for cell in cells])
        noteworthy = levels.significant_levels(cuts, 1 - intervals.CONFIDENCE)
        return {id(cell): cut for cell, cut in zip(cells, noteworthy, strict=True) if cut}

    def _of(self, column: str, disturbed: bool) -> Iterator[list[float]]:
        """Yield the values of a metric of each disturbed or quiet cell, without cells that have a value without a logarithm."""
        values_by_cell = (cell.values(column) for cell in self._cells if bool(cell.disturbed) == disturbed)
        return (values for values in values_by_cell if values and min(values) > 0)


ALONE = Family()
"""The family of a cell of which no other is known."""


class Cell(Generic[AnyRow]):
    """One cell. `launches`: its rows of launch_rows; `ok`: those that measured. A launch that failed early knows less about
    itself, so `row` is that of the first ok one, `last` that of the last; without any, of the first and the last. `family`: the
    cells of its run."""

    def __init__(self, launches: Sequence[AnyRow], family: Family = ALONE) -> None:
        self.launches = launches
        self.family = family
        self.ok = [row for row in launches if is_ok(row)]
        self._estimates: dict[str, intervals.Interval] = {}
        self._intervals: dict[str, intervals.Interval] = {}
        self._moments: dict[str, intervals.Moments | None] = {}
        self._by_round: dict[str, dict[tuple[str, int], float]] = {}

    @cached_property
    def row(self) -> AnyRow:
        return (self.ok or self.launches)[0]

    @cached_property
    def last(self) -> AnyRow:
        return (self.ok or self.launches)[-1]

    @property
    def _telling(self) -> AnyRow:
        """Return the last ok launch; without any the first one."""
        return self.last if self.ok else self.row

    @cached_property
    def work(self) -> Work:
        """Return the work that its launches were to do (rows.work_of)."""
        work_fields: Work = json.loads(self._telling.work)
        return work_fields

    @cached_property
    def job(self) -> tuple[Any, ...]:
        """Return the settings of its workload, without the batch."""
        return rows.settings_of(self.work)

    @cached_property
    def stack(self: "Cell[LaunchRow]") -> StackUsed:
        """Return its stack as far as it matters to a comparison."""
        return rows.stack_of(self._telling)

    @cached_property
    def counted(self) -> Counted:
        """Return parameters and operations, as its ok launches counted them."""
        return rows.counted_together(map(rows.counted_of_row, self.ok))

    @cached_property
    def samples(self) -> list[float]:
        """Return items per second of each ok launch."""
        return self.values("throughput")

    def values(self, column: str) -> list[float]:
        """Return the values of a metric of its ok launches, by the metric's column; of requests' percentiles none where a
        launch served too few: those of the others would stand for all.
        """
        values = [value for row in self.ok if (value := row.value(column)) == value]  # NaN isn't itself
        return [] if len(values) < len(self.ok) and column in metrics.PERCENTILED else values

    @property
    def disturbed(self) -> int:
        """Return how many ok launches other programs disturbed, as far as is known."""
        return sum(bool(row.disturbed) for row in self.ok)

    @property
    def looks(self) -> float:
        """Return the factor of its p-values (intervals.LOOKS)."""
        return intervals.LOOKS if self.row.further else 1.0

    def prior(self, column: str) -> intervals.Prior:
        """Return what the other cells of its run tell of its scatter; nothing of a single launch."""
        return self.family.prior(column, self.disturbed > 0) if len(self.values(column)) > 1 else intervals.NO_PRIOR

    def statistic(self, column: str) -> str:
        """Return what a metric's centre is: of throughputs what the method asks for, of all else the median."""
        return str(self.last.statistic) if column == "throughput" else "median"

    def estimate(self, column: str = "throughput") -> intervals.Interval:
        """Return the centre of a metric with the 95 % interval; NaN where too few launches have a value."""
        if column not in self._estimates:
            values, statistic = self.values(column), self.statistic(column)
            self._estimates[column] = intervals.center_interval(values, statistic, self.prior(column))
        return self._estimates[column]

    def interval(self, column: str) -> intervals.Interval:
        """Return the median of a metric with the 95 % interval, however throughputs are combined; NaN where it isn't known."""
        if column not in self._intervals:
            values = self.values(column)
            has_one, prior = bool(values) and min(values) > 0, self.prior(column)
            self._intervals[column] = intervals.center_interval(values, "median", prior) if has_one else intervals.UNKNOWN
        return self._intervals[column]

    def median(self, column: str) -> float:
        """Return the median over the ok launches that have a value; NaN if none does."""
        values = self.values(column)
        return median_of(values) if values else math.nan

    @property
    def failed(self) -> int:
        """Return how many launches failed; those that are left out did not."""
        return sum(has_failed(row) for row in self.launches)

    @property
    def left_out(self) -> tuple[int, str]:
        """Return how many launches are left out of the figure, and why, such as "power limit 500 W, the others 700 W"."""
        reasons = Counter(row.left_out for row in self.launches if row.outcome == UNLIKE)
        texts = (f"{number} of them: {why}" if len(reasons) > 1 else why for why, number in reasons.items())
        return reasons.total(), "; ".join(texts)

    def figure(self, column: str = "throughput") -> Row:
        """Return a metric's figure: n, failed, left_out and why, the value, low, high, cv."""
        values, estimate = self.values(column), self.estimate(column)
        left_out, why = self.left_out
        return {
            "n": len(values), "failed": self.failed, "left_out": left_out, "left_out_why": why,
            column: estimate.value, "low": estimate.low, "high": estimate.high,
            "cv": math.sqrt(variance_of(values)) / mean_of(values) if len(values) > 1 else math.nan,
        }  # fmt: skip

    def summary(self: "Cell[LaunchRow]", column: str = "throughput") -> Row:
        """Return a metric's figure, and its verdict, what is detectable, outliers, levels."""
        figure, values, moments = self.figure(column), self.values(column), self.moments(column)
        return figure | {
            "verdict": intervals.noise_verdict(figure["cv"], len(values)),
            "detectable": pair_of_moments(moments, moments).detectable(intervals.CONFIDENCE) if moments else math.nan,
            "outliers": intervals.outliers(values), "levels": self.levels,
        }  # fmt: skip

    def moments(self, column: str = "throughput") -> intervals.Moments | None:
        """Return a metric's intervals.moments, with its family's scatter; None unless two launches have a value."""
        if column not in self._moments:
            values, figure = self.values(column), None
            if len(values) > 1 and min(values) > 0:
                figure = intervals.moments(values, self.prior(column))
                jump = self.family.jump(column) if len(values) < intervals.SEEN_FROM else 0.0
                figure = figure._replace(jump=jump, disturbed=bool(self.disturbed), looks=self.looks)
            self._moments[column] = figure
        return self._moments[column]

    def over(self, base: "Cell[NightRow]", column: str = "throughput") -> Pair:
        """Return a metric's ratio to another cell: round by round where both have PAIRED_FROM rounds of one run in common."""
        if self is base:
            return ITSELF if self.values(column) else Pair()
        rounds = self.rounds_with(base, column)
        if len(rounds) >= intervals.PAIRED_FROM:
            above_values, below_values = zip(*rounds, strict=True)
            is_disturbed = bool(self.disturbed) != bool(base.disturbed)
            return replace(pair_by_rounds(above_values, below_values), disturbed=is_disturbed, looks=self.looks)
        cell, other = self.beside(base), base.beside(self)
        above, below = cell.moments(column), other.moments(column)
        return pair_of_moments(above, below) if above and below else pair(cell.values(column), other.values(column))

    def beside(self, other: "Cell[NightRow]") -> "Cell[AnyRow]":
        """Return what of it is compared with another cell: of a run that makes further rounds for some cells only, the rounds
        that both measured. What the whole machine did in the others would be in the ratio.
        """
        if not self.row.further or self.family is not other.family:
            return self
        common = {(row.run, row.round) for row in other.ok}
        kept = [row for row in self.ok if (row.run, row.round) in common]
        return self if len(kept) in (0, len(self.ok)) else Cell(kept, self.family)

    def rounds_with(self, other: "Cell[NightRow]", column: str = "throughput") -> list[tuple[float, float]]:
        """Return its values and the other's in every round of one run that both have: such launches were interleaved."""
        if min(len(self.ok), len(other.ok)) < intervals.PAIRED_FROM or self.family is not other.family:
            return []
        if not self.values(column) or not other.values(column):
            return []
        a, b = self.by_round(column), other.by_round(column)
        pairs = [(a[key], b[key]) for key in sorted(a.keys() & b.keys())]
        return [two for two in pairs if not any(map(math.isnan, two))]

    def by_round(self, column: str) -> dict[tuple[str, int], float]:
        """Return the values of a metric of its ok launches, by run and round; NaN where one has none."""
        if column not in self._by_round:
            self._by_round[column] = {(row.run, row.round): row.value(column) for row in self.ok}
        return self._by_round[column]

    def rounds(self, column: str = "throughput") -> frozenset[tuple[str, int]]:
        """Return the runs and rounds of its ok launches that have a value of a metric."""
        return frozenset(key for key, value in self.by_round(column).items() if value == value)

    @property
    def levels(self: "Cell[LaunchRow]") -> str:
        """Describe in which two levels its launches come, and what differs between them; "" if they don't."""
        cut = self.family.levels.get(id(self))
        return levels.levels_in_words(self.ok, cut, self.row.unit) if cut else ""

    @property
    def machine(self) -> str:
        """Return its machine's label; "" in rows of one machine."""
        return self.row.machine

    @property
    def names(self: "Cell[LaunchRow]") -> Row:
        """Return the columns that identify it in every table, with its machine and GPU in tables of several machines."""
        return {name: self.row.value(name) for name in ("cell", "stack", "workload", "devices", "count")} | self.fleet

    @property
    def fleet(self) -> Row:
        """Return its machine and GPU; nothing in rows of one machine."""
        return self.row.fleet

    def highest(self, column: str) -> float:
        """Return the highest value of a column among the ok launches; NaN if there is none."""
        return max(self.values(column), default=math.nan)


NO_CELL: Cell[Any] = Cell(())
"""The cell of something that was never launched."""


class CellIndex(Generic[AnyRow]):
    """All cells of launches, of one machine or of several, in the order in which they first appear."""

    def __init__(self, launches: Iterable[AnyRow]) -> None:
        self.every = [Cell(rows_of_cell) for rows_of_cell in rows.group_by(launches, key_of).values()]
        for cells in rows.group_by(self.every, lambda cell: cell.machine).values():
            family = Family(cells)
            for cell in cells:
                cell.family = family
        self._places = {_place(cell, cell.row.device_list, cell.row.parallel): cell for cell in self.every}

    @property
    def family(self) -> Family:
        """Return all cells of one machine as a family."""
        return self.every[0].family if self.every else ALONE

    @cached_property
    def named(self) -> dict[str, Cell[AnyRow]]:
        """Return the cells of one machine by id."""
        return {cell.row.cell: cell for cell in self.every}

    @cached_property
    def figures(self) -> list[Cell[AnyRow]]:
        """Return all cells but those that only explain others."""
        return [cell for cell in self.every if makes_figures(cell.row)]

    def other(self, cell: Cell[NightRow], devices: tuple[str, ...], parallel: str = "") -> Cell[AnyRow] | None:
        """Return the cell of the same machine, stack and workload on other devices or with another `parallel`, if there is
        one."""
        return self._places.get(_place(cell, devices, parallel or cell.row.parallel))


def samples_of(cell: Cell[NightRow] | None) -> list[float]:
    """Return items per second of each ok launch of a cell; none where there is no cell."""
    return cell.samples if cell else []


def _place(cell: Cell[NightRow], devices: tuple[str, ...], parallel: str) -> tuple[Any, ...]:
    return (cell.row.machine, cell.row.stack, cell.row.ddp_workload, parallel, devices)
