"""Keep compile caches between launches, each sealed by a digest: the digest, and the folders of the local engine."""

import hashlib
import tarfile
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from torchmatrix.core.files import locked_file, named_below, remove_tree, sha256_of, text_of, write_whole

# The seal of a compile cache: a digest of everything that a launch could execute from it.
#
# The first launch of a stack and workload compiles into an empty cache, which is then sealed. Later launches get a copy of it.
# The digest covers names and contents; a cache that holds anything but folders and plain files is never sealed.

MOST_BYTES = 8 << 30
"""The most that a cache is kept of, as each launch gets a copy in memory; a sparse file could take days to read."""
COMPLETE = "complete"
"""The file by which the workload marks the cache of a complete launch."""
BROKEN = "the compile cache was changed while the launch ran: it is thrown away, and the next launch compiles again"
DIFFERED = "it differed from its seal and was thrown away"
IN_USE = "another launch is using it"


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheFacts:
    """`state`: new (this launch fills it), sealed (it is only read) or none (not kept). `note`: why no seal could be used."""

    state: str
    sha256: str | None = None
    note: str | None = None

    def as_facts(self) -> dict[str, Any]:
        """Return the field of a launch's header under `started`."""
        return {"compile_cache": {"state": self.state, "sha256": self.sha256, "note": self.note}}


def digest_of_folder(folder: Path) -> str | None:
    """Return the digest of a folder; None if it can't be sealed. Raises OSError."""
    entries: list[tuple[str, str]] = []
    left = MOST_BYTES
    for path in named_below(folder, "*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            return None
        if path.is_file():
            if (left := left - path.stat().st_size) < 0:
                return None
            with path.open("rb") as file:
                entries.append((name, sha256_of(file)))
        else:
            entries.append((name, "folder"))
    return _seal_digest(entries)


def digest_of_archive(chunks: Iterable[bytes]) -> str | None:
    """Return the digest of the folder in a tar archive, the first part of each name left out; None if it can't be sealed.

    Raises tarfile.TarError.
    """
    entries: list[tuple[str, str]] = []
    left = MOST_BYTES
    with tarfile.open(fileobj=cast("IO[bytes]", _Stream(iter(chunks))), mode="r|") as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if not (member.isfile() or member.isdir()) or (left := left - member.size) < 0:
                return None
            if member.isfile():
                file = archive.extractfile(member)
                assert file is not None
                entries.append((name, sha256_of(file)))
            elif name:
                entries.append((name, "folder"))
    return _seal_digest(entries)


def _seal_digest(entries: list[tuple[str, str]]) -> str | None:
    if COMPLETE not in dict(entries):
        return None
    lines = "".join(f"{digest} {name!r}\n" for name, digest in sorted(entries))
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


class _Stream:
    """Chunks as a file that tarfile can read from front to back."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; fewer only at the end."""
        parts, missing = [], size
        while missing and (data := self._rest or next(self._chunks, b"")):
            parts.append(data[:missing])
            self._rest = data[missing:]
            missing -= len(parts[-1])
        return b"".join(parts)


# The compile caches of the local engine: one folder per stack and workload, sealed after the first launch.

_WRITE_BITS = 0o222


class LocalCache:
    """A launch's hold on a compile cache.

    In its folder, `work` is where every launch compiles, always at the same path, since compilers record paths; `sealed` is
    what the first launch left, without write permission; `seal` has the digest, and is written last.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Open and lock the cache `name` below `folder`. None is kept without a `name`, or if it can't be written or is in
        use.
        """
        self._lock: IO[bytes] | None = None
        self._folder: Path | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock_folder(folder / name) if name else None
            if self._lock:  # a launch whose record can't be written never begins, and so never ends
                weakref.finalize(self, self._lock.close)
            self._folder = folder / name if self._lock else Path(tempfile.mkdtemp(prefix=".own-", dir=folder))
            self.facts = _open_cache(self._folder) if self._lock else CacheFacts(state="none", note=IN_USE if name else None)
        except OSError as error:
            self._folder = None
            self.release()
            self.facts = _write_failure(folder, error)

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the workload's flags, without which it makes a cache of its own."""
        if self._folder is None:
            return ()
        sealed = ("--sealed-cache", str(self._folder / "sealed")) if self.facts.state == "sealed" else ()
        return ("--cache", str(self._folder / "work"), *sealed)

    def container_binds(self, work: str, sealed: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the binds of a container, as source:target or source:target:ro, and the flags of the workload in it.

        `work`, `sealed`: where the container finds the folders. Both results are empty if the cache can't be kept.
        """
        if self._folder is None:
            return (), ()
        try:
            (self._folder / "work").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.facts = _write_failure(self._folder, error)
            return (), ()
        binds, flags = (f"{self._folder / 'work'}:{work}",), ("--cache", work)
        if self.facts.state != "sealed":
            return binds, flags
        return (*binds, f"{self._folder / 'sealed'}:{sealed}:ro"), (*flags, "--sealed-cache", sealed)

    def finish(self, returncode: int) -> str | None:
        """Seal the cache after a complete first launch. Return why a launch can't count that has changed the sealed cache."""
        if self._folder is None or self.facts.state == "none":
            return None
        if self.facts.state == "sealed" and _digest(self._folder) != self.facts.sha256:
            _discard(self._folder)
            return BROKEN
        if self.facts.state == "new" and returncode == 0:
            with suppress(OSError):  # it is then made again
                _seal(self._folder)
        return None

    def release(self) -> None:
        """Remove what isn't kept, and unlock the cache."""
        if self._folder is not None:
            with suppress(OSError):
                _remove(self._folder / "work" if self._lock else self._folder)
        if self._lock:
            self._lock.close()
            self._lock = None


def _write_failure(folder: Path, error: OSError) -> CacheFacts:
    return CacheFacts(state="none", note=f"can't write {folder}: {error.strerror}")


def _open_cache(folder: Path) -> CacheFacts:
    """Return the state of a cache that nobody else uses; empty one that isn't as sealed."""
    seal = text_of(folder / "seal")
    if seal and seal == _digest(folder):
        _remove(folder / "work")
        return CacheFacts(state="sealed", sha256=seal)
    _discard(folder)
    return CacheFacts(state="new", note=DIFFERED if seal else None)


def _seal(folder: Path) -> None:
    """Seal the cache. Whatever interrupts this, there is no seal without the whole cache that it belongs to."""
    work, sealed = folder / "work", folder / "sealed"
    digest = digest_of_folder(work)
    if digest is None:
        return
    work.rename(sealed)
    for path in (*named_below(sealed, "*"), sealed):
        path.chmod(path.stat().st_mode & ~_WRITE_BITS)
    write_whole(folder / "seal", digest.encode())


def _digest(folder: Path) -> str | None:
    try:
        return digest_of_folder(folder / "sealed")
    except OSError:
        return None


def _discard(folder: Path) -> None:
    """Remove the seal first: without it the rest means nothing."""
    (folder / "seal").unlink(missing_ok=True)
    for path in folder.iterdir():
        _remove(path)


def _lock_folder(folder: Path) -> IO[bytes] | None:
    """Make a cache's folder and return its open lock; None if another launch holds it."""
    folder.mkdir(exist_ok=True)
    try:
        return locked_file(folder.with_name(f".{folder.name}.lock"))
    except BlockingIOError:
        return None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
