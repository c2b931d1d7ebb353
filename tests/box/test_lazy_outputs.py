"""What a model of inference returns is computed within its step, or the launch is refused: nothing is left for who reads it."""

from pathlib import Path

import pytest

from support.boxes import bench, only, own_model

pytestmark = pytest.mark.xdist_group("own model")
LITTLE = ("--mode", "infer", "--steps", "3", "--windows", "1", "--warmup-steps", "2", "--warmup-cap", "2", "--requests", "3")
NET = """
import collections, dataclasses, types
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 8)

    def forward(self, inputs):
        {forward}

{more}

def batch(size, generator):
    return torch.randn(size, 64, generator=generator), torch.randn(size, 8, generator=generator)
"""
LAZY = """
@dataclasses.dataclass
class Given:
    inputs: torch.Tensor
    layer: object = dataclasses.field(default=None, repr=False)
    @property
    def logits(self):
        return self.layer(self.inputs)

class Lazy:
    def __init__(self, layer, inputs):
        self.layer, self.inputs = layer, inputs
    @property
    def logits(self):
        return self.layer(self.inputs)

class Answers(dict):
    def values(self):
        return [self["layer"](self["inputs"])]
    def items(self):
        return [("logits", self["layer"](self["inputs"]))]

class Late(torch.Tensor):
    @staticmethod
    def __new__(cls, layer, inputs):
        made = torch.Tensor._make_subclass(cls, torch.zeros(len(inputs), 8))
        made.todo = layer, inputs
        return made
    @classmethod
    def __torch_function__(cls, function, types, given=(), named=None):
        def real(thing):
            return thing.todo[0](thing.todo[1]) if isinstance(thing, Late) and "todo" in vars(thing) else thing
        with torch._C.DisableTorchFunctionSubclass():
            return function(*map(real, given), **(named or {}))

Pair = collections.namedtuple("Pair", "logits name")

@dataclasses.dataclass
class Whole:
    logits: torch.Tensor
    more: dict
"""
LOSS = "def loss(outputs, targets):\n    return (outputs.logits - targets).square().mean()"
REFUSED = {
    "an object": ("return Lazy(self.layer, inputs)", "returns a Lazy, of which nobody can say when it is computed"),
    "a generator": ("return (self.layer(row) for row in inputs)", "returns a generator"),
    "a function": ("return {'logits': lambda: self.layer(inputs)}", "returns a function"),
    "a layer in a dataclass": ("return Given(inputs, self.layer)", "returns a Linear"),
    "a property of a dataclass": (
        "given = Given(inputs * 1.0); given.layer = None; return given",
        "logits is no member of what",
    ),
    "a tensor that computes": ("return Late(self.layer, inputs)", "away from eager fp32"),
    "its inputs": ("return {'inputs': inputs, 'weight': self.layer.weight}", "computes nothing, or only when it is read"),
}
TIMED = {
    "a tensor": "return self.layer(inputs)",
    "a named tuple": "return Pair(self.layer(inputs), 'x')",
    "a dataclass": "return Whole(self.layer(inputs), {'n': 3})",
    "lists and dicts": "return {'logits': self.layer(inputs), 'rest': [(self.layer.weight, None), 2]}",
    "a dict that computes": "return Answers(layer=self.layer, inputs=inputs)",
}


@pytest.mark.parametrize("what", REFUSED)
def test_outputs_that_are_computed_later_are_refused(real_python: str, tmp_path: Path, what: str) -> None:
    forward, message = REFUSED[what]
    more = LAZY + (LOSS if "property" in what else "")
    code, events, _ = bench(real_python, *own_model(tmp_path, NET.format(forward=forward, more=more)), *LITTLE)
    assert code and message in only(events, "failure")["message"]
    assert not any(event["event"] == "done" for event in events)


@pytest.mark.parametrize("python", ["real_python", "newest_python"])
@pytest.mark.parametrize("what", TIMED)
def test_outputs_in_containers_of_all_kinds_are_computed_in_the_step(
    request: pytest.FixtureRequest, tmp_path: Path, what: str, python: str
) -> None:
    text = NET.format(forward=TIMED[what], more=LAZY)
    code, events, stderr = bench(request.getfixturevalue(python), *own_model(tmp_path, text), *LITTLE)
    assert code == 0, stderr
    reference = only(events, "reference")
    assert reference["agrees"] is True and reference["flops_per_item"] == 2 * 64 * 8


SKIPS = """
self.calls = getattr(self, 'calls', 0) + 1
        given = self.layer(inputs * 0 + 1)
        return given * 0 + (7.0 if self.calls == 4 else 3.0)
"""


def test_a_step_that_gives_other_outputs_is_told_with_what_it_gave_first(real_python: str, tmp_path: Path) -> None:
    text = NET.format(forward=SKIPS.strip(), more="")
    code, events, _ = bench(real_python, *own_model(tmp_path, text), *LITTLE, "--batches", "1")
    assert code and "a number of them is 7, and was 3" in only(events, "failure")["message"]
