"""Language models are measured in tokens; a router may leave experts out, and that is no missing work."""

import json
import subprocess
from pathlib import Path

import pytest

from support.boxes import bench, only, remarks_of
from torchmatrix.core import assets

STEPS = (
    "--batch",
    "2",
    "--sequence-length",
    "64",
    "--steps",
    "3",
    "--windows",
    "2",
    "--warmup-steps",
    "2",
    "--warmup-cap",
    "2",
)


def test_training_counts_tokens_and_their_operations(real_python: str) -> None:
    code, events, stderr = bench(real_python, "--model", "lm-1m", "--optimizer", "adamw", *STEPS)
    assert code == 0, stderr
    windows = [event for event in events if event["event"] == "sample" and event["phase"] == "measure"]
    assert [window["items"] for window in windows] == [2 * 64 * 3] * 2
    reference, parameters = only(events, "reference"), only(events, "setup")["parameters"]
    assert reference["agrees"] is True and reference["proof"] == "full"
    attention = 12 * 4 * 128 * 64  # 12 · layers · width · length (arXiv:2204.02311, appendix B)
    assert reference["flops_per_item"] == pytest.approx(6 * parameters + attention, rel=0.1)
    assert reference["flops_per_item"] == pytest.approx(reference["formula_flops_per_item"], rel=1e-3)


@pytest.mark.thorough
def test_an_expert_without_tokens_is_told_and_is_no_missing_work(real_python: str) -> None:
    code, events, stderr = bench(real_python, "--model", "lm-10m-moe", "--optimizer", "adamw", *STEPS)
    assert code == 0, stderr
    assert only(events, "reference")["agrees"] is True
    text, even = remarks_of(events)
    assert "spread the tokens evenly over the experts" in even
    assert "got no token of their router in the last step" in text and ".experts." in text


TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "torch_dtype": "bfloat16",
    "max_position_embeddings": 256, "quantization_config": {"quant_method": "mxfp4"}, "num_hidden_layer": 3,
    "rope_theta": 500000.0, "pretraining_tp": 1, "temperature": 0.6, "attention_bias": False, "auto_map": {"AutoModel": "x"},
}  # fmt: skip


@pytest.mark.parametrize("mode", [("train",), ("generate", "--output-length", "8", "--requests", "4")])
@pytest.mark.representative
def test_a_users_configuration_is_built_as_it_says(real_python: str, tmp_path: Path, mode: tuple[str, ...]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**TINY, "sliding_window": 9} if mode == ("train",) else TINY))
    words = ("--model", "config.llama.12345678", "--model-file", str(path), "--mode", *mode, *STEPS)
    code, events, stderr = bench(real_python, *words)
    assert code == 0, stderr
    attention, gated = 64 * 16 * (2 * 4 + 2 * 2), 3 * 64 * 128
    assert only(events, "setup")["parameters"] == 2 * 512 * 64 + 64 + 2 * (attention + gated + 2 * 64)
    assert only(events, "reference")["agrees"] is True
    texts = remarks_of(events)
    assert any("names weights in mxfp4" in text for text in texts)
    (unknown,) = [text for text in texts if "keys that its class in transformers does not know" in text]
    assert unknown.endswith(": num_hidden_layer" + (", sliding_window" if mode == ("train",) else ""))
    code, events, _ = bench(real_python, *words, "--model-sha256", "0" * 64)
    assert code and "is not the file that was asked for" in only(events, "failure")["message"]


LEARNED = """
import argparse, sys
sys.path.insert(0, sys.argv[1])
import families
families.learn(argparse.Namespace(model="m", model_file=sys.argv[2], model_sha256=""))
print(families.entry_of("m")["config"]["time_step_limit"])
"""


def test_an_infinite_number_is_read_as_either_transformers_writes_it(real_python: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for infinite in ("Infinity", '{"__float__": "Infinity"}'):
        path.write_text(f'{{"model_type": "mamba2", "time_step_limit": [0.0, {infinite}]}}')
        command = [real_python, "-c", LEARNED, str(assets.WORKLOAD), str(path)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[0.0, inf]\n"


def test_the_type_of_the_weights_is_the_cells_also_where_a_part_names_one(real_python: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    part = {"torch_dtype": "bfloat16", "dtype": "float16", "hidden_size": 64}
    path.write_text(json.dumps({"model_type": "llama4", "time_step_limit": {"text_config": part}, "dtype": "bfloat16"}))
    command = [real_python, "-c", LEARNED, str(assets.WORKLOAD), str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told == "{'text_config': {'hidden_size': 64}}\n"


@pytest.mark.parametrize("content", ["[1]", '{"model_type"', "{}", json.dumps({**TINY, "quantization_config": "mxfp4"})])
@pytest.mark.representative
def test_a_file_that_is_no_configuration_is_named(real_python: str, tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    code, events, _ = bench(real_python, "--model", "config.llama.12345678", "--model-file", str(path), *STEPS)
    assert code and f"ModelFileError: {path} is no configuration of a model: " in only(events, "failure")["message"]


def test_a_type_that_the_library_lacks_is_unsupported(real_python: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**TINY, "model_type": "kimi_k2"}))
    for mode in ("train", "generate"):
        words = ("--model", "config.kimi_k2.12345678", "--model-file", str(path), "--mode", mode, *STEPS)
        code, events, _ = bench(real_python, *words)
        failure = only(events, "failure")
        assert code and failure["kind"] == "unsupported" and "has no type kimi_k2 (" in failure["message"]


IDLE = """
import argparse, json, sys
sys.path.insert(0, sys.argv[1])
import torch
from families import transformers as library
for kind, more, expected in json.loads(sys.argv[2]):
    given = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=128, intermediate_size=64, **more)
    entry = {"type": kind, "head": "CausalLM", "config": given, "is_users": True}
    config = library._config_of(None, entry)
    with torch.device("meta"), library._noting_reads(config) as read:
        library._factory(entry).from_config(config)
    print(kind, sorted(set(library._idle_keys(entry, config, read)) & set(more)), sorted(expected))
"""


@pytest.mark.thorough
def test_keys_that_act_without_being_known_are_not_told(newest_python: str) -> None:
    """As published: Qwen3-30B-A3B's head_dim is read by the model, the others are turned into other keys."""
    experts = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
    cases = [
        ("qwen3_moe", {"head_dim": 32, "num_hiden": 3, **experts}, ["num_hiden"]),
        ("gemma3_text", {"sliding_window_pattern": 2, "rope_local_base_freq": 10000.0, "head_dim": 16}, []),
        ("minimax_m2", {"rotary_dim": 8, "head_dim": 16, **experts}, []),
        ("bloom", {"n_embed": 128}, []),
        ("llama", {"sliding_window": 8, "rope_theta": 500000.0}, ["sliding_window"]),
    ]
    command = [newest_python, "-W", "ignore", "-c", IDLE, str(assets.WORKLOAD), json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split(" ", 1)[1] for line in done.stdout.splitlines() if line.split(" ")[0] in {kind for kind, *_ in cases}]
    assert len(rows) == len(cases) and all(row[: len(row) // 2] == row[len(row) // 2 + 1 :] for row in rows), done.stdout


def test_a_window_that_only_caches_obey_is_refused_in_generation(real_python: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**TINY, "sliding_window": 9}))
    code, events, _ = bench(
        real_python, "--model", "config.llama.12345678", "--model-file", str(path), "--mode", "generate", *STEPS
    )
    failure = only(events, "failure")
    assert code and failure["kind"] == "unsupported" and "sliding_window is no key of LlamaConfig" in failure["message"]


CACHES = """
import json, sys
import torch, transformers
models = json.load(open(sys.argv[1]))["transformers"]["models"]
for name, entry in [pair for pair in models.items() if "kv_bytes_per_token" in pair[1]]:
    config = transformers.AutoConfig.for_model(entry["type"], **entry["config"])
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    for tokens in (1, 1000):
        cache = transformers.StaticCache(config=config, max_cache_len=tokens)
        cache.early_initialization(1, heads, width, torch.bfloat16, torch.device("meta"))
        print(name, tokens, sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values)))
"""


@pytest.mark.thorough
def test_the_bytes_of_a_token_in_the_cache_are_those_of_the_library(newest_python: str) -> None:
    path = assets.WORKLOAD / "families" / "models.json"
    models = json.loads(path.read_text())["transformers"]["models"]
    listed = {}
    for name, entry in models.items():
        if entry.get("unit") == "tokens":
            window = entry.get("kv_window", {"tokens": 0, "bytes_per_token": 0})
            listed[name, "1"] = entry["kv_bytes_per_token"]
            beyond = (1000 - window["tokens"]) * window["bytes_per_token"]
            listed[name, "1000"] = 1000 * entry["kv_bytes_per_token"] - beyond
    done = subprocess.run([newest_python, "-c", CACHES, path], capture_output=True, text=True, check=True)
    assert {(name, tokens): int(value) for name, tokens, value in map(str.split, done.stdout.splitlines())} == listed
