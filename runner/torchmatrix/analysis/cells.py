"""The measured cell, of which every comparison consists: machine × stack × workload × devices, and its launches."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

from torchmatrix.analysis import intervals, levels, rows
from torchmatrix.analysis.centers import mean_of, median_of, variance_of
from torchmatrix.analysis.pairs import ITSELF, Pair, pair, pair_by_rounds, pair_of_moments
from torchmatrix.analysis.rows import (
    BATCH,
    EQUIVALENT,
    MOST_DIFFERENCES,
    Counted,
    Row,
    StackUsed,
    Work,
    group_by,
    has_failed,
    is_ok,
    makes_figures,
    name_of,
    stack_match,
    stack_of,
    work_differences,
)
from torchmatrix.facts.launch import UNLIKE

CellKey: TypeAlias = tuple[str, ...]
"""The identity of a cell: its id, and in rows of several machines the machine before it."""
OF_A_FLEET = ("machine", "gpu")
"""Additional columns in rows of several machines (see machines.py)."""


def key_of(row: Row) -> CellKey:
    """Return the key of a row's cell: cells of one id on two machines are different cells."""
    return (row["machine"], row["cell"]) if "machine" in row else (row["cell"],)


class Family:
    """The cells of one run on one machine, which together show how much launches scatter, and whether they come in levels."""

    def __init__(self, cells: Sequence["Cell"] = ()) -> None:
        self._cells = cells
        self._priors: dict[str, intervals.Prior] = {}
        self._jumps: dict[str, float] = {}

    def prior(self, column: str) -> intervals.Prior:
        """Return the prior of the variances of a metric."""
        if column not in self._priors:
            self._priors[column] = intervals.learned_of(self._of(column))
        return self._priors[column]

    def jump(self, column: str) -> float:
        """Return how far apart levels of a metric may lie that single cells don't show; 0: there is no sign of any."""
        if column not in self._jumps:
            logs = [[math.log(value) for value in values] for values in self._of(column)]
            self._jumps[column] = levels.jump_of_run(logs)
        return self._jumps[column]

    @cached_property
    def levels(self) -> dict[int, levels.Cut]:
        """Return the cuts of the throughputs of cells whose launches come in two levels, by the cells' ids as objects."""
        cells = [cell for cell in self._cells if len(cell.samples) >= levels.SEEN_IN_CELL and min(cell.samples) > 0]
        cuts = levels.best_cuts([[math.log(rate) for rate in cell.samples] for cell in cells])
        noteworthy = levels.significant_levels(cuts, 1 - intervals.CONFIDENCE)
        return {id(cell): cut for cell, cut in zip(cells, noteworthy, strict=True) if cut}

    def _of(self, column: str) -> Iterator[list[float]]:
        """Yield each cell's values of a metric, without cells that have a value without a logarithm."""
        values_by_cell = (cell.values(column) for cell in self._cells)
        return (values for values in values_by_cell if values and min(values) > 0)


ALONE = Family()
"""The family of a cell of which no other is known."""


class Cell:
    """One cell. `launches`: its rows of launch_rows; `ok`: those that measured. A launch that failed early knows less about
    itself, so `row` is that of the first ok one, `last` that of the last; without any, of the first and the last.
    `cell["stack"]` is that of its row. `family`: the cells of its run."""

    def __init__(self, launches: Sequence[Row], family: Family = ALONE) -> None:
        self.launches = launches
        self.family = family
        self.ok = [row for row in launches if is_ok(row)]
        self._estimates: dict[str, intervals.Interval] = {}
        self._intervals: dict[str, intervals.Interval] = {}
        self._moments: dict[str, intervals.Moments | None] = {}

    @cached_property
    def row(self) -> Row:
        return (self.ok or self.launches)[0]

    @cached_property
    def last(self) -> Row:
        return (self.ok or self.launches)[-1]

    @property
    def _telling(self) -> Row:
        """Return the last ok launch; without any the first one."""
        return self.last if self.ok else self.row

    def __getitem__(self, name: str) -> Any:
        return self.row[name]

    @cached_property
    def work(self) -> Work:
        """Return the work that its launches were to do (rows.work_of)."""
        work_fields: Work = json.loads(self._telling["work"])
        return work_fields

    @cached_property
    def job(self) -> tuple[Any, ...]:
        """Return the settings of its workload, without the batch."""
        return rows.settings_of(self.work)

    @cached_property
    def stack(self) -> StackUsed:
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
        """Return the values of a metric of its ok launches, by the metric's column."""
        return [row[column] for row in self.ok if row[column] == row[column]]

    def estimate(self, column: str = "throughput") -> intervals.Interval:
        """Return the centre of a metric with the 95 % interval; NaN where too few launches have a value."""
        if column not in self._estimates:
            values = self.values(column)
            prior = self.family.prior(column) if len(values) > 1 else intervals.NO_PRIOR
            self._estimates[column] = intervals.center_interval(values, self.last["statistic"], prior)
        return self._estimates[column]

    def interval(self, column: str) -> intervals.Interval:
        """Return the median of a metric with the 95 % interval, however throughputs are combined; NaN where it isn't known."""
        if column not in self._intervals:
            values = self.values(column)
            prior = self.family.prior(column) if len(values) > 1 else intervals.NO_PRIOR
            has_one = bool(values) and min(values) > 0
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
        reasons = Counter(row["left_out"] for row in self.launches if row["outcome"] == UNLIKE)
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

    def summary(self, column: str = "throughput") -> Row:
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
                figure = intervals.moments(values, self.family.prior(column))
                if len(values) < intervals.SEEN_FROM:
                    figure = figure._replace(jump=self.family.jump(column))
            self._moments[column] = figure
        return self._moments[column]

    def over(self, base: "Cell", column: str = "throughput") -> Pair:
        """Return a metric's ratio to another cell: round by round where both have PAIRED_FROM rounds of one run in common."""
        if self is base:
            return ITSELF
        rounds = self.rounds_with(base, column)
        if len(rounds) >= intervals.PAIRED_FROM:
            above_values, below_values = zip(*rounds, strict=True)
            return pair_by_rounds(above_values, below_values)
        above, below = self.moments(column), base.moments(column)
        return pair_of_moments(above, below) if above and below else pair(self.values(column), base.values(column))

    def rounds_with(self, other: "Cell", column: str = "throughput") -> list[tuple[float, float]]:
        """Return its values and the other's in every round of one run that both have: such launches were interleaved."""
        if min(len(self.ok), len(other.ok)) < intervals.PAIRED_FROM or self.family is not other.family:
            return []
        a, b = ({(row["run"], row["round"]): row[column] for row in cell.ok} for cell in (self, other))
        pairs = [(a[key], b[key]) for key in sorted(a.keys() & b.keys())]
        return [two for two in pairs if not any(map(math.isnan, two))]

    @property
    def levels(self) -> str:
        """Describe in which two levels its launches come, and what differs between them; "" if they don't."""
        cut = self.family.levels.get(id(self))
        return levels.levels_in_words(self.ok, cut, self["unit"]) if cut else ""

    @property
    def machine(self) -> str:
        """Return its machine's label; "" in rows of one machine."""
        return str(self.row.get("machine", ""))

    @property
    def names(self) -> Row:
        """Return the columns that identify it in every table, with its machine and GPU in tables of several machines."""
        return {name: self.row[name] for name in ("cell", "stack", "workload", "devices", "count")} | self.fleet

    @property
    def fleet(self) -> Row:
        """Return its machine and GPU; nothing in rows of one machine."""
        return {name: self.row[name] for name in OF_A_FLEET if name in self.row}

    def highest(self, column: str) -> float:
        """Return the highest value of a column among the ok launches; NaN if there is none."""
        return max(self.values(column), default=math.nan)


NO_CELL = Cell(())
"""The cell of something that was never launched."""


class CellIndex:
    """All cells of launches, of one machine or of several, in the order in which they first appear."""

    def __init__(self, launches: Iterable[Row]) -> None:
        self.every = [Cell(rows_of_cell) for rows_of_cell in rows.group_by(launches, key_of).values()]
        for cells in rows.group_by(self.every, lambda cell: cell.machine).values():
            family = Family(cells)
            for cell in cells:
                cell.family = family
        self._places = {_place(cell, cell["device_list"], cell["parallel"]): cell for cell in self.every}

    @property
    def family(self) -> Family:
        """Return all cells of one machine as a family."""
        return self.every[0].family if self.every else ALONE

    @cached_property
    def named(self) -> dict[str, Cell]:
        """Return the cells of one machine by id."""
        return {cell["cell"]: cell for cell in self.every}

    @cached_property
    def figures(self) -> list[Cell]:
        """Return all cells but those that only explain others."""
        return [cell for cell in self.every if makes_figures(cell.row)]

    def other(self, cell: Cell, devices: tuple[str, ...], parallel: str = "") -> Cell | None:
        """Return the cell of the same machine, stack and workload on other devices or with another `parallel`, if there is
        one."""
        return self._places.get(_place(cell, devices, parallel or cell["parallel"]))


def samples_of(cell: Cell | None) -> list[float]:
    """Return items per second of each ok launch of a cell; none where there is no cell."""
    return cell.samples if cell else []


def _place(cell: Cell, devices: tuple[str, ...], parallel: str) -> tuple[Any, ...]:
    return (cell.machine, cell["stack"], cell["ddp_workload"], parallel, devices)


# Match the cells of two sides: the same job on as many devices, on the same or on like stacks.

OTHER = "other"
"""The two sides are different stacks, as requested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """Two cells to compare. `stack_match`: equal, equivalent or other; `label`: what they have in common."""

    a: Cell
    b: Cell
    stack_match: str
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """All matches. `near`: cells that differ in their settings, so that only the difference can be reported. `only_one`: the
    rest, by label.
    """

    pairs: tuple[Match, ...]
    near: tuple[Match, ...]
    only_one: tuple[tuple[str, Cell], ...]


def matched(
    a: Sequence[Row], b: Sequence[Row], families: Sequence[Mapping[str, Family]] = (MappingProxyType({}), MappingProxyType({}))
) -> Matched:
    """Match cells of A and of B; both are rows of launch_rows. `families`: of A and of B the cells by run.

    Stacks: those of one name; of the rest those of one torch release, where each side has one of it. If no stack has a
    counterpart, the sides themselves are the two stacks. Then for each such pair: cells of one workload (by its id, else by its
    settings and its batch) on the same devices, else on as many; at last, cells that differ in their batch only, the larger
    with the larger. Cells that are left over are near if they differ in a few settings, but not in the model or the mode.
    """
    pairs: list[Match] = []
    near: list[Match] = []
    only_one: list[tuple[str, Cell]] = []
    stacks = _stacks(a), _stacks(b)
    stack_pairs = _stack_pairs(*stacks)
    for ours, theirs, match in stack_pairs or _UNMATCHED:
        sides = (_cells(a, ours, families[0]), _cells(b, theirs, families[1]))
        order = {id(cell): place for place, cell in enumerate(sides[0])}
        alike = sorted(_alike(sides), key=lambda two: order[id(two[0])])
        pairs += [_match(*two, match, len(stack_pairs)) for two in alike]
        near += [_match(*two, match, len(stack_pairs)) for two in _near(sides)]
        only_one += [(_label(cell, name), cell) for side, name in zip(sides, (ours, theirs), strict=True) for cell in side]
    if stack_pairs:
        only_one += _unmatched(a, set(stacks[0]) - {ours for ours, _, _ in stack_pairs})
        only_one += _unmatched(b, set(stacks[1]) - {theirs for _, theirs, _ in stack_pairs})
    return Matched(pairs=tuple(pairs), near=tuple(near), only_one=tuple(only_one))


def _unmatched(rows: Sequence[Row], stacks: set[str]) -> list[tuple[str, Cell]]:
    """Return the cells of stacks that have no counterpart, if others have."""
    return [(_label(cell, name), cell) for name in sorted(stacks) for cell in _cells(rows, name, {})]


def _stacks(rows: Iterable[Row]) -> dict[str, StackUsed]:
    """Return stacks by name, in the order in which they first appear, by the first launch that knows release and recipe."""
    stacks: dict[str, StackUsed] = {}
    for row in rows:
        previous = stacks.get(row["stack"])
        if previous is None or previous.release is None or previous.recipe is None:
            stacks[row["stack"]] = stack_of(row)
    return stacks


_Stacks = tuple[str | None, str | None, str]
_UNMATCHED: list[_Stacks] = [(None, None, OTHER)]


def _stack_pairs(a: dict[str, StackUsed], b: dict[str, StackUsed]) -> list[_Stacks]:
    """Return names of stacks to compare, and how they match."""
    shared: list[_Stacks] = [(name, name, stack_match(a[name], b[name]) or OTHER) for name in a if name in b]
    ours, theirs = ([used for name, used in side.items() if not (name in a and name in b)] for side in (a, b))
    for stack in ours:
        candidates = [other for other in theirs if stack_match(stack, other)]
        rivals = [other for other in ours if stack_match(stack, other)]
        if len(candidates) == len(rivals) == 1:
            shared.append((stack.name, candidates[0].name, EQUIVALENT))
    return shared


def _cells(rows: Iterable[Row], stack: str | None, families: Mapping[str, Family]) -> list[Cell]:
    """Return cells by workload and devices, of one stack; None: of all. Cells measured by several runs have no family."""
    chosen = (row for row in rows if stack in (None, row["stack"]))
    groups = group_by(chosen, lambda row: (row["workload"], row["devices"]))
    runs = [{row["run"] for row in group} for group in groups.values()]
    return [
        Cell(group, families.get(next(iter(ids)), ALONE) if len(ids) == 1 else ALONE)
        for group, ids in zip(groups.values(), runs, strict=True)
    ]


def _label(cell: Cell, stack: str | None) -> str:
    return "/".join(filter(None, (stack, cell["workload"], cell["devices"])))


Rule = Callable[[Cell, Cell], bool]
Sides = tuple[list[Cell], list[Cell]]
Two = tuple[Cell, Cell]


def _alike(sides: Sides) -> list[Two]:
    """Return the pairs by the rules, the closest matches first, and take them out of `sides`."""
    pairs = [two for rule in _SAME_BATCH_RULES for two in _take_pairs(sides, rule)]
    for side in sides:
        side.sort(key=lambda cell: -(cell.work.get(BATCH) or 0))
    return pairs + [two for rule in _OTHER_BATCH_RULES for two in _take_pairs(sides, rule)]


def _near(sides: Sides) -> list[Two]:
    """Return for each cell that is left the one that differs in the fewest fields, and take both out of `sides`."""
    pairs = []
    for cell in list(sides[0]):
        differing = [
            (work_differences(cell.work, candidate.work), candidate) for candidate in sides[1] if _are_near(cell, candidate)
        ]
        close = [(len(fields), candidate) for fields, candidate in differing if len(fields) <= MOST_DIFFERENCES]
        if close:
            pairs.append((cell, min(close, key=lambda one: one[0])[1]))
            sides[0].remove(cell)
            sides[1].remove(pairs[-1][1])
    return pairs


def _take_pairs(sides: Sides, rule: Rule) -> list[Two]:
    """Return the pairs that obey a rule, each cell once, and take them out of `sides`."""
    pairs = []
    for cell in list(sides[0]):
        other = next(
            (candidate for candidate in sides[1] if candidate["count"] == cell["count"] and rule(cell, candidate)), None
        )
        if other:
            pairs.append((cell, other))
            sides[0].remove(cell)
            sides[1].remove(other)
    return pairs


def _have_one_id(a: Cell, b: Cell) -> bool:
    return bool(a["workload"] == b["workload"])


def _have_one_job(a: Cell, b: Cell) -> bool:
    return a.job == b.job


def _have_one_batch(a: Cell, b: Cell) -> bool:
    return bool(a.work.get(BATCH) == b.work.get(BATCH))


def _are_on_the_same_devices(a: Cell, b: Cell) -> bool:
    return bool(a["devices"] == b["devices"])


def _are_near(a: Cell, b: Cell) -> bool:
    return a["count"] == b["count"] and all(a.work.get(name) == b.work.get(name) for name in ("model", "mode", "parallel"))


def _all_of(*rules: Rule) -> Rule:
    return lambda a, b: all(rule(a, b) for rule in rules)


_SAME_BATCH_RULES: tuple[Rule, ...] = (
    _all_of(_have_one_id, _are_on_the_same_devices),
    _have_one_id,
    _all_of(_have_one_job, _have_one_batch, _are_on_the_same_devices),
    _all_of(_have_one_job, _have_one_batch),
)
_OTHER_BATCH_RULES: tuple[Rule, ...] = (_all_of(_have_one_job, _are_on_the_same_devices), _have_one_job)
"""Rules from the closest match to the loosest."""


def _match(a: Cell, b: Cell, match: str, stack_pairs: int) -> Match:
    """Make a match. `stack_pairs`: how many pairs of stacks there are; with several, the label must say which."""
    stacks = (a["stack"], b["stack"])
    parts = [_both(*stacks)] if stack_pairs > 1 or (stack_pairs and stacks[0] == stacks[1]) else []
    parts += [_workload(a, b), _both(a["devices"], b["devices"])]
    return Match(a=a, b=b, stack_match=match, label="/".join(parts))


def _workload(a: Cell, b: Cell) -> str:
    if _have_one_id(a, b) or (_have_one_job(a, b) and _have_one_batch(a, b)):
        return str(a["workload"])
    if _have_one_job(a, b):
        return f"{name_of(a.work)} (batch {_both(str(a['batch']), str(b['batch']))})"
    return _both(a["workload"], b["workload"])


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} | {b}"
