"""Compare two sets of launches: ratios, intervals, verdicts, differences of the environment; or why they can't be compared.

A ratio is of one metric, by default of throughputs. Where less of it is better, it is B over A: above 1, A is the better one.

Cells are matched by what was done (matching.py), not by what the devices are called. Several verdicts are corrected for their
number, so that of those called faster or slower, and of those called the same, at most 5 % are wrong on average.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from torchmatrix.analysis import between_runs, verdicts
from torchmatrix.analysis.between_runs import BetweenRuns
from torchmatrix.analysis.cells import Cell, CellIndex, Family
from torchmatrix.analysis.intervals import geometric_mean
from torchmatrix.analysis.launch_row import row_of
from torchmatrix.analysis.matching import Match, matched
from torchmatrix.analysis.metrics import OF_ALL_REQUESTS, THROUGHPUT, Metric
from torchmatrix.analysis.pairs import UNKNOWN_PAIR, Pair
from torchmatrix.analysis.prices import NONE, PriceList, charged
from torchmatrix.analysis.rows import (
    Difference,
    LaunchRow,
    Refused,
    counted_difference,
    counted_work,
    group_by,
    is_work_checked,
    refusal_in_words,
    refusals,
    work_difference,
    work_differences,
    work_of,
)
from torchmatrix.analysis.verdicts import mean_of_pairs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import as_text, count, none_for_nan
from torchmatrix.facts import alike
from torchmatrix.facts.environments import (
    Compared,
    Environment,
    compared,
    differing,
    environment_of,
    is_of_the_machine,
    values_of,
)
from torchmatrix.facts.launch import Launch

# The result of a comparison: rows and their means.

ONE_RUN, TWO_RUNS, RUNS = "launches", "launches of two runs", "runs"
"""Levels: what the intervals are over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRow:
    """The ratio of A to B for one workload on as many devices (where less is better, of B to A).

    `refused`: why they can't be compared (the ratio is NaN then). `verdict`: FASTER, SLOWER, SAME, AMBIGUOUS, DISTURBED where
    other programs disturbed launches of one side only, or n/a where one side has fewer than two launches; corrected for the
    number of comparisons; `reason`: the rule that decided it (verdicts.REASONS; refused). `settle`: about how many launches on
    each side would end an AMBIGUOUS. `paired`: the ratio is the geometric mean over the rounds that both have. `count`: of
    devices. `stacks`, `batches`: of A and of B. `stack_match`: equal, equivalent or other. `differs`: the fields for which it
    is refused, each with both values. `p_value`: of the test for a difference; `adjusted_p_value`: corrected; `detectable`: the
    smallest difference from 1 that would be detected with a chance of 4 in 5; NaN where there is no interval. `cells`: their
    ids. `left_out`: which launches of each side, and why. `conditions`: of one machine, those that differ between the sides
    (facts/environments.py). `work_checked`: whether both sides counted the model's parameters and the operations per item,
    which must agree.
    """

    label: str
    ratio: float
    low: float
    high: float
    launches: tuple[int, int]
    failed: tuple[int, int]
    verdict: str
    settle: int | None
    reason: str = ""
    refused: str | None
    paired: bool = False
    count: int
    stacks: tuple[str, str]
    stack_match: str
    batches: tuple[int | str, int | str]
    differs: tuple[Difference, ...]
    p_value: float = math.nan
    adjusted_p_value: float = math.nan
    detectable: float = math.nan
    cells: tuple[str, str] = ("", "")
    left_out: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    work_checked: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Mean:
    """The geometric mean of `n` ratios on `count` devices (None: on any number); `missing` cells have no ratio.

    `low`, `high`, `verdict`: of this mean alone. Within one run they are over its launches. Of two runs they hold how runs
    differ, once for all cells, since these share their run; where that is unknown they are NaN (null in --json) and n/a.
    """

    count: int | None
    ratio: float
    n: int
    missing: int
    low: float = math.nan
    high: float = math.nan
    verdict: str = "n/a"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All rows that A and B share, those that only one has, and the fields in which their environments differ.

    `refused`: why rows are not compared, field by field. `means`: by number of devices if there are several, then of all.
    `verdicts`: how many ratios have each. `comparisons`: how many were tested, which is what the verdicts are corrected for.
    `batch`: same, or own for each side its own. `empty`: a sentence if one side has no launch that is ok, else None.
    `compared`: how much of the list of conditions both sides recorded. `one_machine`: whether both sides were measured on the
    same machine, as far as is known. `level`: what the intervals are over: launches of one run; of these two runs, which say
    nothing of others; or runs, with their variance in `between`. `metric`: the metric of the ratios.
    """

    rows: tuple[ComparedRow, ...]
    only_one: tuple[str, ...]
    environment: dict[str, tuple[str, str]]
    refused: tuple[Refused, ...]
    means: tuple[Mean, ...]
    verdicts: dict[str, int]
    comparisons: int
    batch: str
    empty: str | None
    one_machine: bool
    compared: Compared
    level: str = ONE_RUN
    between: BetweenRuns | None = None
    metric: Metric = THROUGHPUT

    def as_record(self) -> dict[str, Any]:
        """Return the comparison for --json; NaN becomes null."""
        return {
            "rows": [none_for_nan(asdict(row)) for row in self.rows],
            "only_one": self.only_one,
            "environment": self.environment,
            "compared_conditions": asdict(self.compared),
            "refused": [asdict(refused) for refused in self.refused],
            "means": [none_for_nan(asdict(mean)) for mean in self.means],
            "verdicts": self.verdicts,
            "comparisons": self.comparisons,
            "correction": f"{verdicts.CORRECTION}, FDR {verdicts.FALSE_DISCOVERIES:.0%}",
            "level": self.level,
            "between_runs": self.between.as_record() if self.between else None,
            "batch": self.batch,
            "empty": self.empty,
            "one_machine": self.one_machine,
            "metric": self.metric.name,
        }


def compare(
    a: Sequence[Launch],
    b: Sequence[Launch],
    batch: str = "same",
    between: BetweenRuns | None = None,
    metric: Metric = THROUGHPUT,
    families: Mapping[str, Family] = MappingProxyType({}),
    price_list: PriceList = NONE,
) -> Comparison:
    """Compare A with B for every job that both measured on as many devices.

    `batch`: "same", or "own" for each side its own. `between`: how much runs of this machine differ in this metric, where it is
    known and the sides share no run. `families`: all cells of runs, by their ids, which show the scatter of a run's launches;
    of other runs, the cells at hand do. `price_list`: what the devices cost.

    Raises BadInput where they share no workload.
    """
    launches = [{as_text(launch.path): launch for launch in side} for side in (a, b)]
    one_machine = _machines(a) == _machines(b)
    is_one_run = one_machine and not between_runs.differ(a, b)
    sides = charged(_rows(a), price_list), charged(_rows(b), price_list)
    at_hand = [_families([*sides[0], *sides[1]])] * 2 if one_machine else [*map(_families, sides)]
    matches = matched(*sides, tuple({**family, **families} for family in at_hand))
    labels = tuple(sorted({label for label, _ in matches.only_one}))
    if not matches.pairs and not matches.near:
        hint = f"only on one side: {', '.join(labels[:6])}"
        raise BadInput("A and B share no workload on as many devices", hint=hint)
    environments_of = [{path: environment_of(launch) for path, launch in side.items()} for side in launches]
    tested = [
        _compare_cells(match, batch, between, metric, _why_not_sides(match, launches))
        for match in (*matches.pairs, *matches.near)
    ]
    if one_machine:
        tested = [replace(item, row=replace(item.row, conditions=_conditions(item, environments_of))) for item in tested]
    rows = _judged(tested)
    ratios = [row for row in rows if not row.refused]
    environments = [values_of(side.values()) for side in environments_of]
    return Comparison(
        rows=tuple(rows),
        only_one=labels,
        environment=differing(*environments),
        compared=compared(*environments),
        refused=tuple(refusals("A", "B", [row.differs for row in rows])),
        means=_means(rows, tested, [cell for _, cell in matches.only_one], between, is_one_run),
        verdicts={verdict: sum(row.verdict == verdict for row in ratios) for verdict in verdicts.VERDICTS},
        comparisons=sum(not math.isnan(row.p_value) for row in ratios),
        batch=batch,
        empty=_empty(a, b),
        one_machine=one_machine,
        level=RUNS if between else ONE_RUN if is_one_run else TWO_RUNS,
        between=between,
        metric=metric,
    )


def _rows(side: Iterable[Launch]) -> list[LaunchRow]:
    """Return rows of one side's launches; those of a cell that are unlike its others are marked."""
    groups = group_by(side, lambda launch: (launch.stack.name, launch.workload.id, launch.devices.label))
    return [row_of(launch) for group in groups.values() for launch in alike.of_cell(group)]


def _families(rows: Iterable[LaunchRow]) -> dict[str, Family]:
    """Return the family of the cells at hand, by run."""
    runs: dict[str, dict[str, LaunchRow]] = {}
    for row in rows:
        runs.setdefault(row.run, {})[row.path] = row
    return {run: CellIndex(rows_by_path.values()).family for run, rows_by_path in runs.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tested:
    """A row whose verdict is still to be found, and the ratio to judge; `alone`: by its launches, whatever runs differ by."""

    match: Match
    row: ComparedRow
    pair: Pair = UNKNOWN_PAIR
    alone: Pair = UNKNOWN_PAIR


def _compare_cells(match: Match, batch: str, between: BetweenRuns | None, metric: Metric, why: str | None) -> _Tested:
    """Compare two cells, without a verdict. `why`: why one of the sides is no cell."""
    a, b = match.a, match.b
    why = why or _why_not_metric(metric, a, b)
    differs = () if why else tuple(work_differences(a.work, b.work, batch))
    why = why or (None if differs else counted_difference(a.counted, b.counted))
    row = ComparedRow(
        label=match.label, ratio=math.nan, low=math.nan, high=math.nan, launches=(len(a.ok), len(b.ok)),
        failed=(a.failed, b.failed), left_out=_left_out(a, b), verdict="n/a", settle=None,
        refused=why or refusal_in_words(differs), count=a.row.count, stack_match=match.stack_match, differs=differs,
        stacks=(a.row.stack, b.row.stack), batches=(a.row.batch, b.row.batch), cells=(a.row.cell, b.row.cell),
        work_checked=is_work_checked(a.counted, b.counted),
    )  # fmt: skip
    if row.refused:
        return _Tested(match=match, row=row)
    above, below = (a, b) if metric.more_is_better else (b, a)
    ratio = above.over(below, metric.column)
    counts = (ratio.launches, ratio.launches) if ratio.paired else (len(a.values(metric.column)), len(b.values(metric.column)))
    alone = ratio
    if between:
        ratio = between_runs.widened(ratio, between.of(a))
    limits = ratio.interval
    row = replace(
        row, ratio=ratio.value, low=limits.low, high=limits.high, p_value=ratio.chances.differs, launches=counts,
        paired=ratio.paired,
    )  # fmt: skip
    return _Tested(match=match, row=row, pair=ratio, alone=alone)


def _left_out(*sides: Cell) -> tuple[str, ...]:
    """Return texts such as "1 of 4 launches of A left out: power limit 500 W, the others 700 W"."""
    texts = []
    for name, side in zip("AB", sides, strict=True):
        reasons = list(dict.fromkeys(row.left_out for row in side.launches if row.left_out))
        number = sum(bool(row.left_out) for row in side.launches)
        texts += [f"{number} of {len(side.launches)} launches of {name} left out: {'; '.join(reasons)}"] if reasons else []
    return tuple(texts)


def _conditions(tested: _Tested, environments_of: Sequence[Mapping[str, Environment]]) -> tuple[str, ...]:
    """Return the conditions, by label, of one machine that differ between the sides; the software may be what is compared."""
    cells = zip(environments_of, (tested.match.a, tested.match.b), strict=True)
    labels = differing(*(values_of(side[row.path] for row in cell.ok) for side, cell in cells))
    return tuple(label for label in labels if is_of_the_machine(label))


def _why_not_metric(metric: Metric, *cells: Cell) -> str | None:
    """Return why one of two sides has no value of a metric, or None."""
    name = next((name for name, cell in zip("AB", cells, strict=True) if not cell.values(metric.column)), None)
    why = "it trains, or timed too few requests" if metric in OF_ALL_REQUESTS else "no launch tells it"
    return name and f"{name} has no {metric.title}: {why}"


def _judged(tested: Sequence[_Tested]) -> list[ComparedRow]:
    """Return the rows with their verdicts, all corrected for the number of those that have an interval."""
    judgements = verdicts.judged([item.pair for item in tested])
    confidence = verdicts.needed_confidence([item.adjusted_p_value for item in judgements])
    return [_with_verdict(item, judged, confidence) for item, judged in zip(tested, judgements, strict=True)]


def _with_verdict(tested: _Tested, judged: verdicts.Verdict, confidence: float) -> ComparedRow:
    settle = tested.pair.settled_by(confidence) if judged.verdict == "AMBIGUOUS" else None
    return replace(
        tested.row, verdict=judged.verdict, settle=settle, adjusted_p_value=judged.adjusted_p_value,
        reason="refused" if tested.row.refused else judged.reason, detectable=tested.pair.detectable(confidence),
    )  # fmt: skip


def _means(
    rows: Sequence[ComparedRow], tested: Sequence[_Tested], only_one: Sequence[Cell], between: BetweenRuns | None,
    is_one_run: bool,
) -> tuple[Mean, ...]:  # fmt: skip
    """Return the mean for each number of devices, and the mean of all."""

    def mean(number: int | None) -> Mean:
        selected = [(row, item) for row, item in zip(rows, tested, strict=True) if number in (None, row.count)]
        compared = [item for row, item in selected if not row.refused]
        ratios = [item.row.ratio for item in compared]
        missing = len(selected) - len(ratios) + sum(number in (None, cell.row.count) for cell in only_one)
        if between:
            pooled = between_runs.mean_of_rows([(item.alone, item.pair) for item in compared], between)
        else:
            pooled = mean_of_pairs([item.alone for item in compared]) if is_one_run else UNKNOWN_PAIR
        limits, verdict = pooled.interval, verdicts.verdict_at(pooled, verdicts.Significance())
        return Mean(
            count=number, ratio=geometric_mean(ratios).value, n=len(ratios), missing=missing, low=limits.low, high=limits.high,
            verdict=verdict,
        )  # fmt: skip

    counts = sorted({row.count for row in rows})
    return (*map(mean, counts), mean(None)) if len(counts) > 1 else (mean(None),)


def _empty(a: Sequence[Launch], b: Sequence[Launch]) -> str | None:
    """Return a sentence if one side has no launch that is ok, else None."""
    for name, side in (("A", a), ("B", b)):
        if not any(launch.is_ok for launch in side):
            outcomes = [launch.outcome for launch in side]
            summary = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes))
            return f"{name} has no launch that is ok ({count(len(side), 'launch')}: {summary})"
    return None


def _machines(launches: Sequence[Launch]) -> set[Any]:
    """Return the machines by their identities; by their names where no launch has one."""
    return {launch.machine for launch in launches} - {None} or {launch.host.get("name") for launch in launches}


def _why_not_sides(match: Match, launches: Sequence[Mapping[str, Launch]]) -> str | None:
    """Return why the ok launches of one of two sides don't make one figure, or None."""
    for name, cell, every in zip("AB", (match.a, match.b), launches, strict=True):
        side = [launch for row in cell.launches if (launch := every[row.path]).is_ok]
        if not side:
            return f"{name} has no launch that is ok"
        if any(launch.trial_batch for launch in side):
            return f"{name} is a batch trial, which measures nothing"
        stacks = sorted({launch.stack.name for launch in side})
        if len(stacks) > 1:
            return f"{name} has several stacks ({', '.join(stacks)}): name one"
        if len(_machines(side)) > 1:
            return f"{name} has launches of {len(_machines(side))} machines: name one"
        works = [work_of(launch) for launch in side]
        mixed = next((why for work in works[1:] if (why := work_difference(works[0], work))), None)
        counted = counted_work(side)
        if mixed := mixed or counted_difference(counted, counted):
            return f"the launches of {name} did different work: {mixed}"
    return None
