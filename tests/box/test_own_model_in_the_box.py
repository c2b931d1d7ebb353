"""A user's own model in the workload: what works, and that every mistake is told with file and line, never as a riddle."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.boxes import bench, only, own_model
from torchmatrix.core import assets
from torchmatrix.facts import wire

pytestmark = pytest.mark.xdist_group("own model")  # one process runs all of the files
GOOD = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
    def forward(self, inputs):
        return self.frozen(self.layer(inputs))

def batch(size, generator):
    return torch.randn(size, 6, generator=generator), torch.randint(3, (size,), generator=generator)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)
"""
DATA = "torch.randn(size, 6, generator=generator)"
PAIR = GOOD.replace("forward(self, inputs)", "forward(self, left, right)").replace("(inputs)", "(left + right)")
TUPLE = PAIR.replace(
    "return torch.randn(size, 6, generator=generator),", "x = torch.randn(size, 6, generator=generator); return (x, x),"
)
NAMED = PAIR.replace(
    "return torch.randn(size, 6, generator=generator),",
    'x = torch.randn(size, 6, generator=generator); return {"right": x, "left": x},',
)
OWN_LOSS = """\
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 3)
    def forward(self, inputs):
        return {"loss": self.layer(inputs).square().mean(), "outputs": self.layer(inputs)}
def batch(size, generator):
    return torch.randn(size, 6, generator=generator), None
"""
WORKS = {"plain": GOOD, "a tuple": TUPLE, "a dictionary": NAMED, "a loss of the model's": OWN_LOSS}
MISTAKES = {
    "an error of its own": (GOOD.replace("(6, 3)", "(7, 3)"), "net.py, line 10, in forward: RuntimeError: mat1 and mat2"),
    "no module": (GOOD + "def Net():\n    return 3\n", "net.py, line 17: Net gave a int, not a torch.nn.Module"),
    "no pair": (
        GOOD.replace("return torch.randn(size, 6, generator=generator),", "return"),
        "net.py, line 12: batch gave a tensor of the shape [4], not a pair: inputs, targets",
    ),
    "another size": (GOOD.replace("randn(size", "randn(size + 1"), "batch gave inputs of the shape [5, 6], not of 4 items"),
    "no tensors": (GOOD.replace(DATA, '"text"'), "gave a str as inputs, not a tensor, or a tuple"),
    "no scalar": (GOOD.replace("return nn.", "return outputs; nn."), "loss gave a tensor of the shape [4, 3]"),
    "no loss": (GOOD.partition("def loss")[0], "that returns no loss: write a function loss(outputs, targets)"),
    "nothing to train": (GOOD.replace("Linear(6, 3)", "Identity()"), "Net gave a model without parameters to train"),
    "data by chance": (GOOD.replace("6, generator=generator", "6"), "batch gave other data from the same generator"),
    "weights by chance": (
        GOOD.replace("Linear(6, 3)", "Linear(6, 3); import random; self.layer.weight.data += random.SystemRandom().random()"),
        "Net gave other weights from the same seed",
    ),
    "a package that is missing": ("import nosuch_package\n" + GOOD, "net.py imports nosuch_package, which this stack lacks"),
    "a newer grammar": (GOOD + "def f(:\n", "(net.py, line 17)"),
}  # fmt: skip

TRY = """
import json, sys, torch, bench, failures, families, measurements
from proofs import reference
from families import own
class Alone:
    device, size, rank = torch.device("cpu"), 1, 0
def tried(path):
    args = bench.parse(["--model", "n", "--model-file", path, "--model-builder", "Net", "--batch", "4", "--device", "cpu"])
    try:
        torch.manual_seed(0)
        model, _ = families.build(args, Alone.device)
        batches = families.batches(args, Alone.device)
        step = measurements.of(args).make_step(args, Alone, families.of(args), model.train(), batches)
        step.run(0)
        reference.fresh(args)
        return ["ok", str(step.losses()[0])]
    except Exception as error:
        return [failures.kind_of(error), failures.message(error, path)]
print(json.dumps({path: tried(path) for path in sys.argv[1:]}))
"""


@pytest.fixture(scope="module")
def outcomes(real_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Return (outcome, message) of one step of each file, by name; all in one process, since importing torch takes seconds."""
    folder, places = tmp_path_factory.mktemp("own"), {}
    for name, text in {**WORKS, **{name: text for name, (text, _) in MISTAKES.items()}}.items():
        place = folder / name.replace(" ", "-") / "net.py"
        place.parent.mkdir()
        place.write_text(text)
        places[name] = str(place)
    done = subprocess.run(
        [real_python, "-B", "-c", TRY, *places.values()],
        cwd=assets.WORKLOAD, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    return {name: tuple(results[place]) for name, place in places.items()}


@pytest.mark.parametrize("name", WORKS)
def test_inputs_may_be_a_tensor_a_tuple_or_a_dictionary(outcomes: dict[str, tuple[str, str]], name: str) -> None:
    assert outcomes[name][0] == "ok" and float(outcomes[name][1]) > 0, outcomes[name]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_place_and_what_is_expected(outcomes: dict[str, tuple[str, str]], name: str) -> None:
    outcome, message = outcomes[name]
    assert outcome == ("unsupported" if name == "a package that is missing" else "crashed")
    assert MISTAKES[name][1] in message


@pytest.mark.parametrize("layer", [(6, 3), (7, 3)], ids=["works", "fails"])
def test_what_a_model_prints_is_in_the_log(real_python: str, tmp_path: Path, layer: tuple[int, int]) -> None:
    text = GOOD.replace("(6, 3)", f"{layer}").replace("super().__init__()", 'super().__init__(); print("told by the model")')
    code, events, stderr = bench(real_python, *own_model(tmp_path, text), PYTHONUNBUFFERED="")
    assert "told by the model" in stderr and (code, events[-1]["event"]) == ((0, "done") if layer == (6, 3) else (1, "failure"))


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_launch_of_an_own_model_is_proven_as_any_other(real_python: str, tmp_path: Path, mode: str) -> None:
    code, events, stderr = launched(real_python, tmp_path, GOOD, "--mode", mode)
    assert code == 0, stderr
    assert only(events, "reference")["agrees"] is True and only(events, "setup")["frozen"] == 2


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_file_that_ends_the_program_is_quoted_whichever_rank_it_is(real_python: str, tmp_path: Path, ranks: int) -> None:
    last = f"import os, sys\n        if os.environ.get('RANK', '0') == '{ranks - 1}': sys.exit('this model needs CUDA')"
    text = GOOD.replace("self.layer = nn.Linear(6, 3)", f"self.layer = nn.Linear(6, 3)\n        {last}")
    code, events, _ = bench(real_python, *own_model(tmp_path, text), processes=ranks)
    failure = next(event for event in events if event["event"] == "failure")
    assert code == 1 and failure["rank"] == ranks - 1 and failure["kind"] == "crashed"
    assert failure["message"] == "net.py, line 9, in __init__: SystemExit: this model needs CUDA"


SPARE = GOOD.replace("self.layer =", "self.spare = nn.Linear(3, 3)\n        self.layer =")


@pytest.mark.thorough
def test_ddp_trains_what_gets_no_gradient_where_the_matrix_says_so(real_python: str, tmp_path: Path) -> None:
    code, events, _ = bench(real_python, *own_model(tmp_path, SPARE), processes=2)
    failure = next(event for event in events if event["event"] == "failure")
    assert code and failure["kind"] == "unsupported"
    assert "gives no gradient to spare.weight, spare.bias: set find_unused_parameters = true" in failure["message"]
    code, events, stderr = bench(real_python, *own_model(tmp_path, SPARE), "--find-unused-parameters", processes=2)
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr
    assert only(events, "hello")["arguments"]["find_unused_parameters"] is True


NEGATIVE = GOOD.replace("nn.functional.cross_entropy", "-nn.functional.cross_entropy")
WITHOUT_LOSS = GOOD.partition("def loss")[0].replace("return self.frozen", "return -10 + self.frozen")


@pytest.mark.parametrize(("mode", "text"), [("train", NEGATIVE), ("infer", NEGATIVE), ("infer", WITHOUT_LOSS)])
def test_a_loss_or_outputs_below_0_are_as_good_as_others(real_python: str, tmp_path: Path, mode: str, text: str) -> None:
    code, events, stderr = launched(real_python, tmp_path, text, "--mode", mode)
    assert code == 0, stderr
    reference = only(events, "reference")
    assert reference["agrees"] is True and (text is WITHOUT_LOSS) == (reference["fingerprint"]["loss"] > 0)
    for event in events:
        wire.check(event)


def test_a_file_other_than_the_one_asked_for_is_refused(real_python: str, tmp_path: Path) -> None:
    code, events, _ = launched(real_python, tmp_path, GOOD, "--model-sha256", "0" * 64)
    assert code and "is not the file that was asked for" in only(events, "failure")["message"]


def launched(python: str, folder: Path, text: str, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    return bench(python, *own_model(folder, text), *words)
