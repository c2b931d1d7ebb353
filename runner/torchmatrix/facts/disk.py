"""Files of a results folder: who holds a lock, and disk errors with a hint."""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.ground.files import plain_open

_MOST_BYTES = 1 << 12
"""Of what a lock file says of its holder."""


@contextmanager
def held(path: Path, complaint: str, hint: str) -> Iterator[None]:
    """Hold the lock file `path`, which names its holder. Raises EngineUnusable (`complaint` and the holder) if it is taken."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = plain_open(path, "a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise EngineUnusable(f"{complaint}: {file.read().strip() or 'unknown'}", hint=hint) from None
        with disk_errors(path):
            file.truncate(0)
            started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            file.write(f"process {os.getpid()} on {socket.gethostname()}, started {started}\n")
            file.flush()
        yield


def holder(path: Path) -> str | None:
    """Who holds the lock file `path`, as written in it; None if nobody does."""
    try:
        file = plain_open(path, "rb")
    except OSError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(_MOST_BYTES).decode(errors="replace").strip() or "unknown"
    return None


def open_new(path: Path) -> IO[bytes]:
    """A new file, unbuffered. Raises FileExistsError, and EngineUnusable if it can't be written."""
    with disk_errors(path, FileExistsError):
        return plain_open(path, "xb", buffering=0)


@contextmanager
def disk_errors(path: Path, expected: type[OSError] | None = None) -> Iterator[None]:
    """Turn a disk error into an error with a hint; what is written so far stays readable."""
    try:
        yield
    except OSError as error:
        if expected and isinstance(error, expected):
            raise
        raise EngineUnusable(
            f"can't write {path}: {error.strerror or error}",
            hint="free space or fix the permissions, or write elsewhere (--results DIR); the same command then continues",
        ) from None
