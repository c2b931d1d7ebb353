"""Files that a user gives, with any content: read and parsed within bounds, or refused with a reason. All raise BadInput.

Every kind of input comes in through here: TOML (matrix, lock, settings, prices), JSON and CSV. The results are plain data of
bounded size and depth, whose whole numbers fit 64 bits.
"""

import csv
import errno
import json
import math
import os
import re
import sys
import tarfile
import time
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any, Union, get_args, get_origin, get_type_hints

from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import NotPlain, open_regular
from torchmatrix.core.formatting import clipped, printable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SMALL_FILE_BYTES = 256 << 10
"""The most that a file written by hand may hold."""
LARGE_FILE_BYTES = 8 << 20
"""The most that a file written by a program may hold, such as a lock or a published table."""
MOST_ROWS = 100_000
MOST_COLUMNS = 1_000
MOST_LEVELS = 16
"""The limit of tables and lists within each other; no file of this project has more than five."""
_TOO_DEEP = f"more than {MOST_LEVELS} lists or tables within each other"
MOST_DOTS = 1_000
"""The limit of dots in a line: for a dotted key, parsers need time and memory by the square of its parts."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_text(path: Path, *, hint: str, most_bytes: int = SMALL_FILE_BYTES) -> str:
    """Read the text of a UTF-8 file of at most `most_bytes`. Raises FileNotFoundError if nothing is there, else BadInput.

    A folder, a pipe or a device is refused without waiting for it. Every line ends with a line feed; a byte
    order mark is left out.
    """
    text = _decode(read_bytes(path, hint=hint, most_bytes=most_bytes), str(path), hint)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: Path, *, hint: str, most_bytes: int) -> bytes:
    """Read a regular file of at most `most_bytes`. Raises FileNotFoundError if nothing is there, OSError if
    this machine lacks files or memory, else BadInput.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            content = b"" if size > most_bytes else file.read(most_bytes + 1)
    except FileNotFoundError:
        raise
    except NotPlain as error:
        raise BadInput(f"{_shown(path)} is {error.kind}, not a file", hint=hint) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # the machine's lack, not the file's fault
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"can't read {_shown(path)}: {reason}", hint=hint) from None
    if max(size, len(content)) > most_bytes:
        limit = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
        raise BadInput(f"{_shown(path)} is larger than {limit}, the most that such a file may hold", hint=hint)
    return content


def toml_of(text: str, name: str, *, hint: str, complaint: str = " is not valid TOML") -> dict[str, Any]:
    """Parse a TOML text. `name`: of its file, for messages, followed by `complaint` where it can't be parsed.

    Raises BadInput.
    """
    _refuse_nul(text, name, hint)
    if surrogate := _LONE_SURROGATE.search(text):
        raise BadInput(f"{name}, {_line(text, surrogate.start())}: half a character (a surrogate), which is no text", hint=hint)
    if dotted := next((number for number, line in enumerate(text.split("\n"), 1) if line.count(".") > MOST_DOTS), None):
        raise BadInput(f"{name}, line {dotted}: more than {MOST_DOTS:,} dots", hint=hint)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{name}{complaint}: {_clean(error)}", hint=hint) from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise BadInput(f"{name}{complaint}: {_unparsable(text, error)}", hint=hint) from None
    return dict(_check(data, name, hint))


_TEXT_OR_COMMENT = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3,5}|"(?:\\.|[^"\\\n])*"|'{3}.*?'{3,5}|'[^'\n]*'|(?P<comment>[ \t]*\#[^\n]*)""", re.DOTALL
)


def without_comments(text: str) -> str:
    """Return a TOML text without its comments, all else in its line. Raises BadInput where they can't be told from values."""
    name, hint = "the text", "repair it"
    table = toml_of(text, name, hint=hint)
    plain = _TEXT_OR_COMMENT.sub(lambda match: "" if match["comment"] else match[0], text)
    if toml_of(plain, name, hint=hint) != table:
        raise BadInput("the text has comments that can't be told from values", hint=hint)
    return plain


def json_bytes(value: Any, indent: int | None = None) -> bytes:
    """Return a value as JSON in UTF-8; a lone surrogate, which no file or page can hold, becomes "?". Raises RecursionError."""
    return json.dumps(value, indent=indent, ensure_ascii=False).encode(errors="replace")


def json_of(text: str | bytes, name: str, *, hint: str, takes_infinity: bool = False) -> Any:
    """Parse a JSON text. Raises BadInput, also for NaN and Infinity, which JSON doesn't have, unless `takes_infinity`."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a number of JSON")

    text = _decode(text, name, hint) if isinstance(text, bytes) else text
    _refuse_nul(text, name, hint)
    try:
        data = json.loads(text.removeprefix("\ufeff"), parse_constant=None if takes_infinity else refuse)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name} is not valid JSON: {_unparsable(text, error)}", hint=hint) from None
    return _check(data, name, hint)


def csv_of(path: Path, *, hint: str, strict: bool = True) -> tuple[list[str], dict[int, list[str]]]:
    """Read the header of a CSV file and its other rows by number (the header is row 1); empty ones are left out.

    `strict`: refuse wrong quotes. Raises BadInput, also if the file isn't there.
    """
    try:
        text = _decode(read_bytes(path, hint=hint, most_bytes=LARGE_FILE_BYTES), str(path), hint)
    except FileNotFoundError:
        raise BadInput(f"can't read {_shown(path)}: there is no such file", hint=hint) from None
    _refuse_nul(text, str(path), hint)
    rows = csv.reader(_lines(text), strict=strict)
    try:
        header = [name.strip() for name in next(rows, [])]
        if len(header) == 1 and ";" in header[0]:
            raise BadInput(f"{path}, line 1: fields are separated by semicolons", hint=f"separate them by commas; {hint}")
        if len(header) > MOST_COLUMNS:
            raise BadInput(f"{path} has more than {MOST_COLUMNS:,} columns", hint=hint)
        return header, dict(_filled_rows(rows, path, hint))
    except csv.Error as error:
        raise BadInput(f"can't read {path}, line {rows.line_num}: {error}", hint=hint) from None


def _filled_rows(rows: Iterable[list[str]], path: Path, hint: str) -> Iterator[tuple[int, list[str]]]:
    filled = 0
    for number, row in enumerate(rows, start=2):
        if any(row):
            filled += 1
            if filled > MOST_ROWS:
                raise BadInput(f"{path} has more than {MOST_ROWS:,} rows", hint=hint)
            if len(row) > MOST_COLUMNS:
                raise BadInput(f"{path}, row {number}: more than {MOST_COLUMNS:,} fields", hint=hint)
            yield number, [field.strip() for field in row]


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text as csv wants them: only \\n, \\r\\n and \\r end one."""
    start = 0
    for line_end in re.finditer(r"\r\n|\n|\r", text):
        yield text[start : line_end.end()]
        start = line_end.end()
    if start < len(text):
        yield text[start:]


def _decode(content: bytes, name: str, hint: str) -> str:
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"byte {content[error.start]:#04x} is not UTF-8"
        raise BadInput(f"can't read {printable(name)}, line {line}: {problem}", hint=hint) from None


def _refuse_nul(text: str, name: str, hint: str) -> None:
    place = text.find("\0")
    if place >= 0:
        raise BadInput(f"{name}, {_line(text, place)}: a NUL byte, which no text has", hint=hint)


def _unparsable(text: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    long = re.search(r"\d[\d_]{4000,}", text)
    return f"{_line(text, long.start())}: a number of more than 4,000 digits" if long else _clean(error)


def _check(data: Any, name: str, hint: str) -> Any:
    """Return the data. Raises BadInput if anything in it is too deep or too large a number."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(data, ())]
    while pending:
        value, place = pending.pop()
        if isinstance(value, (dict, list)):
            if len(place) > MOST_LEVELS:
                raise BadInput(f"{name}, {_place(place)}: {_TOO_DEEP}", hint=hint)
            inner = value.items() if isinstance(value, dict) else enumerate(value, start=1)
            pending += [(item, (*place, str(key))) for key, item in inner if isinstance(item, (dict, list, int))]
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise BadInput(f"{name}, {_place(place)}: a whole number of more than 64 bits", hint=hint)
    return data


def _place(keys: tuple[str, ...]) -> str:
    return clipped(printable(" ".join(clipped(key) for key in keys[:4])))


def _line(text: str, position: int) -> str:
    return f"line {text.count(chr(10), 0, position) + 1}"


def _clean(error: Exception) -> str:
    return clipped(printable(str(error)), 300)


def _shown(path: Path) -> str:
    return printable(clipped(str(path), 300))


# Objects of this program that another process wrote as JSON: made again by the types that their classes declare, or refused


def construct(kind: Any, value: Any, name: str) -> Any:
    """Make an object of the type `kind` from JSON: a dataclass, a collection, a path, an enum, a text or number, or None.

    `name`: of the value, for messages. Raises ValueError for a value that the type doesn't allow, such as an unknown field.
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(kind) if option is not type(None)]
        return None if value is None and len(options) < len(get_args(kind)) else construct(options[0], value, name)
    if origin in (list, tuple, Collection):
        return _collection(origin, get_args(kind), value, name)
    if is_dataclass(kind):
        return _object(kind, value, name)
    if isinstance(kind, type) and issubclass(kind, Path):
        return kind(_plain(str, value, name))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return _plain(kind, value, name)


def _object(kind: Any, table: Any, name: str) -> Any:
    if not isinstance(table, dict):
        raise ValueError(f"{name} is no table")
    needed = {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}
    hints = get_type_hints(kind)
    for problem, names in (("lacks", needed - table.keys()), ("has an unknown", table.keys() - hints.keys())):
        if names:
            raise ValueError(f"{name} {problem} {min(names)}")
    return kind(**{key: construct(hints[key], value, f"{name}.{key}") for key, value in table.items()})


def _collection(origin: Any, inner: tuple[Any, ...], values: Any, name: str) -> Any:
    """Make a list or a tuple. A tuple of two types has two values; any other collection becomes a tuple."""
    if not isinstance(values, list):
        raise ValueError(f"{name} is no list")
    is_fixed = origin is tuple and ... not in inner
    if is_fixed and len(values) != len(inner):
        raise ValueError(f"{name} has {len(values)} values instead of {len(inner)}")
    kinds = inner if is_fixed else inner[:1] * len(values)
    return (list if origin is list else tuple)(construct(kind, value, name) for kind, value in zip(kinds, values, strict=True))


def _plain(kind: type, value: Any, name: str) -> Any:
    allowed = (int, float) if kind is float else kind
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name} is a {type(value).__name__}, not a {kind.__name__}")
    return value


# Checks of values in facts, and the error for one that can't be read

Record = Mapping[str, Any]
"""One JSON object."""

_SKEW_SECONDS = 3600.0
"""The clocks of two machines differ by less than this, unless one is wrong."""


class Malformed(ValueError):
    """A value of the wrong type for its place; the text names the place."""


def is_to_come(unix_seconds: float) -> bool:
    """Check whether a time lies an hour or more in the future: a clock that keeps local time is wrong by hours until set."""
    return unix_seconds >= time.time() + _SKEW_SECONDS


def is_number(value: object) -> bool:
    """Check whether a value is a finite number that a float can hold."""
    try:
        return (type(value) is float or type(value) is int) and math.isfinite(value)
    except OverflowError:
        return False


def short_json(value: Any) -> str:
    """Return a value as JSON, at most 40 characters of it."""
    return clipped(json.dumps(value, default=str), 40)


# Tar archives of unknown origin

_LONGEST_READ = 1 << 20
NOT_A_TAR = (tarfile.TarError, EOFError, ValueError, RecursionError, OverflowError)
"""The errors of reading a damaged or hostile archive: also for headers of headers without an end."""


def open_tar(file: IO[bytes]) -> tarfile.TarFile:
    """Open the archive at the file's position, never packed: packed data could unpack to anything. Raises tarfile.TarError.

    Reading it raises ValueError for a header of more than 1 MiB.
    """
    return tarfile.open(fileobj=_Bounded(file), mode="r:")  # type: ignore[call-overload, no-any-return]


def stream_tar(stream: IO[bytes], most: int) -> tarfile.TarFile:
    """Open a tar that is a stream: it is read once, forwards, and no more than `most` bytes of it."""
    return open_tar(_Forwards(stream, most))  # type: ignore[arg-type]  # what tarfile needs of a file


def tar_ends_well(tar: tarfile.TarFile) -> bool:
    """Check that zeros follow the last member, as POSIX requires: tarfile also stops at a damaged header or the file's end."""
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    return tar.fileobj.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE)


def member_content(tar: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> bytes | None:
    """Read a plain file in an archive, at most one byte more than `most`; None for a member that is no plain file."""
    content = tar.extractfile(member) if member.isreg() and not member.issparse() else None
    if content is None:
        return None
    parts, left = [], most + 1
    while left > 0 and (part := content.read(min(left, _LONGEST_READ))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


class _Forwards:
    """A stream as a file whose place only moves forwards."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._most, self._place = stream, most, 0

    def read(self, size: int) -> bytes:
        if self._place + size > self._most + _LONGEST_READ:
            raise ValueError(f"it is longer than {self._most} bytes")
        data = self._stream.read(size)
        self._place += len(data)
        return data

    def seek(self, place: int) -> None:
        while self._place < place:
            if not self.read(min(place - self._place, _LONGEST_READ)):
                raise EOFError("it ends early")
        if self._place > place:
            raise ValueError("it can't be read backwards")

    def tell(self) -> int:
        return self._place

    def seekable(self) -> bool:
        return True


class _Bounded:
    """A file that is never read in large pieces: tarfile reads a header whole, however long it claims to be."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LONGEST_READ:
            raise ValueError(f"a header of {size} bytes")
        return self._file.read(size)
