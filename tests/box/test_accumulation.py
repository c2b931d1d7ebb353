"""Gradient accumulation with real launches: the same training as with one large batch, its items counted, its work proven."""

import pytest

from support.boxes import bench, only
from support.sabotaged import NOT_REDUCED, Sabotage

pytestmark = pytest.mark.thorough

LM = ("--model", "lm-1m", "--sequence-length", "16", "--batch", "2", "--optimizer", "adamw")
RESNET = ("--model", "resnet18", "--image-size", "32", "--batch", "4")
IN_TWO = ("--accumulate", "2")


@pytest.mark.parametrize(("ranks", "parallel"), [(1, "ddp"), (2, "ddp"), (2, "fsdp")], ids=["one rank", "ddp", "fsdp"])
def test_micro_batches_give_the_step_of_a_batch_that_holds_them_all(newest_python: str, ranks: int, parallel: str) -> None:
    fingerprints, items, flops = [], [], []
    for words in (IN_TWO, ("--batch", "4")):
        code, events, stderr = bench(newest_python, *LM, *words, "--parallel", parallel, processes=ranks)
        assert code == 0 and only(events, "reference")["agrees"] is True, stderr
        fingerprints.append(only(events, "reference")["fingerprint"])
        flops.append(only(events, "reference")["flops_per_item"])
        items.append({event["items"] / event["steps"] for event in events if event["event"] == "sample"})
    assert fingerprints[0] == pytest.approx(fingerprints[1], rel=1e-4) and flops[0] == pytest.approx(flops[1], rel=1e-6)
    assert items[0] == items[1] == {4 * 16 * ranks}


@pytest.mark.parametrize(
    "words", [RESNET, (*LM, "--precision", "amp-bf16", "--compile")], ids=["resnet18", "compiled lm in bf16"]
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_of_micro_batches_is_proven(newest_python: str, words: tuple[str, ...], ranks: int) -> None:
    """Of an embedding torch 2.5.1 compiles a wrong gradient (findings/compiled-embedding-gradient.sh)."""
    code, events, stderr = bench(newest_python, *words, *IN_TWO, processes=ranks)
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr


@pytest.mark.parametrize(
    ("name", "ranks", "message"),
    [
        ("first_micro_batch_alone", 1, "away from eager fp32"),
        ("not_averaged", 1, "away from eager fp32"),
        ("last_backward_alone", 1, "away from eager fp32"),
        ("dropped_gradient_sync", 2, NOT_REDUCED),
    ],
)
def test_a_launch_that_does_not_accumulate_gives_no_number(newest_python: str, name: str, ranks: int, message: str) -> None:
    launch = Sabotage(name, (*LM, *IN_TWO), ranks, message)
    code, events, stderr = launch.launch(newest_python)
    assert launch.is_caught(code, events), (code, events, stderr)
