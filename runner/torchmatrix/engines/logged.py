"""Runs a program whose lines belong into a build's log."""

import atexit
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from torchmatrix.engines import supervised


def run(
    command: Sequence[str], log: Callable[[str], None], variables: Mapping[str, str], folder: Path
) -> tuple[int, list[str]]:
    """Run `command` in `folder` with these variables alone and log it; returns its exit code and its lines. Raises OSError.

    However this process ends, the command ends with it.
    """
    log("$ " + shlex.join(command))
    lines = []
    with subprocess.Popen(
        supervised.below(command), env=variables, cwd=folder, start_new_session=True, encoding="utf-8", errors="replace",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        end = partial(supervised.end, process)
        atexit.register(end)  # builds run in threads, which an interruption ends silently
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                log(lines[-1])
        finally:
            atexit.unregister(end)
    return process.returncode, lines
