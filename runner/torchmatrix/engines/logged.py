"""Runs a program whose lines belong into a build's log."""

import atexit
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path


def run(
    command: Sequence[str], log: Callable[[str], None], variables: Mapping[str, str], folder: Path
) -> tuple[int, list[str]]:
    """Run `command` in `folder` with these variables alone and log it; returns its exit code and its lines. Raises OSError."""
    log("$ " + shlex.join(command))
    lines = []
    with subprocess.Popen(
        command, env=variables, cwd=folder, start_new_session=True, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        end = partial(_end, process)
        atexit.register(end)  # builds run in threads, which an interruption ends silently
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                log(lines[-1])
        finally:
            atexit.unregister(end)
    return process.returncode, lines


def _end(process: "subprocess.Popen[str]") -> None:
    """With what it has started in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
