"""Tie this process to another, and check that it may have the memory that it needs."""

import ctypes
import mmap
import os
import signal

# Is there room in this process's address space (`ulimit -v`)? Libraries that find none hang, or abort the whole process.

LEAST_BYTES = 2**30
BYTES_PER_CPU = 32 * 2**20


def require_address_space() -> None:
    """Room for the numerical libraries, whose OpenBLAS gives each CPU a thread and tries for ever to allocate their buffers.

    It is reserved in one piece and given back. Raises MemoryError.
    """
    size = LEAST_BYTES + BYTES_PER_CPU * (os.cpu_count() or 1)
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0).close()
    except OSError:
        raise MemoryError(f"torchmatrix needs {size / 2**30:.3g} GiB of address space (not of RAM)") from None


# Processes that help this one, and end with it.

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal once its parent has ended, however that was; at once, if it has already.

    The parent is the thread that started this process: https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def help_only(parent: int) -> None:
    """Begin the work of a process that helps another: it leaves interruptions to that one, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
