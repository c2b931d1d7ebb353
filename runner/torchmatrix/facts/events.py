"""The format of the lines: JSON objects with a kind, as the box prints them (version 1) and as they are stored on disk."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VERSION = 1
PREFIX = "@matrix "

Event = dict[str, Any]
"""One protocol line: `event` names its kind, the other keys depend on it; unknown kinds and keys are kept."""


def parse_line(line: str) -> Event | None:
    """The event on a marked line; None for anything else, since entrypoints and libraries may print anything."""
    if not line.startswith(PREFIX):
        return None
    try:
        event = json.loads(line[len(PREFIX) :])
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def version_problem(event: Event) -> str | None:
    """Why this tool can't read a box that says this `hello`, or None."""
    if event["event"] == "hello" and event.get("protocol") != VERSION:
        return f"the image speaks protocol {event.get('protocol')}, this tool speaks {VERSION}: rebuild it (torchmatrix build)"
    return None


def read_lines(path: Path) -> Iterator[Event]:
    """The events of a file of JSON lines; none if there is no file. Lines that are not events are skipped. Raises OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n"):
        try:
            event = json.loads(line) if line else None
            if b"\\ud" in line:  # perhaps half a character, which a box can print but no file or table can hold
                event = json.loads(json.dumps(event, ensure_ascii=False).encode(errors="replace"))
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            yield event
