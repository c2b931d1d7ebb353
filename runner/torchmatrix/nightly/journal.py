"""The journal of nights, append-only like all facts, and what `nightly run` has to do now.

results/nightly/.lock                 who is running a night now
results/nightly/nights.jsonl          installations, starts and ends of nights
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

from torchmatrix.facts.checked import is_number
from torchmatrix.facts.events import Event, read_lines
from torchmatrix.facts.store import run_event
from torchmatrix.ground.errors import BadInput, EngineUnusable, ExitCode
from torchmatrix.ground.files import hold_lock, plain_open
from torchmatrix.ground.toml_keys import shown

FOLDER = "nightly"
STAMP = re.compile(r"\d{8}T\d{6}Z(-\d+)?", flags=re.ASCII)
"""The names of nights, as of runs: the time in UTC, and a number where that was taken."""
CONTINUE_WITHIN_SECONDS = 12 * 3600
"""A night that was cut longer ago is not continued: a measurement now would no longer belong to that night."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Night:
    """One night. `id`: its beginning in UTC; `began`: the same in Unix seconds; the rest is None until it is known.

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
        """Killed, or interrupted: its end is not in the journal, or was not its own."""
        return self.exit_code in (None, ExitCode.INTERRUPTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Next:
    """What is to be done now: go on with a night that was cut, begin one, or nothing; `why`, as a sentence."""

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
            "wait until it ends; torchmatrix nightly status shows who runs it",
        )

    def log(self, night: str) -> Path:
        """The log of the night with that id."""
        return self.folder / f"{night}.log"

    def logs(self) -> list[Path]:
        """The logs of all nights, oldest first; other files in the folder are not ours."""
        return sorted(path for path in self.folder.glob("*.log") if STAMP.fullmatch(path.stem))

    def append(self, kind: str, **fields: Any) -> None:
        """Add one line, on disk when this returns; a line that was cut off before stays by itself."""
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
        """All lines that tell their time, or those about the nights of one matrix file: several may share a results folder."""
        timed = (event for event in read_lines(self.file) if is_number(event.get("unix_seconds")))
        return [event for event in timed if matrix is None or event.get("matrix") == str(matrix)]

    def nights(self, matrix: Path | None = None) -> list[Night]:
        """All nights, or those of one matrix file, oldest first."""
        return nights(self.events(matrix))

    def new_id(self) -> str:
        """A night's name that is not taken: the time in UTC."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        taken = {night.id for night in self.nights()}
        return next(name for name in (stamp, *(f"{stamp}-{n}" for n in range(2, 1000))) if name not in taken)


_KNOWN_AT_THE_END = ("exit_code", "seconds", "run", "gate", "summary")


def nights(events: Iterable[Event]) -> list[Night]:
    """The nights that the journal's lines tell of; one that is continued is again without an end."""
    found: dict[str, Night] = {}
    for event in events:
        name = str(event.get("night"))
        if event["event"] == "night":
            found[name] = replace(
                found.get(name, Night(id=name, began=event["unix_seconds"])),
                exit_code=None,
                seconds=None,
                gate=None,
                summary=None,
            )
        elif event["event"] == "night-exit" and name in found:
            found[name] = Night(id=name, began=found[name].began, **{key: event.get(key) for key in _KNOWN_AT_THE_END})
    return list(found.values())


def decide(events: list[Event], now: float, at: str | None) -> Next:
    """What to do at `now`, in Unix seconds. `at`: only if the night of the last HH:MM has not been measured."""
    known = nights(events)
    last = known[-1] if known else None
    if last and last.was_cut and 0 <= now - last.began < CONTINUE_WITHIN_SECONDS:
        return Next(is_due=True, continues=last, why=f"continues the night {last.id}, which was cut short")
    if at is None:
        return Next(is_due=True, why="a new night")
    due = last_time(at, now)
    moment = f"the night of {in_words(due)}"
    if any(event["event"] == "installed" and due <= event["unix_seconds"] <= now for event in events):
        return Next(is_due=False, why=f"nothing is missed: {moment} was before the installation")
    measured = [night for night in known if due <= night.began <= now and night.run and not night.was_cut]
    if measured:
        return Next(is_due=False, why=f"nothing is missed: {moment} is {measured[-1].id}")
    return Next(is_due=True, why=f"makes up for {moment}, which was missed")


def clock(at: str) -> tuple[int, int]:
    """Hour and minute of HH:MM. Raises BadInput."""
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", at, flags=re.ASCII)
    if not found:
        raise BadInput(f'"{shown(at)}" is not a time of day', hint="hours and minutes of this machine's clock, such as 02:30")
    return int(found[1]), int(found[2])


def last_time(at: str, now: float) -> float:
    """The newest moment up to `now` at which the clocks here showed `at`; both in Unix seconds."""
    moment = _today(at, now)
    return (moment if moment.timestamp() <= now else moment - timedelta(days=1)).timestamp()


def _today(at: str, now: float) -> datetime:
    hour, minute = clock(at)
    return datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=0, microsecond=0)


def in_words(moment: float) -> str:
    """A moment in this machine's time zone."""
    return time.strftime("%a %Y-%m-%d %H:%M:%S %Z", time.localtime(moment))
