"""Files that a user gives, whatever is in them: read and parsed within bounds, or refused with a reason. All raise BadInput.

Every kind of input comes in through here: TOML (matrix, lock, settings, prices), JSON and CSV. What comes out is plain data of
bounded size and depth, whose whole numbers fit 64 bits.
"""

import csv
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
from torchmatrix.core.files import NotPlain, opened
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
"""Tables and lists within each other; no file of ours has more than five."""
_TOO_DEEP = f"more than {MOST_LEVELS} lists or tables within each other"
MOST_DOTS = 1_000
"""In a line: of a dotted key, parsers take the square of its parts in time and memory."""
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def read_text(path: Path, *, hint: str, most_bytes: int = SMALL_FILE_BYTES) -> str:
    """The text of a UTF-8 file of at most so many bytes. Raises FileNotFoundError if nothing is there, else BadInput.

    A folder, a pipe or a device is refused, and none is waited for. Every line ends with a line feed.
    """
    text = _decoded(read_bytes(path, hint=hint, most_bytes=most_bytes), str(path), hint)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: Path, *, hint: str, most_bytes: int) -> bytes:
    """The content of a regular file of at most so many bytes. Raises FileNotFoundError if nothing is there, else BadInput."""
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            content = b"" if size > most_bytes else file.read(most_bytes + 1)
    except FileNotFoundError:
        raise
    except NotPlain as error:
        raise BadInput(f"{_named(path)} is {error.kind}, not a file", hint=hint) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"can't read {_named(path)}: {reason}", hint=hint) from None
    if max(size, len(content)) > most_bytes:
        raise BadInput(f"{_named(path)} is larger than {_size(most_bytes)}, the most that such a file may hold", hint=hint)
    return content


def toml_of(text: str, name: str, *, hint: str, complaint: str = " is not valid TOML") -> dict[str, Any]:
    """What a TOML text says. `name`: of its file, for messages, followed by `complaint` where it can't be parsed.

    Raises BadInput.
    """
    _refuse_nul(text, name, hint)
    if found := _HALF_CHARACTER.search(text):
        raise BadInput(f"{name}, {_line(text, found.start())}: half a character (a surrogate), which is no text", hint=hint)
    if dotted := next((number for number, line in enumerate(text.split("\n"), 1) if line.count(".") > MOST_DOTS), None):
        raise BadInput(f"{name}, line {dotted}: more than {MOST_DOTS:,} dots", hint=hint)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{name}{complaint}: {_clean(error)}", hint=hint) from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise BadInput(f"{name}{complaint}: {_unparsable(text, error)}", hint=hint) from None
    return dict(_checked(data, name, hint))


def json_of(text: str | bytes, name: str, *, hint: str) -> Any:
    """What a JSON text says: without NaN and Infinity, which JSON doesn't have. Raises BadInput."""
    text = _decoded(text, name, hint) if isinstance(text, bytes) else text
    _refuse_nul(text, name, hint)
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name} is not valid JSON: {_unparsable(text, error)}", hint=hint) from None
    return _checked(data, name, hint)


def csv_of(path: Path, *, hint: str, strict: bool = True) -> tuple[list[str], dict[int, list[str]]]:
    """The header of a CSV file and its other rows by number (the header is row 1); empty ones are left out.

    `strict`: refuse wrong quotes. Raises BadInput, also if the file isn't there.
    """
    try:
        text = _decoded(read_bytes(path, hint=hint, most_bytes=LARGE_FILE_BYTES), str(path), hint)
    except FileNotFoundError:
        raise BadInput(f"can't read {_named(path)}: there is no such file", hint=hint) from None
    _refuse_nul(text, str(path), hint)
    rows = csv.reader(_lines(text.removeprefix("\ufeff")), strict=strict)
    try:
        header = [name.strip() for name in next(rows, [])]
        if len(header) > MOST_COLUMNS:
            raise BadInput(f"{path} has more than {MOST_COLUMNS:,} columns", hint=hint)
        return header, dict(_filled(rows, path, hint))
    except csv.Error as error:
        raise BadInput(f"can't read {path}, line {rows.line_num}: {error}", hint=hint) from None


def _filled(rows: Iterable[list[str]], path: Path, hint: str) -> Iterator[tuple[int, list[str]]]:
    found = 0
    for number, row in enumerate(rows, start=2):
        if any(row):
            found += 1
            if found > MOST_ROWS:
                raise BadInput(f"{path} has more than {MOST_ROWS:,} rows", hint=hint)
            if len(row) > MOST_COLUMNS:
                raise BadInput(f"{path}, row {number}: more than {MOST_COLUMNS:,} fields", hint=hint)
            yield number, [field.strip() for field in row]


def _lines(text: str) -> Iterator[str]:
    """The lines of a text, one at a time, as csv wants them: only \\n, \\r\\n and \\r end one."""
    start = 0
    for found in re.finditer(r"\r\n|\n|\r", text):
        yield text[start : found.end()]
        start = found.end()
    if start < len(text):
        yield text[start:]


def _decoded(content: bytes, name: str, hint: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        said = f"byte {content[error.start]:#04x} is not UTF-8"
        raise BadInput(f"can't read {printable(name)}, line {line}: {said}", hint=hint) from None


def _refuse_nul(text: str, name: str, hint: str) -> None:
    place = text.find("\0")
    if place >= 0:
        raise BadInput(f"{name}, {_line(text, place)}: a NUL byte, which no text has", hint=hint)


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number of JSON")


def _unparsable(text: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    long = re.search(r"\d[\d_]{4000,}", text)
    return f"{_line(text, long.start())}: a number of more than 4,000 digits" if long else _clean(error)


def _checked(data: Any, name: str, hint: str) -> Any:
    """The data, if nothing in it is too deep or too large a number."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(data, ())]
    while pending:
        value, place = pending.pop()
        if isinstance(value, (dict, list)):
            if len(place) > MOST_LEVELS:
                raise BadInput(f"{name}, {_place(place)}: {_TOO_DEEP}", hint=hint)
            inner = value.items() if isinstance(value, dict) else enumerate(value, start=1)
            pending += [(one, (*place, str(key))) for key, one in inner if isinstance(one, (dict, list, int))]
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise BadInput(f"{name}, {_place(place)}: a whole number of more than 64 bits", hint=hint)
    return data


def _place(keys: tuple[str, ...]) -> str:
    return clipped(printable(" ".join(clipped(key) for key in keys[:4])))


def _line(text: str, position: int) -> str:
    return f"line {text.count(chr(10), 0, position) + 1}"


def _clean(error: Exception) -> str:
    return clipped(printable(str(error)), 300)


def _named(path: Path) -> str:
    return printable(clipped(str(path), 300))


def _size(most_bytes: int) -> str:
    return f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"


# Objects of ours that another process wrote as JSON: made again by the types that their classes declare, or refused.


def construct(kind: Any, told: Any, name: str) -> Any:
    """A value of the type `kind`: a dataclass, a list, tuple or other collection, a path, an enum, a text or number, or None.

    `name`: of what is told, for messages. Raises ValueError for what the type doesn't allow, such as an unknown field.
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        kinds = [one for one in get_args(kind) if one is not type(None)]
        return None if told is None and len(kinds) < len(get_args(kind)) else construct(kinds[0], told, name)
    if origin in (list, tuple, Collection):
        return _collection(origin, get_args(kind), told, name)
    if is_dataclass(kind):
        return _object(kind, told, name)
    if isinstance(kind, type) and issubclass(kind, Path):
        return kind(_plain(str, told, name))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(told)
    return _plain(kind, told, name)


def _object(kind: Any, told: Any, name: str) -> Any:
    if not isinstance(told, dict):
        raise ValueError(f"{name} is no table")
    needed = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
    known = get_type_hints(kind)
    for problem, names in (("lacks", needed - told.keys()), ("has an unknown", told.keys() - known.keys())):
        if names:
            raise ValueError(f"{name} {problem} {min(names)}")
    return kind(**{key: construct(known[key], value, f"{name}.{key}") for key, value in told.items()})


def _collection(origin: Any, inner: tuple[Any, ...], told: Any, name: str) -> Any:
    """A tuple of two types has two values; a collection becomes a tuple."""
    if not isinstance(told, list):
        raise ValueError(f"{name} is no list")
    is_fixed = origin is tuple and ... not in inner
    if is_fixed and len(told) != len(inner):
        raise ValueError(f"{name} has {len(told)} values instead of {len(inner)}")
    kinds = inner if is_fixed else inner[:1] * len(told)
    return (list if origin is list else tuple)(construct(kind, one, name) for kind, one in zip(kinds, told, strict=True))


def _plain(kind: type, told: Any, name: str) -> Any:
    allowed = (int, float) if kind is float else kind
    if not isinstance(told, allowed) or (isinstance(told, bool) and kind is not bool):
        raise ValueError(f"{name} is a {type(told).__name__}, not a {kind.__name__}")
    return told


# What all readers of facts ask of a value, and the error for one that can't be read.

Record = Mapping[str, Any]
"""One JSON object."""

_SKEW_SECONDS = 3600.0
"""The clocks of two machines differ by less, unless one is wrong."""


class Malformed(ValueError):
    """A value of the wrong type for its place; the text names the place."""


def is_to_come(unix_seconds: float) -> bool:
    """Whether a time lies an hour or more in the future: a clock that keeps local time is wrong by hours before it is set."""
    return unix_seconds >= time.time() + _SKEW_SECONDS


def is_number(value: object) -> bool:
    """Whether it is a finite number that a float can hold."""
    try:
        return (type(value) is float or type(value) is int) and math.isfinite(value)
    except OverflowError:
        return False


def short_json(value: Any) -> str:
    """A value as JSON, at most 40 letters of it."""
    said = json.dumps(value, default=str)
    return said if len(said) <= 40 else f"{said[:39]}…"


# Tar archives of unknown origin.

_LONGEST_READ = 1 << 20
NOT_A_TAR = (tarfile.TarError, EOFError, ValueError, RecursionError, OverflowError)
"""What reading one raises for what is damaged or hostile: also for headers of headers without an end."""


def open_tar(file: IO[bytes]) -> tarfile.TarFile:
    """The archive at the file's position, never packed: what is packed could unpack to anything. Raises tarfile.TarError.

    What reads of it raises ValueError for a header of more than 1 MiB.
    """
    return tarfile.open(fileobj=_Bounded(file), mode="r:")  # type: ignore[call-overload, no-any-return]


def stream_tar(stream: IO[bytes], most: int) -> tarfile.TarFile:
    """As `opened`, of a stream that is read once, forwards, and no more than `most` bytes of it."""
    return open_tar(_Forwards(stream, most))  # type: ignore[arg-type]  # what tarfile needs of a file


def tar_ends_well(tar: tarfile.TarFile) -> bool:
    """Whether zeros end what was read, as POSIX has it: tarfile takes a damaged header, and the file's end, for that too."""
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    return tar.fileobj.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE)


def member_content(tar: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> bytes | None:
    """What a plain file in an archive holds, one byte more than `most` at most; None for what is no plain file."""
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
