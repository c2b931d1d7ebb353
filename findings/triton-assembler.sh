#!/bin/sh
# torch's wheels run on GPUs that Triton's assembler (ptxas) doesn't know: eager mode works there, and torch.compile has none for them.
#
# Seen on x86-64, no GPU: triton 3.5.1, which torch 2.9.1 requires, holds ptxas 12.8.93. It knows sm_100 and sm_120, but not sm_103
# (B300, GB300) and sm_121 (GB10), which run torch's code for sm_100 and sm_120 in eager mode. triton 3.6.0 (torch 2.10 and 2.11) holds
# two: "ptxas" is still 12.8.93, and "ptxas-blackwell" 12.9.86 knows both. torch's own cu130 wheel of 2.11.0 holds a third,
# torch/bin/ptxas (not looked at here).
# Exits with 1 if any of that has changed. Takes 2 GB below TMPDIR; runs on x86-64.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
for version in 3.5.1 3.6.0; do
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$folder/$version" "triton==$version"
done
cat >"$folder/look.py" <<'PYTHON'
import re
import subprocess
import sys
from pathlib import Path


def asked(program, word):
    return subprocess.run([program, word], capture_output=True, text=True, check=True).stdout


found = {}
for program in sorted(Path(sys.argv[1]).glob("*/triton/backends/nvidia/bin/ptxas*")):
    version, text = asked(program, "--version"), asked(program, "--help")
    names = set(re.findall(r"sm_(\d+)", text[text.index("--gpu-name") :][:3000]))
    key = (program.relative_to(sys.argv[1]).parts[0], program.name)
    found[key] = (re.search(r"V([\d.]+)", version)[1], [name in names for name in ("100", "103", "120", "121")])
    print(*key, *found[key])
expected = {
    ("3.5.1", "ptxas"): ("12.8.93", [True, False, True, False]),
    ("3.6.0", "ptxas"): ("12.8.93", [True, False, True, False]),
    ("3.6.0", "ptxas-blackwell"): ("12.9.86", [True, True, True, True]),
}
sys.exit(found != expected)
PYTHON
"$folder/venv/bin/python" "$folder/look.py" "$folder"
