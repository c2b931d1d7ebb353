"""One file per metric with what histories and gates read of each run, so that the next reading opens only runs that changed.

RESULTS/.cache/METRIC.runs is derived from the facts and may be deleted at any time. After a line that names the code that wrote
it, records are only appended, each as its length, its CRC-32 and msgpack. Reading ends at the first one that is damaged or cut
off; the runs of those that are lost are read again. Values that many runs have in common, such as environments, stand in it
once.
"""

import fcntl
import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeVar

from msgspec import DecodeError, Struct, msgpack
from msgspec.structs import replace

from torchmatrix.analysis import metrics
from torchmatrix.analysis.facts_cache import FOLDER, FOLDER_SIZE, code, files_below, forget_removed_runs
from torchmatrix.analysis.launch_row import night_row
from torchmatrix.analysis.metrics import THROUGHPUT, Metric
from torchmatrix.analysis.rows import CellNight, NightRow
from torchmatrix.analysis.run_summary import NightRun, RunFacts, processes_for, read_night, shared_out, summary_from
from torchmatrix.core.files import make_below, plain_open
from torchmatrix.core.formatting import as_text, is_known
from torchmatrix.facts.launch import Unreadable
from torchmatrix.facts.store import Results, RunFolder, host_of

_HEAD = struct.Struct("<II")
_RUNS_PER_PIECE = 32
"""Runs that are read together, and appended together."""
_SHARED = "shared"
"""The name under which an environment that is kept has the key of its values."""
Read = TypeVar("Read")
Files = tuple[tuple[str, int, int], ...]
"""See facts_cache.files_below."""


class _Entry(Struct, array_like=True, tag=True, frozen=True):
    """One run. `run`: HOST/ID; `shared`: the keys of the values that `summary` and `rows`, both packed, share with others."""

    run: str
    shared: tuple[str, ...]
    files: Files
    summary: bytes
    rows: bytes


class _Value(Struct, array_like=True, tag=True, frozen=True):
    """A value that several entries share; `key`: its hash."""

    key: str
    value: str | dict[str, str]


class _Begin(Struct, array_like=True, tag="_Entry", frozen=True):
    """The begin of an entry, which is read alone where the rest isn't needed yet."""

    run: str
    shared: tuple[str, ...]


_Record = _Entry | _Value
_begins, _entries = msgpack.Decoder(_Begin | _Value), msgpack.Decoder(_Entry)
_rows = msgpack.Decoder(tuple[list[CellNight], list[tuple[str, str]]])


def summaries(results: Results, runs: Sequence[RunFolder], metric: Metric = THROUGHPUT) -> list[NightRun]:
    """Return the summaries of `runs`, in their order."""
    index = _updated(results, runs, metric)
    return [summary_from(run, index.summary(run)) for run in runs]


def rows(
    results: Results, runs: Sequence[RunFolder], unreadable: list[Unreadable], metric: Metric = THROUGHPUT
) -> Iterator[CellNight]:
    """Return history.rows_of each of `runs`, in their order; add their files that can't be read to `unreadable`. Call it before
    numpy is loaded: see run_summary.read_parts.
    """
    return _rows_in(_updated(results, runs, metric), runs, unreadable)


def _rows_in(index: "_Index", runs: Sequence[RunFolder], unreadable: list[Unreadable]) -> Iterator[CellNight]:
    for run in runs:
        rows_of_run, files = index.rows(run)
        unreadable += [Unreadable(path=Path(as_text(run.path) + path), reason=reason) for path, reason in files]
        yield from rows_of_run


def _updated(results: Results, runs: Sequence[RunFolder], metric: Metric) -> "_Index":
    """Return the index, in which all of `runs` are as they are now."""
    index = _Index(
        path=results.root / FOLDER / f"{metric.name}.runs", metric=metric.name,
        head=f"torchmatrix {code()} {metric.name}\n".encode(), wanted={_name(run) for run in runs},
        facts=msgpack.Decoder(RunFacts[night_row(metric)]),  # type: ignore[misc]
    )  # fmt: skip
    forget_removed_runs(results)
    index.load(lambda name: name in index.wanted or os.path.exists(f"{results.root}/{name}/run.jsonl"))  # noqa: PTH110 (a Path takes ten times as long)
    stale = [run for run in runs if not _is_current(run, index.files(run))]
    pieces = [stale[begin : begin + _RUNS_PER_PIECE] for begin in range(0, len(stale), _RUNS_PER_PIECE)]
    for records in shared_out(partial(_records, name=metric.name), pieces, processes_for(len(stale))):
        index.add(records)
    return index


def _name(run: RunFolder) -> str:
    return f"{host_of(run)}/{run.id}"


def _is_current(run: RunFolder, files: Files) -> bool:
    """Check whether the files of a run are those of its entry; its folders are listed only where one of them has changed.

    A run whose start isn't known has no entry that counts: it may be still to come, until the clock is put right.
    """
    if not is_known(run.started):
        return False
    root = str(run.path)
    try:
        for path, size, changed in files:
            state = os.stat(root + path)  # noqa: PTH116 (a Path takes as long as the call)
            if state.st_mtime_ns != changed or size not in (FOLDER_SIZE, state.st_size):
                return _plain(files) == _plain(files_below(run.path))
    except OSError:
        return False
    return bool(files)


def _plain(files: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    return [file for file in files if file[1] != FOLDER_SIZE]


def _records(runs: Sequence[RunFolder], name: str) -> list[_Record]:
    """Read runs for the metric of this name; return their entries, and before these the values that they share."""
    from torchmatrix.analysis.history import rows_of  # with numpy, which several processes load only once they have begun

    metric = metrics.named(name)
    values: dict[str, _Record] = {}
    entries: list[_Record] = []
    for run in runs:
        below = files_below(run.path) if is_known(run.started) else ()  # before they are read
        files = tuple((as_text(path), size, changed) for path, size, changed in below)
        facts = read_night(run, metric)
        files = files if facts.is_lasting(run.path) else ()  # it is read again
        summary = summary_from(run, facts)
        shared: dict[str, _Record] = {}
        environments = {stack: {_SHARED: _share(shared, told)} for stack, told in facts.environments.items()}
        kept = replace(facts, matrix=_share(shared, facts.matrix), environments=environments)
        of_run = [
            replace(row, host="", run="", started=0.0, told={_SHARED: _share(shared, row.told)})
            for row in rows_of(summary, metric)
        ]  # fmt: skip
        unreadable = [*facts.unreadable_launches, *facts.problems]
        entries.append(
            _Entry(
                run=_name(run), shared=tuple(shared), files=files,
                summary=msgpack.encode(kept), rows=msgpack.encode((of_run, unreadable)),
            )
        )  # fmt: skip
        values |= shared
    return [*values.values(), *entries]


def _share(shared: dict[str, _Record], value: Any) -> str:
    key = hashlib.blake2b(msgpack.encode(value), digest_size=12).hexdigest()
    shared.setdefault(key, _Value(key=key, value=value))
    return key


@dataclass(kw_only=True)
class _Index:
    """The index as read, and as it is appended to. `metric`: its name; `head`: its first line; `wanted`: the runs whose entries
    are kept in memory, in `packed`; `facts`: reads a run's summary; `values`: what entries share, by key.
    """

    path: Path
    metric: str
    head: bytes
    wanted: set[str]
    facts: msgpack.Decoder[RunFacts[NightRow]]
    packed: dict[str, bytes] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    _end: int = 0
    """Up to here the file is as this command read or wrote it; 0: nothing of it counts."""

    def load(self, is_there: Callable[[str], bool]) -> None:
        """Read the file, as far as it is sound. Write it anew if it has entries of runs that are gone, or many old ones."""
        if self.path.parent.is_symlink():
            return
        with suppress(OSError), plain_open(self.path, "rb") as file:
            if file.read(len(self.head)) == self.head:
                runs = [record.run for record in self._take(file) if isinstance(record, _Begin)]
                self._end = file.tell()
                names = set(filter(is_there, set(runs)))
                if len(names) < len(set(runs)) or len(runs) > 2 * len(names) + _RUNS_PER_PIECE:
                    self._write_anew(names)

    def files(self, run: RunFolder) -> Files:
        """Return the files of a run when it was read; none if it is not in the index."""
        with suppress(LookupError, DecodeError):
            return _entries.decode(self.packed[_name(run)]).files
        return ()

    def summary(self, run: RunFolder) -> RunFacts[NightRow]:
        """Return the facts of a run's summary."""

        def read(entry: _Entry) -> RunFacts[NightRow]:
            kept = self.facts.decode(entry.summary)
            environments = {stack: self.values[key[_SHARED]] for stack, key in kept.environments.items()}
            return replace(kept, matrix=self.values[kept.matrix], environments=environments)

        return self._of(run, read)

    def rows(self, run: RunFolder) -> tuple[list[CellNight], list[tuple[str, str]]]:
        """Return the rows of a run, and its files that can't be read, and why."""

        def read(entry: _Entry) -> tuple[list[CellNight], list[tuple[str, str]]]:
            of_run, unreadable = _rows.decode(entry.rows)
            names: dict[str, Any] = {"host": host_of(run), "run": run.id, "started": run.started}
            return [replace(row, told=self.values[row.told[_SHARED]], **names) for row in of_run], unreadable

        return self._of(run, read)

    def _of(self, run: RunFolder, read: Callable[[_Entry], Read]) -> Read:
        """Return what `read` makes of a run's entry; one that somebody else wrote, in another shape, is made anew."""
        with suppress(LookupError, DecodeError):
            return read(_entries.decode(self.packed[_name(run)]))
        self.add(_records([run], self.metric))
        return read(_entries.decode(self.packed[_name(run)]))

    def add(self, records: Iterable[_Record]) -> None:
        """Append records, without values that it has, to the file too unless that can't be written."""
        new = [record for record in records if isinstance(record, _Entry) or record.key not in self.values]
        framed = b"".join(map(_framed, map(msgpack.encode, new)))
        for _ in self._take(BytesIO(framed)):
            pass
        with suppress(OSError):
            self._write(framed)

    def _write_anew(self, names: set[str]) -> None:
        """Leave out all but the last entries of these runs, and what only others shared. Raises OSError."""
        with plain_open(self.path, "rb") as file:
            file.seek(len(self.head))
            last = {record.run: (record, packed) for record, packed in _sound(file) if isinstance(record, _Begin)}
        kept = [last[name] for name in sorted(names & last.keys())]  # another command may have written it anew meanwhile
        used = dict.fromkeys(key for entry, _ in kept for key in entry.shared)
        values = [msgpack.encode(_Value(key=key, value=self.values[key])) for key in used if key in self.values]
        self._end = 0
        self._write(b"".join(map(_framed, [*values, *(packed for _, packed in kept)])))

    def _take(self, file: IO[bytes]) -> Iterator[_Begin | _Value]:
        """Take in the sound records that follow, and yield them. An entry counts if all that it shares is there."""
        for record, packed in _sound(file):
            if isinstance(record, _Value):
                self.values[record.key] = record.value
            elif record.run in self.wanted and self.values.keys() >= set(record.shared):
                self.packed[record.run] = packed
            yield record

    def _write(self, framed: bytes) -> None:
        """Write behind what is sound, whatever another command has appended or damaged meanwhile. Raises OSError."""
        make_below(self.path.parents[1], self.path.parent)
        with plain_open(self.path, "ab"):  # makes it
            pass
        with plain_open(self.path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not self._end or file.read(len(self.head)) != self.head:
                framed, self._end = self.head + framed, 0
            file.seek(self._end)
            if self._end:
                for _ in _sound(file):
                    pass
            file.truncate()
            file.write(framed)
            self._end = file.tell()


def _sound(file: IO[bytes]) -> Iterator[tuple[_Begin | _Value, bytes]]:
    """Yield the records that follow, each as it is read and as it stands there, up to the first that is damaged or cut off;
    the file is then at the end of the last one.
    """
    while True:
        place, head = file.tell(), file.read(_HEAD.size)
        if len(head) == _HEAD.size:
            length, checksum = _HEAD.unpack(head)
            packed = file.read(length)
            if len(packed) == length and zlib.crc32(packed) == checksum:
                with suppress(DecodeError):
                    yield _begins.decode(packed), packed
                    continue
        file.seek(place)
        return


def _framed(packed: bytes) -> bytes:
    return _HEAD.pack(len(packed), zlib.crc32(packed)) + packed
