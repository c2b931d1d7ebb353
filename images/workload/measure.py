"""How a figure is measured, in the order in which it happens: the step, the first step, the warm-up, the timed window.

Only this code runs while a clock does (docs/method.md, "A launch"). The models are in families/, what runs them in runtimes/.
"""

import collections
import contextlib
import gc
import itertools
import math
import time

import torch

import precision

Step = collections.namedtuple("Step", "run losses")
"""``run(index)`` does one step on batch `index` (modulo the number of batches) and returns nothing. ``losses()``, called
outside the window, returns the losses since its last call: one per step in training, that of the last step in inference."""


def training_step(args, world, family, model, batches):
    """Forward, loss, backward, optimizer. `model` is what the runtime prepared."""
    optimizer = _optimizer(args, model)
    scaler = precision.grad_scaler(args.precision, world.device)
    without_sync = model.no_sync if args.parallel == "no-sync" and world.size > 1 else contextlib.nullcontext
    kept = []

    def run(index):
        optimizer.zero_grad(set_to_none=True)
        with without_sync():
            with precision.autocast(args.precision, world.device):
                loss = family.training_loss(model, batches[index % len(batches)])
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        kept.append(loss.detach())

    def losses():
        found = torch.stack(kept).double().tolist()
        kept.clear()
        return found

    return Step(run, losses)


def _optimizer(args, model):
    if args.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=1e-5)
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def inference_step(args, world, family, model, batches):
    """The forward pass alone: the loss is computed from the last step's outputs, when no clock runs."""
    grad_mode = {"none": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}[args.grad]
    last = {}

    def run(index):
        last.clear()  # frees the previous outputs first, so that there is never memory for two
        batch = batches[index % len(batches)]
        with grad_mode(), precision.autocast(args.precision, world.device):
            last.update(outputs=family.forward(model, batch), batch=batch)

    def losses():
        with torch.no_grad():
            return [float(family.loss(last["outputs"], last["batch"]))]

    return Step(run, losses)


def make_step(args, *what):
    return (inference_step if args.mode == "infer" else training_step)(args, *what)


def first_step(world, step):
    """Compiles and allocates what later steps reuse."""
    step.run(0)
    world.synchronize()


WarmUp = collections.namedtuple("WarmUp", "steps seconds flat pace")
"""Steps done, their wall seconds, whether they became flat, the seconds per step of the fastest block."""


def warm_up(args, world, step, tell):
    """Run blocks of steps until two successive ones take the same time: at least `warmup_steps` and `warmup_seconds`, and at
    most `warmup_cap` steps unless a minimum needs more.

    `tell` is called with each block's records, as `window` gives them.
    """
    size = max(1, math.ceil(args.warmup_steps / 2))
    previous, done, seconds, flat, pace = None, 0, 0.0, False, math.inf
    while done < args.warmup_steps or seconds < args.warmup_seconds or (not flat and done + size <= args.warmup_cap):
        ranks = window(world, step, size, done)
        tell(ranks)
        flat = previous is not None and _is_flat(previous, ranks, args.warmup_tolerance)
        slowest = max(r["seconds"] for r in ranks)
        previous, done, seconds, pace = ranks, done + size, seconds + slowest, min(pace, slowest / size)
    return WarmUp(done, seconds, flat, pace)


def _is_flat(previous, current, tolerance):
    """True if the slowest rank's mean step time of two successive blocks differs by at most `tolerance` (a ratio)."""
    before, now = (max(sum(r["step_seconds"]) / len(r["step_seconds"]) for r in block) for block in (previous, current))
    return abs(now - before) <= tolerance * before


def window(world, step, steps, first):
    """Time `steps` steps, with one device synchronisation before and one after; returns one record per rank, in rank order.

    A record: wall `seconds` of the window, `start_monotonic_seconds` and `stop_monotonic_seconds` (its edges on the clock
    that the host shares), `enqueue_seconds` (until the last step was submitted to the device), `step_seconds` (`steps` numbers)
    and `losses`, both read after the window. Nothing else happens inside it.
    """
    run, marks = step.run, _Marks(world.device)
    with _no_garbage_collection():
        world.barrier()
        world.synchronize()
        start = time.perf_counter_ns()
        marks.add()
        for index in range(first, first + steps):
            run(index)
            marks.add()
        enqueued = time.perf_counter_ns()
        world.synchronize()
        stop = time.perf_counter_ns()
    offset = time.monotonic() - time.perf_counter()  # 0 on Linux, where both read CLOCK_MONOTONIC
    record = {
        "seconds": (stop - start) / 1e9,
        "start_monotonic_seconds": start / 1e9 + offset,
        "stop_monotonic_seconds": stop / 1e9 + offset,
        "enqueue_seconds": (enqueued - start) / 1e9,
        "step_seconds": marks.intervals(),
        "losses": step.losses(),
    }
    return world.gather(record)


@contextlib.contextmanager
def _no_garbage_collection():
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


class _Marks:
    """Points in time on the device: CUDA/HIP events (read only after the window), perf_counter on a CPU."""

    def __init__(self, device):
        self._cuda = device.type == "cuda"
        self._marks = []

    def add(self):
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter_ns())

    def intervals(self):
        pairs = zip(self._marks, self._marks[1:])
        if self._cuda:
            return [a.elapsed_time(b) / 1e3 for a, b in pairs]
        return [(b - a) / 1e9 for a, b in pairs]


def losses_in_order(step, count):
    """The losses of `count` steps, one by one, on the batches of the first steps: batch 0 alone, then batches 0, 1, 2 …"""
    found = []
    for index in itertools.islice(itertools.chain([0], itertools.count()), count):
        step.run(index)
        found += step.losses()
    return found
