"""Fully sharded data parallel training: each rank keeps a part of every parameter and of what belongs to it, and gets the rest
of a block while that block computes (arXiv:2304.11277; torch.distributed.fsdp.fully_shard, before torch 2.4 FSDP's first
version, FullyShardedDataParallel).
"""

import collections
import contextlib
import functools

import torch

import devices
from channel import Unsupported

FIRST_WITH_PARAMETERS = (2, 0)
"""Before it, FullyShardedDataParallel has one flat parameter per block, and the single parameters are lost."""
FIRST_WITH_FROZEN = (2, 1)
"""First torch whose FullyShardedDataParallel takes frozen parameters beside others."""
FIRST_WITH_FULLY_SHARD = (2, 4)
FIRST_ON_CPUS = (2, 6)
"""Before it, the first step ends with "FSDP requires CUDA for streams"."""


def shard(model, device):
    """Shard every block of the model's outermost lists and sequences by itself, and the rest of the model as one more block."""
    release = _release()
    if release < FIRST_WITH_PARAMETERS:
        raise Unsupported("torch %s can't shard a model and keep its parameters apart" % torch.__version__)
    if not devices.of(device).is_gpu and release < FIRST_ON_CPUS:
        raise Unsupported("torch %s shards on GPUs only" % torch.__version__)
    fully_shard = find_fully_shard() if release >= FIRST_WITH_FULLY_SHARD else None
    if fully_shard is None:
        return _wrap(model, device)
    mesh = mesh_of(device)
    _refuse_sums(device)
    for block in blocks(model):
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _refuse_sums(device):
    """Raise Unsupported if gradients would be added up, not averaged, as gloo did silently (pytorch/pytorch#162338)."""
    given, mean = torch.ones(torch.distributed.get_world_size(), device=device), torch.zeros(1, device=device)
    torch.distributed.reduce_scatter_tensor(mean, given, op=torch.distributed.ReduceOp.AVG)
    if float(mean) != 1:
        reason = "torch %s adds up the gradients of ranks with %s, where it should average them (pytorch issue 162338)"
        raise Unsupported(reason % (torch.__version__, torch.distributed.get_backend()))


def _wrap(model, device):
    """Shard by the first version of FSDP, whose modules wrap others."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

    chosen = {id(block): block for block in blocks(model)}
    times = collections.Counter(id(p) for block in chosen.values() for p in block.parameters())
    if max(times.values(), default=1) > 1:
        raise Unsupported("torch %s can't shard parameters that several blocks share" % torch.__version__)
    if _release() < FIRST_WITH_FROZEN and len({p.requires_grad for p in model.parameters()}) > 1:
        raise Unsupported("torch %s can't shard a model of which some parameters are frozen" % torch.__version__)
    policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda module: id(module) in chosen)
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=device, use_orig_params=True)


def blocks(model):
    """Return the elements of the outermost ModuleLists and Sequentials that have parameters."""
    elements = []
    for child in model.children():
        if isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)):
            elements += [element for element in child if any(True for _ in element.parameters())]
        else:
            elements += blocks(child)
    return elements


def rest(model):
    """Let each rank keep only its own part of the parameters after a forward pass alone, as it does after a backward pass."""
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()


@contextlib.contextmanager
def without_sync(model):
    """Let each rank keep its gradients, of all parameters, for a later backward pass that reduces all of them."""
    if hasattr(model, "no_sync"):
        with model.no_sync():
            yield
        return
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


def of_each(model, action, gradients=False):
    """Call `action` on every parameter of a model, in order, and return the results.

    With FSDP's first version, all of the model (with `gradients`, of its gradients, too) is gathered on every rank first, so
    that all ranks must call this. (Before torch 2.4 a single block can't be gathered: pytorch/pytorch#122663.)
    """
    with contextlib.ExitStack() as gathered:
        if hasattr(model, "summon_full_params"):
            gathered.enter_context(model.summon_full_params(model, with_grads=gradients))
        return [action(parameter) for parameter in model.parameters()]


def whole(tensor):
    """Return all of a sharded tensor; every rank must call this. Return any other tensor as it is."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def is_sharded(tensor):
    """Check whether each rank has its own part of a tensor: it is a DTensor, of fully_shard or of tensor parallelism."""
    return hasattr(tensor, "full_tensor")


def is_split(model):
    """Check whether the ranks have parts of `model`, by whatever of torch; FSDP's first version shows flat parameters."""
    return hasattr(model, "summon_full_params") or any(map(is_sharded, model.parameters()))


def groups(model):
    """Return the parameters of `model` for an optimizer, which can't treat sharded ones together with others."""
    kinds = {False: [], True: []}
    for parameter in model.parameters():
        kinds[is_sharded(parameter)].append(parameter)
    return [{"params": parameters} for parameters in kinds.values() if parameters]


def fill(tensor, value):
    """Copy the values of a whole tensor into a tensor that may be sharded."""
    if is_sharded(tensor):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.detach().to(tensor.device, tensor.dtype), tensor.device_mesh, tensor.placements)
    tensor.copy_(value)


def find_fully_shard():
    """Return fully_shard; None if this torch lacks it."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        try:
            from torch.distributed._composable.fsdp import fully_shard
        except ImportError:
            return None
    return fully_shard


def _release():
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdigit())


def mesh_of(device):
    """Return the mesh of all ranks."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(devices.of(device).name, (torch.distributed.get_world_size(),))
