"""Counts of what small modules compute, each by hand beside it; runs under the stack's Python and prints them as JSON."""

import json
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "images" / "workload"))
from proofs import arithmetic

ITEMS, TOKENS, WIDTH, INNER, HEADS = 2, 7, 8, 16, 2
STEPS = ITEMS * TOKENS
ENCODER = 2 * STEPS * (4 * WIDTH**2 + 2 * WIDTH * INNER) + 4 * ITEMS * TOKENS**2 * WIDTH
HEAD = 2 * STEPS * WIDTH**2 + 4 * ITEMS * TOKENS**2 * WIDTH


class Of(nn.Module):
    """A layer whose forward pass is a function of it and the inputs."""

    def __init__(self, function, **parts):
        super().__init__()
        self._function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, inputs):
        return self._function(self, inputs)


def heads(layer, inputs, keys=HEADS, **named):
    q = layer.linear(inputs).view(ITEMS, TOKENS, HEADS, -1).transpose(1, 2)
    return nn.functional.scaled_dot_product_attention(q, q[:, :keys], q[:, :keys], **named)


def weight(*shape, dtype=torch.float32):
    return nn.Parameter(torch.randn(*shape, dtype=dtype))


LINEAR = nn.Linear(WIDTH, WIDTH)
SEQUENCE = torch.randn(ITEMS, TOKENS, WIDTH)
IMAGE = torch.randn(ITEMS, WIDTH, 9, 9)
CASES = {
    "LSTM of two layers, both ways": (
        nn.LSTM(WIDTH, INNER, 2, batch_first=True, bidirectional=True),
        SEQUENCE,
        2 * STEPS * 2 * 4 * INNER * ((WIDTH + INNER) + (2 * INNER + INNER)),
    ),
    "GRU": (nn.GRU(WIDTH, INNER), SEQUENCE, 2 * STEPS * 3 * INNER * (WIDTH + INNER)),
    "RNN": (nn.RNN(WIDTH, INNER), SEQUENCE, 2 * STEPS * INNER * (WIDTH + INNER)),
    "encoder's layer": (nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True), SEQUENCE, ENCODER),
    "encoder": (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True), 3), SEQUENCE, 3 * ENCODER,
    ),
    "attention's module": (
        Of(lambda self, x: self.m(x, x, x), m=nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)),
        SEQUENCE,
        2 * STEPS * 4 * WIDTH**2 + 4 * ITEMS * TOKENS**2 * WIDTH,
    ),
    "attention's function": (Of(heads, linear=LINEAR), SEQUENCE, HEAD),
    "causal attention": (Of(lambda self, x: heads(self, x, is_causal=True), linear=LINEAR), SEQUENCE, HEAD),
    "convolution in groups": (nn.Conv2d(WIDTH, INNER, 3, groups=4), IMAGE, 2 * ITEMS * INNER * 49 * WIDTH // 4 * 9),
    "depthwise convolution": (nn.Conv2d(WIDTH, WIDTH, 3, groups=WIDTH), IMAGE, 2 * ITEMS * WIDTH * 49 * 9),
    "transposed convolution": (nn.ConvTranspose2d(WIDTH, INNER, 3, stride=2), IMAGE, 2 * ITEMS * WIDTH * 81 * INNER * 9),
    "convolution of a sequence": (nn.Conv1d(TOKENS, 4, 3), SEQUENCE, 2 * ITEMS * 4 * 6 * TOKENS * 3),
    "bilinear": (Of(lambda self, x: self.b(x, x), b=nn.Bilinear(WIDTH, WIDTH, 5)), SEQUENCE, 3 * STEPS * 5 * WIDTH**2),
    "matrix and vector": (Of(lambda self, x: self.w.mv(self.v) * x.sum(), w=weight(9, 5), v=weight(5)), SEQUENCE, 2 * 45),
    "vectors": (Of(lambda self, x: self.v.dot(self.v) * x, v=weight(11)), SEQUENCE, 2 * 11),
    "complex numbers": (
        Of(lambda self, x: (x.to(torch.complex64) @ self.c).real, c=weight(WIDTH, 3, dtype=torch.complex64)),
        SEQUENCE,
        8 * STEPS * WIDTH * 3,
    ),
    "Fourier transform": (
        Of(lambda self, x: torch.fft.rfft(x * self.v).real, v=weight(WIDTH)), SEQUENCE, 2.5 * STEPS * WIDTH * 3,
    ),
    "nothing": (nn.LayerNorm(WIDTH), SEQUENCE, 0),
    "inverse": (Of(lambda self, x: torch.linalg.inv(self.w) + x.norm(), w=weight(WIDTH, WIDTH)), SEQUENCE, None),
}  # fmt: skip
if hasattr(nn.functional, "scaled_dot_product_attention") and "enable_gqa" in (
    nn.functional.scaled_dot_product_attention.__doc__ or ""
):
    CASES["grouped queries"] = (Of(lambda self, x: heads(self, x, 1, enable_gqa=True), linear=LINEAR), SEQUENCE, HEAD)


def watched(action, *words):
    seen = arithmetic.Watched()
    with seen:
        action(*words)
    return seen.total(action is trained)[0]


def evaluated(module, inputs, mode):
    with mode():
        module.eval()(inputs)


def trained(module, inputs):
    outputs = module.train()(inputs.requires_grad_())
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    torch.autograd.grad(first.sum(), list(module.parameters()), allow_unused=True)


if __name__ == "__main__":
    counts = {}
    for name, (module, inputs, by_hand) in CASES.items():
        modes = {
            mode.__name__: watched(evaluated, module, inputs.clone(), mode) for mode in (torch.no_grad, torch.inference_mode)
        }
        counts[name] = {"by hand": by_hand, **modes, "training": watched(trained, module, inputs.clone())}
    print(json.dumps(counts))
