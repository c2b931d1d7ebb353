#!/bin/sh
# torchao's quantize_ leaves the experts of transformers 5.24.0's mixtures as they are, which it quantized with 4.57.6: the same script gives
# a Mixtral of 28 % of the bytes there and of 96 % here, and nothing says so. GPT-2's blocks it leaves with both.
#
# Seen with torchao 0.18.0, torch 2.13.0, Python 3.11, on a CPU, no GPU: small random models in float32, Int8WeightOnlyConfig(), which may
# bring linear layers down to a quarter. Bytes of all parameters after over before:
#
#                 4.57.6   5.24.0
#   llama         0.345    0.345
#   mixtral       0.279    0.965
#   olmoe         0.280    0.965
#   phimoe        0.280    0.964
#   qwen3_moe     0.294    0.934
#   glm4_moe      0.305    0.744
#   gpt_oss       0.965    0.965
#   gpt2          0.940    0.940
#
# In 5.24.0 all experts of a layer are one parameter of three dimensions in a module of its own, no nn.Linear, as they were in gpt_oss before;
# GPT-2 has Conv1D. quantize_ takes nn.Linear unless it is told otherwise; it doesn't tell how many it took. The models run.
# So "int8" of a mixture is its float type but for attention and output, and two releases differ by what is quantized. Count the bytes.
# Exits with 1 if any of that has changed. Takes 2 GB below TMPDIR with a torch for CPUs, 6 GB with one for CUDA.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat >"$folder/try.py" <<'PYTHON'
import sys
import warnings

import torch
import transformers
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from transformers import AutoConfig, AutoModelForCausalLM

warnings.simplefilter("ignore")
transformers.utils.logging.set_verbosity_error()
SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256,
    "intermediate_size": 256, "moe_intermediate_size": 128, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8,
    "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def size(model):
    return sum(sum(part.nbytes for part in parts_of(parameter)) for parameter in model.parameters())


def parts_of(parameter):
    """Return the tensors that a parameter of torchao's holds, or the parameter itself."""
    if not hasattr(parameter, "__tensor_flatten__") or "torchao" not in type(parameter.data).__module__:
        return [parameter]
    names, _ = parameter.__tensor_flatten__()
    return [getattr(parameter, name) for name in names]


ok = True
for kind, wanted in zip(sys.argv[1::2], sys.argv[2::2]):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES)).float().eval()
    before = size(model)
    quantize_(model, Int8WeightOnlyConfig())
    ratio = f"{size(model) / before:.3f}"
    with torch.no_grad():
        finite = bool(model(input_ids=torch.arange(8)[None]).logits.isfinite().all())
    print("transformers", transformers.__version__, kind, ratio, "runs" if finite else "doesn't run")
    ok = ok and finite and ratio == wanted
sys.exit(not ok)
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 "numpy<2.4" torchao==0.18.0
while read -r release wanted; do
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "transformers==$release"
    # shellcheck disable=SC2086
    "$folder/venv/bin/python" -W ignore "$folder/try.py" $wanted ||
        { echo "what torchao quantizes of transformers $release has changed" >&2; exit 1; }
done <<'RELEASES'
4.57.6 llama 0.345 mixtral 0.279 olmoe 0.280 phimoe 0.280 qwen3_moe 0.294 glm4_moe 0.305 gpt_oss 0.965 gpt2 0.940
5.24.0 llama 0.345 mixtral 0.965 olmoe 0.965 phimoe 0.964 qwen3_moe 0.934 glm4_moe 0.744 gpt_oss 0.965 gpt2 0.940
RELEASES
