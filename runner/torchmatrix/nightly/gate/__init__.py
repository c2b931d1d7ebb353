"""Compare the last run with the nights before it: what became slower, what failed, what is gone."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from torchmatrix.analysis import facts_cache, run_index
from torchmatrix.analysis.cells import Cell
from torchmatrix.analysis.metrics import GATED, Metric
from torchmatrix.analysis.rows import NightRow, Row, counted_difference, has_failed, work_difference
from torchmatrix.analysis.run_summary import NightRun
from torchmatrix.core.errors import BadInput, NothingSelected
from torchmatrix.facts import environments
from torchmatrix.facts.launch import UNFINISHED
from torchmatrix.facts.store import Results, RunFolder, host_of, select
from torchmatrix.nightly.gate import noise
from torchmatrix.nightly.gate.drift import Drift, drift
from torchmatrix.nightly.gate.judged import ACCEPTABLE, Accepted, Gate, GateOptions, JudgedCell, attribute
from torchmatrix.nightly.gate.noise import CellVerdict, Night, Panel

__all__ = ["Gate", "GateOptions", "JudgedCell", "Row", "is_night_of", "judge"]

_DEFAULT = GateOptions()


def judge(
    runs: Sequence[NightRun], options: GateOptions = _DEFAULT, accepted: Mapping[str, Accepted] = MappingProxyType({})
) -> Gate:
    """Judge the last of `runs` (of one host, oldest first) by those before it. Raises BadInput if no cell is the canary.

    `accepted`: by cell the run with which its baseline begins (see judged.py), unless that is later than the last one. With
    `options.named` the first run is the baseline; the runs between show how nights differ, and whether a cell was slower.
    """
    last, before = runs[-1], runs[:-1]
    accepted = {cell: one for cell, one in accepted.items() if not one.started > last.started}
    reference = before[:1] if options.named else before[-options.nights :]
    cells = dict.fromkeys(cell for run in (last, *reversed(reference)) for cell in (*run.planned, *run.cells.named))
    since = {cell: _since_acceptance(accepted.get(cell), before) for cell in cells}
    evidence = _collect_evidence(since, [*before, last][options.named :], last, options)
    results = []
    for cell in cells:
        verdicts = _judge_cell(cell, since[cell], _since_acceptance(accepted.get(cell), reference), last, options, evidence)
        results += [_mark_accepted(verdict, accepted.get(cell), last) for verdict in verdicts]
    return Gate(
        run=last.id,
        host=last.host,
        started=last.started,
        complete=last.complete,
        baseline=tuple(run.id for run in reference),
        options=options,
        cells=attribute(results, options.canary),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _History:
    """One metric of one cell. `before`: the runs before the last one that measured it, with the same work on the same machine;
    `nights`: theirs and that of the last run, by run.
    """

    before: tuple[NightRun, ...]
    nights: Mapping[str, Night]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Evidence:
    """The nights of all cells. `histories`: by cell and metric; they are the rows of the `panel`, in this order."""

    histories: Mapping[tuple[str, str], _History]
    panel: Panel
    drift: Drift


def _histories(since: Mapping[str, Sequence[NightRun]], last: NightRun) -> dict[tuple[str, str], _History]:
    """Return the histories of the cells that were measured; `since`: by cell the runs that may be its baseline."""
    histories = {}
    for cell, before in since.items():
        tonight = last.cell(cell)
        if not _failed_launches(tonight) and tonight.ok and not _work_difference(tonight, tonight):
            alike = [run for run in before if run.cell(cell).ok and not _difference(run.cell(cell), tonight)]
            for metric in GATED:
                if _has_metric(tonight, metric) and not _is_spoilt(tonight, metric):
                    told = (run for run in alike if not _is_spoilt(run.cell(cell), metric))
                    comparable = tuple(run for run in told if _has_metric(run.cell(cell), metric))
                    nights = {run.id: _night_of(run, cell, metric) for run in (*comparable, last)}
                    histories[cell, metric.name] = _History(before=comparable, nights=nights)
    return histories


def _collect_evidence(
    since: Mapping[str, Sequence[NightRun]], runs: Sequence[NightRun], last: NightRun, options: GateOptions
) -> _Evidence:
    histories = _histories(since, last)
    nights = [[history.nights.get(run.id) for run in runs] for history in histories.values()]
    panel = noise.panel(nights, len(runs), options.nights, options.tolerance)
    return _Evidence(histories=histories, panel=panel, drift=drift(panel, options.tolerance))


def _since_acceptance(accepted: Accepted | None, runs: Sequence[NightRun]) -> Sequence[NightRun]:
    """Return the nights that may be a cell's baseline: those since the slow-down that was accepted."""
    return runs if accepted is None else [run for run in runs if run.started >= accepted.started]


def _mark_accepted(judged: JudgedCell, accepted: Accepted | None, last: NightRun) -> JudgedCell:
    """Turn the verdict of the night in which a slower cell was accepted into `accepted`."""
    if accepted is None or last.id != accepted.run or judged.verdict not in (*ACCEPTABLE, "new"):
        return judged
    return replace(judged, verdict="accepted", why=f"accepted: {accepted.because}")


def is_night_of(run: NightRun, judged: NightRun) -> bool:
    """Check whether `run` planned half of the cells of `judged`, or more. Less is an experiment in between, no night."""
    planned = set(judged.planned)
    return 2 * len(planned.intersection(run.planned)) >= len(planned)


def _has_metric(cell: Cell[NightRow], metric: Metric) -> bool:
    """Check whether all ok launches of a cell have the metric."""
    return bool(cell.ok) and len(cell.values(metric.column)) == len(cell.ok)


def _is_spoilt(cell: Cell[NightRow], metric: Metric) -> bool:
    """Check whether other programs disturbed a cell in a way that shows in the metric: such a night says nothing of it."""
    return metric.is_speed and cell.disturbed > 0


def _failed_launches(cell: Cell[NightRow]) -> list[NightRow]:
    return [row for row in cell.launches if has_failed(row) and row.outcome not in UNFINISHED]


def _judge_cell(
    cell: str,
    before: Sequence[NightRun],
    reference: Sequence[NightRun],
    last: NightRun,
    options: GateOptions,
    evidence: _Evidence,
) -> Sequence[JudgedCell]:
    """Return a verdict for each metric that the cell has or should have; one verdict if nothing was measured tonight; none if
    the cell was skipped before, too. `reference`: the runs among `before` that the last one is compared with.
    """
    if _failed_launches(last.cell(cell)):
        return [_judge_failure(cell, reference, last)]
    if last.cell(cell).ok:
        verdicts = (
            _judge_metric(cell, reference, last, options, metric, evidence)
            if _has_metric(last.cell(cell), metric)
            else _judge_without_value(cell, before, last, metric)
            for metric in GATED
        )
        return [verdict for verdict in verdicts if verdict]
    absent = _judge_absence(cell, reference, last, options)
    return [absent] if absent else []


def _judge_failure(cell: str, before: Sequence[NightRun], last: NightRun) -> JudgedCell:
    """Return the verdict on a cell with failed launches.

    A crash is no noise: it counts at once, on whichever launch. What the stack never could do is no regression.
    """
    rows, failed = last.cell(cell).launches, _failed_launches(last.cell(cell))
    outcomes = Counter(row.outcome for row in failed)
    each = (
        f" failed ({', '.join(f'{number} {outcome}' for outcome, number in outcomes.items())}), the first"
        if len(outcomes) > 1
        else ""
    )
    error = f"{each}: {failed[0].outcome}: {failed[0].error or 'no message'}"
    earlier = sum(bool(_failed_launches(run.cell(cell))) for run in before)
    nights = f"; it also failed on {earlier} of the {len(before)} nights before" if earlier else ""
    never = {*outcomes} == {"unsupported"} and not any(run.cell(cell).ok for run in before)
    since = next((run for run in reversed(before) if run.cell(cell).ok), None)
    return JudgedCell(
        cell=cell,
        verdict="n/a" if never else "failed",
        why=f"{len(failed)} of {len(rows)} launches{error}{nights}",
        facts=str(failed[0].path),
        **_environment_changes(since, last, failed[0].stack),
        **_identity(failed[0]),
    )


def _judge_absence(cell: str, before: Sequence[NightRun], last: NightRun, options: GateOptions) -> JudgedCell | None:
    """Return the verdict on a cell that was not measured; None if it was never planned.

    A cell that the matrix, or the command, no longer asks for is gone on purpose.
    """
    home = next((run for run in reversed(before) if run.asked_for(cell) and not _is_of_another_machine(run, last)), None)
    row = next((row for run in (last, *reversed(before)) for row in run.cell(cell).launches), None)
    about = _identity(row) if row else {}
    if last.asked_for(cell):
        ended = "" if last.complete else "; the run is not finished"
        why = "interrupted or lost" if cell in last.cells.named else "planned, but not measured"
        return JudgedCell(cell=cell, verdict="missing", why=why + ended, **about)
    if home is None:
        return None
    if cell in last.skipped:
        return JudgedCell(cell=cell, verdict="skipped-now", why=f"{last.skipped[cell]} (planned in {home.id})", **about)
    if options.named or (home.matrix, home.command) == (last.matrix, last.command):
        return JudgedCell(cell=cell, verdict="missing", why=f"planned in {home.id}, neither planned nor skipped now", **about)
    why = f"planned in {home.id}; the matrix or the command has changed since"
    return JudgedCell(cell=cell, verdict="removed", why=why, **about)


def _is_of_another_machine(run: NightRun, last: NightRun) -> bool:
    """Check whether a machine that was replaced under its name measured a night, as far as both nights tell."""
    texts = ({row.hardware for cell in night.cells.figures for row in cell.ok} for night in (run, last))
    before, now = ({tuple(json.loads(text).get("identity", ())) for text in hardware} - {()} for hardware in texts)
    return bool(before and now) and not before & now


def _judge_without_value(cell: str, before: Sequence[NightRun], last: NightRun, metric: Metric) -> JudgedCell | None:
    """Return n/a for ok launches that lack the metric; None if the same work never had it."""
    rows = last.cell(cell).ok
    lacking = sum(math.isnan(row.value(metric.column)) for row in rows)
    had = [
        run for run in before if _has_metric(run.cell(cell), metric) and not _work_difference(run.cell(cell), last.cell(cell))
    ]
    if not had and lacking == len(rows):
        return None
    since = f"; {had[-1].id} had one" if had else ""
    why = f"no {metric.name} in {lacking} of {len(rows)} ok launches{since}"
    return JudgedCell(cell=cell, verdict="n/a", why=why, metric=metric.name, facts=str(rows[-1].path), **_identity(rows[-1]))


def _judge_metric(
    cell: str, reference: Sequence[NightRun], last: NightRun, options: GateOptions, metric: Metric, evidence: _Evidence
) -> JudgedCell:
    """Return the verdict on one metric of a cell whose launches were ok."""
    rows = last.cell(cell).ok
    about = {**_identity(rows[-1]), "metric": metric.name, "value": metric.speed(_night_of(last, cell, metric).value)}
    mixed = _work_difference(last.cell(cell), last.cell(cell))
    if mixed:
        return JudgedCell(cell=cell, verdict="n/a", why=f"the launches of this night did different work: {mixed}", **about)
    if _is_spoilt(last.cell(cell), metric):
        seen = f"not judged: other programs disturbed {last.cell(cell).disturbed} of {len(rows)} launches of this night"
        return JudgedCell(cell=cell, verdict="n/a", why=seen, **about)
    others = {run.id: why for run in reference if (why := _difference(run.cell(cell), last.cell(cell)))}
    history = evidence.histories[cell, metric.name]
    if options.named and not reference:
        why = "a slow-down was accepted after the run that it is to be compared with"
        return JudgedCell(cell=cell, verdict="new", why=why, **about)
    if options.named and reference[0] not in history.before:
        verdict, why = ("n/a", _not_comparable(others)) if others else ("new", f"{reference[0].id} did not measure it")
        if _is_spoilt(reference[0].cell(cell), metric):
            verdict, why = "n/a", f"not judged: other programs disturbed launches of {reference[0].id}"
        return JudgedCell(cell=cell, verdict=verdict, why=why, **about)
    cell_verdict = _compare_with_nights(evidence, (cell, metric.name), options)
    limits = cell_verdict.limits
    baseline = [run for run in history.before if limits and run.id in limits.nights]
    reasons = (
        _reason(cell_verdict, others),
        *_disturbances(cell_verdict, rows),
        _left_out_launches(last.cell(cell)),
        _not_comparable(others),
        _nights_without_metric(cell, reference, metric),
        _under_other_conditions(baseline, last, rows[-1].stack),
    )
    replaced = (run for run in reversed(reference) if not baseline and _hardware_difference(run.cell(cell), last.cell(cell)))
    return JudgedCell(
        cell=cell,
        verdict=cell_verdict.verdict,
        why="; ".join(filter(None, reasons)),
        ratio=cell_verdict.ratio,
        before=cell_verdict.before,
        facts=str(rows[-1].path),
        **_environment_changes(baseline[-1] if baseline else next(replaced, None), last, rows[-1].stack),
        center=metric.speed(limits.center) if limits else math.nan,
        **{name: getattr(limits, name) for name in ("low", "high", "nights", "strays", "rule", "detectable") if limits},
        **about,
    )


def _compare_with_nights(evidence: _Evidence, key: tuple[str, str], options: GateOptions) -> CellVerdict:
    """Return the verdict on one row of the panel; also a regression if only many nights show the loss (see drift.py)."""
    row, history = list(evidence.histories).index(key), evidence.histories[key]
    if options.named:
        named = history.nights[history.before[0].id]
        return noise.verdict_against_run(evidence.panel, row, named, options.tolerance, options.strict)
    verdict = noise.verdict_on(evidence.panel, row, options.tolerance, options.strict)
    if verdict.verdict not in ("ok", "suspected") or not evidence.drift.drifted[row, -1]:
        return verdict
    since = next(night.run for night in evidence.panel.nights[row][evidence.drift.since[row, -1] :] if night)
    lost = -100 * math.expm1(evidence.drift.lost[row, -1])
    why = f"slower little by little: {lost:.1f} % below the level of the nights before {since}"
    return replace(verdict, verdict="regression", why=why)


def _reason(verdict: CellVerdict, others: Mapping[str, str]) -> str:
    if verdict.verdict == "new":
        return "the baseline starts again" if others else "no night before measured it"
    return verdict.limits.rule if verdict.limits and verdict.verdict == "n/a" else verdict.why


def _disturbances(verdict: CellVerdict, rows: Sequence[NightRow]) -> list[str]:
    """Describe what the telemetry recorded during launches that were slower."""
    if verdict.verdict not in ("suspected", "regression"):
        return []
    counted = {
        "throttled": "the devices were throttled",
        "quota_seconds": "a CPU quota made processes wait",
    }
    numbers = {words: sum(bool(row.value(name)) for row in rows) for name, words in counted.items()}
    return [f"{words} in {number} of {len(rows)} launches" for words, number in numbers.items() if number]


def _left_out_launches(cell: Cell[NightRow]) -> str:
    """Describe which launches of this night are no part of its figure."""
    left_out, why = cell.left_out
    return f"{left_out} of {len(cell.launches)} launches left out: {why}" if left_out else ""


def _not_comparable(others: Mapping[str, str]) -> str:
    """Describe which nights are no baseline because they did other work; names the newest one's difference only."""
    if not others:
        return ""
    *_, (run, why) = others.items()
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"not comparable with {run}{more}: {why}"


def _nights_without_metric(cell: str, reference: Sequence[NightRun], metric: Metric) -> str:
    """Describe how many nights are no baseline because their ok launches lack the metric."""
    lacking = sum(bool(run.cell(cell).ok) and not _has_metric(run.cell(cell), metric) for run in reference)
    return f"no {metric.name} on {lacking} of the {len(reference)} nights before" if lacking else ""


def _work_difference(cell: Cell[NightRow], tonight: Cell[NightRow]) -> str | None:
    """Describe how the first launch with other work than the last of `tonight` differs, or how the counted work differs."""
    other = next((row.work for row in cell.ok if row.work != tonight.last.work), None)
    if other is not None:
        return work_difference(json.loads(other), json.loads(tonight.last.work))
    return counted_difference(cell.counted, tonight.counted)


def _difference(cell: Cell[NightRow], tonight: Cell[NightRow]) -> str | None:
    """Describe why a night of a cell is no baseline for `tonight`, another machine or other work; None if it may be one."""
    return _hardware_difference(cell, tonight) or _work_difference(cell, tonight)


def _hardware_difference(cell: Cell[NightRow], tonight: Cell[NightRow]) -> str | None:
    """Describe how the hardware differs if another machine has the host's name now; else None.

    Only what both nights recorded is compared.
    """
    before, now = ({row.hardware for row in night.ok} for night in (cell, tonight))
    if len(before) != 1 or len(now) != 1 or before == now:
        return None  # of several machines in one night, none is the cell's
    was, its = (json.loads(text) for (text,) in (before, now))
    names = [name for name in its if name in was and its[name] != was[name]]
    return f"the machine was replaced ({', '.join(names)})" if names else None


def _night_of(run: NightRun, cell: str, metric: Metric) -> Night:
    """Return a cell's night in speeds: higher is better."""
    measured = run.cell(cell)
    value = metric.speed(measured.estimate(metric.column).value)
    return Night(run=run.id, rates=tuple(map(metric.speed, measured.values(metric.column))), value=value)


def _identity(row: NightRow) -> dict[str, Any]:
    """Return the fields of `Judged` that name what was measured."""
    return {"stack": row.stack, "unit": row.unit, "devices": row.device_list}


def _environment_changes(since: NightRun | None, last: NightRun, stack: str) -> dict[str, Any]:
    """Return how a stack's environment changed, and how much of it both nights recorded."""
    if since is None:
        return {}
    before, after = (run.environments.get(stack, {}) for run in (since, last))
    compared = environments.compared(environments.values_of([before]), environments.values_of([after]))
    return {"changes": environments.changed(before, after), "compared": compared}


def _under_other_conditions(nights: Sequence[NightRun], last: NightRun, stack: str) -> str:
    """Describe how many nights of a baseline had other conditions of the machine; changes of the software are left out."""
    differing = [_environment_changes(run, last, stack)["changes"] for run in nights]
    unlike = [names for changes in differing if (names := [name for name in changes if environments.is_of_the_machine(name)])]
    if not unlike:
        return ""
    return f"other conditions on {len(unlike)} of the {len(nights)} nights of the baseline: {', '.join(unlike[-1][:3])}"


# Runs to read for the gate: the one to judge and the nights before it.

LONGEST = 120
"""How many nights are read: a regression that nobody accepted is reported for as long, and a slow drift has as much time."""
_LOOK_BACK = 4
"""How many batches of runs are read at most, where some of them are no nights (see is_night_of)."""


def read_runs(
    results: Results, word: str = "last", nights: int = 7, baseline: str | None = None, host: str | None = None,
    all_runs: Sequence[RunFolder] | None = None,
) -> list[NightRun]:  # fmt: skip
    """Read the runs for `judge`, oldest first: LONGEST nights, or as many as make the baseline, then the run that `word` names.

    With `baseline`, the run that it names comes first, followed by the nights since then. `word` and `baseline` are words of
    facts.store.select. Raises BadInput, and NothingSelected if there is no run at all.
    """
    runs = results.runs() if all_runs is None else all_runs
    if not runs:
        raise NothingSelected(
            f"no runs in {results.root}", hint="measure twice, then compare: torchmatrix run, torchmatrix gate"
        )
    folder = _only_run(select(results, word, host=host, all_runs=runs), word)
    here = select(results, "all", host=host_of(folder), all_runs=runs)
    earlier = [run for run in here[: [run.path for run in here].index(folder.path)] if not math.isnan(run.started)]
    (judged,) = facts_cache.read(results, [folder])
    count = max(LONGEST, nights)
    if baseline is None:
        if math.isnan(folder.started):
            hint = "name the run to compare it with: --baseline RUN"
            raise BadInput(f"it isn't known when {folder.id} began, so not which nights were before it", hint=hint)
        return [*_nights(results, earlier, judged, count), judged]
    named = _only_run(select(results, baseline, host=host_of(folder), all_runs=runs), baseline)
    if named.path == folder.path:
        raise BadInput(f"{named.id} is the run to judge and its own baseline", hint="name an older run: --baseline RUN")
    since = [run for run in earlier if run.started > named.started]
    return [*run_index.summaries(results, [named]), *_nights(results, since, judged, count), judged]


def _nights(results: Results, earlier: Sequence[RunFolder], judged: NightRun, count: int) -> list[NightRun]:
    """Read the newest `count` of `earlier` that are nights of the judged run, oldest first."""
    nights: list[NightRun] = []
    for _ in range(_LOOK_BACK):
        chunk, earlier = earlier[-count:], earlier[:-count]
        nights = [run for run in run_index.summaries(results, chunk) if is_night_of(run, judged)] + nights
        if len(nights) >= count or not earlier:
            break
    return nights[-count:]


def _only_run(runs: Sequence[RunFolder], word: str) -> RunFolder:
    if len(runs) > 1:
        raise BadInput(
            f"{word} names {len(runs)} runs; the gate judges one and compares it with one", hint="last, last~1 or RUN"
        )
    return runs[0]
