"""The journal of nights, append-only like all facts, and what `nightly run` has to do now.

results/nightly/.lock                 who is running a night now
results/nightly/nights.jsonl          installations, starts and ends of nights
results/nightly/20250102T013000Z.log  every command of a night with its output, under the night's beginning in UTC
"""

import hashlib
import json
import os
import pwd
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from torchmatrix.core.errors import BadInput, EngineUnusable, ExitCode
from torchmatrix.core.files import hold_lock, plain_open
from torchmatrix.core.inputs import is_number
from torchmatrix.core.toml_keys import shown
from torchmatrix.engines.choose import VARIABLES
from torchmatrix.facts.lines import Event, read_lines
from torchmatrix.facts.store import run_event
from torchmatrix.machine import masks

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
    moment = f"the night of {moment_in_words(due)}"
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


def moment_in_words(moment: float) -> str:
    """A moment in this machine's time zone."""
    return time.strftime("%a %Y-%m-%d %H:%M:%S %Z", time.localtime(moment))


# What a timer needs to know of a night: when, which command, where, with which variables. Not who begins it.

Say = Callable[[str], None]
"""Tells the user a line."""
CATCH_UP_SECONDS = 300
"""So long after its start a machine is asked whether a night was missed or cut: booting disturbs what is measured."""
NOTE = "# written by: torchmatrix nightly install; taken away by: torchmatrix nightly remove"
_TAKEN = re.compile(
    rf"{VARIABLES}_\w+"
    rf"|(?i:(https?|ftp|all|no)_proxy)|(TORCHMATRIX|UV)_\w+|{'|'.join(masks.VARIABLES)}|XDG_(CONFIG|CACHE)_HOME"
    r"|PATH|HOME|LANG|LC_ALL|PYTHONPATH|PIP_INDEX_URL|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE",
    flags=re.ASCII,
)
"""The variables that decide what a run does or reaches; a timer starts with hardly any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timetable:
    """The nights of one matrix. `at`: HH:MM, local; `command`: the whole of a night's, with absolute paths; `folder`: where it
    was installed, and where nights are begun; `is_system`: for the machine, else for this user. `run_as`: the user who spends
    them, if it isn't the one who installs them."""

    matrix: Path
    results: Path
    at: str
    command: tuple[str, ...]
    folder: Path
    is_system: bool
    run_as: str | None = None

    @property
    def name(self) -> str:
        """What its units, files and crontab lines are called: another for every matrix file."""
        return name_for(self.matrix)

    @property
    def environment(self) -> Path:
        """The file of variables that its nights begin with; only its owner may read it."""
        return settings_folder() / f"{self.name}.env"


def name_for(matrix: Path) -> str:
    """torchmatrix-night- and eight characters of the hash of the matrix file's path."""
    return f"torchmatrix-night-{hashlib.sha256(os.fsencode(matrix.absolute())).hexdigest()[:8]}"


def settings_folder() -> Path:
    """Where the variables, the scripts for cron and what is installed stand, beside the user's settings."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "torchmatrix" / "nightly"


def timetable(
    matrix: Path, results: Path, at: str, words: Sequence[str], *, is_system: bool, run_as: str | None = None
) -> Timetable:
    """The nights that `words`, those after `torchmatrix`, begin from the current folder. Raises BadInput."""
    hour, minute = clock(at)
    command = (*own_command(), *words)
    for word in (*command, str(Path.cwd()), str(settings_folder())):
        if not word.isprintable():
            raise BadInput(f"a path or option holds what a unit or a crontab can't: {word!r}", hint="rename it")
    return Timetable(
        matrix=matrix.absolute(),
        results=results.absolute(),
        at=f"{hour:02}:{minute:02}",
        command=command,
        folder=Path.cwd(),
        is_system=is_system,
        run_as=run_as,
    )


def environment_of(run_as: str, here: Mapping[str, str]) -> dict[str, str]:
    """As `here`, with the home of another user. Raises BadInput if there is no such user, or if it is root."""
    try:
        entry = pwd.getpwnam(run_as)
    except (KeyError, ValueError):
        raise BadInput(f"there is no user {run_as!r}", hint="name an existing one: --run-as NAME") from None
    if entry.pw_uid == 0:
        raise BadInput("--run-as names root", hint="name an ordinary user, or leave it out")
    rest = {name: value for name, value in here.items() if not name.startswith("XDG_")}
    return {**rest, "HOME": entry.pw_dir}


def own_command() -> tuple[str, ...]:
    """What starts this very torchmatrix, whatever Python files lie in the current folder (-P is new in Python 3.11)."""
    return (sys.executable, *(("-P",) if sys.version_info >= (3, 11) else ()), "-m", "torchmatrix")


def variables_taken(here: Mapping[str, str]) -> dict[str, str]:
    """Those of this moment's variables that nights begin with."""
    return {name: value for name, value in here.items() if _TAKEN.fullmatch(name) and "\0" not in value}


def environment_text(variables: Mapping[str, str]) -> str:
    """Variables as both systemd's EnvironmentFile= and a shell read them."""
    lines = [NOTE]
    for name, value in sorted(variables.items()):
        quoted = re.sub(r'(["\\$`])', r"\\\1", value)
        lines.append(f'{name}="{quoted}"')
    return "\n".join(lines) + "\n"
