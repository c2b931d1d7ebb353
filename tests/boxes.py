"""Starts the programs of the box under an interpreter with PyTorch, as a person would paste them."""

import json
import os
import socket
import subprocess
from typing import Any

import channel
from support import PATIENCE_SECONDS
from torchmatrix.engines.commands import box_environment, torchrun
from torchmatrix.facts.events import parse_line
from torchmatrix.ground import assets

SMALL = ["--device", "cpu", "--steps", "3", "--warmup-steps", "2", "--warmup-cap", "4", "--threads", "1"]


def bench(
    python: str, *words: str, processes: int = 1, program: tuple[str, ...] = (), **variables: str
) -> tuple[int, list[dict[str, Any]], str]:
    """(exit code, events, stderr) of one launch; of `program`, where it isn't bench.py itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = str(assets.WORKLOAD / "bench.py")
    ranks = torchrun(own, processes, port) if processes > 1 else []
    command = [python, *ranks, *(program or (own,)), *SMALL, *words]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, **box_environment("cpu"), **variables},
    )
    events = [event for line in done.stdout.splitlines() if (event := parse_line(line))]
    assert len(events) == len([line for line in done.stdout.splitlines() if line.strip()]), "stray output on stdout"
    return done.returncode, events, done.stderr


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
