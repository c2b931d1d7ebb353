"""A launch as processes of this user: started, read, ended with everything that it started."""

import os
import selectors
import shlex
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from torchmatrix.engines.engine import Exit
from torchmatrix.ground.errors import LaunchFailed

OWNER_VARIABLE = "TORCHMATRIX_OWNER"
LAUNCH_VARIABLE = "TORCHMATRIX_LAUNCH"
"""They mark our processes, as labels mark containers, so that we find what a killed run or torchrun left behind."""
GRACE_SECONDS = 10.0
"""Between SIGTERM and SIGKILL when a launch is stopped."""


class LocalExecution:
    """One process group of this user, in a session of its own, so that Ctrl-C reaches the tool first."""

    def __init__(self, command: list[str], variables: Mapping[str, str], owner: str) -> None:
        self._argv = command
        self._token = uuid.uuid4().hex
        self._variables = {**variables, OWNER_VARIABLE: owner, LAUNCH_VARIABLE: self._token}
        self._process: subprocess.Popen[bytes] | None = None
        self._oom_kills = 0
        shown = {k: v for k, v in variables.items() if k.endswith("VISIBLE_DEVICES")}
        self.command = " ".join([*(f"{k}={shlex.quote(v)}" for k, v in shown.items()), shlex.join(command)])

    def __enter__(self) -> "LocalExecution":
        self._oom_kills = _kernel_oom_kills()
        try:
            self._process = subprocess.Popen(
                self._argv,
                env=_clean_environment() | self._variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchFailed(f"{self._argv[0]} can't be started: {error.strerror}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._signal(signal.SIGKILL)
        kill_marked(LAUNCH_VARIABLE, self._token)  # torchrun gives each worker its own session
        assert self._process is not None
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines of both streams until the first process has ended and closed them (or left them to stray children)."""
        assert self._process is not None
        with selectors.DefaultSelector() as selector:
            rest = {"out": b"", "err": b""}
            selector.register(self._process.stdout, selectors.EVENT_READ, "out")  # type: ignore[arg-type]
            selector.register(self._process.stderr, selectors.EVENT_READ, "err")  # type: ignore[arg-type]
            while selector.get_map():
                ready = selector.select(timeout=1.0)
                if not ready and self._process.poll() is not None:
                    break
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                    *complete, rest[key.data] = (rest[key.data] + data).split(b"\n")
                    yield from ((key.data, line.decode(errors="replace")) for line in complete)
            yield from ((name, line.decode(errors="replace")) for name, line in rest.items() if line)

    def stop(self) -> None:
        """SIGTERM to the group, then SIGKILL after a grace period."""
        assert self._process is not None
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
        kill_marked(LAUNCH_VARIABLE, self._token)

    def wait(self) -> Exit:
        """The exit code of the first process; out of memory if the kernel's count of such kills went up meanwhile."""
        assert self._process is not None
        code = self._process.wait()
        return Exit(returncode=code, oom_killed=code != 0 and _kernel_oom_kills() > self._oom_kills)

    def owns(self, pid: int) -> bool:
        """Whether the process carries the launch's mark."""
        return f"{LAUNCH_VARIABLE}={self._token}".encode() in environment_of(pid)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


def _clean_environment() -> dict[str, str]:
    """The user's environment without what would leak another installation, or another choice of GPUs, into the stack."""
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("PYTHON") and key != "VIRTUAL_ENV" and not key.endswith("_VISIBLE_DEVICES")
    }


def _kernel_oom_kills() -> int:
    try:
        counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(counts.get("oom_kill", 0))


def kill_marked(variable: str, value: str) -> list[int]:
    """SIGKILL every process of this user whose environment holds variable=value; returns their ids."""
    mark = f"{variable}={value}".encode()
    found = [pid for pid in _own_processes() if mark in environment_of(pid)]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _own_processes() -> list[int]:
    own = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                own.append(int(entry.name))
    return own


def environment_of(pid: int) -> list[bytes]:
    """The variables that a process was started with, as b"NAME=value"; none if it is gone or may not be read."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
