"""The phases of one launch: cold start, warm-up, measure, and then the proofs. The same code for one process and for many."""

import contextlib
import math
import resource
import time

import torch

import collectives
import models
import precision
import probe
import record
import reference
import steps
from channel import Numerics, Unsupported
from timing import is_flat, measure_window, seconds_per_step
from world import World

ENQUEUE_REPEATS = 5


def run(channel, args):
    """Measure what `args` say and emit everything that was seen; raises on any failure."""
    if args.device == "cuda" and not torch.cuda.is_available():
        raise Unsupported("torch %s sees no GPU in this box" % torch.__version__)
    world = _timed(channel, "init", lambda: World(args))
    losses = _measure(channel, args, world)
    _prove(channel, args, world, losses)
    world.close()  # only after success: with a failed rank among them the others could wait here for ever


def _measure(channel, args, world):
    """Everything that is timed; returns each rank's losses, from the very first step on."""
    torch.manual_seed(args.seed)
    precision.set_knobs(args.precision, world.device)
    torch.backends.cudnn.benchmark = True
    channel.emit("environment", **record.environment())
    devices = world.gather(record.device(world))
    model, loss_of, chosen = _timed(channel, "model", lambda: _prepare_model(args, world))
    parameters, gradient_bytes = models.parameter_count(model), models.gradient_bytes(model)
    channel.emit(
        "setup",
        world_size=world.size,
        backend=world.backend,
        devices=devices,
        parameters=parameters,
        parallel=args.parallel,
        precision=precision.describe(),
        **chosen,
    )
    step = steps.make_step(args, world, model, loss_of)
    losses = world.gather([_timed(channel, "first-step", lambda: _first_step(world, step))])
    channel.emit("memory", phase="cold", **_peaks(world))
    pace = _warm_up(channel, args, world, step, losses)
    _reset_peak(world)
    count = max(args.steps, math.ceil(1.1 * args.seconds / pace))
    for window in range(args.windows):
        ranks = measure_window(world, step, count, window * count)
        _emit_sample(channel, args, "measure", window, ranks)
    channel.emit("memory", phase="warm", **_peaks(world))
    channel.emit("enqueue", step_seconds=world.gather(_enqueue_seconds(args, world, step)))
    channel.emit("compile", graph_breaks=_graph_breaks() if args.compile else None)
    if args.all_reduce_probe and world.size > 1:
        channel.emit("all-reduce", sizes=collectives.probe(world, gradient_bytes), gradient_bytes=gradient_bytes)
    return losses


def _prove(channel, args, world, losses):
    """What makes the number believable: the precision really used, and the losses that eager float32 gives."""
    found = world.gather(probe.run(args.precision, world.device))
    problems = [problem for problem in (probe.problem(args.precision, one) for one in found) if problem]
    channel.emit("precision", requested=args.precision, effective=found)
    if problems:
        raise Numerics(problems[0])
    if not args.reference_steps:
        return
    checked = reference.check(args, world, losses)
    channel.emit("reference", **checked)
    if checked["agrees"] is False:
        raise Numerics(
            "the first losses differ from those of eager fp32 by %s (relative), more than the tolerances %s"
            % (["%.1e" % x for x in checked["differences"]], checked["tolerances"])
        )


def _timed(channel, phase, action):
    begin = time.perf_counter()
    result = action()
    channel.emit("phase", phase=phase, seconds=time.perf_counter() - begin)
    return result


def _prepare_model(args, world):
    """Build, wrap in DDP, then compile."""
    model, loss_of, chosen = models.build(args, world.device)
    model = steps.compiled(args, steps.distribute(args, world, model.train(args.mode == "train")))
    world.synchronize()
    return model, loss_of, chosen


def _first_step(world, step):
    loss = step(0)
    world.synchronize()
    return float(loss)


def _warm_up(channel, args, world, step, losses):
    """Run blocks until two successive ones take the same time: at least so long and so many steps, at most the cap.

    Appends the losses to each rank's list; returns the seconds per step of the fastest block.
    """
    size = max(1, math.ceil(args.warmup_steps / 2))
    previous, done, seconds, flat, pace = None, 0, 0.0, False, math.inf
    while done < args.warmup_steps or seconds < args.warmup_seconds or (not flat and done + size <= args.warmup_cap):
        ranks = measure_window(world, step, size, done)
        _emit_sample(channel, args, "warm-up", done // size, ranks)
        flat = previous is not None and is_flat(previous, ranks, args.warmup_tolerance)
        for known, new in zip(losses, ranks):
            known.extend(new["losses"])
        previous, done, seconds = ranks, done + size, seconds + max(r["seconds"] for r in ranks)
        pace = min(pace, seconds_per_step(ranks))
    channel.emit("warm-up", steps=done, seconds=seconds, flat=flat)
    return pace


def _enqueue_seconds(args, world, step):
    """Host time to hand one step to an idle device: the least of a few. None on a CPU, and where the step itself waits.

    Over a whole window it would tell nothing: the device's queue holds about a thousand kernels, then the host waits for room.
    GradScaler reads a number from the device in each step.
    """
    if world.device.type != "cuda" or (args.precision == "amp" and args.mode == "train"):
        return None
    found = []
    for index in range(ENQUEUE_REPEATS):
        world.synchronize()
        begin = time.perf_counter()
        step(index)
        found.append(time.perf_counter() - begin)
    world.synchronize()
    return min(found)


def _emit_sample(channel, args, phase, window, ranks):
    count = len(ranks[0]["step_seconds"])
    losses = [r["losses"] for r in ranks]
    channel.emit(
        "sample",
        phase=phase,
        window=window,
        steps=count,
        items=args.batch * count * len(ranks),
        start_monotonic_seconds=min(r["start_monotonic_seconds"] for r in ranks),
        stop_monotonic_seconds=max(r["stop_monotonic_seconds"] for r in ranks),
        seconds=[r["seconds"] for r in ranks],
        enqueue_seconds=[r["enqueue_seconds"] for r in ranks],
        step_seconds=[r["step_seconds"] for r in ranks],
        loss=[_finite(rank[-1]) for rank in losses],
        losses=[[_finite(x) for x in rank] for rank in losses],
    )
    bad = [(rank, step) for rank, row in enumerate(losses) for step, x in enumerate(row) if not math.isfinite(x)]
    if bad:
        raise Numerics("the loss of rank %d is not finite in step %d of %s window %d" % (*bad[0], phase, window))


def _finite(value):
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def _peaks(world):
    """Peak memory of each rank: allocated and reserved on the GPU, or resident (of the whole process so far) on a CPU."""
    if world.device.type != "cuda":
        return {"peak_bytes": world.gather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)}
    own = torch.cuda.max_memory_allocated(world.device), torch.cuda.max_memory_reserved(world.device)
    peaks = world.gather(own)
    return {"peak_bytes": [peak for peak, _ in peaks], "peak_reserved_bytes": [peak for _, peak in peaks]}


def _reset_peak(world):
    if world.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(world.device)


def _graph_breaks():
    with contextlib.suppress(ImportError, AttributeError):
        from torch._dynamo.utils import counters

        return sum(counters["graph_break"].values())
    return None
