#!/bin/sh
# transformers 5.24.0 builds 26 of the types of models of four tasks with scaled_dot_product_attention that 4.57.6 built with eager
# attention, and three the other way round, where nothing is asked for; Gemma 2 of 4.57.6 by default isn't the model of its configuration.
#
# Seen with torch 2.13.0 and 2.15.0, Python 3.11, on the meta device: config._attn_implementation of from_config of the default configuration,
# for causal and masked language models, sequence to sequence and classifiers of images. Of 206 that both build 29 differ:
# T5, mT5, Swin, SegFormer, ELECTRA, MobileBERT, GPT-J, CodeGen, ERNIE and others went to sdpa; gemma2, vaultgemma and t5gemma to eager.
# Those three cap their scores (attn_logit_softcapping), which scaled_dot_product_attention can't: 4.57.6 takes it all the same and leaves
# the cap out, without a warning. On a CPU, a small Gemma 2 whose scores are large has logits 6 % away from those of eager attention
# (relative norm), VaultGemma 0.5 %, Llama none beyond rounding; 5.24.0 refuses sdpa for them.
# So a comparison of two releases compares two attentions for these types, of Gemma 2 a fast one that leaves work out with a slow one.
# Name attn_implementation, and read config._attn_implementation back.
# Exits with 1 if any of that has changed. Takes 2 GB below TMPDIR with a torch for CPUs, 6 GB with one for CUDA, and two minutes.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat >"$folder/try.py" <<'PYTHON'
import sys
import warnings

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

warnings.simplefilter("ignore")
transformers.utils.logging.set_verbosity_error()
TO_SDPA = {
    AutoModelForCausalLM: "bert-generation codegen data2vec-text electra ernie gptj recurrent_gemma roberta-prelayernorm roc_bert xmod",
    AutoModelForMaskedLM: "data2vec-text electra ernie layoutlm mobilebert roberta-prelayernorm roc_bert xmod",
    AutoModelForSeq2SeqLM: "mt5 seamless_m4t seamless_m4t_v2 t5 umt5",
    AutoModelForImageClassification: "segformer shieldgemma2 swin",
}
TO_EAGER = {AutoModelForCausalLM: "gemma2 vaultgemma", AutoModelForSeq2SeqLM: "t5gemma"}
UNCHANGED = {AutoModelForCausalLM: "llama gpt2", AutoModelForMaskedLM: "bert", AutoModelForImageClassification: "vit"}
SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256,
    "intermediate_size": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
is_new = transformers.__version__ >= "5"


def defaults(kinds):
    found = []
    for factory, names in kinds.items():
        for name in names.split():
            with torch.device("meta"):
                found.append(factory.from_config(AutoConfig.for_model(name)).config._attn_implementation)
    return {how: found.count(how) for how in sorted(set(found))}


def logits(kind, **words):
    """Return the logits of a small random model with large scores."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES), **words).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                parameter *= 30
        return model(input_ids=torch.arange(3, 200)[None]).logits


def away(kind):
    """Return how far sdpa's logits are away from eager's, relative to these; None if sdpa is refused."""
    eager = logits(kind, attn_implementation="eager")
    try:
        other = logits(kind, attn_implementation="sdpa")
    except ValueError:
        return None
    return float((other - eager).norm() / eager.norm())


seen = [defaults(kinds) for kinds in (TO_SDPA, TO_EAGER, UNCHANGED)]
distances = {kind: away(kind) for kind in ("gemma2", "vaultgemma", "llama")}
print("transformers", transformers.__version__, *seen, distances)
ok = seen == ([{"sdpa": 26}, {"eager": 3}, {"sdpa": 4}] if is_new else [{"eager": 26}, {"sdpa": 3}, {"sdpa": 4}])
if is_new:
    ok = ok and distances["gemma2"] is None and distances["vaultgemma"] is None
else:
    ok = ok and distances["gemma2"] > 0.02 and distances["vaultgemma"] > 0.002
sys.exit(not (ok and distances["llama"] < 1e-5))
PYTHON
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 "numpy<2.4"
for release in 4.57.6 5.24.0; do
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "transformers==$release"
    "$folder/venv/bin/python" "$folder/try.py" || { echo "the attention of transformers $release has changed" >&2; exit 1; }
done
