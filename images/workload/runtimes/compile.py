"""torch.compile around DDP, in this order, since its bucket optimiser needs to see the wrapper."""

import torch

from channel import Unsupported


def prepare(model, example):
    """Compiles during the first call, not here."""
    if not hasattr(torch, "compile"):
        raise Unsupported("torch %s has no torch.compile (it came with 2.0)" % torch.__version__)
    return torch.compile(model)
