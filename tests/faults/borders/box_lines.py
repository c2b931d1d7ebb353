"""Lines that a workload prints, changed at random: each is an event, a text, or refused with a reason.

Nothing else is raised.
"""

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from support.records import launch_lines
from torchmatrix.facts import reading
from torchmatrix.facts.launch_file import Refused, event_in
from torchmatrix.facts.lines import End, append, lines_of
from torchmatrix.facts.reveals import HOST_LINES
from torchmatrix.facts.wire import EVENTS

WRONG: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 1.5, -0.0, 1e308, 5e-324, 10**18, 10**400, float("nan"), float("inf"), "", "x", "\ud800",
    "\x1b[2J", "é" * 100, [], [None], [[]], [[[]]], [1, "x"], {}, {"x": {}}, [{}], [{"name": 1}], [1e300, 1e300],
)  # fmt: skip
_RECORDED = Path(__file__).parents[2] / "data/recorded"


class _Sink:
    """A file in memory that keeps what was appended."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)


def cases(random: Random) -> Iterator[Callable[[], None]]:
    events = _good_events()
    while True:
        yield partial(_try_line, _bad_line(random, random.choice(events)))


def _good_events() -> list[dict[str, Any]]:
    recorded = next(_RECORDED.rglob("round1-try1.jsonl")).read_text().splitlines()
    return [*launch_lines()[1:-1], *(json.loads(line) for line in recorded[1:-1])]


def _bad_line(random: Random, event: dict[str, Any]) -> bytes:
    how = random.randrange(6)
    if how == 0:
        return _with_other_bytes(random, _line(event))
    if how == 1:
        return _line(event)[: random.randrange(200)] + random.choice((b"", b"\n"))
    if how == 2:
        return _line({**event, "event": random.choice((*EVENTS, *HOST_LINES, "future", ""))})
    if how == 3:
        begin, end = random.choice((("[", "]"), ('{"x":', "}")))
        return (
            b'@matrix {"event":"done","x":'
            + (begin * (n := random.choice((5, 31, 40, 990, 5000))) + "1" + end * n).encode()
            + b"}\n"
        )
    return _line(changed(random, event))


def changed(random: Random, value: Any) -> Any:
    """Return a copy with one part, at any depth, replaced by something wrong, left out or, of a list, of another length."""
    whole = copy.deepcopy(value)
    inside, key = whole, None
    parts: list[tuple[Any, Any]] = []
    while isinstance(inside, (dict, list)) and inside and (key is None or random.random() < 0.6):
        key = random.choice(list(inside)) if isinstance(inside, dict) else random.randrange(len(inside))
        parts.append((inside, key))
        inside = inside[key]
    if parts:
        place, key = parts[-1]
        if random.random() < 0.2:
            del place[key]
        elif isinstance(place[key], list) and random.random() < 0.5:  # of another length than its neighbours
            place[key] = random.choice((place[key][:-1], [*place[key], *place[key][-1:]], 2 * place[key]))
        else:
            place[key] = copy.deepcopy(random.choice(WRONG))
    return whole


def _line(event: dict[str, Any]) -> bytes:
    return b"@matrix " + json.dumps(event).encode() + b"\n"


def _with_other_bytes(random: Random, line: bytes) -> bytes:
    content = bytearray(line)
    for _ in range(random.randrange(1, 5)):
        content[random.randrange(len(content))] = random.randrange(256)
    return bytes(content)


def _try_line(line: bytes) -> None:
    """Try a line.

    Accepted means: it can be stored, is read back as it is, and becomes a launch's fields without a complaint.
    """
    try:
        event = event_in("out", line, 1)
    except Refused as why:
        assert str(why).isprintable() and len(str(why)) < 400, why
        return
    if event is None:
        assert not line.startswith(b"@matrix ") or not line.endswith(b"\n"), line
        return
    sink = _Sink()
    append(sink, event, End())  # type: ignore[arg-type]  # what it needs of a file is `write`
    stored = lines_of(sink.data)
    sent = {key: value for key, value in event.items() if key != "crc"}
    assert stored.verified and stored.events == [sent], line
    fields = reading.launch_fields(stored.events)
    assert fields["malformed"] is None and fields["refused"] is None, (line, fields)
