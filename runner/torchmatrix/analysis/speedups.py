"""Compare the cells of a run: speed-ups of stacks, settings and devices, and what changed since the last run."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from torchmatrix.analysis import best
from torchmatrix.analysis.cells import Cell, CellIndex, samples_of
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.pairs import Chances, Pair
from torchmatrix.analysis.rows import LaunchRow, Row, counted_difference, counted_of_row, group_by, is_ok
from torchmatrix.analysis.verdicts import Significance, Verdict, judged, significance_of, verdict_at
from torchmatrix.core.errors import BadInput
from torchmatrix.facts.environments import Compared, Differences, Environment, compared, differing, environment_of, values_of
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import read_launch
from torchmatrix.matrix.factors import CONTRASTED, SETTLED, Value

# Tables of ratios of throughputs: each stack over a baseline, each setting over its opposite, geometric means.
#
# All verdicts of a report are corrected together (`ratios_of`): those of both tables, and for each job which stack is the
# fastest.


class Ratio(Struct, frozen=True, kw_only=True):
    """A cell's throughput over that of `base`: the same job on the stack `baseline`, or, of a `setting`, the same cell with its
    opposite. `n`, `baseline_n`: their launches. `verdict`, and the `reason` for it (verdicts.REASONS): both "" where nothing
    was compared, of the baseline itself, and before they are judged.
    """

    setting: str = ""
    cell: Cell
    base: Cell | None
    baseline: str | None = None
    pair: Pair
    n: int
    baseline_n: int
    verdict: str = ""
    reason: str = ""
    adjusted_p_value: float = math.nan

    @property
    def is_of_itself(self) -> bool:
        """Check whether it is the baseline's own."""
        return self.cell.row.stack == self.baseline

    def columns(self) -> Row:
        """Return the row of a table."""
        pair, row = self.pair, self.cell.row
        names = {"setting": self.setting, "over": self.base.row.workload} if self.setting and self.base else {}
        return {
            **names, **{name: row.value(name) for name in _SHOWN}, **self.cell.fleet, "baseline": self.baseline,
            **pair.interval.columns("ratio"), "p_value": pair.chances.differs, "same_p_value": pair.chances.same,
            **{name: getattr(self, name) for name in ("n", "baseline_n", "verdict", "reason", "adjusted_p_value")},
            "why": pair.why_not,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """The ratios of one report, and the p-values up to which it reports anything, corrected for all that it compares."""

    speedups: list[Ratio]
    settings: list[Ratio]
    significance: Significance


def ratios_of(cells: CellIndex, baseline: str | None = None) -> Ratios:
    """Return all ratios of a report, judged together; `baseline` as in speedup_table."""
    speedups, settings = speedup_table(cells, baseline), settings_table(cells)
    ratios, fastest = [*speedups, *settings], list(_tests_of_best(cells))
    pairs = [ratio.pair for ratio in ratios]
    shown = [_with_verdict(ratio, judgement) for ratio, judgement in zip(ratios, judged(pairs, fastest), strict=True)]
    return Ratios(
        speedups=shown[: len(speedups)], settings=shown[len(speedups) :],
        significance=significance_of([*(pair.chances for pair in pairs), *fastest]),
    )  # fmt: skip


def _with_verdict(ratio: Ratio, judgement: Verdict) -> Ratio:
    """Return the ratio with its verdict; none where nothing was compared, and for the baseline."""
    ratio = structs.replace(ratio, adjusted_p_value=judgement.adjusted_p_value)
    if ratio.pair.why_not or ratio.is_of_itself:
        return ratio
    return structs.replace(ratio, verdict=judgement.verdict, reason=judgement.reason)


def speedup_table(cells: CellIndex, baseline: str | None = None) -> list[Ratio]:
    """Return the ratio of every cell to the same workload and devices (of the same machine) on the stack `baseline`.

    Without `baseline` it is the first stack in the matrix that ran this workload on these devices, else the first that was to.
    `pair.why_not` says why a ratio is NaN. Raises BadInput for an unknown stack.
    """
    stacks = list(dict.fromkeys(cell.row.stack for cell in cells.figures))
    if baseline is not None and baseline not in stacks:
        raise BadInput(f"no stack {baseline} to compare with", hint=f"stacks of this run: {', '.join(stacks) or 'none'}")
    return [
        _ratio(cell, base, baseline=base.row.stack if base else baseline) for cell, base in _beside_baselines(cells, baseline)
    ]


def settings_table(cells: CellIndex) -> list[Ratio]:
    """Return pairs of cells that differ only in one of the factors' contrasts: same stack, devices, batch and all else.

    One per pair that was to be measured; `pair.why_not` says why a ratio is NaN.
    """
    return [_ratio(cell, base, setting=setting) for setting, cell, base in _beside_opposites(cells)]


def _beside_baselines(cells: CellIndex, baseline: str | None) -> Iterator[tuple[Cell, Cell | None]]:
    """Yield each cell with the one of speedup_table that it is compared with, None if there is none."""
    bases: dict[tuple[str, str, str], Cell] = {}
    for cell in sorted(cells.figures, key=lambda cell: not cell.samples):
        if baseline in (None, cell.row.stack):
            bases.setdefault((cell.row.workload, cell.row.devices, cell.machine), cell)
    for cell in cells.figures:
        yield cell, bases.get((cell.row.workload, cell.row.devices, cell.machine))


def _beside_opposites(cells: CellIndex) -> Iterator[tuple[str, Cell, Cell]]:
    """Yield the pairs of settings_table: the setting, the cell with it and the one with its opposite."""
    twins = {(cell.machine, _all_but(cell)): cell for cell in cells.figures}
    for name, pair in _PAIRS:
        for cell in (cell for cell in cells.figures if cell.row.value(name) == pair.value):
            base = twins.get((cell.machine, _all_but(cell, **{name: pair.over})))
            if base is not None:
                yield pair.name, cell, base


# Which cells more launches would help (the rule of `until = "decided"`).

HOPEFUL = 2.0
"""A comparison goes on while it takes at most so many times the launches that are allowed, by the ratio and the scatter so far:
three launches know neither well."""


def undecided(cells: CellIndex, most: int) -> set[str]:
    """Return the ids of the cells of comparisons that a report leaves AMBIGUOUS and that `most` launches each may decide.

    The comparisons are those of `ratios_of`, and of each job's fastest stack with the others that may be as fast.
    """
    beside = [(cell, base) for cell, base in _beside_baselines(cells, None) if base is not None and base is not cell]
    beside += [(cell, base) for _, cell, base in _beside_opposites(cells)]
    compared = [(both, compared_cells(*both)) for both in beside]
    level = significance_of([*(pair.chances for _, pair in compared), *_tests_of_best(cells)])
    for alike in _jobs(cells):
        left = [alike[place] for place in best.may_be_best(alike, level.differs)]
        first = max(left, key=lambda cell: cell.estimate().value)
        compared += [((first, other), compared_cells(first, other)) for other in left if other is not first]
    return {cell.row.cell for both, pair in compared if _is_open(pair, level, most) for cell in both}


def _is_open(pair: Pair, level: Significance, most: int) -> bool:
    launches = pair.settled_by(level.confidence_of("AMBIGUOUS")) if verdict_at(pair, level) == "AMBIGUOUS" else None
    return launches is not None and launches <= HOPEFUL * most


_PAIRS = tuple((factor.name, pair) for factor in CONTRASTED for pair in factor.contrasts)
_SETTLED = tuple(factor.name for factor in SETTLED)
_SHOWN = ("workload", "stack", "model", "mode", "unit", "devices", "batch")


def _all_but(cell: Cell, **changes: Value) -> tuple[Any, ...]:
    """Return what must be equal for two cells to differ in `changes` only.

    The batch is the requested one: failed launches have no other.
    """
    fields = {name: cell.row.value(name) for name in ("mode", *_SETTLED)} | changes
    settled = (factor.settled(fields) for factor in SETTLED)
    return (cell.row.stack, cell.row.device_list, cell.row.other_settings, cell.row.batch_requested, *settled)


def compared_cells(cell: Cell, base: Cell | None) -> Pair:
    """Return the ratio of two cells of which only what is requested may differ, or why there is none."""
    why = _why_not(cell, base)
    return Pair(why_not=why) if why or base is None else cell.over(base)


def _ratio(cell: Cell, base: Cell | None, **names: Any) -> Ratio:
    n = len((cell.beside(base) if base else cell).samples)
    n_of_base = len(samples_of(base and base.beside(cell)))
    return Ratio(cell=cell, base=base, pair=compared_cells(cell, base), n=n, baseline_n=n_of_base, **names)


def _tests_of_best(cells: CellIndex) -> Iterator[Chances]:
    """Yield for each job that several stacks did on the same devices the test of whether one of them is the fastest."""
    for alike in _jobs(cells):
        yield best.chances_of_best(alike)


def _jobs(cells: CellIndex) -> Iterator[list[Cell]]:
    """Yield the measured cells of each job that several stacks did on the same devices."""
    measured = (cell for cell in cells.figures if cell.samples)
    jobs = group_by(measured, lambda cell: (cell.machine, cell.row.workload, cell.row.devices, cell.row.batch))
    yield from (alike for alike in jobs.values() if len(alike) > 1)


def _why_not(cell: Cell, base: Cell | None) -> str:
    if not cell.samples:
        return cell.row.outcome
    if base is None or not base.samples:
        return f"baseline: {base.row.outcome if base else 'not measured'}"
    if cell.row.batch != base.row.batch:
        return f"batch {cell.row.batch}, baseline {base.row.batch}"
    return counted_difference(counted_of_row(cell.row), counted_of_row(base.row)) or ""


# Compare a run with the last complete run of the same matrix on the same machine: which cells changed, and what else did.


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """One cell that both runs measured: now over before, with the verdict corrected for the number of cells."""

    cell: str
    ratio: Interval
    verdict: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Since:
    """Changes since an earlier run. `run`, `started`: of the earlier one. `missing`: cells of which one run has no figure.
    `refused`: those whose work or batch is not the same. `environment`: what else changed, name: (before, now); `compared`: of
    how many conditions. Both of one launch of each stack and run, of the same cell. `shift`: the sentence on the newest lasting
    change of levels in the nights before; "" for none."""

    run: str
    started: float
    cells: tuple[Changed, ...]
    missing: int
    refused: int
    environment: Differences
    compared: Compared
    shift: str = ""

    def count(self, verdict: str) -> int:
        """Return how many cells have this verdict."""
        return sum(cell.verdict == verdict for cell in self.cells)


def since(now: Sequence[LaunchRow], before: Sequence[LaunchRow], run: str, started: float) -> Since:
    """Compare `now` with `before`: rows of launch_rows of two runs, of which `run` is the earlier one."""
    old = {cell.row.cell: cell for cell in CellIndex(before).figures}
    pairs: dict[str, Pair] = {}
    missing = refused = 0
    for cell in CellIndex(now).figures:
        base = old.get(cell.row.cell)
        if base is None or not cell.samples or not base.samples:
            missing += 1
            continue
        pair = compared_cells(cell, base)
        if pair.why_not:
            refused += 1
        else:
            pairs[cell.row.cell] = pair
    judgements = judged(list(pairs.values()))
    cells = tuple(
        Changed(cell=cell, ratio=pair.interval, verdict=judgement.verdict)
        for (cell, pair), judgement in zip(pairs.items(), judgements, strict=True)
    )
    sides = [values_of(environments) for environments in zip(*_environments(before, now), strict=True)] or [{}, {}]
    return Since(
        run=run, started=started, cells=cells, missing=missing, refused=refused,
        environment=differing(*sides), compared=compared(*sides),
    )  # fmt: skip


def _environments(before: Sequence[LaunchRow], now: Sequence[LaunchRow]) -> list[tuple[Environment, Environment]]:
    """Return each shared stack's environments, then and now: those of one launch, of the first cell that both have."""
    then = {row.cell: row.path for row in before if is_ok(row)}
    paths: dict[str, tuple[str, str]] = {}
    for row in now:
        if is_ok(row) and row.cell in then:
            paths.setdefault(row.stack, (then[row.cell], row.path))
    return [(_environment(old), _environment(new)) for old, new in paths.values()]


def _environment(path: str) -> Environment:
    launch = read_launch(Path(path))
    return environment_of(launch) if isinstance(launch, Launch) else {}
