"""Tables -> files: CSV, JSON, Parquet, and Markdown to paste into an issue.

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
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any

from torchmatrix.analysis.gpu_specs import PEAKED
from torchmatrix.analysis.rows import Row
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import figure
from torchmatrix.core.toml_keys import nearest
from torchmatrix.reporting import words
from torchmatrix.reporting.exports.table_set import EVERY_TABLE, Values, by_row, frame

# Tables -> GitHub's Markdown, few columns, four significant digits: to paste into an issue. Their contents are escaped.

_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()!|~$])")
_CALLS = re.compile(r"(?<![&\w])([@#])(?=\w)")
"""What GitHub would turn into a mention of a person or a link to an issue."""
_LINKS = re.compile(r"(https?|ftp|www)([:.])(?=\S)", re.IGNORECASE)


def escaped(value: Any) -> str:
    """A text as itself inside a table: no markup, no HTML, no new line, nobody notified."""
    text = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _CALLS.sub(r"\1&#8203;", _PUNCTUATION.sub(r"\\\1", text))
    return _LINKS.sub(r"\1&#8203;\2", text)


def to_markdown(name: str, table: Values) -> bytes:
    """The table with the columns of _SHOWN; all columns if the table isn't listed there."""
    shown = _SHOWN.get(name) or [(column, _own(column)) for column in table]
    lines = [_line([escaped(title) for title, _ in shown]), _line(["---"] * len(shown))]
    lines += [_line([write(row) for _, write in shown]) for row in by_row(table)]
    return ("\n".join(lines) + "\n").encode()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _own(column: str) -> Callable[[Row], str]:
    """The column as it is; numbers with four significant digits."""

    def write(row: Row) -> str:
        value = row[column]
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int):
            return str(value)
        return words.UNKNOWN if value is None else figure(value) if isinstance(value, float) else escaped(value)

    return write


def _times(column: str, factor: float, unit: str) -> Callable[[Row], str]:
    """The column in another unit."""
    return lambda row: words.UNKNOWN if row[column] is None else f"{figure(factor * row[column])} {unit}"


def _interval(column: str) -> Callable[[Row], str]:
    """Both ends of the column's interval."""

    def write(row: Row) -> str:
        low, high = row[f"{column}_low"], row[f"{column}_high"]
        return words.UNKNOWN if low is None or high is None else f"{figure(low)} – {figure(high)}"

    return write


def _rate(row: Row) -> str:
    value = row["items_per_second"]
    return words.UNKNOWN if value is None else f"{figure(value)} {escaped(row['unit'])}/s"


def _verdict(row: Row) -> str:
    """Of a ratio by its corrected verdict, of a cell by its scatter."""
    return words.NO_INTERVAL if "cv_fraction" in row and row["verdict"] == "n/a" else escaped(_said(row["verdict"]))


def _said(verdict: str | None) -> str:
    return words.verdict(verdict or "n/a") or str(verdict)


def _outcome(row: Row) -> str:
    return escaped(words.OUTCOMES.get(row["outcome"], row["outcome"]))


_JOB = [("Workload", _own("workload")), ("Stack", _own("stack")), ("Devices", _own("devices"))]
_RATIO = [("Ratio", _own("ratio")), ("95 % interval", _interval("ratio"))]
_SHOWN: dict[str, list[tuple[str, Callable[[Row], str]]]] = {
    "cells": [
        *_JOB, ("Throughput", _rate), ("95 % interval", _interval("items_per_second")), ("n", _own("launches_ok")),
        ("CV", _times("cv_fraction", 100, "%")), ("Verdict", _verdict), ("Outcome", _outcome),
    ],
    "launches": [
        *_JOB, ("Round", _own("round")), ("Throughput", _rate), ("Outcome", _outcome), ("Error", _own("error")),
    ],
    "scaling": [
        *_JOB, ("N", _own("device_count")), ("S", _own("speedup_S")), ("95 % interval", _interval("speedup_S")),
        ("E", _own("efficiency_E")), ("s", _own("scale_factor_s")), ("95 % interval", _interval("scale_factor_s")),
        ("E*", _own("efficiency_E_star")),
    ],
    "decomposition": [
        *_JOB, *((name, _own(f"efficiency_{name}")) for name in ("E", "E_hetero", "E_corun", "E_ddp", "E_comm")),
        ("Exposed communication", _times("exposed_communication_seconds_per_step", 1e3, "ms")),
    ],
    "nodes": [
        *_JOB, ("Nodes", _own("nodes")), ("Over one node", _own("speedup_over_one_node")),
        *((name, _own(f"efficiency_{name}")) for name in ("E", "E_inside", "E_between")), ("Transport", _own("transport")),
    ],
    "collectives": [
        *_JOB, ("Operation", _own("operation")), ("Bytes", _own("bytes")), ("Time", _times("seconds", 1e3, "ms")),
        ("Bus bandwidth", _times("bus_bytes_per_second", 1e-9, "GB/s")),
        ("Of the links", _times("bus_fraction_of_link", 100, "%")),
    ],
    "devices": [
        ("Workload", _own("workload")), ("Stack", _own("stack")), ("Model", _own("device_name")),
        ("Device", _own("device")), ("Throughput", _rate), *_RATIO, ("Weak", _own("weak")),
    ],
    "speedups": [
        *_JOB, ("Over", _own("baseline")), *_RATIO, ("Verdict", _verdict), ("n", _own("launches_ok")),
        ("Why not", _own("why")),
    ],
    "settings": [
        ("Setting", _own("setting")), *_JOB, *_RATIO, ("Verdict", _verdict), ("n", _own("launches_ok")),
        ("Why not", _own("why")),
    ],
    "gpus": [
        ("GPU", _own("device_name")), ("Architecture", _own("architecture")), ("Memory", _times("memory_gb", 1, "GB")),
        ("Bandwidth", _times("bandwidth_gb_per_second", 1, "GB/s")), ("Power limit", _times("power_watts", 1, "W")),
        ("Launched", _own("launch_date")),
        *((f"MFU {word}", _times(f"mfu_{word.replace('-', '_')}_fraction", 100, "%")) for word in PEAKED),
    ],
    "stacks": [
        ("Stack", _own("stack")), ("torch", _own("torch")), ("Python", _own("python")), ("CUDA", _own("cuda")),
        ("HIP", _own("hip")), ("cuDNN", _own("cudnn")), ("NCCL", _own("nccl")), ("System", _own("os")),
    ],
    "failures": [*_JOB, ("Round", _own("round")), ("Outcome", _outcome), ("Error", _own("error"))],
    "published": [
        ("Cell", _own("cell")), ("Ours", _own("ours")), ("95 % interval", _interval("ours")), ("Theirs", _own("theirs")),
        ("Ours / theirs", _own("ratio")), ("Verdict", _verdict), ("Whose", _own("vendor")),
    ],
    "claims": [
        ("Claim", _own("quantity")), ("Whose", _own("vendor")), ("From", _own("claimed_low")),
        ("To", _own("claimed_high")), ("Ours", _own("ours")), ("95 % interval", _interval("ours")),
        ("Verdict", _verdict),
    ],
}  # fmt: skip


_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_BREAKS = ("\t", "\r", "\n")


def to_csv(name: str, table: Values) -> bytes:
    """With a header; floats as Python's repr writes them, which reads back as the same number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(table)
    writer.writerows(zip(*map(_fields, table.values()), strict=True))
    return text.getvalue().encode()


def to_json(name: str, table: Values) -> bytes:
    """A list with an object for each row, one row per line; lists as lists."""
    lists = {column.name for column in EVERY_TABLE.get(name, ()) if column.kind == "list"}
    rows = [{name: _json_value(value, name in lists) for name, value in row.items()} for row in by_row(table)]
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    return ("[" + ",".join("\n" + line for line in lines) + "\n]\n").encode()


def to_parquet(name: str, table: Values) -> bytes:
    """With a fixed type for every column, and its meaning in the field's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    meanings = {column.name: column.meaning for column in EVERY_TABLE.get(name, ())}
    held = pa.Table.from_pandas(frame(name, table), preserve_index=False)
    fields = [field.with_metadata({"meaning": meanings.get(field.name, "")}) for field in held.schema]
    file = io.BytesIO()
    pq.write_table(held.cast(pa.schema(fields, metadata=held.schema.metadata)), file, compression="zstd")
    return file.getvalue()


def inert(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_BREAKS) or text.lstrip(" ").startswith(_FORMULA) else text


FORMATS: dict[str, Callable[[str, Values], bytes]] = {
    "csv": to_csv,
    "json": to_json,
    "parquet": to_parquet,
    "md": to_markdown,
}
"""By the ending of a file's name: (table's name, table) -> its content."""


PARQUET = "parquet"
NO_PARQUET = "Parquet needs pyarrow"
INSTALL = "pip install 'torchmatrix[parquet]'"


def usable() -> list[str]:
    """The formats that this installation can write."""
    return [word for word in FORMATS if word != PARQUET or find_spec("pyarrow")]


def names_of(formats: Sequence[str]) -> tuple[str, ...]:
    """The requested formats, each once; raises BadInput for an unknown one, and for Parquet without pyarrow."""
    for word in formats:
        if word not in FORMATS:
            raise BadInput(f'there is no format "{word}"', hint=nearest(word, FORMATS))
        if word not in usable():
            raise BadInput(NO_PARQUET, hint=INSTALL)
    return tuple(dict.fromkeys(formats))


def _fields(column: list[Any]) -> Iterable[Any]:
    """A whole column; most have few values or only numbers, so that not every value is looked at."""
    kinds = set(map(type, column))
    if kinds <= {float, int, type(None)}:
        return column
    if kinds <= {str, bool, type(None)}:
        known = {value: _field(value) for value in set(column)}
        return [known[value] for value in column]
    return map(_field, column)


def _field(value: Any) -> Any:
    """As the csv module takes it: it writes a float as its repr, and None as an empty field."""
    if isinstance(value, str):
        return value if value[:1].isalnum() else inert(value)
    return ("true" if value else "false") if isinstance(value, bool) else value


def _json_value(value: Any, is_list: bool) -> Any:
    """JSON has no infinity; our figures are infinite only after a division by 0, which counts as unknown."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return json.loads(value) if is_list and value is not None else value
