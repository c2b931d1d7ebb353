"""A library that has another model under a listed name gives no figure of it, whether its parameters show it or not."""

import pytest

from support.boxes import bench, only

SIZES = ("--batch", "1", "--image-size", "32", "--sequence-length", "8", "--audio-seconds", "1", "--mode", "infer")
OTHERS = {
    "half the blocks": (
        "resnet18",
        "import torchvision\nfrom torchvision.models.resnet import BasicBlock, ResNet\n"
        "torchvision.models.resnet18 = lambda **words: ResNet(BasicBlock, [1, 1, 1, 1], **words)",
        "torchvision 0.",
        "it has 5,418,792 parameters, not 11,689,512",
    ),
    "half the layers by a library's default": (
        "distilbert-base",
        "import transformers\nreal = transformers.AutoConfig.for_model\n"
        "transformers.AutoConfig.for_model = lambda kind, **words: real(kind, **{'n_layers': 3, **words})",
        "transformers ",
        "n_layers is 3, not 6; it has 45,721,914 parameters, not 66,985,530",
    ),
    "half the layers, which share their weights": (
        "albert-base-v2",
        "import transformers\nreal = transformers.AutoConfig.for_model\n"
        "transformers.AutoConfig.for_model = lambda kind, **words: real(kind, **{'num_hidden_layers': 6, **words})",
        "transformers ",
        "as albert-base-v2: num_hidden_layers is 6, not 12",
    ),
    "other heads, which have as many weights": (
        "vit-small",
        "import transformers\nreal = transformers.AutoConfig.for_model\n"
        "transformers.AutoConfig.for_model = lambda kind, **words: real(kind, **{**words, 'num_attention_heads': 12})",
        "transformers ",
        "num_attention_heads is 12, not 6",
    ),
    "another model whose positions follow the images' size": (
        "vit_b_16",
        "import torchvision\ntorchvision.models.vit_b_16 = torchvision.models.vit_b_32",
        "torchvision 0.",
        "parameters, not 86,416,360",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.representative
def test_another_model_under_a_listed_name_is_unsupported(real_python: str, what: str) -> None:
    model, before, library, message = OTHERS[what]
    code, events, stderr = bench(real_python, "--model", model, *SIZES, before=before)
    failure = only(events, "failure")
    assert code and failure["kind"] == "unsupported" and not [event for event in events if event["event"] == "sample"], stderr
    assert library in failure["message"] and message in failure["message"], failure["message"]
