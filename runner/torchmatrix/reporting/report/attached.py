"""The data embedded in a page: tables as CSV, the facts, a table to paste."""

from dataclasses import dataclass

from torchmatrix.analysis.prices import PriceList
from torchmatrix.reporting import exports
from torchmatrix.reporting.exports.markdown import to_markdown
from torchmatrix.reporting.view import View

MOST_PASTED = 200
"""A table with more rows than this is not offered for pasting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """`facts_bytes`: the size of the facts if they are too large to be among the `files`; else None.

    `markdown`: the cells as a table to paste; None where there are none or more than MOST_PASTED.
    """

    files: tuple[exports.Embedded, ...]
    facts_bytes: int | None
    markdown: str | None


def of(view: View, held: PriceList, archive: exports.Archive | None) -> Carried:
    """The tables of cells and launches, what their columns mean, and the facts. Without `archive`: no facts."""
    tables = exports.launched(view, held)
    cells = tables.values["cells"]
    files = [*exports.embedded(tables).values(), exports.columns_in_page(tables)] if view.summary.launches else []
    if archive and archive.data:
        files.append(exports.in_page(f"{view.id}-facts.tar.gz", "application/gzip", archive.data))
    return Carried(
        files=tuple(files),
        facts_bytes=archive.facts_bytes if archive and not archive.data else None,
        markdown=to_markdown("cells", cells).decode() if 0 < len(view.every_cell) <= MOST_PASTED else None,
    )
