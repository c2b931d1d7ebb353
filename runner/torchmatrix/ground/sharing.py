"""Work for several processes, forked from this one: pieces of one task.

The results are those of one process, whatever becomes of the others.
"""

import ctypes
import os
import pickle
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
MOST_PIECES = 500
"""Their numbers fit into a pipe, however small."""
_NUMBER = struct.Struct("=H")
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Helper:
    """A process, and where its results come from: pickles of (number, result)."""

    pid: int
    told: int


def end_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal once its parent has ended, however that was; at once, if it has already.

    The parent is the thread that started this process: https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def help_only(parent: int) -> None:
    """Begin the work of a process that helps another: it leaves interruptions to that one, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)


@contextmanager
def shared(do: Callable[[int], T], pieces: int, helpers: int) -> Iterator[Callable[[], list[T]]]:
    """Begin `do` of 0 to `pieces` - 1 in so many other processes; what is yielded helps them and gives all results in order.

    The helpers are forks of this process, so that `do` may be any function; its results are pickled. There is none if this
    process has threads, of which a fork has no copy, or if the system gives none. What a helper that died or failed did not
    do is done here, so that errors are raised here, too. At most MOST_PIECES.
    """
    numbers = _queue(pieces)
    started: list[_Helper] = []
    try:
        while len(started) < helpers and _has_one_thread() and (helper := _forked(lambda tell: _help(do, numbers, tell))):
            started.append(helper)
        yield lambda: _results(do, pieces, numbers, started)
    finally:
        os.close(numbers)
        for one in started:
            _end(one)


def _queue(pieces: int) -> int:
    """A pipe with all numbers, of which whoever reads takes the next."""
    taken, put = os.pipe()
    os.write(put, b"".join(map(_NUMBER.pack, range(pieces))))
    os.close(put)
    return taken


def _taken(numbers: int) -> Iterator[int]:
    while found := os.read(numbers, _NUMBER.size):
        yield _NUMBER.unpack(found)[0]


def _has_one_thread() -> bool:
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


def _forked(work: Callable[[int], None]) -> _Helper | None:
    """A fork that does `work`, which is told where results go; None if the system gives none.

    Whatever ends this process ends it.
    """
    told, tell = os.pipe()
    before, parent = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING), os.getpid()
    try:
        pid = os.fork()
        if pid == 0:
            end_with(parent)
            _let_signals_end_it()
            work(tell)
    except OSError:
        os.close(told)
        return None
    finally:
        if os.getpid() != parent:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(tell)
    return _Helper(pid=pid, told=told)


def _let_signals_end_it() -> None:
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _help(do: Callable[[int], object], numbers: int, tell: int) -> None:
    """Takes pieces until there are none. Results are kept until all is done: nobody reads before."""
    done = [pickle.dumps((piece, do(piece)), pickle.HIGHEST_PROTOCOL) for piece in _taken(numbers)]
    with os.fdopen(tell, "wb") as file:
        file.writelines(done)


def _results(do: Callable[[int], T], pieces: int, numbers: int, started: Sequence[_Helper]) -> list[T]:
    found = {piece: do(piece) for piece in _taken(numbers)}
    for helper in started:
        found |= _told(helper)
    return [found[piece] if piece in found else do(piece) for piece in range(pieces)]


def _told(helper: _Helper) -> dict[int, T]:
    """What a helper did; of one that died what it told before."""
    found: dict[int, T] = {}
    with open(helper.told, "rb", closefd=False) as file, suppress(EOFError, pickle.UnpicklingError):
        while True:
            piece, result = pickle.load(file)
            found[piece] = result
    return found


def _end(helper: _Helper) -> None:
    with suppress(ProcessLookupError):
        os.kill(helper.pid, signal.SIGKILL)
    os.waitpid(helper.pid, 0)
    os.close(helper.told)
