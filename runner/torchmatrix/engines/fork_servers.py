"""Fork servers: interpreters of a stack that have PyTorch loaded and fork a process for each launch, so that few import it.

What is forked is as good as fresh: images/workload/fork_server.py makes sure of one thread and no open device. A server is kept
for one round, so that the launches of a cell share none, and ended after any launch that doesn't end well. It runs below a
supervisor, and each launch below one of its own, which is forked, too: all of it ends with the tool.
"""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from torchmatrix.engines import cgroups, supervised, supervisor
from torchmatrix.engines.cgroups import Group, Place
from torchmatrix.engines.engine import LaunchSpec
from torchmatrix.engines.limits import OOM_SCORE_ADJ, Limits
from torchmatrix.engines.supervised import OWNER_VARIABLE
from torchmatrix.ground import assets
from torchmatrix.ground.errors import LaunchFailed
from torchmatrix.ground.files import scratch

MOST = 8
"""Servers at a time; each takes the memory of the libraries that it has loaded. Beyond, the oldest that is idle ends."""
LOAD_SECONDS, ANSWER_SECONDS = 300.0, 20.0
"""How long a server may take to import everything, and to answer otherwise."""
_KILLED = -signal.SIGKILL
_LONGEST_NAP = 0.02


class ForkServer:
    """One server. `oom_kills`: how many of its own processes the kernel has ended for memory, once it has ended."""

    def __init__(
        self, python: str, variables: Mapping[str, str], owner: str, place: Place, limits: Limits, box: Path = assets.WORKLOAD
    ) -> None:
        """`box`: the folder of the workload. Raises OSError."""
        self.oom_kills, self.is_busy, self.is_over = 0, False, False
        self._lock = threading.RLock()
        self._group: Group | None = cgroups.make(place, owner, limits) if place.folders else None
        self._log = os.memfd_create("fork-server")
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [python, str(box / "fork_server.py"), str(other.fileno()), supervisor.__file__]
        self._held = ExitStack()
        own = {OWNER_VARIABLE: owner, "TMPDIR": str(self._held.enter_context(scratch()))}
        with other:
            self._process = supervised.start(argv, {**variables, **own}, self._group, (other.fileno(),), self._log)

    def load(self, flags: Sequence[str]) -> str | None:
        """Import what a launch with these flags needs. Returns why none can be forked, or None."""
        try:
            problem = self._ask({"load": list(flags)}, LOAD_SECONDS)["problem"]
        except LaunchFailed as failure:
            problem = f"{failure}{self._last_line()}"
        return None if problem is None else str(problem)

    def fork(self, flags: Sequence[str], variables: Mapping[str, str], group: Group | None) -> "Forked":
        """A launch, which must be read and waited for before the next. Raises LaunchFailed."""
        request = {
            "fork": list(flags),
            "variables": dict(variables),
            "oom_score_adj": str(OOM_SCORE_ADJ),
            "groups": supervised.folders_of(group),
        }
        (stdin, ours), (out, stdout), (err, stderr) = (os.pipe() for _ in range(3))
        streams = os.fdopen(ours, "wb"), os.fdopen(out, "rb"), os.fdopen(err, "rb")
        try:
            pid = int(self._ask(request, ANSWER_SECONDS, (stdin, stdout, stderr))["pid"])
        except LaunchFailed:
            for stream in streams:
                stream.close()
            self.end()
            raise
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
        self.is_busy = True
        return Forked(self, pid, streams)

    def code_of(self, pid: int) -> int | None:
        """The exit code of a launch, negative for a signal; None while it runs. The server is ended unless it is 0."""
        try:
            status = self._ask({"ended": pid}, ANSWER_SECONDS)["status"]
        except LaunchFailed:
            code = _KILLED
        else:
            if status is None:
                return None
            code = os.waitstatus_to_exitcode(status)
        self.is_busy = False
        if code:
            self.end()
        return code

    def end(self) -> None:
        """End it, with all that its launches may have left. May be repeated."""
        with self._lock:
            if self.is_over:
                return
            self.is_over = True
            self._control.close()
            os.close(self._log)
            supervised.end(self._process)
            self._held.close()
            if self._group:
                self.oom_kills = cgroups.oom_kills(self._group)
                cgroups.remove(self._group)

    def _ask(self, request: Mapping[str, Any], seconds: float, descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """Raises LaunchFailed if the server doesn't answer."""
        try:
            self._control.settimeout(seconds)
            socket.send_fds(self._control, [json.dumps(request).encode()], list(descriptors))
            answer = self._control.recv(1 << 16)
        except OSError as error:
            raise LaunchFailed(f"the fork server does not answer: {error}") from None
        if not answer:
            raise LaunchFailed("the fork server has ended")
        try:
            return dict(json.loads(answer))
        except (ValueError, TypeError, RecursionError):
            raise LaunchFailed(f"the fork server answers what is not understood: {answer[:100]!r}") from None

    def _last_line(self) -> str:
        text = os.pread(self._log, os.fstat(self._log).st_size, 0).decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        return f": {lines[-1]}" if lines else ""


class Forked:
    """The supervisor of a forked launch, as a supervised.Process. Its id is its own until its end was asked for."""

    def __init__(self, server: ForkServer, pid: int, streams: tuple[IO[bytes], IO[bytes], IO[bytes]]) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = streams
        self._server = server
        self._code: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        with self._lock:
            if self._code is None:
                self._code = self._server.code_of(self.pid)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises TimeoutExpired."""
        nap, end = 0.0005, None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("a forked launch", timeout or 0.0)
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP)
        return code

    def terminate(self) -> None:
        """SIGTERM."""
        with self._lock, suppress(ProcessLookupError):
            if self._code is None:
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End its server, which ends everything."""
        self._server.end()


class ForkServers:
    """Those of one engine. Safe for threads, of which each has lanes of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[int, ForkServer]] = {}

    def ready(self, python: str, spec: LaunchSpec, make: Callable[[], ForkServer]) -> tuple[ForkServer | None, str | None]:
        """A server that has imported what a launch needs: that of its stack, lane and round, or one that `make` makes.

        None if it should have none or, with the reason, can have none.
        """
        if spec.round is None:
            return None, None
        kept = self._kept_for(python, spec.lane, spec.round)
        try:
            server = kept or make()
        except OSError as error:
            return None, f"no fork server can be started: {error.strerror}"
        try:
            problem = server.load(spec.arguments)
        except BaseException:
            server.end()
            raise
        if problem:
            server.end()
            return None, problem
        if not kept:
            self._keep(python, spec.lane, spec.round, server)
        return server, None

    def _kept_for(self, python: str, lane: str, number: int) -> ForkServer | None:
        """The server of this round; that of an earlier one is ended."""
        with self._lock:
            kept, server = self._kept.get((python, lane), (number, None))
            if server and (kept != number or server.is_over):
                del self._kept[python, lane]
                server.end()
                return None
        return server

    def _keep(self, python: str, lane: str, number: int, server: ForkServer) -> None:
        """Until the next round, or until there are too many."""
        with self._lock:
            idle = [key for key, (_, one) in self._kept.items() if not one.is_busy]
            for key in idle[: max(0, len(self._kept) + 1 - MOST)]:
                self._kept.pop(key)[1].end()
            self._kept[python, lane] = number, server

    def end(self) -> None:
        """End all."""
        with self._lock:
            while self._kept:
                self._kept.popitem()[1][1].end()
