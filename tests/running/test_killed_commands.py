"""Processes that a command has started elsewhere end with it, even if it is killed: a gate's hook, gather's ssh, srun."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS

HOLDING = 'echo $$ >"$HELD"; exec sleep 1000'
BEGINNINGS = {
    "hook": f"""
from torchmatrix.nightly.gate.verdicts import call_hook
call_hook({HOLDING!r}.replace("$HELD", os.environ["HELD"]), {{"verdict": "pass", "run": "1"}})
""",
    "ssh": """
from torchmatrix_plugins.gather import gather
from torchmatrix.facts.store import Results
gather(Results(Path(os.environ["HELD"]).parent), "ssh://nowhere/results")
""",
    "srun": f"""
from types import SimpleNamespace
from torchmatrix_plugins.cluster.several_nodes import JoinedExecution
JoinedExecution(SimpleNamespace(command=[], started={{}}), ["node2"], ["sh", "-c", {HOLDING!r}]).__enter__()
""",
}


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_what_a_command_has_started_ends_with_it(kind: str, tmp_path: Path) -> None:
    held, programs = tmp_path / "pid", tmp_path / "programs"
    programs.mkdir()
    (programs / "ssh").write_text(f"#!/bin/sh\n{HOLDING}\n", encoding="utf-8")
    (programs / "ssh").chmod(0o755)
    variables = {**os.environ, "HELD": str(held), "PATH": f"{programs}:{os.environ['PATH']}"}
    code = f"import os\nfrom pathlib import Path\n{BEGINNINGS[kind]}"
    with subprocess.Popen([sys.executable, "-c", code], env=variables, stderr=subprocess.DEVNULL) as command:
        pid = int(waited(lambda: held.read_text(encoding="utf-8") if held.exists() else ""))
        command.send_signal(signal.SIGKILL)
    assert waited(lambda: "gone" if not Path(f"/proc/{pid}").exists() or is_zombie(pid) else "") == "gone"


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"


def waited(look: Callable[[], str]) -> str:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        if text := look():
            return str(text).strip()
        time.sleep(0.05)
    return ""
