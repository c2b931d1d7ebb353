#!/bin/sh
# On a CPU without AVX-512, torch 2.15.0 computes products in bfloat16 and float16 about 40 times as slowly as in float32.
#
# Seen with Python 3.11 on x86-64, one thread, products of 512 x 512: float32 35 to 63 GFLOP/s, bfloat16 and float16 1.3; the same
# with torch 2.5.1, and for convolutions (50 and 1.0). oneDNN has no kernel of 16 bits for AVX2, so that torch's own loop runs.
# torch.autocast("cpu"), whose default is bfloat16, says nothing of it: no error, no warning. With torch 2.7.1, ResNet-50 trained
# at 0.09 of its throughput in float32. torch.ops.mkldnn._is_mkldnn_bf16_supported() tells it.
# Two variables make every x86-64 CPU one without AVX-512. Exits with 1 if any of that has changed. Takes 6 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0
cat >"$folder/try.py" <<'PYTHON'
import time
import warnings

import torch

torch.set_num_threads(1)


def rate(dtype):
    left, right = torch.randn(2, 512, 512).to(dtype)
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        left @ right
        seconds.append(time.process_time() - begin)
    return 2 * 512**3 / min(seconds) / 1e9


rates = {dtype: rate(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)}
print({str(dtype): f"{value:.1f} GFLOP/s" for dtype, value in rates.items()})
with warnings.catch_warnings(record=True) as said, torch.autocast("cpu"):
    warnings.simplefilter("always")
    made = torch.nn.functional.linear(torch.randn(4, 8), torch.randn(8, 8))
supported = torch.ops.mkldnn._is_mkldnn_bf16_supported(), torch.ops.mkldnn._is_mkldnn_fp16_supported()
print("autocast makes", made.dtype, "and says", [str(warning.message) for warning in said], "; oneDNN has 16 bits:", supported)
slow = all(rates[torch.float32] > 10 * rates[dtype] for dtype in (torch.bfloat16, torch.float16))
raise SystemExit(not (slow and made.dtype == torch.bfloat16 and not said and supported == (False, False)))
PYTHON
ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 "$folder/venv/bin/python" "$folder/try.py"
