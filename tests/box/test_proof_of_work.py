"""A launch that doesn't do its work gives no number, whatever is wrong with it; an honest one does."""

from pathlib import Path

import pytest

from support import sabotaged
from support.boxes import bench, only, own_model, recorded
from support.sabotaged import BERT, HALF, IN_HALF, RESNET
from torchmatrix.facts.reading import compare, proof_of

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("launch", sabotaged.EVERY, ids=lambda launch: f"{launch.name} {launch.words[1]}")
def test_a_launch_that_does_not_do_its_work_gives_no_number(real_python: str, launch: sabotaged.Sabotage) -> None:
    code, events, stderr = launch.launch(real_python)
    assert launch.is_caught(code, events), (code, events, stderr)


@pytest.mark.sweep
def test_a_compiled_step_that_does_its_work_is_proven(real_python: str, tmp_path: Path) -> None:
    code, events, stderr = bench(real_python, *own_model(tmp_path), "--compile")
    assert code == 0, stderr
    assert only(events, "reference")["agrees"] is True and only(events, "compile")["graph_breaks"] == 0
    (effective,) = only(events, "precision")["effective"]
    assert set(effective["types"]["products"]) == {"float32"} and only(events, "precision")["changed"] == []


def test_half_a_batch_in_the_windows_alone_makes_the_losses_jump(real_python: str, tmp_path: Path) -> None:
    words = (*own_model(tmp_path), "--warmup-steps", "16", "--steps", "10")
    assert bench(real_python, *words)[0] == 0
    launch = sabotaged.Sabotage("half_a_batch_in_windows", words, 1, "the losses of the same batches jump")
    code, events, stderr = launch.launch(real_python)
    assert launch.is_caught(code, events), (code, events, stderr)


LATER = (
    ("half_a_batch_later", (*RESNET, *HALF), "the loss of step 2"),
    ("half_a_batch_later", BERT, "the loss of step 2"),
    ("twice_the_same_half_later", (*BERT, *HALF), "the loss of step 2"),
    ("slow_rate_later", (*RESNET, *HALF), "the loss of step"),
    ("head_alone_later", RESNET, "the loss of step"),
    ("head_alone_later", (*BERT, *HALF), "the loss of step"),
    ("head_alone", (*BERT, *IN_HALF), "the gradient norm"),
    ("six_tensors", (*BERT, *IN_HALF), "the update norm"),
)
"""What only launches do whose cell was proven by another one; and what is wrong with their losses or first steps."""


@pytest.mark.parametrize(
    ("name", "words", "contradiction"), LATER, ids=lambda value: value if isinstance(value, str) else value[1]
)
def test_a_launch_must_train_as_the_launch_of_its_cell_that_was_proven(
    real_python: str, tmp_path: Path, name: str, words: tuple[str, ...], contradiction: str
) -> None:
    words = (*words, "--warmup-steps", "8", "--steps", "12")
    code, events, stderr = bench(real_python, *words)
    assert code == 0, stderr
    proven = proof_of(recorded(tmp_path / "round1-try1.jsonl", words, 1, events))
    assert proven
    again = (*words, "--proof", "fingerprint", "--steps", "9")
    _, events, stderr = bench(real_python, *again)
    comparison = compare(recorded(tmp_path / "round2-try1.jsonl", again, 1, events), proven)
    assert comparison.contradiction is None and comparison.losses == 17, comparison
    _, events, stderr = bench(real_python, *again, before=sabotaged.BEFORE.format(name))
    comparison = compare(recorded(tmp_path / "round3-try1.jsonl", again, 1, events), proven)
    assert comparison.contradiction and comparison.contradiction.startswith(contradiction), comparison
    assert comparison.contradiction.endswith("in round1-try1"), comparison


def test_inference_of_a_proven_cell_must_give_the_losses_that_were_found_then(real_python: str, tmp_path: Path) -> None:
    words = (*RESNET, "--mode", "infer", "--warmup-steps", "6")
    proven = proof_of(recorded(tmp_path / "round1-try1.jsonl", words, 1, bench(real_python, *words)[1]))
    assert proven
    again = (*words, "--proof", "fingerprint", "--warmup-steps", "12", "--steps", "9")
    comparison = compare(recorded(tmp_path / "round2-try1.jsonl", again, 1, bench(real_python, *again)[1]), proven)
    assert comparison.contradiction is None and comparison.losses >= 2, comparison
    events = bench(real_python, *again, before=sabotaged.BEFORE.format("other_outputs_in_windows"))[1]
    comparison = compare(recorded(tmp_path / "round3-try1.jsonl", again, 1, events), proven)
    assert comparison.contradiction and "the loss of step" in comparison.contradiction, comparison


def test_a_launch_of_a_proven_cell_pays_for_no_more_than_a_quick_check(real_python: str) -> None:
    words = (*RESNET, "--proof", "fingerprint", "--peak-flops", "1e12")
    code, events, stderr = bench(real_python, *words)
    assert code == 0 and only(events, "reference")["agrees"], stderr
    phases = [event["phase"] for event in events if event["event"] == "phase"]
    assert phases[4:] == ["proof-windows", "proof-roof", "proof-precision", "proof-glance"]
    _, events, _ = bench(real_python, *words, "--proven", "flops_per_item=1e12")
    assert "times the peak of the device" in only(events, "failure")["message"]


FROZEN = """
from torch.nn.modules.batchnorm import _BatchNorm as Norm
real, calls = Norm.forward, {}
def forward(self, inputs):
    calls[id(self)] = calls.get(id(self), 0) + 1
    self.training = self.training and calls[id(self)] < 5
    return real(self, inputs)
Norm.forward = forward
"""
WITHOUT_DROPOUT = "import torch; torch.nn.functional.dropout = lambda inputs, *given, **named: inputs"


@pytest.mark.parametrize(
    ("words", "before", "message"),
    [
        (("--model", "resnet18", "--image-size", "32", "--batch", "4"), FROZEN, "batch norms did not compute as in training"),
        (("--model", "bert-tiny", "--sequence-length", "16", "--batch", "4"), WITHOUT_DROPOUT, "drew no random number"),
    ],
    ids=["batch norms", "dropout"],
)
def test_a_library_s_model_acts_as_in_training_in_every_step(
    real_python: str, words: tuple[str, ...], before: str, message: str
) -> None:
    code, events, _ = bench(real_python, *words, before=before)
    failure = only(events, "failure")
    assert code and failure["kind"] == "numerics"
    (reference,) = [event for event in events if event["event"] == "reference"]
    assert any(message in problem for problem in reference["problems"]), reference["problems"]


@pytest.mark.parametrize("parallel", ["no-sync", "independent"])
def test_ranks_that_share_nothing_are_proven_alone(real_python: str, parallel: str) -> None:
    code, events, stderr = bench(real_python, *RESNET, "--parallel", parallel, processes=2)
    assert code == 0 and only(events, "reference")["agrees"], stderr
