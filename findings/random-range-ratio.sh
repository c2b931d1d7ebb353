#!/bin/sh
# SGLang 0.5.23 and vLLM 0.32.0: `--random-range-ratio`, of the same name and default in both benchmarks, means the opposite.
#
# Seen with Python 3.11, no GPU: the functions by which `sglang.bench_serving` and `vllm bench serve` draw the lengths of random requests,
# of 4,000 requests of 1,024 prompt and 128 output tokens. The default of both is 0.0. SGLang takes it as the lower end over the length:
# prompts have 1 to 1,024 tokens, 512 on average, and outputs 64. vLLM takes it as the reach on both sides: each has 1,024 and 128. At 0.5
# SGLang draws 512 to 1,024 (768 on average), vLLM 512 to 1,536 (1,024). SGLang's 1.0 is vLLM's 0.0; vLLM refuses 1.0.
# So the same command line gives SGLang half of the work: twice the requests a second and a shorter time to the first token say nothing of
# the servers. Neither file says the mean length; it is total_input_tokens / completed.
# Exits with 1 if that has changed. Takes 1 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps sglang==0.5.23 vllm==0.32.0
cat >"$folder/try.py" <<'PYTHON'
import argparse
import ast
import importlib.util
import sys
import sysconfig
import types
from pathlib import Path

import numpy as np

SITE = Path(sysconfig.get_path("purelib"))
PROMPT, OUTPUT, COUNT = 1024, 128, 4000


def loaded(path):
    """Import one file of a package without the rest, which needs a GPU's libraries."""
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), SITE / (path + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def default_of(path, option="--random-range-ratio"):
    """Return the default of an option of argparse, as the file's source gives it."""
    for node in ast.walk(ast.parse((SITE / path).read_text())):
        if isinstance(node, ast.Call) and node.args and getattr(node.args[0], "value", None) == option:
            return float(next(ast.literal_eval(word.value) for word in node.keywords if word.arg == "default"))


tokenizers = types.ModuleType("vllm.tokenizers")  # of which that file only takes the name of a type
tokenizers.TokenizerLike = object
sys.modules.update({"vllm": types.ModuleType("vllm"), "vllm.tokenizers": tokenizers})
sglang, vllm = loaded("sglang/benchmark/datasets/common"), loaded("vllm/benchmarks/datasets/utils")
tokenizer = argparse.Namespace(num_special_tokens_to_add=lambda: 0, vocab_size=32000)


def of_sglang(ratio):
    np.random.seed(0)
    return [np.array(sglang.compute_random_lens(length, ratio, COUNT)) for length in (PROMPT, OUTPUT)]


def of_vllm(ratio):
    return vllm.get_sampling_params(np.random.default_rng(0), COUNT, ratio, PROMPT, OUTPUT, tokenizer)[:2]


defaults = default_of("sglang/benchmark/serving.py"), default_of("vllm/benchmarks/datasets/datasets.py")
print("default of --random-range-ratio: SGLang %s, vLLM %s" % defaults)
assert defaults == (0.0, 0.0)
means = {}
for ratio in (0.0, 0.5):
    for tool, draw in (("SGLang", of_sglang), ("vLLM", of_vllm)):
        prompts, outputs = draw(ratio)
        means[tool, ratio] = prompts.mean(), outputs.mean()
        words = tool, ratio, prompts.min(), prompts.max(), prompts.mean(), outputs.mean()
        print("%s at %s: prompts of %d to %d tokens, %.0f on average; outputs of %.1f" % words)
assert abs(means["SGLang", 0.0][0] / 512 - 1) < 0.05 and abs(means["SGLang", 0.0][1] / 64 - 1) < 0.05
assert means["vLLM", 0.0] == (PROMPT, OUTPUT) == tuple(lengths.mean() for lengths in of_sglang(1.0))
assert abs(means["SGLang", 0.5][0] / 768 - 1) < 0.05 and abs(means["vLLM", 0.5][0] / PROMPT - 1) < 0.05
try:
    of_vllm(1.0)
except ValueError as error:
    print("vLLM at 1.0:", error)
else:
    raise AssertionError("vLLM takes 1.0")
PYTHON
"$folder/venv/bin/python" "$folder/try.py" || { echo "the meaning of --random-range-ratio has changed" >&2; exit 1; }
