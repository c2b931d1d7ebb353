"""Tensor parallel training with real ranks on a CPU: all ranks compute one batch, each with a part of every matrix."""

import pytest

from support.boxes import bench, only
from support.sabotaged import Sabotage

pytestmark = pytest.mark.thorough

LM = ("--model", "lm-1m", "--sequence-length", "16", "--batch", "4", "--optimizer", "adamw")
SPLIT = ("--parallel", "tp")
QWEN3 = (
    "import families; models = families.LIBRARIES['transformers']['models'];"
    " models['lm-1m'] = {**models['lm-1m'], 'type': 'qwen3', 'parameters': 918912,"
    " 'config': {**models['lm-1m']['config'], 'head_dim': 32}}"
)
"""The smallest qwen3 that is listed has 0.6 billion parameters; it has norms that each rank applies to its own heads."""


@pytest.mark.parametrize(
    ("python", "words", "before"),
    [
        ("newest_python", LM, ""),
        ("newest_python", LM, QWEN3),
        ("newest_python", (*LM, "--precision", "amp-bf16", "--attention", "sdpa"), ""),
        ("newest_python", (*LM, "--precision", "bf16-weights"), ""),
        ("newest_python", (*LM, "--compile"), ""),
        ("real_python", LM, ""),
        ("real_python", LM, QWEN3),
    ],
    ids=["fp32", "qwen3", "amp-bf16", "bf16-weights", "compiled", "torch 2.5", "qwen3 by torch 2.5"],
)
def test_ranks_that_split_a_model_train_it_as_one_device_does_and_prove_it(
    request: pytest.FixtureRequest, python: str, words: tuple[str, ...], before: str
) -> None:
    found = []
    for processes in (1, 2):
        code, events, stderr = bench(request.getfixturevalue(python), *words, *SPLIT, processes=processes, before=before)
        assert code == 0 and only(events, "reference")["agrees"] is True, stderr
        (window,) = (event for event in events if event["event"] == "sample" and event["phase"] == "measure")
        assert window["items"] == 3 * 4 * 16, "each batch counts once"
        found.append((only(events, "setup")["parameters"], only(events, "reference")["fingerprint"]))
    (whole, alone), (split, together) = found
    assert split == whole and together == pytest.approx(alone, rel=1e-4 if "--precision" not in words else 5e-2)


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("partial_sums", LM, "differs from that of eager fp32"),
        ("partial_sums_backward", LM, "away from eager fp32"),
        ("own_batches", LM, "the ranks' batches differ, which were to be one"),
        ("own_batches_in_windows", LM, "though their batch is one"),
        ("no_all_reduce", LM, "each rank has the whole model"),
        ("no_optimizer", LM, "change"),
        ("half_a_batch", LM, "away from eager fp32"),
        ("no_backward_in_windows", LM, "the optimizer did not always change"),
    ],
)
def test_a_launch_that_splits_but_does_not_do_its_work_gives_no_number(
    newest_python: str, name: str, words: tuple[str, ...], message: str
) -> None:
    launch = Sabotage(name, (*words, *SPLIT), 2, message)
    code, events, stderr = launch.launch(newest_python)
    assert launch.is_caught(code, events), (code, events, stderr)


def test_norms_of_heads_that_learn_from_a_ranks_own_heads_give_no_number(newest_python: str) -> None:
    launch = Sabotage("own_norms", (*LM, *SPLIT), 2, "gradients differ after a step")
    code, events, stderr = launch.launch(newest_python, QWEN3)
    assert launch.is_caught(code, events), (code, events, stderr)


@pytest.mark.parametrize(
    ("words", "ranks", "message"),
    [
        (("--model", "lm-1m"), 3, "lm-1m has 4 attention heads and 2 key-value heads, which 3 ranks can't share alike"),
        (("--model", "gpt2-124m-shape"), 2, "gpt2-124m-shape is none"),
        (("--model", "lm-10m-moe"), 2, "lm-10m-moe is none"),
        (("--model", "lm-1m", "--mode", "infer"), 2, "tensor parallelism is for training"),
    ],
)
def test_what_can_not_be_split_is_unsupported_with_its_reason(
    newest_python: str, words: tuple[str, ...], ranks: int, message: str
) -> None:
    code, events, _ = bench(newest_python, *words, "--sequence-length", "16", "--batch", "2", *SPLIT, processes=ranks)
    failures = [event for event in events if event["event"] == "failure"]
    assert code and failures and {event["kind"] for event in failures} == {"unsupported"}
    assert all(message in event["message"] for event in failures), failures


def test_a_torch_that_can_not_split_is_unsupported_not_a_crash(newest_python: str) -> None:
    lacking = "import sys; sys.modules['torch.distributed.tensor'] = None"
    code, events, _ = bench(newest_python, *LM, *SPLIT, processes=2, before=lacking)
    messages = {event["message"] for event in events if event["event"] == "failure"}
    assert code and messages and all("can't split matrices" in message for message in messages)
