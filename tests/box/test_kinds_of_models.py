"""One model of every kind in real launches on the CPU: its loss is that of its library, and its work is proven."""

import pytest

from support.boxes import bench, only

pytestmark = pytest.mark.xdist_group("kinds of models")  # one process imports their libraries
KINDS = {
    "timm.mobilenetv3_small_100": "images of timm",
    "timm.resnet26": "a model that is not listed",
    "vit_b_16": "a last matrix of zeros",
    "efficientnet_b0": "stochastic depth",
    "lraspp_mobilenet_v3_large": "segmentation",
    "fcos_resnet50_fpn": "detection",
    "r3d_18": "video",
    "distilbert-base": "masked tokens",
    "albert-base-v2": "a class of a text",
    "llama-tiny": "next tokens",
    "t5-small": "a decoder",
    "vit-small": "images of transformers",
    "segformer-b0": "segmentation by transformers",
    "wav2vec2-base": "a text of a clip",
    "wav2vec2-base-classifier": "a class of a clip",
    "whisper-tiny": "a decoder of clips",
    "transformers.electra": "a text model that is not listed",
    "unet-tiny": "the noise in images",
}
SIZES = ("--batch", "2", "--image-size", "32", "--sequence-length", "16", "--audio-seconds", "1")
STEPS = ("--steps", "1", "--warmup-steps", "1", "--warmup-cap", "1")


LARGE = {"wav2vec2-base": "train", "wav2vec2-base-classifier": "infer", "distilbert-base": "infer", "t5-small": "train"}
"""Whose other mode is left to the smaller models of their kind: each takes as long as three of those."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "mode"),
    [(model, mode) for model in KINDS for mode in ("train", "infer") if LARGE.get(model, mode) == mode],
    ids=lambda word: f"{word}, {KINDS[word]}" if word in KINDS else word,
)
def test_a_model_of_every_kind_is_trained_and_run_and_proven(python_with_models: str, model: str, mode: str) -> None:
    code, events, stderr = bench(python_with_models, "--model", model, "--mode", mode, *SIZES, *STEPS)
    assert code == 0, stderr
    reference = only(events, "reference")
    assert reference["agrees"] is True and reference["proof"] == "full" and reference["error"] is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "timm.resnet50x"), "has no model resnet50x (resnet50"),
        (("--model", "timm.nest_tiny", "--image-size", "33"), "for images of 33 pixels"),
        (("--model", "transformers.electro"), "has no type electro (electra"),
        (("--model", "transformers.vit"), "vit is not a text model"),
        (("--model", "unet-ddpm-cifar10", "--image-size", "36"), "a multiple of 8 pixels, not 36"),
        (("--model", "r3d_18", "--channels-last"), "channels_last is for images"),
    ],
)
def test_what_a_model_cannot_do_is_unsupported(python_with_models: str, words: tuple[str, ...], message: str) -> None:
    code, events, _ = bench(python_with_models, *words, "--batch", "2")
    assert code and only(events, "failure")["kind"] == "unsupported" and message in only(events, "failure")["message"]


def test_a_stack_without_timm_says_so(real_python: str) -> None:
    code, events, _ = bench(real_python, "--model", "timm.resnet26", "--batch", "2")
    assert code and only(events, "failure")["kind"] == "unsupported"
    assert "this stack has no timm, which model timm.resnet26 is of" in only(events, "failure")["message"]
