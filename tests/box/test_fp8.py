"""Training in float8: its products are emulated on a CPU, by torchao's own switch, and proven as on a GPU."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.boxes import bench, only, own_model
from support.sabotaged import BEFORE, BERT, RESNET, Sabotage
from torchmatrix.core import assets

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("runtimes")]

EMULATED = BEFORE.format("in_float8")
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)), nn.Linear(64, 40))
        self.head = nn.Linear(40, 10)
    def forward(self, numbers):
        return self.head(self.body(numbers))

def batch(size, generator):
    return torch.randn(size, 16, 64, generator=generator), torch.randint(10, (size, 16), generator=generator)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
"""


def launched(python: str, *words: str, before: str = EMULATED, processes: int = 1) -> list[dict[str, Any]]:
    """Return the events of a launch that must succeed."""
    code, events, stderr = bench(python, *words, before=before, processes=processes)
    assert code == 0 and only(events, "done"), stderr
    assert only(events, "reference")["agrees"] is True
    return events


def refusal(python: str, *words: str, before: str = EMULATED) -> str:
    """Return the message of a launch that must end as unsupported."""
    code, events, stderr = bench(python, *words, before=before)
    failure = only(events, "failure")
    assert code != 0 and failure["kind"] == "unsupported", stderr
    return str(failure["message"])


def judge(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Check the types and the distance to eager fp32; return the facts of the setup."""
    (effective,) = {json.dumps(rank) for rank in only(events, "precision")["effective"]}
    found = json.loads(effective)
    assert (found["linear"], found["quantized"], found["matmul"], found["matmul_backward"]) == (
        "float8",
        "float8",
        "bf16",
        "bf16",
    )
    assert found["mixed"].startswith("mixed: float8 ") and "float8" in found["types"]["backward"]
    assert found["types"]["parameters"].keys() == {"float32"}
    flops = found["types"]["flops"]
    assert flops["float8"] > 0 and flops["bfloat16"] > 0 and flops.keys() == {"float8", "bfloat16"}
    whole = only(events, "reference")["groups"][-1]
    assert whole["name"] == "all" and 0.9 < whole["distance"] / whole["noise"] < 1.1
    facts: dict[str, Any] = only(events, "setup")["runtime"]
    return facts


@pytest.mark.parametrize(("precision", "recipe"), [("fp8", "tensorwise"), ("fp8-rowwise", "rowwise")])
@pytest.mark.parametrize("more", [(), ("--compile",)], ids=["eager", "compiled"])
def test_a_step_in_float8_is_proven(
    newest_python_with_torchao: str, tmp_path: Path, precision: str, recipe: str, more: tuple[str, ...]
) -> None:
    events = launched(newest_python_with_torchao, *own_model(tmp_path, NET), "--precision", precision, *more)
    facts = judge(events)
    assert (facts["name"], facts["recipe"]) == ("torchao", recipe) and facts["version"]
    converted, other = 4 * 64 * 64, 40 * 64 + 10 * 40
    assert facts["float8_share"] == pytest.approx(converted / (converted + other)), "40 is no multiple of 16, nor is the head"


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_ranks_train_one_model_in_float8(newest_python_with_torchao: str, parallel: str) -> None:
    words = (*BERT, "--precision", "fp8", "--parallel", parallel, "--accumulate", "2")
    judge(launched(newest_python_with_torchao, *words, processes=2))


def test_checkpointed_blocks_are_computed_again_in_float8(newest_python_with_torchao: str) -> None:
    judge(launched(newest_python_with_torchao, *BERT, "--precision", "fp8-rowwise", "--checkpointing"))


def test_an_older_torchao_trains_by_tensor_but_not_by_row(runtimes_python: str) -> None:
    assert judge(launched(runtimes_python, *BERT, "--precision", "fp8"))["float8_share"] > 0.99
    assert "this torchao can't train in fp8-rowwise under autocast" in refusal(
        runtimes_python, *BERT, "--precision", "fp8-rowwise"
    )


def test_without_a_gpu_without_torchao_and_without_linear_layers_nothing_is_called_float8(
    newest_python: str, newest_python_with_torchao: str
) -> None:
    for precision, oldest in (("fp8", "8.9"), ("fp8-rowwise", "9.0")):
        message = refusal(newest_python_with_torchao, *BERT, "--precision", precision, before="pass")
        assert f"precision {precision} needs a GPU of NVIDIA, of compute capability {oldest} or newer" in message
    assert "torchao.float8 can't be imported" in refusal(newest_python, *BERT, "--precision", "fp8")
    assert "only 0 % of this model's products" in refusal(newest_python_with_torchao, *RESNET, "--precision", "fp8")
    words = (*BERT, "--precision", "fp8", "--mode", "infer")
    assert "precision fp8 is for training" in refusal(newest_python_with_torchao, *words)


def test_layers_that_torchao_left_are_not_called_float8(newest_python_with_torchao: str) -> None:
    message = refusal(newest_python_with_torchao, *BERT, "--precision", "fp8", before=BEFORE.format("nothing_in_float8"))
    assert "torchao left 12 of 12 linear layers as they were" in message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model_not_in_float8", "but the model's products are bfloat16"),
        ("no_layer_in_float8", "linear layers were to be quantized to float8, but compute in bf16"),
        ("backward_not_in_float8", "but the model's backward products are bfloat16"),
        ("no_backward_in_float8", "gradient"),
        ("half_a_batch_in_float8", "away from eager fp32"),
    ],
)
def test_what_is_not_done_in_float8_is_numerics(newest_python_with_torchao: str, tmp_path: Path, name: str, said: str) -> None:
    launch = Sabotage(name, (*own_model(tmp_path, NET), "--precision", "fp8"), 1, said)
    code, events, stderr = launch.launch(newest_python_with_torchao)
    assert launch.is_caught(code, events), (code, events, stderr)


GRADIENTS_IN_BFLOAT16 = """
import proofs.arithmetic, proofs.effective_precision
proofs.arithmetic.problem = proofs.effective_precision.problem = lambda *given: None
"""


def test_the_gradients_alone_tell_bfloat16_from_float8(newest_python_with_torchao: str, tmp_path: Path) -> None:
    launch = Sabotage(
        "no_layer_in_float8", (*own_model(tmp_path, NET), "--precision", "fp8"), 1, "the step doesn't compute in it"
    )
    code, events, stderr = launch.launch(newest_python_with_torchao, GRADIENTS_IN_BFLOAT16)
    assert launch.is_caught(code, events), (code, events, stderr)


SAME = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch, float8, recipes
from proofs import quantizing
float8.emulates = lambda: True
torch.manual_seed(0)
given, gradient, found = torch.randn(4, 8, 64), torch.randn(4, 8, 32), {}
for kind in recipes.FLOAT8:
    layer, answers = torch.nn.Linear(64, 32), []
    converted = float8.convert(kind, torch.nn.Sequential(layer), ["0"])[0]
    def answer(module):
        numbers = given.clone().requires_grad_()
        outputs = module(numbers)
        return [outputs, *torch.autograd.grad(outputs, [numbers, layer.weight], gradient)]
    theirs, plain = answer(converted), answer(layer)
    with quantizing.float8_products({"": layer}, kind):
        ours = answer(layer)
    again = answer(layer)
    def far(some): return [float((a - b).norm() / b.norm()) for a, b in zip(some, plain)]
    found[kind] = [float((a - b).abs().max()) for a, b in zip(ours, theirs)], far(ours), far(again)
print(json.dumps(found))
"""


def test_the_reference_rounds_as_torchao_does_and_is_itself_afterwards(newest_python_with_torchao: str) -> None:
    command = [newest_python_with_torchao, "-c", SAME, str(assets.WORKLOAD)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    for differences, rounded, after in json.loads(done.stdout).values():
        assert max(differences) < 1e-4 and min(rounded) > 0.02 and max(rounded) < 0.1 and after == [0, 0, 0]
