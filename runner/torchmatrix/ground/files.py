"""Files that are read or written the same way in several rooms."""

import errno
import fcntl
import fnmatch
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_CHUNK_BYTES = 1 << 20
_SMALL_BYTES = 1 << 12
_LINK = "it is a symbolic link"
_SCRATCH = "torchmatrix-scratch."


def text_of(path: Path) -> str | None:
    """The text of a small file, such as one of /sys, without surrounding white space; None if it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def plain_bytes(path: Path, most: int) -> bytes:
    """The content of a plain file. Raises OSError; also for a link, a folder or a device, and beyond `most` bytes.

    Never waits, as reading a named pipe would.
    """
    try:
        held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, _LINK, str(path)) if error.errno == errno.ELOOP else error from None
    try:
        state = os.fstat(held)
        if stat.S_ISDIR(state.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", str(path))
        if state.st_size > most:
            raise OSError(errno.EFBIG, f"it is larger than {most / 1e6:g} MB", str(path))
        return _content(held, state.st_size, most)
    finally:
        os.close(held)


def _content(held: int, size: int, most: int) -> bytes:
    """What an open file holds, up to `most` bytes. A buffer of its size: one of `most` bytes would be paid for each file.

    `size` is 0 for what the kernel makes as it is read.
    """
    parts, left = [], most
    while part := os.read(held, min(left, size + _SMALL_BYTES)):
        parts.append(part)
        left -= len(part)
        if 0 < size <= most - left and len(part) < size + _SMALL_BYTES:
            break  # nothing comes after less than was asked for
    return b"".join(parts)


def files_below(folder: Path) -> list[Path]:
    """All plain files below a folder, in the order of their paths; no symbolic link is followed. Raises OSError."""
    found, pending = [], [str(folder)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    found.append(entry.path)
    return [Path(path) for path in sorted(found)]


def named_below(folder: Path, names: str) -> list[Path]:
    """As folder.rglob(names), sorted, in a third of the time: whatever has such a name, also what is no plain file.

    A folder that can't be looked into is found, too, whatever its name: who reads it learns why.
    """
    fits, found, pending = re.compile(fnmatch.translate(names)).match, [], [str(folder)]
    while pending:
        inside = pending.pop()
        try:
            with os.scandir(inside) as entries:
                for entry in entries:
                    if fits(entry.name):
                        found.append(entry.path)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):  # it has gone
            pass
        except OSError:
            found.append(inside)
    return [Path(path) for path in sorted(found, key=lambda path: path.split("/"))]


def sha256_of(content: IO[bytes]) -> str:
    """SHA-256 of an open file from where it stands to its end, which is read in pieces. Raises OSError."""
    digest = hashlib.sha256()
    while chunk := content.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def settle(paths: Iterable[Path]) -> None:
    """Wait until the disk holds these files and the names in their folders. Raises OSError.

    Called once for many files, it costs little: the first call of fsync brings most of them to the disk.
    """
    found = list(paths)
    for path in (*found, *dict.fromkeys(path.parent for path in found)):
        held = os.open(path, os.O_RDONLY)
        try:
            os.fsync(held)
        finally:
            os.close(held)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: readers never see half of it, and a failure leaves the old one in place. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder, removed at the end; first removes those that killed commands left. Raises OSError.

    Each is locked by its command as long as that lives.
    """
    for left in Path(tempfile.gettempdir()).glob(_SCRATCH + "?" * 8):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left)
    folder = None
    while folder is None:
        made = Path(tempfile.mkdtemp(prefix=_SCRATCH))
        with suppress(BlockingIOError, FileNotFoundError):  # another command just took it for one that was left
            lock = _lock(made)
            folder = made
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = _lock(folder)
    try:
        yield
    finally:
        os.close(lock)


def _lock(folder: Path) -> int:
    """A descriptor that holds the folder's lock. Raises BlockingIOError if another process does, FileNotFoundError."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.stat()
    except OSError:
        os.close(lock)
        raise
    return lock
