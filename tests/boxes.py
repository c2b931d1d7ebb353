"""Starts the programs of the box under an interpreter with PyTorch, as a person would paste them."""

import atexit
import json
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import channel
from support import PATIENCE_SECONDS
from torchmatrix.engines.commands import box_environment, torchrun
from torchmatrix.engines.engine import Meeting
from torchmatrix.engines.fork_servers import ForkServer
from torchmatrix.engines.processes import NOWHERE, UNLIMITED
from torchmatrix.facts.events import parse_line
from torchmatrix.ground import assets

SMALL = ["--device", "cpu", "--steps", "3", "--warmup-steps", "2", "--warmup-cap", "4", "--threads", "1"]


_NOT_FORKED = frozenset({"--compile", "--runtime"})
"""Compilers and other runtimes keep threads and processes of their own."""
_servers: dict[str, ForkServer] = {}


def bench(
    python: str, *words: str, processes: int = 1, program: tuple[str, ...] = (), **variables: str
) -> tuple[int, list[dict[str, Any]], str]:
    """(exit code, events, stderr) of one launch; of `program`, where it isn't bench.py itself.

    Simple launches are forked from an interpreter that has PyTorch loaded, as the engine forks them.
    """
    is_simple = processes == 1 and not program and not variables and not _NOT_FORKED.intersection(words)
    done = _forked(python, [*SMALL, *words]) if is_simple else None
    code, out, err = done or _fresh(python, words, processes, program, variables)
    events = [event for line in out.splitlines() if (event := parse_line(line))]
    assert len(events) == len([line for line in out.splitlines() if line.strip()]), "stray output on stdout"
    return code, events, err


def _fresh(
    python: str, words: tuple[str, ...], processes: int, program: tuple[str, ...], variables: dict[str, str]
) -> tuple[int, str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meeting = Meeting(node=0, nodes=1, address="127.0.0.1", port=probe.getsockname()[1])
    own = str(assets.WORKLOAD / "bench.py")
    ranks = torchrun(own, processes, meeting) if processes > 1 else []
    command = [python, *ranks, *(program or (own,)), *SMALL, *words]
    environment = {**os.environ, **box_environment("cpu"), **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=environment)
    return done.returncode, done.stdout, done.stderr


def _forked(python: str, flags: list[str]) -> tuple[int, str, str] | None:
    """None where the server can't fork."""
    server = _servers.get(python)
    if server is None or server.is_over:
        server = _servers[python] = ForkServer(python, box_environment("cpu"), "tests", NOWHERE, UNLIMITED)
        atexit.register(server.end)
    if server.load(flags):
        return None
    process = server.fork(flags, box_environment("cpu"), None)
    with ThreadPoolExecutor(2) as pool:
        out, err = (pool.submit(stream.read) for stream in (process.stdout, process.stderr))
        code = process.wait(timeout=PATIENCE_SECONDS)
        found = code, out.result().decode(), err.result().decode()
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()
    return found


def only(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (event,) = (e for e in events if e["event"] == kind)
    return event


class Written:
    """A channel that keeps the lines which the host would get."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def emit(self, event: str, **fields: Any) -> None:
        times = {"unix_seconds": 1.8e9, "monotonic_seconds": 1.0}
        self.lines.append(channel.PREFIX + json.dumps({"event": event, **times, **fields}).encode() + b"\n")
