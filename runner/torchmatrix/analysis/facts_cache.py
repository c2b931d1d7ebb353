"""A cache of the facts of each run, so that the next reading needn't parse them again.

RESULTS/.cache/HOST/RUN is derived from the facts and may be deleted at any time. It begins with what histories and comparisons
read; what only a report needs follows. A run is read anew when one of its files has changed (name, size, time), or the code
that reads them; and where a cached file can't be read.
"""

import hashlib
import os
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import DecodeError, msgpack

from torchmatrix.analysis.launch_row import WholeRow
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.run_summary import RunDetails, RunFacts, RunSummary, WholeRun, read_facts, summary_from
from torchmatrix.core import assets
from torchmatrix.core.files import link_below, open_regular, plain_open, write_whole
from torchmatrix.core.formatting import is_known
from torchmatrix.facts.store import Results, RunFolder, folders_in, host_of

FOLDER = ".cache"
_LONGEST_LINE = 200
_KEY = re.compile(rb"[0-9a-f]{16} [0-9a-f]{64}( [0-9]+){2}\n")
"""The first line of a cached run: the code that read it, its files, the sizes of both parts."""
FOLDER_SIZE = -1
_YOUNG_NS = 3_000_000_000
"""The time of a folder is coarse: FAT counts in 2 s, the clock of a server may differ."""
_PACKAGES = ("core", "machine", "facts", "matrix", "planning", "analysis")
"""The packages that analysis may import: a change in any of them may change what is read from a launch's file."""

_summaries: msgpack.Decoder[RunFacts] = msgpack.Decoder(RunFacts[WholeRow])  # type: ignore[valid-type]
_details = msgpack.Decoder(RunDetails)


def read(results: Results, runs: Sequence[RunFolder], price_list: PriceList = NONE) -> list[RunSummary]:
    """Return the summaries of `runs`, in their order."""
    return list(each(results, runs, price_list))


def each(results: Results, runs: Sequence[RunFolder], price_list: PriceList = NONE) -> Iterator[RunSummary]:
    """Yield the summaries of `runs` one at a time, so that thousands of runs needn't be in memory at once."""
    if runs:
        forget_removed_runs(results)
    for run in runs:
        facts, _ = _kept_or_read(results, run, with_details=False)
        yield summary_from(run, facts).charged(price_list)


def whole(results: Results, run: RunFolder) -> WholeRun:
    """Return all of a run that a report shows."""
    forget_removed_runs(results)
    facts, details = _kept_or_read(results, run, with_details=True)
    return WholeRun(summary=summary_from(run, facts), details=details)


def whole_from_files(run: RunFolder) -> WholeRun:
    """Return the same from its files, without the cache."""
    facts, details = read_facts(run, 1)
    return WholeRun(summary=summary_from(run, facts), details=details)


def _kept_or_read(results: Results, run: RunFolder, with_details: bool) -> tuple[RunFacts, Any]:
    """Return the facts and, where they are asked for, the details that are cached of a run, else those that are read now and
    then cached."""
    path, key = results.root / FOLDER / host_of(run) / run.id, f"{code()} {_signature(run.path)}".encode()
    is_to_come = not is_known(run.started)  # what is read of it changes with the clock
    if is_to_come or _is_beyond(results.root, path.parent):
        return read_facts(run)
    with suppress(OSError, zlib.error, ValueError, DecodeError):
        return _kept(path, key, with_details)
    facts, details = read_facts(run)
    if not facts.is_lasting(run.path):
        return facts, details
    with suppress(OSError, OverflowError, ValueError):  # a full disk, a folder that can't be written; what msgpack can't hold
        _keep(results.root, path, key, facts, details)
    return facts, details


def _is_beyond(root: Path, folder: Path) -> bool:
    """Check whether a folder of the cache isn't ours, as it lies behind a link, or can't be looked at: it is left alone."""
    try:
        return link_below(root, folder) is not None
    except OSError:
        return True


def _kept(path: Path, key: bytes, with_details: bool) -> tuple[RunFacts, RunDetails | None]:
    """Return what was cached under this key.

    Raises OSError, ValueError, DecodeError or zlib.error for a file that can't be read, or was cached under another key.
    """
    with open_regular(path) as file:
        key_of_file, *sizes = file.readline(_LONGEST_LINE).rsplit(maxsplit=2)
        if key_of_file != key:
            raise ValueError("kept of other files")
        most = os.fstat(file.fileno()).st_size
        if not all(0 <= int(size) <= most for size in sizes):
            raise ValueError("a size that isn't one")
        facts = _summaries.decode(zlib.decompress(file.read(int(sizes[0]))))
        return facts, _details.decode(zlib.decompress(file.read(int(sizes[1])))) if with_details else None


def _keep(root: Path, path: Path, key: bytes, facts: RunFacts, details: RunDetails) -> None:
    if not root.is_dir():
        return  # it has gone meanwhile: nothing is made in its place
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = [zlib.compress(msgpack.encode(part), 1) for part in (facts, details)]
    sizes = " ".join(str(len(piece)) for piece in packed)
    write_whole(path, key + f" {sizes}\n".encode() + b"".join(packed))


def forget_removed_runs(results: Results) -> None:
    """Remove what is cached of runs that are no longer there: files that begin as ours do, in folders that are no links."""
    cache = results.root / FOLDER
    if cache.is_symlink():
        return
    for host in folders_in(str(cache), follow_links=False):
        with suppress(OSError), os.scandir(host) as runs:
            for run in runs:
                is_there = os.path.exists(f"{results.root}/{os.path.basename(host)}/{run.name}/run.jsonl")  # noqa: PTH110, PTH119
                if not is_there and _is_ours(Path(run.path)):
                    Path(run.path).unlink()


def _is_ours(path: Path) -> bool:
    """Check whether a file begins with the key of a cached run; a link never does. Raises OSError."""
    with plain_open(path, "rb") as file:
        return _KEY.match(file.readline(_LONGEST_LINE)) is not None


@cache
def code() -> str:
    """Return a hash of the code that reads facts, and of the data sheets: what was read by others is read again."""
    packages = [(Path(__file__).parents[1] / package).resolve(strict=True) for package in _PACKAGES]
    sources = sorted(path for package in packages for path in package.rglob("*.py"))
    read = [source.read_bytes() for source in (*sources, assets.PUBLISHED / "gpus.csv")]
    return hashlib.sha256(b"".join(read)).hexdigest()[:16]


def _signature(folder: Path) -> str:
    """Return a hash of the name, size and time of each file that counts; taken before these are read."""
    states = (f"{path} {size} {changed}" for path, size, changed in files_below(folder) if size != FOLDER_SIZE)
    return hashlib.sha256("\n".join(states).encode(errors="surrogateescape")).hexdigest()


def files_below(folder: Path) -> list[tuple[str, int, int]]:
    """Return path, size and time of change (in nanoseconds) of each file that counts, and of each folder, whose size is
    FOLDER_SIZE; paths begin below `folder`. Taken before these are read.

    A folder that changed just now may change again without a trace in its time: it has 0.
    """
    states, pending, root, now = [], [str(folder)], len(str(folder)), time.time_ns()
    while pending:
        folder_path = pending.pop()
        with suppress(OSError):
            changed = os.stat(folder_path).st_mtime_ns  # noqa: PTH116 (a path takes as long as the call)
            states.append((folder_path[root:], FOLDER_SIZE, changed if abs(now - changed) > _YOUNG_NS else 0))
            with os.scandir(folder_path) as entries:
                for entry in entries:
                    if entry.name.endswith(".jsonl"):
                        states.append((entry.path[root:], *_state(entry)))
                    elif entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    return sorted(states)


def _state(entry: os.DirEntry[str]) -> tuple[int, int]:
    try:
        state = entry.stat()
    except OSError:  # gone
        return 0, 0
    return state.st_size, state.st_mtime_ns
