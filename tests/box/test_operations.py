"""What a step computes is counted alike by every version of torch, and by hand; what can't be counted is told."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.boxes import bench, only, own_model

pytestmark = pytest.mark.xdist_group("own model")
LITTLE = ("--batch", "2", "--steps", "1", "--windows", "1", "--warmup-steps", "2", "--warmup-cap", "2")
UNSEEN = """\
import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 64)
    def forward(self, inputs):
        q = self.layer(inputs).view(len(inputs), -1, 2, 32).transpose(1, 2)
        return flex_attention(q, q, q)

def batch(size, generator):
    return torch.randn(size, 5, 32, generator=generator), None
"""


def counts(python: str) -> dict[str, Any]:
    script = Path(__file__).with_name("counted_operations.py")
    done = subprocess.run([python, script], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_operations_are_counted_as_by_hand_in_every_mode(real_python: str) -> None:
    for name, found in counts(real_python).items():
        by_hand, training = found.pop("by hand"), found.pop("training")
        assert set(found.values()) == {by_hand}, name
        assert training is None if by_hand is None else by_hand <= training <= 3 * by_hand, name


def test_each_version_of_torch_counts_the_same(real_python: str, newest_python: str) -> None:
    old, new = counts(real_python), counts(newest_python)
    new.pop("grouped queries", None), old.pop("grouped queries", None)
    assert old == new


@pytest.mark.parametrize("which", ["real_python", "newest_python"])
def test_flex_attention_runs_and_its_flops_are_unknown_not_zero(
    request: pytest.FixtureRequest, which: str, tmp_path: Path
) -> None:
    python = request.getfixturevalue(which)
    code, events, stderr = bench(python, *own_model(tmp_path, UNSEEN), *LITTLE, "--mode", "infer")
    assert code == 0, stderr
    reference = only(events, "reference")
    assert reference["flops_per_item"] is None and reference["agrees"] is True
    texts = [text for event in events if event["event"] == "remarks" for text in event["texts"]]
    assert any(text.startswith("FLOPs: not known (") for text in texts), texts
