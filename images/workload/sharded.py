"""Fully sharded data parallel training: each rank keeps a part of every parameter and of what belongs to it, and gets the rest
of a block while that block computes (arXiv:2304.11277; torch.distributed.fsdp.fully_shard).
"""

import torch

from channel import Unsupported

FIRST_ON_CPUS = (2, 6)
"""Before, the first step ends with "FSDP requires CUDA for streams"."""


def shard(model, device):
    """`model` with every block of its outermost lists and sequences sharded by itself, and what is left as one more block."""
    fully_shard, mesh = _fully_shard(device), _mesh(device)
    for block in blocks(model):
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def blocks(model):
    """The elements of the outermost ModuleLists and Sequentials that have parameters."""
    found = []
    for child in model.children():
        if isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)):
            found += [one for one in child if any(True for _ in one.parameters())]
        else:
            found += blocks(child)
    return found


def whole(tensor):
    """All of a tensor that is sharded, on every rank, which all must ask for; any other as it is."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def fill(tensor, value):
    """Give a tensor, sharded or not, the values of a whole one."""
    if hasattr(tensor, "full_tensor"):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.detach().to(tensor.device, tensor.dtype), tensor.device_mesh, tensor.placements)
    tensor.copy_(value)


def _fully_shard(device):
    if device.type == "cpu" and _release() < FIRST_ON_CPUS:
        raise Unsupported("torch %s shards on GPUs only" % torch.__version__)
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        try:
            from torch.distributed._composable.fsdp import fully_shard
        except ImportError:
            raise Unsupported("torch %s has no fully_shard" % torch.__version__) from None
    return fully_shard


def _release():
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdigit())


def _mesh(device):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device.type, (torch.distributed.get_world_size(),))
