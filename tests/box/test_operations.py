"""What a step computes is counted alike by every version of torch, and by hand; what can't be counted is told."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import sabotaged
from support.boxes import bench, only, own_model, remarks_of
from torchmatrix.core import assets
from torchmatrix.matrix import catalog

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


BY_CHANCE = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(8)])
        self.last = nn.Linear(32, 3)
    def forward(self, inputs):
        inputs = self.first(inputs)
        for block in self.blocks:
            if not self.training or torch.rand(()) > 0.5:
                inputs = inputs + block(inputs)
        return self.last(inputs)

def batch(size, generator):
    return torch.randn(size, 16, generator=generator), torch.randint(3, (size,), generator=generator)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)
"""
MEAN = 2 * (16 * 32 * 2 + (4 * 32 * 32 + 32 * 3) * 3)
"""FLOPs of an item that half of the blocks see; the inputs need no gradient."""


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
    texts = remarks_of(events)
    assert any(text.startswith("FLOPs: not known (") for text in texts), texts


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, *range(3, 21)))])
def test_steps_that_leave_parts_out_by_chance_have_one_verdict_and_a_mean(real_python: str, tmp_path: Path, seed: int) -> None:
    words = (*own_model(tmp_path, BY_CHANCE), "--batch", "64", "--steps", "10", "--windows", "3", "--warmup-steps", "2")
    code, events, stderr = bench(real_python, *words, "--warmup-cap", "2", "--seed", str(seed))
    assert code == 0, stderr
    reference, texts = only(events, "reference"), remarks_of(events)
    assert reference["flops_per_item"] == pytest.approx(MEAN, rel=0.25) and "by chance" in reference["unwatched"]
    assert len(texts) == 1 and texts[0].startswith("each step leaves parts out by chance: the FLOPs of one vary by ")


EXTRAS = """
def fail(*given, **named):
    raise RuntimeError("made up")
import observation, roofline, proofs.remarks, proofs.work
observation.work_of = observation.flops_by_part = roofline.cached = proofs.remarks.found = fail
observation.Reads.least = roofline.bandwidth = fail
"""


@pytest.mark.parametrize("words", [("bert-tiny", "train"), ("lm-1m", "train"), ("lm-1m", "generate")], ids=" ".join)
def test_what_is_computed_beside_a_figure_never_ends_a_launch(newest_python: str, words: tuple[str, str]) -> None:
    flags = ("--model", words[0], "--mode", words[1], "--sequence-length", "16", "--output-length", "4", "--requests", "2")
    code, events, stderr = bench(newest_python, *LITTLE, *flags, before=EXTRAS)
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr
    assert any(event["event"] == "sample" and event["phase"] == "measure" for event in events)
    texts = remarks_of(events)
    assert all(text.endswith(": not known (RuntimeError: made up)") for text in texts) and texts
    told = {text.partition(":")[0] for text in texts}
    assert told == {
        "remarks on what ran",
        *(["FLOPs by formula"] if words[0] == "lm-1m" else []),
        *(["bytes of weights", "bytes of the cache", "FLOPs of a prefill", "the roof"] if words[1] == "generate" else []),
    }


def test_the_counts_of_listed_models_are_those_of_the_file(newest_python: str) -> None:
    names = ("resnet18", "vit_b_16", "gpt2", "lm-10m-moe", "bert-tiny")
    script = Path(__file__).parents[1] / "operations.py"
    done = subprocess.run([newest_python, script, *names], capture_output=True, text=True, check=True)
    kept = json.loads((Path(catalog.__file__).with_name("operations.json")).read_text())
    assert json.loads(done.stdout) == {name: kept[name] for name in names}


def test_a_torch_that_shows_no_operations_counts_nothing_and_says_no_more(real_python: str) -> None:
    before = "import proofs.arithmetic as a; a.CAN_WATCH, a.WHY_UNKNOWN = False, 'torch 1.12 has no dispatch modes'"
    code, events, stderr = bench(real_python, "--model", "resnet18", "--image-size", "32", *LITTLE, before=before)
    assert code == 0, stderr
    reference = only(events, "reference")
    assert (reference["flops_per_item"], reference.get("flops_counter"), reference["agrees"]) == (None, None, True)
    assert not any("FLOPs" in text for event in events if event["event"] == "remarks" for text in event["texts"])


NO_EXTRAS = """
def fail(*given, **named):
    raise RuntimeError("made up")
import collectives, record
collectives.probe = fail
record._FACTS.update(dict.fromkeys(("packages", "os", "compiler", "nccl"), fail))
"""
NO_ROOM = """
import collectives, os, sys, torch
whole = torch.empty
def empty(*shape, **named):
    if sys._getframe(1).f_globals["__name__"] == "collectives" and os.environ["RANK"] == "1":
        raise torch.OutOfMemoryError("made up")
    return whole(*shape, **named)
torch.empty = empty
"""


@pytest.mark.parametrize("before", [NO_EXTRAS, NO_ROOM], ids=["nothing works", "one rank has no room"])
def test_neither_the_environment_nor_collectives_end_a_launch_of_two_ranks(real_python: str, before: str) -> None:
    words = (*sabotaged.RESNET, "--parallel", "ddp", "--all-reduce-probe")
    code, events, stderr = bench(real_python, *words, processes=2, before=before)
    assert code == 0, stderr
    assert not any(event["event"] == "all-reduce" for event in events)
    texts = remarks_of(events)
    if before == NO_EXTRAS:
        assert only(events, "environment")["packages"] == [] and only(events, "environment")["os"] is None
        assert "the environment's packages: not known (RuntimeError: made up)" in texts
        assert "how long all-reduces take: not known (RuntimeError: made up)" in texts
    else:
        assert not any(event["event"] == "collective" for event in events)
        assert [text for text in texts if "room for twice the gradients" in text]


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_no_launch_needs_far_more_operations_than_products_of_matrices_reach(real_python: str, mode: str) -> None:
    words = (*sabotaged.RESNET, "--mode", mode)
    code, events, stderr = bench(real_python, *words)
    roof = only(events, "reference")["products_flops_per_second"]
    assert code == 0 and roof > 1e9, stderr
    before = f"import roofline; roofline.products_roof = lambda args, world: {roof / 1e5}"
    code, events, _ = bench(real_python, *words, before=before)
    assert code and "times what this device reaches in products of matrices" in only(events, "failure")["message"]
    code, events, stderr = bench(real_python, *words, before="import operations; operations.product = lambda *given: 1 / 0")
    assert code == 0 and only(events, "reference")["products_flops_per_second"] is None, stderr
    assert any("what products of matrices reach: not known" in text for text in remarks_of(events))


ROOF_BESIDE_A_NEIGHBOUR = """
import roofline

now = [0.0]
roofline.time.perf_counter = lambda: now[0]

def product(world, shape, dtype):
    calls = iter((0.0, 1.0, 0.0, 0.0))
    def run(index):
        now[0] += 2 * shape[0]**3 / 1e11 + 0.002 + next(calls)
    return roofline.operations.Operation(run, None)

class World:
    def synchronize(self):
        pass

roofline.operations.product = product
print(roofline._roof_of(World(), None, 4096))
"""


def test_a_neighbour_that_interrupts_a_product_does_not_lower_the_roof(real_python: str) -> None:
    """Sizes grow until the products themselves take long, not until a neighbour made one of them wait."""
    words = [real_python, "-c", ROOF_BESIDE_A_NEIGHBOUR]
    done = subprocess.run(words, cwd=assets.WORKLOAD, capture_output=True, text=True, check=True)
    assert float(done.stdout) > 5e10
