"""Write the results of an audit of figures, for the terminal and for the page."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from torchmatrix.analysis.published.audit import Checked, Finding, Unchecked, place
from torchmatrix.analysis.rows import group_by
from torchmatrix.core.formatting import clipped, count, printable


def unchecked_in_words(unchecked: Iterable[Unchecked]) -> Iterator[str]:
    """Yield one line for each reason, with its rows or cells."""
    for reason, entries in group_by(unchecked, lambda entry: entry.reason).items():
        yield f"not checked: {printable(several(list(map(place, entries))))}, because {printable(clipped(reason))}"


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


def several(places: Sequence[str]) -> str:
    """Name the first of some places, and count the others."""
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"
