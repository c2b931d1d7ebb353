#!/bin/sh
# torch 2.15.0: a training loop that stands within one torch.autocast computes every step with the weights of the first one.
#
# Seen with Python 3.11 on a CPU, no GPU, the same with torch 2.5.1 and 2.7.1: autocast casts each weight once and keeps the copy until the
# outermost context ends. optimizer.step() changes the weight, and not the copy. Twenty steps of SGD on one batch, bfloat16: with a context
# for each step the loss falls to below a fifth; with one context around the loop all twenty losses are equal to the last bit, though the
# weights move with every step (all gradients are those of the first weights), and 4 casts of parameters are made instead of 80. No
# warning, no error. cache_enabled=False, or torch.clear_autocast_cache() after each step, mends it. An in-place change by hand is missed
# in the same way.
# So a benchmark written in that form trains nothing, and leaves out the casts that AMP costs; equal losses are the only trace.
# Exits with 1 if any of that has changed. Takes 6 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy
cat >"$folder/try.py" <<'PYTHON'
import contextlib
import warnings

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

STEPS = 20


class Casts(TorchDispatchMode):
    """Counts casts from 32 to 16 bits of tensors with as many numbers as a parameter has."""

    def __init__(self, parameters):
        super().__init__()
        self.sizes, self.number = {parameter.shape for parameter in parameters}, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        is_cast = function is torch.ops.aten._to_copy.default and (kwargs or {}).get("dtype") == torch.bfloat16
        self.number += is_cast and args[0].shape in self.sizes
        return function(*args, **(kwargs or {}))


def trained(around, each):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 8))
    samples, targets = torch.randn(16, 24), torch.randn(16, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    begin, losses = [parameter.detach().clone() for parameter in model.parameters()], []
    with Casts(model.parameters()) as casts, around():
        for _ in range(STEPS):
            with each():
                loss = (model(samples).float() - targets).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    moved = all(not torch.equal(old, new) for old, new in zip(begin, model.parameters()))
    return losses, moved, casts.number


def autocast(**options):
    return lambda: torch.autocast("cpu", dtype=torch.bfloat16, **options)


nothing = contextlib.nullcontext
ways = {
    "a context for each step": (nothing, autocast()),
    "one context": (autocast(), nothing),
    "one context that keeps nothing": (autocast(cache_enabled=False), nothing),
}
with warnings.catch_warnings():
    warnings.simplefilter("error")
    seen = {name: trained(*contexts) for name, contexts in ways.items()}
for name, (losses, moved, casts) in seen.items():
    print(f"{name}: losses {losses[0]:.4f} to {losses[-1]:.4f}, {len(set(losses))} different; weights moved {moved}; casts {casts}")
losses, moved, casts = seen["a context for each step"]
assert losses[-1] < losses[0] / 5 and moved and casts == 4 * STEPS, "each"
stale, stale_moved, stale_casts = seen["one context"]
assert len(set(stale)) == 1 and stale[0] == losses[0] and stale_moved and stale_casts == 4, "one"
assert seen["one context that keeps nothing"][0] == losses, "uncached"

layer, ones = nn.Linear(4, 4, bias=False), torch.ones(1, 4)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    assert layer(ones).any()
with torch.autocast("cpu", dtype=torch.bfloat16):
    before = layer(ones)
    with torch.no_grad():
        layer.weight.zero_()
    after = layer(ones)
    torch.clear_autocast_cache()
    print("a weight that was set to zero gives zero:", not after.any().item(), "and once the copies are dropped:", not layer(ones).any().item())
    assert torch.equal(before, after) and not layer(ones).any(), "by hand"
PYTHON
"$folder/venv/bin/python" "$folder/try.py" || { echo "what autocast keeps has changed" >&2; exit 1; }
