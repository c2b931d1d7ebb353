#!/bin/sh
# transformers: a StaticCache makes decoder types of transformers 4.57.6 choose by other logits than a DynamicCache or no cache, and
# nothing says so: jetmoe, moshi, bert, camembert, roberta, xlm-roberta and xlm-roberta-xl (as decoders). In 5.23.0 all of them agree.
#
# Seen with transformers 4.57.6 and 5.23.0, torch 2.15.0, Python 3.11, on a CPU, on tiny random models in float32: 12 tokens at once, then 8
# one by one, with each cache, made for 24 tokens; the logits of the last against those of one pass over all 20 without a cache (relative
# norm). With a DynamicCache all agree within rounding. With a StaticCache they are away by 0.05 (jetmoe), 0.12 (moshi), 0.004 (bert), 0.76
# (xlm-roberta-xl) and 1.0 (the other three). Llama and StableLM agree with both, in both versions.
# So a figure of static-cache decoding of these types is one of other tokens, unless the outputs were compared with a pass without a cache.
# Exits with 1 if any of that has changed. Takes 6 GB below TMPDIR and two minutes.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
cat >"$folder/look.py" <<'PYTHON'
import inspect
import warnings

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, DynamicCache, StaticCache

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96}
SIZES.update(vocab_size=256, max_position_embeddings=64, ffn_dim=96, head_dim=16, kv_channels=16, num_local_experts=4)
SIZES.update(num_experts_per_tok=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def away(kind):
    torch.manual_seed(0)
    known = inspect.signature(CONFIG_MAPPING[kind].__init__).parameters
    config = CONFIG_MAPPING[kind](**{name: size for name, size in SIZES.items() if name in known})
    config.is_decoder = True
    model, tokens, found = AutoModelForCausalLM.from_config(config).eval(), torch.randint(3, 200, (2, 20)), []
    with torch.no_grad():
        whole = model(tokens, use_cache=False).logits[:, -1]
        for cache in (DynamicCache(config=config), StaticCache(config=config, max_cache_len=24)):
            for begin, end in ((0, 12), *((place, place + 1) for place in range(12, 20))):
                at = torch.arange(begin, end)
                last = model(tokens[:, begin:end], past_key_values=cache, use_cache=True, cache_position=at).logits[:, -1]
            found.append(float((last - whole).norm() / whole.norm()))
    return "%s: dynamic %s, static %s" % (kind, *("agrees" if one < 1e-5 else "%.1g away" % one for one in found))


for kind in ("llama", "stablelm", "jetmoe", "moshi", "bert", "camembert", "roberta", "xlm-roberta", "xlm-roberta-xl"):
    print(away(kind))
PYTHON
failed=0
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0
for release in 4.57.6 5.23.0; do
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check transformers=="$release"
    found=$("$folder/venv/bin/python" -W ignore "$folder/look.py" 2>/dev/null)
    echo "transformers $release:"
    echo "$found"
    wrong=$(echo "$found" | grep -c "dynamic agrees, static .* away") || true
    right=$(echo "$found" | grep -c "dynamic agrees, static agrees") || true
    [ "$release $wrong $right" = "4.57.6 7 2" ] || [ "$release $wrong $right" = "5.23.0 0 9" ] || failed=1
done
exit "$failed"
