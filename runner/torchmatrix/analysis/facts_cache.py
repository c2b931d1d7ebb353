"""The index of a results folder: what was read of each run, kept so that the next reading needn't parse its facts again.

One SQLite file, RESULTS/.index.sqlite, derived from the facts: it may be deleted at any time, and is rebuilt. A run is read
anew when one of its files has changed (name, size, time), or the code that reads them. Where the index can't be used, since it
is locked, damaged, or the folder can't be written, the facts are read as if there were none.
"""

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any

from torchmatrix import __version__
from torchmatrix.facts.environments import Environment, environment_of
from torchmatrix.facts.launch import Launch, last_tries
from torchmatrix.facts.run_words import host_of
from torchmatrix.facts.store import Results, RunFolder

NAME = ".index.sqlite"
_OURS = 0x746D6978
"""SQLite's application_id: what has another one was not made here, or for another layout of the table."""
_WAIT_SECONDS = 1.0
"""For another process that is writing the index; after that the facts are read without it."""
_BATCH = 32
"""So many runs are written at once: an interrupted first reading keeps most of its work."""
_MADE_BY = (
    "analysis/tables.py", "analysis/comparable.py", "analysis/facts_cache.py", "analysis/watched.py", "facts/environments.py",
    "facts/launch.py", "facts/events.py", "facts/store.py", "machine/telemetry/__init__.py", "matrix/method.py",
)  # fmt: skip
"""The sources that decide what is read from a launch's file."""

Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Indexed:
    """One run as read: what it says of itself, and its launches.

    `host`: the name of its folder. `started`: unix seconds, NaN if unknown. `header`: the first line of its record. `planned`:
    ids of the cells that were to run; `skipped`: the reason by cell id. `launches`: rows of tables.launch_rows, of each
    launch the last try; tables.table_of makes a table of them. `environments`: by stack, of the launch on the most devices
    in which the box told of itself.
    """

    id: str
    host: str
    path: Path
    started: float
    complete: bool
    header: dict[str, Any]
    planned: tuple[str, ...]
    skipped: dict[str, str]
    launches: tuple[dict[str, Any], ...]
    environments: dict[str, Environment]


def read(results: Results, runs: Sequence[RunFolder]) -> list[Indexed]:
    """What the facts of `runs` say, in their order."""
    return list(each(results, runs))


def each(results: Results, runs: Sequence[RunFolder]) -> Iterator[Indexed]:
    """As `read`, one run at a time, so that thousands of runs needn't be in memory at once."""
    if not runs:
        return
    fresh: list[tuple[str, str, bytes]] = []
    with closing(_Index(results.root / NAME)) as index:
        index.forget([place for place in index.places() if not (results.root / place / "run.jsonl").exists()])
        try:
            for run in runs:
                place, signature = f"{host_of(run)}/{run.id}", _signature(run.path)
                facts = _unpacked(index.get(place, signature))
                if facts is None:
                    facts = _facts(run)
                    fresh.append((place, signature, _packed(facts)))
                if len(fresh) >= _BATCH:
                    index.put(fresh)
                    fresh = []
                yield _indexed(run, facts)
        finally:
            index.put(fresh)


class _Index:
    """The SQLite file. One that can't be used knows nothing and keeps nothing; one that is damaged is made anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._open()

    def places(self) -> list[str]:
        """The runs that it knows."""
        return [place for (place,) in self._query("SELECT place FROM runs")]

    def get(self, place: str, signature: str) -> bytes | None:
        """What was read of a run, if its files and the code that read them are still the same."""
        key = (place, signature, _schema())
        found = self._query("SELECT facts FROM runs WHERE place = ? AND signature = ? AND schema = ?", key)
        return found[0][0] if found and isinstance(found[0][0], bytes) else None

    def put(self, runs: Sequence[tuple[str, str, bytes]]) -> None:
        """Keep what was read: (place, signature, facts) of each run."""
        self._change("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", [(p, _schema(), s, f) for p, s, f in runs])

    def forget(self, places: Sequence[str]) -> None:
        """Drop runs that are no more."""
        self._change("DELETE FROM runs WHERE place = ?", [(place,) for place in places])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _open(self) -> None:
        for _ in range(2):
            try:
                self._connection = _connected(self._path)
                return
            except sqlite3.OperationalError:
                return
            except sqlite3.DatabaseError:
                self._remove()

    def _query(self, statement: str, values: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        if self._connection is None:
            return []
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            self._give_up(error)
            return []

    def _change(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if self._connection is None or not rows:
            return
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(statement, rows)
        except sqlite3.DatabaseError as error:
            self._give_up(error)

    def _give_up(self, error: sqlite3.DatabaseError) -> None:
        """Locked, read-only or full: go on without. Damaged: begin a new one."""
        self.close()
        if not isinstance(error, sqlite3.OperationalError):
            self._remove()
            self._open()

    def _remove(self) -> None:
        for path in (self._path, self._path.with_name(f"{NAME}-journal")):
            with suppress(OSError):
                path.unlink()


def _connected(path: Path) -> sqlite3.Connection:
    """Raises sqlite3.OperationalError where the file can't be used, another DatabaseError where it is none of ours."""
    connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
    try:
        if connection.execute("PRAGMA application_id").fetchone() == (_OURS,):
            return connection
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("PRAGMA application_id").fetchone() == (_OURS,):  # another process was first
                return connection
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                raise sqlite3.DatabaseError("made by somebody else")
            connection.execute(f"PRAGMA application_id = {_OURS}")
            connection.execute("CREATE TABLE runs (place TEXT PRIMARY KEY, schema TEXT, signature TEXT, facts BLOB)")
        return connection
    except sqlite3.DatabaseError:
        connection.close()
        raise


@cache
def _schema() -> str:
    """Changes with the code that reads facts, so that what older code has read is read again."""
    sources = [Path(__file__).parents[1] / name for name in _MADE_BY]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources if source.is_file()))
    return f"{__version__} {digest.hexdigest()[:16]}"


def _signature(folder: Path) -> str:
    """Changes with the name, size or time of any file that counts; taken before these are read."""
    found, pending, root = [], [str(folder)], len(str(folder))
    while pending:
        inside = pending.pop()
        with suppress(OSError), os.scandir(inside) as entries:
            for entry in entries:
                if entry.name.endswith(".jsonl"):
                    found.append(f"{entry.path[root:]} {_state(entry)}")
                elif entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return hashlib.sha256("\n".join(sorted(found)).encode(errors="surrogateescape")).hexdigest()


def _state(entry: os.DirEntry[str]) -> str:
    try:
        state = entry.stat()
    except OSError:
        return "gone"
    return f"{state.st_size} {state.st_mtime_ns}"


def _facts(run: RunFolder) -> Facts:
    """All that is kept of a run, from its files; the paths of its launches are relative to it."""
    from torchmatrix.analysis import tables

    events, launches = run.events(), last_tries(run.launches())
    root = len(str(run.path))
    return {
        "header": next((event for event in events if event["event"] == "run"), {}),
        "complete": any(event["event"] == "run-exit" and bool(event.get("complete")) for event in events),
        "planned": [event["cell"] for event in events if event["event"] == "planned"],
        "skipped": {event["cell"]: str(event.get("reason")) for event in events if event["event"] == "skip"},
        "environments": _environments(launches),
        "launches": [row | {"path": row["path"][root:]} for row in tables.launch_rows(launches)],
    }


def _environments(launches: Sequence[Launch]) -> dict[str, Environment]:
    chosen: dict[str, tuple[tuple[bool, int], Launch]] = {}
    for launch in launches:
        stack = launch.header.get("stack", {}).get("name")
        rank = (bool(launch.of("environment")), len(launch.header.get("gpus", {}).get("indices", ())))
        if stack and (stack not in chosen or rank > chosen[stack][0]):
            chosen[stack] = (rank, launch)
    return {stack: environment_of(launch) for stack, (_, launch) in chosen.items()}


def _indexed(run: RunFolder, facts: Facts) -> Indexed:
    root = str(run.path)
    return Indexed(
        id=run.id,
        host=host_of(run),
        path=run.path,
        started=run.started,
        complete=facts["complete"],
        header=facts["header"],
        planned=tuple(facts["planned"]),
        skipped=facts["skipped"],
        launches=tuple(row | {"path": root + row["path"]} for row in facts["launches"]),
        environments=facts["environments"],
    )


def _packed(facts: Facts) -> bytes:
    """The launches by columns, what is the same in all of them once: a third of the size, and of the time to read it."""
    rows = facts["launches"]
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    same = {name: values[0] for name, values in columns.items() if _are_same(values)}
    table = {
        "count": len(rows),
        "names": list(columns),
        "tuples": [name for name, values in columns.items() if isinstance(values[0], tuple)],
        "same": same,
        "each": {name: values for name, values in columns.items() if name not in same},
    }
    return zlib.compress(json.dumps(facts | {"launches": table}).encode(), 1)


def _unpacked(packed: bytes | None) -> Facts | None:
    """What was packed; None for what can't be read."""
    if packed is None:
        return None
    try:
        facts: Facts = json.loads(zlib.decompress(packed))
        table = facts["launches"]
        each, same = table["each"], table["same"]
        for name in table["tuples"]:
            if name in each:
                each[name] = [tuple(value) for value in each[name]]
            else:
                same[name] = tuple(same[name])
        names, count = table["names"], table["count"]
        columns = [each[name] if name in each else repeat(same[name], count) for name in names]
        facts["launches"] = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    except (zlib.error, ValueError, KeyError, TypeError):
        return None
    return facts


def _are_same(values: Sequence[Any]) -> bool:
    """Could one of them stand for all? Not 1 for True, but one NaN for another."""
    first = values[0]
    return all(type(v) is type(first) and (v == first or (v != v and first != first)) for v in values)
