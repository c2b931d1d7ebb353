"""Runtimes of inference give what eager fp32 gives, in the precision asked for, or no number; here those that run on a CPU."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS, sabotaged
from support.boxes import bench, only, own_model
from support.sabotaged import BERT, RESNET
from torchmatrix.core import assets

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.xdist_group("runtimes"),  # one process imports their libraries
]
INFER = ("--mode", "infer")


def proven(python: str, *words: str, **variables: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the setup, the effective precision and the reference of a launch that must succeed."""
    code, events, stderr = bench(python, *INFER, *words, **variables)
    assert code == 0 and only(events, "done"), stderr
    assert only(events, "reference")["agrees"] is True
    return only(events, "setup"), only(events, "precision")["effective"][0], only(events, "reference")


@pytest.mark.parametrize("model", [RESNET, BERT], ids=lambda words: words[1])
@pytest.mark.parametrize(
    ("runtime", "facts"),
    [
        ("torchscript", {}),
        ("onnxruntime", {"providers": ["CPUExecutionProvider"]}),
        ("openvino", {"precision": "f32", "devices": ["CPU"]}),
    ],
)
def test_an_exported_graph_gives_the_outputs_of_eager_fp32(
    runtimes_python: str, runtime: str, facts: dict[str, Any], model: tuple[str, ...]
) -> None:
    setup, effective, reference = proven(runtimes_python, *model, "--runtime", runtime)
    assert setup["runtime"]["name"] == runtime and setup["runtime"]["version"] and facts.items() <= setup["runtime"].items()
    assert setup["parameters"] > 4_000_000
    assert (effective["matmul"], effective["convolution"]) == ("fp32", "fp32")
    parity = reference["parity"]
    assert 0 <= parity["largest_relative"] < 1e-5 and parity["cosine"] > 0.9999999 and parity["top1"] == 1
    assert parity["rows"] == (4 if model == RESNET else 8) and parity["relative_allowed"] < 1e-3


def test_quantized_linear_layers_are_int8_and_the_rest_is_not(runtimes_python: str) -> None:
    setup, effective, reference = proven(runtimes_python, *BERT, "--runtime", "torchao-int8")
    assert effective["linear"] == "int8" and effective["matmul"] == "fp32"
    assert setup["runtime"]["quantized_share"] == 1
    assert 1e-4 < reference["parity"]["largest_relative"] < 0.2 and reference["parity"]["cosine"] > 0.99


def test_a_model_of_convolutions_is_not_called_int8(runtimes_python: str) -> None:
    code, events, _ = bench(runtimes_python, *INFER, *RESNET, "--runtime", "torchao-int8")
    failure = only(events, "failure")
    assert code != 0 and failure["kind"] == "unsupported" and "linear layers, which are only 4 %" in failure["message"]


def test_a_model_that_was_not_quantized_is_not_called_int8(runtimes_python: str) -> None:
    words = (*BERT, *INFER, "--runtime", "torchao-int8")
    launch = sabotaged.Sabotage("nothing_quantized", words, 1, "the step doesn't compute in it")
    code, events, stderr = launch.launch(runtimes_python)
    assert launch.is_caught(code, events), (code, events, stderr)


def refused(python: str, *words: str, hook: str = "pass") -> str:
    """Return the message of a launch that must end as unsupported; `hook`: Python that runs before it."""
    code, events, stderr = bench(python, *INFER, *words, before=hook)
    failure = only(events, "failure")
    assert code != 0 and failure["kind"] == "unsupported", stderr
    return str(failure["message"])


def test_a_provider_that_falls_back_gives_no_number(runtimes_python: str) -> None:
    hook = "import onnxruntime; onnxruntime.InferenceSession.get_providers = lambda self: ['AzureExecutionProvider']"
    message = refused(runtimes_python, *RESNET, "--runtime", "onnxruntime", hook=hook)
    assert "onnxruntime fell back to AzureExecutionProvider; CPUExecutionProvider was asked for" in message
    hook = "import onnxruntime; onnxruntime.get_available_providers = lambda: ['CUDAExecutionProvider']"
    message = refused(runtimes_python, *RESNET, "--runtime", "onnxruntime", hook=hook)
    assert "this onnxruntime has no CPUExecutionProvider; it has: ['CUDAExecutionProvider']" in message


def test_openvino_in_another_precision_gives_no_number(runtimes_python: str) -> None:
    """Ask for float16: where the CPU has none, OpenVINO says what it takes instead; else only what is computed tells."""
    hook = "from runtimes import openvino; openvino._HINT['fp32'] = 'f16'"
    code, events, stderr = bench(runtimes_python, *INFER, *RESNET, "--runtime", "openvino", before=hook)
    failure = only(events, "failure")
    messages = {
        "unsupported": r"openvino computes in (f32|bf16), not in f16$",  # bf16 on a CPU that has AMX without float16
        "numerics": "precision fp32 was requested, but convolution",
    }
    assert code != 0 and re.search(messages[failure["kind"]], failure["message"]), stderr
    assert "done" not in [event["event"] for event in events]


def test_what_is_not_installed_is_unsupported(real_python: str) -> None:
    assert "onnxruntime can't be imported" in refused(real_python, *RESNET, "--runtime", "onnxruntime")
    assert "torch_tensorrt can't be imported" in refused(real_python, *RESNET, "--runtime", "torch-tensorrt")
    assert "tensorrt can't be imported" in refused(real_python, *RESNET, "--runtime", "tensorrt")
    message = refused(real_python, *RESNET, "--runtime", "torchscript", "--compile")
    assert "runtime torchscript compiles by itself, without torch.compile" in message


@pytest.mark.parametrize(
    ("model", "more"),
    [
        (RESNET, ("--precision", "bf16-weights")),
        (BERT, ("--precision", "bf16-weights")),
        (RESNET, ("--no-eval",)),
        (BERT, ("--no-eval",)),
    ],
    ids=lambda words: words[1] if len(words) > 1 else words[0],
)
def test_further_settings_of_inference_are_proven(real_python: str, model: tuple[str, ...], more: tuple[str, ...]) -> None:
    _, effective, reference = proven(real_python, *model, *more)
    assert effective["matmul"] == ("bf16" if "bf16-weights" in more else "fp32")
    assert reference["parity"]["largest_relative"] <= reference["parity"]["relative_allowed"]


@pytest.mark.sweep
def test_what_max_autotune_makes_is_proven(real_python: str, tmp_path: Path) -> None:
    _, _, reference = proven(real_python, *own_model(tmp_path), "--compile", "--compile-mode", "max-autotune")
    assert reference["parity"]["largest_relative"] <= reference["parity"]["relative_allowed"]


@pytest.mark.parametrize("model", [RESNET, BERT], ids=lambda words: words[1])
def test_training_of_bfloat16_weights_is_proven(real_python: str, model: tuple[str, ...]) -> None:
    code, events, stderr = bench(real_python, *model, "--precision", "bf16-weights")
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr
    assert "parity" not in only(events, "reference")


PARITY = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from proofs import parity
exact = [torch.tensor([[1.0, 2.0, -4.0], [3.0, 0.0, 1.0]])]
cases = {
    "same": exact,
    "far": [exact[0] + torch.tensor([[0, 0.4, 0], [0, 0, 0]])],
    "other": [exact[0].flip(1)],
    "nan": [exact[0] * float("nan")],
}
found = {name: parity.figures(case, exact) for name, case in cases.items()}
allowed = parity.limits("fp32", found["same"])
rough = parity.limits("amp-bf16", dict(found["same"], largest_relative=0.05, cosine=0.999))
said = {name: parity.problems("fp32", one, allowed, "eager fp32") for name, one in found.items()}
print(json.dumps({"found": found, "said": said, "allowed": allowed, "rough": rough}))
"""


def test_the_figures_of_parity(real_python: str) -> None:
    done = subprocess.run(
        [real_python, "-c", PARITY, str(assets.WORKLOAD)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    result = json.loads(done.stdout)
    same, far, other, nan = (result["found"][name] for name in ("same", "far", "other", "nan"))
    assert same == {"largest_absolute": 0, "largest_relative": 0, "cosine": pytest.approx(1), "top1": 1, "rows": 2}
    assert far["largest_absolute"] == pytest.approx(0.4) and far["largest_relative"] == pytest.approx(0.1)
    assert far["top1"] == 1 and other["top1"] == 0.5 and other["largest_absolute"] == pytest.approx(5)
    assert other["cosine"] == pytest.approx((-4 + 4 - 4 + 3 + 0 + 3) / 31)
    assert nan["largest_absolute"] == 1e300 and nan["cosine"] == 0
    assert result["said"]["same"] == [] and "by up to 0.4 (0.1 of the largest output)" in result["said"]["far"][0]
    assert len(result["said"]["other"]) == 3 and len(result["said"]["nan"]) >= 2
    assert result["allowed"] == {"relative_allowed": 1e-4, "cosine_least": 0.99999}
    assert result["rough"] == {"relative_allowed": pytest.approx(0.2), "cosine_least": pytest.approx(0.996)}


def test_the_runtimes_of_gpus_ask_for_what_they_should_and_find_their_tensors(real_python: str) -> None:
    program = str(Path(__file__).with_name("gpu_runtimes.py"))
    done = subprocess.run(
        [real_python, program, str(assets.WORKLOAD)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    result = json.loads(done.stdout)
    right = {"sum": [[13.0] * 3] * 2, "product": [[15.0] * 3] * 2}
    assert [result[name] for name in ("bound", "tensorrt fp32", "tensorrt tf32", "torch_tensorrt")] == [right] * 4
    assert result["told"] == {name: ["cuda", 1, "float32", [2, 3]] for name in ("input0", "input1", "output0", "output1")}, (
        "the input that the model doesn't use is not bound"
    )
    cuda = {precision: result["providers"][f"onnxruntime {precision}"] for precision in ("fp32", "tf32", "half")}
    assert [[name for name, _ in providers] for providers in cuda.values()] == [["CUDAExecutionProvider"]] * 3
    assert [providers[0][1]["use_tf32"] for providers in cuda.values()] == [0, 1, 0]
    assert cuda["fp32"][0][1]["user_compute_stream"] == "7" and cuda["fp32"][0][1]["device_id"] == 1
    ((name, half),) = result["providers"]["onnxruntime-tensorrt half"]
    assert name == "TensorrtExecutionProvider" and half["trt_fp16_enable"] is True
    assert result["options"] == {"session.disable_cpu_ep_fallback": "1"}
    assert "would run a part of the model on the CPU" in result["fallback"]
    assert result["tensorrt fp32 flags"] == [2, False] and result["tensorrt tf32 flags"] == [2, True]
    assert result["tensorrt odd"] == "TensorRT can't read the model: no such operation"
    assert result["asked"] == {
        "enabled_precisions": "{torch.float32}", "disable_tf32": "True", "require_full_compilation": "True"
    }  # fmt: skip
    assert result["torch_tensorrt in part"] == "torch_tensorrt can't convert the whole model: an operation stays in PyTorch"


MIXED = """
import torch
from torch import nn

UNIT = "rows"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 256), nn.Unflatten(1, (1, 16, 16)), nn.Conv2d(1, 16, 16), nn.Flatten())
        self.last = nn.Linear(16, 256)

    def forward(self, rows):
        return self.last(self.layers(rows))


def batch(size, generator):
    return torch.randn(size, WIDTH, generator=generator), None


def loss(outputs, _):
    return outputs.square().mean()
"""


def test_what_torchao_leaves_as_it_is_counts_as_not_quantized(runtimes_python: str, tmp_path: Path) -> None:
    words = own_model(tmp_path, MIXED.replace("WIDTH", "192"))
    int4 = ("--runtime", "torchao-int4", "--precision", "bf16-weights")
    assert "linear layers, which are only 0 %" in refused(runtimes_python, *words, *int4)
    code, events, stderr = bench(runtimes_python, *INFER, *words, "--runtime", "torchao-int8")
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr
    setup, remarks = only(events, "setup"), [text for event in events if event["event"] == "remarks" for text in event["texts"]]
    assert any(text.startswith("torchao left 14 % of the numbers in products as they were") for text in remarks)
    share = 192 * 256 / (192 * 256 + 16 * 256 + 16 * 256)  # neither the convolution nor a layer of 16 columns
    assert setup["runtime"]["quantized_share"] == pytest.approx(share)


def test_a_layer_that_torchao_leaves_is_named(runtimes_python: str) -> None:
    """A library that skips what it took before, as none does that is known."""
    hook = """
import torchao.quantization as quantization
real = quantization.quantize_
def some(model, config, filter_fn, **words):
    kept = [m for m in model.modules() if filter_fn(m, "")][:1]
    return real(model, config, filter_fn=lambda m, name: filter_fn(m, name) and not any(m is one for one in kept), **words)
quantization.quantize_ = some
"""
    assert "torchao left 1 of " in refused(runtimes_python, *BERT, "--runtime", "torchao-int8", hook=hook)
