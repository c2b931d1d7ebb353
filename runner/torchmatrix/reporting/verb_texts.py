"""Write what advise, audit and bisect found, as text and as tables."""

import json
import math
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torchmatrix.analysis.advice import Advice, axes_to_measure
from torchmatrix.analysis.bisection import FOUND, SAME, UNDECIDED, Beside, Search, Step, most_steps, not_monotone
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.cube_points import COSTS, Point
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.machines import choose_launches
from torchmatrix.analysis.published import figure_files, figures
from torchmatrix.analysis.published.audit import Checked, Coverage, Finding, Unchecked, place
from torchmatrix.analysis.published.figure_files import HINT, Taken, Unparsed
from torchmatrix.analysis.run_summary import launch_rows
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import clipped, count, figure, is_known, none_for_nan, printable
from torchmatrix.facts.store import Results
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.variants import rewritten
from torchmatrix.reporting import words
from torchmatrix.reporting.cubes import combination, ratio_of

# Advice (analysis/advice.py) -> text for the terminal, a record for --json, and a matrix that measures what is missing.

MOST_AS_GOOD = 4


def advice_text(found: Advice, run: str, to_measure: str) -> str:
    """`run`: whose facts these are; `to_measure`: the command that measures what is missing."""
    return "\n".join(map(printable, _advice_lines(found, run, to_measure)))


def _advice_lines(found: Advice, run: str, to_measure: str) -> Iterator[str]:
    points, row = found.points, found.point.row
    yield f"take: {row['stack']}: {settings_of(found.point)}"
    yield f"  {found.aim.title}: {_figure(found.aim.times, found.figure)} {found.aim.said(str(row['unit']))}, " + (
        f"the {'highest' if found.aim.more_is_better else 'lowest'} of {count(found.candidates, 'combination')}"
    )
    if found.usual is not found.point:
        alike = ", with no difference shown" if found.usual in found.as_good else ""
        yield f"  {ratio_of(found.gain)} over the usual settings ({settings_of(found.usual)}){alike}"
    yield from _costs(found.point)
    yield from _as_good(found)
    yield "rests on:"
    yield f"  {count(len(found.point.speeds), 'launch')} of {found.point.row['cell']}, run {run}"
    if not is_known(found.figure.low):
        yield "  one launch has no interval: repeat it before you rely on it"
    lost = {"over a limit": found.over_limit, "not known to keep the limits": found.unknown, "without a figure": found.failed}
    if said := ", ".join(f"{number} {why}" for why, number in lost.items() if number):
        yield f"  left out: {said}"
    yield "not measured:"
    if found.never_varied:
        yield f"  settings that were never varied: {', '.join(factor.name for factor in found.never_varied)}"
    if found.unmeasured:
        yield f"  {count(len(found.unmeasured), 'combination')} one setting away from this one"
    if found.never_varied or found.unmeasured:
        yield f"  to measure that: {to_measure}"
    yield f"  any devices but {words.devices(points.devices)}, any size but this one, real data"


def _as_good(found: Advice) -> Iterator[str]:
    if found.as_good:
        shown = [f"{point.row['stack']}: {settings_of(point)}" for point in found.as_good[:MOST_AS_GOOD]]
        more = len(found.as_good) - len(shown)
        yield f"no difference shown from it ({count(len(found.as_good), 'combination')}):"
        yield from (f"  {line}" for line in shown)
        if more:
            yield f"  and {more} more (--json lists all)"


def _costs(point: Point) -> Iterator[str]:
    known = [f"{cost.title} {figure(cost.times * point.costs[cost.column])} {cost.shown_unit}" for cost in COSTS
             if is_known(point.costs[cost.column])]  # fmt: skip
    if known:
        yield f"  with it: {', '.join(known)}"


def settings_of(point: Point) -> str:
    """Its settings for a reader, without the stack."""
    named = {name: value for name, value in point.settings.items() if name != "stack"}
    return combination(named) or str(point.row["workload"])


def _figure(times: float, found: Interval) -> str:
    limits = "" if math.isnan(found.low) else f" ({figure(times * found.low)} to {figure(times * found.high)})"
    return f"{figure(times * found.value)}{limits}"


def advice_record(found: Advice, run: str) -> dict[str, Any]:
    """For --json; NaN becomes null."""
    interval = {name: getattr(found.figure, name) for name in ("value", "low", "high")}
    gain = {name: getattr(found.gain, name) for name in ("value", "low", "high")}
    return {
        "run": run,
        "aim": found.aim.name,
        "unit": found.aim.unit.format(unit=found.point.row["unit"]),
        "take": _point(found.point) | none_for_nan(interval),
        "over_usual": none_for_nan(gain) | {"usual": _point(found.usual)},
        "candidates": found.candidates,
        "as_good": [_point(point) for point in found.as_good],
        "left_out": {"over_limit": found.over_limit, "unknown": found.unknown, "failed": found.failed},
        "never_varied": [factor.name for factor in found.never_varied],
        "unmeasured": [dict(settings) for settings in found.unmeasured],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "cell": point.row["cell"], "stack": point.row["stack"], "settings": dict(point.settings), "launches": len(point.speeds),
        "costs": none_for_nan(dict(point.costs)),
    }  # fmt: skip


def matrix_to_measure(found: Advice, matrix: str) -> str:
    """The run's own matrix file (its text) with one workload, which measures what is missing on the stack to take."""
    row = found.point.row
    fixed = {"model": row["model"], "mode": row["mode"], "device": "gpu" if row["device_list"][0].startswith("gpu") else "cpu"}
    axes = axes_to_measure(found)
    others = json.loads(row["other_settings"])
    keys: dict[str, Any] = {**fixed, "batch": row["batch_requested"]}
    for factor in FACTORS:
        if factor.name not in keys and factor.name not in axes:
            keys |= {factor.name: others[factor.name]} if others.get(factor.name) is not None else {}
    keys |= {name: values if len(values) > 1 else values[0] for name, values in axes.items()}
    keys |= {"stacks": [row["stack"]], "counts": [int(row["count"])]}
    return rewritten(matrix, keys)


# What `audit` reads and prints: the figures of a table or of a run, the findings, what could not be read or checked.


def stated(results: Results, word: str) -> Taken:
    """The throughputs of a CSV file, or those of the launches that `word` names (as in compare). Raises BadInput if none."""
    path = Path(word)
    if word.lower().endswith(".csv"):
        return figure_files.take(path)
    if path.is_file() and path.suffix != ".jsonl":
        raise BadInput(f"{word} is neither a CSV file nor a launch file", hint=f"save the table as CSV; {HINT}")
    chosen = choose_launches(results, word)
    cells = CellIndex(launch_rows(chosen.launches)).figures
    found, mixed = figures.measured(cells), figures.mixed(cells)
    if not found and not mixed:
        raise BadInput(f"{word} has no figure: all of its launches failed", hint="torchmatrix report shows why they failed")
    return Taken(figures=tuple(own.figure for own in found), unparsed=(), unreadable=chosen.unreadable, mixed=mixed)


def findings_in_words(findings: Iterable[Finding]) -> str:
    """One line per finding: place, level, field, value, limit and reason; what is said of several rows alike, on one line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in findings:
        value = f"{clipped(one.value)} {one.unit}".strip() or "unknown"
        alike.setdefault((one.level, one.field, value, one.limit, one.reason), []).append(place(one).removeprefix("row "))
    rows: list[tuple[str, ...]] = [("row", "level", "field", "value", "limit", "reason")]
    rows += [(_several(places), *said) for said, places in alike.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join("  ".join([*(f"{printable(row[i]):<{widths[i]}}" for i in range(5)), printable(row[5])]) for row in rows)


def unparsed_in_words(unparsed: Iterable[Unparsed]) -> str:
    """One line for each text that could not be read, with its rows."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for one in unparsed:
        alike.setdefault((one.column, one.text, one.why), []).append(str(one.row))
    return "\n".join(
        f"not read: row {_several(rows)}{f', {printable(column)}' if column else ''}: "
        + (f'"{clipped(printable(text))}" ' if text else "")
        + why
        for (column, text, why), rows in alike.items()
    )


def coverage_in_words(found: Coverage) -> str:
    """What the figures of several GPUs were held against; "" if there are none."""
    if not found.several:
        return ""
    parts = [f"{found.baseline} held against one GPU"]
    parts += [f"{found.siblings} without such a baseline against other batches or numbers of GPUs"] if found.siblings else []
    parts += [f"{found.unchecked} against nothing: no baseline"] if found.unchecked else []
    return f"{count(found.several, 'figure')} of several GPUs: {'; '.join(parts)}"


def unchecked_in_words(unchecked: Iterable[Unchecked]) -> Iterator[str]:
    """One line for each reason, with its rows or cells."""
    alike: dict[str, list[str]] = {}
    for one in unchecked:
        alike.setdefault(one.reason, []).append(place(one))
    for reason, places in alike.items():
        yield f"not checked: {printable(_several(places))}, because {printable(clipped(reason))}"


def checked_in_words(found: Checked) -> str:
    """What ends each audit."""
    held = f"{found.against_peak} of {found.figures} figures were held against a peak"
    return f"{held}, {found.against_scaling} against scaling"


def result_in_words(found: Checked, findings: Collection[Finding]) -> str:
    """How many findings, by level; without any, whether anything was looked at."""
    levels = ", ".join(f"{number} {level}" for level, number in Counter(finding.level for finding in findings).items())
    if not findings and not found.is_any:
        return "none could be checked"
    return count(len(findings), "finding") + (f" ({levels})" if levels else "")


def _several(places: Sequence[str]) -> str:
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"


# A search for the release that changed a level (analysis/bisection.py) -> lines for the terminal.


def plan_in_words(search: Search, job: str, rounds: int) -> Iterator[str]:
    """What will be done."""
    inside = len(search.stacks) - 2 - len(search.left_out)
    yield printable(f"{job}: {search.stacks[0]} to {search.stacks[-1]}, {count(inside, 'stack')} between them")
    steps = most_steps(inside + 2)
    yield (
        f"first the two in {count(rounds, 'round')}; if they differ, at most {count(steps, 'step')} of three stacks, "
        f"{3 * rounds} launches each; a step without an answer is repeated, twice at most"
    )
    yield from (printable(f"left out: {name}: {why}") for name, why in search.left_out.items())


def step_in_words(step: Step) -> Iterator[str]:
    """What was found, and what follows."""
    yield from map(_pair, step.pairs)
    if step.goes_on is None:
        yield "  not decided"
    elif step.middle:
        yield printable(f"  so the change lies between {step.goes_on[0]} and {step.goes_on[1]}")


def bisection_text(search: Search, job: str, matrix: str | None) -> str:
    """The answer, what it rests on, and what to do next. `matrix`: where the matrix of the search was written, if it was."""
    return "\n".join(map(printable, _bisection_lines(search, job, matrix)))


def _bisection_lines(search: Search, job: str, matrix: str | None) -> Iterator[str]:
    change = search.change
    assert change is not None
    yield from _answer(search, change)
    if search.between:
        yield f"between them: {', '.join(map(str, _between(search)))}"
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
        yield f"which operators: {_why(change, job, matrix)}"


def _answer(search: Search, change: Beside) -> Iterator[str]:
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
        yield f"which release is not shown: {_last_middle(search)} differs too little from both; use more --launches"
    else:
        seen = words.verdict("AMBIGUOUS") if is_known(change.p_value) else "too few launches to see a difference"
        yield f"{seen} between {old} and {new}: {_ratio(change)}; {rests}"
        if is_known(change.detectable):
            yield f"these launches would show {100 * change.detectable:.2g} %; for a smaller difference use more --launches"


def _last_middle(search: Search) -> str:
    return str(search.steps[-1].middle)


def _between(search: Search) -> Iterator[str]:
    for name in search.between:
        why = search.left_out.get(name)
        yield f"{name} ({why})" if why else name


def _pair(pair: Beside) -> str:
    verdict = "differs" if pair.differs else words.verdict("AMBIGUOUS")
    verdict = verdict if is_known(pair.p_value) else f"too few launches: {words.verdict('n/a')}"
    return printable(f"  {pair.old} -> {pair.new}: {_ratio(pair)}; {verdict}")


def _ratio(pair: Beside) -> str:
    """With the 95 % interval of the two alone, and the p-value that decides."""
    chance = f", p = {pair.p_value:.2g}" if is_known(pair.p_value) else ""
    return f"{ratio_of(Interval(value=pair.ratio, low=pair.low, high=pair.high))}{chance}"


def _why(change: Beside, job: str, matrix: str | None) -> str:
    cells = " ".join(shlex.quote(f"{name}/{job}") for name in (change.old, change.new))
    return f"torchmatrix why {cells} --matrix {shlex.quote(matrix) if matrix else 'FILE (bisect --write FILE makes it)'}"
