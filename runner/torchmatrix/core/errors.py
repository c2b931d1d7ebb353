"""The errors of the tool: one exit code and one hint per kind; the package cli catches them once."""

from enum import IntEnum
from pathlib import Path

from torchmatrix.core.formatting import clipped, printable


class ExitCode(IntEnum):
    """The exit status of a command."""

    OK = 0
    CELL_NOT_OK = 1
    FINDINGS = 1
    BAD_INPUT = 2
    NOTHING_SELECTED = 3
    ENGINE_UNUSABLE = 4
    REGRESSION = 5
    INCOMPLETE = 6
    INTERRUPTED = 130


class ToolError(Exception):
    """The tool can't continue: a message, a hint that says what to do, and an exit code."""

    def __init__(self, message: str, *, hint: str, exit_code: ExitCode) -> None:
        super().__init__("\n".join(map(printable, message.split("\n"))))
        self.hint = "\n".join(map(printable, hint.split("\n")))
        self.exit_code = exit_code


class BadInput(ToolError):
    """The matrix or the arguments are wrong; nothing was run."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint, exit_code=ExitCode.BAD_INPUT)


class NothingSelected(ToolError):
    """The selection, or this machine, leaves no cell to run."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint, exit_code=ExitCode.NOTHING_SELECTED)


class EngineUnusable(ToolError):
    """The engine or the GPUs can't be used, or the results can't be written."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint, exit_code=ExitCode.ENGINE_UNUSABLE)


class EngineLost(EngineUnusable):
    """The engine stopped answering in the middle of a run."""


class BuildFailed(Exception):
    """One stack could not be made into an image; its cells get the outcome `build-failed`, and the others continue."""


class LaunchFailed(Exception):
    """The engine could not start or keep one launch; its outcome is recorded, and the other cells continue.

    `is_own`: the text is a sentence of the tool, which quotes neither an engine nor a workload.
    """

    def __init__(self, text: str, is_own: bool = False) -> None:
        super().__init__(text)
        self.is_own = is_own


def is_interruption(error: BaseException) -> bool:
    """Check whether an interruption is the cause of an error: before Python 3.12 one that comes while a class is made gets
    another name.
    """
    return isinstance(error, KeyboardInterrupt) or (error.__cause__ is not None and is_interruption(error.__cause__))


def _is_here_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def lack_of(error: BaseException) -> tuple[str, str] | None:
    """Return what this machine lacks (memory, threads, open files, disk, a library) and a hint; None for other errors."""
    words = str(error).strip()
    if isinstance(error, FileNotFoundError) and _is_here_gone():
        return "the folder that this command runs in was removed", "change to another folder"
    if isinstance(error, MemoryError) or "can't start new thread" in words:
        return "not enough memory" + (f": {words}" if words else ""), "free memory, or raise the limit (ulimit -v)"
    if isinstance(error, ImportError):
        return f"a library can't be loaded: {words}", "free memory, raise the limits (ulimit -a), or install torchmatrix again"
    if type(error).__name__ == "PanicException":  # of libraries in Rust, whose threads get no file or memory
        return f"a library stopped: {' '.join(words.split())}", "free memory, and raise the limits of this process (ulimit -a)"
    if "No usable temporary directory" in words:
        return "no temporary folder can be written", "free space there, raise the limits (ulimit -f), or set TMPDIR to a folder"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename} is missing", "was it removed or renamed while the command worked?"
    if isinstance(error, OSError):
        hint = "check the file's permissions, the space on its disk, and the limits of this process (ulimit -a)"
        return clipped(words, 300), hint
    return None
