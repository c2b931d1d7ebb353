"""Starts what runs below a supervisor, and ends it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

from torchmatrix.engines import supervisor
from torchmatrix.engines.cgroups import Group
from torchmatrix.engines.limits import OOM_SCORE_ADJ
from torchmatrix.machine import masks

OWNER_VARIABLE = "TORCHMATRIX_OWNER"
"""It marks our processes, as labels mark containers, so that we find what a killed run left behind."""


class Process(Protocol):
    """A supervisor as its parent knows it: a subprocess.Popen, or one that a fork server has forked."""

    pid: int

    @property
    def stdin(self) -> IO[bytes] | None: ...

    @property
    def stdout(self) -> IO[bytes] | None: ...

    @property
    def stderr(self) -> IO[bytes] | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


def start(
    argv: Sequence[str],
    variables: Mapping[str, str],
    group: Group | None,
    passed: Sequence[int] = (),
    output: int | IO[bytes] = subprocess.PIPE,
) -> "subprocess.Popen[bytes]":
    """The command below a supervisor, in a session of its own; `passed`: descriptors that it inherits. Raises OSError."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__, str(OOM_SCORE_ADJ), "\n".join(folders_of(group)), *argv],
        env=_clean_environment() | dict(variables),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        pass_fds=passed,
        start_new_session=True,
    )


def below(argv: Sequence[str], given: IO[bytes] | None = None) -> list[str]:
    """The words that run a command below a supervisor: it ends, with all that it started, once their standard input is closed.

    `given`: what the command reads instead; whoever starts it passes that descriptor on.
    """
    reading = ["sh", "-c", f'exec "$@" </proc/self/fd/{given.fileno()}', "sh"] if given else []
    own = Path("/proc/self/oom_score_adj").read_text(encoding="utf-8").strip()
    return [sys.executable, "-I", "-S", supervisor.__file__, own, "", *reading, *argv]


def folders_of(group: Group | None) -> list[str]:
    """The folders of a control group, if there is one."""
    return [str(folder) for folder in group.folders] if group else []


def end(process: "Process | subprocess.Popen[str]") -> None:
    """Let a supervisor end all that it has below it."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(timeout=2 * supervisor.PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:  # a process that the kernel holds can't be ended; nobody waits for it for ever
        process.kill()
        process.wait()


_FOREIGN = ("PYTHON", "APPTAINER", "SINGULARITY", *masks.VARIABLES)
_KEPT = ("APPTAINER_TMPDIR", "SINGULARITY_TMPDIR")


def _clean_environment() -> dict[str, str]:
    """The user's environment without what would leak into the stack: another installation, another choice of GPUs, more folders
    or variables for its container.
    """
    return {
        key: value
        for key, value in os.environ.items()
        if key in _KEPT or not (key.startswith(_FOREIGN) or key == "VIRTUAL_ENV" or key.endswith("_VISIBLE_DEVICES"))
    }
