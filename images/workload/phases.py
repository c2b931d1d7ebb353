"""The phases of one launch: cold start, warm-up, measure. The same code for one process and for many."""

import contextlib
import math
import resource
import time

import torch

import models
import precision
import record
from protocol import Numerics, Unsupported
from timing import is_flat, measure_window
from world import World


def run(channel, args):
    """Measure what `args` say and emit everything that was seen; raises on any failure."""
    if args.device == "cuda" and not torch.cuda.is_available():
        raise Unsupported("torch %s sees no GPU in this box" % torch.__version__)
    world = _timed(channel, "init", lambda: World(args))
    _measure(channel, args, world)
    world.close()  # only after success: with a failed rank among them the others could wait here for ever


def _measure(channel, args, world):
    torch.manual_seed(args.seed)
    precision.set_knobs(args.precision, world.device)
    torch.backends.cudnn.benchmark = True
    channel.emit("environment", **record.environment())
    devices = world.gather(record.device(world))
    model, loss_of, chosen = _timed(channel, "model", lambda: _prepare_model(args, world))
    channel.emit(
        "setup",
        world_size=world.size,
        backend=world.backend,
        devices=devices,
        parameters=models.parameter_count(model),
        precision=precision.describe(),
        **chosen,
    )
    step = make_step(args, world, model, loss_of)
    _timed(channel, "first-step", lambda: _first_step(world, step))
    channel.emit("memory", phase="cold", peak_bytes=world.gather(_peak_bytes(world)))
    _warm_up(channel, args, world, step)
    _reset_peak(world)
    for window in range(args.windows):
        ranks = measure_window(world, step, args.steps, window * args.steps)
        _emit_sample(channel, args, "measure", window, args.steps, ranks)
    channel.emit("memory", phase="warm", peak_bytes=world.gather(_peak_bytes(world)))
    channel.emit("compile", graph_breaks=_graph_breaks() if args.compile else None)


def _timed(channel, phase, action):
    begin = time.perf_counter()
    result = action()
    channel.emit("phase", phase=phase, seconds=time.perf_counter() - begin)
    return result


def _prepare_model(args, world):
    """Build, wrap in DDP, then compile: in this order, since DDP's bucket optimiser needs to see the wrapper."""
    model, loss_of, chosen = models.build(args, world.device)
    model.train(args.mode == "train")
    if world.size > 1 and args.mode == "train":
        ids = [world.local_rank] if world.device.type == "cuda" else None
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=ids)
    if args.compile:
        if not hasattr(torch, "compile"):
            raise Unsupported("torch %s has no torch.compile (it came with 2.0)" % torch.__version__)
        model = torch.compile(model)
    world.synchronize()
    return model, loss_of, chosen


def make_step(args, world, model, loss_of):
    """A function step(index) -> loss tensor that runs one training or inference step on batch `index` modulo their number."""
    batches = models.batches(args, world.device, args.batches)
    if args.mode == "infer":
        return _inference_step(args, world, model, loss_of, batches)
    optimizer = _optimizer(args, model)
    scaler = precision.grad_scaler(args.precision, world.device)

    def step(index):
        optimizer.zero_grad(set_to_none=True)
        with precision.autocast(args.precision, world.device):
            loss = loss_of(model, batches[index % len(batches)])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def _inference_step(args, world, model, loss_of, batches):
    def step(index):
        with torch.no_grad(), precision.autocast(args.precision, world.device):
            return loss_of(model, batches[index % len(batches)])

    return step


def _optimizer(args, model):
    if args.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=1e-5)
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def _first_step(world, step):
    step(0)
    world.synchronize()


def _warm_up(channel, args, world, step):
    """Run blocks until two successive ones take the same time, at least `warmup_steps`, at most `warmup_cap` steps."""
    size = max(1, math.ceil(args.warmup_steps / 2))
    previous, done, flat = None, 0, False
    while done < args.warmup_steps or (not flat and done + size <= args.warmup_cap):
        ranks = measure_window(world, step, size, done)
        _emit_sample(channel, args, "warm-up", done // size, size, ranks)
        flat = previous is not None and is_flat(previous, ranks, args.warmup_tolerance)
        previous, done = ranks, done + size
    channel.emit("warm-up", steps=done, flat=flat)


def _emit_sample(channel, args, phase, window, steps, ranks):
    losses = [r["loss"] for r in ranks]
    channel.emit(
        "sample",
        phase=phase,
        window=window,
        steps=steps,
        items=args.batch * steps * len(ranks),
        seconds=[r["seconds"] for r in ranks],
        enqueue_seconds=[r["enqueue_seconds"] for r in ranks],
        step_seconds=[r["step_seconds"] for r in ranks],
        loss=[loss if math.isfinite(loss) else None for loss in losses],
    )
    if not all(map(math.isfinite, losses)):
        raise Numerics("loss is not finite after %s window %d: %s" % (phase, window, losses))


def _peak_bytes(world):
    """Peak memory of this rank: allocated on the GPU, or resident (of the whole process so far) on a CPU."""
    if world.device.type == "cuda":
        return torch.cuda.max_memory_allocated(world.device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _reset_peak(world):
    if world.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(world.device)


def _graph_breaks():
    with contextlib.suppress(ImportError, AttributeError):
        from torch._dynamo.utils import counters

        return sum(counters["graph_break"].values())
    return None
