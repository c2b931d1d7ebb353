"""Inference with weights and activations in MXFP8, MXFP4 and NVFP4: torchao emulates the products on a CPU."""

import json
import subprocess
from pathlib import Path

import pytest

from box.test_generation import GENERATE
from support import PATIENCE_SECONDS
from support.boxes import bench, only
from support.sabotaged import BEFORE, BERT, RESNET, Sabotage
from torchmatrix.core import assets

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("runtimes")]

KINDS = ("mxfp8", "mxfp4", "nvfp4")
IN_BLOCKS = BEFORE.format("in_blocks")
BFLOAT16 = ("--precision", "bf16-weights")
INFER = (*BERT, "--mode", "infer")


@pytest.mark.parametrize(
    ("words", "kind"), [*((GENERATE, kind) for kind in KINDS), (INFER, "mxfp8"), (INFER, "nvfp4")], ids=lambda it: it[0][-4:]
)
def test_what_is_quantized_in_blocks_is_proven(newest_python_with_torchao: str, words: tuple[str, ...], kind: str) -> None:
    command = (*words, *BFLOAT16, "--runtime", f"torchao-{kind}")
    code, events, stderr = bench(newest_python_with_torchao, *command, before=IN_BLOCKS)
    assert code == 0 and only(events, "done"), stderr
    effective, reference = only(events, "precision")["effective"][0], only(events, "reference")
    assert (effective["linear"], effective["quantized"], effective["matmul"]) == (kind, kind, "bf16")
    assert reference["agrees"] is True
    whole = reference["groups"][-1]
    assert 0.5 < whole["distance"] / whole["noise"] < 2, (whole["distance"], whole["noise"])


def test_four_bits_that_move_the_outputs_far_are_held_against_four_bits(newest_python_with_torchao: str) -> None:
    words = ["lm-10m" if word == "lm-1m" else word for word in GENERATE]
    command = (*words, *BFLOAT16, "--runtime", "torchao-mxfp4")
    code, events, stderr = bench(newest_python_with_torchao, *command, before=IN_BLOCKS)
    reference, roof = only(events, "reference"), only(events, "roof")
    assert code == 0 and "its precision alone moves the outputs by 0.4" in reference["unwatched"], stderr
    bits = 8 * roof["weight_bytes"] / only(events, "setup")["parameters"]
    assert 4.25 < bits < 4.5, "four bits and a shared exponent of eight for each 32; norms are in sixteen"


DEEP = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128}
DEEP.update(num_hidden_layers=40, num_attention_heads=4, num_key_value_heads=4, vocab_size=64_000)


def test_a_deep_model_in_four_bits_that_chooses_other_tokens_than_fp32_is_no_alarm(
    newest_python_with_torchao: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DEEP))
    words = (*GENERATE, "--model", "config.llama.12345678", "--model-file", str(path), "--batch", "6", "--output-length", "5")
    command = (*words, "--steps", "1", "--windows", "1", "--requests", "3", *BFLOAT16, "--runtime", "torchao-mxfp4")
    code, events, stderr = bench(newest_python_with_torchao, *command, before=IN_BLOCKS)
    assert code == 0, stderr
    reference = only(events, "reference")
    parity = reference["parity"]
    assert parity["rows"] >= 20 and parity["top1"] < 0.2 and "held against eager mxfp4" in reference["unwatched"]


def test_layers_with_a_bias_are_not_in_mxfp4(newest_python_with_torchao: str) -> None:
    command = (*INFER, *BFLOAT16, "--runtime", "torchao-mxfp4")
    code, events, _ = bench(newest_python_with_torchao, *command, before=IN_BLOCKS)
    assert code != 0 and "linear layers, which are only 0 %" in only(events, "failure")["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_left_in_bfloat16_is_numerics(newest_python_with_torchao: str, kind: str) -> None:
    words = (*GENERATE, *BFLOAT16, "--runtime", f"torchao-{kind}")
    launch = Sabotage("nothing_in_blocks", words, 1, "the step doesn't compute in it")
    code, events, stderr = launch.launch(newest_python_with_torchao)
    assert launch.is_caught(code, events), (code, events, stderr)


def test_what_cannot_be_in_blocks_is_unsupported(newest_python: str, newest_python_with_torchao: str) -> None:
    def refusal(python: str, *words: str, before: str = "pass") -> str:
        code, events, stderr = bench(python, "--mode", "infer", *words, before=before)
        assert code != 0 and only(events, "failure")["kind"] == "unsupported", stderr
        return str(only(events, "failure")["message"])

    runtime = ("--runtime", "torchao-nvfp4")
    assert "torchao.prototype.mx_formats can't be imported" in refusal(newest_python, *BERT, *BFLOAT16, *runtime)
    assert "torchao can't quantize so" in refusal(newest_python_with_torchao, *BERT, *BFLOAT16, *runtime)
    assert "torchao can't quantize so" in refusal(newest_python_with_torchao, *BERT, "--runtime", "torchao-mxfp8")
    assert "only 0 %" in refusal(newest_python_with_torchao, *RESNET, *BFLOAT16, *runtime, before=IN_BLOCKS)


SAME = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from proofs import quantizing
from torchao.prototype.mx_formats.mx_tensor import MXTensor, ScaleCalculationMode
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale
torch.manual_seed(0)
rows = torch.randn(8, 128, dtype=torch.bfloat16) * torch.logspace(-3, 3, 128)
rows[1], rows[2], rows[3, :32], rows[4, 5] = 0, 4, 448, 1e4
rows = rows.bfloat16()
whole = per_tensor_amax_to_scale(rows.abs().amax())
def mx(kind): return MXTensor.to_mx(rows, kind, 32, ScaleCalculationMode.RCEIL).dequantize(torch.bfloat16)
theirs = {
    "mxfp8": mx(torch.float8_e4m3fn),
    "mxfp4": mx(torch.float4_e2m1fn_x2),
    "nvfp4": NVFP4Tensor.to_nvfp4(rows, per_tensor_scale=whole).dequantize(torch.bfloat16),
}
print(json.dumps({
    kind: [float((quantizing._QUANTIZED[kind](rows) != other).float().mean()), float((other - rows).norm() / rows.norm())]
    for kind, other in theirs.items()
}))
"""


def test_the_reference_rounds_in_blocks_as_torchao_does(newest_python_with_torchao: str) -> None:
    command = [newest_python_with_torchao, "-c", SAME, str(assets.WORKLOAD)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    for kind, (others, rounded) in json.loads(done.stdout).items():
        assert others == 0 and 0.01 < rounded < 0.2, (kind, others, rounded)
