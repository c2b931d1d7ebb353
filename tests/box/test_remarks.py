"""Honest mistakes in a model's file: the figure stands, and the workload says in words what it is a figure of."""

from pathlib import Path
from typing import Any

import pytest

from support.boxes import KERNELS, WITH_KERNELS, bench, own_model, remarks_of

pytestmark = pytest.mark.xdist_group("own model")  # one process runs all of the files
NET = """\
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, 5)
        {init}
    def forward(self, images):
        {forward}
        return self.head(self.drop(self.body(images).mean((2, 3))))

def batch(size, generator):
    images = torch.randn(size, 3, 16, 16, generator=generator)
    {batch}
    return images, torch.randint(5, (size,), generator=generator)

def loss(outputs, targets):
    {loss}
    return F.cross_entropy(outputs, targets)
"""
INFER, LAST = ("--mode", "infer"), ("--channels-last",)
MISTAKES = {
    "a body under no_grad": (
        {
            "forward": "with torch.no_grad(): images = self.body(images)\n"
            "        return self.head(self.drop(images.mean((2, 3))))"
        },
        (),
        "95 % of the parameters, such as body.0.weight, get no gradient, although they train: their part of the backward pass "
        "does not run",
    ),
    "a frozen body": (
        {"init": "self.body.requires_grad_(False)"},
        (),
        "95 % of the parameters, such as body.0.weight, are frozen: their part of the backward pass does not run",
    ),
    "inputs of zeros": ({"batch": "images = images * 0"}, (), "the inputs are zeros"),
    "one item for all": (
        {"batch": "images = images[:1].expand(size, 3, 16, 16).clone()"},
        INFER,
        "of the 16 items of all batches only 4 are different",
    ),
    "the same batch each time": (
        {"batch": "images = torch.randn(size, 3, 16, 16, generator=torch.Generator().manual_seed(1))"},
        INFER,
        "of the 16 items of all batches only 4 are different",
    ),
    "evaluation in training": ({"forward": "self.eval()"}, (), "1 modules, such as drop, are in evaluation mode"),
    "evaluation for a moment": (
        {
            "forward": "self.eval(); found = self.head(self.drop(self.body(images).mean((2, 3)))); self.train()\n"
            "        return found"
        },
        (),
        "no dropout acts in a step, although the model has drop",
    ),
    "training in inference": ({"forward": "self.train()"}, INFER, "1 modules, such as drop, are in training mode"),
    "dropout as a function": (
        {"forward": "images = F.dropout(images, 0.01)"},
        INFER,
        "random numbers are drawn as by dropout, although this is inference",
    ),
    "channels first": (
        {"forward": "images = self.body[0](images).contiguous(); images = self.body[2](images)\n"
         "        return self.head(images.mean((2, 3)))"},
        (*LAST, *INFER),
        "40 % of what convolutions take is not channels last, which was asked for",
    ),
    "channels last": (
        {"init": "self.to(memory_format=torch.channels_last)"},
        INFER,
        "40 % of what convolutions take is channels last, which was not asked for",
    ),
    "a loss of one item": ({"loss": "outputs, targets = outputs[:1], targets[:1]"}, (),
                           "the loss does not depend on 3 of 4 items"),
    "a loss of each second item": (
        {"loss": "outputs, targets = outputs[::2], targets[::2]"}, (), "the loss does not depend on 2 of 4 items",
    ),
    "outputs of one item": (
        {"forward": "images = images[-1:].expand(len(images), 3, 16, 16)"},
        INFER,
        "the output does not depend on 3 of 4 items",
    ),
}  # fmt: skip


def remarks(python: str, folder: Path, words: tuple[str, ...], parts: dict[str, str], **more: Any) -> list[str]:
    empty = dict.fromkeys(("init", "forward", "batch", "loss"), "pass")
    _, events, stderr = bench(python, *own_model(folder, NET.format_map(empty | parts)), *words, **more)
    assert any(event["event"] == "remarks" for event in events), stderr
    return remarks_of(events)


@pytest.mark.parametrize("what", MISTAKES)
def test_what_a_models_file_does_otherwise_is_told_in_words(real_python: str, tmp_path: Path, what: str) -> None:
    parts, words, expected = MISTAKES[what]
    texts = remarks(real_python, tmp_path, words, parts)
    assert any(expected in text for text in texts), texts


@pytest.mark.parametrize(
    ("precision", "answer", "texts"),
    [
        ("amp-bf16", "False", ["oneDNN has no kernels for bfloat16 on this CPU: products take far longer than in float32"]),
        ("amp-bf16", "True", []),
        ("amp-bf16", "torch.ops.mkldnn._is_not_there()", []),
        ("fp32", "False", []),
    ],
)
def test_products_in_16_bits_without_kernels_for_them_are_told(
    real_python: str, tmp_path: Path, precision: str, answer: str, texts: list[str]
) -> None:
    assert remarks(real_python, tmp_path, (*INFER, "--precision", precision), {}, before=KERNELS.format(answer)) == texts


@pytest.mark.parametrize("words", [(), INFER, LAST, ("--precision", "amp-bf16"), ("--no-eval", *INFER)], ids=" ".join)
@pytest.mark.representative
def test_of_an_honest_model_nothing_is_told(real_python: str, tmp_path: Path, words: tuple[str, ...]) -> None:
    assert remarks(real_python, tmp_path, words, {}, before=WITH_KERNELS) == []
    assert remarks(real_python, tmp_path, words, {}, before=WITH_KERNELS, processes=2) == []
