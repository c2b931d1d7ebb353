"""Training: windows of forward, loss, backward and optimizer."""

import contextlib
import functools

import torch

import families
import masters
import measure
import precision
import sharded
from channel import Unsupported

MODE = {
    "trains": True,
    "windows": True,
    "timed": "forward, loss, backward, optimizer",
    "noun": "training",
    "verb": "trains",
}


def make_step(args, world, family, model, batches):
    """Make the Step of training: forward, loss, backward, optimizer. `model`: as the runtime prepared it.

    A step that accumulates goes forward and backward once for each of its micro batches; their gradients are averaged.
    """
    optimizer = _optimizer(args, model)
    scaler = precision.grad_scaler(args.precision, world.device)
    keep = torch.clone if args.compile_mode != "default" else lambda loss: loss  # a CUDA graph writes into the same one again
    without_sync, at_last = _synchronising(args, world, model)
    kept, taken = [], _count_steps(optimizer) if scaler.is_enabled() else lambda: None

    def backward(batch):
        with precision.autocast(args.precision, world.device):
            loss = family.training_loss(model, batch)
        scaler.scale(loss if args.accumulate == 1 else loss / args.accumulate).backward()
        return keep(loss.detach())

    def enqueue(index):
        optimizer.zero_grad(set_to_none=True)
        *others, last = families.micro_batches(args, batches[index % len(batches)])
        found = []
        for batch in others:
            with without_sync():
                found.append(backward(batch))
        with at_last():
            return [*found, backward(last)]

    def run(index):
        found = enqueue(index)
        scaler.step(optimizer)
        scaler.update()
        kept.extend(found)

    def losses():
        values = torch.stack(kept).double().view(-1, args.accumulate).mean(1).tolist()
        kept.clear()
        return values

    return measure.Step(run, losses, enqueue if scaler.is_enabled() else run, taken, optimizer, scaler, None, None, batches)


def _synchronising(args, world, model):
    """Return two makers of contexts: for a backward pass whose gradients stay on their rank, and for the last one of a step."""
    if world.size == 1 or args.parallel in ("independent", "tp"):  # of a model that is split no gradients are averaged
        return contextlib.nullcontext, contextlib.nullcontext
    alone = functools.partial(sharded.without_sync, model) if args.parallel == "fsdp" else model.no_sync
    return alone, alone if args.parallel == "no-sync" else contextlib.nullcontext


def _count_steps(optimizer):
    """Count the steps of `optimizer` from now on; return the function that reads the count.

    A fused one is called in each step and skips by itself, on the device: its state counts the steps that it took.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        return lambda: max((int(state["step"]) for state in optimizer.state.values()), default=0)
    step, done = optimizer.step, [0]

    @functools.wraps(step)
    def counted(*args, **words):
        done[0] += 1
        return step(*args, **words)

    optimizer.step = counted
    return lambda: done[0]


def _optimizer(args, model):
    make = functools.partial(_optimizer_of, args.optimizer)
    return masters.Masters(model, make) if args.precision == "bf16-master" else make(sharded.groups(model))


def _optimizer_of(name, groups):
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=1e-5)
    if name == "adamw-fused":
        try:
            return torch.optim.AdamW(groups, lr=1e-5, fused=True)
        except (TypeError, RuntimeError) as error:  # torch 1.12 has no such word; others lack it on some devices
            raise Unsupported("torch %s has no fused AdamW here: %s" % (torch.__version__, error)) from error
    return torch.optim.SGD(groups, lr=1e-3, momentum=0.9)


def streams(args, world, step, pace, new):
    """Return no lines: training has windows alone."""
    return ()
