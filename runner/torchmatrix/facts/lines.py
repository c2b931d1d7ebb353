"""Lines of facts with a running checksum: a changed byte is found, a cut-off end is harmless, and every line may be the last.

The last field of a line, `crc`, is the CRC-32 of all bytes of the file before that field, in eight hex digits. So the last line
vouches for the whole file, also for the order and number of its lines; reading needs one pass. It finds damage and mistakes; it
is no signature. Files of earlier versions have no checksums: they are read, and count as unverified. A file whose checksums
don't match is refused. A byte order mark changes no fact, nor do other line ends (Git's autocrlf, FTP) in a record that is
still appended to; any other change does. A launch file is never written again: other line ends refuse it.
"""

import codecs
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from torchmatrix.core import settings
from torchmatrix.core.files import plain_bytes
from torchmatrix.core.inputs import json_bytes, short_json
from torchmatrix.core.settings import MEGABYTE

# Format of the lines: JSON objects with a kind, as the workload process prints them (version 1) and as they are stored on disk

VERSION = 1
PREFIX = "@matrix "

DEEPEST = 32
"""Levels of lists and objects in a line; the protocol needs five, the tool's own lines need six."""

CUT_OFF = b" (cut off)"
"""The end of a line that a killed process or a full disk cut off, once another line follows."""

ARRIVED = "arrived_monotonic_seconds"
"""The field that the host adds to each line of the workload: when it came, on the host's clock."""

Event = dict[str, Any]
"""One protocol line: `event` names its kind, the other keys depend on it; unknown kinds and keys are kept."""


def version_problem(event: Event) -> str | None:
    """Return why this tool can't read a workload with this `hello`, or None."""
    if event["event"] == "hello" and event.get("protocol") != VERSION:
        version = short_json(event.get("protocol"))
        return f"the image speaks protocol {version}, this tool speaks {VERSION}: rebuild it (torchmatrix build)"
    return None


def most_bytes() -> int:
    """Return the size of the largest file that is read; the exit line and the last reading may exceed a launch file's limit."""
    return 2 * settings.load().launch_file_mb * MEGABYTE


def read_lines(path: Path) -> Iterator[Event]:
    """Yield the events of a file of JSON lines; none if there is no file. Raises OSError."""
    try:
        yield from events_in(as_written(plain_bytes(path, most_bytes())))
    except FileNotFoundError:
        return


def as_written(data: bytes, is_begin: bool = True) -> bytes:
    """Restore lines as written: other tools (Git's autocrlf, FTP, editors) change line ends and add a byte order mark."""
    data = data.removeprefix(codecs.BOM_UTF8) if is_begin else data
    return data.replace(b"\r\n", b"\n") if b"\r" in data else data


def events_in(data: bytes) -> Iterator[Event]:
    """Yield the events in lines of JSON. Lines that are not events are skipped."""
    for line in data.split(b"\n"):
        event = _event(line) if line else None
        if event is None and line.endswith(CUT_OFF):
            event = _event(line[: -len(CUT_OFF)])
        if event is not None:
            yield event


def _event(line: bytes) -> Event | None:
    try:
        event = orjson.loads(line)
    except ValueError:
        event = _parse_odd_json(line)
    is_event = isinstance(event, dict) and isinstance(event.get("event"), str)
    return event if is_event and not is_too_deep(line, event) else None


def is_too_deep(text: bytes, value: Any) -> bool:
    """Check whether the value of a JSON text has more levels than DEEPEST, over which readers would stumble."""
    return text.count(b"[") + text.count(b"{") > DEEPEST and _is_deep(value, DEEPEST)


def _is_deep(value: Any, levels: int) -> bool:
    inside = value.values() if type(value) is dict else value if type(value) is list else ()
    return levels == 0 or any(_is_deep(item, levels - 1) for item in inside if type(item) in (dict, list))


def _parse_odd_json(line: bytes) -> Any:
    """Parse what Python's json writes but orjson, four times as fast, refuses: NaN, Infinity, a lone surrogate."""
    try:
        event = json.loads(line.decode())  # of bytes it would guess the encoding
        if b"\\ud" in line:  # perhaps a lone surrogate, which a workload can print but no file or table can hold
            event = json.loads(json_bytes(event))
    except (ValueError, RecursionError):
        return None
    return event


DAMAGED = "damaged"
"""The kind of a line that says why a file is damaged: copies begin with it, so that no copy makes damaged facts look whole."""
_FORM = b', "crc": "%08x"}\n'
_LONGEST = len(_FORM % 0)
_CHECKSUM = re.compile(rb', "crc": "([0-9a-f]{8})"\}\n?\Z')
_WITHIN = re.compile(rb', "crc": "[0-9a-f]{8}"\}.', re.DOTALL)
_NAME = b'"crc"'
"""Within a text of JSON its quotes would be escaped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """A file of facts. `verified`: it has checksums and they match; `damage`: why they don't, None otherwise.

    `has_other_line_ends`: CRLF, which the tool doesn't write. `unreadable`: the first line before the last that is no event, in
    a file without checksums; None in others.
    """

    events: list[Event]
    verified: bool
    damage: str | None
    has_other_line_ends: bool = False
    unreadable: int | None = None

    @property
    def damage_of_launch(self) -> str | None:
        """Return why no launch is read from the file: also for changed line ends, if it has checksums."""
        refused = self.verified and self.has_other_line_ends
        return self.damage or ("its line ends were changed to CRLF: copy it as a binary file" if refused else None)


@dataclass(kw_only=True, slots=True)
class End:
    """The end of a file that is only appended to: how many bytes, their checksum, whether the last line is cut off."""

    size: int = 0
    crc: int = 0
    is_cut_off: bool = False

    def add(self, data: bytes) -> None:
        """Take note of appended bytes."""
        self.crc = zlib.crc32(as_written(data, is_begin=self.size == 0), self.crc)
        self.size += len(data)
        self.is_cut_off = not data.endswith(b"\n") if data else self.is_cut_off


def append(file: IO[bytes], event: Event, end: End) -> None:
    """Append an event as append_text does. Raises OSError."""
    append_text(file, json.dumps(event).encode(), end)


def append_text(file: IO[bytes], text: bytes, end: End) -> None:
    """Append an event, as JSON, with its checksum; a line that was cut off before stays by itself. Raises OSError."""
    data = _line(text, end)
    while data:
        written = file.write(data)
        end.add(data[:written])
        data = data[written:]


def packed(events: Iterable[Event], checksums: bool = True) -> bytes:
    """Return the content of a file with these events."""
    if not checksums:
        return b"".join(json.dumps(event).encode() + b"\n" for event in events)
    end, written = End(), []
    for event in events:
        written.append(_line(json.dumps(event).encode(), end))
        end.add(written[-1])
    return b"".join(written)


def read(path: Path) -> Lines:
    """Read the lines of a file; none if there is none. A file that can't be read (a folder, a link, too large) is damaged."""
    try:
        return lines_of(plain_bytes(path, most_bytes()))
    except FileNotFoundError:
        return Lines(events=[], verified=False, damage=None)
    except OSError as error:
        return Lines(events=[], verified=False, damage=error.strerror or str(error))


def lines_of(data: bytes) -> Lines:
    """Parse the content of a file; the checksums are checked, and left out of the events."""
    return _parse(data, lambda plain: plain)


def ends_of(data: bytes) -> Lines:
    """Parse as lines_of, but only the events in the first and the last line, which are the host's."""

    def ends(plain: bytes) -> bytes:
        first, _, rest = plain.partition(b"\n")
        return b"\n".join((first, rest.rstrip(b"\n").rpartition(b"\n")[2]))

    return _parse(data, ends)


def _parse(written: bytes, part: Callable[[bytes], bytes]) -> Lines:
    data = as_written(written)
    verified, damage = _check(data)
    events = list(events_in(part(data)))
    checksums = [event.pop("crc") for event in events if "crc" in event]
    if checksums and not verified and not damage:
        damage = "its checksums are not written as this program writes them"
    if events and events[0]["event"] == DAMAGED:
        verified, damage = False, str(events[0].get("reason"))
    unreadable = None if verified or damage else _unreadable(data)
    return Lines(events=events, verified=verified, damage=damage, has_other_line_ends=b"\r\n" in written, unreadable=unreadable)


def _unreadable(data: bytes) -> int | None:
    """Return the number of the first line before the last that is no event, and wasn't cut off; None without one."""
    lines = data.rstrip(b"\n").split(b"\n")[:-1]
    return next((n for n, line in enumerate(lines, 1) if line and not line.endswith(CUT_OFF) and _event(line) is None), None)


def _line(text: bytes, end: End) -> bytes:
    """Return a line with its checksum. Of fields of one name readers take the last, so a "crc" in the text does no harm."""
    body = (CUT_OFF + b"\n" if end.is_cut_off else b"") + text[:-1]
    return body + _FORM % zlib.crc32(body, end.crc)


def _check(data: bytes) -> tuple[bool, str | None]:
    """Check whether the checksums match, and if not, why; a file without any gives neither."""
    last = _CHECKSUM.search(data, max(0, len(data) - _LONGEST))
    if last and zlib.crc32(memoryview(data)[: last.start()]) == int(last[1], 16):
        return True, None
    return _check_each(data) if _NAME in data else (False, None)


def _check_each(data: bytes) -> tuple[bool, str | None]:
    """Check line by line, for a file whose end doesn't vouch for it: it is cut off or damaged."""
    end, has_checksums = End(), False
    for number, line in enumerate(io.BytesIO(data), start=1):
        match = _CHECKSUM.search(line, max(0, len(line) - _LONGEST))
        if match and zlib.crc32(line[: match.start()], end.crc) != int(match[1], 16):
            return False, f"the checksum in line {number} does not match: it was changed, or something before it"
        if not match and not _is_cut_off(line):
            if _has_checksum(line):
                return False, f"line {number} was changed: its checksum does not end it"
            if has_checksums:
                return False, f"line {number} was changed: it has no checksum, which the lines before it have"
        has_checksums = has_checksums or bool(match)
        end.add(line)
    return has_checksums, None


def _has_checksum(line: bytes) -> bool:
    """Check whether a line is an event with a checksum, in whatever place or form."""
    return _NAME in line and any("crc" in event for event in events_in(line))


def _is_cut_off(line: bytes) -> bool:
    """Check whether a line can be the beginning of a line with a checksum."""
    if line.endswith(b"\n"):
        return line.endswith(CUT_OFF + b"\n")
    return not _WITHIN.search(line) and not any(events_in(line))
