"""An export as a folder: tables, what their columns mean, charts, and a README. It appears whole or not at all.

A folder that holds anything else is refused: a marker file lists what we wrote and identifies the folder as ours. Writing
again replaces those files and leaves all others alone.
"""

import errno
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchmatrix import __version__
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.files import content_of, write_whole
from torchmatrix.reporting.charts import png_of
from torchmatrix.reporting.charts.rows import Chart, file_svg
from torchmatrix.reporting.exports import ABOUT, COLUMNS_FILE, Tables, export_tables
from torchmatrix.reporting.exports.formats import escaped

MARKER = "torchmatrix-export.json"
ANSWERS = "answers.json"


def write(
    tables: Tables, charts: Iterable[Chart], folder: Path, formats: Sequence[str], scale: float, force: bool,
    answers: Mapping[str, Any] | None = None,
) -> list[str]:  # fmt: skip
    """Write an export; returns the names of its files. `scale`: dots of a PNG for each point of its SVG. `answers`: for a file.

    `force`: also write into a folder that holds other files, which stay. Raises BadInput.
    """
    target, before = folder.absolute(), written_before(folder, force)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
            part = Path(temporary) / "export"
            names = _fill(part, tables, list(charts), formats, scale, answers)
            _put(part, target, names, [name for name in before if name not in names])
    except OSError as error:
        raise BadInput(
            f"can't write {folder}: {error.strerror or error}", hint="export to another folder, or free space"
        ) from None
    return names


def written_before(target: Path, force: bool) -> list[str]:
    """The files of an earlier export into this folder. Raises BadInput if something else is in the way."""
    if not target.exists():
        return []
    if not target.is_dir():
        raise BadInput(f"{target} is a file", hint="name a folder")
    try:
        return [str(name) for name in json.loads(content_of(target / MARKER))["files"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        if any(target.iterdir()) and not force:
            hint = "name another folder, or use --force: files of the same names are replaced, all others stay"
            raise BadInput(f"{target} holds something other than an export", hint=hint) from None
    return []


def _fill(
    part: Path, tables: Tables, charts: list[Chart], formats: Sequence[str], scale: float, answers: Mapping[str, Any] | None
) -> list[str]:
    part.mkdir()
    export_tables(tables, part, formats)
    if answers is not None:
        (part / ANSWERS).write_text(json.dumps(answers, indent=1, ensure_ascii=False), encoding="utf-8")
    if charts:
        (part / "charts").mkdir()
    for chart in charts:
        svg = file_svg(chart)
        (part / "charts" / f"{chart.id}.svg").write_text(svg, encoding="utf-8")
        (part / "charts" / f"{chart.id}.png").write_bytes(png_of(svg, scale))
    (part / "README.md").write_text(_readme(tables, charts, formats), encoding="utf-8")
    names = sorted(path.relative_to(part).as_posix() for path in part.rglob("*") if path.is_file())
    marker = {"tool": __version__, "run": tables.run, "files": [*names, MARKER]}
    (part / MARKER).write_text(json.dumps(marker, indent=1), encoding="utf-8")
    return [*names, MARKER]


def _put(part: Path, target: Path, names: Iterable[str], gone: Iterable[str]) -> None:
    """Put the folder in place in one step if there is none yet, else file by file; remove files no longer exported."""
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
    title = f"Run {escaped(tables.run)}" if "launches" in tables.values else "Machines side by side"
    lines = [
        f"# {title}, exported by torchmatrix {__version__}",
        "",
        f"Every table is here as {', '.join(f'`.{word}`' for word in formats)}.",
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
        lines += ["", "| chart (`charts/`, SVG and PNG) | title |", "|---|---|"]
        lines += [f"| {chart.id} | {escaped(chart.title)} |" for chart in charts]
    return "\n".join(lines) + "\n"
