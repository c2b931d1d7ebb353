"""One launch as its file tells it: outcome, first error, throughput. The outcome is derived, never stored."""

import json
import math
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.facts.events import Event, version_problem

UNFINISHED = ("interrupted", "lost")
"""Outcomes that a continued run measures again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One launch as read back: its header, the box's events in order, and its exit line (None: it was cut off)."""

    path: Path
    header: Event
    events: tuple[Event, ...]
    exit: Event | None

    def of(self, kind: str) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.events if event["event"] == kind]

    @property
    def outcome(self) -> str:
        """Derived, never stored: ok, oom, timeout, crashed, numerics, unsupported, build-failed, interrupted or lost."""
        if self.exit is None:
            return "lost"
        if self.exit.get("reason"):
            return str(self.exit["reason"])
        failures = self.of("failure")
        kinds = {failure["kind"] for failure in failures}
        if "oom" in kinds or self.exit.get("oom_killed"):
            return "oom"
        if failures:
            return str(failures[0]["kind"])
        complete = self.of("done") and measured(self) and not any(map(version_problem, self.of("hello")))
        return "ok" if complete and self.exit["returncode"] == 0 and not self.has_empty_window else "crashed"

    @property
    def has_empty_window(self) -> bool:
        """Did a timed window take no time on some rank? Then its clock is broken and there is no number."""
        return any(min(window["seconds"]) <= 0 for window in measured(self))

    @property
    def seconds(self) -> float:
        """From header to exit on the monotonic clock; NaN if it was cut off."""
        begin, end = (event.get("monotonic_seconds", math.nan) for event in (self.header, self.exit or {}))
        return float(end - begin)

    @property
    def error(self) -> str | None:
        """The first line that says what went wrong; None for an ok launch."""
        if self.outcome == "ok":
            return None
        if self.exit is None:
            return "the tool ended before the launch did"
        said = (
            next(filter(None, map(version_problem, self.of("hello"))), None)
            or self.exit.get("message")
            or next((f["message"].splitlines()[0] for f in self.of("failure") if f.get("message")), None)
            or ("a timed window took no time: the box's clock is broken" if self.has_empty_window else None)
            or _last_error(self.exit.get("tail", []))
            or _in_words(self.exit.get("returncode"))
        )
        return str(said)


def measured(launch: Launch) -> list[Event]:
    """The timed windows; warm-up blocks are kept in the file, never in the number."""
    return [sample for sample in launch.of("sample") if sample.get("phase") == "measure"]


def throughput(launch: Launch) -> float:
    """Items per second of an ok launch over all its timed windows; NaN for any other outcome."""
    if launch.outcome != "ok":
        return math.nan
    windows = measured(launch)
    seconds = sum(max(window["seconds"]) for window in windows)
    return sum(window["items"] for window in windows) / seconds if seconds > 0 else math.nan


def last_tries(launches: Iterable[Launch]) -> list[Launch]:
    """Of each launch the last try that came to its own end, else the last: what was measured again is not counted."""
    last: dict[tuple[Path, str], Launch] = {}
    for launch in launches:
        number = launch.path.stem.removeprefix("round").partition("-try")[0]
        key = (launch.path.parent, number)
        if key not in last or _rank(launch) > _rank(last[key]):
            last[key] = launch
    return list(last.values())


def _rank(launch: Launch) -> tuple[bool, int]:
    return launch.outcome not in UNFINISHED, int(launch.path.stem.partition("-try")[2])


def read_launch(path: Path) -> Launch:
    """Read one launch file; a last line that was cut off, or a file without a header, is no error."""
    lines = list(read_lines(path))
    header = lines[0] if lines and lines[0]["event"] == "launch" else {"event": "launch", "cell": "unknown"}
    last = lines[-1] if lines and lines[-1]["event"] == "exit" else None
    return Launch(path=path, header=header, events=tuple(lines[1:]), exit=last)


def read_lines(path: Path) -> Iterator[Event]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n"):
        try:
            event = json.loads(line) if line else None
            if b"\\ud" in line:  # perhaps half of a character, which a box can print and no file or table can hold
                event = json.loads(json.dumps(event, ensure_ascii=False).encode(errors="replace"))
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            yield event


def _last_error(tail: list[str]) -> str | None:
    """The last line that looks like an error."""
    said = [line.strip() for line in tail if "error" in line.lower() or "exception" in line.lower()]
    return said[-1] if said else None


def _in_words(returncode: int | None) -> str:
    """What an exit code says by itself: a signal's name, where it is one (as a process or a container reports it)."""
    number = -returncode if returncode and returncode < 0 else (returncode or 0) - 128
    if number in signal.valid_signals():
        return f"ended by {signal.Signals(number).name}"
    return f"exit code {returncode} and no message"
