"""Files that are read or written the same way in several packages."""

import errno
import fcntl
import fnmatch
import hashlib
import os
import re
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Any

from torchmatrix.core.errors import EngineUnusable
from torchmatrix.core.formatting import as_text

_CHUNK_BYTES = 1 << 20
_SMALL_BYTES = 1 << 12
_LINK = "it is a symbolic link"
_NOT_PLAIN = "it is not a plain file"
_MOST_LINKS = 40
"""The number of links that Linux follows."""
_SCRATCH = ".torchmatrix-scratch."


class NotPlain(OSError):
    """The path is no regular file; `kind` says what it is."""

    def __init__(self, path: Path, mode: int) -> None:
        is_folder = stat.S_ISDIR(mode)
        super().__init__(*((errno.EISDIR, os.strerror(errno.EISDIR)) if is_folder else (errno.EINVAL, _NOT_PLAIN)), str(path))
        self.kind = _kind(mode)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "a socket"


def text_of(path: Path) -> str | None:
    """Read the text of a small file, such as one of /sys, without surrounding white space; None if it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def plain_bytes(path: Path, most: int) -> bytes:
    """Read a plain file. Raises OSError; also for a link, a folder or a device, and beyond `most` bytes.

    Never waits, as reading a named pipe would.
    """
    descriptor = _descriptor(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        size = os.fstat(descriptor).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it is larger than {most / 1e6:g} MB", str(path))
        return _content(descriptor, size, most)
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file, or one that a link leads to, to be read in pieces. Raises OSError for anything else; never waits."""
    return os.fdopen(_descriptor(path, os.O_RDONLY), "rb")


def content_of(path: Path) -> bytes:
    """Read all of a file that `opened` opens. Raises OSError."""
    with open_regular(path) as file:
        return file.read()


def _descriptor(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        is_refused = error.errno == errno.ELOOP and flags & os.O_NOFOLLOW
        raise OSError(error.errno, _LINK, str(path)) if is_refused else error from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise NotPlain(path, mode)


def _content(descriptor: int, size: int, most: int) -> bytes:
    """Read an open file, up to `most` bytes, with a buffer of its size: a buffer of `most` bytes per file would be slow.

    `size` is 0 for files that the kernel makes as they are read.
    """
    parts, left = [], most
    while part := os.read(descriptor, min(left, size + _SMALL_BYTES)):
        parts.append(part)
        left -= len(part)
        if 0 < size <= most - left and len(part) < size + _SMALL_BYTES:
            break  # a short read ends the file
    return b"".join(parts)


def files_below(folder: Path) -> list[Path]:
    """List all plain files below a folder, in the order of their paths; no symbolic link is followed, and folders in it that
    can't be read are left out. Raises OSError.
    """
    files, pending = [], [str(folder)]
    while pending:
        inside = pending.pop()
        try:
            with os.scandir(inside) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        files.append(entry.path)
        except PermissionError:
            if inside == str(folder):
                raise
    return [Path(path) for path in sorted(files)]


def named_below(folder: Path, names: str) -> list[Path]:
    """List what folder.rglob(names) finds, sorted, in a third of the time: not only plain files.

    A folder that can't be read, or is a link, is listed, too, whatever its name: reading it gives the reason.
    """
    fits, paths, pending = re.compile(fnmatch.translate(names)).match, [], [str(folder)]
    while pending:
        inside = pending.pop()
        try:
            with os.scandir(inside) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if fits(entry.name) or (not is_folder and _leads_to_a_folder(entry)):
                        paths.append(entry.path)
                    if is_folder:
                        pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):  # it has gone
            pass
        except OSError:
            paths.append(inside)
    return [Path(path) for path in sorted(paths, key=lambda path: path.split("/"))]


def _leads_to_a_folder(entry: "os.DirEntry[str]") -> bool:
    """Check whether a link does; also one that can't be followed may."""
    try:
        return entry.is_dir()
    except OSError:
        return True


def link_below(root: Path, path: Path) -> Path | None:
    """Return the first link on the way from `root`, which may be one, to a path below it, which counts; None without one."""
    folders = [path, *path.parents][: len(path.parts) - len(root.parts)]
    return next((folder for folder in reversed(folders) if folder.is_symlink()), None)


def make_below(root: Path, folder: Path) -> None:
    """Make a folder below `root`. Raises OSError; also if a link is on the way: what lies behind it isn't ours."""
    if link := link_below(root, folder):
        raise OSError(errno.ELOOP, "it is a link, and nothing is written through one", str(link))
    folder.mkdir(parents=True, exist_ok=True)


def sha256_of(content: IO[bytes]) -> str:
    """Return the SHA-256 of an open file from its position to its end, which is read in pieces. Raises OSError."""
    digest = hashlib.sha256()
    while chunk := content.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def sync(paths: Iterable[Path]) -> None:
    """Wait until the disk holds these files and the names in their folders. Raises OSError.

    Called once for many files, it costs little: the first call of fsync brings most of them to the disk.
    """
    files = list(paths)
    for path in (*files, *dict.fromkeys(path.parent for path in files)):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Yield a new file that replaces `path` at the end of the block: readers never see half of it, and a failure leaves
    the old one in place. Raises OSError; also where a folder, a device or a pipe is in the way.

    It gets `mode` or, without one, mode and owner of the file that it replaces, and those of any new file if there is none. A
    symbolic link is replaced and not followed: `followed` returns where it leads.
    """
    old = _state_of_plain(path)
    descriptor, part = _new_part(path, 0o666 if mode is None else mode)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            yield file
        if old and mode is None:
            _copy_owner_and_mode(old, descriptor)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file as `whole` does. Raises OSError."""
    with replacing(path, mode) as file:
        file.write(content)


def write_to(path: Path, content: bytes) -> None:
    """Write to a path that a user names. Raises OSError.

    A file is written as `whole` does; a symbolic link stays, and the file where it leads is replaced. A device, a pipe or an
    open stream (/dev/stdout) gets the content as it is, without waiting for the reader of a pipe.
    """
    target = resolve_links(path)
    stream = _stream(target)
    if stream is None:
        return write_whole(target, content)
    with os.fdopen(stream, "wb") as file:
        file.write(content)


def resolve_links(path: Path) -> Path:
    """Return where the symbolic links at `path` lead; an open stream of this process stays one. Raises OSError.

    A link that another user has put into a folder where everybody may write is refused, as Linux does where
    fs.protected_symlinks is set: https://docs.kernel.org/admin-guide/sysctl/fs.html#protected-symlinks
    """
    for _ in range(_MOST_LINKS):
        if not path.is_symlink() or _is_descriptor(path):
            return path
        link, folder = path.lstat(), path.parent.stat()
        is_public = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
        if is_public and link.st_uid not in (os.geteuid(), folder.st_uid):
            raise OSError(errno.EACCES, f"{path} is another user's symbolic link", str(path))
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def plain_open(path: Path, mode: str, buffering: int = -1) -> IO[Any]:
    """Open a file of this tool as open() does, in UTF-8. Raises OSError; also for a link, a device or a pipe, maybe planted."""

    def opener(name: str, flags: int) -> int:
        return _descriptor(Path(name), flags | os.O_NOFOLLOW)

    return open(path, mode, buffering, None if "b" in mode else "utf-8", opener=opener)


def _state_of_plain(path: Path) -> os.stat_result | None:
    """Return the state of the plain file at `path`; None if there is none, or a link. Raises OSError for anything else."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(state.st_mode) and not stat.S_ISLNK(state.st_mode):
        raise NotPlain(path, state.st_mode)
    return state if stat.S_ISREG(state.st_mode) else None


def _new_part(path: Path, mode: int) -> tuple[int, Path]:
    """Create a temporary file next to `path` that nobody else has, locked as long as it is open. Raises OSError.

    It gets the first free one of fixed names, so that files that a killed command left are found and removed.
    """
    for number in count():
        part = path.with_name(f".{path.name}.{number}.part")
        try:
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        except FileExistsError:
            _remove_abandoned(part)
            continue
        if _lock_part(descriptor, part):
            break
        os.close(descriptor)
    return descriptor, part


def _lock_part(descriptor: int, part: Path) -> bool:
    """Lock a new file; return False if another command just mistook it for an abandoned one."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where nobody can mistake it for an abandoned one
        return True
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), part.lstat())
    return False


def _remove_abandoned(part: Path) -> None:
    """Remove a temporary file that no living command holds; anything else of its name is left alone."""
    with suppress(OSError), plain_open(part, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), part.lstat()):  # since it was opened, another may have come in its place
            part.unlink()


def _copy_owner_and_mode(old: os.stat_result, descriptor: int) -> None:
    """Give an open file the owner, as far as this user may, and the permissions of another."""
    for owner, group in ((old.st_uid, -1), (-1, old.st_gid)):
        with suppress(OSError):
            os.fchown(descriptor, owner, group)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


def _stream(path: Path) -> int | None:
    """Open an open stream, a device or a pipe for writing; return its descriptor, None for a file. Raises OSError."""
    if _is_descriptor(path):
        return os.dup(int(path.name))
    try:
        state = path.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode):
        return None
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    os.set_blocking(descriptor, True)
    return descriptor


def _is_descriptor(path: Path) -> bool:
    """Check whether a path is one of this process's open files, such as /dev/stdout."""
    return path.name.isdecimal() and path.parent.resolve() == Path("/proc/self/fd").resolve()


def remove_tree(folder: Path) -> None:
    """Remove a folder, with what in it is write-protected or lies deeper than a path or a recursion reaches. Raises OSError.

    What a folder holds is moved up before it is removed in its turn. Of a link only itself is removed.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    folder.chmod(0o700)
    prefix, numbers, pending = secrets.token_hex(8), count(), [folder]
    while pending:
        place = pending.pop()
        for path in list(place.iterdir()):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
                continue
            path.chmod(0o700)
            pending.append(path if place == folder else path.rename(folder / f"{prefix}{next(numbers)}"))
        if place != folder:
            place.rmdir()
    folder.rmdir()


@contextmanager
def scratch(within: Path | None = None) -> Iterator[Path]:
    """Yield a temporary folder, removed at the end; first remove those that killed commands left. Raises OSError.

    `within`: a folder to make it in, if not the machine's for temporary files. Each is locked by its command as long as the
    command lives.
    """
    place = within or Path(tempfile.gettempdir())
    for abandoned in place.glob(_SCRATCH + "?" * 8):
        with suppress(OSError), _locked(abandoned):
            remove_tree(abandoned)
    folder = None
    while folder is None:
        made = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=place))
        with suppress(BlockingIOError, FileNotFoundError):  # another command just mistook it for an abandoned one
            lock = _lock(made)
            folder = made
    try:
        yield folder
    finally:
        with suppress(OSError):
            remove_tree(folder)
        os.close(lock)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = _lock(folder)
    try:
        yield
    finally:
        os.close(lock)


def _lock(folder: Path) -> int:
    """Lock a folder; return the descriptor that holds the lock. Raises BlockingIOError if it is taken, FileNotFoundError."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.stat()
    except OSError:
        os.close(lock)
        raise
    return lock


# Files of a results folder: locks that name their holder, and disk errors with a hint

_MOST_BYTES = 1 << 12
"""The most bytes that are read of a lock file, which names its holder."""


def locked_file(path: Path, *, shared: bool = False, wait: bool = False) -> IO[bytes]:
    """Open and lock a file, which is made if need be; whoever closes it gives the lock back.

    Raises OSError; BlockingIOError if the lock is taken, unless it should `wait`.
    """
    file = plain_open(path, "a+b", buffering=0)  # what a full disk refuses is not written again when the file is closed
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        file.close()
        raise
    return file


@contextmanager
def hold_lock(path: Path, complaint: str, hint: str) -> Iterator[None]:
    """Hold the lock file `path`, which names its holder. Raises EngineUnusable (`complaint` and the holder) if it is taken."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = locked_file(path)
        except BlockingIOError:
            raise EngineUnusable(f"{complaint}: {_named_holder(path)}", hint=hint) from None
    with file:
        with disk_errors(path):
            file.truncate(0)
            started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            file.write(f"process {os.getpid()} on {socket.gethostname()}, started {started}\n".encode())
        yield


def _named_holder(path: Path) -> str:
    """Return the holder of a lock that is taken, which is named a moment after it is taken."""
    for _ in range(10):
        if (holder := lock_holder(path) or "unknown") != "unknown":
            return holder
        time.sleep(0.02)
    return "unknown"


def lock_holder(path: Path) -> str | None:
    """Return the holder of the lock file `path`, as written in it; None if nobody holds it."""
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
    """Create a file, unbuffered. Raises FileExistsError, and EngineUnusable if it can't be written."""
    with disk_errors(path, FileExistsError):
        return plain_open(path, "xb", buffering=0)


RESULTS_HINT = "free space or fix the permissions, or write elsewhere (--results DIR); the same command then continues"


@contextmanager
def disk_errors(path: Path, expected: type[OSError] | None = None, hint: str = RESULTS_HINT) -> Iterator[None]:
    """Turn a disk error into EngineUnusable with a hint; what is written so far stays readable."""
    try:
        yield
    except OSError as error:
        if expected and isinstance(error, expected):
            raise
        why = error.strerror or str(error)
        if isinstance(error, (FileExistsError, NotADirectoryError)) and error.filename:
            why = f"{as_text(error.filename)} is no folder, or a link that leads to none"
        raise EngineUnusable(f"can't write {path}: {why}", hint=hint) from None
