"""torch.compile around DDP, in this order, since its bucket optimiser needs to see the wrapper."""

import torch

from channel import Unsupported


def prepare(args, model, example):
    """Wrap `model` by torch.compile, which compiles during the first call."""
    if not hasattr(torch, "compile"):
        raise Unsupported("torch %s has no torch.compile (it came with 2.0)" % torch.__version__)
    mode = {} if args.compile_mode == "default" else {"mode": args.compile_mode}
    shapes = {} if args.compile_shapes == "auto" else {"dynamic": args.compile_shapes == "dynamic"}
    return torch.compile(model, backend="inductor", **mode, **shapes)
