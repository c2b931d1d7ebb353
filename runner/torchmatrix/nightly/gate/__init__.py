"""The last run against the nights before it: what became slower, what failed, what is gone."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from torchmatrix.analysis import facts_cache
from torchmatrix.analysis.cells import Cell
from torchmatrix.analysis.metrics import GATED, Metric
from torchmatrix.analysis.rows import Row, counted_difference, has_failed, work_difference
from torchmatrix.analysis.run_summary import RunSummary
from torchmatrix.core.errors import BadInput, NothingSelected
from torchmatrix.facts import environments
from torchmatrix.facts.launch import UNFINISHED
from torchmatrix.facts.store import Results, RunFolder, host_of, select
from torchmatrix.nightly.gate import noise
from torchmatrix.nightly.gate.drift import Drift, drift
from torchmatrix.nightly.gate.judged import ACCEPTABLE, Accepted, Gate, GateOptions, Judged, attribute
from torchmatrix.nightly.gate.noise import Night, Panel, Standing

__all__ = ["Gate", "GateOptions", "Judged", "is_night_of", "judge"]

_DEFAULT = GateOptions()


def judge(
    runs: Sequence[RunSummary], options: GateOptions = _DEFAULT, accepted: Mapping[str, Accepted] = MappingProxyType({})
) -> Gate:
    """The last of `runs` (of one host, oldest first) against those before it. Raises BadInput if no cell is the canary.

    `accepted`: by cell the run from which on its baseline begins (see accepted.py). With `options.named` the first is the
    baseline; those between them tell how nights differ, and whether it was slower before.
    """
    last, before = runs[-1], runs[:-1]
    reference = before[:1] if options.named else before[-options.nights :]
    cells = dict.fromkeys(cell for run in (last, *reversed(reference)) for cell in (*run.planned, *run.cells.named))
    since = {cell: _since(accepted.get(cell), before) for cell in cells}
    histories = _histories({cell: since[cell] for cell in cells if not _failures(last.cell(cell))}, last)
    seen = _seen_together(histories, [*before, last][options.named :], options)
    judged = []
    for cell in cells:
        found = _judged(cell, since[cell], _since(accepted.get(cell), reference), last, options, seen)
        judged += [_marked(one, accepted.get(cell), last) for one in found]
    return Gate(
        run=last.id,
        host=last.host,
        started=last.started,
        complete=last.complete,
        baseline=tuple(run.id for run in reference),
        options=options,
        cells=attribute(judged, options.canary),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _History:
    """The nights `before` the last one of a cell that measured a metric of the same work on the same machine; `nights`: of
    theirs and the last one, by run.
    """

    before: tuple[RunSummary, ...]
    nights: Mapping[str, Night]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What the nights of all cells show: `histories` by cell and metric, which are the rows of the `panel`, in this order."""

    histories: Mapping[tuple[str, str], _History]
    panel: Panel
    drift: Drift


def _histories(since: Mapping[str, Sequence[RunSummary]], last: RunSummary) -> dict[tuple[str, str], _History]:
    """Of the cells that were measured, with the runs that may be their baseline."""
    found = {}
    for cell, before in since.items():
        own = last.cell(cell)
        if own.ok and not _other_work(own, own):
            alike = [run for run in before if run.cell(cell).ok and not _unlike(run.cell(cell), own)]
            for metric in GATED:
                if _has(own, metric):
                    same = tuple(run for run in alike if _has(run.cell(cell), metric))
                    nights = {run.id: _night(run, cell, metric) for run in (*same, last)}
                    found[cell, metric.name] = _History(before=same, nights=nights)
    return found


def _seen_together(histories: Mapping[tuple[str, str], _History], runs: Sequence[RunSummary], options: GateOptions) -> _Seen:
    nights = [[history.nights.get(run.id) for run in runs] for history in histories.values()]
    panel = noise.panel(nights, len(runs), options.nights, options.tolerance)
    return _Seen(histories=histories, panel=panel, drift=drift(panel, options.tolerance))


def _since(accepted: Accepted | None, runs: Sequence[RunSummary]) -> Sequence[RunSummary]:
    """The nights that may be a cell's baseline. A run that was asked for by name stays, whatever was accepted since."""
    return runs if accepted is None else [run for run in runs if run.started >= accepted.started]


def _marked(one: Judged, accepted: Accepted | None, last: RunSummary) -> Judged:
    """The night in which a slower cell was accepted says so."""
    if accepted is None or last.id != accepted.run or one.verdict not in (*ACCEPTABLE, "new"):
        return one
    return replace(one, verdict="accepted", why=f"accepted: {accepted.because}")


def is_night_of(run: RunSummary, judged: RunSummary) -> bool:
    """Did `run` ask for half of the cells of `judged`, or more? Less is an experiment in between, no night."""
    asked = set(judged.planned)
    return 2 * len(asked.intersection(run.planned)) >= len(asked)


def _has(cell: Cell, metric: Metric) -> bool:
    """Do all its ok launches tell the metric?"""
    return bool(cell.ok) and len(cell.values(metric.column)) == len(cell.ok)


def _failures(cell: Cell) -> list[Row]:
    return [row for row in cell.launches if has_failed(row) and row["outcome"] not in UNFINISHED]


def _judged(
    cell: str,
    before: Sequence[RunSummary],
    reference: Sequence[RunSummary],
    last: RunSummary,
    options: GateOptions,
    seen: _Seen,
) -> Sequence[Judged]:
    """`reference`: of the runs `before` those that the last one is compared with. None: the cell was skipped there, too.

    One for each metric that the cell has or should have; one if nothing was measured tonight.
    """
    if _failures(last.cell(cell)):
        return [_failed(cell, reference, last)]
    if last.cell(cell).ok:
        judged = (
            _measured(cell, reference, last, options, metric, seen)
            if _has(last.cell(cell), metric)
            else _valueless(cell, before, last, metric)
            for metric in GATED
        )
        return [one for one in judged if one]
    absent = _absent(cell, reference, last, options)
    return [absent] if absent else []


def _failed(cell: str, before: Sequence[RunSummary], last: RunSummary) -> Judged:
    """A crash is no noise: it counts at once, on whichever launch. What the stack never could do is no regression."""
    rows, failed = last.cell(cell).launches, _failures(last.cell(cell))
    said = f"{failed[0]['outcome']}: {failed[0]['error'] or 'no message'}"
    earlier = sum(bool(_failures(run.cell(cell))) for run in before)
    nights = f"; it also failed on {earlier} of the {len(before)} nights before" if earlier else ""
    never = failed[0]["outcome"] == "unsupported" and not any(run.cell(cell).ok for run in before)
    since = next((run for run in reversed(before) if run.cell(cell).ok), None)
    return Judged(
        cell=cell,
        verdict="n/a" if never else "failed",
        why=f"{len(failed)} of {len(rows)} launches: {said}{nights}",
        facts=str(failed[0]["path"]),
        **_changes(since, last, failed[0]["stack"]),
        **_about(failed[0]),
    )


def _absent(cell: str, before: Sequence[RunSummary], last: RunSummary, options: GateOptions) -> Judged | None:
    """Nothing was measured. What the matrix, or the command, no longer asks for is gone on purpose."""
    home = next((run for run in reversed(before) if run.asked_for(cell)), None)
    row = next((row for run in (last, *reversed(before)) for row in run.cell(cell).launches), None)
    about = _about(row) if row else {}
    if last.asked_for(cell):
        ended = "" if last.complete else "; the run is not finished"
        why = "interrupted or lost" if cell in last.cells.named else "planned, but not measured"
        return Judged(cell=cell, verdict="missing", why=why + ended, **about)
    if home is None:
        return None
    if cell in last.skipped:
        return Judged(cell=cell, verdict="skipped-now", why=f"{last.skipped[cell]} (planned in {home.id})", **about)
    if options.named or (home.matrix, home.command) == (last.matrix, last.command):
        return Judged(cell=cell, verdict="missing", why=f"planned in {home.id}, neither planned nor skipped now", **about)
    why = f"planned in {home.id}; the matrix or the command has changed since"
    return Judged(cell=cell, verdict="removed", why=why, **about)


def _valueless(cell: str, before: Sequence[RunSummary], last: RunSummary, metric: Metric) -> Judged | None:
    """Launches were ok, but there is nothing to judge: that is told, unless the same work never had the metric."""
    rows = last.cell(cell).ok
    lacking = sum(math.isnan(row[metric.column]) for row in rows)
    had = [run for run in before if _has(run.cell(cell), metric) and not _other_work(run.cell(cell), last.cell(cell))]
    if not had and lacking == len(rows):
        return None
    since = f"; {had[-1].id} had one" if had else ""
    why = f"no {metric.name} in {lacking} of {len(rows)} ok launches{since}"
    return Judged(cell=cell, verdict="n/a", why=why, metric=metric.name, facts=str(rows[-1]["path"]), **_about(rows[-1]))


def _measured(
    cell: str, reference: Sequence[RunSummary], last: RunSummary, options: GateOptions, metric: Metric, seen: _Seen
) -> Judged:
    rows = last.cell(cell).ok
    about = {**_about(rows[-1]), "metric": metric.name, "value": metric.speed(_night(last, cell, metric).value)}
    mixed = _other_work(last.cell(cell), last.cell(cell))
    if mixed:
        return Judged(cell=cell, verdict="n/a", why=f"the launches of this night did different work: {mixed}", **about)
    others = {run.id: why for run in reference if (why := _unlike(run.cell(cell), last.cell(cell)))}
    history = seen.histories[cell, metric.name]
    if options.named and reference[0] not in history.before:
        verdict, why = ("n/a", _in_words(others)) if others else ("new", f"{reference[0].id} did not measure it")
        return Judged(cell=cell, verdict=verdict, why=why, **about)
    found = _standing(seen, (cell, metric.name), options)
    limits = found.limits
    lacking = _without(cell, reference, metric)
    baseline = [run for run in history.before if limits and run.id in limits.nights]
    unlike = _under_other_conditions(baseline, last, rows[-1]["stack"])
    replaced = (run for run in reversed(reference) if not baseline and _replaced(run.cell(cell), last.cell(cell)))
    return Judged(
        cell=cell,
        verdict=found.verdict,
        why="; ".join(
            filter(
                None,
                (
                    _reason(found, others),
                    *_watched(found, rows),
                    _left_out(last.cell(cell)),
                    _in_words(others),
                    lacking,
                    unlike,
                ),
            )
        ),
        ratio=found.ratio,
        before=found.before,
        facts=str(rows[-1]["path"]),
        **_changes(baseline[-1] if baseline else next(replaced, None), last, rows[-1]["stack"]),
        center=metric.speed(limits.center) if limits else math.nan,
        **{name: getattr(limits, name) for name in ("low", "high", "nights", "strays", "rule", "detectable") if limits},
        **about,
    )


def _standing(seen: _Seen, of: tuple[str, str], options: GateOptions) -> Standing:
    """Of one row of the panel; a regression too where no night shows alone what was lost (see drift.py)."""
    row, history = list(seen.histories).index(of), seen.histories[of]
    if options.named:
        named = history.nights[history.before[0].id]
        return noise.standing_to_run(seen.panel, row, named, options.tolerance, options.strict)
    found = noise.standing(seen.panel, row, options.tolerance, options.strict)
    if found.verdict not in ("ok", "suspected") or not seen.drift.told[row, -1]:
        return found
    since = next(night.run for night in seen.panel.nights[row][seen.drift.since[row, -1] :] if night)
    lost = -100 * math.expm1(seen.drift.lost[row, -1])
    why = f"slower little by little: {lost:.1f} % below the level of the nights before {since}"
    return replace(found, verdict="regression", why=why)


def _reason(found: Standing, others: Mapping[str, str]) -> str:
    if found.verdict == "new":
        return "the baseline starts again" if others else "no night before measured it"
    return found.limits.rule if found.limits and found.verdict == "n/a" else found.why


def _watched(found: Standing, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the watch saw during launches that were slower."""
    if found.verdict not in ("suspected", "regression"):
        return []
    counted = {
        "throttled": "the devices were throttled",
        "foreign": "others used the devices",
        "quota_seconds": "a CPU quota made processes wait",
    }
    numbers = {words: sum(bool(row[name]) for row in rows) for name, words in counted.items()}
    return [f"{words} in {number} of {len(rows)} launches" for words, number in numbers.items() if number]


def _left_out(cell: Cell) -> str:
    """Which launches of this night are no part of its figure."""
    left_out, why = cell.left_out
    return f"{left_out} of {len(cell.launches)} launches left out: {why}" if left_out else ""


def _in_words(others: Mapping[str, str]) -> str:
    """Which nights are no baseline since they did other work; the newest one's difference stands for all."""
    if not others:
        return ""
    *_, (run, why) = others.items()
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"not comparable with {run}{more}: {why}"


def _without(cell: str, reference: Sequence[RunSummary], metric: Metric) -> str:
    """Which nights are no baseline since their ok launches lack the metric, in words."""
    lacking = sum(bool(run.cell(cell).ok) and not _has(run.cell(cell), metric) for run in reference)
    return f"no {metric.name} on {lacking} of the {len(reference)} nights before" if lacking else ""


def _other_work(cell: Cell, own: Cell) -> str | None:
    """In what the first launch that did other work than the last of `own` differs, in words; or in what all counted."""
    other = next((row["work"] for row in cell.ok if row["work"] != own.last["work"]), None)
    if other is not None:
        return work_difference(json.loads(other), json.loads(own.last["work"]))
    return counted_difference(cell.counted, own.counted)


def _unlike(cell: Cell, own: Cell) -> str | None:
    """Why a night of a cell is no baseline for another, in words: another machine, or other work."""
    return _replaced(cell, own) or _other_work(cell, own)


def _replaced(cell: Cell, own: Cell) -> str | None:
    """Whether another machine bears the name now, in words. What a night did not record is neither the same nor another."""
    before, now = ({row["hardware"] for row in one.ok} for one in (cell, own))
    if len(before) != 1 or len(now) != 1 or before == now:
        return None  # of several machines in one night, none is the cell's
    was, its = (json.loads(text) for (text,) in (before, now))
    names = [name for name in its if name in was and its[name] != was[name]]
    return f"the machine was replaced ({', '.join(names)})" if names else None


def _night(run: RunSummary, cell: str, metric: Metric) -> Night:
    """In speeds: higher is better."""
    found = run.cell(cell)
    value = metric.speed(found.estimate(metric.column).value)
    return Night(run=run.id, rates=tuple(map(metric.speed, found.values(metric.column))), value=value)


def _about(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"stack": row["stack"], "unit": row["unit"], "devices": tuple(row["device_list"])}


def _changes(since: RunSummary | None, last: RunSummary, stack: str) -> dict[str, Any]:
    """Of the environment, and how much of it both nights recorded."""
    if since is None:
        return {}
    before, after = (run.environments.get(stack, {}) for run in (since, last))
    return {"changes": environments.changed(before, after), "compared": _compared(before, after)}


def _under_other_conditions(nights: Sequence[RunSummary], last: RunSummary, stack: str) -> str:
    """How many nights of a baseline weren't like this one, as far as that says nothing of the software."""
    differing = [_changes(run, last, stack)["changes"] for run in nights]
    unlike = [own for changes in differing if (own := [name for name in changes if environments.is_of_the_machine(name)])]
    if not unlike:
        return ""
    return f"other conditions on {len(unlike)} of the {len(nights)} nights of the baseline: {', '.join(unlike[-1][:3])}"


def _compared(before: environments.Environment, after: environments.Environment) -> environments.Compared:
    return environments.compared(environments.values_of([before]), environments.values_of([after]))


# Which runs the gate needs: the one to judge and the nights before it, read from the index.

LONGEST = 120
"""So many nights are read: a regression that nobody accepted is told for as long, and a slow drift has as much time."""
_LOOK_BACK = 4
"""So many times the runs that are needed are looked through at most, where some of them are no nights (see is_night_of)."""


def read_runs(
    results: Results, word: str = "last", nights: int = 7, baseline: str | None = None, host: str | None = None
) -> list[RunSummary]:
    """The runs for gate.judge, oldest first: the nights before, and last the run that `word` names.

    These are LONGEST, or as many as make the baseline; first comes the run that `baseline` names, with the nights since then.
    Words are those of run_words.select. Raises BadInput, and NothingSelected if there is no run at all.
    """
    if not results.runs():
        raise NothingSelected(
            f"no runs in {results.root}", hint="measure twice, then compare: torchmatrix run, torchmatrix gate"
        )
    folder = _one(select(results, word, host=host), word)
    here = select(results, "all", host=host_of(folder))
    earlier = [run for run in here[: [run.path for run in here].index(folder.path)] if not math.isnan(run.started)]
    (judged,) = facts_cache.read(results, [folder])
    count = max(LONGEST, nights)
    if baseline is None:
        if math.isnan(folder.started):
            hint = "name the run to compare it with: --baseline RUN"
            raise BadInput(f"it isn't known when {folder.id} began, so not which nights were before it", hint=hint)
        return [*_nights(results, earlier, judged, count), judged]
    named = _one(select(results, baseline, host=host_of(folder)), baseline)
    if named.path == folder.path:
        raise BadInput(f"{named.id} is the run to judge and its own baseline", hint="name an older run: --baseline RUN")
    since = [run for run in earlier if run.started > named.started]
    return [*facts_cache.read(results, [named]), *_nights(results, since, judged, count), judged]


def _nights(results: Results, earlier: Sequence[RunFolder], judged: RunSummary, count: int) -> list[RunSummary]:
    """The newest `count` of `earlier` that are nights of the run, oldest first."""
    found: list[RunSummary] = []
    for _ in range(_LOOK_BACK):
        chunk, earlier = earlier[-count:], earlier[:-count]
        found = [run for run in facts_cache.read(results, chunk) if is_night_of(run, judged)] + found
        if len(found) >= count or not earlier:
            break
    return found[-count:]


def _one(runs: Sequence[RunFolder], word: str) -> RunFolder:
    if len(runs) > 1:
        raise BadInput(
            f"{word} names {len(runs)} runs; the gate judges one and compares it with one", hint="last, last~1 or RUN"
        )
    return runs[0]
