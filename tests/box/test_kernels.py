"""Which kernels run: the fused optimizer, whose writes torch does not count, and those of attention."""

import pytest

from support.boxes import bench, only
from support.sabotaged import UNWRITTEN, Sabotage

pytestmark = pytest.mark.thorough

LM = ("--model", "lm-1m", "--sequence-length", "16", "--batch", "2")
BERT = ("--model", "bert-tiny", "--sequence-length", "16", "--batch", "2")
FUSED = ("--optimizer", "adamw-fused")
WITHOUT_KERNELS = (
    "import torch; torch.backends.cuda.enable_flash_sdp(False); torch.backends.cuda.enable_mem_efficient_sdp(False)"
)
WITHOUT_FUSED = (
    "import torch\n"
    "def adamw(parameters, lr, fused=False):\n"
    "    raise RuntimeError('`fused=True` requires all the params to be CUDA')\n"
    "torch.optim.AdamW = adamw"
)
"""What torch before 2.4 says on a CPU."""


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_fused_optimizer_takes_the_steps_of_the_other_and_is_watched(newest_python: str, ranks: int) -> None:
    fingerprints = []
    for words in (FUSED, ("--optimizer", "adamw")):
        code, events, stderr = bench(newest_python, *LM, *words, processes=ranks)
        assert code == 0 and only(events, "reference")["agrees"] is True, stderr
        assert only(events, "reference")["unwatched"] is None
        fingerprints.append(only(events, "reference")["fingerprint"])
    assert fingerprints[0] == pytest.approx(fingerprints[1], rel=1e-3)


def test_another_optimizer_is_not_called_fused(newest_python: str) -> None:
    by_other_kernels = (
        "import torch; real = torch.optim.AdamW; "
        "torch.optim.AdamW = lambda parameters, fused=False, **words: real(parameters, **words)"
    )
    code, events, _ = bench(newest_python, *LM, *FUSED, before=by_other_kernels)
    assert code and "adamw-fused was asked for, but the optimizer writes" in only(events, "failure")["message"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("no_optimizer", "change"), ("head_alone_in_windows", UNWRITTEN), ("no_rate_in_windows", "the windows did not change")],
)
def test_a_fused_optimizer_that_does_not_do_its_work_gives_no_number(newest_python: str, name: str, message: str) -> None:
    launch = Sabotage(name, (*LM, *FUSED), 1, message)
    code, events, stderr = launch.launch(newest_python)
    assert launch.is_caught(code, events), (code, events, stderr)


def test_a_torch_without_the_fused_optimizer_is_unsupported(newest_python: str) -> None:
    code, events, _ = bench(newest_python, *LM, *FUSED, before=WITHOUT_FUSED)
    (failure,) = [event for event in events if event["event"] == "failure"]
    assert code and failure["kind"] == "unsupported" and "has no fused AdamW here: `fused=True`" in failure["message"]


@pytest.mark.parametrize(
    ("words", "before", "kinds"),
    [
        ((*LM, "--attention", "sdpa"), "", ["flash"]),
        ((*LM, "--attention", "sdpa"), WITHOUT_KERNELS, ["math"]),
        ((*BERT, "--attention", "eager"), "", ["eager"]),
        (("--model", "resnet18", "--image-size", "32", "--batch", "2"), "", None),
        ((*LM, "--attention", "sdpa", "--mode", "infer"), "", ["flash"]),
        ((*LM, "--attention", "auto"), "", ["flash"]),
    ],
    ids=["flash", "math", "eager", "none", "inference", "auto"],
)
def test_the_attention_that_ran_is_recorded(
    newest_python: str, words: tuple[str, ...], before: str, kinds: list[str] | None
) -> None:
    code, events, stderr = bench(newest_python, *words, "--proof", "none", before=before)
    assert code == 0, stderr
    assert only(events, "precision")["effective"][0]["types"]["attention"] == kinds
    texts = [text for text in only(events, "remarks")["texts"] if "attention sdpa was asked for" in text]
    assert bool(texts) is (kinds == ["math"])
