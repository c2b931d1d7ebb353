"""Keep the journal of nights, append-only like all facts, and decide what `nightly run` has to do now.

results/nightly/.lock                 who is running a night now
results/nightly/nights.jsonl          starts and ends of nights
results/nightly/20250102T013000Z.log  every command of a night with its output, under the night's beginning in UTC
"""

import json
import os
import re
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from torchmatrix.core.errors import BadInput, EngineUnusable, ExitCode
from torchmatrix.core.files import hold_lock, plain_open
from torchmatrix.core.inputs import is_number
from torchmatrix.core.toml_keys import shown
from torchmatrix.facts.lines import Event, read_lines
from torchmatrix.facts.store import run_event

FOLDER = "nightly"
STAMP = re.compile(r"\d{8}T\d{6}Z(-\d+)?", flags=re.ASCII)
"""The names of nights and of runs: the time in UTC, and a number where that name was taken."""
CONTINUE_WITHIN_SECONDS = 12 * 3600
"""A night that began longer ago is not continued: a measurement now would no longer belong to that night."""
FIRST_WITHIN_SECONDS = 600
"""Where no night was measured yet, the first begins at its time, or so shortly after it: it can't have been missed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Night:
    """One night. `id`: its beginning in UTC; `began`: the same in Unix seconds; the other fields are None until the night ends.

    `run`: HOST/RUN; `gate`: the gate's verdict in a word or two.
    """

    id: str
    began: float
    exit_code: int | None = None
    seconds: float | None = None
    run: str | None = None
    gate: str | None = None
    summary: str | None = None

    @property
    def was_cut(self) -> bool:
        """Check whether the night was killed or interrupted: its end is not in the journal, or was an interruption."""
        return self.exit_code in (None, ExitCode.INTERRUPTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Next:
    """The decision what to do now: continue a night that was cut, begin one, or nothing; `why`: the reason as a sentence."""

    is_due: bool
    why: str
    continues: Night | None = None


class Journal:
    """The nights of one results folder."""

    def __init__(self, results: Path) -> None:
        self.folder = results.absolute() / FOLDER
        self.file = self.folder / "nights.jsonl"
        self.lock_file = self.folder / ".lock"

    def lock(self) -> AbstractContextManager[None]:
        """Hold the folder for one night. Raises EngineUnusable naming who holds it."""
        return hold_lock(
            self.lock_file,
            f"another night holds {self.folder}",
            "wait until it ends",
        )

    def log(self, night: str) -> Path:
        """Return the log file of the night with that id."""
        return self.folder / f"{night}.log"

    def logs(self) -> list[Path]:
        """Return the log files of all nights, oldest first; other files in the folder are not ours."""
        return sorted(path for path in self.folder.glob("*.log") if STAMP.fullmatch(path.stem))

    def append(self, kind: str, **fields: Any) -> None:
        """Append an event, on disk when this returns; an earlier line that was cut off stays a line of its own."""
        line = json.dumps(run_event(kind, **fields)).encode() + b"\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with plain_open(self.file, "a+b") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - 1, 0))
                file.write(line if file.read() in (b"", b"\n") else b"\n" + line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise EngineUnusable(
                f"can't write {self.file}: {error.strerror or error}",
                hint="free space or fix the permissions, or write elsewhere: --results DIR",
            ) from None

    def events(self, matrix: Path | None = None) -> list[Event]:
        """Read all events with a time, or those of the nights of one matrix file: several may share a results folder."""
        timed = (event for event in read_lines(self.file) if is_number(event.get("unix_seconds")))
        return [event for event in timed if matrix is None or event.get("matrix") == str(matrix)]

    def nights(self, matrix: Path | None = None) -> list[Night]:
        """Return all nights, or those of one matrix file, oldest first."""
        return nights(self.events(matrix))

    def new_id(self) -> str:
        """Return a night's name that is not taken: the time in UTC."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        taken = {night.id for night in self.nights()}
        return next(name for name in (stamp, *(f"{stamp}-{n}" for n in range(2, 1000))) if name not in taken)


_END_FIELDS = ("exit_code", "seconds", "run", "gate", "summary")


def nights(events: Iterable[Event]) -> list[Night]:
    """Return the nights in the journal's events; a night that is continued has no end again."""
    by_id: dict[str, Night] = {}
    for event in events:
        name = str(event.get("night"))
        if event["event"] == "night":
            night = by_id.get(name) or Night(id=name, began=event["unix_seconds"])
            by_id[name] = replace(night, exit_code=None, seconds=None, gate=None, summary=None)
        elif event["event"] == "night-exit" and name in by_id:
            end: dict[str, Any] = {key: event.get(key) for key in _END_FIELDS}
            by_id[name] = Night(id=name, began=by_id[name].began, **{**end, "run": end["run"] or by_id[name].run})
    return list(by_id.values())


def decide(events: list[Event], now: float, at: str | None) -> Next:
    """Decide what to do at `now`, in Unix seconds. `at`: begin a night only if that of the last HH:MM was not measured.

    A night whose name is damaged is not continued: the name is that of its log.
    """
    past = nights(events)
    last = past[-1] if past else None
    if last and last.was_cut and STAMP.fullmatch(last.id) and 0 <= now - last.began < CONTINUE_WITHIN_SECONDS:
        return Next(is_due=True, continues=last, why=f"continues the night {last.id}, which was cut short")
    if at is None:
        return Next(is_due=True, why="a new night")
    due = last_time(at, now)
    moment = f"the night of {moment_in_words(due)}"
    if not past and now - due > FIRST_WITHIN_SECONDS:
        return Next(is_due=False, why=f"nothing is missed: no night was measured before {moment}")
    measured = [night for night in past if due <= night.began <= now and night.run and not night.was_cut]
    if measured:
        return Next(is_due=False, why=f"nothing is missed: {moment} is {measured[-1].id}")
    is_on_time = now - due <= FIRST_WITHIN_SECONDS
    return Next(is_due=True, why=moment if is_on_time else f"makes up for {moment}, which was missed")


def clock(at: str) -> tuple[int, int]:
    """Parse HH:MM into hour and minute. Raises BadInput."""
    match = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", at, flags=re.ASCII)
    if not match:
        raise BadInput(f'"{shown(at)}" is not a time of day', hint="hours and minutes of this machine's clock, such as 02:30")
    return int(match[1]), int(match[2])


def last_time(at: str, now: float) -> float:
    """Return the newest moment up to `now` at which the clocks here showed `at`; both moments in Unix seconds. A time that
    they show twice counts at the first; one that they skip, when they are changed.
    """
    hour, minute = clock(at)
    today = datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
    moments = (_moment_of(today - timedelta(days=days)) for days in (0, 1))
    return next(moment for moment in moments if moment <= now)


def _moment_of(local: datetime) -> float:
    """Return the Unix seconds of a local time; of one that the clocks skip those of the change."""
    after = local.timestamp()
    if datetime.fromtimestamp(after) == local:
        return after
    before = int(local.replace(fold=1).timestamp())
    offset = time.localtime(before).tm_gmtoff
    return float(next(moment for moment in range(before, int(after) + 1) if time.localtime(moment).tm_gmtoff != offset))


def moment_in_words(moment: float) -> str:
    """Format a moment in this machine's time zone."""
    return time.strftime("%a %Y-%m-%d %H:%M:%S %Z", time.localtime(moment))
