#!/bin/sh
# A config.json with an infinite number, written by transformers 5.24.0, is misread by transformers 4.57.6 without a word.
#
# Seen with Python 3.11 and transformers 5.24.0 and 4.57.6, without torch. Mamba-2 and its hybrids (bamba, falcon_h1, nemotron_h,
# granitemoehybrid) have time_step_limit = [0.0, infinity] by default:
#   5.24.0 writes {"__float__": "Infinity"}; 4.57.6 writes Infinity, which is no JSON, but which Python's json reads
#   5.24.0 reads both with from_pretrained; given the parsed file, AutoConfig.for_model raises StrictDataclassFieldValidationError
#   4.57.6 reads what 5.24.0 wrote as [0.0, {"__float__": "Infinity"}]: no error, no warning, and a dictionary as the limit
# Exits with 1 if any of that has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat >"$folder/try.py" <<'PYTHON'
import json
import sys

import transformers
from transformers import AutoConfig, Mamba2Config

folder, writes = sys.argv[1], len(sys.argv) > 2
if writes:
    Mamba2Config().save_pretrained(folder)
with open(f"{folder}/config.json") as file:
    parsed = json.load(file)
print("in the file, as json reads it:", parsed["time_step_limit"])
print("from_pretrained:", AutoConfig.from_pretrained(folder).time_step_limit)
try:
    print("for_model:", AutoConfig.for_model(parsed.pop("model_type"), **parsed).time_step_limit)
except Exception as error:
    print("for_model:", type(error).__name__)
PYTHON
for version in 5.24.0 4.57.6; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/pip" install --quiet --disable-pip-version-check "transformers==$version"
done
run() { echo "$1 $2"; "$folder/$1/bin/python" "$folder/try.py" "$folder/$3" $4 2>/dev/null; }
{
    run 5.24.0 "writes and reads" new write
    run 4.57.6 "reads what 5.24.0 wrote" new ""
    run 4.57.6 "writes and reads" old write
    run 5.24.0 "reads what 4.57.6 wrote" old ""
} | tee "$folder/seen"
cat >"$folder/expected" <<'TEXT'
5.24.0 writes and reads
in the file, as json reads it: [0.0, {'__float__': 'Infinity'}]
from_pretrained: [0.0, inf]
for_model: StrictDataclassFieldValidationError
4.57.6 reads what 5.24.0 wrote
in the file, as json reads it: [0.0, {'__float__': 'Infinity'}]
from_pretrained: [0.0, {'__float__': 'Infinity'}]
for_model: [0.0, {'__float__': 'Infinity'}]
4.57.6 writes and reads
in the file, as json reads it: [0.0, inf]
from_pretrained: [0.0, inf]
for_model: [0.0, inf]
5.24.0 reads what 4.57.6 wrote
in the file, as json reads it: [0.0, inf]
from_pretrained: [0.0, inf]
for_model: [0.0, inf]
TEXT
diff "$folder/expected" "$folder/seen" && echo "as it was seen" || { echo "this has changed"; exit 1; }
