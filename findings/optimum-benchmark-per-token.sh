#!/bin/sh
# optimum-benchmark 0.6.0: per_token of a text generation's report counts the gaps of each call again with every later call, and the
# pauses between calls with them; and generate.throughput, in "samples/s", is in tokens a second.
#
# Seen with transformers 4.57.6, datasets 4.8.5, torch 2.13.0, Python 3.11, on a CPU, with a tiny random Llama: 10 calls of 2 samples by 9
# new tokens have 80 gaps between tokens. per_token has 485, the sum over i = 1..10 of 8i + (i - 1): all gaps so far, again after each call,
# and with them the pause between two calls, from one's last token to the next one's first. Their sum was 5 to 8 times decode's. The last 89
# values have each gap once; of them 80, all but every ninth, sum up to decode's total. generate.throughput is 2 x 8 tokens a call (not the
# first ones) over generate's latency, with the unit "samples/s": 8 times the samples a second.
# So per_token's mean, percentiles and spread weigh the first calls most and hold prefills and pauses; its mean was from 14 % below to 33 %
# above that of decode / 8, which has neither. And generate's "samples/s" doesn't compare with another tool's, nor over numbers of new
# tokens.
# Exits with 1 if any of that has changed. Takes 2 GB below TMPDIR with a torch for CPUs, 6 GB with one for CUDA, and two minutes.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    optimum-benchmark==0.6.0 transformers==4.57.6 datasets==4.8.5 torch==2.13.0
cat >"$folder/model.py" <<'PYTHON'
import sys

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

torch.manual_seed(0)
sizes = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
sizes.update(num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(sys.argv[1])
words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{"w%d" % place: place for place in range(3, 256)}}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>").save_pretrained(sys.argv[1])
PYTHON
cat >"$folder/tiny.yaml" <<YAML
defaults: [benchmark, scenario: inference, launcher: process, backend: pytorch, _self_]
name: tiny
launcher: {device_isolation: false}
backend: {device: cpu, model: $folder/model, task: text-generation, library: transformers, no_weights: false}
scenario:
  latency: true
  iterations: 10
  duration: 0
  warmup_runs: 2
  input_shapes: {batch_size: 2, sequence_length: 16}
  generate_kwargs: {max_new_tokens: 9, min_new_tokens: 9}
hydra: {run: {dir: $folder/run}}
YAML
cat >"$folder/look.py" <<'PYTHON'
import json
import sys
from pathlib import Path

report = json.loads(Path(sys.argv[1]).read_text())
decode, token, generate = (report[name]["latency"] for name in ("decode", "per_token", "generate"))
calls, gaps, values = decode["count"], 8, token["values"]
own = values[-(calls * gaps + calls - 1) :]
inside, between = [gap for place, gap in enumerate(own) if place % (gaps + 1) != gaps], own[gaps :: gaps + 1]
again = [gap for call in range(1, calls + 1) for gap in own[: call * gaps + call - 1]]
print("%d calls, 2 samples by 9 tokens: %d gaps inside calls, decode %.3f s in all" % (calls, calls * gaps, decode["total"]))
print("per_token: count %d, %.3f s in all; the same gaps over and over: %s" % (token["count"], token["total"], values == again))
print("once each: %d gaps inside calls, %.3f s, and %d between, %.3f s" % (len(inside), sum(inside), len(between), sum(between)))
print("mean: per_token %.2f ms; decode / 8 %.2f ms" % (1e3 * token["mean"], 1e3 * decode["mean"] / gaps))
value, unit = report["generate"]["throughput"]["value"], report["generate"]["throughput"]["unit"]
samples, tokens = 2 * calls / generate["total"], 2 * calls * gaps / generate["total"]
print("generate.throughput %.1f %s; by generate.latency %.1f samples/s, %.1f tokens/s" % (value, unit, samples, tokens))
right = calls == 10 and token["count"] == len(values) == 485 and values == again and token["total"] > 2 * decode["total"]
right = right and 0.8 < sum(inside) / decode["total"] <= 1
sys.exit(not (right and unit == "samples/s" and abs(value / tokens - 1) < 1e-6))
PYTHON
export TMPDIR="$folder" HF_HUB_OFFLINE=1
"$folder/venv/bin/python" "$folder/model.py" "$folder/model" 2>/dev/null
cd "$folder"
venv/bin/optimum-benchmark --config-dir "$folder" --config-name tiny >log.txt 2>&1 || { cat log.txt; exit 1; }
cd /
python3 "$folder/look.py" "$folder/benchmark_report.json"
echo "as seen: 485 gaps of 10 calls by 8, nested, and tokens a second under the name of samples/s"
