#!/bin/sh
# Most FLOP counters count nothing of scaled_dot_product_attention, and two of them nothing of the operator @, so a model's FLOPs and MFU
# depend on how its attention is written; torchinfo counts a linear layer once per batch item, not once per token.
#
# Seen with Python 3.11, torch 2.15.0 on a CPU, no GPU: one attention block (four linear layers of 256, 2,048 tokens) needs 2.68 G
# multiply-adds, 80 % of them in attention. What was counted of them, without an error (fvcore's log names what it leaves out):
#
#                                   torch.matmul      @    scaled_dot_product_attention
#   fvcore 0.1.5, ptflops 0.7.5 (aten)    100 %   100 %                           20 %
#   ptflops 0.7.5 (pytorch), calflops 0.3.2
#                                         100 %    20 %                           20 %
#   thop 0.1.1                             20 %    20 %                           20 %
#   torchprofile 0.1.0                    100 %   100 %                          100 %
#   torchinfo 1.8.0                      0.01 %  0.01 %                         0.01 %
#
# transformers 5.24.0 and timm 1.0.31 take scaled_dot_product_attention by default: BERT-base on 512 tokens is 48.4 G for
# attn_implementation="eager" and 43.5 G for "sdpa" (fvcore, ptflops, calflops); a Llama of width 1,024 on 4,096 tokens 307 and 238 G.
# A linear layer on (1, 512, 768) is 0.6 M multiply-adds for torchinfo, on (512, 768) 302 M: of ViT-B/16 it tells 1 % of what runs.
# All these count multiply-adds (calflops tells operations, twice as many, beside them); torch.utils.flop_counter counts operations.
# So "GFLOPs" of a table, and an MFU, say nothing before one knows the counter and the attention it was counted with.
# Exits with 1 if any of that has changed. Takes 6 GB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 torchvision==0.29.2 numpy setuptools transformers==5.24.0 \
    accelerate==1.15.0 thop==0.1.1.post2209072238 fvcore==0.1.5.post20221221 ptflops==0.7.5 calflops==0.3.2 torchinfo==1.8.0 torchprofile==0.1.0
cat >"$folder/try.py" <<'PYTHON'
import contextlib
import io
import logging
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
TOKENS, WIDTH = 2048, 256


class Attention(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.form = form

    def forward(self, x):
        query, key, value = self.query(x), self.key(x), self.value(x)
        if self.form == "fused":
            mixed = nn.functional.scaled_dot_product_attention(query[:, None], key[:, None], value[:, None])[:, 0]
        elif self.form == "@":
            mixed = torch.softmax(query @ key.transpose(1, 2) / WIDTH**0.5, dim=-1) @ value
        else:
            mixed = torch.matmul(torch.softmax(torch.matmul(query, key.transpose(1, 2)) / WIDTH**0.5, dim=-1), value)
        return self.out(mixed)


def by_thop(model, x):
    import thop

    return thop.profile(model, (x,), verbose=False)[0]


def by_fvcore(model, x):
    from fvcore.nn import FlopCountAnalysis

    return FlopCountAnalysis(model, x).unsupported_ops_warnings(False).uncalled_modules_warnings(False).total()


def by_ptflops(backend):
    def count(model, x):
        import ptflops

        return ptflops.get_model_complexity_info(
            model, tuple(x.shape), backend=backend, as_strings=False, print_per_layer_stat=False, verbose=False,
            input_constructor=lambda shape: {"x" if isinstance(model, Attention) else "input": x},
        )[0]

    return count


def by_calflops(model, x):
    from calflops import calculate_flops

    return calculate_flops(model=model, args=[x], print_results=False, output_as_string=False)[1]


def by_torchinfo(model, x):
    import torchinfo

    return torchinfo.summary(model, input_data=x, verbose=0).total_mult_adds


def by_torchprofile(model, x):
    from torchprofile import profile_macs

    return profile_macs(model, x)


COUNTERS = {
    "thop": by_thop, "fvcore": by_fvcore, "ptflops-pytorch": by_ptflops("pytorch"), "ptflops-aten": by_ptflops("aten"),
    "calflops": by_calflops, "torchinfo": by_torchinfo, "torchprofile": by_torchprofile,
}
x = torch.randn(1, TOKENS, WIDTH)
needed = 4 * TOKENS * WIDTH**2 + 2 * TOKENS**2 * WIDTH
shares = {}
for name, count in COUNTERS.items():
    for form in ("matmul", "@", "fused"):
        with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
            shares[name, form] = count(Attention(form).eval(), x) / needed
    print(name, {form: f"{shares[name, form]:.2%}" for form in ("matmul", "@", "fused")})
layers = {shape: by_torchinfo(nn.Linear(768, 768), torch.randn(shape)) for shape in ((1, 512, 768), (512, 768))}
print("torchinfo of a linear layer:", layers)

ALL, LINEAR, NOTHING = 1.0, 4 * TOKENS * WIDTH**2 / needed, 0.0001
SEEN = {
    "fvcore": (ALL, ALL, LINEAR), "ptflops-aten": (ALL, ALL, LINEAR), "ptflops-pytorch": (ALL, LINEAR, LINEAR),
    "calflops": (ALL, LINEAR, LINEAR), "thop": (LINEAR, LINEAR, LINEAR), "torchprofile": (ALL, ALL, ALL),
    "torchinfo": (NOTHING, NOTHING, NOTHING),
}
for name, wanted in SEEN.items():
    for form, share in zip(("matmul", "@", "fused"), wanted):
        assert abs(shares[name, form] - share) < 0.005, (name, form)
assert layers[1, 512, 768] < 0.01 * layers[512, 768]
PYTHON
"$folder/venv/bin/python" "$folder/try.py" || { echo "what these counters count has changed" >&2; exit 1; }
