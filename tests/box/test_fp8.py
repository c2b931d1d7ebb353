"""Training in float8: its products are emulated on a CPU, by torchao's own switch, and proven as on a GPU."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.boxes import bench, only, own_model, remarks_of
from support.sabotaged import BEFORE, BERT, RESNET, Sabotage
from torchmatrix.core import assets

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("runtimes")]

EMULATED, IN_TRANSFORMER_ENGINE = BEFORE.format("in_float8"), BEFORE.format("in_transformer_engine")
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


@pytest.mark.parametrize(("precision", "recipe"), [("fp8", "tensorwise"), ("fp8-rowwise", "rowwise"), ("mxfp8", "mxfp8_rceil")])
@pytest.mark.parametrize("more", [(), ("--compile",)], ids=["eager", "compiled"])
def test_a_step_in_float8_is_proven(
    newest_python_with_torchao: str, tmp_path: Path, precision: str, recipe: str, more: tuple[str, ...]
) -> None:
    events = launched(newest_python_with_torchao, *own_model(tmp_path, NET), "--precision", precision, *more)
    facts = judge(events)
    assert (facts["name"], facts["recipe"]) == ("torchao", recipe) and facts["version"]
    converted, other = 4 * 64 * 64, 40 * 64 + 10 * 40
    assert facts["float8_share"] == pytest.approx(converted / (converted + other)), "40 is no multiple of 16, nor is the head"


@pytest.mark.parametrize(("precision", "parallel"), [("fp8", "ddp"), ("fp8", "fsdp"), ("mxfp8", "fsdp")])
def test_ranks_train_one_model_in_float8(newest_python_with_torchao: str, precision: str, parallel: str) -> None:
    words = (*BERT, "--precision", precision, "--parallel", parallel, "--accumulate", "2")
    judge(launched(newest_python_with_torchao, *words, processes=2))


def test_checkpointed_blocks_are_computed_again_in_float8(newest_python_with_torchao: str) -> None:
    judge(launched(newest_python_with_torchao, *BERT, "--precision", "fp8-rowwise", "--checkpointing"))


@pytest.mark.parametrize("processes", [1, 2])
def test_layers_of_transformer_engine_are_proven_by_their_numbers(
    newest_python_with_torchao: str, tmp_path: Path, processes: int
) -> None:
    words = (*own_model(tmp_path, NET), "--precision", "fp8-te")
    events = launched(newest_python_with_torchao, *words, before=IN_TRANSFORMER_ENGINE, processes=processes)
    precision, reference, facts = only(events, "precision"), only(events, "reference"), only(events, "setup")["runtime"]
    assert {rank["linear"] for rank in precision["effective"]} == {"float8"}
    types = precision["effective"][0]["types"]
    assert (types["products"], types["flops"]) == (None, None) and "doesn't see Transformer Engine" in types["unknown"]
    assert any("doesn't see Transformer Engine" in text for text in remarks_of(events))
    assert 0.9 < reference["groups"][-1]["distance"] / reference["groups"][-1]["noise"] < 1.1
    assert (facts["name"], facts["version"], facts["recipe"]) == ("transformer_engine", "2.13", "Float8CurrentScaling")


def test_transformer_engine_that_computes_in_bfloat16_is_numerics(newest_python_with_torchao: str, tmp_path: Path) -> None:
    words, said = (*own_model(tmp_path, NET), "--precision", "fp8-te"), "to float8, but compute in bf16"
    launch = Sabotage("transformer_engine_without_its_context", words, 1, said)
    code, events, stderr = launch.launch(newest_python_with_torchao)
    assert launch.is_caught(code, events), (code, events, stderr)


def test_what_transformer_engine_lacks_or_is_not_made_for_is_unsupported(newest_python_with_torchao: str) -> None:
    words, python = (*BERT, "--precision", "fp8-te"), newest_python_with_torchao
    assert "transformer_engine.pytorch can't be imported" in refusal(python, *words)
    old = BEFORE.format("transformer_engine_without_the_recipe")
    assert "this Transformer Engine has no recipe Float8CurrentScaling" in refusal(python, *words, before=old)
    for more in (("--checkpointing",), ("--parallel", "fsdp")):
        assert "not made for parallel fsdp and checkpointing" in refusal(python, *words, *more, before=IN_TRANSFORMER_ENGINE)


BY_COLUMN = NET.replace("self.body(numbers)", "self.body(numbers.flatten(0, 1).t().contiguous().t()).unflatten(0, (-1, 16))")
FROZEN = NET.replace("        self.head = nn", "        self.body[0][0].bias.requires_grad_(False)\n        self.head = nn")


def test_mxfp8_takes_numbers_in_any_order_and_what_is_not_autocast(newest_python_with_torchao: str, tmp_path: Path) -> None:
    events = launched(newest_python_with_torchao, *own_model(tmp_path, BY_COLUMN), "--precision", "mxfp8")
    judge(events)
    assert not any("could not be seen" in text for text in remarks_of(events))


def test_rows_that_mxfp8_cannot_take_are_unsupported(newest_python_with_torchao: str, tmp_path: Path) -> None:
    odd = NET.replace("(size, 16, 64,", "(size, 9, 64,").replace("(size, 16)", "(size, 9)")
    message = refusal(newest_python_with_torchao, *own_model(tmp_path, odd), "--precision", "mxfp8")
    assert "divisible by block_size 32" in message


def test_transformer_engine_keeps_the_parameters(newest_python_with_torchao: str, tmp_path: Path) -> None:
    words = (*own_model(tmp_path, FROZEN), "--precision", "fp8-te")
    launched(newest_python_with_torchao, *words, before=IN_TRANSFORMER_ENGINE)


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
        ("model_not_in_mxfp8", "but the model's products are bfloat16"),
        ("model_not_in_float8", "but the model's products are bfloat16"),
        ("no_layer_in_float8", "linear layers were to be quantized to float8, but compute in bf16"),
        ("backward_not_in_float8", "but the model's backward products are bfloat16"),
        ("no_backward_in_float8", "gradient"),
        ("half_a_batch_in_float8", "away from eager fp32"),
    ],
)
def test_what_is_not_done_in_float8_is_numerics(newest_python_with_torchao: str, tmp_path: Path, name: str, said: str) -> None:
    precision = "mxfp8" if "mxfp8" in name else "fp8"
    launch = Sabotage(name, (*own_model(tmp_path, NET), "--precision", precision), 1, said)
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
import copy, json, sys
sys.path.insert(0, sys.argv[1])
import torch, float8, recipes
from proofs import quantizing
float8.emulates = lambda: True
torch.manual_seed(0)
given, gradient, found = torch.randn(4, 8, 64).bfloat16().float(), torch.randn(4, 8, 32).bfloat16().float(), {}
for kind in ("fp8", "fp8-rowwise", "mxfp8"):
    layer = torch.nn.Linear(64, 32).bfloat16().float()
    converted = float8.convert(kind, torch.nn.Sequential(copy.deepcopy(layer)), ["0"])[0]
    def answer(module):
        numbers = given.clone().requires_grad_()
        outputs = module(numbers)
        return [outputs, *torch.autograd.grad(outputs, [numbers, module.weight], gradient.to(outputs.dtype))]
    theirs, plain = answer(converted), answer(layer)
    with quantizing.float8_products({"": layer}, kind):
        ours = answer(layer)
    again = answer(layer)
    def far(some, others): return [float((a - b).norm() / b.norm()) for a, b in zip(some, others)]
    found[kind] = far(ours, theirs), far(ours, plain), far(again, plain)
print(json.dumps(found))
"""


def test_the_reference_rounds_as_torchao_does_and_is_itself_afterwards(newest_python_with_torchao: str) -> None:
    command = [newest_python_with_torchao, "-c", SAME, str(assets.WORKLOAD)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    for kind, (differences, rounded, after) in json.loads(done.stdout).items():
        assert max(differences) < (3e-3 if kind == "mxfp8" else 1e-6), "torchao's MXFP8 takes and gives bfloat16"
        assert min(rounded) > 0.02 and max(rounded) < 0.1 and after == [0, 0, 0]
