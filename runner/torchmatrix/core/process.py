"""Tie this process to another, and check that it may use the memory that it needs."""

import mmap
import os
import signal
import sys

# Address space of this process (`ulimit -v`): libraries that find none hang, or abort the whole process

LEAST_BYTES = 2**30
BYTES_PER_CPU = 32 * 2**20


def require_address_space() -> None:
    """Check the address space for numerical libraries: OpenBLAS has a thread per CPU and tries for ever to allocate buffers.

    The space is reserved in one piece and given back. Raises MemoryError.
    """
    size = LEAST_BYTES + BYTES_PER_CPU * (os.cpu_count() or 1)
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0).close()
    except OSError:
        raise MemoryError(f"torchmatrix needs {size / 2**30:.3g} GiB of address space (not of RAM)") from None


# Processes that help this one, and end with it

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal once its parent has ended in any way; at once, if it has already.

    The parent is the thread that started this process: https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html
    """
    import ctypes  # which the command doesn't need to begin

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def end_helpers() -> None:
    """End the processes that help this one: they have nothing left to do, or an interruption must not wait for them.

    An interruption that comes meanwhile is raised once all are told to end.
    """
    multiprocessing = sys.modules.get("multiprocessing")
    for helper in multiprocessing.active_children() if multiprocessing else []:
        try:
            helper.kill()
        except KeyboardInterrupt:
            end_helpers()
            raise


def help_only(parent: int) -> None:
    """Prepare a process that helps another: leave interruptions to the other process, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
