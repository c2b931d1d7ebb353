#!/bin/sh
# The fused optimizers of torch 2.15.0 change parameters without counting it, so autograd no longer notices that a backward pass
# comes too late: instead of an error there is another gradient.
#
# Seen with Python 3.11 on a CPU, no GPU: two layers, one forward pass, a backward pass that keeps the graph, optimizer.step(), and a
# second backward pass through the same graph. With the plain and the foreach kernels of Adam, AdamW, SGD and Adagrad, _version of each
# parameter grows by 1 to 2 a step, and the second pass ends with "one of the variables needed for gradient computation has been modified
# by an inplace operation". With fused=True _version stays, the second pass runs, and the first layer's gradient, which is a product with
# the changed weights of the second, is 97 % away from that of the first pass (Adam, AdamW, Adagrad) or 2 % (SGD), at a learning rate of
# 0.1. The same with torch 2.5.1 and 2.7.1.
# So a training loop with two backward passes around a step (two losses of one forward pass, as in adversarial training) that ends with an
# error is no such thing any more once its optimizer is fused; and who counts an optimizer's writes by _version sees none.
# Exits with 1 if any of that has changed. Takes 6 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy
cat >"$folder/try.py" <<'PYTHON'
import torch
from torch import nn

seen = {}
for name in ("Adam", "AdamW", "SGD", "Adagrad"):
    for kernels in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        torch.manual_seed(0)
        first, second, images = nn.Linear(16, 16), nn.Linear(16, 16), torch.randn(8, 16)
        optimizer = getattr(torch.optim, name)([*first.parameters(), *second.parameters()], lr=0.1, **kernels)
        versions = second.weight._version
        weights = second.weight.detach().clone()
        loss = second(first(images)).square().mean()
        loss.backward(retain_graph=True)
        right = first.weight.grad.clone()
        optimizer.step()
        counted, moved = second.weight._version - versions, not torch.equal(weights, second.weight)
        first.weight.grad = None
        try:
            loss.backward()
            late = float((first.weight.grad - right).norm() / right.norm())
        except RuntimeError as error:
            late = "refused" if "modified by an inplace operation" in str(error) else str(error)
        (kind,) = (key if value else "plain" for key, value in kernels.items())
        seen[name, kind] = (moved, counted, late)
        print(f"{name} {kind}: moved {moved}, counted {counted}, the late gradient {late if isinstance(late, str) else f'{late:.0%} away'}")

for (name, kind), (moved, counted, late) in seen.items():
    assert moved, name
    if kind == "fused":
        assert counted == 0 and isinstance(late, float) and late > 0.01, (name, counted, late)
    else:
        assert counted > 0 and late == "refused", (name, kind, counted, late)
PYTHON
"$folder/venv/bin/python" "$folder/try.py" || { echo "what fused optimizers count has changed" >&2; exit 1; }
