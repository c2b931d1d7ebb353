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
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any

from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.toml_keys import nearest
from torchmatrix.reporting.exports.machines import EVERY_TABLE
from torchmatrix.reporting.exports.markdown import to_markdown
from torchmatrix.reporting.exports.table_set import Values, by_row, frame

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
