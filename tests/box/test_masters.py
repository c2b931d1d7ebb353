"""Training in bfloat16 with float32 weights in the optimizer, by real launches: what is kept, proven and caught."""

import subprocess

import pytest

from support.boxes import bench, only
from support.sabotaged import Sabotage
from torchmatrix.core import assets

pytestmark = pytest.mark.thorough

LM = ("--model", "lm-1m", "--sequence-length", "16", "--batch", "4", "--optimizer", "adamw", "--precision", "bf16-master")
RESNET = ("--model", "resnet18", "--image-size", "32", "--batch", "4", "--precision", "bf16-master")

SMALL_STEPS = """
import sys, torch, masters
model = torch.nn.Linear(4, 4, bias=False).to(torch.bfloat16)
with torch.no_grad(): model.weight.fill_(1.0)
kept = masters.Masters(model, lambda groups: torch.optim.SGD(groups, lr=1e-3))
alone = torch.nn.Parameter(model.weight.detach().clone())
stock = torch.optim.SGD([alone], lr=1e-3)
for _ in range(16):
    kept.zero_grad()
    model.weight.grad, alone.grad = torch.ones_like(model.weight), torch.ones_like(alone)
    kept.step(); stock.step()
assert torch.allclose(kept.of[model.weight], torch.tensor(1 - 16e-3)), kept.of[model.weight]
assert torch.equal(model.weight, kept.of[model.weight].bfloat16()) and float(model.weight[0, 0]) < 1
assert torch.equal(alone, torch.ones_like(alone))  # 0.999 is nearer to 1 than to the next number of bfloat16
sys.exit(3)
"""


@pytest.mark.parametrize("python", ["real_python", "newest_python"])
def test_changes_add_up_that_bfloat16_alone_would_lose(request: pytest.FixtureRequest, python: str) -> None:
    code, _, stderr = bench(request.getfixturevalue(python), before=SMALL_STEPS)
    assert code == 3, stderr


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        (LM, 1), (RESNET, 1), ((*LM, "--optimizer", "sgd"), 1), ((*LM, "--optimizer", "adamw-fused"), 1),
        ((*LM, "--accumulate", "2", "--compile"), 1), (LM, 2), ((*LM, "--parallel", "fsdp"), 2),
        ((*LM, "--parallel", "tp"), 2), ((*LM, "--parallel", "fsdp", "--optimizer", "adamw-fused"), 2),
    ],
    ids=["lm", "resnet18", "sgd", "fused", "compiled micro batches", "ddp", "fsdp", "tp", "fused fsdp"],
)  # fmt: skip
def test_a_step_with_master_weights_is_proven(newest_python: str, words: tuple[str, ...], ranks: int) -> None:
    code, events, stderr = bench(newest_python, *words, processes=ranks)
    assert code == 0 and only(events, "reference")["agrees"] is True, (events, stderr)
    assert {rank["matmul"] for rank in only(events, "precision")["effective"]} == {"bf16"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_masters", "change of the parameters"),
        ("forgotten_masters", "change of the parameters"),
        ("no_optimizer", "change of the parameters"),
    ],
)
def test_a_step_that_keeps_no_master_weights_gives_no_number(newest_python: str, name: str, said: str) -> None:
    launch = Sabotage(name, LM, 1, said)
    code, events, stderr = launch.launch(newest_python)
    assert launch.is_caught(code, events), (code, events, stderr)


ALIVE = """
import argparse, sys
sys.path.insert(0, sys.argv[1])
import torch
from proofs import rules

def told(precision, dtype, **found):
    norms = {"loss": 1.0, "gradient_norm": 1.0, "update_norm": 1.0, "gradient_norm of a": 1.0, "update_norm of a": 1.0}
    norms.update({name.replace("_of_", " of "): value for name, value in found.items()})
    return rules.alive(argparse.Namespace(precision=precision, model_file=None), norms, [torch.zeros(2, dtype=dtype)])

for precision, dtype in (("bf16-weights", torch.bfloat16), ("half", torch.float16)):
    assert told(precision, dtype, update_norm_of_a=0.0) == [] != told(precision, dtype, gradient_norm_of_a=0.0)
    assert told(precision, dtype, update_norm=0.0) and told(precision, dtype, update_norm_of_a=float("nan"))
assert told("fp32", torch.float32, update_norm_of_a=0.0) and told("bf16-master", torch.bfloat16, update_norm_of_a=0.0)
"""


def test_a_group_whose_changes_are_rounded_away_in_16_bits_is_alive(real_python: str) -> None:
    done = subprocess.run([real_python, "-c", ALIVE, str(assets.WORKLOAD)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
