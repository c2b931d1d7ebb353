"""Suggestions for a selection that matches nothing."""

import pytest

from torchmatrix.planning.selection import nearest_ids, nearest_words

IDS = [
    f"{stack}/{model}-train-{precision}-b64-224px/gpu0"
    for stack in ("torch2.5.1-cu124", "torch2.7.1-cu128", "nvidia-pytorch-25.01-py3")
    for model in ("resnet50", "vit_b_16")
    for precision in ("fp32", "amp-bf16")
]


@pytest.mark.parametrize(
    ("glob", "nearest"),
    [
        ("torch2.7.2-*", "torch2.7.1-cu128/resnet50-train-fp32-b64-224px/gpu0"),
        ("*vit_b_32*", "torch2.5.1-cu124/vit_b_16-train-fp32-b64-224px/gpu0"),
        ("*cu128/*amp-fp16*", "torch2.7.1-cu128/resnet50-train-amp-bf16-b64-224px/gpu0"),
        ("Nvidia-PyTorch*", "nvidia-pytorch-25.01-py3/resnet50-train-fp32-b64-224px/gpu0"),
        ("torch9*", "torch2.5.1-cu124/resnet50-train-fp32-b64-224px/gpu0"),
        ("torh*", "torch2.5.1-cu124/resnet50-train-fp32-b64-224px/gpu0"),
    ],
)
def test_the_pieces_of_a_glob_find_the_id_that_was_meant(glob: str, nearest: str) -> None:
    assert nearest_ids(glob, IDS)[0] == nearest


def test_no_ids_no_nearest() -> None:
    assert nearest_ids("torch*", []) == []


def test_the_words_that_are_like_it_come_first_and_some_of_all_where_none_is() -> None:
    assert nearest_words("resnet5*", {"resnet50", "vit_b_16"}) == ["resnet50"]
    assert nearest_words("x", {"b", "a"}) == ["a", "b"]
