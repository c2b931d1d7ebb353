#!/bin/sh
# transformers 5.23.0 can't build some of its causal language models from their own default configurations.
#
# Seen with torch 2.15.0, Python 3.11, on the meta device: of the types whose head ends in ForCausalLM or LMHeadModel, fourteen of 181 end in
# an error where AutoModelForCausalLM.from_config(AutoConfig.for_model(TYPE)) is all that is asked, of five kinds (below).
# So a script that walks through MODEL_FOR_CAUSAL_LM_MAPPING_NAMES must count what the library can't build apart from what it
# can't do itself. (With sizes in the configuration hunyuan_v1_dense and _moe, lfm2_moe, ministral and nemotron are built and train.)
# Exits with 1 if any of that has changed. Takes 6 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 transformers==5.23.0
cat >"$folder/try.py" <<'PYTHON'
import sys
import warnings

import torch
from transformers import AutoConfig, AutoModelForCausalLM, logging
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

warnings.simplefilter("ignore")
logging.set_verbosity_error()
heads = {kind: head for kind, head in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items() if head.endswith(("ForCausalLM", "LMHeadModel"))}
found = {}
for kind in sorted(heads):
    try:
        with torch.device("meta"):
            AutoModelForCausalLM.from_config(AutoConfig.for_model(kind))
    except Exception as error:
        found[kind] = type(error).__name__
        print(kind, f"{type(error).__name__}: {error}".split("\n")[0][:110])
print(len(found), "of", len(heads))
expected = {
    "cohere_compass_text": "KeyError",
    "dbrx": "AttributeError",
    "dots1": "TypeError",
    "gemma4_assistant": "StrictDataclassClassValidationError",
    "gemma4_unified_assistant": "ValueError",
    "hunyuan_v1_dense": "TypeError",
    "hunyuan_v1_moe": "TypeError",
    "lfm2_moe": "TypeError",
    "ministral": "TypeError",
    "musicgen": "AttributeError",
    "musicgen_melody": "AttributeError",
    "nemotron": "TypeError",
    "qwen4_exp": "TypeError",
    "qwen4_exp_text": "TypeError",
}
sys.exit(found != expected)
PYTHON
"$folder/venv/bin/python" "$folder/try.py"
