"""Launches -> tables of ratios of throughputs: each stack over a baseline, each setting over its opposite, geometric means.

All verdicts of a report are corrected together (`ratios_of`): those of both tables, and on each job which stack is the fastest.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from torchmatrix.analysis import same_work
from torchmatrix.analysis.best import chances_of_best
from torchmatrix.analysis.intervals import UNKNOWN, Interval, Moments, geometric_mean, moments, ratio
from torchmatrix.analysis.lookup import Known
from torchmatrix.analysis.verdicts import UNTESTED, Chances, Significance, chances, judged, significance_of
from torchmatrix.ground.errors import BadInput
from torchmatrix.matrix.factors import CONTRASTED, Value


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """Of one report: its tables, and the p-values up to which it tells anything, corrected for all that it compares.

    Both tables have a `verdict` ("" without a ratio, and for the baseline) and an `adjusted_p_value`.
    """

    speedups: pd.DataFrame
    settings: pd.DataFrame
    significance: Significance


def ratios_of(launches: pd.DataFrame | Known, baseline: str | None = None) -> Ratios:
    """All ratios of a report, judged together; `baseline` as in speedup_table."""
    known = Known.of(launches)
    speedups, settings = speedup_table(known, baseline), settings_table(known)
    best = list(_tests_of_best(known))
    tests = [*_tests(speedups), *_tests(settings)]
    found = judged([*_intervals(speedups), *_intervals(settings), *(UNKNOWN for _ in best)], [*tests, *best])
    for table, own in ((speedups, found[: len(speedups)]), (settings, found[len(speedups) : len(tests)])):
        table["verdict"] = ["" if why else one.verdict for one, why in zip(own, _unjudged(table), strict=True)]
        table["adjusted_p_value"] = [one.adjusted_p_value for one in own]
    return Ratios(speedups=speedups, settings=settings, significance=significance_of([*tests, *best]))


def speedup_table(launches: pd.DataFrame | Known, baseline: str | None = None) -> pd.DataFrame:
    """Every cell over the same workload and devices (of the same machine) on the stack `baseline`; columns as SPEEDUP_COLUMNS.

    Without `baseline` it is the first stack in the matrix that ran this workload on these devices, else the first that was to.
    `why` says why a ratio is NaN, else it is empty. Raises BadInput for a stack that isn't there.
    """
    known = Known.of(launches)
    cells = known.figures()
    _check(baseline, list(dict.fromkeys(row.stack for row in cells)))
    bases: dict[tuple[str, str, str], Any] = {}
    for row in sorted(cells, key=lambda row: not known.samples_of(row)):
        if baseline in (None, row.stack):
            bases.setdefault((row.workload, row.devices, known.machine(row)), row)
    rows = []
    for row in cells:
        base = bases.get((row.workload, row.devices, known.machine(row)))
        names = {"workload": row.workload, "stack": row.stack, "baseline": base.stack if base else baseline}
        rows.append(names | _shown(row) | _compared(known, row, base) | known.named(row))
    return pd.DataFrame(rows, columns=[*SPEEDUP_COLUMNS, *known.fleet])


def settings_table(launches: pd.DataFrame | Known) -> pd.DataFrame:
    """Pairs of cells that differ in one of the factors' contrasts only: same stack, devices, batch and all else.

    Columns as SETTING_COLUMNS, one row per pair that was to be measured; `why` says why a ratio is NaN, else it is empty.
    """
    known = Known.of(launches)
    cells = known.figures()
    twins = {(known.machine(row), _all_but(row)): row for row in cells}
    rows = []
    for name, pair in _PAIRS:
        for row in (row for row in cells if getattr(row, name) == pair.value):
            base = twins.get((known.machine(row), _all_but(row, **{name: pair.over})))
            if base is None:
                continue
            names = {"setting": pair.name, "workload": row.workload, "over": base.workload, "stack": row.stack}
            rows.append(names | _shown(row) | _compared(known, row, base) | known.named(row))
    return pd.DataFrame(rows, columns=[*SETTING_COLUMNS, *known.fleet])


def geometric_means(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Of the ratios of a table above, one row per combination of the columns `by`, with `n` ratios and `failed` without one.

    `low` and `high` are NaN: see intervals.geometric_mean.
    """
    rows = []
    for key, group in table.groupby(list(by), sort=False, dropna=False):
        ratios = [float(value) for value in group["ratio"].dropna()]
        found = geometric_mean(ratios)
        counts = {"n": len(ratios), "failed": len(group) - len(ratios)}
        rows.append(dict(zip(by, key, strict=True)) | {"ratio": found.value, "low": found.low, "high": found.high} | counts)
    return pd.DataFrame(rows, columns=[*by, "ratio", "low", "high", "n", "failed"])


_PAIRS = tuple((factor.name, pair) for factor in CONTRASTED for pair in factor.contrasts)
_CONTRASTED = tuple(factor.name for factor in CONTRASTED)
_SHOWN = ("model", "mode", "unit", "devices", "batch")
_FOUND = ("ratio", "low", "high", "p_value", "same_p_value", "n", "baseline_n", "why")
SPEEDUP_COLUMNS = ["workload", "stack", "baseline", *_SHOWN, *_FOUND]
SETTING_COLUMNS = ["setting", "workload", "over", "stack", *_SHOWN, *_FOUND]


def _check(baseline: str | None, stacks: list[str]) -> None:
    if baseline is not None and baseline not in stacks:
        raise BadInput(f"no stack {baseline} to compare with", hint=f"stacks of this run: {', '.join(stacks) or 'none'}")


def _shown(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _SHOWN}


def _all_but(row: Any, **changes: Value) -> tuple[Any, ...]:
    """What must be equal for two cells to differ in `changes` only. The batch is the one asked for: who failed has no other."""
    fields = {name: getattr(row, name) for name in _CONTRASTED} | changes
    settled = (factor.settled(fields) for factor in CONTRASTED)
    return (row.stack, row.device_list, row.other_settings, row.batch_requested, *settled)


def _compared(known: Known, row: Any, base: Any) -> dict[str, Any]:
    """The ratio with its interval and numbers of launches, or why there is none."""
    own, other = known.samples_of(row), known.samples_of(base)
    why = _why_not(row, base, bool(own), bool(other))
    unknown = dict.fromkeys(("ratio", "low", "high", "p_value", "same_p_value"), math.nan)
    found = unknown | {"n": len(own), "baseline_n": len(other), "why": why}
    if not why:
        result = ratio(own, other, row.statistic)
        test = UNTESTED if own is other else chances(own, other, statistic=row.statistic)
        found |= {"ratio": result.value, "low": result.low, "high": result.high}
        found |= {"p_value": test.differs, "same_p_value": test.same}
    return found


def _tests(table: pd.DataFrame) -> list[Chances]:
    return [Chances(differs=p, same=same) for p, same in zip(table["p_value"], table["same_p_value"], strict=True)]


def _intervals(table: pd.DataFrame) -> list[Interval]:
    rows = zip(table["ratio"], table["low"], table["high"], strict=True)
    return [Interval(value=value, low=low, high=high) for value, low, high in rows]


def _unjudged(table: pd.DataFrame) -> list[bool]:
    """Rows without a ratio, and of a baseline over itself."""
    own = table["stack"] == table["baseline"] if "baseline" in table else [False] * len(table)
    return [bool(why) or is_own for why, is_own in zip(table["why"], own, strict=True)]


def _tests_of_best(known: Known) -> Iterator[Chances]:
    """For each job that several stacks did on the same devices: whether one of them is the fastest."""
    jobs: dict[tuple[Any, ...], list[Any]] = {}
    for row in known.figures():
        if known.samples_of(row):
            jobs.setdefault((known.machine(row), row.workload, row.devices, row.batch), []).append(row)
    for rows in jobs.values():
        if len(rows) > 1:
            yield chances_of_best([_moments(known.samples_of(row), row.statistic) for row in rows])


def _moments(samples: Sequence[float], statistic: str) -> Moments | None:
    return moments(samples, statistic) if len(samples) > 1 else None


def _why_not(row: Any, base: Any, ran: bool, base_ran: bool) -> str:
    if not ran:
        return str(row.outcome)
    if not base_ran:
        return f"baseline: {base.outcome if base else 'not measured'}"
    if row.batch != base.batch:
        return f"batch {row.batch}, baseline {base.batch}"
    return same_work.difference(*(same_work.of_row(one) for one in (row._asdict(), base._asdict()))) or ""
