"""The facts on disk: append-only JSON Lines, one file per launch, one per run, in folders.

results/.lock                                   who is running now
results/HOST/RUN/run.jsonl                      the run: host, matrix, planned cells, skips, its end
results/HOST/RUN/CELL/round1-try1.jsonl (.log)  one launch: header, the box's lines, telemetry, exit; the .log: other output
results/HOST/RUN/CELL/batch64-try1.jsonl        a trial: does this batch fit?
results/HOST/RUN/builds/STACK.log               build logs
results/HOST/RUN/locks/STACK.lock               what each stack's image was made of, exactly
results/HOST/RUN/pinned                         the user's mark: this run is never removed (see nightly.keeping)
"""

import calendar
import fcntl
import hashlib
import json
import math
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from torchmatrix.facts.events import Event, read_lines
from torchmatrix.facts.launch import UNFINISHED, Launch, Unreadable
from torchmatrix.facts.reading import launches_below, sorted_out
from torchmatrix.facts.run_record import RunRecord, record_of
from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.ground.files import write_whole

LOG_LIMIT_BYTES = 20_000_000
"""A launch's log is cut off here; a runaway print must not fill the disk."""
TAIL_LINES = 20
"""How many of the log's last lines the launch's exit line keeps."""
_STAMP = re.compile(r"([12]\d{3})(0[1-9]|1[0-2])(\d\d)T(\d\d)(\d\d)(\d\d)Z(-\d+)?", re.ASCII)


class LaunchFile:
    """Writes one launch as it happens; every line is on disk before the next one is read."""

    def __init__(self, path: Path, number: int = 1) -> None:
        """`number`: which try of this launch it is."""
        self.path, self.number = path, number
        self._events = _open_new(path)
        self._log: IO[bytes] | None = None
        self._logged = 0
        self._tail: list[str] = []
        self._lock = threading.Lock()
        self._is_over = False

    def event(self, kind: str, **fields: Any) -> None:
        """Append one of the host's own lines."""
        self.copy(_timed(kind, **fields))

    def copy(self, event: Event) -> None:
        """Append a line of the box unchanged; telemetry comes from another thread."""
        with self._lock:
            _write_line(self._events, event, self.path)

    def log(self, line: str) -> None:
        """Write an unmarked line to the log beside the file."""
        data = line.encode() + b"\n"
        self._tail = [*self._tail[1 - TAIL_LINES :], line[:500]]
        if self._logged + len(data) > LOG_LIMIT_BYTES:
            return
        if self._log is None:
            self._log = _open_new(self.path.with_suffix(".log"))
        self._logged += len(data)
        with _disk_errors(self.path):
            self._log.write(data)

    def close(self, **fields: Any) -> None:
        """Append the exit line, which completes the launch; a later reading is not written."""
        tail = self._tail if fields.get("reason") or fields.get("returncode") else []
        with self._lock:
            self._is_over = True
        self.event("exit", tail=tail, **fields)
        self.abandon()

    def telemetry(self, readings: list[dict[str, Any]]) -> None:
        """Append readings; comes from another thread, perhaps after the end."""
        with self._lock:
            if not self._is_over:
                _write_line(self._events, _timed("telemetry", readings=readings), self.path)

    def abandon(self) -> None:
        """Close the files without an exit line."""
        with self._lock:
            self._is_over = True
            self._events.close()
            if self._log is not None:
                self._log.close()


def _timed(kind: str, **fields: Any) -> Event:
    return {"event": kind, "unix_seconds": time.time(), "monotonic_seconds": time.monotonic(), **fields}


def run_event(kind: str, **fields: Any) -> Event:
    """A line of a run's record, with its time."""
    return {"event": kind, "unix_seconds": time.time(), **fields}


class RunFolder:
    """One run's folder: its own record and its launches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name

    @property
    def record(self) -> Path:
        """The run's own file."""
        return self.path / "run.jsonl"

    @property
    def started(self) -> float:
        """When it started, in unix seconds: from its id or (if the folder was renamed) its record; NaN if neither has it."""
        if stamp := _STAMP.fullmatch(self.id):
            return float(calendar.timegm(tuple(int(part) for part in stamp.groups()[:6])))
        return self.read_record().unix_seconds

    def append(self, kind: str, **fields: Any) -> None:
        """Append one line to the run's record."""
        with _disk_errors(self.record), self.record.open("ab", buffering=0) as file:
            _write_line(file, run_event(kind, **fields), self.record)

    def open_record(self, events: list[Event]) -> None:
        """Begin the run's record with everything that was planned; the file appears complete or not at all."""
        with _disk_errors(self.record):
            write_whole(self.record, b"".join(json.dumps(event).encode() + b"\n" for event in events))

    def new_launch(self, cell: str, number: int, trial: int | None = None) -> LaunchFile:
        """A fresh file for one launch of `cell` in round `number`, or for the `trial` of a batch; earlier tries stay."""
        folder = self.path / cell
        with _disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        name = f"round{number}" if trial is None else f"batch{trial}"
        tries = len(list(folder.glob(f"{name}-try*.jsonl")))
        return LaunchFile(folder / f"{name}-try{tries + 1}.jsonl", tries + 1)

    def tries(self, cell: str, number: int) -> int:
        """How many launches of this cell and round ended by themselves."""
        launches, _ = sorted_out(launches_below(self.path / cell, f"round{number}-try*.jsonl"))
        return sum(launch.outcome not in UNFINISHED for launch in launches)

    def of_cell(self, cell: str) -> list[Launch]:
        """The launches of one cell."""
        return sorted_out(launches_below(self.path / cell))[0]

    def is_done(self, cell: str, number: int) -> bool:
        """Whether this launch was completed, whatever its outcome, so that a continued run leaves it alone."""
        return self.tries(cell, number) > 0

    def lock_of(self, stack: str) -> Path:
        """The file that keeps what a stack was made of (see lockfile.StackLock.text)."""
        return self.path / "locks" / f"{stack}.lock"

    def keep_lock(self, stack: str, text: str) -> None:
        """Keep what the image of `stack` is made of."""
        path = self.lock_of(stack)
        with _disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def build_log(self, stack: str) -> Path:
        """Where the build log of a stack goes."""
        folder = self.path / "builds"
        with _disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{stack}.log"

    def events(self) -> list[Event]:
        """The lines of the run's own record; none if it can't be read."""
        with suppress(OSError):
            return list(read_lines(self.record))
        return []

    def read_record(self) -> RunRecord:
        """The run's own record."""
        return record_of(self.events())

    def everything(self) -> Iterator[Launch | Unreadable]:
        """All launches, and the launch files that can't be read, in the order of their paths."""
        return launches_below(self.path)

    def launches(self) -> list[Launch]:
        """All launches that can be read, in the order of their paths."""
        return sorted_out(self.everything())[0]


class Results:
    """A results folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @property
    def owner(self) -> str:
        """Marks this folder's containers and processes: one value per machine and folder."""
        return hashlib.sha256(f"{socket.gethostname()}:{self.root}".encode()).hexdigest()[:16]

    @property
    def lock_file(self) -> Path:
        """Names the process that is running now, which holds its lock."""
        return self.root / ".lock"

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the folder for one run. Raises EngineUnusable naming who holds it; a killed process no longer holds its lock."""
        with held(self.lock_file, f"another run holds {self.root}", "wait for it, or write elsewhere: --results DIR"):
            yield

    def runs(self) -> list[RunFolder]:
        """All runs, oldest first; runs with an unknown start come before all others."""
        found = [RunFolder(path.parent) for path in self.root.glob("*/*/run.jsonl")]
        return sorted(found, key=lambda run: (_or_never(run.started), run.id, run.path))

    def new_run(self, host: str) -> RunFolder:
        """A fresh folder named by the UTC time."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
            path = self.root / host / (stamp + suffix)
            with _disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError), _disk_errors(path, FileExistsError):
                path.mkdir()
                return RunFolder(path)
        raise EngineUnusable(f"can't make a folder for a new run under {self.root}", hint="try again in a second")

    def unfinished(self, host: str, key: str) -> RunFolder | None:
        """The newest run of `host` with the same request (`key`), if it is not complete."""
        for run in reversed([run for run in self.runs() if run.path.parent.name == host]):
            record = run.read_record()
            if record.key == key:
                return None if record.complete else run
        return None

    def seconds_by_cell(self, host: str) -> dict[str, float]:
        """How long the newest ok launch of each cell took on this host, for estimates."""
        known: dict[str, float] = {}
        for run in [run for run in self.runs() if run.path.parent.name == host][-3:]:
            for launch in run.launches():
                if launch.outcome == "ok" and not math.isnan(launch.seconds):
                    known[launch.cell] = launch.seconds
        return known


def _or_never(seconds: float) -> float:
    return -math.inf if math.isnan(seconds) else seconds


@contextmanager
def held(path: Path, complaint: str, hint: str) -> Iterator[None]:
    """Hold the lock file `path`, which names its holder. Raises EngineUnusable (`complaint` and the holder) if it is taken."""
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise EngineUnusable(f"{complaint}: {file.read().strip() or 'unknown'}", hint=hint) from None
        with _disk_errors(path):
            file.truncate(0)
            started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            file.write(f"process {os.getpid()} on {socket.gethostname()}, started {started}\n")
            file.flush()
        yield


def holder(path: Path) -> str | None:
    """Who holds the lock file `path`, as written in it; None if nobody does."""
    try:
        file = path.open()
    except OSError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read().strip() or "unknown"
    return None


def _write_line(file: IO[bytes], event: Event, path: Path) -> None:
    data = json.dumps(event).encode() + b"\n"
    with _disk_errors(path):
        while data:
            data = data[file.write(data) :]


def _open_new(path: Path) -> IO[bytes]:
    with _disk_errors(path):
        return path.open("xb", buffering=0)


@contextmanager
def _disk_errors(path: Path, expected: type[OSError] | None = None) -> Iterator[None]:
    """Turn a disk error into an error with a hint; what is written so far stays readable."""
    try:
        yield
    except OSError as error:
        if expected and isinstance(error, expected):
            raise
        raise EngineUnusable(
            f"can't write {path}: {error.strerror or error}",
            hint="free space or fix the permissions, or write elsewhere (--results DIR); the same command then continues",
        ) from None
