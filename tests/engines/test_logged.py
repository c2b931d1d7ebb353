"""Commands that run for a build are logged, and end with whoever started them."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS, processes_of, until
from torchmatrix.engines import packages

KILLED = """
import os, signal, sys, threading
from pathlib import Path
from torchmatrix.engines import packages

def heard(line):
    if line == "begun":
        os.kill(os.getpid(), signal.SIGKILL)

command = ["sh", "-c", "sleep 1000 & setsid sleep 1000 & echo begun; sleep 1000"]
thread = threading.Thread(target=lambda: packages.run_logged(command, heard, dict(os.environ), Path("/")))
thread.start()
thread.join()
"""


def test_the_lines_of_a_command_are_logged_and_its_exit_code_is_returned(tmp_path: Path) -> None:
    log: list[str] = []
    command = ["sh", "-c", "cat; pwd; printf 'a\\rb\\303\\n' >&2; echo $A; exit 3"]
    code, lines = packages.run_logged(command, log.append, {"A": "x y", "PATH": "/bin:/usr/bin"}, tmp_path)
    assert (code, lines) == (3, [str(tmp_path), "a", "b\ufffd", "x y"]) and log[1:] == lines and log[0].startswith("$ sh -c")


@pytest.mark.parametrize("command", [["sh", "-c", "kill -9 $$"], ["no such program"]])
def test_a_command_that_is_killed_or_not_there_did_not_succeed(tmp_path: Path, command: list[str]) -> None:
    code, _ = packages.run_logged(command, lambda line: None, {"PATH": "/bin:/usr/bin"}, tmp_path)
    assert code in (-signal.SIGKILL, 127)


def test_a_command_ends_with_all_that_it_started_once_the_tool_is_killed(tmp_path: Path) -> None:
    mark = f"TORCHMATRIX_OWNER={tmp_path.name}"
    done = subprocess.run(["env", mark, sys.executable, "-c", KILLED], timeout=PATIENCE_SECONDS)
    assert done.returncode == -signal.SIGKILL
    until(lambda: not processes_of(mark.encode()))
