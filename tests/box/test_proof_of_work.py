"""A box that doesn't do its work gives no number, whatever is wrong with it; an honest one does."""

from pathlib import Path
from typing import Any

import pytest
from boxes import bench, only

pytestmark = pytest.mark.thorough

SABOTAGE = str(Path(__file__).parent / "sabotage.py")
RESNET = ("--model", "resnet18", "--image-size", "32", "--batch", "4")
BERT = ("--model", "bert-tiny", "--sequence-length", "16", "--batch", "4", "--optimizer", "adamw")
HALF = ("--precision", "amp-bf16")
NOT_REDUCED = "the ranks' gradients differ after a step"


@pytest.mark.parametrize(
    ("name", "words", "processes", "said"),
    [
        ("no_backward", RESNET, 1, "gradient"),
        ("no_backward", (*BERT, *HALF), 1, "gradient"),
        ("constant_loss", RESNET, 1, "gradient"),
        ("constant_loss", BERT, 1, "gradient"),
        ("no_optimizer", RESNET, 1, "change of the parameters"),
        ("no_optimizer", (*BERT, *HALF), 1, "change of the parameters"),
        ("half_a_batch", (*RESNET, *HALF), 1, "away from eager fp32"),
        ("half_a_batch", BERT, 1, "away from eager fp32"),
        ("half_a_batch", (*BERT, *HALF), 1, "away from eager fp32"),
        ("no_all_reduce", RESNET, 2, NOT_REDUCED),
        ("dropped_gradient_sync", (*BERT, *HALF), 2, NOT_REDUCED),
        ("frozen_weights", RESNET, 1, "parameters are frozen"),
        ("wrong_batch_size", RESNET, 1, "a batch of 4 was asked for, but images has 3 items"),
        ("loss_of_one_rank", RESNET, 2, "away from eager fp32"),
        ("no_autocast", (*RESNET, *HALF), 1, "autocast was not entered"),
        ("no_autocast", (*BERT, *HALF, "--mode", "infer"), 1, "autocast was not entered"),
        ("stale_outputs", (*BERT, "--compile"), 1, "the loss differs from that of eager fp32"),
        ("stale_outputs", (*RESNET, "--compile", "--mode", "infer"), 1, "away from eager fp32"),
    ],
)
def test_a_box_that_does_not_do_its_work_gives_no_number(
    real_python: str, name: str, words: tuple[str, ...], processes: int, said: str
) -> None:
    code, events, stderr = bench(real_python, *words, processes=processes, program=(SABOTAGE, name))
    assert code != 0 and {event["kind"] for event in events if event["event"] == "failure"} == {"numerics"}, stderr
    assert any(said in problem for problem in only(events, "reference")["problems"])
    assert not any(event["event"] == "done" for event in events)


def test_a_compiled_step_that_does_its_work_is_proven(real_python: str) -> None:
    code, events, stderr = bench(real_python, *RESNET, "--compile")
    assert code == 0, stderr
    assert only(events, "reference")["agrees"] is True and only(events, "compile")["graph_breaks"] == 0


def test_a_launch_of_a_proven_cell_must_find_what_was_found_then(real_python: str) -> None:
    code, events, stderr = bench(real_python, *RESNET)
    assert code == 0, stderr
    found = only(events, "reference")["fingerprint"]

    def again(**changes: float) -> tuple[int, list[dict[str, Any]], str]:
        proven = ",".join(f"{name}={value!r}" for name, value in {**found, **changes}.items())
        return bench(real_python, *RESNET, "--proof", "fingerprint", "--proven", proven, "--peak-flops", "1e12")

    code, events, stderr = again()
    assert code == 0 and only(events, "reference")["agrees"], stderr
    assert [event["phase"] for event in events if event["event"] == "phase"][4:] == ["proof-precision", "proof-glance"], (
        "and no more is paid for"
    )
    assert only(events, "reference")["fingerprint"] == pytest.approx(found, rel=1e-6)
    _, events, _ = again(loss=1.01 * found["loss"])
    assert "the loss of the timed step is" in only(events, "failure")["message"]
    _, events, _ = again(flops_per_item=1e12)
    assert "times the peak of the device" in only(events, "failure")["message"]


@pytest.mark.parametrize("parallel", ["no-sync", "independent"])
def test_ranks_that_share_nothing_are_proven_alone(real_python: str, parallel: str) -> None:
    code, events, stderr = bench(real_python, *RESNET, "--parallel", parallel, processes=2)
    assert code == 0 and only(events, "reference")["agrees"], stderr
