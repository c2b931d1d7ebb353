#!/bin/sh
# torch.utils.flop_counter.FlopCounterMode of torch 2.15.0 counts too much, nothing, or ends with an error, and says nothing of it.
#
# Seen with Python 3.11 on a CPU, no GPU:
# - The gradient of a grouped convolution's weight counts once for each group: 112,896 FLOP for 8 channels in 1, 2 and 8 groups,
#   where the forward pass counts 112,896, 56,448 and 14,112 (right). The training of depthwise networks seems to need up to
#   (groups + 2) / 3 times the FLOPs that it needs; so does MFU. The same with torch 2.5.1.
# - nn.LSTM, nn.TransformerEncoderLayer and nn.MultiheadAttention in evaluation count 0, and so do a product of a matrix and a
#   vector, and a dot product. get_unsupported_ops() is empty.
# - flex_attention in eager mode, for which the counter has a formula, ends with "torch.compile with fullgraph=True found no
#   compiled frames" under the counter, as under any other dispatch mode of a user's; without it, it runs.
# Exits with 1 if any of that has changed. Takes 6 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0
cat >"$folder/try.py" <<'PYTHON'
import warnings

import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.flop_counter import FlopCounterMode

warnings.simplefilter("ignore")


def counted(action):
    with FlopCounterMode(display=False) as counter:
        action()
    return counter.get_total_flops(), len(counter.get_unsupported_ops())


convolutions = {}
for groups in (1, 2, 8):
    layer, images = nn.Conv2d(8, 8, 3, groups=groups), torch.randn(2, 8, 9, 9)
    output = layer(images)
    backward = counted(lambda: torch.autograd.grad(output.sum(), [layer.weight]))
    convolutions[groups] = counted(lambda: layer(images))[0], backward[0]
print("convolution by groups, forward and the weight's gradient:", convolutions)

sequence = torch.randn(2, 7, 8)
attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
actions = {
    "LSTM": lambda: nn.LSTM(8, 16).eval()(sequence),
    "encoder's layer": lambda: nn.TransformerEncoderLayer(8, 2, 32, batch_first=True).eval()(sequence),
    "attention": lambda: attention(sequence, sequence, sequence),
    "mv": lambda: torch.randn(9, 5).mv(torch.randn(5)),
    "dot": lambda: torch.randn(9).dot(torch.randn(9)),
}
with torch.no_grad():
    counts = {name: counted(action) for name, action in actions.items()}
    print("in evaluation, FLOPs and unsupported operations:", counts)
    query = torch.randn(2, 2, 7, 32)
    flex_attention(query, query, query)
    try:
        said = str(counted(lambda: flex_attention(query, query, query)))
    except RuntimeError as error:
        said = str(error).partition("\n")[0]
print("flex_attention:", said)
expected = {1: (112896, 112896), 2: (56448, 112896), 8: (14112, 112896)}
is_so = convolutions == expected and set(counts.values()) == {(0, 0)} and "no compiled frames" in said
raise SystemExit(not is_so)
PYTHON
"$folder/venv/bin/python" "$folder/try.py"
