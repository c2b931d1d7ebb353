"""What a model does on a batch that is drawn after everything timed is judged, at its full size: no file can prepare for it."""

from pathlib import Path
from typing import Any

import pytest

from support.boxes import bench, only, own_model

pytestmark = pytest.mark.xdist_group("own model")
NET = """\
import hashlib
import torch
from torch import nn

WIDE, OWNER = 512, []

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDE, WIDE) for _ in range(12))
        self.known, self.calls = {{}}, 0
        {init}
    def whole(self, inputs):
        for layer in self.layers:
            inputs = torch.tanh(layer(inputs))
        return inputs
    def forward(self, inputs):
        self.calls += 1
        {forward}
        return self.whole(inputs)

def batch(size, generator):
    return torch.randn(size, WIDE, generator=generator), torch.randn(size, WIDE, generator=generator)

def loss(outputs, targets):
    return nn.functional.mse_loss(outputs.float(), targets.float())
"""
INFER, TRAIN = ("--mode", "infer", "--requests", "0"), ()
PLAIN = ("--batch", "64", "--steps", "12", "--warmup-steps", "8", "--warmup-cap", "12", "--batches", "4")
FALSE = {
    "batches that are known by heart, others are not computed": (
        INFER, "",
        "key = float(inputs.sum())\n"
        "        if key not in self.known and len(self.known) < 4: self.known[key] = self.whole(inputs)\n"
        "        return self.known.get(key, inputs * 0.5)",
        ("is 0.5 away from eager", "less was done", "away from eager"),
    ),
    "batches that are known by heart, others are computed": (
        INFER, "",
        "key = float(inputs.sum())\n"
        "        if key not in self.known: self.known[key] = self.whole(inputs)\n"
        "        return self.known[key]",
        ("the step that is proven takes", "less was done"),  # by its pace, or where the machine is busy by its operations
    ),
    "other outputs for the batches of the windows, at the same cost": (
        INFER, "",
        "key = float(inputs.sum())\n"
        "        OWNER.append(id(self))\n"
        "        if len(self.known) < 4: self.known[key] = 1\n"
        "        if key in self.known and OWNER[0] == id(self): return self.whole(inputs) * 1.5",
        ("what the windows' steps gave for a batch differs from eager fp32",),
    ),
    "half of the layers where all items are there": (
        TRAIN, "self.dropout_rate = 0.1",
        "if self.dropout_rate:\n"
        "            for layer in self.layers[:6]: inputs = torch.tanh(layer(inputs))\n"
        "            return inputs + 0.0 * sum(layer.weight.sum() for layer in self.layers)",
        ("less was done",),
    ),
    "another type where more than two items are there": (
        INFER, "",
        "if len(inputs) > 2:\n"
        "            for layer in self.layers: inputs = (inputs.bfloat16() @ layer.weight.t().bfloat16()).float().tanh()\n"
        "            return inputs",
        ("precision fp32 was requested",),
    ),
    "four of ten steps left out": (
        INFER, "self.last = torch.zeros(0)",
        "if self.calls % 10 < 6 or len(self.last) != len(inputs): self.last = self.whole(inputs)\n"
        "        return self.last",
        ("gave other outputs for a batch than a step before",),
    ),
}  # fmt: skip
HONEST = {
    "trained": (TRAIN, "", "pass"),
    "in inference": (INFER, "", "pass"),
    "with dropout": (TRAIN, "self.dropout = nn.Dropout(0.2)", "inputs = self.dropout(inputs)"),
    "compiled": ((*INFER, "--compile"), "", "pass"),
    "in bfloat16": ((*INFER, "--precision", "bf16-weights"), "", "pass"),
    "a branch by content": (TRAIN, "", "if inputs.sum() > 0: return self.whole(inputs) + self.layers[0](inputs)"),
}


def launched(python: str, folder: Path, words: tuple[str, ...], init: str, forward: str) -> tuple[int, Any, str]:
    text = NET.format(init=init or "pass", forward=forward)
    return bench(python, *own_model(folder, text), *PLAIN, *words)


@pytest.mark.parametrize("kind", FALSE)
def test_what_was_timed_is_what_an_unknown_batch_gets(real_python: str, tmp_path: Path, kind: str) -> None:
    words, init, forward, messages = FALSE[kind]
    code, events, stderr = launched(real_python, tmp_path, words, init, forward)
    failures = [event["message"] for event in events if event["event"] == "failure"]
    assert code and failures and any(message in failures[0] for message in messages), (failures, stderr)


@pytest.mark.parametrize("kind", HONEST)
def test_honest_models_are_proven_on_it(real_python: str, tmp_path: Path, kind: str) -> None:
    words, init, forward = HONEST[kind]
    code, events, stderr = launched(real_python, tmp_path, words, init, forward)
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr
