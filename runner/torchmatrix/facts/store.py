"""The facts on disk: append-only JSON Lines, one file per launch, one per run, in folders.

results/.lock                                   who is running now
results/HOST/RUN/run.jsonl                      the run: host, matrix, planned cells, skips, its end; HOST: see Results.home
results/HOST/RUN/CELL/round1-try1.jsonl (.log)  one launch: header, the workload's lines, telemetry, exit; .log: other output
results/HOST/RUN/CELL/batch64-try1.jsonl        a trial: does this batch fit?
results/HOST/RUN/CELL/probe2-try1.jsonl         a probe: do launches on other devices disturb this one? Or it only warms up
results/HOST/RUN/builds/STACK.log               build logs
results/HOST/RUN/locks/STACK.lock               the exact content of each stack's image
results/HOST/RUN/models/PATH                    the users' own models as they were measured, below the folder of the matrix
results/HOST/RUN/pinned                         the user's mark: this run is never removed (see nightly.keeping)
"""

import calendar
import hashlib
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from torchmatrix.core import inputs, settings
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.files import disk_errors, hold_lock, make_below, plain_bytes, plain_open, write_whole
from torchmatrix.core.formatting import as_text
from torchmatrix.core.toml_keys import shown
from torchmatrix.facts import lines
from torchmatrix.facts.launch import UNFINISHED, Launch, Unreadable
from torchmatrix.facts.launch_file import LaunchFile
from torchmatrix.facts.lines import Event, Lines, most_bytes
from torchmatrix.facts.parts import RUN_ID
from torchmatrix.facts.reading import Place, launch_files, launch_of, launches_below, misplaced, sorted_out
from torchmatrix.facts.run_record import RunRecord, begin_of, header_of, mark_of, record_of

IDENTITY_DIGITS = 6
"""The digits of a machine's identity that distinguish its folder from that of another machine with the same name."""


def run_event(kind: str, **fields: Any) -> Event:
    """Make a line of a run's record, with its time."""
    return {"event": kind, "unix_seconds": time.time(), **fields}


def keep_model(folder: Path, path: str, content: bytes) -> Path:
    """Keep the file of a user's own model as it is measured, below `folder`; return the path, which is read only."""
    place = folder / path
    with disk_errors(place):
        if not place.exists() or place.read_bytes() != content:
            make_below(folder.parent.parent, place.parent)
            write_whole(place, content)
            place.chmod(0o444)
    return place


NO_RECORD = "it does not begin with the line of a run"
_MOVE_BACK = "what is in it belongs into a plain folder: move it back, or begin a new run (--new); free space if it is full"
"""The hint where the folder of a cell can't be made."""


class RunFolder:
    """One run's folder: its own record and its launches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self._end, self._read_bytes = lines.End(), 0

    @cached_property
    def stamp(self) -> float | None:
        """Return the second of the name that the run was given; None if its folder was renamed."""
        stamp = RUN_ID.fullmatch(self.id)
        return float(calendar.timegm(tuple(map(int, stamp.groups()[:6])))) if stamp else None

    @property
    def record(self) -> Path:
        """Return the path of the run's own file."""
        return self.path / "run.jsonl"

    @property
    def started(self) -> float:
        """Return when the run started, in unix seconds: from its id or, if the folder was renamed, its record; else NaN.

        A time that lies in the future is ignored.
        """
        if self.stamp is not None and not inputs.is_to_come(self.stamp):
            return self.stamp
        return self.read_record().unix_seconds

    def append(self, kind: str, **fields: Any) -> None:
        """Append one line to the run's record."""
        with disk_errors(self.record), plain_open(self.record, "a+b", buffering=0) as file:
            file.seek(self._read_bytes)
            self._end.add(file.read())
            lines.append(file, run_event(kind, **fields), self._end)
            self._read_bytes = file.tell()

    def open_record(self, events: list[Event]) -> None:
        """Begin the run's record with everything that was planned. The file appears complete or not at all; on failure, an
        empty folder is removed. Raises EngineUnusable.
        """
        try:
            with disk_errors(self.record):
                write_whole(self.record, lines.packed(events))
        except EngineUnusable:
            with suppress(OSError):
                self.path.rmdir()
            raise

    def new_launch(self, cell: str, number: int, kind: str = "round") -> LaunchFile:
        """Create a file for one launch of `cell` in round `number`; earlier tries stay.

        `kind`: round, batch (a trial of the batch `number`) or probe (the `number`-th whose figure doesn't count).
        """
        folder = self.path / cell
        with disk_errors(folder, hint=_MOVE_BACK):
            make_below(self.path, folder)
        name = f"{kind}{number}"
        taken = {path.stem for path in folder.glob(f"{name}-try*.*")}  # also where somebody removed the launch, but not its log
        for tries in count(1 + len(taken)):
            with suppress(FileExistsError):  # made meanwhile, by another node of a cluster
                return LaunchFile(folder / f"{name}-try{tries}.jsonl", tries)
        raise AssertionError("a count has no end")

    def tries(self, cell: str, number: int) -> int:
        """Count the launches of this cell and round that ended by themselves."""
        launches, _ = sorted_out(launches_below(self.path / cell, f"round{number}-try*.jsonl", self.place()))
        return sum(launch.outcome not in UNFINISHED for launch in launches)

    def of_cell(self, cell: str) -> list[Launch]:
        """Read the launches of one cell."""
        return sorted_out(launches_below(self.path / cell, run=self.place()))[0]

    def is_done(self, cell: str, number: int) -> bool:
        """Check whether this launch was completed, with any outcome, so that a continued run leaves it alone."""
        return self.tries(cell, number) > 0

    def lock_of(self, stack: str) -> Path:
        """Return the path of the file that keeps the content of a stack (see lockfile.StackLock.text)."""
        return self.path / "locks" / f"{stack}.lock"

    def keep_lock(self, stack: str, text: str) -> None:
        """Write the file that keeps the content of the image of `stack`."""
        path = self.lock_of(stack)
        with disk_errors(path):
            make_below(self.path, path.parent)
            write_whole(path, text.encode())

    @property
    def models(self) -> Path:
        """Return the folder that keeps the users' own models, by their paths in the matrix."""
        return self.path / "models"

    def build_log(self, stack: str) -> Path:
        """Return the path of the build log of a stack, and make its folder."""
        folder = self.path / "builds"
        with disk_errors(folder):
            make_below(self.path, folder)
        return folder / f"{stack}.log"

    def lines(self) -> Lines:
        """Read the lines of the run's own record; if it can't be read, none, and the damage says why."""
        return lines.read(self.record)

    def events(self) -> list[Event]:
        """Read the events of the run's own record, whatever their checksums say."""
        return self.lines().events

    def read_record(self) -> RunRecord:
        """Read the run's own record."""
        content = self.lines()
        first = content.events[0]["event"] if content.events else None
        is_none = first != "run" and (content.events or self.record.is_file())
        return record_of(content.events, content.verified, content.damage or (NO_RECORD if is_none else None))

    def begin(self) -> bytes:
        """Read the first line of the run's own record, since there may be thousands of runs; empty if it can't be read."""
        return begin_of(self.path)

    def read_header(self) -> RunRecord:
        """Read the run's own record up to its first line; empty if that can't be read."""
        return header_of(self.path)

    def mark(self) -> tuple[str, ...] | None:
        """Return what the begin of the run's own record says of which run it is (mark_of)."""
        return mark_of(self.begin())

    def place(self, record: RunRecord | None = None) -> Place:
        """Return what the launches in this folder must belong to. `record`: the run's own, where it has been read."""
        begin = self.read_header() if record is None else record
        nodes = frozenset(node.name for node in begin.scheduler.nodes)
        return Place(run=self.path, machine=begin.machine, nodes=nodes)

    def everything(self) -> Iterator[Launch | Unreadable]:
        """Read all launches, and the launch files that can't be read, in the order of their paths."""
        return launches_below(self.path, run=self.place())

    def launches(self) -> list[Launch]:
        """Read all launches that can be read, in the order of their paths."""
        return sorted_out(self.everything())[0]


def run_around(path: Path) -> RunFolder | None:
    """Return the run that a file or folder lies in, or is; None if it lies in none."""
    return next((run for run in map(RunFolder, (path.absolute(), *path.absolute().parents)) if run.record.is_file()), None)


class Listed(NamedTuple):
    """The runs of a results folder, oldest first, and what is left out of them.

    `misnamed`: folders whose names, or whose hosts' names, are no UTF-8: no page or table could name them. `copies`: folders
    that somebody copied, with the run that each is a copy of: it would count twice. `unread`: folders, and links, that can't
    be read or followed, and why.
    """

    runs: list[RunFolder]
    misnamed: list[Path]
    copies: dict[RunFolder, RunFolder]
    unread: dict[str, str]

    @property
    def left_out(self) -> dict[str, str]:
        """Return why each folder is left out, by its path."""
        misnamed = {as_text(path): "its name is not UTF-8; rename it" for path in self.misnamed}
        copies = {str(run.path): f"it is a copy of {host_of(one)}/{one.id}" for run, one in self.copies.items()}
        return {**misnamed, **{path: f"it can't be read: {why}" for path, why in self.unread.items()}, **copies}


class Results:
    """A results folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @property
    def owner(self) -> str:
        """Return the mark of this folder's containers and processes: one value per machine and folder."""
        mark = f"{settings.node_name()}:{self.root}"
        return hashlib.sha256(mark.encode(errors="surrogateescape")).hexdigest()[:16]

    @property
    def lock_file(self) -> Path:
        """Return the path of the file that names the running process, which holds its lock."""
        return self.root / ".lock"

    @property
    def profiled_models(self) -> Path:
        """Return the folder of the users' own models that were profiled last."""
        return self.root / ".cache" / "models"

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the folder for one run. Raises EngineUnusable naming who holds it; a killed process no longer holds its lock."""
        with hold_lock(self.lock_file, f"another run holds {self.root}", "wait for it, or write elsewhere: --results DIR"):
            yield

    def runs(self) -> list[RunFolder]:
        """List all runs but those that are left out, oldest first; runs with an unknown start come before all others."""
        return self.listed().runs

    def listed(self) -> Listed:
        """List all runs, and what is left out of them."""
        found, misnamed, unread = [], [], dict[str, str]()
        for place in folders_in(str(self.root), unread):
            for path in () if os.path.basename(place).startswith(".") else folders_in(place, unread):  # noqa: PTH119
                with _noting(path, unread):
                    os.stat(f"{path}/run.jsonl")  # noqa: PTH116 (a Path takes ten times as long)
                    name = path[len(place) - len(os.path.basename(place)) :]  # noqa: PTH119
                    found.append(RunFolder(Path(path))) if name == as_text(name) else misnamed.append(Path(path))
        runs = in_order(found)
        copies = copies_among(runs)
        return Listed(runs=[run for run in runs if run not in copies], misnamed=sorted(misnamed), copies=copies, unread=unread)

    def home(self, host: str, machine: str | None) -> str:
        """Return the folder for the runs of this machine: its host's name, with the identity's start if another machine has it.

        A folder whose runs don't record their machine (of earlier versions) is taken to be this machine's.
        """
        longer = f"{host}-{(machine or '')[:IDENTITY_DIGITS]}"
        machines = {name: self._machine_in(name) for name in (host, longer)}
        if machine:
            for name in (host, longer):
                if machines[name] == machine:
                    return name
        return host if machine is None or machines[host] is None else longer

    def _machine_in(self, host: str) -> str | None:
        """Return the identity in the newest run of a host's folder that records it."""
        runs = reversed([run for run in self.runs() if run.path.parent.name == host])
        return next(filter(None, (run.read_record().machine for run in runs)), None)

    def new_run(self, host: str) -> RunFolder:
        """Create a folder below `host` (see `home`), named by the UTC time."""
        stamp = stamp_of(time.time())
        for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
            path = self.root / host / (stamp + suffix)
            with disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError), disk_errors(path, FileExistsError):
                path.mkdir()
                return RunFolder(path)
        raise EngineUnusable(f"can't make a folder for a new run under {self.root}", hint="try again in a second")

    def named_run(self, host: str, name: str) -> RunFolder:
        """Return the run of this name in the folder `host`; make its folder if it isn't there."""
        path = self.root / host / name
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        return RunFolder(path)

    def unfinished(self, host: str, key: str) -> RunFolder | None:
        """Return the newest run in the folder `host` with the same request (`key`), if it is not complete."""
        for run in reversed(self._of_host(host)):
            record = run.read_record()
            if record.key == key:
                return None if record.complete else run
        return None

    def newest_complete(self, host: str) -> RunFolder | None:
        """Return the newest complete run in the folder `host`."""
        return next((run for run in reversed(self._of_host(host)) if run.read_record().complete), None)

    def finished(self, host: str, key: str) -> list[RunFolder]:
        """List the complete runs in the folder `host` with the same request (`key`), oldest first."""
        return [run for run in self._of_host(host) if (record := run.read_record()).key == key and record.complete]

    def _of_host(self, host: str) -> list[RunFolder]:
        return [run for run in self.runs() if run.path.parent.name == host]

    def seconds_by_cell(self, host: str, method: str) -> dict[str, list[float]]:
        """Return the seconds of each cell's ok launches by a method, in the newest of the host's last 3 runs that has some."""
        cells: dict[str, list[float]] = {}
        for run in self._of_host(host)[-3:]:
            newer: dict[str, list[float]] = {}
            for launch in run.launches():
                if launch.is_ok and launch.method.name == method and not math.isnan(launch.seconds):
                    newer.setdefault(launch.cell, []).append(launch.seconds)
            cells |= newer
        return cells


def folders_in(path: str, unread: dict[str, str] | None = None, *, follow_links: bool = True) -> list[str]:
    """List the folders in a folder, also those that links lead to. Add what can't be read or followed to `unread`, with the
    reason; what has gone is neither.
    """
    folders, lost = list[str](), {} if unread is None else unread
    with _noting(path, lost), os.scandir(path) as entries:
        for entry in entries:
            with _noting(entry.path, lost):
                if entry.is_dir(follow_symlinks=follow_links):
                    folders.append(entry.path)
    return folders


@contextmanager
def _noting(path: str, lost: dict[str, str]) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        lost[path] = error.strerror or str(error)


def in_order(runs: Iterable[RunFolder]) -> list[RunFolder]:
    """Sort runs, oldest first: those with an unknown start before all others, those of one second by their numbers."""

    def key(run: RunFolder) -> tuple[float, int, str, Path]:
        started = run.started
        return -math.inf if math.isnan(started) else started, _number(run), run.id, run.path

    return sorted(runs, key=key)


def _number(run: RunFolder) -> int:
    """Return the number of a run among those of its second, from its id; 0 if that has none."""
    stamp = RUN_ID.fullmatch(run.id)
    return -int(stamp[7]) if stamp and stamp[7] else 0


def copies_among(runs: Sequence[RunFolder]) -> dict[RunFolder, RunFolder]:
    """Return each copy among `runs` with its original: their records say that they are one run.

    The original is in the folder of its machine, with the name that runs are given; of several it has the most launches. A run
    that was renamed may be a copy of any, others only of runs of the same second: most records need not be looked into.
    """
    seconds = Counter(run.stamp for run in runs)
    same: dict[tuple[str, ...], list[RunFolder]] = {}
    for run in runs:
        if (None in seconds or seconds[run.stamp] > 1) and (mark := run.mark()):
            same.setdefault(mark, []).append(run)

    def place(run: RunFolder) -> tuple[int, bool, int, int, Path]:
        return _strangeness(run), run.stamp is None, _number(run), -len(launch_files(run.path)), run.path

    found = [sorted(alike, key=place) for alike in same.values() if len(alike) > 1]
    return {copy: original for original, *copies in found for copy in copies}


def _strangeness(run: RunFolder) -> int:
    """Return 0 for a run in the folder of its host and machine, 1 in that of its host, else 2 (see Results.home)."""
    record, folder = run.read_header(), run.path.parent.name
    host = str(record.host.get("name"))
    begin, _, digits = folder.rpartition("-")
    is_own = begin == host and len(digits) >= IDENTITY_DIGITS and (record.machine or "").startswith(digits)
    return 0 if is_own else 1 if folder == host else 2


# Selection of runs by words: last, last~2, last-7d, all, an id; narrowed by date and by host

WORDS = "last, last~1 (the one before), last-7d (or h, w), all, a run's id, or HOST/ID"
_BACK = re.compile(r"last(?:~([0-9]{1,6}))?")
_AGE = re.compile(r"last-([0-9]{1,6})([hdw])")
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}


def select(
    results: Results, word: str = "last", since: str | None = None, host: str | None = None,
    all_runs: Sequence[RunFolder] | None = None,
) -> list[RunFolder]:  # fmt: skip
    """Return the runs that `word` names, oldest first; never none.

    `word`: last (the newest); last~N (N before the newest); last-7d, last-12h, last-2w (started within that time before now);
    all; a run's id, or HOST/RUN if several hosts have a run of that id. `since`: started on that day or later
    (2026-01-31, or 2026-01-31T12:00; UTC unless it says otherwise). `host`: the name of its folder. Date and host narrow the
    runs first: last is then the newest of the rest. `all_runs`: as results.runs() listed them. Raises BadInput naming the known
    runs.
    """
    runs = results.runs() if all_runs is None else all_runs
    begin = None if since is None else _moment(since)
    narrowed = [run for run in runs if host in (None, host_of(run)) and (begin is None or run.started >= begin)]
    chosen = find(narrowed, word)
    if not chosen:
        what = "no runs" if word in ("last", "all") else f"no run {shown(word)}"
        narrowing = (f" of host {host}" if host else "") + (f" since {since}" if since else "")
        raise BadInput(f"{what} in {results.root}{narrowing}", hint=_list_runs(runs))
    if len(chosen) > 1 and chosen[0].id == chosen[-1].id == word:
        hosts = ", ".join(host_of(run) for run in chosen)
        raise BadInput(f"several hosts have a run {word}: {hosts}", hint=f"name the host too: {host_of(chosen[0])}/{word}")
    return chosen


def select_each(results: Results, words: Sequence[str], since: str | None = None, host: str | None = None) -> list[RunFolder]:
    """Return the runs that any of `words` names, each once, oldest first; never none. Raises BadInput as `select` does."""
    runs = {run.path: run for word in words for run in select(results, word, since, host)}
    return in_order(runs.values())


def undated(runs: Iterable[RunFolder]) -> list[RunFolder]:
    """Return the runs whose start is unknown or lies in the future, in order: none of them is ever the last."""
    return in_order(run for run in runs if math.isnan(run.started))


def select_one(results: Results, word: str = "last", since: str | None = None, host: str | None = None) -> RunFolder:
    """Return the one run that `word` names, as `select` does. Raises BadInput if the word names several."""
    runs = select(results, word, since, host)
    if len(runs) > 1:
        raise BadInput(f"{word} names {len(runs)} runs; one is needed", hint=_list_runs(runs))
    return runs[0]


def find(runs: Sequence[RunFolder], word: str) -> list[RunFolder]:
    """Return those of `runs` (oldest first) that `word` names, as in `select`; none if it names none."""
    if word == "all":
        return list(runs)
    if back := _BACK.fullmatch(word):
        dated = [run for run in runs if not math.isnan(run.started)] or runs  # of undated ones alone the newest is the last
        place = len(dated) - 1 - int(back[1] or 0)
        return [dated[place]] if place >= 0 else []
    if age := _AGE.fullmatch(word):
        begin = time.time() - int(age[1]) * _SECONDS[age[2]]
        return [run for run in runs if run.started >= begin]
    return [run for run in runs if word in (run.id, f"{host_of(run)}/{run.id}")]


def counts_back(word: str) -> bool:
    """Check whether a word is last or last~N, whatever files are called."""
    return _BACK.fullmatch(word) is not None


def stamp_of(seconds: float) -> str:
    """Return the id of a run that begins then: its UTC time."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(seconds))


def host_of(run: RunFolder) -> str:
    """Return the name of the host of a run."""
    return run.path.parent.name


def _moment(text: str) -> float:
    """Return the unix seconds of a date or time; UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(f'"{shown(text)}" is not a date', hint="write it as 2026-01-31, or 2026-01-31T12:00 (UTC)") from None


def short_names(runs: Sequence[RunFolder]) -> list[str]:
    """Return the ids of runs; HOST/ID where several hosts have a run of one id."""
    ids = Counter(run.id for run in runs)
    return [run.id if ids[run.id] == 1 else f"{host_of(run)}/{run.id}" for run in runs]


def _list_runs(runs: Sequence[RunFolder]) -> str:
    hosts = sorted({host_of(run) for run in runs})
    several = f" (hosts: {', '.join(hosts)})" if len(hosts) > 1 else ""
    newest = ", ".join(short_names(runs)[-5:]) or "none"
    return f"runs there: {newest}{several}; name one by: {WORDS}" if runs else "measure first: torchmatrix run"


# Verification of a results folder: which launch files match their checksums


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """The number of launch files: `verified`: checksums match; `unverified`: of earlier versions, which wrote none.

    `unreadable`: the others, and the lines of the runs' records that can't be read.
    """

    verified: int
    unverified: int
    unreadable: tuple[Unreadable, ...]


def verified(results: Results) -> Verified:
    """Verify all launches of all runs. Reads every file, but parses only its first and last line."""
    counts, unreadable = {True: 0, False: 0}, []
    for run in results.runs():
        record = run.read_record()
        unreadable += [Unreadable(path=run.record, reason=problem) for problem in record.problems]
        place = run.place(record)
        for path in launch_files(run.path):
            outcome = _verify(path, place)
            if isinstance(outcome, Unreadable):
                unreadable.append(outcome)
            else:
                counts[outcome] += 1
    return Verified(verified=counts[True], unverified=counts[False], unreadable=tuple(unreadable))


def _verify(path: Path, run: Place) -> bool | Unreadable:
    try:
        content = lines.ends_of(plain_bytes(path, most_bytes()))
    except OSError as error:
        return Unreadable(path=path, reason=error.strerror or str(error))
    damage = content.damage_of_launch or (f"line {content.unreadable} is no line of facts" if content.unreadable else None)
    launch = Unreadable(path=path, reason=damage) if damage else launch_of(path, content.events, content.verified)
    if isinstance(launch, Unreadable):
        return launch
    why = misplaced(path, launch, run)
    return Unreadable(path=path, reason=why) if why else launch.verified
