"""The command's beginning: `python -m torchmatrix`, and what the installed `torchmatrix` calls."""

import gc
import os
import signal
import sys
from typing import NoReturn

ALLOCATIONS = 50_000
"""After how many that are left a command looks for garbage (CPython: 700). Nearly all that it makes, it needs to its end."""


def main() -> NoReturn:
    """Carry out a command line. Until the command is loaded, which takes a while, Ctrl-C ends the process at once."""
    gc.set_threshold(ALLOCATIONS)
    _open_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from torchmatrix import cli
    except (ImportError, MemoryError, OSError) as error:
        print(f"error: the command can't be loaded: {error}\n\nhint: free memory, or install it again", file=sys.stderr)
        sys.exit(4)
    cli.main()


def _open_streams() -> None:
    """Open closed standard streams on /dev/null, so that no file of facts gets their number and nothing is printed into it."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
            setattr(sys, name, os.fdopen(number, mode))


if __name__ == "__main__":
    main()
