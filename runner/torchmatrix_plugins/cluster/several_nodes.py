"""Run a launch on several nodes from the node that records it; the other nodes take part through srun.

take_part in on_node.py is their side. They print lines of JSON: "node" (who it is, and that it is ready), "telemetry", "line"
(output of their workload), "exit" (how it ended), "failed" (why there is none).
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from torchmatrix.core import settings
from torchmatrix.core.errors import EngineLost, LaunchFailed
from torchmatrix.core.process import end_with_parent
from torchmatrix.engines.engine import Execution, Exit, Image, LaunchSpec, Line, Rendezvous
from torchmatrix.facts.launch import in_words
from torchmatrix.machine import host
from torchmatrix.running.launch_cell import OF_NODE
from torchmatrix_plugins.cluster.slurm import Slurm

PREPARING_SECONDS = 3600.0
"""Another node may have to build the stack first."""
GRACE_SECONDS = 30.0
"""The time that the other nodes have to end after this node's ranks have failed."""
GO = "go\n"
_AGAIN = "the launch is made again"
_HERE, _OUT, _ERR = "here", "out", "err"


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherNodes:
    """`names`: of the other nodes, in the order of their ranks. `launch`: the arguments of take_part that name the launch."""

    rendezvous: Rendezvous
    names: tuple[str, ...]
    launch: tuple[str, ...]

    def join(self, execution: Execution, image: Image, spec: LaunchSpec) -> "JoinedExecution":
        """Return the launch on all nodes."""
        request = {
            "arguments": spec.arguments,
            "cache": spec.cache,
            "environment": image.environment,
            "nodes": self.names,
            "address": self.rendezvous.address,
            "port": self.rendezvous.port,
        }
        number = len(self.names)
        command = ["srun", f"--nodes={number}", f"--ntasks={number}", "--relative=1", "--mpi=none", "--cpu-bind=none"]
        command += ["--kill-on-bad-exit=1", sys.executable, "-m", "torchmatrix", "on-node", "join"]
        return JoinedExecution(execution, self.names, [*command, *self.launch, json.dumps(request)])


def peers(place: Path, number: int, task: int) -> OtherNodes | None:
    """Return the other nodes of this job, which makes a launch of an order's array; None if it has one node.

    Raises EngineUnusable.
    """
    if int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) < 2:
        return None
    slurm = Slurm(settings.load().slurm)
    first, *names = slurm.nodes_of_job(os.environ["SLURM_JOB_NODELIST"])
    rendezvous = rendezvous_of(0, 1 + len(names), slurm.address(first), host.free_port(), towards=slurm.address(names[0]))
    return OtherNodes(rendezvous=rendezvous, names=tuple(names), launch=(str(place), str(number), str(task)))


def rendezvous_of(node: int, nodes: int, address: str, port: int, *, towards: str) -> Rendezvous:
    """Return where the ranks meet, as this node sees it; `towards`: the address of another node."""
    interface = settings.load().slurm.interface or host.interface_to(towards)
    return Rendezvous(node=node, nodes=nodes, address=address, port=port, interface=interface, devices=host.fabric())


class JoinedExecution:
    """The execution of a launch on this node and on other nodes, as one."""

    def __init__(self, here: Execution, names: Sequence[str], command: Sequence[str]) -> None:
        self._here, self._names, self._command = here, tuple(names), command
        self.command = here.command
        self.started: Mapping[str, Any] = {**here.started, "other_nodes": list(names)}
        self._process: subprocess.Popen[bytes] | None = None
        self._queue: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._early: list[Line] = []
        self._ready: set[str] = set()
        self._ends: dict[str, Exit] = {}
        self._end: Exit | None = None
        self._problem = ""
        self._has_output = False
        self._error: BaseException | None = None

    def __enter__(self) -> "JoinedExecution":
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGTERM),
            )  # fmt: skip
        except OSError as error:
            raise LaunchFailed(f"srun can't be started: {error.strerror}") from None
        try:
            for stream, pipe in ((_OUT, self._process.stdout), (_ERR, self._process.stderr)):
                threading.Thread(target=self._read, args=(stream, pipe), daemon=True, name=f"nodes-{stream}").start()
            self._await_others()
            self._here.__enter__()
        except BaseException:
            self._end_others()
            raise
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_others()
        self._here.__exit__(error_type, error, trace)

    def _await_others(self) -> None:
        """Wait until every other node has its image and free devices, then let them begin. Raises LaunchFailed."""
        until = time.monotonic() + PREPARING_SECONDS
        while len(self._ready) < len(self._names):
            try:
                stream, item = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                missing = ", ".join(name for name in self._names if name not in self._ready)
                raise LaunchFailed(f"{missing} was not ready after {PREPARING_SECONDS:g} s") from None
            self._early += self._interpret(stream, item)
            if self._problem:
                raise LaunchFailed(self._problem)
            if (stream, item) == (_OUT, None):
                raise EngineLost(f"srun ended before all nodes were ready: {self._last_error_line()}", hint=_AGAIN)
        assert self._process is not None and self._process.stdin is not None
        with suppress(OSError):  # srun has just ended: its lines say why
            self._process.stdin.write(GO.encode())
            self._process.stdin.close()

    def lines(self) -> Iterator[Line]:
        """Yield the lines of all nodes as they come."""
        threading.Thread(target=self._follow, daemon=True, name="nodes-here").start()
        yield from self._early
        running = {_HERE, _OUT, _ERR}
        while running:
            stream, item = self._queue.get()
            if item is None:
                running.discard(stream)
                self._end_part(stream)
            else:
                yield from self._interpret(stream, item)
        if self._error:
            raise self._error

    def _end_part(self, stream: str) -> None:
        """Handle the end of one stream; a part that failed ends the other parts, too."""
        if stream == _HERE and (self._end is None or self._end.returncode):
            threading.Timer(GRACE_SECONDS, self._end_others).start()
        if stream == _OUT and (self._wrong_elsewhere() or len(self._ends) < len(self._names)):
            self._stop_here()

    def _stop_here(self) -> None:
        if self._end is None:
            threading.Thread(target=self._here.stop, daemon=True, name="nodes-stop").start()

    def _follow(self) -> None:
        """Queue this node's lines to their end."""
        try:
            for line in self._here.lines():
                self._queue.put((_HERE, line))
            self._end = self._here.wait()
        except BaseException as error:  # raised again where the lines are read
            self._error = error
        self._queue.put((_HERE, None))

    def _read(self, stream: str, pipe: IO[bytes]) -> None:
        for line in pipe:
            self._queue.put((stream, line))
        self._queue.put((stream, None))

    def _interpret(self, stream: str, item: Any) -> Iterator[Line]:
        """Yield the lines that an item means: facts of a node or lines of its workload; or keep a node's end."""
        if item is None:
            return
        if stream == _HERE:
            yield item
            return
        message = _parse_message(item) if stream == _OUT else None
        if message is None:
            yield "err", item
        elif message["event"] in ("node", "telemetry"):
            self._ready |= {message["name"]} if message["event"] == "node" else set()
            yield OF_NODE, item
        elif message["event"] == "line":
            self._has_output |= message["stream"] == "out"
            yield message["stream"], message["text"].encode(errors="replace")
        elif message["event"] == "failed":
            self._problem = f"{message['name']}: {message['message']}"
        elif message["event"] == "exit":
            end = Exit(returncode=message["returncode"], oom_killed=message["oom_killed"], problem=message["problem"])
            self._ends[message["name"]] = end
            if end.returncode:
                self._stop_here()

    def stop(self) -> None:
        """End this node's part, and then the other nodes'."""
        self._here.stop()
        self._end_others()

    def wait(self) -> Exit:
        """Return this node's end, unless another node's is worse. Raises EngineLost if another node has gone."""
        assert self._end is not None
        if gone := [name for name in self._names if name not in self._ends and not self._problem]:
            raise EngineLost(f"{', '.join(gone)} ended without a word", hint=_AGAIN)
        ends = [*self._ends.values(), self._end]
        failed = next((end.returncode for end in ends if end.returncode), 0)
        return Exit(
            returncode=failed,
            oom_killed=any(end.oom_killed for end in ends),
            problem=self._end.problem or self._wrong_elsewhere() or self._failed_elsewhere() or None,
        )

    def _failed_elsewhere(self) -> str:
        """Return which other node's part failed, unless a workload there printed why: only rank 0, which is here, and failing
        ranks print.
        """
        failed = [f"{name}: {in_words(end.returncode)}" for name, end in self._ends.items() if end.returncode]
        return "" if self._has_output else next(iter(failed), "")

    def _wrong_elsewhere(self) -> str:
        """Return why another node's part can't count; empty if it can."""
        wrong = [f"{name}: {end.problem}" for name, end in self._ends.items() if end.problem]
        return self._problem or next(iter(wrong), "")

    def owns(self, pid: int) -> bool:
        """Check whether this process of this node is part of the launch."""
        return self._here.owns(pid)

    def _last_error_line(self) -> str:
        lines = [line.decode(errors="replace").strip() for stream, line in self._early if stream == "err"]
        return next((line for line in reversed(lines) if line), "it said nothing")

    def _end_others(self) -> None:
        """Terminate srun, which passes SIGTERM on; each part then removes what it started."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def _parse_message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and "event" in message and "name" in message else None
