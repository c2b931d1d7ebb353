#!/bin/sh
# torch up to 2.8.0 with transformers 4.57.6, on a CPU: one padded token makes a model with grouped queries faster, about twice in bfloat16.
#
# Without padding transformers gives scaled_dot_product_attention no mask, and asks it for grouped queries (enable_gqa). For these torch 2.5
# to 2.8 have no kernel on a CPU: they repeat keys and values, multiply plainly, keep the whole matrix of scores, and compute 16 bits in
# float32. A mask, which one padded token in the batch needs, makes transformers repeat keys and values itself, and torch takes its flash
# kernel. torch 2.9.1 has a kernel for both.
# Seen with Python 3.11, one thread, the best of 7: prefill of 2 x 1,024 tokens, 2 layers of 8 heads with 2 of keys (a random Llama). torch
# 2.8.0 in bfloat16, without padding: math, 0.37 to 0.49 s; with one padded token: flash, 0.17 s. In float32 0.50 and 0.40 s. torch 2.9.1
# in bfloat16: flash, 0.13 s, and flash, 0.17 s.
# So a prompt of full length says too little of such a CPU stack, and a batch with padding is no like for like: name the kernel that ran.
# Exits with 1 if that has changed. Takes 13 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat >"$folder/try.py" <<'PYTHON'
import sys
import time

import torch
import transformers
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)
sizes = dict(hidden_size=512, num_attention_heads=8, num_key_value_heads=2, num_hidden_layers=2, intermediate_size=1024, vocab_size=256)
tokens = torch.randint(256, (2, 1024))
full, padded = torch.ones_like(tokens), torch.ones_like(tokens)
padded[0, 0] = 0
seen = {}
for dtype in (torch.float32, torch.bfloat16):
    config = AutoConfig.for_model("llama", max_position_embeddings=1024, **sizes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval().to(dtype)
    with torch.no_grad():
        for name, mask in (("full", full), ("one padded token", padded)):
            with profile(activities=[ProfilerActivity.CPU]) as profiled:
                model(tokens, attention_mask=mask)
            ran = " ".join(event.key for event in profiled.key_averages())
            kernel = "flash" if "flash" in ran else "math" if "_math" in ran else "none"
            seconds = []
            for _ in range(7):
                begin = time.perf_counter()
                model(tokens, attention_mask=mask)
                seconds.append(time.perf_counter() - begin)
            seen[dtype, name] = kernel, min(seconds)
            print("torch %s, transformers %s, %s, %s: %s, %.2f s" % (
                torch.__version__, transformers.__version__, dtype, name, kernel, min(seconds)))
has_kernel = sys.argv[1] == "kernel"
for (dtype, name), (kernel, _) in seen.items():
    assert kernel == ("math" if name == "full" and not has_kernel else "flash"), (dtype, name, kernel)
if not has_kernel:
    assert seen[torch.bfloat16, "full"][1] > 1.3 * seen[torch.bfloat16, "one padded token"][1]
PYTHON
for of in "2.8.0 none" "2.9.1 kernel"; do
    set -- $of
    python3 -m venv "$folder/$1"
    "$folder/$1/bin/pip" install --quiet --disable-pip-version-check "torch==$1" transformers==4.57.6 numpy
    "$folder/$1/bin/python" "$folder/try.py" "$2" || { echo "the attention of grouped queries has changed" >&2; exit 1; }
done
