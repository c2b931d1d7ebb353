"""The measurement of a figure, in the order of a launch: the step, the first step, the warm-up, the timed window.

Only this code runs while a clock does (docs/method.md, "A launch"), and then latency.py, which times single requests. The
models are in families/, the runtimes that run them in runtimes/.
"""

import collections
import contextlib
import functools
import gc
import math
import time

import torch

import families
import precision
import steady

Step = collections.namedtuple("Step", "run losses enqueue taken optimizer scaler outputs serve batches")
"""``run(index)`` does one step on batch `index` of `batches` (modulo their number) and returns nothing. ``losses()``, called
outside the window, returns the losses since its last call: one per step in training, that of the last step in inference.
``enqueue(index)`` is the part of the step that submits work without waiting for the device. ``taken()``: with a GradScaler,
which skips some steps, how many the optimizer has done so far; else None. For the proofs, training has its `optimizer` and
`scaler`, and inference ``outputs()``, of the last step; else they are None. ``serve(batch)``, in inference: from a batch in the
host's memory to the outputs in the host's memory, which it returns."""


def training_step(args, world, family, model, batches):
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

    return Step(run, losses, enqueue if scaler.is_enabled() else run, taken, optimizer, scaler, None, None, batches)


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
        return torch.optim.AdamW(model.parameters(), lr=1e-5)
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def inference_step(args, world, family, model, batches):
    """Make the Step of inference, the forward pass alone. The loss is computed from the last step's outputs, when no clock
    runs.
    """
    grad_mode = {"none": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}[args.grad]
    last = {}

    def forward(batch):
        with grad_mode(), precision.autocast(args.precision, world.device):
            return family.forward(model, batch)

    def run(index):
        last.clear()  # frees the previous outputs first, so that there is never memory for two
        batch = batches[index % len(batches)]
        last.update(outputs=forward(batch), batch=batch)

    def serve(batch):
        outputs = forward({name: tensor.to(world.device, non_blocking=True) for name, tensor in batch.items()})
        return [tensor.detach().cpu() for tensor in families.tensors_of(outputs)]

    def losses():
        with torch.no_grad():
            return [float(family.loss(last["outputs"], last["batch"]))]

    return Step(run, losses, run, lambda: None, None, None, lambda: last["outputs"], serve, batches)


def make_step(args, *what):
    return (inference_step if args.mode == "infer" else training_step)(args, *what)


def first_step(world, step):
    """Run the first step, which compiles and allocates what later steps reuse."""
    step.run(0)
    world.synchronize()


WarmUp = collections.namedtuple("WarmUp", "steps pace series")
"""`steps` done, `pace`: the seconds per step of the fastest block, `series`: the step times (steady.Series)."""


def warm_up(args, world, step, tell):
    """Run blocks of steps: at least `warmup_steps` and `warmup_seconds`.

    The first block is in no test for a drift, since libraries choose their algorithms in it. `tell` is called with each block's
    records, as `window` returns them. Return a WarmUp.
    """
    size = max(1, math.ceil(args.warmup_steps / 2))
    done, seconds, pace, series = 0, 0.0, math.inf, steady.Series()
    while done < args.warmup_steps or seconds < args.warmup_seconds:
        ranks = window(world, step, size, done)
        tell(ranks)
        if done:
            series.add(ranks)
        slowest = max(r["seconds"] for r in ranks)
        done, seconds, pace = done + size, seconds + slowest, min(pace, slowest / size)
    return WarmUp(done, pace, series)


def timed_windows(args, world, step, begun, tell, ended):
    """Time the windows of the figure when the machine is steady; return a steady.Steady. `begun`: the WarmUp; `tell`: as in
    `warm_up`; `ended`: as in `window`.

    Batches rotate on and on from the warm-up, so that the number of a step says which batch it had.
    """
    count, done, first = max(args.steps, math.ceil(1.1 * args.seconds / begun.pace)), begun.steps, begun.steps

    def go_on(size):
        nonlocal first
        first += size
        return window(world, step, size, first - size, ended)

    def time_windows():
        return [go_on(count) for _ in range(args.windows)]

    def more(seconds):
        nonlocal done
        size = max(1, math.ceil(seconds / begun.pace))
        if args.warmup_cap and done + size > args.warmup_cap:
            return None
        done += size
        return go_on(size)

    return steady.measure(begun.series, args.warmup_cap_seconds, time_windows, more, tell)


def _do_nothing():
    pass


def window(world, step, steps, first, ended=_do_nothing):
    """Time `steps` steps, with one device synchronisation before and one after; return one record per rank, in rank order.

    A record: wall `seconds` of the window, `start_monotonic_seconds` and `stop_monotonic_seconds` (its edges on the clock
    that the host shares), `enqueue_seconds` (until the last step was submitted to the device), `step_seconds` (`steps` numbers)
    and `losses`, both read after the window. Nothing else happens inside the window. `ended` is called right after it, before
    the ranks wait for each other.
    """
    run, mark, marks, taken = step.run, world.kind.mark, [], step.taken()
    with no_garbage_collection():
        world.barrier()
        world.synchronize()
        begin = time.monotonic()
        start = time.perf_counter_ns()
        marks.append(mark())
        for index in range(first, first + steps):
            run(index)
            marks.append(mark())
        enqueued = time.perf_counter_ns()
        world.synchronize()
        stop = time.perf_counter_ns()
        end = time.monotonic()
    ended()
    record = {
        "seconds": (stop - start) / 1e9,
        "start_monotonic_seconds": begin,
        "stop_monotonic_seconds": end,
        "enqueue_seconds": (enqueued - start) / 1e9,
        "step_seconds": [world.kind.seconds(*pair) for pair in zip(marks, marks[1:])],
        "losses": step.losses(),
    }
    if taken is not None:
        record.update(scale=step.scaler.get_scale(), skipped_steps=steps - step.taken() + taken)
    return world.gather(record)


@contextlib.contextmanager
def no_garbage_collection():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
