"""A run as files: every table as CSV, JSON, Parquet and Markdown, the meaning of each column, and the facts.
`of` makes the tables, `export_tables` writes them, `embedded` and `facts_archive` make the data embedded in a page.
"""

import base64
import errno
import gzip
import io
import json
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torchmatrix.core import __version__, plugins
from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import content_of, disk_errors, files_below, scratch, write_whole
from torchmatrix.core.secrets import cleaned_value
from torchmatrix.facts.store import RunFolder
from torchmatrix.reporting.charts import Chart
from torchmatrix.reporting.charts.files import PLAIN, Style, file_csv, file_svg
from torchmatrix.reporting.exports.columns import ABOUT_EACH as ABOUT
from torchmatrix.reporting.exports.formats import FORMATS, INSTALL, PARQUET, escaped, names_of, png_of, to_csv, usable
from torchmatrix.reporting.exports.table_set import Tables, described, launched, of, of_machines

# The facts of a run as one tar.gz: the same bytes for the same facts, without owner and time, sorted.

MOST_PACKING = 40
"""Facts that exceed the limit by more than this factor are not even packed: they compress to about a tenth."""
_FACT_ENDINGS = (".jsonl", ".lock")


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """Packed facts. `data`: None if it would be larger than allowed. `facts_bytes`: the uncompressed size of all files."""

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
    """Pack run.jsonl, every launch's file and the locks (`logs`: the logs too), below a folder with the run's id."""
    endings = (*_FACT_ENDINGS, ".log") if logs else _FACT_ENDINGS
    paths = [path for path in files_below(run.path) if path.suffix in endings]
    whole = sum(path.stat().st_size for path in paths)
    if limit_bytes is not None and whole > MOST_PACKING * limit_bytes:
        return Archive(data=None, facts_bytes=whole)
    file = _Limited(limit_bytes)
    try:
        _pack(run, paths, file)
    except _Full:
        return Archive(data=None, facts_bytes=whole)
    return Archive(data=file.getvalue(), facts_bytes=whole)


def _pack(run: RunFolder, paths: list[Path], file: IO[bytes]) -> None:
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in paths:
            try:
                data = path.read_bytes()
            except OSError:  # the page names it
                continue
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
    """Write every table in every format, and columns.csv, into an existing folder; return the files in order."""
    own = [word for word in formats if word in FORMATS]
    contents = {f"{name}.{word}": FORMATS[word](name, table) for name, table in tables.values.items() for word in own}
    for word in (word for word in formats if word not in FORMATS):
        contents |= plugins.made(plugins.FORMATS, word, _are_files, tables)
    contents[COLUMNS_FILE] = to_csv("columns", described(tables.values))
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def _are_files(given: Any) -> bool:
    """Check whether a plugin's format gave contents by plain names."""
    return isinstance(given, Mapping) and all(
        isinstance(content, bytes) and isinstance(name, str) and name == Path(name).name and name[:1] not in ("", ".")
        for name, content in given.items()
    )


def embedded(tables: Tables, plain_up_to_bytes: int = PLAIN_UP_TO_BYTES) -> dict[str, Embedded]:
    """Return the tables as CSV files by name, for links in a page; large ones as .csv.gz, with the same bytes each time."""
    files = {}
    for name, table in tables.values.items():
        content, file_name, mime = to_csv(name, table), f"{tables.run}-{name}.csv", "text/csv"
        if len(content) > plain_up_to_bytes:
            content, file_name, mime = gzip.compress(content, mtime=0), f"{file_name}.gz", "application/gzip"
        files[name] = in_page(file_name, mime, content)
    return files


def columns_in_page(tables: Tables) -> Embedded:
    """Return the meanings of the columns of these tables as a file in a page."""
    return in_page(f"{tables.run}-{COLUMNS_FILE}", "text/csv", to_csv("columns", described(tables.values)))


def in_page(file_name: str, mime: str, content: bytes) -> Embedded:
    """Return any content as a file inside a page."""
    href = f"data:{mime};base64,{base64.b64encode(content).decode()}"
    return Embedded(file_name=file_name, mime=mime, content_bytes=len(content), href=href)


# An export as a folder: tables, the meanings of their columns, charts, and a README. It appears whole or not at all.
#
# A folder that holds anything else is refused: a marker file lists the files of an export and identifies its folder. Writing
# again replaces those files and leaves all others alone.

MARKER = "torchmatrix-export.json"
ANSWERS = "answers.json"


def write(
    tables: Tables, charts: Iterable[Chart], folder: Path, formats: Sequence[str], scale: float, force: bool,
    answers: Mapping[str, Any] | None = None, style: Style = PLAIN,
) -> list[str]:  # fmt: skip
    """Write an export; return the names of its files. `scale`: dots of a PNG for each point of its SVG. `answers`: for a file.
    `force`: also write into a folder that holds other files, which stay. Raises BadInput and EngineUnusable.
    """
    target, before = folder.absolute(), written_before(folder, force)
    with disk_errors(folder, hint="export to another folder, or free space"):
        target.parent.mkdir(parents=True, exist_ok=True)
        with scratch(target.parent) as temporary:
            part = temporary / "export"
            names = _fill(part, tables, list(charts), formats, scale, answers, style)
            _put(part, target, names, [name for name in before if name not in names])
    return names


def written_before(target: Path, force: bool) -> list[str]:
    """Return the files of an earlier export into this folder. Raises BadInput if something else is in the way."""
    if not target.exists():
        return []
    if not target.is_dir():
        raise BadInput(f"{target} is a file", hint="name a folder")
    try:
        return list(filter(_is_plain, json.loads(content_of(target / MARKER))["files"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        if any(target.iterdir()) and not force:
            hint = "name another folder, or use --force: files of the same names are replaced, all others stay"
            raise BadInput(f"{target} holds something other than an export", hint=hint) from None
    return []


_EXPORTED = re.compile(r"(charts/)?[A-Za-z0-9][A-Za-z0-9._-]*")


def _is_plain(name: Any) -> bool:
    """Check whether a name can be that of an exported file."""
    return isinstance(name, str) and _EXPORTED.fullmatch(name) is not None


def _fill(
    part: Path, tables: Tables, charts: list[Chart], formats: Sequence[str], scale: float, answers: Mapping[str, Any] | None,
    style: Style,
) -> list[str]:  # fmt: skip
    part.mkdir()
    export_tables(tables, part, formats)
    if answers is not None:
        (part / ANSWERS).write_text(json.dumps(cleaned_value(answers), indent=1, ensure_ascii=False), encoding="utf-8")
    if charts:
        (part / "charts").mkdir()
    for chart in charts:
        svg = file_svg(chart, style)
        (part / "charts" / f"{chart.id}.svg").write_text(svg, encoding="utf-8")
        (part / "charts" / f"{chart.id}.csv").write_text(file_csv(chart, style), encoding="utf-8")
        (part / "charts" / f"{chart.id}.png").write_bytes(png_of(svg, scale))
    (part / "README.md").write_text(_readme(tables, charts, formats), encoding="utf-8")
    names = sorted(path.relative_to(part).as_posix() for path in part.rglob("*") if path.is_file())
    marker = {"tool": __version__, "run": tables.run, "files": [*names, MARKER]}
    (part / MARKER).write_text(json.dumps(marker, indent=1), encoding="utf-8")
    return [*names, MARKER]


def _put(part: Path, target: Path, names: Iterable[str], gone: Iterable[str]) -> None:
    """Move the folder into place in one step if there is none yet, else file by file; remove files no longer exported."""
    try:
        part.rename(target)
        return
    except OSError:
        if not target.is_dir():
            raise
    for name in names:
        final = target / name
        if final.parent != target and final.parent.is_symlink():
            raise OSError(errno.ELOOP, f"{final.parent} is a symbolic link")
        final.parent.mkdir(exist_ok=True)
        write_whole(final, (part / name).read_bytes())  # the folder may be on another file system than its parent
    for name in gone:
        inside = (target / name).resolve()
        if inside.is_relative_to(target.resolve()):
            inside.unlink(missing_ok=True)
    with suppress(OSError):  # there is none, or something else is in it
        (target / "charts").rmdir()


def _readme(tables: Tables, charts: Sequence[Chart], formats: Sequence[str]) -> str:
    own = [word for word in formats if word in FORMATS]
    title = f"Run {escaped(tables.run)}" if "launches" in tables.values else "Machines side by side"
    lines = [
        f"# {title}, exported by torchmatrix {__version__}",
        "",
        f"Every table is here as {', '.join(f'`.{word}`' for word in own)}."
        if own
        else "The tables of this run, in other tools' formats.",
        f"`{COLUMNS_FILE}` says what each column means, with its unit.",
        "",
        "| table | rows | what it is |",
        "|---|---|---|",
        *(f"| {name} | {len(next(iter(table.values())))} | {ABOUT[name]} |" for name, table in tables.values.items()),
        "",
        "CSV: UTF-8, full precision. An unknown value is an empty field. A text that begins with `=`, `+`, `-`, `@`, a tab or "
        "a line break gets a leading apostrophe, so that no spreadsheet runs it as a formula. Lists are JSON.",
        "JSON and Parquet: texts as they are, unknown is null; Parquet's field metadata hold the meanings.",
        "Markdown: a few columns with four significant digits, to paste into an issue.",
    ]
    if charts:
        lines += ["", "| chart (`charts/`, SVG, PNG and CSV) | title |", "|---|---|"]
        lines += [f"| {chart.id} | {escaped(chart.title)} |" for chart in charts]
    return "\n".join(lines) + "\n"
