"""Write the results of advise, audit and bisect, as text and as tables."""

import json
import math
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchmatrix.analysis import published
from torchmatrix.analysis.advice import Advice, axes_to_measure
from torchmatrix.analysis.bisection import FOUND, SAME, UNDECIDED, AdjacentPair, Search, Step, most_steps, not_monotone
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.cube_points import COSTS, Point
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.machines import choose_launches
from torchmatrix.analysis.published import figure_files
from torchmatrix.analysis.published.audit import Checked, Coverage, Finding, Unchecked, place
from torchmatrix.analysis.published.figure_files import HINT, Taken, Unparsed
from torchmatrix.analysis.rows import group_by
from torchmatrix.analysis.run_summary import launch_rows
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import clipped, count, figure, is_known, none_for_nan, printable
from torchmatrix.facts.store import Results
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.variants import rewritten
from torchmatrix.reporting import words
from torchmatrix.reporting.cubes import combination, ratio_of

# Advice as text for the terminal, as a record for --json, and as a matrix that measures what is missing.

MOST_AS_GOOD = 4


def advice_text(advice: Advice, run: str, to_measure: str) -> str:
    """Write an advice. `run`: the run that the facts are from; `to_measure`: the command that measures what is missing."""
    return "\n".join(map(printable, _advice_lines(advice, run, to_measure)))


def _advice_lines(advice: Advice, run: str, to_measure: str) -> Iterator[str]:
    points, row = advice.points, advice.point.row
    yield f"take: {row['stack']}: {settings_of(advice.point)}"
    yield f"  {advice.aim.title}: {_figure(advice.aim.times, advice.figure)} {advice.aim.said(str(row['unit']))}, " + (
        f"the {'highest' if advice.aim.more_is_better else 'lowest'} of {count(advice.candidates, 'combination')}"
    )
    if advice.usual is not advice.point:
        alike = ", with no difference shown" if advice.usual in advice.as_good and advice.point.moments else ""
        yield f"  {ratio_of(advice.gain)} over the usual settings ({settings_of(advice.usual)}){alike}"
    yield from _cost_lines(advice.point)
    yield from _equal_lines(advice)
    yield "rests on:"
    yield f"  {count(len(advice.point.speeds), 'launch')} of {advice.point.row['cell']}, run {run}"
    if not is_known(advice.figure.low):
        yield "  one launch has no interval: repeat it before you rely on it"
    lost = {
        "over a limit": advice.over_limit,
        "not known to keep the limits": advice.unknown,
        "without a figure": advice.failed,
    }
    if left_out := ", ".join(f"{number} {why}" for why, number in lost.items() if number):
        yield f"  left out: {left_out}"
    yield "not measured:"
    if advice.never_varied:
        yield f"  settings that were never varied: {', '.join(factor.name for factor in advice.never_varied)}"
    if advice.unmeasured:
        yield f"  {count(len(advice.unmeasured), 'combination')} one setting away from this one"
    if advice.never_varied or advice.unmeasured:
        yield f"  to measure that: {to_measure}"
    yield f"  any devices but {words.devices(points.devices)}, any size but this one, real data"


def _equal_lines(advice: Advice) -> Iterator[str]:
    if advice.as_good:
        shown = [f"{point.row['stack']}: {settings_of(point)}" for point in advice.as_good[:MOST_AS_GOOD]]
        more = len(advice.as_good) - len(shown)
        few = advice.point.moments is None
        what = "not tested against it, by one launch" if few else "no difference shown from it"
        yield f"{what} ({count(len(advice.as_good), 'combination')}):"
        yield from (f"  {line}" for line in shown)
        if more:
            yield f"  and {more} more (--json lists all)"


def _cost_lines(point: Point) -> Iterator[str]:
    costs = [f"{cost.title} {figure(cost.times * point.costs[cost.column])} {cost.shown_unit}" for cost in COSTS
             if is_known(point.costs[cost.column])]  # fmt: skip
    if costs:
        yield f"  with it: {', '.join(costs)}"


def settings_of(point: Point) -> str:
    """Write a point's settings, without the stack."""
    named = {name: value for name, value in point.settings.items() if name != "stack"}
    return combination(named) or str(point.row["workload"])


def _figure(times: float, interval: Interval) -> str:
    limits = "" if math.isnan(interval.low) else f" ({figure(times * interval.low)} to {figure(times * interval.high)})"
    return f"{figure(times * interval.value)}{limits}"


def advice_record(advice: Advice, run: str) -> dict[str, Any]:
    """Return the advice for --json; NaN becomes null."""
    return {
        "run": run,
        "aim": advice.aim.name,
        "unit": advice.aim.unit.format(unit=advice.point.row["unit"]),
        "take": _point(advice.point) | none_for_nan(asdict(advice.figure)),
        "over_usual": none_for_nan(asdict(advice.gain)) | {"usual": _point(advice.usual)},
        "candidates": advice.candidates,
        "as_good": [_point(point) for point in advice.as_good],
        "left_out": {"over_limit": advice.over_limit, "unknown": advice.unknown, "failed": advice.failed},
        "never_varied": [factor.name for factor in advice.never_varied],
        "unmeasured": [dict(settings) for settings in advice.unmeasured],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "cell": point.row["cell"], "stack": point.row["stack"], "settings": dict(point.settings), "launches": len(point.speeds),
        "costs": none_for_nan(dict(point.costs)),
    }  # fmt: skip


def matrix_to_measure(advice: Advice, matrix: str) -> str:
    """Rewrite the run's matrix file (its text) to one workload, which measures what is missing on the stack to take."""
    row = advice.point.row
    fixed = {"model": row["model"], "mode": row["mode"], "device": "gpu" if row["device_list"][0].startswith("gpu") else "cpu"}
    axes = axes_to_measure(advice)
    others = json.loads(row["other_settings"])
    keys: dict[str, Any] = {**fixed, "batch": row["batch_requested"]}
    for factor in FACTORS:
        if factor.name not in keys and factor.name not in axes:
            keys |= {factor.name: others[factor.name]} if others.get(factor.name) is not None else {}
    keys |= {name: values if len(values) > 1 else values[0] for name, values in axes.items()}
    keys |= {"stacks": [row["stack"]], "counts": [int(row["count"])]}
    return rewritten(matrix, keys)


# The input and output of `audit`: the figures of a table or of a run, the findings, what could not be read or checked.


def stated(results: Results, word: str) -> Taken:
    """Return the throughputs of a CSV file, or of the launches that `word` names (as in compare). Raises BadInput if none."""
    path = Path(word)
    if word.lower().endswith(".csv"):
        return figure_files.take(path)
    if path.is_file() and path.suffix != ".jsonl":
        raise BadInput(f"{word} is neither a CSV file nor a launch file", hint=f"save the table as CSV; {HINT}")
    chosen = choose_launches(results, word)
    cells = CellIndex(launch_rows(chosen.launches)).figures
    measured, mixed = published.measured(cells), published.mixed(cells)
    if not measured and not mixed:
        raise BadInput(f"{word} has no figure: all of its launches failed", hint="torchmatrix report shows why they failed")
    return Taken(figures=tuple(cell.figure for cell in measured), unparsed=(), unreadable=chosen.unreadable, mixed=mixed)


def findings_in_words(findings: Iterable[Finding]) -> str:
    """Write one line per finding: place, level, field, value, limit and reason; rows with the same finding share a line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for finding in findings:
        value = f"{clipped(finding.value)} {finding.unit}".strip() or "unknown"
        texts = finding.level, finding.field, value, finding.limit, finding.reason
        alike.setdefault(texts, []).append(place(finding).removeprefix("row "))
    rows: list[tuple[str, ...]] = [("row", "level", "field", "value", "limit", "reason")]
    rows += [(_several(places), *texts) for texts, places in alike.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join("  ".join([*(f"{printable(row[i]):<{widths[i]}}" for i in range(5)), printable(row[5])]) for row in rows)


def unparsed_in_words(unparsed: Iterable[Unparsed]) -> str:
    """Write one line for each text that could not be read, with its rows."""
    alike = group_by(unparsed, lambda entry: (entry.column, entry.text, entry.why))
    return "\n".join(
        f"not read: row {_several([str(entry.row) for entry in entries])}{f', {printable(column)}' if column else ''}: "
        + (f'"{clipped(printable(text))}" ' if text else "")
        + why
        for (column, text, why), entries in alike.items()
    )


def coverage_in_words(coverage: Coverage) -> str:
    """Write what the figures of several GPUs were held against; "" if there are none."""
    if not coverage.several:
        return ""
    parts = [f"{coverage.baseline} held against one GPU"]
    parts += (
        [f"{coverage.siblings} without such a baseline against other batches or numbers of GPUs"] if coverage.siblings else []
    )
    parts += [f"{coverage.unchecked} against nothing: no baseline"] if coverage.unchecked else []
    return f"{count(coverage.several, 'figure')} of several GPUs: {'; '.join(parts)}"


def unchecked_in_words(unchecked: Iterable[Unchecked]) -> Iterator[str]:
    """Yield one line for each reason, with its rows or cells."""
    for reason, entries in group_by(unchecked, lambda entry: entry.reason).items():
        yield f"not checked: {printable(_several(list(map(place, entries))))}, because {printable(clipped(reason))}"


def checked_in_words(checked: Checked) -> str:
    """Write the last line of an audit."""
    held = f"{checked.against_peak} of {checked.figures} figures were held against a peak"
    return f"{held}, {checked.against_scaling} against scaling"


def result_in_words(checked: Checked, findings: Collection[Finding]) -> str:
    """Count the findings, by level; without any, say whether anything was checked."""
    levels = ", ".join(f"{number} {level}" for level, number in Counter(finding.level for finding in findings).items())
    if not findings and not checked.is_any:
        return "none could be checked"
    return count(len(findings), "finding") + (f" ({levels})" if levels else "")


def _several(places: Sequence[str]) -> str:
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"


# The search of `bisect` for the release that changed a level, as lines for the terminal.


def plan_in_words(search: Search, job: str, rounds: int) -> Iterator[str]:
    """Yield the plan of the search."""
    inside = len(search.stacks) - 2 - len(search.left_out)
    yield printable(f"{job}: {search.stacks[0]} to {search.stacks[-1]}, {count(inside, 'stack')} between them")
    steps = most_steps(inside + 2)
    yield (
        f"first the two in {count(rounds, 'round')}; if they differ, at most {count(steps, 'step')} of three stacks, "
        f"{3 * rounds} launches each; a step without an answer is repeated, twice at most"
    )
    yield from (printable(f"left out: {name}: {why}") for name, why in search.left_out.items())


def step_in_words(step: Step) -> Iterator[str]:
    """Yield the results of a step, and what follows."""
    yield from map(_pair_line, step.pairs)
    if step.goes_on is None:
        yield "  not decided"
    elif step.middle:
        yield printable(f"  so the change lies between {step.goes_on[0]} and {step.goes_on[1]}")


def bisection_text(search: Search, job: str, matrix: str | None) -> str:
    """Write the answer, what it rests on, and what to do next. `matrix`: where the search's matrix was written, if it was."""
    return "\n".join(map(printable, _bisection_lines(search, job, matrix)))


def _bisection_lines(search: Search, job: str, matrix: str | None) -> Iterator[str]:
    change = search.change
    assert change is not None
    yield from _answer_lines(search, change)
    if search.between:
        reasons = {name: f" ({why})" for name, why in search.left_out.items() if why}
        yield f"between them: {', '.join(name + reasons.get(name, '') for name in search.between)}"
    if search.others:
        yield "the level changed more than once; also:"
        yield from (f"  {pair.old} -> {pair.new}: {_ratio(pair)}" for pair in search.others)
    if not_monotone(search):
        yield "it did not only rise or only fall: stacks between two of one level may have another"
    corrected = (
        f"p <= {search.level:.2g}, which is 5 % corrected for all tests of the search; intervals are those of two stacks alone"
    )
    yield f"{count(len(search.steps), 'step')}; a difference counts at {corrected}"
    if search.ended == FOUND and change.environment:
        yield "what else differs between the two:"
        yield from (f"  {name}: {clipped(was)} -> {clipped(now)}" for name, (was, now) in change.environment.items())
    if search.ended == FOUND:
        cells = " ".join(shlex.quote(f"{name}/{job}") for name in (change.old, change.new))
        file = shlex.quote(matrix) if matrix else "FILE (bisect --write FILE makes it)"
        yield f"which operators: torchmatrix why {cells} --matrix {file}"


def _answer_lines(search: Search, change: AdjacentPair) -> Iterator[str]:
    old, new = search.ends
    rests = f"{change.launches[0]} and {change.launches[1]} launches, in turns"
    if search.ended == FOUND and not search.between:
        yield f"the level changed in {new}: {_ratio(change)}, over {old}; {rests}"
    elif search.ended == FOUND:
        yield f"the level changed after {old}, in {new} at the latest: {_ratio(change)}; {rests}"
    elif search.ended == SAME:
        yield f"the level is the same in {old} and {new}: {_ratio(change)}; {rests}"
    elif search.ended == UNDECIDED:
        yield f"the level changed between {old} and {new}: {_ratio(change)}; {rests}"
        yield f"which release is not shown: {search.steps[-1].middle} differs too little from both; use more --launches"
    else:
        verdict = words.verdict("AMBIGUOUS") if is_known(change.p_value) else "too few launches to see a difference"
        yield f"{verdict} between {old} and {new}: {_ratio(change)}; {rests}"
        if is_known(change.detectable):
            yield f"these launches would show {100 * change.detectable:.2g} %; for a smaller difference use more --launches"


def _pair_line(pair: AdjacentPair) -> str:
    verdict = "differs" if pair.differs else words.verdict("AMBIGUOUS")
    verdict = verdict if is_known(pair.p_value) else f"too few launches: {words.verdict('n/a')}"
    return printable(f"  {pair.old} -> {pair.new}: {_ratio(pair)}; {verdict}")


def _ratio(pair: AdjacentPair) -> str:
    """Write a ratio with the 95 % interval of the two alone, and the p-value that decides."""
    chance = f", p = {pair.p_value:.2g}" if is_known(pair.p_value) else ""
    return f"{ratio_of(Interval(value=pair.ratio, low=pair.low, high=pair.high))}{chance}"
