#!/bin/sh
# torch 2.5.1: the gradient of an embedding that torch.compile computes on a CPU loses tokens that are repeated in a batch.
#
# Seen with Python 3.11 on a CPU with AVX2, no GPU: an embedding, a linear layer, the mean square as loss. The compiled model's loss and
# the layer's gradient are eager's; the gradient of the table is 78 % away (relative, in the Euclidean norm) with 8 words and 32 tokens,
# all of it with 4096 tokens, and 24 % with 30,000 words and 4096 tokens, as a language model has them. With one thread and with two.
# Where no token is repeated it is right, so that one small batch shows nothing and the next one does. No warning, no error. torch 2.7.1
# computes all of them as eager mode does.
# So a benchmark that compares only the loss of a compiled model with eager mode sees nothing, nor does one that compares gradients on a
# batch that happens to repeat no token.
# Exits with 1 if that has changed. Takes 6 GB below TMPDIR, and needs a C++ compiler.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.5.1 numpy setuptools
cat >"$folder/try.py" <<'PYTHON'
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.table, self.layer = nn.Embedding(rows, 64), nn.Linear(64, 64)

    def forward(self, tokens):
        return self.layer(self.table(tokens)).square().mean()


def away(threads, rows, tokens):
    """Return the compiled loss over the eager one, and how far the gradients of table and layer are from eager mode's."""
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, found = Net(rows), []
    for run in (model, torch.compile(model)):
        model.zero_grad()
        loss = run(tokens)
        loss.backward()
        found.append((loss.item(), model.table.weight.grad.clone(), model.layer.weight.grad.clone()))
    (loss, *right), (compiled_loss, *compiled) = found
    return compiled_loss / loss, *(((b - a).norm() / a.norm()).item() for a, b in zip(right, compiled))


def drawn(rows, count):
    return torch.randint(0, rows, (count,), generator=torch.Generator().manual_seed(1))


repeated = {
    "8 words, 32 tokens, one thread": (away(1, 8, drawn(8, 32)), 0.5),
    "8 words, 32 tokens, two threads": (away(2, 8, drawn(8, 32)), 0.5),
    "8 words, 4096 tokens": (away(1, 8, drawn(8, 4096)), 0.9),
    "30,000 words, 4096 tokens": (away(1, 30_000, drawn(30_000, 4096)), 0.1),
}
different = away(1, 1000, torch.randperm(1000, generator=torch.Generator().manual_seed(1))[:32])
for name, (numbers, least) in {**repeated, "no word twice": (different, None)}.items():
    print("%s: loss %.6f of eager's; gradient of the table %.2g away, of the layer %.2g" % (name, *numbers))
    loss, table, layer = numbers
    assert abs(loss - 1) < 1e-4 and layer < 1e-4, name
    assert table < 1e-5 if least is None else table > least, name
PYTHON
"$folder/venv/bin/python" "$folder/try.py" || { echo "the gradient of a compiled embedding has changed" >&2; exit 1; }
