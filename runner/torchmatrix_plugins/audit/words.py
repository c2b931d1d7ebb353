"""Read and write what the verb audit takes and gives: the figures of a table or of a run, findings, what could not be read."""

from collections.abc import Iterable
from pathlib import Path

from torchmatrix.analysis import published
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.machines import choose_launches
from torchmatrix.analysis.published import figure_files
from torchmatrix.analysis.published.audit import Coverage, Finding, place
from torchmatrix.analysis.published.figure_files import HINT, Taken, Unparsed
from torchmatrix.analysis.rows import group_by
from torchmatrix.analysis.run_summary import cells_table, launch_rows
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import clipped, count, printable
from torchmatrix.facts.store import Results
from torchmatrix.reporting.audit_words import several


def stated(results: Results, word: str) -> Taken:
    """Return the throughputs of a CSV file, or of the launches that `word` names (as in compare). Raises BadInput if none."""
    path = Path(word)
    if word.lower().endswith(".csv"):
        return figure_files.take(path)
    if path.is_file() and path.suffix != ".jsonl":
        text = f"{word} is neither a CSV file nor a launch file, nor a file of another tool that is read"
        raise BadInput(text, hint=f"save the table as CSV; {HINT}; docs/other-tools.md lists the tools")
    chosen = choose_launches(results, word)
    index = CellIndex(launch_rows(chosen.launches))
    measured, mixed = published.measured(index.figures), published.mixed(index.figures)
    if not measured and not mixed:
        raise BadInput(f"{word} has no figure: all of its launches failed", hint="torchmatrix report shows why they failed")
    return Taken(
        figures=tuple(cell.figure for cell in measured), unparsed=(), unreadable=chosen.unreadable, mixed=mixed,
        cells=tuple(cells_table(index.every)),
    )  # fmt: skip


def findings_in_words(findings: Iterable[Finding]) -> str:
    """Write one line per finding: place, level, field, value, limit and reason; rows with the same finding share a line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for finding in findings:
        value = f"{clipped(finding.value)} {finding.unit}".strip() or "unknown"
        texts = finding.level, finding.field, value, finding.limit, finding.reason
        alike.setdefault(texts, []).append(place(finding).removeprefix("row "))
    rows: list[tuple[str, ...]] = [("row", "level", "field", "value", "limit", "reason")]
    rows += [(several(places), *texts) for texts, places in alike.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join("  ".join([*(f"{printable(row[i]):<{widths[i]}}" for i in range(5)), printable(row[5])]) for row in rows)


def unparsed_in_words(unparsed: Iterable[Unparsed]) -> str:
    """Write one line for each text that could not be read, with its rows."""
    alike = group_by(unparsed, lambda entry: (entry.column, entry.text, entry.why))
    return "\n".join(
        f"not read: row {several([str(entry.row) for entry in entries])}{f', {printable(column)}' if column else ''}: "
        + (f'"{clipped(printable(text))}" ' if text else "")
        + why
        for (column, text, why), entries in alike.items()
    )


def coverage_in_words(coverage: Coverage) -> str:
    """Write what the figures of several devices were held against; "" if there are none."""
    if not coverage.several:
        return ""
    parts = [f"{coverage.baseline} held against one device"]
    parts += (
        [f"{coverage.siblings} without such a baseline against other batches or numbers of devices"]
        if coverage.siblings
        else []
    )
    parts += [f"{coverage.unchecked} against nothing: no baseline"] if coverage.unchecked else []
    return f"{count(coverage.several, 'figure')} of several devices: {'; '.join(parts)}"
