"""One training or inference step of a model: how it is spread over ranks, its optimizer, its batches in turn."""

import contextlib
import itertools

import torch

import models
import precision
from channel import Unsupported


def distribute(args, world, model):
    """`model` wrapped in DDP where several ranks train one model; alone, in inference, or independent it stays as it is."""
    if world.size == 1 or args.mode == "infer" or args.parallel == "independent":
        return model
    ids = [world.local_rank] if world.device.type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=ids)


def compiled(args, model):
    """torch.compile over DDP, in this order, since its bucket optimiser needs to see the wrapper."""
    if not args.compile:
        return model
    if not hasattr(torch, "compile"):
        raise Unsupported("torch %s has no torch.compile (it came with 2.0)" % torch.__version__)
    return torch.compile(model)


def order(count):
    """Which batch each of the first `count` steps uses: the first step runs alone, then counting begins again."""
    return list(itertools.islice(itertools.chain([0], itertools.count()), count))


def make_step(args, world, model, loss_of):
    """A function step(index) -> loss (a detached scalar tensor) on batch `index` modulo their number."""
    batches = models.batches(args, world.device, args.batches)
    if args.mode == "infer":
        return _inference_step(args, world, model, loss_of, batches)
    optimizer = _optimizer(args, model)
    scaler = precision.grad_scaler(args.precision, world.device)
    without_sync = _without_sync(args, world, model)

    def step(index):
        optimizer.zero_grad(set_to_none=True)
        with without_sync():
            with precision.autocast(args.precision, world.device):
                loss = loss_of(model, batches[index % len(batches)])
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def _without_sync(args, world, model):
    """DDP's no_sync where the all-reduce is to be left out (to see what it costs); else nothing."""
    if args.parallel == "no-sync" and world.size > 1:
        return model.no_sync
    return contextlib.nullcontext


def _inference_step(args, world, model, loss_of, batches):
    def step(index):
        with torch.no_grad(), precision.autocast(args.precision, world.device):
            return loss_of(model, batches[index % len(batches)])

    return step


def _optimizer(args, model):
    if args.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=1e-5)
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
