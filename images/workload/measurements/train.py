"""Training: windows of forward, loss, backward and optimizer."""

import contextlib
import functools

import torch

import measure
import precision
import sharded

MODE = {
    "trains": True,
    "windows": True,
    "timed": "forward, loss, backward, optimizer",
    "noun": "training",
    "verbs": ("trains", "train"),
}


def make_step(args, world, family, model, batches):
    """Make the Step of training: forward, loss, backward, optimizer. `model`: as the runtime prepared it."""
    optimizer = _optimizer(args, model)
    scaler = precision.grad_scaler(args.precision, world.device)
    without_sync = model.no_sync if args.parallel == "no-sync" and world.size > 1 else contextlib.nullcontext
    keep = torch.clone if args.compile_mode != "default" else lambda loss: loss  # a CUDA graph writes into the same one again
    kept, taken = [], _count_steps(optimizer) if scaler.is_enabled() else lambda: None

    def enqueue(index):
        optimizer.zero_grad(set_to_none=True)
        with without_sync():
            with precision.autocast(args.precision, world.device):
                loss = family.training_loss(model, batches[index % len(batches)])
            scaler.scale(loss).backward()
        return loss

    def run(index):
        loss = enqueue(index)
        scaler.step(optimizer)
        scaler.update()
        kept.append(keep(loss.detach()))

    def losses():
        values = torch.stack(kept).double().tolist()
        kept.clear()
        return values

    return measure.Step(run, losses, enqueue if scaler.is_enabled() else run, taken, optimizer, scaler, None, None, batches)


def _count_steps(optimizer):
    """Count the steps of `optimizer` from now on; return the function that reads the count."""
    step, done = optimizer.step, [0]

    @functools.wraps(step)
    def counted(*args, **words):
        done[0] += 1
        return step(*args, **words)

    optimizer.step = counted
    return lambda: done[0]


def _optimizer(args, model):
    if args.optimizer == "adamw":
        return torch.optim.AdamW(sharded.groups(model), lr=1e-5)
    return torch.optim.SGD(sharded.groups(model), lr=1e-3, momentum=0.9)


def streams(args, world, step, pace, new):
    """Return no lines: training has windows alone."""
    return ()
