#!/bin/sh
# torch.backends.mkldnn.fp32_precision, which the CPU's products and convolutions obey, sets torch.backends.fp32_precision instead: with
# "tf32" an NVIDIA GPU's float32 products run in TF32, and with "ieee" or "bf16" its convolutions don't.
#
# Seen with Python 3.11, torch 2.15.0 and 2.13.0, no GPU: what the settings say, each in a process of its own. As torch starts:
# cuda.matmul.fp32_precision "none" (float32), cudnn.conv.fp32_precision "tf32". After mkldnn.fp32_precision = "tf32" cuda.matmul is
# "tf32", too; after "ieee" cudnn.conv is "ieee"; after "bf16", which CUDA doesn't have, cudnn.conv is "none" (float32). The getter reads
# the CPU's setting, so that nothing shows it but the other places; mkldnn.matmul, .conv and .rnn set what their names say.
# torch.backends.cudnn.fp32_precision = "tf32" is that of all of CUDA: cuBLAS's products run in TF32 with it, while the older
# cudnn.allow_tf32 is about cuDNN alone. After any of these, one of the older names (get_float32_matmul_precision(), cuda.matmul.allow_tf32,
# cudnn.allow_tf32) ends in a RuntimeError when it is read.
# So a script that runs on CPUs and GPUs and sets oneDNN's precision compares other arithmetic on the GPU than it names, up to the whole
# gap between float32 and TF32. Whoever means an operation has to name the operation.
# Exits with 1 if any of that has changed. Takes 2 GB below TMPDIR with a torch for CPUs, 6 GB with one for CUDA.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
cat >"$folder/try.py" <<'PYTHON'
import sys

from torch import backends, get_float32_matmul_precision

where, value, wanted = sys.argv[1:]
if where != "nothing":
    getattr(backends, where).fp32_precision = value


def readable(read):
    try:
        read()
    except RuntimeError:
        return "error"
    return "read"


places = {
    "all": backends, "cuda.matmul": backends.cuda.matmul, "cudnn.conv": backends.cudnn.conv, "mkldnn": backends.mkldnn,
    "mkldnn.matmul": backends.mkldnn.matmul,
}
seen = [place.fp32_precision for place in places.values()]
older = (get_float32_matmul_precision, lambda: backends.cuda.matmul.allow_tf32, lambda: backends.cudnn.allow_tf32)
seen += [readable(read) for read in older]
print(where, value, dict(zip([*places, "matmul_precision", "matmul.allow_tf32", "cudnn.allow_tf32"], seen)))
sys.exit(seen != wanted.split())
PYTHON
while read -r where value wanted; do
    "$folder/venv/bin/python" -W ignore "$folder/try.py" "$where" "$value" "$wanted" || { echo "what $where sets has changed" >&2; exit 1; }
done <<'SETTINGS'
nothing - none none tf32 none none read read read
mkldnn tf32 tf32 tf32 tf32 tf32 tf32 error error read
mkldnn ieee ieee ieee ieee ieee ieee read read error
mkldnn bf16 bf16 none none bf16 bf16 error read error
cudnn tf32 none tf32 tf32 none none error error read
SETTINGS
