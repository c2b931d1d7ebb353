"""Choose which runs stay: the newest, the pinned ones, and as many of the others as the limits allow; remove the others.

A run is pinned by a file `pinned` in its folder (touch results/HOST/RUN/pinned), by its name, or by having been renamed.
Nothing but our own files is ever removed: a run whose folder holds anything else stays, and so do links.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.core.files import link_below, make_below
from torchmatrix.facts.store import Results, RunFolder, select, stamp_of
from torchmatrix.nightly.journal import FOLDER, STAMP, Journal

PIN = "pinned"
_OURS = re.compile(
    r"run\.(jsonl|part)|builds/[^/]+\.log|locks/[^/]+\.lock|(contexts|models)/.+|(.+/)?\.[^/]+\.\d+\.part"
    r"|.+/(round|batch|probe)\d+-try\d+\.(jsonl|log)"
)
"""The files of a run's folder: see facts/store.py; `reproduce` adds the contexts of builds, a killed command a .part file."""
_SECONDS_TO_RECORD = 2
"""How long after its folder was made a run's record may have begun."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A run and the space it takes on the disk; `stays`: why it is never removed, None if it may be."""

    run: RunFolder
    is_complete: bool
    bytes: int
    stays: str | None

    @property
    def name(self) -> str:
        """Return HOST/RUN."""
        return name_of(self.run)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The runs to remove, oldest first; `over_bytes`: by how much the results exceed the limit even then."""

    remove: tuple[Stored, ...]
    over_bytes: int = 0


def name_of(run: RunFolder) -> str:
    """Return HOST/RUN, a run's name in a results folder that several machines share."""
    return f"{run.path.parent.name}/{run.id}"


def stored_runs(results: Results, host: str, pins: Sequence[str]) -> list[Stored]:
    """List the runs of one host, oldest first. `pins`: words for runs that stay (see store.select). Raises BadInput."""
    listed = results.listed()
    runs = select(results, "all", host=host, all_runs=listed.runs) if listed.runs else []
    pinned = {run.path for word in pins for run in select(results, word, all_runs=listed.runs)}
    orders = [order.parent for order in results.root.glob(".*/*/order.json")]  # of clusters' schedulers
    ordered = {order.name for order in orders if not (order / "done").exists()}
    copied = {original: f"copied to {name_of(copy)}, which would then count" for copy, original in listed.copies.items()}
    return [
        Stored(
            run=run, is_complete=is_complete(run), bytes=bytes_on_disk(run.path),
            stays=_why_it_stays(run, pinned, ordered) or copied.get(run),
        )
        for run in runs
    ]  # fmt: skip


def is_complete(run: RunFolder) -> bool:
    """Check whether the run is finished."""
    return run.read_record().complete


def choose(runs: Sequence[Stored], keep: int | None, limit_bytes: int | None, used_bytes: int) -> Choice:
    """Choose what to remove of one host's `runs` (oldest first), so that `keep` complete ones are left, and then so that the
    results folder, which takes `used_bytes` now, keeps to `limit_bytes`. The newest run and the newest complete one stay."""
    complete = [run for run in runs if run.is_complete]
    newest = [*runs[-1:], *complete[-1:]]
    may_go = [run for run in runs if run.stays is None and run not in newest]
    place = {run.name: number for number, run in enumerate(runs)}
    oldest_kept = place[complete[-keep].name] if keep and len(complete) >= keep else 0
    remove = [run for run in may_go if place[run.name] < oldest_kept]
    left = used_bytes - sum(run.bytes for run in remove)
    for run in may_go[len(remove) :]:
        if limit_bytes is None or left <= limit_bytes:
            break
        remove.append(run)
        left -= run.bytes
    return Choice(remove=tuple(remove), over_bytes=max(left - limit_bytes, 0) if limit_bytes is not None else 0)


def logs_without_runs(results: Results, journal: Journal, runs: Sequence[Stored], gone: Sequence[Stored]) -> list[Path]:
    """Return the logs of nights whose run is none of the results folder, whatever its host, or one of `gone`; and of nights
    without a run that are older than every run of `runs`, those of one host, that may go.
    """
    listed, removed = results.listed(), {run.run.path for run in gone}
    left = [run for run in (*listed.runs, *listed.copies) if run.path not in removed]
    names = {name for run in left for name in _names_of(run)}
    oldest = min((run.run.id for run in runs if run.stays is None and run not in gone), default="")
    run_of = {night.id: night.run for night in journal.nights()}

    def is_needed(log: Path) -> bool:
        run = run_of.get(log.stem)
        return run in names if run else log.stem >= oldest

    return [log for log in journal.logs() if not is_needed(log)]


def _names_of(run: RunFolder) -> Iterator[str]:
    """Yield the name of a run, and those that it can have had before it was renamed, by when it began."""
    yield name_of(run)
    if not STAMP.fullmatch(run.id) and math.isfinite(run.started):
        for second in range(int(run.started) - _SECONDS_TO_RECORD, int(run.started) + 1):
            yield f"{run.path.parent.name}/{stamp_of(second)}"


def set_aside(results: Results, run: Stored) -> None:
    """Move a whole run to where `sweep` removes it, so that nobody ever reads half of one."""
    aside = _aside(results) / run.run.path.parent.name
    make_below(results.root, aside)
    run.run.path.rename(aside / run.run.id)


def sweep(results: Results) -> None:
    """Remove runs that were set aside, also by a removal that was interrupted; files that are not ours stay where they are."""
    if link_below(results.root, _aside(results)):
        return
    for folder, _, names in os.walk(_aside(results), topdown=False):
        for path in (Path(folder) / name for name in names):
            within = "/".join(path.relative_to(_aside(results)).parts[2:])
            if _OURS.fullmatch(within) and not path.is_symlink():
                path.unlink()
        with suppress(OSError):  # something else is in it
            Path(folder).rmdir()


def bytes_on_disk(folder: Path) -> int:
    """Return the disk space that all files below a folder take; hard links count once."""
    sizes: dict[tuple[int, int], int] = {}
    for path in _files(folder):
        with suppress(OSError):
            status = path.lstat()
            sizes[(status.st_dev, status.st_ino)] = status.st_blocks * 512
    return sum(sizes.values())


def remove_chosen(results: Results, journal: Journal, runs: Sequence[Stored], choice: Choice) -> Iterator[str]:
    """Remove what was chosen of `runs`, and the logs of its nights; yield lines on what was removed and what could not be."""
    gone = []
    for run in choice.remove:
        try:
            set_aside(results, run)
            sweep(results)
        except OSError as error:
            yield f"can't remove {error.filename or run.name}: {error.strerror or error}"
        if not run.run.path.exists():
            gone.append(run)
            yield f"removed {run.name}, {run.bytes / 1e9:.3f} GB"
    for log in logs_without_runs(results, journal, runs, gone):
        with suppress(OSError):  # the next night tries again
            log.unlink()
            yield f"removed {log.name}"


def _aside(results: Results) -> Path:
    return results.root / FOLDER / "removed"


def _why_it_stays(run: RunFolder, pinned: Collection[Path], ordered: Collection[str]) -> str | None:
    if (run.path / PIN).exists() or run.path in pinned:
        return "pinned"
    if not STAMP.fullmatch(run.id):
        return "renamed"
    if math.isnan(run.started):
        return "when it began is still to come"
    if run.path.is_symlink() or run.path.parent.is_symlink():
        return "a link"
    if run.id in ordered:
        return "its jobs aren't done"
    unread: list[OSError] = []
    foreign = sorted(
        str(path.relative_to(run.path))
        for path in _files(run.path, unread.append)
        if path.is_symlink() or not path.is_file() or not _OURS.fullmatch(path.relative_to(run.path).as_posix())
    )
    if unread:
        return f"can't be read: {unread[0].filename}"
    return f"holds files that are not ours: {foreign[0]}" if foreign else None


def _files(folder: Path, lost: Callable[[OSError], object] | None = None) -> Iterator[Path]:
    """Yield everything below a folder that is not itself a folder; links are not followed. `lost`: gets what can't be read."""
    for parent, folders, names in os.walk(folder, onerror=lost):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        yield from (Path(parent) / name for name in (*names, *links))
