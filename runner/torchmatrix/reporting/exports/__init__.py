"""A run as files: every table as CSV, JSON, Parquet and Markdown, what each column means, and the facts themselves.

`of` makes the tables, `export_tables` writes them, `embedded` and `facts_archive` are what a page carries with it.
"""

import base64
import gzip
import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torchmatrix.facts.store import RunFolder
from torchmatrix.ground.files import files_below
from torchmatrix.reporting.exports.formats import FORMATS, INSTALL, PARQUET, names_of, to_csv, usable
from torchmatrix.reporting.exports.table_set import ABOUT_EACH as ABOUT
from torchmatrix.reporting.exports.table_set import Tables, described, launched, of, of_machines

# The facts of a run as one tar.gz, the same bytes for the same facts: no owner, no time, sorted.

MOST_PACKING = 40
"""Facts that exceed the limit by more than this factor are not even tried: they compress to about a tenth."""
_FACTS = (".jsonl", ".lock")


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """`data`: None if it would be larger than allowed. `facts_bytes`: the uncompressed size of all files."""

    data: bytes | None
    facts_bytes: int


class _Full(Exception):
    """More was written than is allowed."""


class _Limited(io.BytesIO):
    """A file that refuses to grow beyond the limit."""

    def __init__(self, limit_bytes: int | None) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self._limit_bytes is not None and self.tell() + len(data) > self._limit_bytes:
            raise _Full
        return super().write(data)


def facts_archive(run: RunFolder, limit_bytes: int | None = None, logs: bool = False) -> Archive:
    """run.jsonl, every launch's file and the locks (`logs`: what was printed too), below a folder with the run's id."""
    paths = _files(run, logs)
    whole = sum(path.stat().st_size for path in paths)
    if limit_bytes is not None and whole > MOST_PACKING * limit_bytes:
        return Archive(data=None, facts_bytes=whole)
    file = _Limited(limit_bytes)
    try:
        _pack(run, paths, file)
    except _Full:
        return Archive(data=None, facts_bytes=whole)
    return Archive(data=file.getvalue(), facts_bytes=whole)


def _files(run: RunFolder, logs: bool) -> list[Path]:
    endings = (*_FACTS, ".log") if logs else _FACTS
    return [path for path in files_below(run.path) if path.suffix in endings]


def _pack(run: RunFolder, paths: list[Path], file: IO[bytes]) -> None:
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in paths:
            data = path.read_bytes()
            info = tarfile.TarInfo(f"{run.id}/{path.relative_to(run.path).as_posix()}")
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))


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
