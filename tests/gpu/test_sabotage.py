"""Models that cheat as only a GPU lets them: none gets a figure that counts as an honest one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_machine import Machine, Run

_MODEL = """\
import torch
from torch import nn

UNIT = "images"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.last = nn.Linear(64 * 16 * 16, 100)
        {init}

    def honest(self, images):
        return self.last(self.body(images))

    def forward(self, images):
        {forward}


def batch(size, generator):
    return torch.randn(size, 3, 64, 64, generator=generator), torch.randint(100, (size,), generator=generator)


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)
"""
HONEST = "return self.honest(images)"
CHEATS: dict[str, tuple[str, str, str]] = {
    "TF32 switched on in the model": (
        "train", "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True", HONEST,
    ),
    "a cached output": (
        "infer", "self.kept = None",
        "self.kept = self.honest(images) if self.kept is None or len(self.kept) != len(images) else self.kept\n"
        "        return self.kept",
    ),
    "half of the batch": (
        "infer", "pass", "half = self.honest(images[: len(images) // 2]); return torch.cat([half, half])",
    ),
    "work on another stream that nobody waits for": (
        "infer", "self.other = None",
        "self.other = self.other or torch.cuda.Stream()\n        with torch.cuda.stream(self.other):\n"
        "            for _ in range(20):\n                found = self.honest(images)\n        return found",
    ),
    "events that are recorded on another stream": (
        "infer",
        "record, other = torch.cuda.Event.record, torch.cuda.Stream()\n"
        "        torch.cuda.Event.record = lambda event, stream=None: record(event, other)",
        "for _ in range(20):\n            found = self.honest(images)\n        return found",
    ),
    "a graph that is replayed with old inputs": (
        "infer", "self.graph, self.calls = None, 0",
        "self.calls += 1\n        if self.calls < 8:\n            return self.honest(images)\n        if self.graph is None:\n"
        "            self.graph = torch.cuda.CUDAGraph()\n            self.old = images.clone()\n"
        "            with torch.cuda.graph(self.graph):\n                self.out = self.honest(self.old)\n"
        "        self.graph.replay()\n        return self.out.clone()",
    ),
}  # fmt: skip
NEEDS_A_REAL_ONE = (
    "work on another stream that nobody waits for", "events that are recorded on another stream",
    "a graph that is replayed with old inputs",
)  # fmt: skip
"""The invented device has neither streams nor graphs."""


@pytest.fixture
def measure(machine: Machine) -> Callable[..., Run]:
    """Return what measures the model with these lines in fp32."""

    def run(mode: str, init: str, forward: str) -> Run:
        text = _MODEL.format(init=init, forward=forward)
        Path(machine.folder / "net.py").write_text(text, encoding="utf-8")
        workload = machine.workload("net.py:Net", 64 if machine.is_real else 2, mode=mode, precision="fp32")
        return machine.run(workload, files=(machine.folder / "net.py",))

    return run


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_the_honest_model_has_a_figure_and_no_remark(
    machine: Machine, measure: Callable[..., Run], seen: dict[str, Any], mode: str
) -> None:
    run = measure(mode, "pass", HONEST)
    (row,) = run.rows
    seen |= {"outcome": row.outcome, "remarks": row.value("remarks"), "items_per_second": row.throughput}
    assert row.outcome == "ok", run.done.stderr
    assert not row.value("remarks") and not row.value("changed_settings")


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_seen(machine: Machine, measure: Callable[..., Run], seen: dict[str, Any], name: str) -> None:
    if not machine.is_real and name in NEEDS_A_REAL_ONE:
        pytest.skip("the invented device has neither streams nor graphs")
    run = measure(*CHEATS[name])
    (row,) = run.rows
    seen |= {key: row.value(key) for key in ("outcome", "error", "remarks", "changed_settings", "mixed", "throughput")}
    assert row.outcome in ("numerics", "unsupported", "crashed") or row.value("remarks") or row.mixed, run.done.stderr
