"""Trains and generates with every causal language model of transformers, tiny, and writes docs/causal-types.md.

    make causal-types STACK_PYTHON=STACK/bin/python [ARGS="TYPE..."]

The types and their default configurations are read from the stack's transformers and shrunken by the names of their sizes, or
as tests/support/configurations.py has them. Each is a config.json that goes through the workload as a cell of a matrix does:
batch 2, 32 tokens, 8 of output, fp32, on a CPU. Of TYPEs the rows are printed, and nothing is written.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from support.boxes import bench
from support.configurations import KINDS, SIZES

PAGE = Path(__file__).parents[1] / "docs" / "causal-types.md"
MOST_PARAMETERS = 20_000_000
"""A model that has more was not made small: it is not run."""
RULES = [
    (r"qk_rope_head_dim|rotary_dim", 8),
    (r"num_key_value_heads|num_kv_heads|n_head_kv|num_key_value_groups|multi_query_group_num", 2),
    (r"(.*_)?(num_|n_)?(attention_)?heads?|.*_n_heads?|n_heads?|num_heads", 4),
    (r"(.*_)?(head_dim|head_size|kv_channels|d_kv|d_head|global_head_dim)", 16),
    (r"(num_hidden_|num_|n_|encoder_|decoder_|num_decoder_|num_encoder_|.*_num_hidden_)layers?|n_layer", 4),
    (r"(.*_)?(hidden_size|d_model|n_embd|embed_dim|embedding_size|hidden_dim|word_embed_proj_dim|dim_model|dim|lru_width)", 64),
    (r"(.*_)?(moe_intermediate_size|expert_intermediate_size|expert_dim)", 32),
    (r"(.*_)?(intermediate_size|ffn_dim|ffn_hidden_size|inner_dim|n_inner|d_ff|dim_ff|mlp_hidden_size|feed_forward_size)", 96),
    (r"(.*_)?vocab_size(_per_layer_input)?|n_vocab|encoder_hash_byte_group_vocab", 256),
    (r"(.*_)?(max_position_embeddings|n_positions|max_seq_len|max_sequence_length|context_length|n_ctx)", 512),
    (r"(.*_)?(rank|lora_rank)", 16),
    (r"(.*_)?(num_experts|num_local_experts|n_routed_experts|moe_num_experts)", 8),
    (r"(.*_)?(num_experts_per_tok|num_experts_per_token|moe_topk|top_k_experts|moe_top_k)", 2),
    (r"n_group", 2),
    (r"topk_group", 1),
    (r"sliding_window|attention_window|attention_window_size", 16),
]
"""Names of sizes, and what they become; others stay."""
OF_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_chunk_size": 32}
OF_DOTS3 = {
    "num_key_value_heads": 4,
    "per_layer_config": {layer: {"qk_nope_head_dim": 16, "head_dim": 24} for layer in ("2", "3")},
}

OWN: dict[str, dict[str, Any]] = {
    "axk1": {"head_dim": 8},
    "bailing_hybrid": {
        "num_expert_group": 2,
        "topk_group": 1,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "mlp_layer_types": ["dense", "sparse"] * 2,
        "linear_num_heads": 4,
        "linear_head_dim": 16,
    },
    "bamba": OF_MAMBA,
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots3_note": {"text_config": OF_DOTS3},
    "dots3_note_text": OF_DOTS3,
    "gemma3n_text": {
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "intermediate_size": [96] * 4,
        "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0],
        "hidden_size_per_layer_input": 8,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": OF_MAMBA,
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "longcat_flash": {"qk_head_dim": 24, "head_dim": 8, "zero_expert_num": 4},
    "ministral": {"head_dim": 16},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron_h": {"mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 16, "chunk_size": 32},
    "xlnet": {"d_inner": 96, "d_head": 16},
    "xmod": {"default_language": "en_XX"},
    "youtu": {"head_dim": 8},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "attention_hidden_size": 128,
        "attention_head_dim": 32,
        "mamba_dt_rank": 4,
    },
    "zamba2": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "hybrid_layer_ids": [1, 3],
        "attention_hidden_size": 128,
        "attention_head_dim": 32,
        "mamba_headdim": 32,
        "n_mamba_heads": 4,
        "num_query_groups": 4,
        "chunk_size": 32,
        "adapter_rank": 8,
    },
}
"""What else a type needs where its sizes are others."""
NO_SIZES = ("blt", "dots3_note")
"""Types whose parts must fit each other in ways that this script doesn't know."""
SHRINK = """
import json, re, sys, warnings
warnings.simplefilter("ignore")
import torch
from transformers import AutoConfig, AutoModelForCausalLM, logging
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES
logging.set_verbosity_error()
rules, wanted, folder, given, own = json.loads(sys.argv[1])

def shrunken(values):
    small = {}
    for key, value in values.items():
        if isinstance(value, dict) and key.endswith("_config") and value.get("model_type"):
            small[key] = dict(shrunken(value), model_type=value["model_type"])
        elif type(value) is int:
            to = next((to for pattern, to in rules if re.fullmatch(pattern, key)), None)
            if key.endswith("_token_id"):
                to = min(value, 3)
            if to is not None and value > to:
                small[key] = to
    if "kv_lora_rank" in values:
        small["num_key_value_heads"] = small.get("num_attention_heads", 4)
    return small

for kind, head in sorted(NAMES.items()):
    if not head.endswith(("ForCausalLM", "LMHeadModel")) or (wanted and kind not in wanted):
        continue
    found = {"type": kind, "head": head}
    try:
        content = given.get(kind)
        if not content:
            content = dict(shrunken(AutoConfig.for_model(kind).to_dict()), model_type=kind, architectures=[head])
            for key, value in own.get(kind, {}).items():
                content[key] = dict(content[key], **value) if key == "text_config" else value
        with open("%s/%s.json" % (folder, kind), "w") as file:
            json.dump(content, file)
        plain = AutoConfig.from_pretrained("%s/%s.json" % (folder, kind))
        with torch.device("meta"):
            found["parameters"] = sum(p.numel() for p in AutoModelForCausalLM.from_config(plain).parameters())
    except Exception as error:
        found["error"] = "not made small"
        try:
            with torch.device("meta"):
                AutoModelForCausalLM.from_config(AutoConfig.for_model(kind))
        except Exception as error:
            found["error"] = "not built by the library itself: %s" % type(error).__name__
    print("@" + json.dumps(found), flush=True)
"""
TITLE = """# Causal language models by config.json

Every type of transformers {version} whose head ends in ForCausalLM or LMHeadModel, with torch {torch}, as `make causal-types`
found it on a CPU: a tiny config.json of it, trained and generated with as a cell does (batch 2, 32 tokens, 8 of output, fp32).
"FLOPs" is the formula over the count of a step's operations, where there are both: the formula counts the experts that a
token needs, the count those that the library computes (so axk2, glm_moe_dsa and longcat_flash are more than 5 % away; of a
model without experts that far away the formula isn't told: parts of it have no backward pass). "not made small": the script
has no small sizes that the type takes. "not built by the library itself": transformers can't make the model of the type's own
default configuration.

{summary}

| type | train | FLOPs | generate | bytes of cache per step |
|---|---|---|---|---|
"""


def rows_of(python: str, wanted: list[str], folder: Path) -> list[dict[str, Any]]:
    given = {kind: {**({} if "text_config" in own else SIZES), **own, "model_type": kind, "architectures": [head]}
             for kind, (head, own) in KINDS.items()}  # fmt: skip
    words = json.dumps([RULES, wanted, str(folder), given, OWN])
    done = subprocess.run(
        [python, "-c", SHRINK, words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    )
    found = [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@")]
    with Pool(2) as pool:
        return pool.starmap(_row, [(python, folder, row) for row in found], chunksize=1)


def _row(python: str, folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    if row["type"] in NO_SIZES or row.get("parameters", 0) > MOST_PARAMETERS:
        row["error"] = "not made small"
    if "error" in row:
        return {**row, "train": row["error"], "generate": row["error"]}
    for mode in ("train", "generate"):
        row |= {mode: _outcome(python, folder, row, mode)}
    return row


def _outcome(python: str, folder: Path, row: dict[str, Any], mode: str) -> str:
    words = ("--model", f"{row['type']}.x", "--model-file", str(folder / f"{row['type']}.json"), "--mode", mode, "--batch", "2",
             "--sequence-length", "32", "--output-length", "8", "--requests", "2", "--request-seconds", "1")  # fmt: skip
    try:
        code, events, _ = bench(python, *words)
    except AssertionError as error:
        return f"stopped ({error})"
    named = {event["event"]: event for event in events}
    if mode == "train" and (proof := named.get("reference")):
        row |= {"flops": proof["flops_per_item"], "formula": proof["formula_flops_per_item"]}
    if mode == "generate" and (roof := named.get("roof")):
        row |= {"cache": roof.get("cache_bytes")}
    if failure := named.get("failure"):
        return f"{failure['kind']}: {re.sub(r'[|`]', ' ', failure['message'])[:120]}"
    return f"exit code {code}" if code else "ok"


def page(rows: list[dict[str, Any]], torch: str, version: str) -> str:
    lines = []
    for row in rows:
        ratio = f"{row['formula'] / row['flops']:.2f}" if row.get("formula") and row.get("flops") else "n/a"
        lines.append(f"| `{row['type']}` | {row['train']} | {ratio} | {row['generate']} | {row.get('cache', 'n/a')} |")
    summary = []
    for mode in ("train", "generate"):
        kinds = Counter(row[mode].partition(":")[0] for row in rows)
        summary.append(f"{mode}: " + ", ".join(f"{number} {kind}" for kind, number in kinds.most_common()))
    return TITLE.format(version=version, torch=torch, summary="; ".join(summary) + ".") + "\n".join(lines) + "\n"


def main() -> None:
    python, *wanted = sys.argv[1:]
    versions = "import torch, transformers; print(torch.__version__, transformers.__version__)"
    torch, version = subprocess.run([python, "-c", versions], capture_output=True, text=True, check=True).stdout.split()
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(python, wanted, Path(folder))
    text = page(rows, torch, version)
    print(text)
    if not wanted:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
