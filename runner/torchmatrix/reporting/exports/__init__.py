"""A run as files: every table as CSV, JSON, Parquet and Markdown, what each column means, and the facts themselves.

`of` makes the tables, `export_tables` writes them, `embedded` and `facts_archive` are what a page carries with it.
"""

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.reporting.exports.archive import Archive, facts_archive
from torchmatrix.reporting.exports.formats import FORMATS, INSTALL, PARQUET, names_of, to_csv, usable
from torchmatrix.reporting.exports.machines import ABOUT_EACH as ABOUT
from torchmatrix.reporting.exports.table_set import Tables, described, launched, of, of_machines

__all__ = [
    "ABOUT", "COLUMNS_FILE", "FORMATS", "INSTALL", "PARQUET", "Archive", "Embedded", "Tables", "columns_in_page", "described",
    "embedded", "export_tables", "facts_archive", "in_page", "launched", "names_of", "of", "of_machines", "usable",
]  # fmt: skip

COLUMNS_FILE = "columns.csv"
PLAIN_UP_TO_BYTES = 100_000
"""A larger table is compressed before it goes into a page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedded:
    """A file inside a page: `href` is a data: address, for a link with `download` = `file_name`."""

    file_name: str
    mime: str
    content_bytes: int
    href: str


def export_tables(tables: Tables, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write every table in every format, and columns.csv, into an existing folder; returns the files in order."""
    contents = {f"{name}.{word}": FORMATS[word](name, table) for name, table in tables.values.items() for word in formats}
    contents[COLUMNS_FILE] = to_csv("columns", described(tables.values))
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def embedded(tables: Tables, plain_up_to_bytes: int = PLAIN_UP_TO_BYTES) -> dict[str, Embedded]:
    """The tables as CSV files by name, for links in a page; large ones as .csv.gz, with the same bytes each time."""
    found = {}
    for name, table in tables.values.items():
        content, file_name, mime = to_csv(name, table), f"{tables.run}-{name}.csv", "text/csv"
        if len(content) > plain_up_to_bytes:
            content, file_name, mime = gzip.compress(content, mtime=0), f"{file_name}.gz", "application/gzip"
        found[name] = in_page(file_name, mime, content)
    return found


def columns_in_page(tables: Tables) -> Embedded:
    """What each column of these tables means."""
    return in_page(f"{tables.run}-{COLUMNS_FILE}", "text/csv", to_csv("columns", described(tables.values)))


def in_page(file_name: str, mime: str, content: bytes) -> Embedded:
    """Any content as a file inside a page."""
    href = f"data:{mime};base64,{base64.b64encode(content).decode()}"
    return Embedded(file_name=file_name, mime=mime, content_bytes=len(content), href=href)
