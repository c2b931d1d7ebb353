"""The phases of one launch: cold start, warm-up, measure, and then the proofs. The same code for one process and for many.

measure.py holds what is timed; this module puts it in order and writes the results.
"""

import collections
import functools
import itertools
import time

import torch

import chance
import checkpointing
import collectives
import compiling
import devices
import extras
import families
import float8
import loading
import measure
import measurements
import precision
import profiling
import record
import roofline
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
    """Measure what `args` ask for and emit all results; raise on any failure."""
    devices.of_kind(args.device).require()
    windows.keep_orphans()
    world = _timed(channel, "init", lambda: World(args))
    alone = getattr(measurements.of(args), "launch", None)
    with world.naming_unused_parameters():
        if alone:
            alone(channel, args, world, functools.partial(_timed, channel), _time_windows)
        else:
            (_profile if args.profile else _measure_and_prove)(channel, args, world)
    world.finish()  # only after success: if one rank has failed, the others wait here until torchrun ends them


def _profile(channel, args, world):
    profiling.prepare(args)
    begun = _begin(channel, args, world)
    feed = _feed(channel, args, world, begun)
    profiling.run(channel, args, world, feed.wrap(begun.step) if feed else begun.step)


def _measure_and_prove(channel, args, world):
    begun, seconds_per_step, watched, told = _measure(channel, args, world)
    is_proven = args.proof != work.NONE and measurements.of(args).MODE["windows"]
    roof = _timed(channel, "proof-roof", lambda: _products_roof(args, world)) if is_proven else None
    notes = _look_at_compiled(channel, args, world, begun)
    is_mixed, more = _prove_precision(channel, args, world, begun, watched.varies)
    unproven = [] if is_proven or args.proof == work.NONE else [_UNPROVEN]
    channel.emit("remarks", texts=[*told, *notes, *more, *unproven, *extras.missing(world)])
    if is_proven:
        timed, first = {"model": begun.model, "step": begun.step}, begun.first
        del begun  # the reference needs the memory
        _prove_work(channel, args, world, timed, first, watched, 0 if is_mixed else seconds_per_step, roof)


_UNPROVEN = "the work is not proven: only that of timed windows can be"

Begun = collections.namedtuple(
    "Begun", "model plain blocks step batches mark first gradient_bytes settings attention fallbacks"
)
"""A model that has done its first step: `model` as it is run and `plain` as it was built, of which so many `blocks` are
checkpointed, its `step` and the `batches` that the step takes, the `mark` set before the first step and of each rank the
fingerprint of that step (`first`), both None without windows, the `settings` that the model ought to run under, `attention`:
the implementation that the library was asked for, `fallbacks`: the code that torch.compile leaves in eager mode."""


def _begin(channel, args, world):
    """Build a model and run its first step; return a Begun."""
    fallbacks = compiling.watch() if args.compile else None
    chance.seed(args.seed)
    precision.set_knobs(args.precision, world.device)
    torch.backends.cudnn.benchmark = args.cudnn_benchmark
    if world.rank == 0:  # other ranks would take time of its CPUs
        channel.emit("environment", **record.environment())
    if not args.native_kernels:
        record.refuse_native_kernels()
    initial = settings.read()
    model, plain, blocks, gradient_bytes, chosen = _timed(channel, "model", lambda: _prepare_model(args, world))
    settings.refuse(settings.differences(initial, settings.read()), world.device)
    channel.emit(
        "setup",
        world_size=world.size,
        backend=world.backend,
        devices=world.gather(record.device(world)),
        parallel=args.parallel,
        precision=settings.read(),
        timed=measurements.of(args).MODE["timed"],
        **chosen,
    )
    batches = families.batches(args, world.device)
    step = measurements.of(args).make_step(args, world, families.of(args), model, batches)
    chance.seed(args.seed)
    mark = deeds.Fingerprint(step, model) if measurements.of(args).MODE["windows"] else None
    _timed(channel, "first-step", lambda: measure.first_step(world, step))
    channel.emit("memory", phase="cold", **_peaks(world))
    first = world.gather(mark.read(step.losses()[0])) if mark else None
    return Begun(model, plain, blocks, step, batches, mark, first, gradient_bytes, initial, chosen.get("attention"), fallbacks)


def _feed(channel, args, world, begun):
    """Return what loads data from disk; None with synthetic data."""
    return _timed(channel, "data", lambda: loading.feed(args, world, begun)) if args.data == "disk" else None


def _measure(channel, args, world):
    """Run everything that is timed; return the Begun, the seconds per step, what windows.Watch saw, and remarks."""
    begun = _begin(channel, args, world)
    step, gradient_bytes = begun.step, begun.gradient_bytes
    feed = _feed(channel, args, world, begun)
    timed, seconds_per_step, watched = _time_windows(channel, args, world, feed.wrap(step) if feed else step, begun)
    told = []
    if feed:
        facts = feed.close(timed)
        channel.emit("loading", **facts)
        told += filter(None, [loading.remark(facts)])
    new = Unseen(args, world, step)
    if new.problem:
        channel.emit("unseen", error=new.problem)
    elif timed and args.proof != work.NONE:
        for phase, number, ranks in new.steps(timed):
            samples.emit(channel, families.items_per_step(args, world.size), phase, number, ranks)
    for event, fields in measurements.of(args).streams(args, world, step, seconds_per_step, new):
        channel.emit(event, **fields)
    new.drop()
    if not timed:
        channel.emit("memory", phase="warm", **_peaks(world))
    channel.emit("enqueue", step_seconds=world.gather(_enqueue_seconds(args, world, step)))
    if args.all_reduce_probe and world.size > 1 and collectives.have_room(world, gradient_bytes):
        sizes = extras.attempt("how long all-reduces take", lambda: collectives.probe(world, gradient_bytes))
        if sizes:
            channel.emit("all-reduce", sizes=sizes, gradient_bytes=gradient_bytes)
        for operation, records, error in collectives.others(world, gradient_bytes):
            channel.emit("collective", operation=operation, sizes=records, error=error)
    return begun, seconds_per_step, watched, told


def _products_roof(args, world):
    """Return the FLOP/s of products on the fastest rank; None if some rank doesn't know it."""
    roofs = world.gather(extras.attempt("what products of matrices reach", lambda: roofline.products_roof(args, world)))
    return None if None in roofs else max(roofs)


def _look_at_compiled(channel, args, world, begun):
    """Emit what was compiled on the rank that runs the fewest graphs. Return remarks; raise Unsupported if it runs none."""
    if not args.compile:
        channel.emit("compile", graph_breaks=None)
        return []
    ranks = world.gather(compiling.look(lambda: measure.run_steps(world, begun.step, 1, 0), begun.fallbacks))
    fewest = min(ranks, key=lambda rank: rank["graphs"] if rank["run"] is None else rank["run"])
    channel.emit("compile", **fewest)
    compiling.refuse(fewest)
    return compiling.remarks(fewest)


def _prove_precision(channel, args, world, begun, varies):
    """Raise if the model computed in another precision, or under other settings. Return whether it computed in several types,
    and remarks on it.
    """
    now = settings.read()
    (types, watched, notes), probed = _timed(channel, "proof-precision", lambda: _inspect(args, world, begun, varies))
    notes += _look_at_checkpointed(channel, args, world, begun, watched)
    changed = {}
    for values in (now, *watched.settings):
        changed.update(settings.differences(begun.settings, values))
    ranks = world.gather(dict(probed, types=types, mixed=arithmetic.mixed(args, types)))
    changes = sorted({text for texts in world.gather(settings.in_words(changed)) for text in texts})
    channel.emit("precision", requested=args.precision, effective=ranks, changed=changes)
    settings.refuse(changed, world.device)
    problems = (effective_precision.problem(args.precision, rank) or arithmetic.problem(args, rank["types"]) for rank in ranks)
    wrong = next(filter(None, problems), None)
    if wrong:
        raise Numerics(wrong)
    return any(rank["mixed"] for rank in ranks), sorted({text for texts in world.gather(notes) for text in texts})


def _look_at_checkpointed(channel, args, world, begun, watched):
    """Emit how many blocks the rank with the fewest computes again. Return remarks; raise Unsupported if it is none."""
    if not args.checkpointing:
        return []
    ranks = world.gather(watched.recomputed)
    record = {"blocks": begun.blocks, "recomputed": None if None in ranks else min(ranks)}
    channel.emit("checkpointing", **record)
    checkpointing.refuse(record)
    return checkpointing.remarks(record)


def _inspect(args, world, begun, varies):
    """Return what arithmetic.look sees of the model, with the remarks on it, and what the probe finds."""
    family = families.of(args)
    types, watched = arithmetic.look(args, world, family, begun)
    notes = extras.attempt("remarks on what ran", lambda: remarks.found(args, family, begun, watched, varies)) or []
    notes += ["the types that its products take are not known: %s" % types["unknown"]] if types["unknown"] else []
    notes += ["what is computed inside of %s isn't seen: types, FLOPs" % name for name in sorted(watched.unseen)]
    sharded.rest(begun.plain)  # forward passes leave the model whole
    probed = effective_precision.probe(args, world.device)
    return (types, watched, notes + effective_precision.remarks(probed)), probed


def _prove_work(channel, args, world, timed, first, watched, seconds, roof):
    """Raise Numerics if the work wasn't done. `watched`: what windows.Watch saw. `seconds` of a step, to be held against the
    device's peak and the `roof` of its products; 0 where no peak applies.
    """
    prove = work.prove if args.proof == work.FULL else work.glance
    record = prove(args, world, timed, first, functools.partial(_timed, channel), watched)
    record["problems"][:0] = watched.problems
    record["unwatched"] = "; ".join(filter(None, (watched.unknown, record.pop("coarse", None)))) or None
    record["problems"] += rules.speed(args, record.get("flops_per_item"), seconds, world.size, roof) if seconds else []
    record["products_flops_per_second"] = roof
    channel.emit("reference", **dict(record, agrees=False if record["problems"] else record["agrees"]))
    missing = extras.missing(world)
    if missing:
        channel.emit("remarks", texts=missing)
    world.barrier()  # the line is written before any rank ends
    if record["problems"]:
        raise Numerics(record["problems"][0])


def _timed(channel, phase, action):
    begin = time.perf_counter()
    result = action()
    channel.emit("phase", phase=phase, seconds=time.perf_counter() - begin)
    return result


def _prepare_model(args, world):
    """Build the model, wrap it in DDP, then pass it to the runtime. Return the prepared model, the model itself, how many of
    its blocks are checkpointed, the bytes of its gradients, and the facts that are emitted of it.

    It goes to the device in the precision's type: weights in half precision never take the memory of float32 there.
    """
    model, chosen = families.build(args, world.device if args.model_file else torch.device("cpu"))
    model = precision.converted(args.precision, model.train(measurements.in_training_mode(args))).to(world.device)
    chosen, gradient_bytes = dict(chosen, parameters=families.parameter_count(model)), families.gradient_bytes(model)
    converted = float8.apply(args, model)
    blocks = checkpointing.apply(model) if args.checkpointing else 0
    shared = world.distribute(args, model)
    plain = shared if args.parallel == "fsdp" else model
    model = runtimes.prepare(args, shared, lambda: families.call(args, families.batches(args, world.device)[0]))
    world.synchronize()
    return model, plain, blocks, gradient_bytes, dict(chosen, runtime=runtimes.facts(model) or converted)


def _time_windows(channel, args, world, step, begun=None):
    """Warm up, time the windows, if the mode has any, and emit each block. Return the windows, each as the records of its
    ranks, the seconds per step, and what windows.Watch saw of `begun`; None: there is no model to be watched.
    """
    blocks, spent, done = itertools.count(), {"steps": 0, "seconds": 0.0}, []

    def tell(ranks):
        done.append(ranks)
        samples.emit(channel, families.items_per_step(args, world.size), "warm-up", next(blocks), ranks)
        spent["steps"] += len(ranks[0]["step_seconds"])
        spent["seconds"] += max(rank["seconds"] for rank in ranks)

    warm = measure.warm_up(args, world, step, tell)
    channel.emit("warm-up", **spent)
    has_windows = measurements.of(args).MODE["windows"]
    is_watched = begun is not None and has_windows and args.proof != work.NONE
    watch = windows.Watch(args, world, begun, warm.steps) if is_watched else None
    world.kind.reset_peak()
    if not has_windows:
        return [], warm.pace, windows.NOTHING
    steady = measure.timed_windows(args, world, step, warm, tell, functools.partial(channel.emit, "clock"))
    channel.emit("warm-up", flat=steady.flat, drift=steady.drift, **spent)
    for number, ranks in enumerate(steady.windows):
        samples.emit(channel, families.items_per_step(args, world.size), "measure", number, ranks)
    channel.emit("memory", phase="warm", **_peaks(world))
    watched = _timed(channel, "proof-windows", lambda: watch.end(done, steady.windows)) if watch else windows.NOTHING
    return steady.windows, _seconds_per_step(steady.windows), watched


def _seconds_per_step(timed):
    """Return the mean seconds per step of the windows, of the slowest rank in each."""
    slowest = [max(rank["seconds"] for rank in ranks) / len(ranks[0]["step_seconds"]) for ranks in timed]
    return sum(slowest) / len(slowest)


def _enqueue_seconds(args, world, step):
    """Return the host time in seconds to submit one step to an idle device: the least of a few. None on a CPU.

    Over a whole window it would mean nothing: the device's queue holds about a thousand kernels, then the host waits for space.
    GradScaler reads a number from the device in each step: with it, only zeroing, forward and backward are submitted.
    """
    if not world.kind.is_gpu:
        return None
    seconds = []
    for index in range(ENQUEUE_REPEATS):
        world.synchronize()
        begin = time.perf_counter()
        step.enqueue(index)
        seconds.append(time.perf_counter() - begin)
    world.synchronize()
    return min(seconds)


def _peaks(world):
    """Return the peak memory of each rank in bytes: allocated and reserved on a GPU, or resident (of the whole process so far)
    on a CPU.
    """
    ranks = world.gather(world.kind.peak())
    return {name: [rank[name] for rank in ranks] for name in ranks[0]}
