"""The last run against the nights before it: what became slower, what failed, what is gone."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix import canary, environments, noise, sameness
from torchmatrix.index import Indexed
from torchmatrix.judged import Gate, GateOptions, Judged
from torchmatrix.launches import UNFINISHED
from torchmatrix.noise import Night, Standing

__all__ = ["Gate", "GateOptions", "Judged", "is_night_of", "judge"]

_DEFAULT = GateOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class _View:
    """One run with its rows by cell."""

    run: Indexed
    rows: dict[str, list[dict[str, Any]]]

    def asked_for(self, cell: str) -> bool:
        return cell in self.rows or cell in self.run.planned

    def ok(self, cell: str) -> list[dict[str, Any]]:
        return [row for row in self.rows.get(cell, ()) if row["outcome"] == "ok"]

    def failed(self, cell: str) -> list[dict[str, Any]]:
        return [row for row in self.rows.get(cell, ()) if row["outcome"] not in ("ok", *UNFINISHED)]


def judge(runs: Sequence[Indexed], options: GateOptions = _DEFAULT) -> Gate:
    """The last of `runs` (of one host, oldest first) against those before it. Raises BadInput if no cell is the canary.

    With `options.named` the first is the baseline, and one between them only tells whether it was slower the night before.
    """
    views = [_view(run) for run in runs]
    last, before = views[-1], views[:-1]
    reference = before[:1] if options.named else before
    cells = dict.fromkeys(cell for view in (last, *reversed(reference)) for cell in (*view.run.planned, *view.rows))
    judged = [found for cell in cells if (found := _judged(cell, before, last, options))]
    return Gate(
        run=last.run.id,
        host=last.run.host,
        started=last.run.started,
        complete=last.run.complete,
        baseline=tuple(view.run.id for view in reference),
        options=options,
        cells=canary.attributed(judged, options.canary),
    )


def is_night_of(run: Indexed, judged: Indexed) -> bool:
    """Did `run` ask for half of the cells of `judged`, or more? Less is an experiment in between, no night."""
    asked = set(judged.planned)
    return 2 * len(asked.intersection(run.planned)) >= len(asked)


def _view(run: Indexed) -> _View:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in run.launches:
        rows.setdefault(row["cell"], []).append(row)
    return _View(run=run, rows=rows)


def _judged(cell: str, before: Sequence[_View], last: _View, options: GateOptions) -> Judged | None:
    """None: the cell was skipped before, too."""
    if last.failed(cell):
        return _failed(cell, before, last)
    if last.ok(cell):
        return _measured(cell, before, last, options)
    return _absent(cell, before[:1] if options.named else before, last, options)


def _failed(cell: str, before: Sequence[_View], last: _View) -> Judged:
    """A crash is no noise: it counts at once, on whichever launch. What the stack never could do is no regression."""
    rows, failed = last.rows[cell], last.failed(cell)
    said = f"{failed[0]['outcome']}: {failed[0]['error'] or 'no message'}"
    earlier = sum(bool(view.failed(cell)) for view in before)
    nights = f"; it failed on {earlier} of the {len(before)} nights before, too" if earlier else ""
    never = failed[0]["outcome"] == "unsupported" and not any(view.ok(cell) for view in before)
    since = next((view for view in reversed(before) if view.ok(cell)), None)
    return Judged(
        cell=cell,
        verdict="n/a" if never else "failed",
        why=f"{len(failed)} of {len(rows)} launches: {said}{nights}",
        facts=str(failed[0]["path"]),
        changes=_changes(since, last, failed[0]["stack"]),
        **_about(failed[0]),
    )


def _absent(cell: str, before: Sequence[_View], last: _View, options: GateOptions) -> Judged | None:
    """Nothing was measured. What the matrix, or the command, no longer asks for is gone on purpose."""
    home = next((view for view in reversed(before) if view.asked_for(cell)), None)
    row = next((row for view in (last, *reversed(before)) for row in view.rows.get(cell, ())), None)
    about = _about(row) if row else {}
    if last.asked_for(cell):
        ended = "" if last.run.complete else "; the run did not come to its end"
        why = "interrupted or lost" if cell in last.rows else "planned, but not measured"
        return Judged(cell=cell, verdict="missing", why=why + ended, **about)
    if home is None:
        return None
    if cell in last.run.skipped:
        return Judged(cell=cell, verdict="skipped-now", why=f"{last.run.skipped[cell]} (planned in {home.run.id})", **about)
    if options.named or all(home.run.header.get(key) == last.run.header.get(key) for key in ("matrix", "command")):
        return Judged(cell=cell, verdict="missing", why=f"planned in {home.run.id}, neither planned nor skipped now", **about)
    why = f"planned in {home.run.id}; the matrix or the command has changed since"
    return Judged(cell=cell, verdict="removed", why=why, **about)


def _measured(cell: str, before: Sequence[_View], last: _View, options: GateOptions) -> Judged:
    row = last.ok(cell)[-1]
    others = {view.run.id: why for view in (*before, last) if (why := _other_work(view.ok(cell), row["work"]))}
    if last.run.id in others:
        why = f"the launches of this night are not of one kind: {others[last.run.id]}"
        return Judged(cell=cell, verdict="n/a", why=why, **_about(row))
    same = [view for view in (*before, last) if view.ok(cell) and view.run.id not in others]
    found = _standing(cell, same, before, options)
    left_out = _in_words(others)
    if found is None:
        verdict, why = ("n/a", left_out) if before[0].run.id in others else ("new", f"{before[0].run.id} did not measure it")
        return Judged(cell=cell, verdict=verdict, why=why, value=_night(last, cell).value, **_about(row))
    limits = found.limits
    since = next((view for view in before if limits and view.run.id == limits.nights[-1]), None)
    return Judged(
        cell=cell,
        verdict=found.verdict,
        why="; ".join(filter(None, (_reason(found, left_out), *_seen(found, last.ok(cell)), left_out))),
        value=_night(last, cell).value,
        ratio=found.ratio,
        before=found.before,
        facts=str(row["path"]),
        changes=_changes(since, last, row["stack"]),
        **{name: getattr(limits, name) for name in ("center", "low", "high", "nights", "strays", "rule") if limits},
        **_about(row),
    )


def _standing(cell: str, same: Sequence[_View], before: Sequence[_View], options: GateOptions) -> Standing | None:
    """None: the run that was named as the baseline has no night of this cell that is of the same work."""
    if not options.named:
        nights = [_night(view, cell) for view in same]
        return noise.standing(nights, options.nights, options.tolerance, options.strict)
    if same[0] is not before[0]:
        return None
    baseline, history = _night(same[0], cell), [_night(view, cell) for view in same[1:]]
    return noise.standing_to_run(baseline, history, options.tolerance, options.strict)


def _reason(found: Standing, left_out: str) -> str:
    if found.verdict == "new":
        return "the baseline begins anew" if left_out else "no night before measured it"
    if found.verdict == "suspected":
        return "slower for the first night; a second one makes it a regression"
    if found.verdict == "regression":
        return "slower on one night (--strict)" if math.isnan(found.before) else "slower on two nights in a row"
    return found.limits.rule if found.limits and found.verdict == "n/a" else ""


def _seen(found: Standing, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the watch saw during launches that were slower."""
    if found.verdict not in ("suspected", "regression"):
        return []
    counted = {"throttled": "the devices were throttled", "foreign": "others used the devices"}
    numbers = {words: sum(bool(row[name]) for row in rows) for name, words in counted.items()}
    return [f"{words} in {number} of {len(rows)} launches" for words, number in numbers.items() if number]


def _in_words(others: Mapping[str, str]) -> str:
    """Which nights are no baseline since they did other work; the newest one's difference stands for all."""
    if not others:
        return ""
    *_, (run, why) = others.items()
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"not comparable with {run}{more}: {why}"


def _other_work(rows: Sequence[Mapping[str, Any]], work: str) -> str | None:
    """In what the first of `rows` that did other work differs, in words."""
    other = next((row["work"] for row in rows if row["work"] != work), None)
    return None if other is None else sameness.difference(json.loads(other), json.loads(work))


def _night(view: _View, cell: str) -> Night:
    rows = view.ok(cell)
    return noise.night(view.run.id, [float(row["throughput"]) for row in rows], rows[-1]["statistic"])


def _about(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"stack": row["stack"], "unit": row["unit"], "devices": tuple(row["device_list"])}


def _changes(since: _View | None, last: _View, stack: str) -> dict[str, tuple[str, str]]:
    if since is None:
        return {}
    return environments.changed(since.run.environments.get(stack, {}), last.run.environments.get(stack, {}))
