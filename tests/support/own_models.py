"""Own models of every kind, which draw, keep or shape their numbers in ways of their own: all do their work.

Each is what its constructor and its forward pass begin with.
"""

NET = """\
import dataclasses, random
import numpy as np
import torch
from torch import nn

@dataclasses.dataclass
class Out:
    logits: torch.Tensor

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        {init}
    def forward(self, inputs):
        {forward}
        return self.layer(inputs)

def batch(size, generator):
    return torch.randn(size, 6, generator=generator), torch.randint(3, (size,), generator=generator)

def loss(outputs, targets):
    return nn.functional.cross_entropy(getattr(outputs, "logits", outputs), targets)
"""
SHIFT = "inputs = inputs * self.n / (1 + self.n)"
PROVEN = {
    "Python's generator": ("self.layer.weight.data += random.random()", "inputs = inputs * random.random()"),
    "numpy's generator": ("self.layer.weight.data *= np.random.rand()", "inputs = inputs * float(np.random.rand())"),
    "a generator of its own": (
        "self.g = torch.Generator().manual_seed(4)",
        "inputs = inputs * torch.rand(6, generator=self.g)",
    ),
    "one of numpy": ("self.g = np.random.default_rng(3)", "inputs = inputs * float(self.g.random())"),
    "an old one of numpy": ("self.g = np.random.RandomState(3)", "inputs = inputs * float(self.g.rand())"),
    "one of Python": ("self.g = random.Random(3)", "inputs = inputs * self.g.random()"),
    "a counter": ("self.register_buffer('n', torch.zeros(1))", f"self.n += 1; {SHIFT}"),
    "a counter made anew": ("self.register_buffer('n', torch.zeros(()), persistent=False)", f"self.n = self.n + 1; {SHIFT}"),
    "lazy layers": ("self.layer = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(3))", "pass"),
    "complex weights": (
        "self.c = nn.Parameter(torch.randn(6, 6, dtype=torch.complex64))",
        "inputs = (inputs.to(torch.complex64) @ self.c).abs()",
    ),
    "whole and truth values": (
        "self.i = nn.Parameter(torch.tensor([1, 2]), False); self.b = nn.Parameter(torch.tensor(True), False)",
        "pass",
    ),
    "no numbers, and one": (
        "self.e = nn.Parameter(torch.zeros(0, 3)); self.s = nn.Parameter(torch.tensor(1.5))",
        "inputs = self.s * inputs + self.e.sum()",
    ),
    "tied weights": (
        "self.a, self.z = nn.Linear(6, 6), nn.Linear(6, 6); self.z.weight = self.a.weight",
        "inputs = self.z(self.a(inputs))",
    ),
    "quantized numbers": (
        "self.register_buffer('q', torch.quantize_per_tensor(torch.rand(6), 0.1, 0, torch.qint8))",
        "inputs = inputs * self.q.dequantize()",
    ),
    "a dataclass": ("", "return Out(self.layer(inputs))"),
    "complex outputs": ("", "return Out(torch.view_as_complex(torch.stack([self.layer(inputs)] * 2, -1)).abs())"),
}
HOOKED = {
    "hooks that clip": (
        "hook = getattr(self.layer.weight, 'register_post_accumulate_grad_hook', lambda _: None)  # torch 2.1 and newer\n"
        "        hook(lambda p: (p.grad.clamp_(-0.01, 0.01), None)[1])",
        "pass",
    ),
    "checkpoints that enter again": (
        "import torch.utils.checkpoint; self.again = torch.utils.checkpoint.checkpoint",
        "inputs = self.again(torch.tanh, inputs.clone().requires_grad_(), use_reentrant=True)",
    ),
}

MORE = {
    "a recurrent net": ("self.r = nn.LSTM(1, 6, 2, batch_first=True)", "inputs = self.r(inputs[..., None])[0][:, -1]"),
    "gates, both ways": (
        "self.r = nn.GRU(1, 3, batch_first=True, bidirectional=True)",
        "inputs = self.r(inputs[..., None])[0].mean(1)",
    ),
    "sparse gradients": (
        "self.rows = nn.Embedding(9, 6, sparse=True)",
        "inputs = inputs + self.rows((inputs[:, 0] > 0).long())",
    ),
    "bags": ("self.rows = nn.EmbeddingBag(9, 6, mode='sum')", "inputs = inputs + self.rows((inputs > 0).long())"),
    "a norm of weights": ("self.n = nn.utils.weight_norm(nn.Linear(6, 6))", "inputs = self.n(inputs)"),
    "a spectral norm": ("self.layer = nn.utils.parametrizations.spectral_norm(self.layer)", "pass"),
    "dropout of its own": ("pass", "inputs = nn.functional.dropout(inputs, 0.3, self.training)"),
    "dropout of channels": (
        "self.d = nn.Dropout1d(0.3) if hasattr(nn, 'Dropout1d') else nn.Dropout(0.3)",
        "inputs = self.d(inputs)",
    ),
    "slopes that are drawn": ("self.d = nn.RReLU()", "inputs = self.d(inputs)"),
    "layers left out by chance": (
        "self.m = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))",
        "for one in self.m:\n            if not self.training or torch.rand(()) > 0.3: inputs = inputs + one(inputs).tanh()",
    ),
    "layers left out by Python's chance": (
        "self.m = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))",
        "for one in self.m:\n            if not self.training or random.random() > 0.3: inputs = inputs + one(inputs).tanh()",
    ),
    "a branch by content": ("self.o = nn.Linear(6, 3)", "if inputs.sum() > 0: return self.o(inputs)"),
    "a loop by content": (
        "self.o = nn.Linear(6, 6)",
        "for _ in range(1 + int(inputs.abs().max())): inputs = self.o(inputs).tanh()",
    ),
    "a mask by content": (
        "self.o = nn.Linear(6, 6)",
        "keep = inputs[:, :1] > 0; inputs = torch.where(keep, self.o(inputs), inputs)",
    ),
    "rows by content": (
        "self.o = nn.Linear(6, 6)",
        "keep = inputs[:, 0] > 0; inputs = inputs.clone(); inputs[keep] = self.o(inputs[keep])",
    ),
    "experts": (
        "self.g = nn.Linear(6, 3); self.e = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))",
        "best = self.g(inputs).softmax(-1); inputs = sum(best[:, i:i + 1] * e(inputs) for i, e in enumerate(self.e))",
    ),
    "a norm of batches without momentum": ("self.b = nn.BatchNorm1d(6, momentum=None)", "inputs = self.b(inputs)"),
    "a norm of instances": (
        "self.b = nn.InstanceNorm1d(2, track_running_stats=True)",
        "inputs = self.b(inputs.view(-1, 2, 3)).flatten(1)",
    ),
    "attention with a mask": (
        "self.a = nn.MultiheadAttention(4, 2, batch_first=True); self.w = nn.Linear(1, 4); self.v = nn.Linear(4, 1)",
        "x = self.w(inputs[..., None]); mask = torch.ones(6, 6).triu(1).bool()\n"
        "        inputs = self.v(self.a(x, x, x, attn_mask=mask, need_weights=False)[0])[..., 0]",
    ),
    "a layer of a transformer": (
        "self.t = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True, norm_first=True)",
        "inputs = self.t(inputs[:, None])[:, 0]",
    ),
    "hooks before and after": (
        "self.layer.register_forward_pre_hook(lambda m, given: (given[0] * 2,)); "
        "self.layer.register_forward_hook(lambda m, given, made: made / 2)",
        "pass",
    ),
    "hooks of the backward pass": (
        "self.layer.register_full_backward_hook(lambda m, given, made: (given[0] * 0.5,))",
        "inputs = inputs + self.layer.weight.sum() * 0",
    ),
    "a hook of a weight": ("self.layer.weight.register_hook(lambda g: g.clamp(-0.01, 0.01))", "pass"),
    "a function with its own gradient": (
        "self.s = type('S', (torch.autograd.Function,), {'forward': staticmethod(lambda c, x: x.sign()), "
        "'backward': staticmethod(lambda c, g: g)})",
        "inputs = inputs + self.s.apply(self.layer.weight.sum(0))",
    ),
    "a running mean of its weights": (
        "self.register_buffer('m', torch.zeros(3, 6))",
        "self.m.lerp_(self.layer.weight.detach(), 0.1); inputs = inputs + self.m.sum() * 1e-3",
    ),
    "frozen layers": ("self.o = nn.Linear(6, 6).requires_grad_(False)", "inputs = self.o(inputs)"),
    "half of it without gradients": ("self.o = nn.Linear(6, 6)", "inputs = inputs + self.o(inputs).detach()"),
    "a solver": ("self.o = nn.Parameter(torch.eye(6) * 3)", "inputs = torch.linalg.solve(self.o, inputs.t()).t()"),
    "a spectrum": ("self.o = nn.Parameter(torch.rand(4))", "inputs = torch.fft.irfft(torch.fft.rfft(inputs) * self.o, n=6)"),
    "sorted": ("self.o = nn.Linear(6, 6)", "inputs = self.o(inputs).sort(-1).values"),
}
"""Further ones, for many honest launches (tests/bench/honest.py)."""
