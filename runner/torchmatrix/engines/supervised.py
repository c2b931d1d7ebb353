"""Starts what runs below a supervisor, and ends it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import IO

from torchmatrix.engines import supervisor
from torchmatrix.engines.cgroups import Group
from torchmatrix.engines.limits import OOM_SCORE_ADJ
from torchmatrix.ground import assets
from torchmatrix.machine import masks

OWNER_VARIABLE = "TORCHMATRIX_OWNER"
"""It marks our processes, as labels mark containers, so that we find what a killed run left behind."""


def start(argv: Sequence[str], variables: Mapping[str, str], group: Group | None) -> "subprocess.Popen[bytes]":
    """The command below a supervisor, in a session of its own. Raises OSError."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__, str(OOM_SCORE_ADJ), "\n".join(folders_of(group)), *argv],
        env=_clean_environment() | dict(variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
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


def end(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
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
LIBRARIES = "LD_LIBRARY_PATH"
"""Where programs of this machine may find theirs."""


def _clean_environment() -> dict[str, str]:
    """The user's environment without what would leak into the stack: another installation, another choice of GPUs, more folders
    or variables for its container, and whatever acts on what runs.
    """
    return {
        key: value
        for key, value in os.environ.items()
        if key in _KEPT
        or not (key.startswith(_FOREIGN) or key == "VIRTUAL_ENV" or key.endswith("_VISIBLE_DEVICES") or acts(key))
    }


def inherited(names: Sequence[str]) -> dict[str, str]:
    """The user's variables of these names, or patterns such as KMP_*."""
    return {key: value for key, value in os.environ.items() if any(fnmatchcase(key, name) for name in names)}


def withheld(names: Sequence[str]) -> list[str]:
    """The user's variables that act on what runs and are not among those."""
    return sorted(key for key in os.environ if acts(key) and key not in inherited(names))


def acts(name: str) -> bool:
    """Whether a variable of that name changes what a launch computes, or how fast; images/workload/variables.json says so."""
    known = _variables()
    return _is_among(name, known["acting"]) and not _is_among(name, known["idle"])


def _is_among(name: str, known: Sequence[str]) -> bool:
    return any(name.startswith(one) if one.endswith("_") else name == one for one in known)


@cache
def _variables() -> dict[str, list[str]]:
    return dict(json.loads((assets.WORKLOAD / "variables.json").read_text(encoding="utf-8")))
