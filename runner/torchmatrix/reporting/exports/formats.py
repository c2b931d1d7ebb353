"""Tables -> files: CSV, JSON, Parquet, and Markdown for pasting into an issue.
CSV: RFC 4180 in UTF-8, full precision. An unknown value is an empty field. A text that a spreadsheet would take for a formula
(it begins with = + - @, a tab or a line break) gets a leading apostrophe; numbers stay numbers. JSON and Parquet keep
texts as they are; unknown is null.
https://owasp.org/www-community/attacks/CSV_Injection
"""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from torchmatrix.analysis.gpu_specs import PEAKED
from torchmatrix.analysis.rows import Row
from torchmatrix.core import plugins
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import csv_field, figure, in_one_line, plain_text
from torchmatrix.core.toml_keys import nearest
from torchmatrix.reporting import words
from torchmatrix.reporting.exports.columns import EVERY_TABLE

if TYPE_CHECKING:
    import pandas as pd

Values: TypeAlias = Mapping[str, list[Any]]
"""A table by columns: str, float, int, bool and None for what is unknown. Files need no pandas, which costs ten times more."""
_TYPES = {"text": "string", "number": "float64", "whole": "Int64", "flag": "boolean", "list": "string"}


def frame(name: str, table: Values) -> "pd.DataFrame":
    """Convert a documented table for pandas, which takes half a second to load."""
    import pandas as pd

    kinds = {column.name: column.kind for column in EVERY_TABLE[name]}
    plain = {column: [plain_text(value) if isinstance(value, str) else value for value in table[column]] for column in table}
    return pd.DataFrame({column: pd.array(values, dtype=_TYPES[kinds[column]]) for column, values in plain.items()})


def by_row(table: Values) -> list[Row]:
    """Return the rows of a table: str, float, int and bool; None for what is unknown."""
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


# Tables as GitHub's Markdown, for pasting into an issue: few columns, four significant digits, escaped contents.

_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()!|~$])")
_CALLS = re.compile(r"(?<![&\w])([@#])(?=\w)")
"""Characters that GitHub would turn into a mention of a person or a link to an issue."""
_LINKS = re.compile(r"(https?|ftp|www)([:.])(?=\S)", re.IGNORECASE)


def escaped(value: Any) -> str:
    """Escape a text inside a table: no markup, no HTML, no new line, nobody notified."""
    text = in_one_line(str(value)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _CALLS.sub(r"\1&#8203;", _PUNCTUATION.sub(r"\\\1", text))
    return _LINKS.sub(r"\1&#8203;\2", text)


def to_markdown(name: str, table: Values) -> bytes:
    """Write the table with the columns of _SHOWN; all columns if the table isn't listed there."""
    shown = _SHOWN.get(name) or [(column, _plain(column)) for column in table]
    lines = [_line([escaped(title) for title, _ in shown]), _line(["---"] * len(shown))]
    lines += [_line([write(row) for _, write in shown]) for row in by_row(table)]
    return ("\n".join(lines) + "\n").encode()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(column: str) -> Callable[[Row], str]:
    """Make a writer of the column as it is; numbers with four significant digits."""

    def write(row: Row) -> str:
        value = row[column]
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int):
            return str(value)
        return words.UNKNOWN if value is None else figure(value) if isinstance(value, float) else escaped(value)

    return write


def _times(column: str, factor: float, unit: str) -> Callable[[Row], str]:
    """Make a writer of the column in another unit."""
    return lambda row: words.UNKNOWN if row[column] is None else f"{figure(factor * row[column])} {unit}"


def _interval(column: str) -> Callable[[Row], str]:
    """Make a writer of both ends of the column's interval."""

    def write(row: Row) -> str:
        low, high = row[f"{column}_low"], row[f"{column}_high"]
        return words.UNKNOWN if low is None or high is None else f"{figure(low)} – {figure(high)}"

    return write


def _rate(row: Row) -> str:
    value = row["items_per_second"]
    return words.UNKNOWN if value is None else f"{figure(value)} {escaped(row['unit'])}/s"


def _verdict(row: Row) -> str:
    """Write the verdict: of a ratio by its corrected verdict, of a cell by its scatter."""
    verdict = row["verdict"]
    if "cv_fraction" in row and verdict == "n/a":
        return words.UNKNOWN if row.get("n") == 0 else words.NO_INTERVAL
    return escaped(words.verdict(verdict or "n/a") or str(verdict))


def _outcome(row: Row) -> str:
    return escaped(words.OUTCOMES.get(row["outcome"], row["outcome"]))


_JOB = [("Workload", _plain("workload")), ("Stack", _plain("stack")), ("Devices", _plain("devices"))]
_RATIO = [("Ratio", _plain("ratio")), ("95 % interval", _interval("ratio"))]
_SHOWN: dict[str, list[tuple[str, Callable[[Row], str]]]] = {
    "cells": [
        *_JOB, ("Throughput", _rate), ("95 % interval", _interval("items_per_second")), ("n", _plain("launches_ok")),
        ("CV", _times("cv_fraction", 100, "%")), ("Verdict", _verdict), ("Outcome", _outcome),
    ],
    "launches": [
        *_JOB, ("Round", _plain("round")), ("Throughput", _rate), ("Outcome", _outcome), ("Error", _plain("error")),
    ],
    "scaling": [
        *_JOB, ("N", _plain("device_count")), ("S", _plain("speedup_S")), ("95 % interval", _interval("speedup_S")),
        ("E", _plain("efficiency_E")), ("s", _plain("scale_factor_s")), ("95 % interval", _interval("scale_factor_s")),
        ("E*", _plain("efficiency_E_star")),
    ],
    "decomposition": [
        *_JOB, *((name, _plain(f"efficiency_{name}")) for name in ("E", "E_hetero", "E_corun", "E_ddp", "E_comm")),
        ("Exposed communication", _times("exposed_communication_seconds_per_step", 1e3, "ms")),
    ],
    "nodes": [
        *_JOB, ("Nodes", _plain("nodes")), ("Over one node", _plain("speedup_over_one_node")),
        *((name, _plain(f"efficiency_{name}")) for name in ("E", "E_inside", "E_between")), ("Transport", _plain("transport")),
    ],
    "collectives": [
        *_JOB, ("Operation", _plain("operation")), ("Bytes", _plain("bytes")), ("Time", _times("seconds", 1e3, "ms")),
        ("Bus bandwidth", _times("bus_bytes_per_second", 1e-9, "GB/s")),
        ("Of the links", _times("bus_fraction_of_link", 100, "%")),
    ],
    "devices": [
        ("Workload", _plain("workload")), ("Stack", _plain("stack")), ("Model", _plain("device_name")),
        ("Device", _plain("device")), ("Throughput", _rate), *_RATIO, ("Weak", _plain("weak")),
    ],
    "speedups": [
        *_JOB, ("Over", _plain("baseline")), *_RATIO, ("Verdict", _verdict), ("n", _plain("launches_ok")),
        ("Why not", _plain("why")),
    ],
    "settings": [
        ("Setting", _plain("setting")), *_JOB, *_RATIO, ("Verdict", _verdict), ("n", _plain("launches_ok")),
        ("Why not", _plain("why")),
    ],
    "gpus": [
        ("GPU", _plain("device_name")), ("Architecture", _plain("architecture")), ("Memory", _times("memory_gb", 1, "GB")),
        ("Bandwidth", _times("bandwidth_gb_per_second", 1, "GB/s")), ("Power limit", _times("power_watts", 1, "W")),
        ("Launched", _plain("launch_date")),
        *((f"MFU {word}", _times(f"mfu_{word.replace('-', '_')}_fraction", 100, "%")) for word in PEAKED),
    ],
    "stacks": [
        ("Stack", _plain("stack")), ("torch", _plain("torch")), ("Python", _plain("python")), ("CUDA", _plain("cuda")),
        ("HIP", _plain("hip")), ("cuDNN", _plain("cudnn")), ("NCCL", _plain("nccl")), ("System", _plain("os")),
    ],
    "failures": [*_JOB, ("Round", _plain("round")), ("Outcome", _outcome), ("Error", _plain("error"))],
    "published": [
        ("Cell", _plain("cell")), ("Ours", _plain("ours")), ("95 % interval", _interval("ours")), ("Theirs", _plain("theirs")),
        ("Ours / theirs", _plain("ratio")), ("Verdict", _verdict), ("Whose", _plain("vendor")),
    ],
    "claims": [
        ("Claim", _plain("quantity")), ("Whose", _plain("vendor")), ("From", _plain("claimed_low")),
        ("To", _plain("claimed_high")), ("Ours", _plain("ours")), ("95 % interval", _interval("ours")),
        ("Verdict", _verdict),
    ],
}  # fmt: skip


_HIDDEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What JSON leaves as it is, though a terminal may act on it."""


def to_csv(name: str, table: Values) -> bytes:
    """Write CSV with a header; floats as Python's repr writes them, which reads back as the same number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(table)
    writer.writerows(zip(*map(_fields, table.values()), strict=True))
    return text.getvalue().encode()


def to_json(name: str, table: Values) -> bytes:
    """Write a list with an object for each row, one row per line; lists as lists."""
    lists = {column.name for column in EVERY_TABLE.get(name, ()) if column.kind == "list"}
    rows = [{name: _json_value(value, name in lists) for name, value in row.items()} for row in by_row(table)]
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    return _HIDDEN.sub(
        lambda found: f"\\u{ord(found[0]):04x}", "[" + ",".join("\n" + line for line in lines) + "\n]\n"
    ).encode()


def to_parquet(name: str, table: Values) -> bytes:
    """Write Parquet with a fixed type for every column, and its meaning in the field's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    meanings = {column.name: column.meaning for column in EVERY_TABLE.get(name, ())}
    content = pa.Table.from_pandas(frame(name, table), preserve_index=False)
    fields = [field.with_metadata({"meaning": meanings.get(field.name, "")}) for field in content.schema]
    file = io.BytesIO()
    pq.write_table(content.cast(pa.schema(fields, metadata=content.schema.metadata)), file, compression="zstd")
    return file.getvalue()


FORMATS: dict[str, Callable[[str, Values], bytes]] = {
    "csv": to_csv,
    "json": to_json,
    "parquet": to_parquet,
    "md": to_markdown,
}
"""Writers by the ending of the file's name: (table's name, table) -> its content."""


PARQUET = "parquet"
NO_PARQUET = "Parquet needs pyarrow"
INSTALL = "pip install 'torchmatrix[parquet]'"


def usable() -> list[str]:
    """Return the formats that this installation can write."""
    return [word for word in FORMATS if word != PARQUET or find_spec("pyarrow")]


def names_of(formats: Sequence[str]) -> tuple[str, ...]:
    """Return the requested formats, each once; raises BadInput for an unknown one, and for Parquet without pyarrow."""
    known = (*FORMATS, *plugins.names(plugins.FORMATS))
    for word in formats:
        if word not in known:
            raise BadInput(f'there is no format "{word}"', hint=nearest(word, known))
        if word in FORMATS and word not in usable():
            raise BadInput(NO_PARQUET, hint=INSTALL)
    return tuple(dict.fromkeys(formats))


def _fields(column: list[Any]) -> Iterable[Any]:
    """Convert a whole column; most have few values or only numbers, so that not every value is converted."""
    kinds = set(map(type, column))
    if kinds <= {float, int, type(None)}:
        return column
    if kinds <= {str, bool, type(None)}:
        fields = {value: csv_field(value) for value in set(column)}
        return [fields[value] for value in column]
    return map(csv_field, column)


def _json_value(value: Any, is_list: bool) -> Any:
    """Convert a value for JSON, which has no infinity: our figures are infinite only after a division by 0, so unknown."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return json.loads(value) if is_list and value is not None else value


def png_of(svg: str, scale: float = 2.0) -> bytes:
    """Render a drawing with `scale` pixels per point, its texts in Roboto: it looks alike on machines with other fonts or none.

    Raises BadInput without resvg-py, OSError where the font can't be read.
    """
    try:
        import font_roboto
        import resvg_py
    except ImportError:
        raise BadInput(
            "PNG charts need resvg-py and font-roboto", hint="pip install resvg-py font-roboto, or use --no-charts"
        ) from None
    fonts = [font_roboto.Roboto, font_roboto.RobotoBold]
    for font in fonts:
        Path(font).open("rb").close()  # of a file that it can't read, resvg leaves the texts out
    return bytes(
        resvg_py.svg_to_bytes(svg_string=svg, zoom=scale, font_files=fonts, font_family="Roboto", sans_serif_family="Roboto")
    )
