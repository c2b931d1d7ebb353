"""Starts the workload's programs under an interpreter with PyTorch, as a person would paste them."""

import atexit
import json
import os
import subprocess
from pathlib import Path
from select import select
from typing import Any

import channel
from bench import parse
from support import PATIENCE_SECONDS
from support.containers import free_port
from support.records import launch_lines
from torchmatrix.core import assets
from torchmatrix.engines.engine import Rendezvous, torchrun, workload_environment
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.lines import PREFIX
from torchmatrix.facts.reading import launch_at

SMALL = ["--device", "cpu", "--steps", "3", "--warmup-steps", "2", "--warmup-cap", "4", "--threads", "1"]


NET = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.last = nn.Linear(8, 10)
    def forward(self, images):
        found = self.first(images)
        return self.last((found + self.block(found)).mean((2, 3)))

def batch(size, generator):
    return torch.randn(size, 3, 32, 32, generator=generator), torch.randint(10, (size,), generator=generator)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)
"""
"""A residual net that compiles in a tenth of the time of the smallest that the catalog has."""
_servers: dict[str, "subprocess.Popen[str]"] = {}


KERNELS = "import torch\ntorch.ops.mkldnn._is_mkldnn_bf16_supported = lambda: {}\n"
"""Run before the workload, it answers whether this CPU has kernels for bfloat16."""
WITH_KERNELS = KERNELS.format(True)


def bench(
    python: str, *words: str, processes: int = 1, before: str = "", fresh: bool = False, **variables: str
) -> tuple[int, list[dict[str, Any]], str]:
    """Launch once and return (exit code, events, stderr). `before`: Python to run before the workload's main, in each rank.

    The ranks are forked from an interpreter that has PyTorch loaded (box/rank_server.py), unless they have variables of their
    own, or `fresh` asks for the interpreters, and torchrun, that a user's launch has.
    """
    flags = [*SMALL, *words]
    code, out, err = (
        _fresh(python, flags, processes, variables) if fresh or variables else _forked(python, flags, processes, before)
    )
    events = [json.loads(line.removeprefix(PREFIX)) for line in out.splitlines() if line.startswith(PREFIX)]
    assert len(events) == len([line for line in out.splitlines() if line.strip()]), "stray output on stdout"
    return code, events, err


def _fresh(python: str, flags: list[str], processes: int, variables: dict[str, str]) -> tuple[int, str, str]:
    rendezvous = Rendezvous(node=0, nodes=1, address="127.0.0.1", port=free_port())
    program = str(assets.WORKLOAD / "bench.py")
    ranks = torchrun(program, processes, rendezvous) if processes > 1 else []
    environment = {**os.environ, **workload_environment("cpu"), **variables}
    command = [python, *ranks, program, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=environment)
    return done.returncode, done.stdout, done.stderr


def _forked(python: str, flags: list[str], ranks: int, before: str) -> tuple[int, str, str]:
    server = _server(python)
    assert server.stdin and server.stdout
    server.stdin.write(json.dumps({"flags": flags, "ranks": ranks, "before": before}) + "\n")
    server.stdin.flush()
    assert select([server.stdout], [], [], PATIENCE_SECONDS)[0], "the launch takes too long"
    result = json.loads(server.stdout.readline())
    return result["code"], result["out"], result["err"]


def _server(python: str) -> "subprocess.Popen[str]":
    server = _servers.get(python)
    if server is None or server.poll() is not None:
        command = [python, str(Path(__file__).parents[1] / "box" / "rank_server.py"), str(assets.WORKLOAD)]
        # NumPy's OpenBLAS starts its threads when it is imported; no launch computes with it.
        environment = {**os.environ, **workload_environment("cpu"), "OPENBLAS_NUM_THREADS": "1"}
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        atexit.register(_end, server)
        _servers[python] = server
    return server


def _end(server: "subprocess.Popen[str]") -> None:
    server.kill()
    server.communicate()


def own_model(folder: Path, text: str = NET) -> tuple[str, ...]:
    """Return the flags of a user's own model, the class Net of a file with this text in `folder`."""
    (folder / "net.py").write_text(text)
    return ("--model", "net.Net.x", "--model-file", str(folder / "net.py"), "--model-builder", "Net", "--batch", "4")


def recorded(path: Path, words: tuple[str, ...], processes: int, events: list[dict[str, Any]], **end: Any) -> Launch:
    """Return the launch that the tool would have read back, of a workload process with these flags and lines."""
    args = vars(parse([*SMALL, *words]))
    names = ("model", "mode", "precision", "batch", "steps", "parallel", "compile", "compile_mode", "eval", "runtime")
    job = {name: args[name] for name in names}
    header = launch_lines(vendor="cpu", devices=tuple(range(processes)), job=job, batch_used=args["batch"])[0]
    over = {"event": "exit", "unix_seconds": 2e9, "monotonic_seconds": 1e9, "returncode": 0, "oom_killed": False, **end}
    path.write_text(
        "".join(json.dumps(line) + "\n" for line in ({**header, "monotonic_seconds": 0.0}, *events, over)), encoding="utf-8"
    )
    return launch_at(path)


def only(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (event,) = (e for e in events if e["event"] == kind)
    return event


def remarks_of(events: list[dict[str, Any]]) -> list[str]:
    """Return the remarks, but for the one that tells a busy machine only."""
    texts = [text for event in events if event["event"] == "remarks" for text in event["texts"]]
    return [text for text in texts if not text.startswith("whether the timed steps are those that were proven")]


class Written:
    """A channel that keeps the lines that the host would get."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def emit(self, event: str, **fields: Any) -> None:
        times = {"unix_seconds": 1.8e9, "monotonic_seconds": 1.0}
        self.lines.append(channel.PREFIX + json.dumps({"event": event, **times, **fields}).encode() + b"\n")
