"""The compile caches of the local engine: one folder per stack and workload, sealed after the first launch."""

import fcntl
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO

from torchmatrix.engines.seals import BROKEN, DIFFERED, IN_USE, CacheFacts, of_folder
from torchmatrix.ground.files import plain_open, text_of, write_whole

_WRITE_BITS = 0o222


class LocalCache:
    """A launch's hold on a compile cache.

    In its folder, `work` is where every launch compiles, always at the same path, since compilers record paths; `sealed` is
    what the first launch left, without write permission; `seal` has the digest, and is written last.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """`name` is empty for a launch whose cache is not kept; nor is one that can't be written, or that is in use."""
        self._lock: IO[str] | None = None
        self._folder: Path | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder / name) if name else None
            if self._lock:  # a launch whose record can't be written never begins, and so never ends
                weakref.finalize(self, self._lock.close)
            self._folder = folder / name if self._lock else Path(tempfile.mkdtemp(prefix=".own-", dir=folder))
            self.facts = _opened(self._folder) if self._lock else CacheFacts(state="none", note=IN_USE if name else None)
        except OSError as error:
            self._folder = None
            self.release()
            self.facts = _unwritable(folder, error)

    @property
    def flags(self) -> tuple[str, ...]:
        """Those of the box, which makes a cache of its own without them."""
        if self._folder is None:
            return ()
        sealed = ("--sealed-cache", str(self._folder / "sealed")) if self.facts.state == "sealed" else ()
        return ("--cache", str(self._folder / "work"), *sealed)

    def bound(self, work: str, sealed: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(folders that a container gets, as source:target or source:target:ro; the flags of the box in it).

        `work`, `sealed`: where the container finds them. Both are empty if the cache can't be kept.
        """
        if self._folder is None:
            return (), ()
        try:
            (self._folder / "work").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.facts = _unwritable(self._folder, error)
            return (), ()
        binds, flags = (f"{self._folder / 'work'}:{work}",), ("--cache", work)
        if self.facts.state != "sealed":
            return binds, flags
        return (*binds, f"{self._folder / 'sealed'}:{sealed}:ro"), (*flags, "--sealed-cache", sealed)

    def ended(self, returncode: int) -> str | None:
        """Seal it after a complete first launch. Returns why a later launch can't count, if it changed the sealed cache."""
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
        """Remove what isn't kept."""
        if self._folder is not None:
            with suppress(OSError):
                _remove(self._folder / "work" if self._lock else self._folder)
        if self._lock:
            self._lock.close()
            self._lock = None


def _unwritable(folder: Path, error: OSError) -> CacheFacts:
    return CacheFacts(state="none", note=f"can't write {folder}: {error.strerror}")


def _opened(folder: Path) -> CacheFacts:
    """The state of a cache that nobody else uses; one that isn't as sealed is emptied."""
    said = text_of(folder / "seal")
    if said and said == _digest(folder):
        _remove(folder / "work")
        return CacheFacts(state="sealed", sha256=said)
    _discard(folder)
    return CacheFacts(state="new", note=DIFFERED if said else None)


def _seal(folder: Path) -> None:
    """Whatever interrupts this, there is no seal without the whole cache that it belongs to."""
    work, sealed = folder / "work", folder / "sealed"
    digest = of_folder(work)
    if digest is None:
        return
    work.rename(sealed)
    for path in (*sealed.rglob("*"), sealed):
        path.chmod(path.stat().st_mode & ~_WRITE_BITS)
    write_whole(folder / "seal", digest.encode())


def _digest(folder: Path) -> str | None:
    try:
        return of_folder(folder / "sealed")
    except OSError:
        return None


def _discard(folder: Path) -> None:
    """Remove the seal first: without it the rest means nothing."""
    (folder / "seal").unlink(missing_ok=True)
    for path in folder.iterdir():
        _remove(path)


def _locked(folder: Path) -> IO[str] | None:
    """The open lock of a cache's folder, which is made; None if another launch holds it."""
    folder.mkdir(exist_ok=True)
    lock = plain_open(folder.with_name(f".{folder.name}.lock"), "a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def remove_tree(folder: Path) -> None:
    """Remove a folder that may contain sealed ones. Raises OSError."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder)
