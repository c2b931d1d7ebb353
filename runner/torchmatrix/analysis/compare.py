"""Two sets of launches side by side: ratios, intervals, verdicts, and how their environments differ; or why they can't be.

A ratio is of one metric, by default of throughputs. Where less of it is better, it is B over A: above 1, A is the better one.

Cells are matched by what was done (pairing.py), not by what the devices are called. Several verdicts are corrected for their
number, so that of those called faster or slower, and of those called the same, at most 5 % are wrong on average.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchmatrix.analysis import between_runs, comparable, pairing, same_work, verdicts
from torchmatrix.analysis.between_runs import BetweenRuns
from torchmatrix.analysis.comparison import ONE_RUN, RUNS, TWO_RUNS, Comparison, Mean, Row
from torchmatrix.analysis.intervals import (
    PAIRED_FROM,
    UNKNOWN,
    Interval,
    centered,
    detectable_at,
    geometric_mean,
    launches_to_settle,
    paired_ratio,
    ratio,
)
from torchmatrix.analysis.metrics import OF_ALL_REQUESTS, THROUGHPUT, Metric
from torchmatrix.analysis.pairing import Pair, SideCell
from torchmatrix.facts import alike
from torchmatrix.facts.environments import Environment, compared, differing, environment_of, is_of_the_machine, values_of
from torchmatrix.facts.launch import UNLIKE, Launch
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.texts import count


def compare(
    a: Sequence[Launch],
    b: Sequence[Launch],
    batch: str = "same",
    between: BetweenRuns | None = None,
    metric: Metric = THROUGHPUT,
) -> Comparison:
    """A over B for every job that both measured on as many devices. `batch`: "same", or "own" for each side its own.

    `between`: how much runs of this machine differ in this metric, where it is known and the sides share no run.

    Raises BadInput where they share none.
    """
    found = pairing.paired(a, b)
    pairs = (*found.pairs, *found.near)
    labels = tuple(sorted({cell.label for cell in found.only_one}))
    if not pairs:
        said = f"only on one side: {', '.join(labels[:6])}"
        raise BadInput("A and B share no workload on as many devices", hint=said)
    one_machine = _machines(a) == _machines(b)
    told = {launch.path: environment_of(launch) for launch in (*a, *b)}
    rows = _judged([_tested(pair, batch, between, metric, told if one_machine else {}) for pair in pairs])
    ratios = [row for row in rows if not row.refused]
    environments = [values_of(told[launch.path] for launch in side) for side in (a, b)]
    return Comparison(
        rows=tuple(rows),
        only_one=labels,
        environment=differing(*environments),
        compared=compared(*environments),
        refused=tuple(comparable.refusals("A", "B", [row.differs for row in rows])),
        means=_means(rows, found.only_one),
        verdicts={verdict: sum(row.verdict == verdict for row in ratios) for verdict in verdicts.VERDICTS},
        comparisons=sum(not math.isnan(row.p_value) for row in ratios),
        batch=batch,
        empty=_empty(a, b),
        one_machine=one_machine,
        level=RUNS if between else TWO_RUNS if between_runs.differ(a, b) else ONE_RUN,
        between=between,
        metric=metric,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tested:
    """A row whose verdict is still to be found, and what it is found by."""

    row: Row
    found: Interval = UNKNOWN
    samples: tuple[list[float], list[float]] = ([], [])
    chances: verdicts.Chances = verdicts.UNTESTED
    error: float = math.nan
    freedom: float = math.nan


def _tested(pair: Pair, batch: str, between: BetweenRuns | None, metric: Metric, told: Mapping[Path, Environment]) -> _Tested:
    """`told`: the environments of the launches, if their machine is one."""
    why = _why_not_sides(*([launch for launch in cell.launches if launch.outcome == "ok"] for cell in (pair.a, pair.b)))
    sides = (alike.of_cell(pair.a.launches), alike.of_cell(pair.b.launches))
    good = [[launch for launch in side if launch.outcome == "ok"] for side in sides]
    counts = [same_work.counted(side) for side in good]
    why = why or _why_not_metric(metric, *good)
    differs = () if why else tuple(comparable.differences(pair.a.work, pair.b.work, batch))
    why = why or (None if differs else same_work.difference(*counts))
    row = Row(
        label=pair.label, ratio=math.nan, low=math.nan, high=math.nan, launches=(len(good[0]), len(good[1])),
        failed=_count(sides, lambda launch: launch.outcome not in ("ok", UNLIKE)), left_out=_left_out(sides),
        conditions=_conditions(good[0], good[1], told) if told else (), verdict="n/a", settle=None,
        refused=why or comparable.in_words(differs), count=pair.a.count, stack_match=pair.stack_match, differs=differs,
        stacks=(pair.a.first.stack.name, pair.b.first.stack.name), batches=(pair.a.told.batch, pair.b.told.batch),
        cells=(pair.a.first.cell, pair.b.first.cell), work_checked=same_work.is_checked(*counts),
    )  # fmt: skip
    if row.refused:
        return _Tested(row=row)
    ours, theirs = (_values(side, metric) for side in good)
    by_round = _common_rounds(metric, *good)
    is_paired = len(by_round) >= PAIRED_FROM
    if is_paired:
        ours, theirs = map(list, zip(*by_round, strict=True))
    row = replace(row, launches=(len(ours), len(theirs)))
    if not metric.more_is_better:
        ours, theirs = theirs, ours
    statistic = good[0][0].method.statistic
    found = paired_ratio(ours, theirs) if is_paired else ratio(ours, theirs, statistic)
    row = replace(row, ratio=found.value, paired=is_paired)
    apart = verdicts.difference_of(ours, theirs, is_paired, statistic)
    if apart is None:
        return _Tested(row=row, found=found)
    if between:
        apart = between_runs.widened(apart, between)
        found = centered(found.value, *apart[1:])
    tested = verdicts.chances_of(*apart)
    row = replace(row, low=found.low, high=found.high, p_value=tested.differs)
    samples: tuple[list[float], list[float]] = ([], []) if between else (ours, theirs)
    return _Tested(row=row, found=found, samples=samples, chances=tested, error=apart[1], freedom=apart[2])


def _count(sides: tuple[list[Launch], list[Launch]], fits: Callable[[Launch], bool]) -> tuple[int, int]:
    a, b = (sum(map(fits, side)) for side in sides)
    return a, b


def _left_out(sides: tuple[list[Launch], list[Launch]]) -> tuple[str, ...]:
    """Such as "1 of 4 launches of A left out: power limit 500 W, the others 700 W"."""
    found = []
    for name, side in zip("AB", sides, strict=True):
        whys = list(dict.fromkeys(launch.left_out for launch in side if launch.left_out))
        number = sum(bool(launch.left_out) for launch in side)
        found += [f"{number} of {len(side)} launches of {name} left out: {'; '.join(whys)}"] if whys else []
    return tuple(found)


def _conditions(a: list[Launch], b: list[Launch], told: Mapping[Path, Environment]) -> tuple[str, ...]:
    """The conditions, by label, of one machine that aren't the same on both sides; the software may be what is compared."""
    found = differing(*(values_of(told[launch.path] for launch in side) for side in (a, b)))
    return tuple(label for label in found if is_of_the_machine(label))


def _values(side: list[Launch], metric: Metric) -> list[float]:
    return [value for launch in side if not math.isnan(value := metric.value(launch))]


def _common_rounds(metric: Metric, a: list[Launch], b: list[Launch]) -> list[tuple[float, float]]:
    """The values of A and B in every round of one run that both have; such launches were interleaved."""
    sides = [{(launch.run, launch.round): metric.value(launch) for launch in side} for side in (a, b)]
    pairs = [(sides[0][key], sides[1][key]) for key in sorted(sides[0].keys() & sides[1].keys())]
    return [pair for pair in pairs if not any(map(math.isnan, pair))]


def _why_not_metric(metric: Metric, a: list[Launch], b: list[Launch]) -> str | None:
    """Why one of two sides has no value of a metric, or None."""
    name = next((name for name, side in (("A", a), ("B", b)) if not _values(side, metric)), None)
    why = "it trains, or timed too few requests" if metric in OF_ALL_REQUESTS else "no launch tells it"
    return name and f"{name} has no {metric.title}: {why}"


def _judged(tested: Sequence[_Tested]) -> list[Row]:
    """The rows with their verdicts, all corrected for the number of those that have an interval."""
    found = verdicts.judged([one.found for one in tested], [one.chances for one in tested])
    confidence = verdicts.needed_confidence([one.adjusted_p_value for one in found])
    return [_with_verdict(one, judged, confidence) for one, judged in zip(tested, found, strict=True)]


def _with_verdict(one: _Tested, judged: verdicts.Judged, confidence: float) -> Row:
    ambiguous = judged.verdict == "AMBIGUOUS"
    settle = launches_to_settle(*one.samples, one.row.paired, confidence) if ambiguous else None
    seen = math.nan if math.isnan(one.error) else detectable_at(one.error, one.freedom, confidence)
    return replace(one.row, verdict=judged.verdict, settle=settle, adjusted_p_value=judged.adjusted_p_value, detectable=seen)


def _means(rows: Sequence[Row], only_one: Sequence[SideCell]) -> tuple[Mean, ...]:
    """Of each number of devices, and of all. None has an interval: cells share their run and their machine."""
    counts = sorted({row.count for row in rows})
    each = [_mean([row for row in rows if row.count == n], [cell for cell in only_one if cell.count == n], n) for n in counts]
    every = _mean(rows, only_one, None)
    return (*each, every) if len(counts) > 1 else (every,)


def _mean(rows: Sequence[Row], only_one: Sequence[SideCell], number: int | None) -> Mean:
    ratios = [row.ratio for row in rows if not row.refused]
    found = geometric_mean(ratios)
    missing = len(rows) - len(ratios) + len(only_one)
    return Mean(count=number, ratio=found.value, n=len(ratios), missing=missing)


def _empty(a: Sequence[Launch], b: Sequence[Launch]) -> str | None:
    for name, side in (("A", a), ("B", b)):
        outcomes = [launch.outcome for launch in side]
        if "ok" not in outcomes:
            said = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes))
            return f"{name} has no launch that is ok ({count(len(side), 'launch')}: {said})"
    return None


def _machines(launches: Sequence[Launch]) -> set[Any]:
    """By their identities; by their names where no launch has one."""
    return {launch.machine for launch in launches} - {None} or {launch.host.get("name") for launch in launches}


def _why_not_sides(a: list[Launch], b: list[Launch]) -> str | None:
    """Why the ok launches of one of two sides don't make one figure, or None."""
    for name, side in (("A", a), ("B", b)):
        if not side:
            return f"{name} has no launch that is ok"
        if any(launch.trial_batch for launch in side):
            return f"{name} is a batch trial, which measures nothing"
        stacks = sorted({launch.stack.name for launch in side})
        if len(stacks) > 1:
            return f"{name} has several stacks ({', '.join(stacks)}): name one"
        if len(_machines(side)) > 1:
            return f"{name} has launches of {len(_machines(side))} machines: name one"
        mixed = next((why for launch in side[1:] if (why := _why_not(side[0], launch))), None)
        if mixed:
            return f"the launches of {name} did different work: {mixed}"
        own = same_work.counted(side)
        if other := same_work.difference(own, own):
            return f"the launches of {name} did different work: {other}"
    return None


def _why_not(a: Launch, b: Launch) -> str | None:
    """The fields in which two launches differ so that a ratio would mean nothing, or None."""
    return comparable.difference(comparable.work_of(a), comparable.work_of(b))
