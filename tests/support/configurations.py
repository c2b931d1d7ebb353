"""Configurations of language models as small as their types allow, one of each kind of layers, caches, losses and experts."""

import json
from pathlib import Path
from typing import Any

SIZES: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    "vocab_size": 256, "max_position_embeddings": 512,
}  # fmt: skip
OF_BART = {
    "d_model": 64, "decoder_layers": 2, "encoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 96,
    "encoder_attention_heads": 4, "pad_token_id": 0,
}  # fmt: skip
OF_EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2}
LATENT = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "kv_lora_rank": 16, "q_lora_rank": 16,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "n_group": 2, "topk_group": 1,
    "first_k_dense_replace": 1, "num_key_value_heads": 4,
}  # fmt: skip
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {}),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}),
    "gemma3_text": ("Gemma3ForCausalLM", {"sliding_window": 16, "head_dim": 16, "num_hidden_layers": 6}),
    "gpt_oss": ("GptOssForCausalLM", {**OF_EXPERTS, "head_dim": 16, "sliding_window": 16}),
    "jetmoe": ("JetMoeForCausalLM", {**OF_EXPERTS, "kv_channels": 16}),
    "aria_text": ("AriaTextForCausalLM", {"moe_num_experts": 8, "moe_topk": 2, "moe_num_shared_experts": 1}),
    "minimax": ("MiniMaxForCausalLM", {**OF_EXPERTS, "head_dim": 16}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", LATENT),
    "deepseek_v32": ("DeepseekV32ForCausalLM", {**LATENT, "index_topk": 36, "index_n_heads": 2, "index_head_dim": 16}),
    "mamba": ("MambaForCausalLM", {"state_size": 8}),
    "mamba2": (
        "Mamba2ForCausalLM",
        {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1, "expand": 2, "chunk_size": 32,
         "time_step_limit": [0.0, {"__float__": "Infinity"}]},
    ),
    "falcon_h1": (
        "FalconH1ForCausalLM",
        {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1,
         "mamba_chunk_size": 32},
    ),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        {"num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
         "shared_expert_intermediate_size": 32, "head_dim": 16, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
         "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    ),
    "rwkv": ("RwkvForCausalLM", {"attention_hidden_size": 64, "context_length": 512}),
    "bart": ("BartForCausalLM", OF_BART),
    "marian": ("MarianForCausalLM", OF_BART),
    "roberta": ("RobertaForCausalLM", {}),
    "roc_bert": ("RoCBertForCausalLM", {}),
    "fuyu": ("FuyuForCausalLM", {"image_size": 30, "patch_size": 15, "text_config": {**SIZES, "model_type": "persimmon"}}),
}  # fmt: skip
"""By type: the head, and what differs from SIZES."""


def written(folder: Path, kind: str, **more: Any) -> tuple[str, ...]:
    """Write the config.json of a kind and return the workload's flags for it."""
    head, own = KINDS[kind]
    sizes = {} if "text_config" in own else SIZES
    content = {**sizes, **own, **more, "model_type": kind, "architectures": [head]}
    (folder / f"{kind}.json").write_text(json.dumps(content))
    return "--model", f"{kind}.x", "--model-file", str(folder / f"{kind}.json")
