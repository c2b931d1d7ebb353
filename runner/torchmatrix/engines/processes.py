"""A launch as processes of this user: started, read, ended with everything that it started."""

import os
import selectors
import shlex
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from torchmatrix.engines import cgroups, supervised
from torchmatrix.engines.cgroups import Group, Place
from torchmatrix.engines.engine import Exit
from torchmatrix.engines.limits import Limits, kernel_oom_kills
from torchmatrix.engines.local_caches import LocalCache
from torchmatrix.engines.output import Line, Output
from torchmatrix.engines.supervised import OWNER_VARIABLE
from torchmatrix.ground import files
from torchmatrix.ground.errors import LaunchFailed

LAUNCH_VARIABLE = "TORCHMATRIX_LAUNCH"
"""It marks the processes of a launch, so that we find what torchrun left behind."""
MARKS = (OWNER_VARIABLE, LAUNCH_VARIABLE)
GRACE_SECONDS = 10.0
"""Between SIGTERM and SIGKILL when a launch is stopped."""
NOWHERE = Place()
UNLIMITED = Limits()


class LocalExecution:
    """The processes of a launch, below a supervisor that ends them all; in a session of their own, so that Ctrl-C reaches the
    tool first.
    """

    def __init__(
        self,
        command: list[str],
        variables: Mapping[str, str],
        owner: str,
        cache: LocalCache | None = None,
        place: Place = NOWHERE,
        limits: Limits = UNLIMITED,
        held: ExitStack | None = None,
        pasted: str | None = None,
        scratch: bool = False,
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`held`: what the launch needs as long as it runs; closed at its end. `pasted`: the command as a person can repeat it,
        if that isn't `command`. `scratch`: it gets a temporary folder of its own. `facts`: more of them for the record.
        """
        self._argv = command
        self._cache = cache
        self._held = held or ExitStack()
        self._scratch = scratch
        self._place, self._limits, self._owner = place, limits, owner
        self._group: Group | None = None
        self._token = uuid.uuid4().hex
        self._variables = {**variables, OWNER_VARIABLE: owner, LAUNCH_VARIABLE: self._token}
        self._process: subprocess.Popen[bytes] | None = None
        self._oom_kills = 0
        own = limits.as_facts() | (cache.facts.as_facts() if cache else {})
        self.started: Mapping[str, Any] = own | dict(facts)
        shown = {k: v for k, v in variables.items() if k.endswith("VISIBLE_DEVICES")}
        self.command = pasted or " ".join([*(f"{k}={shlex.quote(v)}" for k, v in shown.items()), shlex.join(command)])

    def __enter__(self) -> "LocalExecution":
        try:
            self._start()
        except LaunchFailed:
            self._release()
            raise
        return self

    def _start(self) -> None:
        if shutil.which(self._argv[0]) is None:
            raise LaunchFailed(f"{self._argv[0]} can't be started: there is no such program")
        self._oom_kills = kernel_oom_kills()
        try:
            if self._scratch:
                self._variables["TMPDIR"] = str(self._held.enter_context(files.scratch()))
            self._group = cgroups.make(self._place, self._owner, self._limits) if self._place.folders else None
            self._process = supervised.start(self._argv, self._variables, self._group)
        except OSError as error:
            raise LaunchFailed(f"{self._argv[0]} can't be started: {error.strerror}") from None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()
        assert self._process is not None
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
        self._release()

    def _release(self) -> None:
        if self._group:
            cgroups.remove(self._group)
        if self._cache:
            self._cache.release()
        self._held.close()

    def lines(self) -> Iterator[Line]:
        """Lines of both streams until the first process has ended and closed them (or left them to stray children)."""
        assert self._process is not None
        with selectors.DefaultSelector() as selector:
            output = Output()
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
                    yield from output.add(key.data, data)
            yield from output.end()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after a grace period."""
        assert self._process is not None
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=GRACE_SECONDS)
        self._end()

    def wait(self) -> Exit:
        """The exit code of the first process; out of memory if the kernel has ended a process of the launch for it.

        Without a control group the kernel counts for the whole machine.
        """
        assert self._process is not None
        code = self._process.wait()
        problem = self._cache.ended(code) if self._cache else None
        kills = cgroups.oom_kills(self._group) if self._group else kernel_oom_kills() - self._oom_kills
        return Exit(returncode=code, oom_killed=code != 0 and kills > 0, problem=problem)

    def owns(self, pid: int) -> bool:
        """Whether the process carries the launch's mark, or descends from it."""
        assert self._process is not None
        return f"{LAUNCH_VARIABLE}={self._token}".encode() in environment_of(pid) or self._process.pid in _ancestors(pid)

    def _end(self) -> None:
        """Let the supervisor end everything. If it was killed itself, the launch's mark tells what it has left."""
        assert self._process is not None
        supervised.end(self._process)
        kill_marked(LAUNCH_VARIABLE, self._token)


def _ancestors(pid: int) -> Iterator[int]:
    """The processes that a process descends from, nearest first."""
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            return
        yield pid


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
