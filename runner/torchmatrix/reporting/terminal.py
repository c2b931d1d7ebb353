"""Tables -> aligned lines for the terminal: the output of `compare`, `explain` and `history`."""

import math
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torchmatrix.analysis.between_runs import ENOUGH_RUNS, USUAL_SCATTER, needed
from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.compare import TWO_RUNS, ComparedRow, Comparison
from torchmatrix.analysis.history import Change, Trend, never_launched
from torchmatrix.analysis.intervals import SEEN_FROM, Interval
from torchmatrix.analysis.rows import BATCH, EQUIVALENT, group_by, is_ok
from torchmatrix.analysis.run_summary import launch_rows
from torchmatrix.analysis.scaling import FACTORS, decomposition_table
from torchmatrix.analysis.verdicts import REASONS
from torchmatrix.core.formatting import clipped, count, figure, four_decimals, none_for_nan, printable
from torchmatrix.facts.alike import counting
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import RunFolder
from torchmatrix.reporting import words

EQUIVALENT_MARK = " ≈"
"""Marks rows that compare two builds of one release."""
MOST_GLOBS = 3
MOST_LABELS = 6
"""Most cells without a ratio that are listed; all are counted."""


def decomposition(run: RunFolder) -> list[dict[str, Any]]:
    """Return the rows of a run's decomposition; unknown figures are None."""
    return [none_for_nan(row) for row in decomposition_table(CellIndex(launch_rows(counting(run.launches()))))]


def decomposition_in_words(rows: list[dict[str, Any]]) -> str:
    """Write the efficiency E as a product, with 95 % intervals, and the communication that computation does not hide."""
    lines = []
    for row in rows:
        lines.append(str(row["cell"]))
        parts = [f"{name} {four_decimals(row[name])}{_span(row, name)}" for name in ("E", *FACTORS)]
        lines += [f"  {parts[0]}  ="] + [f"    {part}" for part in parts[1:]]
        exposed, step = row["exposed_seconds"], row["step_seconds"]
        if exposed is not None:
            share = f" of a step of {1e3 * step:.2f} ms" if step else ""
            lines.append(f"  exposed communication: {1e3 * exposed:.2f} ms{share}")
        if row["bus_bytes_per_second"] is not None:
            lines.append(f"  all-reduce of the gradients: {row['bus_bytes_per_second'] / 1e9:.2f} GB/s bus bandwidth")
    return "\n".join(lines) or "no loss could be explained: some of the launches that this needs failed"


def comparison_in_words(comparison: Comparison, reasons: bool = False, width: int = 100) -> str:
    """Write one or two lines per ratio; what is not compared, and why; geometric mean and verdicts; how environments differ.
    `reasons`: with the rule that decided each verdict. `width`: of a terminal, in characters.
    """
    if comparison.empty:
        return printable(f"nothing to compare: {comparison.empty}")
    one_sided = comparison.only_one
    lines = [
        *_ratio_lines(comparison, width),
        *(_reason_lines(comparison) if reasons else ()),
        *_held_back_lines(comparison),
        *_level_lines(comparison),
        *_refusal_lines(comparison),
        *([f"only on one side, {count(len(one_sided), 'cell')}: {_some(one_sided)}"] if one_sided else ()),
        *_mean_lines(comparison),
        "",
        *_environment_lines(comparison),
    ]
    return "\n".join(map(printable, lines))


def _environment_lines(comparison: Comparison) -> Iterator[str]:
    """Yield how the environments differ, and how much of them could be compared."""
    none = "no difference in what both recorded" if comparison.compared.recorded else "nothing is recorded on both sides"
    yield f"environments: {'A, then B' if comparison.environment else none}"
    packages = [name for name in comparison.environment if name.startswith(_PACKAGE)]
    hidden = (
        {name for name in packages if name.removeprefix(_PACKAGE) not in _TELLING} if len(packages) > MOST_PACKAGES else set()
    )
    shown = {name: both for name, both in comparison.environment.items() if name not in hidden}
    yield from (f"  {name}: {clipped(a)}  |  {clipped(b)}" for name, (a, b) in shown.items())
    if hidden:
        yield f"  and {count(len(hidden), 'package')} (--json lists them)"
    missing = comparison.compared.missing
    yield f"  {comparison.compared.in_words}" + (f"; not {_some(missing)}" if missing else "")


_PACKAGE = "package "
_TELLING = frozenset({"torch", "torchvision", "torchaudio", "torchao", "transformers", "timm", "triton", "numpy"})
"""Packages of which a reader wants to know first."""
MOST_PACKAGES = 12
"""Of more packages that differ only the telling ones have a line."""


def _ratio_lines(comparison: Comparison, width: int) -> Iterator[str]:
    """Yield a line for each ratio, or two where these are wider than `width`, with what is to be known of it below."""
    rows = [row for row in comparison.rows if not row.refused]
    if not rows:
        return
    if not comparison.metric.more_is_better:
        yield f"{comparison.metric.title}: that of B over that of A, so that A is the better one above 1"
    labels = [f"{row.label}{EQUIVALENT_MARK if row.stack_match == EQUIVALENT else ''}" for row in rows]
    table = [("ratio", "95 % interval", "launches", "verdict"), *(_ratio_columns(comparison, row) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(4)]
    lines = ["  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip() for line in table]
    order = _order(comparison)
    label = max(map(len, (order, *labels)))
    is_one_line = label + 2 + max(map(len, lines)) <= width
    yield from [f"{order:<{label}}  {lines[0]}"] if is_one_line else [order, f"  {lines[0]}"]
    same = (
        {note for note in _ratio_notes(rows[0]) if all(note in _ratio_notes(row) for row in rows)} if len(rows) > 1 else set()
    )
    for name, row, line in zip(labels, rows, lines[1:], strict=True):
        yield from [f"{name:<{label}}  {line}"] if is_one_line else [name, f"  {line}"]
        for note in _ratio_notes(row):
            if note not in same:
                yield from textwrap.wrap(note, max(40, width), initial_indent="    ", subsequent_indent="    ")
    yield from (
        line for note in sorted(same) for line in textwrap.wrap(f"each: {note}", max(40, width), subsequent_indent="  ")
    )
    unchecked = sum(not row.work_checked for row in rows)
    if unchecked:
        yield f"not checked in {count(unchecked, 'row')}: that A and B do as many operations per item (a side has no count)"
    for a, b in dict.fromkeys(row.stacks for row in rows if row.stack_match == EQUIVALENT):
        yield f"{EQUIVALENT_MARK.strip()} equivalent stacks, one release of torch in two builds: {a} | {b}"


def _ratio_columns(comparison: Comparison, row: ComparedRow) -> tuple[str, str, str, str]:
    limits = words.effect_interval(row.ratio, row.low, row.high) or words.UNKNOWN
    launches = "{} and {}".format(*row.launches)
    verdict = words.verdict(row.verdict, comparison.metric.is_speed) + (" (other conditions)" if row.conditions else "")
    return words.effect(row.ratio, row.low, row.high), limits, launches, verdict


MOST_SETTLING = 30
"""More launches of a cell than these nobody makes to settle a verdict."""


def _ratio_notes(row: ComparedRow) -> list[str]:
    """Return what is to be known of a ratio: what could have been seen, failures, conditions, launches that are left out."""
    notes = []
    if row.verdict == "AMBIGUOUS" and not math.isnan(row.detectable):
        least = f"a difference of {words.percent(row.detectable, 1)}" if row.detectable < 1 else f"{1 + row.detectable:.0f}×"
        more = (
            "" if not row.settle else f"; about {row.settle} launches each may show one" if row.settle <= MOST_SETTLING
            else f"; even {MOST_SETTLING} launches each would not settle it"
        )  # fmt: skip
        notes.append(f"could see {least} or more{more}")
    notes += [f"{row.failed[0]} and {row.failed[1]} launches failed"] if any(row.failed) else []
    notes += ["round by round"] if row.paired else []
    notes += [f"other conditions: {_some(row.conditions)}"] if row.conditions else []
    return [*notes, *row.left_out]


def _reason_lines(comparison: Comparison) -> Iterator[str]:
    """Yield for each rule the rows that it decided."""
    for reason, rule in REASONS.items():
        labels = [row.label for row in comparison.rows if row.reason == reason]
        if labels:
            yield f"decided by {reason} ({rule}), {count(len(labels), 'row')}: {_some(labels)}"


def _held_back_lines(comparison: Comparison) -> Iterator[str]:
    """Yield why differences are not reported although intervals exclude 1."""
    rows = sum(row.reason == "levels" for row in comparison.rows)
    if rows:
        yield f"not told in {count(rows, 'row')}: {REASONS['levels']}; measure with --launches {SEEN_FROM}"


def _order(comparison: Comparison) -> str:
    return "A / B" if comparison.metric.more_is_better else "B / A"


def _level_lines(comparison: Comparison) -> Iterator[str]:
    """Yield what the verdicts are about: these launches, these two runs, or runs of this machine."""
    if comparison.between:
        runs, scatter = count(comparison.between.runs, "other run"), f"{100 * comparison.between.scatter:.2g} %"
        apart = (
            f"runs of this machine that are {comparison.between.lag} apart"
            if comparison.between.lag > 1
            else "runs of this machine"
        )
        yield f"level: {apart}, which differ by {scatter} ({runs}, all cells); the intervals include it"
    least = [needed(row.low, row.high) for row in comparison.rows if not math.isnan(row.low)]
    if comparison.level == TWO_RUNS and least and comparison.one_machine:
        limits = f"{100 * min(least):.1f} %" + (f" to {100 * max(least):.1f} %" if max(least) - min(least) > 0.001 else "")
        yield "level: within these two runs. Runs of one machine differ, too; by how much is unknown here"
        yield f"  ({ENOUGH_RUNS} other runs would show it). If by {100 * USUAL_SCATTER:g} %, as is usual, a ratio must"
        yield f"  differ from 1 by {limits} to be reported"
        yield f"  one run of both shows smaller differences: {_in_one_run(comparison)}"


def _in_one_run(comparison: Comparison) -> str:
    """Return the command that measures both sides in one run; for a few cells only those."""
    rows = [row for row in comparison.rows if not math.isnan(row.low) and row.stacks[0] != row.stacks[1]]
    if not rows:
        return "if software differs, make two stacks of it; torchmatrix run --ab STACK STACK"
    names = [row.cells[0].partition("/")[2] for row in rows if row.stacks == rows[0].stacks]
    globs = [f"*/{name}" for name in names] if len(names) <= MOST_GLOBS else []
    return shlex.join(["torchmatrix", "run", "--ab", *rows[0].stacks, *globs])


def _refusal_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the fields in which the sides differ, once for all rows that share them; then other reasons, each with its rows."""
    differing = [row for row in comparison.rows if row.differs]
    for fields, rows in group_by(differing, lambda row: tuple(field for field, *_ in row.differs)).items():
        differences = ", ".join(f"{field} ({_values(field, rows)})" for field in fields)
        hint = "; to compare each side at its own batch: --own-batch" if fields == (BATCH,) else ""
        yield f"not comparable, {count(len(rows), 'row')}: they differ in {differences}{hint}"
    refused = [row for row in comparison.rows if row.refused and not row.differs]
    for reason, rows in group_by(refused, lambda row: str(row.refused)).items():
        yield f"not comparable, {count(len(rows), 'row')}: {reason}: {_some([row.label for row in rows])}"


def _values(field: str, rows: Sequence[ComparedRow]) -> str:
    return "; ".join(dict.fromkeys(f"{a} and {b}" for row in rows for name, a, b in row.differs if name == field))


def _some(labels: Sequence[str]) -> str:
    more = len(labels) - MOST_LABELS
    return ", ".join(labels[:MOST_LABELS]) + (f", and {more} more (--json lists all)" if more > 0 else "")


def _mean_lines(comparison: Comparison) -> Iterator[str]:
    if not any(mean.n for mean in comparison.means):
        return
    yield ""
    for mean in comparison.means:
        where = "" if mean.count is None else f" on {count(mean.count, 'device')}"
        missing = f", {mean.missing} missing" if mean.missing else ""
        limits = words.effect_with_interval(Interval(value=mean.ratio, low=mean.low, high=mean.high))
        figures = f"{limits}; {count(mean.n, 'ratio')}{missing}"
        judged = words.verdict(mean.verdict, comparison.metric.is_speed)
        untested = "not tested: how runs differ is unknown" if comparison.level == TWO_RUNS else judged
        yield f"geometric mean of {_order(comparison)}{where}: {figures}; {untested}"
    better, worse = (words.verdict(verdict, comparison.metric.is_speed) for verdict in ("FASTER", "SLOWER"))
    labels = {"FASTER": f"A is {better}", "SLOWER": worse, "SAME": "the same", "AMBIGUOUS": "no difference shown"}
    counts = ", ".join(f"{label} in {comparison.verdicts[verdict]}" for verdict, label in labels.items())
    rest = {"DISTURBED": "disturbed", "n/a": "not tested"}
    unknown = "".join(f", {label} in {number}" for verdict, label in rest.items() if (number := comparison.verdicts[verdict]))
    yield f"{counts}{unknown}"
    if comparison.comparisons > 1:
        yield f"verdicts corrected for {comparison.comparisons} comparisons (Benjamini–Hochberg, FDR 5 %); intervals are not"
    if not comparison.one_machine:
        yield "intervals are over launches: they hold for these machines, not for others with the same devices"


def trends_in_words(trends: Sequence[Trend]) -> str:
    """Write each cell with its first and last figure, its changes of level, and why the newest run has no figure."""
    hosts = len({trend.host for trend in trends}) > 1
    launched = [trend for trend in trends if trend.is_launched]
    rows: list[tuple[str, ...]] = [("cell", "measured", "first", "last", "change", "")]
    rows += [_trend_columns(trend, hosts) for trend in launched]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_aligned(rows[0], widths)]
    for trend, row in zip(launched, rows[1:], strict=True):
        lines.append(_aligned(row, widths))
        lines += [f"    {printable(line)}" for line in _trend_notes(trend)]
    never = never_launched(trends).items()
    lines += [f"never launched ({len(cells)} cell{'s' * (len(cells) > 1)}): {printable(reason)}" for reason, cells in never]
    return "\n".join(lines)


def change_in_words(change: Change) -> str:
    """Write a change such as "since RUN: −4.8 % (95 %: −5.3 % to −4.4 %); host driver 570.1 -> 575.2"."""
    low, high = change.ratio.low, change.ratio.high
    limits = "" if math.isnan(low) else f" (95 %: {words.change(low)} to {words.change(high)})"
    where = "" if change.environment_run in (None, change.run) else f"near it, in {change.environment_run}: "
    return f"since {change.run}: {words.change(change.ratio.value)}{limits}; {where}{change.cause}"


def _trend_columns(trend: Trend, hosts: bool) -> tuple[str, ...]:
    return (
        printable(f"{trend.host}: {trend.cell}" if hosts else trend.cell),
        f"{len(trend.measured)} of {len(trend.rows)}",
        figure(trend.shown(trend.first)),
        figure(trend.shown(trend.last)),
        words.change(1 + trend.change),
        printable(trend.shown_unit),
    )


def _trend_notes(trend: Trend) -> Iterator[str]:
    yield from map(change_in_words, trend.changes)
    newest = trend.rows[-1]
    if not newest.n:
        reason = newest.reason or "it has no such figure"
        yield f"in {newest.run}: {words.OUTCOMES.get(newest.outcome, newest.outcome)}: {reason}"
    if newest.disturbed:
        yield f"in {newest.run}: other programs disturbed {newest.disturbed} of {newest.n} launches"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    texts = [f"{row[0]:<{widths[0]}}", *(f"{text:>{width}}" for text, width in zip(row[1:-1], widths[1:-1], strict=True))]
    return "  ".join([*texts, row[-1]]).rstrip()


def _span(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if low is None else f"  ({low:.4f} to {high:.4f})"


# The summary that `run` ends with: a small table of its cells for the terminal, or records for a program.

NOT_LAUNCHED = "not launched"


@dataclass(frozen=True, kw_only=True, slots=True)
class CellSummary:
    """One cell: items (`unit`) per second with its 95 % interval from `n` launches that were ok; None: unknown.
    `failed`: launches that were not ok; `left_out`: launches that were, but are unlike the others; `disturbed`: by other
    programs. `outcome`: ok if any launch was, else that of the last one; `reason`: the last error.
    """

    id: str
    throughput: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    failed: int = 0
    left_out: int = 0
    disturbed: int = 0
    unit: str = ""
    verdict: str = "n/a"
    outcome: str = NOT_LAUNCHED
    reason: str | None = None

    def as_record(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        return asdict(self)


def summaries_of(launches: Iterable[Launch], planned: Iterable[str]) -> list[CellSummary]:
    """Summarize every planned cell of a run in its order; cells that were not launched yet have that outcome."""
    cells = CellIndex(launch_rows(counting(launches))).named
    return [_summary(cells[name]) if name in cells else CellSummary(id=name) for name in planned]


def _summary(cell: Cell) -> CellSummary:
    row = cell.summary()
    return CellSummary(
        id=cell.row.cell,
        throughput=_none_if_nan(row["throughput"]),
        low=_none_if_nan(row["low"]),
        high=_none_if_nan(row["high"]),
        **{name: row[name] for name in ("n", "failed", "left_out", "verdict")},
        disturbed=cell.disturbed,
        unit=cell.row.unit,
        outcome=cell.last.outcome,
        reason=next((row.error for row in reversed(cell.launches) if not is_ok(row)), None),
    )


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def summaries_in_words(cells: Sequence[CellSummary], width: int, most: int) -> str:
    """Write a table of at most `most` cells, at most `width` characters wide.
    Where the ids leave no space for the figures, the figures stand below their id.
    """
    launched = [cell for cell in cells if cell.outcome != NOT_LAUNCHED]
    shown = launched[:most]
    rows = [("cell", "throughput", "95 % interval", "verdict"), *map(_columns, shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [_line(row, widths, width) for row in rows] if shown else []
    if len(launched) > len(shown):
        failed = sum(cell.outcome != "ok" for cell in launched[most:])
        lines.append(f"and {count(len(launched) - most, 'more cell')}" + (f", {failed} of them failed" if failed else ""))
    if len(cells) > len(launched):
        lines.append(f"{count(len(cells) - len(launched), 'cell')} not launched")
    return "\n".join(lines)


def _columns(cell: CellSummary) -> tuple[str, str, str, str]:
    failed = f"; {cell.failed} failed" if cell.failed else ""
    failed += f"; {cell.left_out} left out" if cell.left_out else ""
    failed += f"; {cell.disturbed} disturbed" if cell.disturbed else ""
    if cell.throughput is None:
        return printable(cell.id), "not measured", "", words.failed(cell.outcome)
    interval = words.UNKNOWN if cell.low is None or cell.high is None else f"{figure(cell.low)} to {figure(cell.high)}"
    verdict = words.NO_INTERVAL if cell.verdict == "n/a" else cell.verdict
    return printable(cell.id), f"{figure(cell.throughput)} {cell.unit}/s", interval, f"{verdict}{failed}"


def _line(row: tuple[str, str, str, str], widths: Sequence[int], width: int) -> str:
    figures = f"{row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}"
    if sum(widths) + 6 <= width:
        return f"{row[0]:<{widths[0]}}  {figures}"
    below = clipped(f"  {figures}", width)
    return below if row[0] == "cell" else f"{clipped(row[0], width)}\n{below}"
