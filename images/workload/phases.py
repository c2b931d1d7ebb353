"""The phases of one launch: cold start, warm-up, measure, and then the proofs. The same code for one process and for many.

measure.py holds what is timed; this module puts it in order and writes the results.
"""

import collections
import contextlib
import functools
import itertools
import resource
import time

import latency
import torch

import collectives
import families
import measure
import precision
import profiling
import record
import runtimes
import samples
from channel import Numerics, Unsupported
from proofs import deeds, effective_precision, rules, work
from world import World

ENQUEUE_REPEATS = 5


def run(channel, args):
    """Measure what `args` ask for and emit all results; raises on any failure."""
    if args.device == "cuda" and not torch.cuda.is_available():
        raise Unsupported("torch %s sees no GPU in this box" % torch.__version__)
    world = _timed(channel, "init", lambda: World(args))
    with world.naming_unused_parameters():
        (_profile if args.profile else _measure_and_prove)(channel, args, world)
    world.finish()  # only after success: if one rank has failed, the others wait here until torchrun ends them


def _profile(channel, args, world):
    profiling.prepare(args)
    profiling.run(channel, args, world, _begin(channel, args, world).step)


def _measure_and_prove(channel, args, world):
    timed, first = _measure(channel, args, world)
    _prove_precision(channel, args, world)
    if args.proof != work.NONE:
        _prove_work(channel, args, world, timed, first)


Begun = collections.namedtuple("Begun", "model step first gradient_bytes")
"""The model, its step, and of each rank the first step's fingerprint."""


def _begin(channel, args, world):
    """A model that has done its first step: Begun."""
    torch.manual_seed(args.seed)
    precision.set_knobs(args.precision, world.device)
    torch.backends.cudnn.benchmark = args.cudnn_benchmark
    if world.rank == 0:  # the others would take the time of its CPUs
        channel.emit("environment", **record.environment())
    devices = world.gather(record.device(world))
    model, gradient_bytes, chosen = _timed(channel, "model", lambda: _prepare_model(args, world))
    channel.emit(
        "setup",
        world_size=world.size,
        backend=world.backend,
        devices=devices,
        parallel=args.parallel,
        precision=precision.describe(),
        timed="forward" if args.mode == "infer" else "forward, loss, backward, optimizer",
        **chosen,
    )
    step = measure.make_step(args, world, families.of(args), model, families.batches(args, world.device))
    torch.manual_seed(args.seed)
    mark = deeds.Fingerprint(step, model)
    _timed(channel, "first-step", lambda: measure.first_step(world, step))
    channel.emit("memory", phase="cold", **_peaks(world))
    return Begun(model, step, world.gather(mark.read(step.losses()[0])), gradient_bytes)


def _measure(channel, args, world):
    """Everything that is timed; returns the "model", the "step" and its "seconds_per_step", and of each rank the first step's
    fingerprint.
    """
    model, step, first, gradient_bytes = _begin(channel, args, world)
    seconds_per_step = _time(channel, args, world, step)
    channel.emit("memory", phase="warm", **_peaks(world))
    for requests in latency.serve(args, world, step, seconds_per_step):
        latency.emit(channel, requests)
    channel.emit("enqueue", step_seconds=world.gather(_enqueue_seconds(args, world, step)))
    channel.emit("compile", graph_breaks=_graph_breaks() if args.compile else None)
    if args.all_reduce_probe and world.size > 1:
        channel.emit("all-reduce", sizes=collectives.probe(world, gradient_bytes), gradient_bytes=gradient_bytes)
        for operation, found, error in collectives.others(world, gradient_bytes):
            channel.emit("collective", operation=operation, sizes=found, error=error)
    return {"model": model, "step": step, "seconds_per_step": seconds_per_step}, first


def _prove_precision(channel, args, world):
    found = world.gather(_timed(channel, "proof-precision", lambda: effective_precision.probe(args, world.device)))
    problems = [problem for problem in (effective_precision.problem(args.precision, one) for one in found) if problem]
    channel.emit("precision", requested=args.precision, effective=found)
    if problems:
        raise Numerics(problems[0])


def _prove_work(channel, args, world, timed, first):
    prove = work.prove if args.proof == work.FULL else work.glance
    seconds = timed["seconds_per_step"]
    record = prove(args, world, timed, first, functools.partial(_timed, channel))
    record["problems"] += rules.speed(args, record.get("flops_per_item"), seconds)
    channel.emit("reference", **dict(record, agrees=False if record["problems"] else record["agrees"]))
    world.barrier()  # the line is written before any rank ends
    if record["problems"]:
        raise Numerics(record["problems"][0])


def _timed(channel, phase, action):
    begin = time.perf_counter()
    result = action()
    channel.emit("phase", phase=phase, seconds=time.perf_counter() - begin)
    return result


def _prepare_model(args, world):
    """Build the model, wrap it in DDP, then pass it to the runtime: that, the bytes of its gradients, what is told of it."""
    model, chosen = families.build(args, world.device)
    model = precision.converted(args.precision, model.train(args.mode == "train" or not args.eval))
    chosen, gradient_bytes = dict(chosen, parameters=families.parameter_count(model)), families.gradient_bytes(model)
    model = world.distribute(args, model)
    model = runtimes.prepare(args, model, lambda: families.call(args, families.batches(args, world.device)[0]))
    world.synchronize()
    return model, gradient_bytes, dict(chosen, runtime=runtimes.facts(model))


def _time(channel, args, world, step):
    """Warms up and times the windows; emits each block. Returns the seconds per step of the windows."""
    blocks, spent = itertools.count(), {"steps": 0, "seconds": 0.0}

    def tell(ranks):
        samples.emit(channel, args.batch, "warm-up", next(blocks), ranks)
        spent["steps"] += len(ranks[0]["step_seconds"])
        spent["seconds"] += max(rank["seconds"] for rank in ranks)

    begun = measure.warm_up(args, world, step, tell)
    channel.emit("warm-up", **spent)
    _reset_peak(world)
    found = measure.timed_windows(args, world, step, begun, tell)
    channel.emit("warm-up", flat=found.flat, drift=found.drift, **spent)
    for number, ranks in enumerate(found.windows):
        samples.emit(channel, args.batch, "measure", number, ranks)
    slowest = [max(rank["seconds"] for rank in ranks) / len(ranks[0]["step_seconds"]) for ranks in found.windows]
    return sum(slowest) / len(slowest)


def _enqueue_seconds(args, world, step):
    """Host time to submit one step to an idle device: the least of a few. None on a CPU.

    Over a whole window it would mean nothing: the device's queue holds about a thousand kernels, then the host waits for room.
    GradScaler reads a number from the device in each step: with it, only zeroing, forward and backward are submitted.
    """
    if world.device.type != "cuda":
        return None
    found = []
    for index in range(ENQUEUE_REPEATS):
        world.synchronize()
        begin = time.perf_counter()
        step.enqueue(index)
        found.append(time.perf_counter() - begin)
    world.synchronize()
    return min(found)


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
