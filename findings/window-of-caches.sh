#!/bin/sh
# transformers: a `sliding_window` in a configuration whose type has none (Llama, StableLM) changes what a cache keeps, and nothing
# else: generate() then chooses other tokens with its cache than without, and says nothing.
#
# Seen with transformers 4.57.6 and 5.23.0, torch 2.15.0, Python 3.11, on a CPU. The type's attention sees all tokens, as its class
# does not know the key; DynamicCache(config=...) and StaticCache(config=...) read it and keep so many tokens. Fed token by token, 24
# tokens with sliding_window 8 end with logits 45 or 46 % away (relative norm) from those of one pass without a cache; with a cache made
# without the configuration they are equal. Mistral, which knows the key, and Llama without it agree within rounding.
# So a stray key makes cached generation faster at long lengths, and wrong.
# Exits with 1 if any of that has changed. Takes 6 GB below TMPDIR and two minutes.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
cat >"$folder/look.py" <<'PYTHON'
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, StaticCache

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64}
SIZES.update(vocab_size=128, max_position_embeddings=64, bos_token_id=0, eos_token_id=1, pad_token_id=2)


def seen(kind, **more):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SIZES, **more)
    model, tokens = AutoModelForCausalLM.from_config(config).eval(), torch.arange(24)[None] + 3
    caches = DynamicCache(config=config), StaticCache(config=config, max_cache_len=24), DynamicCache()
    with torch.no_grad():
        whole, away = model(tokens, use_cache=False).logits[0, -1], []
        for cache in caches:
            for place in range(24):
                at = torch.tensor([place])
                last = model(tokens[:, at], past_key_values=cache, use_cache=True, cache_position=at).logits[0, -1]
            away.append(round(float((last - whole).norm() / whole.norm()), 2))
        words = {"attention_mask": torch.ones_like(tokens), "max_new_tokens": 8, "do_sample": False}
        same = torch.equal(model.generate(tokens, use_cache=True, **words), model.generate(tokens, use_cache=False, **words))
    return "%s %s: dynamic %s, static %s, without a configuration %s; same tokens: %s" % (kind, more, *away, same)


for kind, more in (("llama", {}), ("llama", {"sliding_window": 8}), ("stablelm", {"sliding_window": 8}), ("mistral", {"sliding_window": 8})):
    print(seen(kind, **more))
PYTHON
failed=0
for release in 4.57.6 5.23.0; do
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 transformers=="$release"
    found=$("$folder/venv/bin/python" -W ignore "$folder/look.py" 2>/dev/null)
    echo "transformers $release:"
    echo "$found"
    [ "$found" = "llama {}: dynamic 0.0, static 0.0, without a configuration 0.0; same tokens: True
llama {'sliding_window': 8}: dynamic 0.45, static 0.45, without a configuration 0.0; same tokens: False
stablelm {'sliding_window': 8}: dynamic 0.46, static 0.46, without a configuration 0.0; same tokens: False
mistral {'sliding_window': 8}: dynamic 0.0, static 0.0, without a configuration 0.0; same tokens: True" ] || failed=1
done
exit "$failed"
