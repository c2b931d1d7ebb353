"""Tables -> aligned lines for the terminal: what `compare`, `explain`, `audit` and `history` print."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torchmatrix.analysis.compare import Comparison, choose
from torchmatrix.analysis.history import Change, Trend, differences_in_words, never_launched
from torchmatrix.analysis.published import figures
from torchmatrix.analysis.published.audit import Finding
from torchmatrix.analysis.published.figures import Figure
from torchmatrix.analysis.scaling import FACTORS, decomposition_table
from torchmatrix.analysis.tables import cells_table, launches_table
from torchmatrix.facts.launch import last_tries
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.ground.numbers import figure, four_decimals, none_for_nan
from torchmatrix.ground.texts import clipped, printable


def decomposition(run: RunFolder) -> list[dict[str, Any]]:
    """The rows of a run's decomposition; unknown figures are None."""
    launches = last_tries(run.launches())
    rows = decomposition_table(launches_table(launches)).to_dict("records")
    return [none_for_nan(row) for row in rows]


def decomposition_in_words(rows: list[dict[str, Any]]) -> str:
    """E as a product, with 95 % intervals, and the communication that computation does not hide."""
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
    return "\n".join(lines) or "no loss could be explained: some of the launches that this needs are not ok"


def stated(results: Results, word: str) -> tuple[Figure, ...]:
    """The throughputs of a CSV file, or those of the launches that `word` names (as in compare). Raises BadInput."""
    if word.lower().endswith(".csv"):
        return figures.read(Path(word))
    launches = launches_table(choose(results, word))
    found = figures.measured(cells_table(launches).to_dict("records"), launches.to_dict("records"))
    return tuple(own.figure for own in found)


def findings_in_words(findings: list[Finding]) -> str:
    """One line per finding: place, field, value, limit and reason."""
    rows = [("row", "field", "value", "limit", "reason")]
    rows += [(_place(f), f.field, clipped(f.value) or "unknown", f.limit, f.reason) for f in findings]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join("  ".join([*(f"{row[i]:<{widths[i]}}" for i in range(4)), row[4]]) for row in rows)


def _place(finding: Finding) -> str:
    return finding.cell or str(finding.row)


def comparison_in_words(found: Comparison) -> str:
    """One line per row, then the differences between the environments."""
    width = max(len(row.label) for row in found.rows)
    lines = [f"{'A / B':<{width}}   ratio   95 % interval    launches  verdict"]
    for row in found.rows:
        if row.refused:
            lines.append(f"{row.label:<{width}}  not comparable: {row.refused}")
            continue
        interval = "n/a" if math.isnan(row.low) else f"{row.low:.4f} - {row.high:.4f}"
        launches = "{} and {}".format(*row.launches)
        settle = f" (about {row.settle} launches each would settle it)" if row.settle else ""
        failed = f"; {row.failed[0]} and {row.failed[1]} launches not ok" if any(row.failed) else ""
        failed += "; round by round" if row.paired else ""
        ratio = four_decimals(row.ratio)
        lines.append(f"{row.label:<{width}}  {ratio:>6}  {interval:<16}  {launches:<8}  {row.verdict}{settle}{failed}")
    lines += [f"only on one side: {label}" for label in found.only_one]
    lines += ["", "environments: A, then B" if found.environment else "environments: no recorded difference"]
    for name, (a, b) in found.environment.items():
        lines.append(f"  {name}: {clipped(a)}  |  {clipped(b)}")
    return "\n".join(lines)


def trends_in_words(found: Sequence[Trend]) -> str:
    """Each cell with its first and last throughput, its changes of level, and why the newest run has no figure."""
    hosts = len({trend.host for trend in found}) > 1
    launched = [trend for trend in found if trend.is_launched]
    rows: list[tuple[str, ...]] = [("cell", "measured", "first", "last", "change", "")]
    rows += [_trend_columns(trend, hosts) for trend in launched]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_aligned(rows[0], widths)]
    for trend, row in zip(launched, rows[1:], strict=True):
        lines.append(_aligned(row, widths))
        lines += [f"    {printable(line)}" for line in _trend_notes(trend)]
    never = never_launched(found).items()
    lines += [f"never launched ({len(cells)} cell{'s' * (len(cells) > 1)}): {printable(reason)}" for reason, cells in never]
    return "\n".join(lines)


def change_in_words(change: Change) -> str:
    """Such as "since RUN: -4.8 % (95 %: -5.3 to -4.4 %); host driver 570.1 -> 575.2"."""
    low, high = change.ratio.low, change.ratio.high
    limits = "" if math.isnan(low) else f" (95 %: {100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %)"
    found = differences_in_words(change.environment) or "no change of the environment was recorded"
    where = "" if change.environment_run in (None, change.run) else f"near it, in {change.environment_run}: "
    return f"since {change.run}: {100 * (change.ratio.value - 1):+.1f} %{limits}; {where}{found}"


def _trend_columns(trend: Trend, hosts: bool) -> tuple[str, ...]:
    change = "n/a" if math.isnan(trend.change) else f"{100 * trend.change:+.1f} %"
    measured = f"{len(trend.measured)} of {len(trend.rows)}"
    unit = f"{trend.unit}/s" if trend.unit else ""
    name = f"{trend.host}: {trend.cell}" if hosts else trend.cell
    return (printable(name), measured, figure(trend.first), figure(trend.last), change, printable(unit))


def _trend_notes(trend: Trend) -> Iterator[str]:
    yield from map(change_in_words, trend.changes)
    newest = trend.rows[-1]
    if not newest["n"]:
        yield f"in {newest['run']}: {newest['outcome']}: {newest['reason']}"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    words = [f"{row[0]:<{widths[0]}}", *(f"{word:>{width}}" for word, width in zip(row[1:-1], widths[1:-1], strict=True))]
    return "  ".join([*words, row[-1]]).rstrip()


def _span(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if low is None else f"  ({low:.4f} - {high:.4f})"
