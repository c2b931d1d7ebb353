"""What was read of each run, kept so that the next reading needn't parse its facts again.

RESULTS/.cache/HOST/RUN is what histories and comparisons read, RUN.report what a report of the run says of its launches; both
are derived from the facts and may be deleted at any time. A run is read anew when one of its files has changed (name, size,
time), or the code that reads them; and where a kept file can't be read.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torchmatrix.analysis.briefs import order_of, read_parts
from torchmatrix.analysis.launch_row import columns_of
from torchmatrix.facts.alike import counting
from torchmatrix.facts.environments import Environment, environment_of
from torchmatrix.facts.events import most_bytes
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.reading import sorted_out
from torchmatrix.facts.run_words import host_of
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.ground.files import plain_bytes, write_whole
from torchmatrix.ground.texts import as_text

if TYPE_CHECKING:
    from torchmatrix.analysis.cells import Cell, CellIndex
    from torchmatrix.analysis.digest import Digest

T = TypeVar("T")
FOLDER = ".cache"
_REPORT = ".report"
_ROOMS = ("ground", "machine", "facts", "matrix", "planning", "analysis")
"""All code that analysis may import: a change in any of it may change what is read from a launch's file."""

Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """One run as read: what it says of itself, and its launches.

    `host`: the name of its folder. `started`: unix seconds, NaN if unknown. `command`, `matrix`, `workload_hash`: what was
    asked for. `planned`: ids of the cells that were to run; `skipped`: the reason by cell id. `launches`: rows of
    tables.launch_rows, of each launch the last try; tables.table_of makes a table of them. `environments`: by stack, of the
    launch on the most devices in which the box told of itself, none that is left out of its cell's figure. `unreadable`: files
    of the run that can't be read, and why.
    """

    id: str
    host: str
    path: Path
    started: float
    complete: bool
    command: str | None
    matrix: str
    workload_hash: str | None
    planned: tuple[str, ...]
    skipped: dict[str, str]
    launches: tuple[dict[str, Any], ...]
    environments: dict[str, Environment]
    unreadable: tuple[Unreadable, ...]

    @cached_property
    def cells(self) -> "CellIndex":
        """Its launches by cell."""
        from torchmatrix.analysis.cells import CellIndex  # with numpy, which reading doesn't need

        return CellIndex(self.launches)

    def cell(self, name: str) -> "Cell":
        """One of them by its id; without launches if it has none."""
        from torchmatrix.analysis.cells import NO_CELL

        return self.cells.named.get(name, NO_CELL)

    def asked_for(self, cell: str) -> bool:
        """Was it to be measured?"""
        return cell in self.planned or cell in self.cells.named


def read(results: Results, runs: Sequence[RunFolder]) -> list[Indexed]:
    """What the facts of `runs` say, in their order."""
    return list(each(results, runs))


def each(results: Results, runs: Sequence[RunFolder]) -> Iterator[Indexed]:
    """As `read`, one run at a time, so that thousands of runs needn't be in memory at once."""
    if runs:
        _forget_removed_runs(results)
    for run in runs:
        yield _recalled(results, run, "", lambda: _facts(run), lambda facts: _indexed(run, facts))  # noqa: B023 (called at once)


def digest(results: Results, run: RunFolder) -> "Digest":
    """What a report of a run says of its launches."""

    def made() -> Facts:
        record = run.read_record()
        parts = read_parts(run, record)
        from torchmatrix.analysis.digest import facts_of

        return facts_of(run.path, parts, order_of(record))

    def used(facts: Facts) -> "Digest":
        from torchmatrix.analysis.digest import digest_from

        return digest_from(run.path, facts)

    _forget_removed_runs(results)
    return _recalled(results, run, _REPORT, made, used)


def _recalled(results: Results, run: RunFolder, kind: str, make: Callable[[], Facts], use: Callable[[Facts], T]) -> T:
    """What was kept of a run, else what is made now, which is then kept."""
    path, key = results.root / FOLDER / host_of(run) / f"{run.id}{kind}", f"{_code()} {_signature(run.path)}"
    found = _kept(path, key, use)
    if found is not None:
        return found
    facts = make()
    _keep(path, key, facts)
    return use(facts)


def _kept(path: Path, key: str, use: Callable[[Facts], T]) -> T | None:
    """What was kept under this key; None for what can't be read."""
    try:
        said, _, packed = plain_bytes(path, most_bytes()).partition(b"\n")
        return use(_unpacked(packed)) if said == key.encode() else None
    except (OSError, zlib.error, ValueError, LookupError, TypeError, AttributeError):
        return None


def _keep(path: Path, key: str, facts: Facts) -> None:
    with suppress(OSError):  # a full disk or a folder that can't be written: the facts are read again the next time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, key.encode() + b"\n" + _packed(facts))


def _forget_removed_runs(results: Results) -> None:
    with suppress(OSError):
        for path in (results.root / FOLDER).glob("*/*"):
            folder = results.root / path.parent.name
            if not any((folder / name / "run.jsonl").exists() for name in (path.name, path.name.removesuffix(_REPORT))):
                path.unlink()


@cache
def _code() -> str:
    """Changes with the code that reads facts, so that what older code has read is read again."""
    rooms = [Path(__file__).parents[1] / room for room in _ROOMS]
    sources = sorted(path for room in rooms for path in room.rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


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
    """All that is kept of a run, from its files; paths are relative to it."""
    from torchmatrix.analysis import tables

    record, root = run.read_record(), len(as_text(run.path))
    every, unreadable = sorted_out(run.everything())
    launches = counting(every)
    return {
        "complete": record.complete,
        "command": record.command,
        "matrix": record.matrix,
        "workload_hash": record.workload_hash,
        "planned": [name.cell for name in record.planned],
        "skipped": {skip.name.cell: skip.reason for skip in record.skips},
        "environments": _environments(launches),
        "launches": [row | {"path": row["path"][root:]} for row in tables.launch_rows(launches)],
        "unreadable": [(as_text(one.path)[root:], one.reason) for one in unreadable]
        + [("/run.jsonl", problem) for problem in record.problems],
    }


def _environments(launches: Sequence[Launch]) -> dict[str, Environment]:
    chosen: dict[str, tuple[tuple[bool, bool, int], Launch]] = {}
    for launch in launches:
        stack, rank = launch.stack.name, (launch.box is not None, not launch.left_out, launch.devices.count)
        if stack not in chosen or rank > chosen[stack][0]:
            chosen[stack] = (rank, launch)
    return {stack: environment_of(launch) for stack, (_, launch) in chosen.items()}


def _indexed(run: RunFolder, facts: Facts) -> Indexed:
    root = as_text(run.path)
    return Indexed(
        id=run.id,
        host=host_of(run),
        path=run.path,
        started=run.started,
        complete=facts["complete"],
        command=facts["command"],
        matrix=facts["matrix"],
        workload_hash=facts["workload_hash"],
        planned=tuple(facts["planned"]),
        skipped=facts["skipped"],
        launches=tuple(row | {"path": root + row["path"]} for row in facts["launches"]),
        environments=facts["environments"],
        unreadable=tuple(Unreadable(path=Path(root + path), reason=reason) for path, reason in facts["unreadable"]),
    )


def _packed(facts: Facts) -> bytes:
    """The launches by columns, what is the same in all of them once: a third of the size, and of the time to read it."""
    rows = facts["launches"]
    columns = columns_of(rows, tuple(rows[0])) if rows else {}
    same = {name: values[0] for name, values in columns.items() if _are_same(values)}
    each = {name: values for name, values in columns.items() if name not in same}
    table = {"count": len(rows), "names": list(columns), "same": same, "each": each}
    return zlib.compress(json.dumps(facts | {"launches": table}).encode(), 1)


def _unpacked(packed: bytes) -> Facts:
    """What was packed; raises all kinds of errors for what wasn't."""
    facts: Facts = json.loads(zlib.decompress(packed))
    table = facts["launches"]
    same = {name: _restored(value) for name, value in table["same"].items()}
    each = {name: list(map(_restored, values)) for name, values in table["each"].items()}
    columns = [each[name] if name in each else repeat(same[name], table["count"]) for name in table["names"]]
    facts["launches"] = [dict(zip(table["names"], values, strict=True)) for values in zip(*columns, strict=True)]
    return facts


def _restored(value: Any) -> Any:
    """JSON has no tuples; a row has no lists."""
    return tuple(value) if type(value) is list else value


def _are_same(values: Sequence[Any]) -> bool:
    """Could one of them stand for all? Not 1 for True, but one NaN for another."""
    first = values[0]
    return all(type(v) is type(first) and (v == first or (v != v and first != first)) for v in values)
