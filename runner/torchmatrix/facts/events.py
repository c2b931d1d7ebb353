"""One line of the workload's stdout -> Event: the host's half of the protocol (version 1)."""

import json
from typing import Any

VERSION = 1
PREFIX = "@matrix "

Event = dict[str, Any]
"""One protocol line: `event` names its kind, the other keys depend on it; unknown kinds and keys are kept."""


def parse_line(line: str) -> Event | None:
    """The event on a marked line; None for anything else, since entrypoints and libraries print what they like."""
    if not line.startswith(PREFIX):
        return None
    try:
        event = json.loads(line[len(PREFIX) :])
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def version_problem(event: Event) -> str | None:
    """Why a box's `hello` can't be understood, or None."""
    if event["event"] == "hello" and event.get("protocol") != VERSION:
        return f"the image speaks protocol {event.get('protocol')}, this tool speaks {VERSION}: rebuild it (torchmatrix build)"
    return None
