"""The format of the lines: JSON objects with a kind, as the box prints them (version 1) and as they are stored on disk."""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from torchmatrix.facts.checked import short
from torchmatrix.ground import settings
from torchmatrix.ground.files import plain_bytes
from torchmatrix.ground.settings import MEGABYTE

VERSION = 1
PREFIX = "@matrix "

CUT_OFF = b" (cut off)"
"""Ends a line that a killed process or a full disk cut off, once another line follows."""

ARRIVED = "arrived_monotonic_seconds"
"""The field that the host adds to each line of a box: when it came, on the host's clock."""

Event = dict[str, Any]
"""One protocol line: `event` names its kind, the other keys depend on it; unknown kinds and keys are kept."""


def version_problem(event: Event) -> str | None:
    """Why this tool can't read a box that says this `hello`, or None."""
    if event["event"] == "hello" and event.get("protocol") != VERSION:
        said = short(event.get("protocol"))
        return f"the image speaks protocol {said}, this tool speaks {VERSION}: rebuild it (torchmatrix build)"
    return None


def most_bytes() -> int:
    """The largest file of lines that is read; a launch's exit line and the last reading may exceed its limit a little."""
    return 2 * settings.load().launch_file_mb * MEGABYTE


def read_lines(path: Path) -> Iterator[Event]:
    """The events of a file of JSON lines; none if there is no file. Raises OSError."""
    try:
        yield from events_in(as_written(plain_bytes(path, most_bytes())))
    except FileNotFoundError:
        return


def as_written(data: bytes, is_begin: bool = True) -> bytes:
    """Lines as the tool wrote them: other tools (Git's autocrlf, FTP, editors) change line ends and add a byte order mark."""
    data = data.removeprefix(codecs.BOM_UTF8) if is_begin else data
    return data.replace(b"\r\n", b"\n") if b"\r" in data else data


def events_in(data: bytes) -> Iterator[Event]:
    """The events in lines of JSON. Lines that are not events are skipped."""
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
        return _event_in_odd_json(line)
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _event_in_odd_json(line: bytes) -> Event | None:
    """As Python's json writes it, which orjson, four times as fast, refuses: NaN, Infinity, half a character."""
    try:
        event = json.loads(line.decode())  # of bytes it would guess the encoding
        if b"\\ud" in line:  # perhaps half a character, which a box can print but no file or table can hold
            event = json.loads(json.dumps(event, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
