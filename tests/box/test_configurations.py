"""Language models by config.json, one of each kind: their work is counted as by hand, or refused with the true reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.boxes import bench, only, remarks_of
from support.configurations import KINDS, written

BATCH, PROMPT, OUTPUT = 2, 32, 8
SMALL = (
    "--batch", str(BATCH), "--sequence-length", str(PROMPT), "--output-length", str(OUTPUT), "--steps", "1", "--windows", "1",
    "--warmup-steps", "2", "--warmup-cap", "2", "--requests", "2", "--request-seconds", "1",
)  # fmt: skip
DEPTH = sum(range(PROMPT + 1, PROMPT + OUTPUT)) / (OUTPUT - 1)
"""The tokens that the mean step of decode looks back at, its own among them."""
KEEPS_NOTHING = "no static cache fits the model: its forward pass keeps nothing there"
REFUSED = {
    ("roberta", "train"): "sees later tokens: is_decoder is false",
    ("roberta", "generate"): "sees later tokens: is_decoder is false",
    ("roc_bert", "train"): "sees later tokens: is_decoder is false",
    ("roc_bert", "generate"): "sees later tokens: is_decoder is false",
    ("deepseek_v32", "generate"): "attention keeps the best 36 of 40 tokens",
    ("mamba", "generate"): KEEPS_NOTHING,
    ("mamba2", "generate"): KEEPS_NOTHING,
    ("rwkv", "generate"): KEEPS_NOTHING,
    ("minimax", "generate"): "no static cache fits the model: ValueError: MiniMax uses cache of its own",
}
BLOCK, HEAD, WIDTH = 64 * (64 + 32 + 32 + 64) + 3 * 64 * 96, 64 * 256, 64
"""Weights in products of a layer as Llama has it, and of the head; the width of all heads."""


def pairs(tokens: int, window: int = PROMPT) -> int:
    return sum(min(position, window) for position in range(1, tokens + 1))


PREFILL = {
    "llama": 2 * (PROMPT * 2 * BLOCK + HEAD) + 4 * WIDTH * 2 * pairs(PROMPT),
    "gemma3_text": 2 * (PROMPT * 6 * BLOCK + HEAD) + 4 * WIDTH * (5 * pairs(PROMPT, 16) + pairs(PROMPT)),
}
"""FLOPs of a prompt: of Gemma's six layers five have a window of 16 tokens."""
KEPT = {
    "llama": 2 * 2 * 2 * 16 * DEPTH,
    "deepseek_v3": 2 * (16 + 8) * DEPTH,
    "gemma3_text": 2 * 2 * 16 * (5 * 16 + DEPTH),
    "falcon_h1": 2 * (2 * 2 * 16 * DEPTH + (64 + 2 * 16) * 4 + 4 * 16 * 16),
}
"""Numbers that a step reads from the cache for one sequence: keys and values, latent ones and rotary keys, states."""


@pytest.mark.thorough
def test_a_formula_that_does_not_know_a_model_says_so(newest_python: str, tmp_path: Path) -> None:
    """XLNet's products of positions have no backward pass, which three times the forward pass would count."""
    content = {
        "model_type": "xlnet",
        "architectures": ["XLNetLMHeadModel"],
        "d_model": 64,
        "n_layer": 2,
        "n_head": 4,
        "d_inner": 96,
    }
    (tmp_path / "xlnet.json").write_text(json.dumps({**content, "vocab_size": 256}))
    words = ("--model", "xlnet.x", "--model-file", str(tmp_path / "xlnet.json"), *SMALL, "--mode", "train")
    code, events, stderr = bench(newest_python, *words)
    assert code == 0, stderr
    assert only(events, "reference")["formula_flops_per_item"] is None and only(events, "reference")["flops_per_item"] > 0
    texts = remarks_of(events)
    assert [text for text in texts if text.startswith("FLOPs by formula: not known (1.0") and "doesn't know this model" in text]


def launched(python: str, folder: Path, kind: str, mode: str, **more: Any) -> tuple[int, list[dict[str, Any]], str]:
    return bench(python, *written(folder, kind, **more), *SMALL, "--mode", mode)


def check_figures(kind: str, mode: str, events: list[dict[str, Any]]) -> None:
    reference, texts = only(events, "reference"), remarks_of(events)
    assert reference["agrees"] is True
    assert not any("not known" in text for text in texts), texts
    if mode == "train":
        assert reference["formula_flops_per_item"] == pytest.approx(reference["flops_per_item"], rel=0.05)
        return
    assert 0 < reference["formula_flops_per_item"] <= 1.001 * reference["flops_per_item"]
    roof, whole = only(events, "roof"), 4 * only(events, "setup")["parameters"]
    assert 0 < roof["weight_bytes"] <= whole
    if kind in PREFILL:
        assert roof["prefill_flops"] == pytest.approx(BATCH * PREFILL[kind], rel=1e-3)
    if kind in KEPT:
        assert roof["cache_bytes"] == pytest.approx(4 * BATCH * KEPT[kind])
    assert (roof["expert_share"] is not None) == (kind in ("gpt_oss", "jetmoe", "aria_text", "deepseek_v3", "qwen3_next"))
    if kind == "jetmoe":
        assert roof["weight_bytes"] < 0.7 * whole, "two tokens, each to two of eight experts"
    if kind in ("bart", "marian", "fuyu"):
        assert roof["weight_bytes"] < 0.75 * whole, "no token looks at images or at another text"


CASES = [(kind, mode) for kind in KINDS for mode in ("train", "generate")]
OFTEN = {
    ("roberta", "train"), ("marian", "train"), ("qwen3_next", "train"), ("deepseek_v32", "generate"), ("mamba", "generate"),
    ("minimax", "generate"), ("jetmoe", "generate"), ("gemma3_text", "generate"), ("falcon_h1", "generate"),
    ("fuyu", "generate"), ("deepseek_v3", "generate"), ("roc_bert", "train"),
}  # fmt: skip
"""What each test run launches; the others are thorough."""


@pytest.mark.parametrize(
    ("kind", "mode"), [pytest.param(*case, marks=[] if case in OFTEN else pytest.mark.thorough) for case in CASES]
)
def test_each_kind_of_language_model_has_its_figures_or_is_refused_with_the_reason(
    newest_python: str, tmp_path: Path, kind: str, mode: str
) -> None:
    code, events, stderr = launched(newest_python, tmp_path, kind, mode)
    if (kind, mode) not in REFUSED:
        assert code == 0, stderr
        return check_figures(kind, mode, events)
    failure = only(events, "failure")
    assert failure["kind"] == "unsupported" and REFUSED[kind, mode] in failure["message"], failure
    return None


@pytest.mark.parametrize(("kind", "taken"), [("gpt_oss", "eager"), ("falcon_h1", "sdpa")])
def test_auto_takes_the_attention_that_the_library_has_for_the_model(
    newest_python: str, tmp_path: Path, kind: str, taken: str
) -> None:
    words = (*written(tmp_path, kind), *SMALL, "--mode", "train", "--attention")
    code, events, stderr = bench(newest_python, *words, "auto")
    assert code == 0 and only(events, "setup")["attention"] == taken, stderr
    code, events, _ = bench(newest_python, *words, "sdpa")
    assert bool(code) is (taken == "eager")
    assert not code or "attention 'sdpa'" in only(events, "failure")["message"]


def test_an_encoder_that_is_a_decoder_trains(newest_python: str, tmp_path: Path) -> None:
    code, events, stderr = launched(newest_python, tmp_path, "roberta", "train", is_decoder=True)
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr


def test_sparse_attention_that_keeps_all_tokens_generates(newest_python: str, tmp_path: Path) -> None:
    code, events, stderr = launched(newest_python, tmp_path, "deepseek_v32", "generate", index_topk=PROMPT + OUTPUT)
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr


def test_a_static_cache_by_which_a_type_decodes_wrongly_gives_no_figure(real_python: str, tmp_path: Path) -> None:
    """By findings/static-cache-types.sh: transformers 4.57.6 decodes jetmoe by other logits with a StaticCache."""
    code, events, _ = launched(real_python, tmp_path, "jetmoe", "generate")
    failure = only(events, "failure")
    assert code and failure["kind"] == "numerics" and "away from eager fp32" in failure["message"], failure


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["qwen3_next", "falcon_h1"])
def test_recurrent_layers_take_other_products_for_a_token_than_for_a_prompt(
    newest_python: str, tmp_path: Path, kind: str
) -> None:
    words = (*written(tmp_path, kind), *SMALL, "--mode", "generate", "--precision", "bf16-weights")
    code, events, stderr = bench(newest_python, *words)
    assert code == 0 and only(events, "reference")["agrees"] is True, (events, stderr)
    types = only(events, "precision")["effective"][0]["types"]["apart_from_attention"]
    assert {*types["step"]} == {*types["alone"]} == {"bfloat16", "float32"}
