"""Import runs of other machines: check each file, place it in the results, and report what was imported and what refused."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchmatrix.core.errors import EngineUnusable
from torchmatrix.core.files import disk_errors, link_below, plain_bytes, replacing, sync
from torchmatrix.facts.launch import Unreadable
from torchmatrix.facts.lines import as_written, lines_of, most_bytes
from torchmatrix.facts.parts import RUN_ID
from torchmatrix.facts.reading import Place, launch_of, malformed_host_line, misplaced
from torchmatrix.facts.run_record import RunRecord, mark_of, record_of
from torchmatrix.facts.store import IDENTITY_DIGITS, NO_RECORD, Results, RunFolder, copies_among, folders_in
from torchmatrix_plugins.gather.sources import LONGEST_FILE_BYTES, RECORD, Name, Offer, Source, is_lock, is_plain_part

# Results of an import


@dataclass(kw_only=True, slots=True)
class ImportResult:
    """The result of importing one source. `launches`: how many launch files are new, updated (they had grown) or already here.

    `runs` and `runs_here`: as HOST/RUN, those that got something new and those that did not. `unverified`: how many of the new
    and updated launches have no checksums. `refused`: the files that were not taken and why, by name; `lost`: the refused
    files that were listed, but never came. `others`: files that are no facts.
    """

    source: str
    runs: list[str] = field(default_factory=list)
    runs_here: list[str] = field(default_factory=list)
    new: int = 0
    updated: int = 0
    here: int = 0
    unverified: int = 0
    bytes: int = 0
    others: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    @property
    def launches(self) -> int:
        """Return how many launch files of the source are here now."""
        return self.new + self.updated + self.here

    def as_record(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


# Layout: the folder HOST/RUN for a run of another machine, so that neither machines nor runs are mixed

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_DIGITS = (IDENTITY_DIGITS, 8, 12, 16)


@dataclass(frozen=True, kw_only=True, slots=True)
class Beginning:
    """The first line of a run's record. `content`: its bytes with the end of the line; `host`: a name for its folder."""

    content: bytes
    host: str
    machine: str


def beginning_of(content: bytes, hint: str) -> Beginning | None:
    """Return how a record begins; None if it doesn't begin as one. `hint`: a name for its host if it names none."""
    first, end, _ = content.partition(b"\n")
    lines = lines_of(first)
    if not end or not lines.events or lines.events[0]["event"] != "run" or lines.damage:
        return None
    record = record_of(lines.events)
    return Beginning(
        content=first + end, host=_safe(record.host.get("name")) or _safe(hint) or "host", machine=_machine(record)
    )


class Layout:
    """The runs and machines of a results folder; each host's machine is read when it is first needed."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._machines: dict[str, str | None] = {}

    def folder_for(self, run: str, beginning: Beginning) -> Path:
        """Return the folder of a run with this beginning: where it is already, else a new one in its machine's folder.

        A run that was renamed there may be here under the name that it was given.
        """
        for folder in self.folders_of(run):
            if begins(folder / RECORD, beginning.content):
                return folder
        names = [beginning.host, *(f"{beginning.host}-{beginning.machine[:digits]}" for digits in _DIGITS)]
        free = next(name for name in names if self._is_free_for(name, beginning.machine) or name == names[-1])
        self._machines[free] = beginning.machine
        home, mark = self._results.root / free, mark_of(beginning.content)
        others = [] if RUN_ID.fullmatch(run) or mark is None else map(RunFolder, map(Path, sorted(folders_in(str(home)))))
        alike = [other for other in others if other.mark() == mark]
        return copies_among(alike).get(alike[0], alike[0]).path if alike else home / run

    def link_to(self, place: Path) -> Path | None:
        """Return the first folder on the way to a file or folder of the results that is a link, relative to the results."""
        link = link_below(self._results.root, place)
        return link and link.relative_to(self._results.root)

    def folders_of(self, run: str) -> list[Path]:
        """Return the folders of runs of this id, of whatever machine."""
        try:
            hosts = sorted(path for path in self._results.root.iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        return [host / run for host in hosts if os.path.exists(host / run / RECORD)]  # noqa: PTH110 (a Path raises some errors)

    def _is_free_for(self, name: str, machine: str) -> bool:
        if name not in self._machines:
            self._machines[name] = self._machine_in(name)
        return self._machines[name] in (None, machine)

    def _machine_in(self, host: str) -> str | None:
        """Return the machine of the newest run in a host's folder that records it, else of the newest; None without runs."""
        runs = (run for run in reversed(self._results.runs()) if run.path.parent.name == host)
        records = (run.read_header() for run in runs)
        newest = next(records, None)
        if newest is None:
            return None
        return newest.machine or next((record.machine for record in records if record.machine), None) or _machine(newest)


def begins(path: Path, content: bytes) -> bool:
    """Check whether a file begins with `content`."""
    try:
        return plain_bytes(path, most_bytes()).startswith(content)
    except OSError:
        return False


def _machine(record: RunRecord) -> str:
    """Return the machine's identity; for facts of earlier versions a hash of its hardware, which is all that they record."""
    if record.machine:
        return record.machine
    gpus = sorted(str(gpu.get("uuid")) for gpu in record.host.get("gpus") or ())
    host = [record.host.get(name) for name in ("name", "cpu", "memory_bytes")]
    return hashlib.sha256(json.dumps([host, gpus]).encode()).hexdigest()[:16]


def _safe(name: object) -> str:
    return _UNSAFE.sub("-", str(name or ""))[:100].strip(".-")


# Import of one run: each file is compared with the one that is here, checked, and written whole or not at all.
#
# The record's first line is written first, which makes the folder this run's; the whole record comes last. So a run that was
# imported half is one that isn't complete, and the next call goes on.

NEW, UPDATED, HERE, OLDER, OTHER = "new", "updated", "here", "older", "other"
"""States of a file: not here; here but shorter; the same; here and longer; here with another content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferedRun:
    """A run in a source. `folder`: its path there; `files`: its other files by their path in the run."""

    folder: Name
    files: Mapping[str, Name]

    @property
    def id(self) -> str:
        return self.folder.rpartition("/")[2]

    @property
    def record(self) -> Name:
        return f"{self.folder}/{RECORD}"


def runs_of(source: Source, brought: ImportResult) -> list[OfferedRun]:
    """Return the runs of a source, in the order of their names; files that belong to none are refused."""
    folders = {name.rpartition("/")[0] for name in source.offers if name.endswith(f"/{RECORD}")}
    files: dict[Name, dict[str, Name]] = {folder: {} for folder in folders}
    for name in source.offers:
        place = name.rpartition("/")[0]
        while place and place not in folders:
            place = place.rpartition("/")[0]
        if not place:
            brought.refused[name] = "it lies in no run: there is no folder with a run.jsonl above it"
        elif name != f"{place}/{RECORD}":
            files[place][name[len(place) + 1 :]] = name
    return [OfferedRun(folder=folder, files=dict(sorted(files[folder].items()))) for folder in sorted(folders)]


def import_run(source: Source, run: OfferedRun, layout: Layout, brought: ImportResult, dry_run: bool) -> None:
    """Import the new files of a run. Raises EngineUnusable if they can't be written."""
    before = brought.new + brought.updated
    target, record = _untouched(source, run, layout), b""
    if target is None:
        fetched = next((as_written(content) for _, content in source.fetch([run.record])), None)
        if fetched is None:
            brought.refused[run.record] = f"{_why_lost(source, run.record)}{_and_other_files(run)}"
            return
        target, record = _place(run, fetched, layout, brought)
    if target is None:
        return
    if link := layout.link_to(target):
        brought.refused[run.record] = f"{link} is a link here, and nothing is written through one{_and_other_files(run)}"
        return
    state = _compare(target / RECORD, record) if record else HERE
    if state == OTHER:
        brought.refused[run.record] = f"it contradicts {_shown(target)}/{RECORD}, which is kept"
    is_new = state in (NEW, UPDATED)
    if state == NEW and not dry_run:
        _put(target / RECORD, record[: record.index(b"\n") + 1], None)
    missing = len(brought.lost)
    _settle(_import_files(source, run, target, layout, brought, dry_run))
    if record and not dry_run and state in (NEW, UPDATED, HERE) and len(brought.lost) == missing:
        (_put if is_new else _stamp)(target / RECORD, record, source.offers[run.record].changed_ns)
        _settle([target / RECORD] if is_new else [])
    if is_new or brought.new + brought.updated > before:
        brought.runs.append(_shown(target))
    else:
        brought.runs_here.append(_shown(target))


def _import_files(
    source: Source, run: OfferedRun, target: Path, layout: Layout, brought: ImportResult, dry_run: bool
) -> list[Path]:
    """Import the files of a run that are new or have grown; return those that were written."""
    place, written = RunFolder(target).place(), []
    for name, content, state in _new_files(source, run, target, brought, dry_run):
        is_launch = name.endswith(".jsonl")
        if link := layout.link_to((target / name).parent):
            brought.refused[run.files[name]] = f"{link} is a link here, and nothing is written through one"
            continue
        if not dry_run:
            if why := _problem(place, name, content, brought):
                brought.refused[run.files[name]] = why
                continue
            if name.endswith(".log") and not (target / name).with_suffix(".jsonl").exists():
                brought.others += 1  # the log of a launch that isn't here
                continue
            _put(target / name, content, source.offers[run.files[name]].changed_ns)
            brought.bytes += len(content)
            written.append(target / name)
        brought.new += is_launch and state == NEW
        brought.updated += is_launch and state == UPDATED
    return written


def _untouched(source: Source, run: OfferedRun, layout: Layout) -> Path | None:
    """Return where this run is already with the same size and time of its record, so that it need not be fetched.

    It must be in the folder of its host, and name its machine: another host may have begun a run in the same second.
    """
    offer = source.offers[run.record]
    if not is_plain_part(run.id):
        return None
    host = run.folder.rpartition("/")[0].rpartition("/")[2]
    here = [folder for folder in layout.folders_of(run.id) if folder.parent.name == host and _has_state(folder / RECORD, offer)]
    return here[0] if here and RunFolder(here[0]).read_header().machine else None


def _place(run: OfferedRun, record: bytes, layout: Layout, brought: ImportResult) -> tuple[Path | None, bytes]:
    """Return the folder of a run here, by how its record begins, and the part of the record that is imported.

    The folder is None if nothing is imported.
    """
    begin, content = beginning_of(record, run.folder.rpartition("/")[0].rpartition("/")[2]), lines_of(record)
    damage = content.damage or next(iter(record_of(content.events).malformed), None)
    target = layout.folder_for(run.id, begin) if begin else None
    is_here = target is not None and (target / RECORD).exists()
    if target is None or begin is None or (damage and not is_here):
        why = damage or NO_RECORD
        brought.refused[run.record] = f"{why}; it is not taken{_and_other_files(run)}"
        return None, b""
    if is_here and not begins(target / RECORD, begin.content):
        brought.refused[run.record] = (
            f"{_shown(target)} begins otherwise: another run, or another copy of it; nothing of it is taken"
        )
        return None, b""
    if damage:
        brought.refused[run.record] = damage
    return target, b"" if damage else record


def _and_other_files(run: OfferedRun) -> str:
    return f"; nor are the other {len(run.files)} files of its run" if run.files else ""


def _why_lost(source: Source, name: Name) -> str:
    return source.lost.get(name, "it was listed, but did not come")


def _new_files(
    source: Source, run: OfferedRun, target: Path, brought: ImportResult, dry_run: bool
) -> Iterator[tuple[str, bytes, str]]:
    """Yield path in the run, content and state of each file that is new or has grown; count the others.

    `dry_run`: contents of new files are not fetched.
    """
    missing = {name: not (target / name).exists() for name in run.files}
    wanted = {}
    for name, there in run.files.items():
        if missing[name] and dry_run:
            yield name, b"", NEW
        elif not missing[name] and _has_state(target / name, source.offers[there]):
            brought.here += name.endswith(".jsonl")
        else:
            wanted[there] = name
    lost = dict(wanted)
    for there, fetched in source.fetch(wanted):
        name = lost.pop(there)
        content = as_written(fetched) if name.endswith(".jsonl") else fetched
        state = NEW if missing[name] else _compare(target / name, content)
        if state == OTHER:
            brought.refused[there] = f"it contradicts {_shown(target)}/{name}, which is kept"
        elif state in (NEW, UPDATED):
            yield name, content, state
        else:
            brought.here += name.endswith(".jsonl")
            if state == HERE and not dry_run:
                _stamp(target / name, content, source.offers[there].changed_ns)
    brought.refused |= {there: _why_lost(source, there) for there in lost}
    brought.lost += lost


def _problem(place: Place, name: str, content: bytes, brought: ImportResult) -> str | None:
    """Return why a file is not taken, or None."""
    if len(content) > LONGEST_FILE_BYTES:
        return f"it is larger than {LONGEST_FILE_BYTES >> 20} MiB"
    if name.endswith(".log") or is_lock(name):
        return None
    lines = lines_of(content)
    if lines.damage:
        return lines.damage
    if lines.unreadable:
        return f"line {lines.unreadable} is no line of facts"
    path = Path(name)
    launch = launch_of(path, [*lines.events[:1], *lines.events[1:][-1:]], lines.verified)
    if isinstance(launch, Unreadable):
        return launch.reason
    if why := malformed_host_line(lines.events):
        return why
    if why := misplaced(place.run / name, launch, place):
        return why
    brought.unverified += not launch.verified
    return None


def _has_state(path: Path, offer: Offer) -> bool:
    """Check whether a file has the size and the time of an offer; never if the time of the offer is unknown."""
    if offer.changed_ns is None:
        return False
    try:
        state = path.stat()
    except OSError:
        return False
    return (state.st_size, state.st_mtime_ns) == (offer.size, offer.changed_ns)


def _compare(path: Path, content: bytes) -> str:
    """Return the state of a file here, compared with `content`."""
    try:
        present = plain_bytes(path, most_bytes())
    except OSError:
        return NEW
    if present == content:
        return HERE
    return UPDATED if content.startswith(present) else OLDER if present.startswith(content) else OTHER


def _put(path: Path, content: bytes, changed_ns: int | None) -> None:
    """Write a file whole, with the time of the original. Raises EngineUnusable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(content)
            file.flush()
            if changed_ns is not None:
                os.utime(file.fileno(), ns=(changed_ns, changed_ns))
    except OSError as error:
        hint = "free space or fix the permissions; the same command then goes on"
        raise EngineUnusable(f"can't write {path}: {error.strerror or error}", hint=hint) from None


def _settle(written: Sequence[Path]) -> None:
    """Wait until files are on the disk: a run is complete only once its launches are. Raises EngineUnusable."""
    with disk_errors(written[0] if written else Path()):
        sync(written)


def _stamp(path: Path, content: bytes, changed_ns: int | None) -> None:
    """Give a file of this content the time of its original, so that it needn't be compared again."""
    with suppress(OSError):
        if changed_ns is not None:
            os.utime(path, ns=(changed_ns, changed_ns))


def _shown(target: Path) -> str:
    return f"{target.parent.name}/{target.name}"
