"""Sources of facts, such as folders and archives: files with sizes, read in any order; and which of them are facts."""

import gzip
import os
import re
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from torchmatrix.core import inputs
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.files import open_regular, plain_bytes
from torchmatrix.core.formatting import clipped, in_one_line

LONGEST_FILE_BYTES = 64 << 20
"""A larger file is refused: no launch writes so much."""
DEEPEST = 24
_LONGEST_NAME = 200
RECORD = "run.jsonl"
_FACTS = re.compile(r"run\.jsonl|(?:round|batch|probe)[0-9]{1,9}-try[0-9]{1,9}\.(?:jsonl|log)")
_ENDINGS = (".jsonl", ".log")
_LOCK = re.compile(r"(?:.*/)?locks/[^/]+\.lock")
_HIDDEN_OR_ODD = re.compile(r"\.|.*[\\:*?\"<>|]", re.DOTALL)

_APPLE_DOUBLE = "._"
"""The prefix of files that macOS keeps beside a file (AppleDouble, RFC 1740) in its archives and on disks of others."""

Name = str
"""The path of a file in its source, with slashes."""
Fetch = Callable[[Iterable[Name]], Iterator[tuple[Name, bytes]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of a source: the number of files, counting all that are listed, and of bytes.

    `seconds`: how long an answer may take, such as a list; long ones may take longer, by `slowest` bytes per second.
    """

    files: int = 1_000_000
    bytes: int = 64 << 30
    seconds: float = 600.0
    slowest: int = 16 << 10

    def seconds_for(self, size: int) -> float:
        """Return how long `size` bytes may take."""
        return self.seconds + size / self.slowest


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One file of a source. `changed_ns`: when it was changed last, in unix nanoseconds; None: only its content tells."""

    size: int
    changed_ns: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A place with facts. `fetch`: yields the contents of the named files, in their order; without those that can't be read.

    `refused`: names of facts that can't be read, and why; `others`: how many files aren't facts. `lost`: why a file that was
    listed did not come, as far as `fetch` has found out.
    """

    label: str
    offers: Mapping[Name, Offer]
    fetch: Fetch
    refused: Mapping[Name, str] = field(default_factory=dict)
    others: int = 0
    lost: dict[Name, str] = field(default_factory=dict)


LINK = "it is a link or a device"
"""Why a link or a device is refused, whatever its name: it may lead anywhere."""


@dataclass(kw_only=True, slots=True)
class Sorting:
    """The names of a source while it is listed: those that are offered, those that are refused, and how many are no facts."""

    label: str
    limits: Limits
    offers: dict[Name, Offer] = field(default_factory=dict)
    refused: dict[Name, str] = field(default_factory=dict)
    others: int = 0
    _bytes: int = 0

    def add(self, name: Name, offer: Offer, problem: str | None = None) -> bool:
        """Sort a file in; return whether it is offered. `problem`: why it can't be taken, whatever its name.

        Raises BadInput beyond the limits.
        """
        last = name.rpartition("/")[2]
        if len(self.offers) + len(self.refused) + self.others >= self.limits.files:
            raise self._beyond(f"{self.limits.files:,} files")
        if last.startswith(_APPLE_DOUBLE):
            self.others += 1
            return False
        if not is_lock(name) and (
            (not last.endswith(_ENDINGS) and problem != LINK)
            or (problem is None and not _FACTS.fullmatch(last) and _is_plain(name))
        ):
            self.others += 1
            return False
        why = problem or problem_of(name, offer.size)
        if why is None and name in self.offers:
            why = "it is there twice"
        if why is not None:
            self.refused[name] = why
            return False
        self.offers[name] = offer
        self._bytes += offer.size
        if self._bytes > self.limits.bytes:
            raise self._beyond(f"{self.limits.bytes >> 20:,} MiB")
        return True

    def _beyond(self, limit: str) -> BadInput:
        return BadInput(f"{self.label} has more than {limit}: nothing of it is taken", hint="gather its runs one by one")

    def source(self, fetch: Fetch, lost: dict[Name, str] | None = None) -> Source:
        """Return the source with the files that were sorted in."""
        lost = {} if lost is None else lost
        return Source(label=self.label, offers=self.offers, fetch=fetch, refused=self.refused, others=self.others, lost=lost)


def is_lock(name: Name) -> bool:
    """Check whether a name is that of a lock, which keeps what a stack was made of, so that its launches can be repeated."""
    return _LOCK.fullmatch(name) is not None


def problem_of(name: Name, size: int) -> str | None:
    """Return why a file of this name and size is not taken, or None."""
    if not _is_plain(name):
        return "its name is not that of a file in a results folder"
    if size > LONGEST_FILE_BYTES:
        return f"it is larger than {LONGEST_FILE_BYTES >> 20} MiB"
    return None


def _is_plain(name: Name) -> bool:
    """Check whether every part of a path is a safe name here: no "..", not hidden, no character special to another system."""
    parts = name.split("/")
    return len(parts) <= DEEPEST and all(map(is_plain_part, parts))


def is_plain_part(part: str) -> bool:
    """Check whether `part` can safely be the name of a file or folder."""
    return 0 < len(part) <= _LONGEST_NAME and part.isprintable() and not _HIDDEN_OR_ODD.match(part)


# Folders: a results folder, or the folder of one host or one run


def of_folder(folder: Path, limits: Limits) -> Source:
    """Return the facts below a folder as a source; links are not followed. Raises BadInput."""
    root, sorting, lost = folder.resolve(), Sorting(label=str(folder), limits=limits), dict[Name, str]()
    if not os.access(root, os.R_OK | os.X_OK):
        raise BadInput(f"can't read {folder}", hint="fix its permissions")
    base = root.parent if (root / RECORD).exists() else root  # of a run's folder, the name is the run's id

    def refuse(error: OSError) -> None:
        sorting.refused[Path(error.filename).relative_to(base).as_posix()] = f"it can't be read: {error.strerror}"

    for place, folders, files in os.walk(root, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in (*files, *folders):
            path = Path(place, name)
            try:
                state = path.lstat()
            except OSError as error:
                refuse(error)
                continue
            if stat.S_ISDIR(state.st_mode):
                continue
            problem = None if stat.S_ISREG(state.st_mode) else LINK
            sorting.add(path.relative_to(base).as_posix(), Offer(size=state.st_size, changed_ns=state.st_mtime_ns), problem)

    def fetch(names: Iterable[Name]) -> Iterator[tuple[Name, bytes]]:
        for name in names:
            try:
                yield name, plain_bytes(base / name, LONGEST_FILE_BYTES)
            except OSError as error:
                lost[name] = f"it can't be read: {error.strerror}"

    return sorting.source(fetch, lost)


# Archives: tar or tar.gz, recognized by its content, never unpacked by its names
#
# A compressed tar is first unpacked into a nameless temporary file in the results folder, since gzip can't be read in any
# order.

MOST_PACKING = 300
"""Facts compress to about a tenth: a file that unpacks to more than this many times its size is no archive of facts."""
FREE_BYTES = 256 << 20
"""Up to this size any archive is unpacked."""
_CHUNK = 1 << 20
_HINT = (
    "it is a .tar or .tar.gz of a results folder, such as the facts.tar.gz that reports and sites offer; unpack others first"
)


def of_archive(path: Path, temporary: Path, stack: ExitStack, limits: Limits) -> Source:
    """Return the facts in an archive, which `stack` closes. `temporary`: a folder for nameless files. Raises BadInput."""
    most = max(FREE_BYTES, 2 * limits.bytes)  # names and padding count, too
    try:
        file = stack.enter_context(open_regular(path))
        if file.seek(0, 2) > most:
            raise BadInput(f"{path} is larger than {most >> 20:,} MiB: it is no archive of facts", hint=_HINT)
        file.seek(0)
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}", hint="fix its permissions") from None
    try:
        unpacked = _unpack(file, str(path), temporary, stack) if is_packed else file
        source = _tar(stack.enter_context(inputs.open_tar(unpacked)), Sorting(label=str(path), limits=limits))
    except inputs.NOT_A_TAR as error:
        raise BadInput(f"{path} is no tar archive of facts, or it is damaged: {error}", hint=_HINT) from None
    if not source.offers and not source.refused:
        raise BadInput(f"{path} is no archive of facts: no file of a run is in it", hint=_HINT)
    return source


@contextmanager
def nameless(folder: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file that is gone with this process, however it ends. Raises EngineUnusable."""
    try:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    except OSError as error:
        raise EngineUnusable(f"can't write {folder}: {error.strerror}", hint="free space or fix the permissions") from None
    with file:
        yield file


def _unpack(file: IO[bytes], label: str, temporary: Path, stack: ExitStack) -> IO[bytes]:
    packed_bytes = file.seek(0, 2)
    file.seek(0)
    unpacked = stack.enter_context(nameless(temporary))
    limit = max(FREE_BYTES, MOST_PACKING * packed_bytes)
    with gzip.GzipFile(fileobj=file) as packed:
        while chunk := _next_chunk(packed, label):
            if unpacked.tell() + len(chunk) > limit:
                raise BadInput(f"{label} unpacks to more than {limit >> 20} MiB: it is no archive of facts", hint=_HINT)
            try:
                unpacked.write(chunk)
            except OSError as error:
                raise EngineUnusable(f"can't unpack {label} in {temporary}: {error.strerror}", hint="free space") from None
    unpacked.seek(0)
    return unpacked


def _next_chunk(packed: gzip.GzipFile, label: str) -> bytes:
    try:
        return packed.read(_CHUNK)
    except (OSError, EOFError, zlib.error) as error:  # gzip's own complaints are OSErrors
        raise BadInput(f"{label} is damaged: {error}", hint="copy it again") from None


def _tar(tar: tarfile.TarFile, sorting: Sorting) -> Source:
    members, lost = dict[Name, tarfile.TarInfo](), dict[Name, str]()
    for member in tar:
        if not member.isdir():
            problem = None if member.isreg() and not member.issparse() else LINK
            name = member.name.removeprefix("./")
            if sorting.add(name, Offer(size=member.size), problem):
                members[name] = member
    if not inputs.tar_ends_well(tar):
        sorting.refused[sorting.label] = "it is damaged, or cut off: what came after its last readable file is missing"

    def fetch(names: Iterable[Name]) -> Iterator[tuple[Name, bytes]]:
        for name in names:
            try:
                content = inputs.member_content(tar, members[name], LONGEST_FILE_BYTES)
            except (*inputs.NOT_A_TAR, OSError) as error:
                lost[name] = _damaged(error)
                continue
            if content is not None:
                yield name, content

    return sorting.source(fetch, lost)


def _damaged(error: Exception) -> str:
    return f"the archive is damaged there: {clipped(in_one_line(str(error)))}"
