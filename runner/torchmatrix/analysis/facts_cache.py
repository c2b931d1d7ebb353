"""A cache of the facts of each run, so that the next reading needn't parse them again.

RESULTS/.cache/HOST/RUN is derived from the facts and may be deleted at any time. It begins with what histories and comparisons
read; what only a report needs follows. A run is read anew when one of its files has changed (name, size, time), or the code
that reads them; and where a cached file can't be read.
"""

import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar

from torchmatrix.analysis import run_summary
from torchmatrix.analysis.launch_row import columns_of
from torchmatrix.analysis.prices import NONE, PriceList, charge
from torchmatrix.analysis.run_summary import MOST_PROCESSES, RunDetails, RunSummary, details_from, read_parts, summary_from
from torchmatrix.core import assets
from torchmatrix.core.files import link_below, open_regular, plain_open, write_whole
from torchmatrix.core.formatting import is_known
from torchmatrix.facts.store import Results, RunFolder, folders_in, host_of

T = TypeVar("T")
FOLDER = ".cache"
_LONGEST_LINE = 200
_KEY = re.compile(rb"[0-9a-f]{16} [0-9a-f]{64}( [0-9]+){2}\n")
"""The first line of a cached run: the code that read it, its files, the sizes of both parts."""
FOLDER_SIZE = -1
_YOUNG_NS = 3_000_000_000
"""The time of a folder is coarse: FAT counts in 2 s, the clock of a server may differ."""
_PACKAGES = ("core", "machine", "facts", "matrix", "planning", "analysis")
"""The packages that analysis may import: a change in any of them may change what is read from a launch's file."""

Facts = dict[str, Any]


def read(results: Results, runs: Sequence[RunFolder], price_list: PriceList = NONE) -> list[RunSummary]:
    """Return the summaries of `runs`, in their order."""
    return list(each(results, runs, price_list))


def each(results: Results, runs: Sequence[RunFolder], price_list: PriceList = NONE) -> Iterator[RunSummary]:
    """Yield the summaries of `runs` one at a time, so that thousands of runs needn't be in memory at once."""
    if runs:
        forget_removed_runs(results)
    for run in runs:
        summary = _cached_or_read(results, run, lambda facts: summary_from(run, facts[0]), 1)  # noqa: B023 (called at once)
        charge(summary.launches, price_list)
        yield summary


def details(results: Results, run: RunFolder) -> RunDetails:
    """Return the details of a run that a report shows."""
    forget_removed_runs(results)
    return _cached_or_read(results, run, lambda facts: _details(run, facts), 2)


def details_of(run: RunFolder) -> RunDetails:
    """Return the details of a run from its files, without the cache."""
    return _details(run, _facts(run, 1))


def _details(run: RunFolder, facts: Sequence[Facts]) -> RunDetails:
    return details_from(summary_from(run, facts[0]), facts[1])


def _cached_or_read(results: Results, run: RunFolder, use: Callable[[Sequence[Facts]], T], parts: int) -> T:
    """Return what `use` makes of the first `parts` that are cached of a run, else of what is read now and then cached."""
    path, key = results.root / FOLDER / host_of(run) / run.id, f"{code()} {_signature(run.path)}".encode()
    is_to_come = not is_known(run.started)  # what is read of it changes with the clock
    if is_to_come or _is_beyond(results.root, path.parent):
        return use(_facts(run))
    with suppress(OSError, zlib.error, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return use(_kept(path, key, parts))
    facts = _facts(run)
    with suppress(OSError):  # a full disk or a folder that can't be written: the facts are read again the next time
        _keep(path, key, facts)
    return use(facts)


def _is_beyond(root: Path, folder: Path) -> bool:
    """Check whether a folder of the cache isn't ours, as it lies behind a link, or can't be looked at: it is left alone."""
    try:
        return link_below(root, folder) is not None
    except OSError:
        return True


def _facts(run: RunFolder, processes: int = MOST_PROCESSES) -> tuple[Facts, Facts]:
    record = run.read_record()
    return run_summary.facts_of(run, record, read_parts(run, record, processes))


def _kept(path: Path, key: bytes, parts: int) -> list[Facts]:
    """Return the facts that were cached under this key.

    Raises errors of many kinds for a file that can't be read, or was cached under another key.
    """
    with open_regular(path) as file:
        key_of_file, *sizes = file.readline(_LONGEST_LINE).rsplit(maxsplit=2)
        if key_of_file != key:
            raise ValueError("kept of other files")
        most = os.fstat(file.fileno()).st_size
        if not all(0 <= int(size) <= most for size in sizes):
            raise ValueError("a size that isn't one")
        packed = [file.read(int(size)) for size in sizes[:parts]]
    first, *rest = (json.loads(zlib.decompress(part)) for part in packed)
    return [first | {"launches": as_rows(first["launches"])}, *rest]


def _keep(path: Path, key: bytes, facts: tuple[Facts, Facts]) -> None:
    summary, rest = facts
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = summary | {"launches": as_columns(summary["launches"])}, rest
    packed = [zlib.compress(json.dumps(part).encode(), 1) for part in parts]
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


def as_columns(rows: Sequence[Facts]) -> Facts:
    """Return the launches by columns, equal values once: a third of the size, and of the time to read it."""
    columns = columns_of(rows, tuple(rows[0])) if rows else {}
    same = {name: values[0] for name, values in columns.items() if _are_same(values)}
    each = {name: values for name, values in columns.items() if name not in same}
    return {"count": len(rows), "names": list(columns), "same": same, "each": each}


def as_rows(table: Facts) -> list[Facts]:
    same = {name: _restored(value) for name, value in table["same"].items()}
    each = {name: list(map(_restored, values)) for name, values in table["each"].items()}
    columns = [each[name] if name in each else repeat(same[name], table["count"]) for name in table["names"]]
    return [dict(zip(table["names"], values, strict=True)) for values in zip(*columns, strict=True)]


def _restored(value: Any) -> Any:
    """Return a list as a tuple: JSON has no tuples; a row has no lists."""
    return tuple(value) if type(value) is list else value


def _are_same(values: Sequence[Any]) -> bool:
    """Check whether one of the values could stand for all: not 1 for True, but one NaN for another."""
    first = values[0]
    return all(type(v) is type(first) and (v == first or (v != v and first != first)) for v in values)
