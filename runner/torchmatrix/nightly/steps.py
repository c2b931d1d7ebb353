"""One command of a night: started, logged, ended. A night is made of commands that could be pasted, each in its own process."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.ground.files import plain_open
from torchmatrix.ground.process import end_with_parent

TIMED_OUT = 124
"""As timeout(1) says it."""
NOT_STARTED = 127
"""As a shell says it."""
_GRACE_SECONDS = 60.0

Echo = Callable[[bytes], None]


class Log:
    """A night's log; `echo` hears what the commands print. What can't be written, on a full disk, doesn't end the night."""

    def __init__(self, path: Path, echo: Echo) -> None:
        try:
            self._file: IO[bytes] = plain_open(path, "ab", buffering=0)
        except OSError as error:
            raise EngineUnusable(f"can't write {path}: {error.strerror}", hint="free space or fix the permissions") from None
        self._echo = echo

    def line(self, text: str) -> None:
        """Add a line of the night's own."""
        self._write(f"{text}\n".encode(errors="surrogateescape"))

    def write(self, data: bytes) -> None:
        """Add output of a command as it came."""
        self._write(data)
        self._echo(data)

    def _write(self, data: bytes) -> None:
        with suppress(OSError):
            self._file.write(data)

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()


def carry_out(command: Sequence[str], log: Log, limit_seconds: float | None = None) -> int:
    """Run a command to its end and return its exit code; TIMED_OUT if it was ended after `limit_seconds`, NOT_STARTED.

    It has a session of its own, so that an interruption reaches the night first: it is passed on once, as SIGTERM, and the
    command's own way out is waited for. If the night is killed, the command gets SIGTERM from the kernel.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGTERM),
        )  # fmt: skip
    except OSError as error:
        log.line(f"can't start it: {error}")
        return NOT_STARTED
    with process:
        try:
            if _copy(process, log, limit_seconds):
                return process.wait()
            _end(process)
            return TIMED_OUT
        except KeyboardInterrupt:
            process.terminate()
            _copy(process, log, None)
            process.wait()
            raise


def _copy(process: "subprocess.Popen[bytes]", log: Log, limit_seconds: float | None) -> bool:
    """The output into the log, until it ends, or until the process has and only stray children hold it open; in time?"""
    assert process.stdout is not None
    begin, descriptor = time.monotonic(), process.stdout.fileno()
    while limit_seconds is None or time.monotonic() - begin < limit_seconds:
        ready, _, _ = select.select([descriptor], [], [], 0.2)
        data = os.read(descriptor, 1 << 16) if ready else b""
        if data:
            log.write(data)
        elif ready or process.poll() is not None:
            return True
    return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, and after a grace period SIGKILL to the whole group."""
    process.terminate()
    try:
        process.wait(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
