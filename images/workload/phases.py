"""The phases of one launch: cold start, warm-up, measure, and then the proofs. The same code for one process and for many.

measure.py holds what is timed; this module puts it in order and writes the results.
"""

import collections
import functools
import itertools
import time

import torch

import chance
import collectives
import compiling
import devices
import families
import latency
import measure
import precision
import profiling
import record
import runtimes
import samples
import settings
import sharded
from channel import Numerics
from proofs import arithmetic, deeds, effective_precision, remarks, rules, windows, work
from unseen import Unseen
from world import World

ENQUEUE_REPEATS = 5


def run(channel, args):
    """Measure what `args` ask for and emit all results; raises on any failure."""
    devices.of_kind(args.device).require()
    world = _timed(channel, "init", lambda: World(args))
    with world.naming_unused_parameters():
        (_profile if args.profile else _measure_and_prove)(channel, args, world)
    world.finish()  # only after success: if one rank has failed, the others wait here until torchrun ends them


def _profile(channel, args, world):
    profiling.prepare(args)
    profiling.run(channel, args, world, _begin(channel, args, world).step)


def _measure_and_prove(channel, args, world):
    begun, seconds_per_step, seen = _measure(channel, args, world)
    notes = _look_at_compiled(channel, args, world, begun)
    is_mixed, more = _prove_precision(channel, args, world, begun)
    channel.emit("remarks", texts=[*notes, *more])
    if args.proof != work.NONE:
        timed, first = {"model": begun.model, "step": begun.step}, begun.first
        del begun  # the reference needs the room
        _prove_work(channel, args, world, timed, first, seen, 0 if is_mixed else seconds_per_step)


Begun = collections.namedtuple("Begun", "model plain step batches mark first gradient_bytes settings fallbacks")
"""The model as it is run and as it was built, its step and the batches that this takes, the mark set before its first step and
of each rank that step's fingerprint, the settings that it ought to run under, what torch.compile leaves in eager mode."""


def _begin(channel, args, world):
    """A model that has done its first step: Begun."""
    fallbacks = compiling.watch() if args.compile else None
    chance.seed(args.seed)
    precision.set_knobs(args.precision, world.device)
    torch.backends.cudnn.benchmark = args.cudnn_benchmark
    if world.rank == 0:  # the others would take the time of its CPUs
        channel.emit("environment", **record.environment())
    own = settings.read()
    model, plain, gradient_bytes, chosen = _timed(channel, "model", lambda: _prepare_model(args, world))
    settings.refuse(settings.differences(own, settings.read()), world.device)
    channel.emit(
        "setup",
        world_size=world.size,
        backend=world.backend,
        devices=world.gather(record.device(world)),
        parallel=args.parallel,
        precision=settings.read(),
        timed="forward" if args.mode == "infer" else "forward, loss, backward, optimizer",
        **chosen,
    )
    batches = families.batches(args, world.device)
    step = measure.make_step(args, world, families.of(args), model, batches)
    chance.seed(args.seed)
    mark = deeds.Fingerprint(step, model)
    _timed(channel, "first-step", lambda: measure.first_step(world, step))
    channel.emit("memory", phase="cold", **_peaks(world))
    first = world.gather(mark.read(step.losses()[0]))
    return Begun(model, plain, step, batches, mark, first, gradient_bytes, own, fallbacks)


def _measure(channel, args, world):
    """Everything that is timed; returns what was Begun, the seconds per step and what windows.Watch saw."""
    begun = _begin(channel, args, world)
    step, gradient_bytes = begun.step, begun.gradient_bytes
    timed, seen = _time(channel, args, world, begun)
    seconds_per_step = _pace(timed)
    new = Unseen(args, world, step)
    if new.problem:
        channel.emit("unseen", error=new.problem)
    elif args.proof != work.NONE:
        for phase, number, ranks in new.steps(timed):
            samples.emit(channel, args.batch, phase, number, ranks)
    for requests in latency.serve(args, world, step, seconds_per_step, new):
        latency.emit(channel, requests)
    new.drop()
    channel.emit("enqueue", step_seconds=world.gather(_enqueue_seconds(args, world, step)))
    if args.all_reduce_probe and world.size > 1:
        channel.emit("all-reduce", sizes=collectives.probe(world, gradient_bytes), gradient_bytes=gradient_bytes)
        for operation, found, error in collectives.others(world, gradient_bytes):
            channel.emit("collective", operation=operation, sizes=found, error=error)
    return begun, seconds_per_step, seen


def _look_at_compiled(channel, args, world, begun):
    """Tell what was compiled, by the rank that runs the fewest graphs. Returns remarks; raises Unsupported if it runs none."""
    if not args.compile:
        channel.emit("compile", graph_breaks=None)
        return []
    ranks = world.gather(compiling.look(lambda: begun.step.run(0), begun.fallbacks))
    found = min(ranks, key=lambda one: one["graphs"] if one["run"] is None else one["run"])
    channel.emit("compile", **found)
    compiling.refuse(found)
    return compiling.remarks(found)


def _prove_precision(channel, args, world, begun):
    """Raise if it was computed in another precision, or under other settings. Returns whether it was in several types, and
    remarks on the model.
    """
    now = settings.read()
    (types, watched, notes), probed = _timed(channel, "proof-precision", lambda: _look(args, world, begun))
    changed = {}
    for one in (now, *watched.settings):
        changed.update(settings.differences(begun.settings, one))
    found = world.gather(dict(probed, types=types, mixed=arithmetic.mixed(args, types)))
    told = sorted({text for texts in world.gather(settings.in_words(changed)) for text in texts})
    channel.emit("precision", requested=args.precision, effective=found, changed=told)
    settings.refuse(changed, world.device)
    problems = (effective_precision.problem(args.precision, one) or arithmetic.problem(args, one["types"]) for one in found)
    wrong = next(filter(None, problems), None)
    if wrong:
        raise Numerics(wrong)
    return any(one["mixed"] for one in found), sorted({text for texts in world.gather(notes) for text in texts})


def _look(args, world, begun):
    """What arithmetic.look sees of the model, the remarks on it, and what the probe finds."""
    family = families.of(args)
    types, watched = arithmetic.look(args, world, family, begun)
    notes = remarks.found(args, family, begun, watched)
    sharded.rest(begun.plain)  # forward passes leave it whole
    probed = effective_precision.probe(args, world.device)
    return (types, watched, notes + effective_precision.remarks(probed)), probed


def _prove_work(channel, args, world, timed, first, seen, seconds):
    """`seen`: by windows.Watch. `seconds` of a step, to be held against the device's peak; 0 where that is none."""
    prove = work.prove if args.proof == work.FULL else work.glance
    record = prove(args, world, timed, first, functools.partial(_timed, channel))
    record["problems"][:0], record["unwatched"] = seen
    record["problems"] += rules.speed(args, record.get("flops_per_item"), seconds) if seconds else []
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
    """Build the model, wrap it in DDP, then pass it to the runtime: that, the model itself, the bytes of its gradients, what is
    told of it.
    """
    model, chosen = families.build(args, world.device)
    model = precision.converted(args.precision, model.train(args.mode == "train" or not args.eval))
    chosen, gradient_bytes = dict(chosen, parameters=families.parameter_count(model)), families.gradient_bytes(model)
    shared = world.distribute(args, model)
    plain = shared if args.parallel == "fsdp" else model
    model = runtimes.prepare(args, shared, lambda: families.call(args, families.batches(args, world.device)[0]))
    world.synchronize()
    return model, plain, gradient_bytes, dict(chosen, runtime=runtimes.facts(model))


def _time(channel, args, world, begun):
    """Warms up and times the windows; emits each block. Returns the windows, each as the records of its ranks, and what
    windows.Watch saw.
    """
    step, blocks, spent, done = begun.step, itertools.count(), {"steps": 0, "seconds": 0.0}, []

    def tell(ranks):
        done.append(ranks)
        samples.emit(channel, args.batch, "warm-up", next(blocks), ranks)
        spent["steps"] += len(ranks[0]["step_seconds"])
        spent["seconds"] += max(rank["seconds"] for rank in ranks)

    warm = measure.warm_up(args, world, step, tell)
    channel.emit("warm-up", **spent)
    watch = windows.Watch(args, world, begun, warm.steps) if args.proof != work.NONE else None
    world.kind.reset_peak()
    found = measure.timed_windows(args, world, step, warm, tell, functools.partial(channel.emit, "clock"))
    channel.emit("warm-up", flat=found.flat, drift=found.drift, **spent)
    for number, ranks in enumerate(found.windows):
        samples.emit(channel, args.batch, "measure", number, ranks)
    channel.emit("memory", phase="warm", **_peaks(world))
    seen = _timed(channel, "proof-windows", lambda: watch.end(done + found.windows)) if watch else None
    return found.windows, seen


def _pace(timed):
    """Seconds per step of the windows."""
    slowest = [max(rank["seconds"] for rank in ranks) / len(ranks[0]["step_seconds"]) for ranks in timed]
    return sum(slowest) / len(slowest)


def _enqueue_seconds(args, world, step):
    """Host time to submit one step to an idle device: the least of a few. None on a CPU.

    Over a whole window it would mean nothing: the device's queue holds about a thousand kernels, then the host waits for room.
    GradScaler reads a number from the device in each step: with it, only zeroing, forward and backward are submitted.
    """
    if not world.kind.is_gpu:
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
    ranks = world.gather(world.kind.peak())
    return {name: [rank[name] for rank in ranks] for name in ranks[0]}
