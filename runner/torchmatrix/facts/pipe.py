"""The border of a running box: each line that it prints is an event, a text for the log, or the end of the launch.

A box may be broken, or hostile: nothing that it prints may end the run, reach a reader unchecked or be kept beyond the limits.
Each line is checked here, once, while the launch runs. A line that is refused makes the launch `crashed`, and the box is ended.
"""

import json
from typing import Any

import orjson

from torchmatrix.facts import wire
from torchmatrix.facts.checked import Malformed
from torchmatrix.facts.events import PREFIX, Event, version_problem
from torchmatrix.ground.errors import LaunchFailed
from torchmatrix.ground.formatting import LONGEST, clipped, in_one_line
from torchmatrix.ground.settings import MEGABYTE

DEEPEST = 32
"""Levels of lists and objects in a line; the protocol needs five."""
_MARK = PREFIX.encode()
_REBUILD = "rebuild the image (torchmatrix build)"


class Refused(LaunchFailed):
    """The box wrote what no box may write; the text says what, and shows where it begins."""


def event_in(stream: str, line: bytes, line_mb: int) -> Event | None:
    """The event on a line of the box (with its line break); None for a text, which belongs into the log.

    `stream`: out or err, whose lines are all texts. A marked line without a line break is a text, too: the box was ended
    while it wrote. Raises Refused.
    """
    if stream != "out":
        return None
    if len(line) > line_mb * MEGABYTE:
        raise _refused(f"a line longer than {line_mb} MB (setting line_mb)", line)
    return _event(line) if line.startswith(_MARK) and line.endswith(b"\n") else None


def text_of(line: bytes) -> bytes:
    """The JSON of an event on a line of the box, as it was written."""
    return line[len(_MARK) :].strip()


def _event(line: bytes) -> Event:
    event = _parsed(line)
    if not isinstance(event, dict) or type(event.get("event")) is not str:
        raise _refused("a marked line that is no event", line)
    if problem := version_problem(event):
        raise Refused(problem)
    kind = event["event"]
    if kind in wire.HOST_EVENTS:
        raise _refused(f'an event "{kind}", which only the host may write', line)
    if kind not in wire.EVENTS:
        raise _refused(f"an event that protocol 1 does not have: {_REBUILD}", line)
    try:
        wire.check(event)
    except Malformed as why:
        raise _refused(f'an invalid "{kind}" line: {why}', line) from None
    return event


def _parsed(line: bytes) -> Any:
    """The JSON on a marked line, which has no NaN, no infinite number and at most DEEPEST levels."""
    text = line[len(_MARK) :]
    try:
        found = orjson.loads(text)
    except ValueError as error:
        found = _parsed_with_half_characters(text, line, str(error))
    if text.count(b"[") + text.count(b"{") > DEEPEST and _is_deep(found, DEEPEST):
        raise _refused(f"a line with more than {DEEPEST} levels of lists and objects", line)
    return found


def _parsed_with_half_characters(text: bytes, line: bytes, problem: str) -> Any:
    """Python's json writes half a character where a name is not UTF-8; it is replaced, since no file or table can hold it."""
    try:
        if b"\\ud" in text:
            return orjson.loads(json.dumps(json.loads(text.decode()), ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError) as error:
        problem = str(error)
    raise _refused(f"a marked line that is not JSON: {problem}", line)


def _is_deep(value: Any, levels: int) -> bool:
    inside = value.values() if type(value) is dict else value if type(value) is list else ()
    return levels == 0 or any(_is_deep(one, levels - 1) for one in inside if type(one) in (dict, list))


def _refused(what: str, line: bytes) -> Refused:
    begin = clipped(in_one_line(line[: 4 * LONGEST].decode(errors="replace")))
    return Refused(f"the box wrote {what}; the line begins: {begin}")
