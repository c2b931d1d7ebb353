"""Tensor parallel training: each rank has a part of every matrix of a decoder's layers, and all ranks compute one batch
together (arXiv:1909.08053, section 3; torch.distributed.tensor.parallel).

Of attention a rank has some heads, of the feed-forward network some of its inner features. Forward two all-reduces per layer
add up what the ranks compute, backward five: one for each matrix that is split by columns. Embeddings, norms and the head are
whole on each rank.
"""

import torch

import sharded
from channel import Unsupported
from families import LIBRARIES, entry_of
from recipes import FLOAT8

BY_COLUMN = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
BY_ROW = ("self_attn.o_proj", "mlp.down_proj")
OF_HEADS = ("self_attn.q_norm", "self_attn.k_norm")
"""Norms that each rank applies to its own heads alone."""


def split(args, model, device):
    """Leave each rank its part of the matrices of `model`; return the model."""
    _refuse(args, model, torch.distributed.get_world_size())
    try:
        from torch.distributed.tensor import distribute_tensor  # noqa: F401
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    except ImportError:
        raise Unsupported("torch %s can't split matrices as is done here (that came with 2.5)" % torch.__version__) from None
    mesh, done = sharded.mesh_of(device), 0
    for name, module in list(model.named_modules()):
        style = ColwiseParallel() if name.endswith(BY_COLUMN) else RowwiseParallel() if name.endswith(BY_ROW) else None
        if style:
            parallelize_module(module, mesh, style)
            done += 1
        elif name.endswith(OF_HEADS):
            module.weight.register_hook(_add_up)
    if done != len(BY_COLUMN + BY_ROW) * model.config.num_hidden_layers:
        raise Unsupported("the layers of %s have other matrices here than those that tensor parallelism splits" % args.model)
    return model


def _refuse(args, model, ranks):
    """Raise Unsupported for a model that can't be split, or not among so many ranks."""
    layout = LIBRARIES["transformers"]["tensor_parallel"]
    if args.model_file or entry_of(args.model).get("type") not in layout["types"]:
        types = ", ".join(layout["types"])
        raise Unsupported("tensor parallelism splits listed models of the types %s; %s is none" % (types, args.model))
    if args.precision == "amp":
        raise Unsupported("GradScaler, which precision amp needs, can't look at parameters that are split")
    if args.precision in FLOAT8:
        raise Unsupported("layers in float8 are not split here")
    numbers = {what: getattr(model.config, key) for key, what in layout["shared"].items()}
    uneven = ["%d %s" % (number, what) for what, number in numbers.items() if number % ranks]
    if uneven:
        raise Unsupported("%s has %s, which %d ranks can't share alike" % (args.model, " and ".join(uneven), ranks))
    if any(hasattr(module, "num_heads") for name, module in model.named_modules() if name.endswith("self_attn")):
        raise Unsupported("attention of this transformers counts all heads, of which a rank has only some: use a newer one")


def _add_up(gradient):
    """Return the sum of the ranks' gradients of what each applied to its own heads."""
    total = gradient.clone()
    torch.distributed.all_reduce(total)
    return total
