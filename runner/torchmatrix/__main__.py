"""Start the command: `python -m torchmatrix`, and the entry point of the installed `torchmatrix`."""

import gc
import io
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, TextIO, cast

from torchmatrix.core.streams import PlainStream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ALLOCATIONS = 50_000
"""How many new objects start a garbage collection (CPython: 700). A command needs nearly all its objects to its end."""


def main() -> NoReturn:
    """Carry out the command line. Until the command is loaded, which takes a while, Ctrl-C ends the process at once."""
    gc.set_threshold(ALLOCATIONS)
    _keep_docstrings()
    _open_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from torchmatrix import cli
    except (ImportError, MemoryError, OSError) as error:
        print(f"error: the command can't be loaded: {error}\n\nhint: free memory, or install it again", file=sys.stderr)
        sys.exit(4)
    cli.main()


def _keep_docstrings() -> None:
    """Start again where PYTHONOPTIMIZE=2 (or -OO) has removed docstrings: the verbs' help is theirs."""
    if sys.flags.optimize > 1:
        os.environ["PYTHONOPTIMIZE"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "torchmatrix", *sys.argv[1:]])


def _open_streams() -> None:
    """Open closed standard streams on /dev/null, so that no file of facts gets their number and nothing is printed into it.

    Characters that a terminal's encoding lacks are printed as escapes: no run is lost for a character. Progress that can't be
    printed ends no measurement. What is printed can't control the terminal: messages, tracebacks, warnings of libraries.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
            setattr(sys, name, os.fdopen(number, mode))
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    stream = io.BufferedWriter(_LossyStderr(2, "w", closefd=False))
    errors = io.TextIOWrapper(stream, sys.stderr.encoding, "backslashreplace", line_buffering=True)
    sys.stdout, sys.stderr = cast(TextIO, PlainStream(sys.stdout)), cast(TextIO, PlainStream(errors))


class _LossyStderr(io.FileIO):
    """Standard error; data that can't be written, on a full disk or to a reader that went away, is dropped."""

    def write(self, data: "ReadableBuffer") -> int:
        with suppress(OSError):
            if (written := super().write(data)) is not None:
                return written
        return memoryview(data).nbytes


if __name__ == "__main__":
    main()
