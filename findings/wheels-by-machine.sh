#!/bin/sh
# One version of torch on the package index is another build on Arm (aarch64) than on x86-64, though its name and version are the same.
#
# Seen on x86-64, by reading the wheels for Python 3.12, no GPU:
# - torch 2.10.0 for aarch64 is a CPU build: no libtorch_cuda.so, and its NVIDIA requirements are for x86-64 only. `pip install torch`
#   on a GH200 gives it without a word. torch 2.11.0 for aarch64 is a CUDA 13.0 build.
# - The CUDA builds hold code for other GPUs. 2.11.0 for x86-64: sm_75 80 86 90 100 120; for aarch64: sm_80 90 100 110 120. So a T4
#   runs on x86-64 only and a Jetson Thor (sm_110) on Arm only, and an L40S or A10 (8.9, 8.6) runs sm_86 code there, sm_80 code here.
# Exits with 1 if any of that has changed. Takes 4 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
get() {
    "$folder/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
        --platform "manylinux_2_28_$2" --dest "$folder/$2-$1" "torch==$1"
}
get 2.10.0 aarch64
get 2.11.0 aarch64
get 2.11.0 x86_64
cat >"$folder/look.py" <<'PYTHON'
import re
import sys
import zipfile
from pathlib import Path

found = {}
for place in sorted(Path(sys.argv[1]).glob("*/torch-*.whl")):
    with zipfile.ZipFile(place) as wheel:
        names = wheel.namelist()
        python = wheel.read("torch/lib/libtorch_python.so")
        metadata = wheel.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    codes = max(re.findall(rb"sm_\d+(?: sm_\d+)*", python), key=len, default=b"").decode()
    required = re.findall(r"Requires-Dist: (nvidia-\S+?|cuda-\S+?)[=<>\[].*", metadata)
    of_all = [line for line in re.findall(r"Requires-Dist: (?:nvidia|cuda).*", metadata) if "x86_64" not in line]
    found[place.parent.name] = ("torch/lib/libtorch_cuda.so" in names, codes, bool(required), bool(of_all))
    print(place.parent.name, *found[place.parent.name])
expected = {
    "aarch64-2.10.0": (False, "", True, False),
    "aarch64-2.11.0": (True, "sm_80 sm_90 sm_100 sm_110 sm_120", True, True),
    "x86_64-2.11.0": (True, "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", True, True),
}
sys.exit(found != expected)
PYTHON
"$folder/venv/bin/python" "$folder/look.py" "$folder"
