"""Processes that help this one, and end with it."""

import ctypes
import os
import signal

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


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
