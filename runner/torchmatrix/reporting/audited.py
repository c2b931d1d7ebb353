"""What `audit` reads and prints: the figures of a table or of a run, the findings, what could not be read or checked."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.machines import choose_launches
from torchmatrix.analysis.published import figure_files, figures
from torchmatrix.analysis.published.audit import Checked, Coverage, Finding, Unchecked, place
from torchmatrix.analysis.published.figure_files import HINT, Taken, Unparsed
from torchmatrix.analysis.run_summary import launch_rows
from torchmatrix.facts.store import Results
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.formatting import clipped, count, printable


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
