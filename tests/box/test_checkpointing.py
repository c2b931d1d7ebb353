"""Activation checkpointing with real launches: the same gradients, dropout included, from fewer kept activations."""

import subprocess

import pytest

from support.boxes import bench, only
from support.sabotaged import Sabotage
from torchmatrix.core import assets

pytestmark = pytest.mark.thorough

BERT = ("--model", "bert-tiny", "--sequence-length", "16", "--batch", "4", "--optimizer", "adamw")
LM = ("--model", "lm-1m", "--sequence-length", "16", "--batch", "2", "--optimizer", "adamw", "--attention", "sdpa")
WITH = ("--checkpointing",)
KEPT = f"""
import sys, torch
sys.path.insert(0, {str(assets.WORKLOAD)!r})
import checkpointing
def kept(change):
    torch.manual_seed(0)
    block = lambda: torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Dropout(), torch.nn.Linear(64, 8))
    net, count = torch.nn.Sequential(torch.nn.ModuleList([block() for _ in range(3)])), []
    net.forward = lambda x: net[0][2](net[0][1](net[0][0](x)))
    change(net)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: count.append(t.numel()) or t, lambda t: t):
        loss = net(torch.ones(32, 8)).sum()
    loss.backward()
    return sum(count), [p.grad for p in net.parameters()]
blocks = []
(all_of_them, plain), (few, again) = kept(lambda net: None), kept(lambda net: blocks.append(checkpointing.apply(net)))
assert few < all_of_them / 5 and all(map(torch.equal, plain, again)), (few, all_of_them)
"""
NOTHING = "import torch.utils.checkpoint as c; c.checkpoint = lambda call, *given, **words: call(*given)"


def test_a_checkpointed_model_keeps_fewer_numbers_and_has_the_same_gradients(real_python: str) -> None:
    done = subprocess.run([real_python, "-c", KEPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "ranks"), [(BERT, 1), ((*BERT, "--accumulate", "2"), 2), (LM, 1), ((*LM, "--parallel", "fsdp"), 2)],
    ids=["with dropout", "micro batches under ddp", "lm", "fsdp"],
)  # fmt: skip
def test_checkpointing_changes_no_gradient(newest_python: str, words: tuple[str, ...], ranks: int) -> None:
    fingerprints, flops = [], []
    for more in ((), WITH):
        code, events, stderr = bench(newest_python, *words, *more, processes=ranks)
        assert code == 0 and only(events, "reference")["agrees"] is True, stderr
        fingerprints.append(only(events, "reference")["fingerprint"])
        flops.append(only(events, "reference")["flops_per_item"])
    assert fingerprints[1] == pytest.approx(fingerprints[0], rel=1e-4) and flops[0] == flops[1]
    record = only(events, "checkpointing")
    assert record["blocks"] == record["recomputed"] > 0


def test_a_launch_that_checkpoints_nothing_is_unsupported(newest_python: str) -> None:
    code, events, _ = bench(newest_python, *LM, *WITH, before=NOTHING)
    (failure,) = [event for event in events if event["event"] == "failure"]
    assert code and failure["kind"] == "unsupported" and "nothing was checkpointed" in failure["message"]


@pytest.mark.sweep
def test_a_compiled_model_is_checkpointed(newest_python: str) -> None:
    """Of an embedding torch 2.5.1 compiles a wrong gradient (findings/compiled-embedding-gradient.sh)."""
    code, events, stderr = bench(newest_python, *LM, *WITH, "--compile")
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr


@pytest.mark.parametrize(("name", "message"), [("half_a_batch", "away from eager fp32"), ("no_optimizer", "change")])
def test_a_checkpointed_launch_that_does_not_do_its_work_gives_no_number(newest_python: str, name: str, message: str) -> None:
    launch = Sabotage(name, (*LM, *WITH), 1, message)
    code, events, stderr = launch.launch(newest_python)
    assert launch.is_caught(code, events), (code, events, stderr)
