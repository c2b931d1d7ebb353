"""Processes of a local launch that try to outlive it: none does, and nobody else's is touched."""

import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import processes_of, until
from torchmatrix.engines.processes import LocalExecution

ESCAPING = """
import os, signal, sys, time
def escape():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            code = "import os, sys, time; print(os.getpid(), file=open(sys.argv[1], 'w'), flush=True); time.sleep(600)"
            os.execve(sys.executable, [sys.executable, "-S", "-c", code, sys.argv[1]], {})
        os._exit(0)
def hop():
    # a process that is another one every few milliseconds
    if os.fork() == 0:
        os.setsid()
        end = time.monotonic() + 600
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
            os.environ.clear()
escape()
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read().strip():
    time.sleep(0.01)
"""
"""A workload whose grandchild has its own session, no parent, no environment and ignores SIGTERM; it writes its id."""
OWNER = f"test-escapes-{uuid.uuid4().hex}"
"""Of this process alone: another one may run these tests at the same time."""
ENDS = {
    "it ends": "",
    "it fails": "sys.exit(7)",
    "it is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "it hops": "hop()",
    "it goes on": "print('up', flush=True)\ntime.sleep(600)",
}


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process of the same user and the same parent as the tool's own."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def escaping(folder: Path, end: str) -> tuple[list[str], Path]:
    """Return the command of a workload that lets a process escape and then ends so, and where that one's id will be."""
    (folder / "box.py").write_text(ESCAPING + ENDS[end])
    return [sys.executable, "-S", str(folder / "box.py"), str(folder / "pid")], folder / "pid"


@pytest.mark.parametrize(("end", "code"), [("it ends", 0), ("it fails", 7), ("it is killed", -9), ("it hops", 0)])
def test_an_escaped_process_ends_with_its_launch(
    tmp_path: Path, bystander: "subprocess.Popen[bytes]", end: str, code: int
) -> None:
    command, pid_file = escaping(tmp_path, end)
    with LocalExecution(command, {}, owner=OWNER) as execution:
        list(execution.lines())
        assert execution.wait().returncode == code
        assert not Path(f"/proc/{int(pid_file.read_text())}").exists(), "ended as soon as the launch is over"
        assert not processes_of(f"TORCHMATRIX_OWNER={OWNER}".encode())
    assert bystander.poll() is None


def test_an_escaped_process_ends_when_the_launch_is_stopped(tmp_path: Path, bystander: "subprocess.Popen[bytes]") -> None:
    command, pid_file = escaping(tmp_path, "it goes on")
    with LocalExecution(command, {}, owner=OWNER) as execution:
        assert next(iter(execution.lines())) == ("out", b"up\n")
        escaped = int(pid_file.read_text())
        assert Path(f"/proc/{escaped}").exists() and execution.owns(escaped) and not execution.owns(bystander.pid)
    assert not Path(f"/proc/{escaped}").exists() and bystander.poll() is None


def test_an_escaped_process_ends_when_the_tool_is_killed(tmp_path: Path) -> None:
    command, pid_file = escaping(tmp_path, "it goes on")
    tool = textwrap.dedent(f"""
        from torchmatrix.engines.processes import LocalExecution
        with LocalExecution({command!r}, {{}}, owner={OWNER + "-killed"!r}) as execution:
            for line in execution.lines():
                print(line, flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", tool], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and "up" in process.stdout.readline()
    process.kill()
    process.communicate()
    until(lambda: not Path(f"/proc/{int(pid_file.read_text())}").exists())
    until(lambda: not processes_of(f"TORCHMATRIX_OWNER={OWNER}-killed".encode()))


def test_a_launch_writes_no_core_dumps_and_is_what_the_kernel_ends_first() -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE), open('/proc/self/oom_score_adj').read())"
    with LocalExecution([sys.executable, "-c", code], {}, owner="test-limits") as execution:
        assert list(execution.lines()) == [("out", b"(0, 0) 1000\n"), ("out", b"\n")]
        assert execution.wait().returncode == 0
    assert execution.started["core_bytes"] == 0 and execution.started["oom_score_adj"] == 1000


def test_a_launch_ends_by_the_signal_that_ended_its_program() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    with LocalExecution([sys.executable, "-c", code], {}, owner="test-signal") as execution:
        list(execution.lines())
        assert execution.wait().returncode == -signal.SIGSEGV
