#!/bin/sh
# torch.profiler of torch 2.15.0, with_flops=True: a training step of linear layers has all its FLOPs, one of convolutions those of its
# forward pass alone.
#
# Seen with Python 3.11 on a CPU, no GPU, the same with torch 2.5.1 and 2.7.1. Two linear layers: 131,072 FLOPs forward and 327,680 in
# training, as FlopCounterMode says. Two convolutions: 4,718,592 forward, right, and the same number in training, where FlopCounterMode says
# 11,796,480: aten::convolution_backward has no figure, though aten::mm, which the backward pass of a linear layer is made of, has one. No
# gradient of the images is needed here; in a deep network the missing part is two thirds. Conv1d, ConvTranspose2d and
# scaled_dot_product_attention count nothing in either pass.
# So MFU by the profiler's FLOPs is right for an MLP and a third of the truth for a ResNet, and the two can't be set side by side.
# Exits with 1 if any of that has changed. Takes 6 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy
cat >"$folder/try.py" <<'PYTHON'
import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode


def of_profiler(action):
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiled:
        action()
    return sum(event.flops or 0 for event in profiled.events())


def of_counter(action):
    with FlopCounterMode(display=False) as counter:
        action()
    return counter.get_total_flops()


def both(action):
    return of_profiler(action), of_counter(action)


nets = {
    "linear": (nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)), torch.randn(16, 32)),
    "convolutions": (nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3, padding=1)), torch.randn(4, 8, 16, 16)),
}
seen = {}
for name, (net, inputs) in nets.items():
    seen[name] = {"forward": both(lambda: net(inputs)), "training": both(lambda: net(inputs).sum().backward())}
    print(name, "(profiler, counter):", seen[name])
query, images, signal = torch.randn(2, 4, 32, 16), torch.randn(2, 8, 10, 10), torch.randn(2, 8, 10)
line, transposed = nn.Conv1d(8, 16, 3), nn.ConvTranspose2d(8, 16, 3)
others = {
    "attention": of_profiler(lambda: functional.scaled_dot_product_attention(query, query, query)),
    "Conv1d": of_profiler(lambda: line(signal)),
    "ConvTranspose2d": of_profiler(lambda: transposed(images)),
}
print("others, by the profiler:", others)
assert seen["linear"] == {"forward": (131072, 131072), "training": (327680, 327680)}, "linear"
assert seen["convolutions"] == {"forward": (4718592, 4718592), "training": (4718592, 11796480)}, "convolutions"
assert not any(others.values()), "others"
PYTHON
"$folder/venv/bin/python" "$folder/try.py" || { echo "what the profiler counts has changed" >&2; exit 1; }
