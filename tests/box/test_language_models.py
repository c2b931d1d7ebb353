"""Language models are measured in tokens; a router may leave experts out, and that is no missing work."""

import pytest

from support.boxes import bench, only

STEPS = (
    "--batch",
    "2",
    "--sequence-length",
    "64",
    "--steps",
    "3",
    "--windows",
    "2",
    "--warmup-steps",
    "2",
    "--warmup-cap",
    "2",
)


def test_training_counts_tokens_and_their_operations(real_python: str) -> None:
    code, events, stderr = bench(real_python, "--model", "lm-1m", "--optimizer", "adamw", *STEPS)
    assert code == 0, stderr
    windows = [event for event in events if event["event"] == "sample" and event["phase"] == "measure"]
    assert [window["items"] for window in windows] == [2 * 64 * 3] * 2
    reference, parameters = only(events, "reference"), only(events, "setup")["parameters"]
    assert reference["agrees"] is True and reference["proof"] == "full"
    attention = 12 * 4 * 128 * 64  # 12 · layers · width · length (arXiv:2204.02311, appendix B)
    assert reference["flops_per_item"] == pytest.approx(6 * parameters + attention, rel=0.1)


@pytest.mark.thorough
def test_an_expert_without_tokens_is_told_and_is_no_missing_work(real_python: str) -> None:
    code, events, stderr = bench(real_python, "--model", "lm-10m-moe", "--optimizer", "adamw", *STEPS)
    assert code == 0, stderr
    assert only(events, "reference")["agrees"] is True
    (text,) = only(events, "remarks")["texts"]
    assert "got no token of their router in the last step" in text and ".experts." in text
