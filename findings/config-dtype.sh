#!/bin/sh
# From transformers 4.49 on, AutoModelForCausalLM.from_config builds a model in the type that its configuration names, before in
# float32; the model's own class still takes float32. So one benchmark script compares float32 with bfloat16 over two releases.
#
# Seen with Python 3.11, torch 2.15.0 on a CPU, no GPU: a LlamaConfig with torch_dtype "bfloat16", as the config.json of a published
# model has it. Parameters of AutoModelForCausalLM.from_config(config): float32 with 4.48.3, bfloat16 with 4.49.0, 4.57.6 and 5.24.0;
# of LlamaForCausalLM(config): float32 with all four. No message tells of it. With 5.24.0 the same holds for the type in a nested
# text_config of a Llama4Config, but not of a Gemma3Config, whose class for text and images stays in float32.
# A script that builds from a configuration must name the type itself (from_config(config, torch_dtype=…), dtype=… in 5.x).
# Exits with 1 if any of that has changed. Takes 7 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat >"$folder/try.py" <<'PYTHON'
import sys

import transformers
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

sizes = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "head_dim": 16, "vocab_size": 128, "torch_dtype": "bfloat16",
}


def types(model):
    return "+".join(sorted({str(parameter.dtype).rpartition(".")[2] for parameter in model.parameters()}))


def named():
    return LlamaConfig.from_dict({**sizes, "model_type": "llama"})


seen = [types(AutoModelForCausalLM.from_config(named())), types(LlamaForCausalLM(named()))]
if transformers.__version__ >= "5":
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    for kind, more in (("llama4", {}), ("gemma3", {"vision_config": vision})):
        config = AutoConfig.for_model(kind, text_config=dict(sizes), **more)
        seen.append(types(AutoModelForCausalLM.from_config(config)))
print("transformers", transformers.__version__, *seen)
sys.exit(seen != sys.argv[1].split())
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 "numpy<2.4"
while read -r release wanted; do
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "transformers==$release"
    "$folder/venv/bin/python" -W ignore "$folder/try.py" "$wanted" || { echo "what transformers $release builds has changed" >&2; exit 1; }
done <<'RELEASES'
4.48.3 float32 float32
4.49.0 bfloat16 float32
4.57.6 bfloat16 float32
5.24.0 bfloat16 float32 bfloat16 float32
RELEASES
