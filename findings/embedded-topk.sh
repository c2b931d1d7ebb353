#!/bin/sh
# torch 2.15.0's wheel holds another topk for H100 and B200, which no list of torch.backends.python_native names.
#
# Seen with Python 3.11, the wheel of the package index (cu132), no GPU: kernels of topk for sm_90 and sm_100 are compiled in and
# switched on, without nvidia-cutlass-dsl or any other package. python_native.available_dsls is ["triton"], and its operations are
# ["bmm"]; topk is in no list, and only private names tell of it (torch._native.aot_enabled(), torch.ops._native_aot.archs_topk()).
# TORCH_DISABLE_NATIVE_JIT=1 empties the lists and leaves these kernels on; TORCH_DISABLE_NATIVE_AOT=1 turns them off and leaves
# the lists as they are. So two topks, of eager 2.15.0 on an H100 and on an A100, differ by more than the GPU.
# Exits with 1 if any of that has changed. Takes 6 GB below TMPDIR; runs on x86-64.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0
cat >"$folder/look.py" <<'PYTHON'
import torch
from torch import _native
from torch.backends import python_native as native

lists = {name: native.get_dsl_operations(name) for name in native.available_dsls}
print(lists, _native.aot_enabled(), sorted(torch.ops._native_aot.archs_topk()))
PYTHON
failed=0
look() {
    found=$(env "$1" "$folder/venv/bin/python" -W ignore "$folder/look.py")
    echo "$1: $found"
    [ "$found" = "$2" ] || failed=1
}
look TORCH_DISABLE_NATIVE_JIT=0 "{'triton': ['bmm']} True [90, 100]"
look TORCH_DISABLE_NATIVE_JIT=1 "{'triton': []} True [90, 100]"
look TORCH_DISABLE_NATIVE_AOT=1 "{'triton': ['bmm']} False [90, 100]"
exit "$failed"
