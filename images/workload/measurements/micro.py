"""Microbenchmarks: windows of one operation (operations.py) on each device, or of all devices together."""

import math

import chance
import measure
import operations
import precision
import profiling
import record
import settings
from channel import Numerics
from proofs import effective_precision

MODE = {
    "trains": False,
    "windows": True,
    "timed": "the operation alone",
    "noun": "microbenchmark",
    "verb": "runs",
}


def launch(channel, args, world, timed, windows):
    """Measure an operation and emit the lines of a launch, with the check of its result as its proof.

    `timed(phase, action)` emits how long a phase took; ``windows(channel, args, world, step)`` times the windows.
    """
    if args.profile:
        profiling.prepare(args)
    chance.seed(args.seed + args.rank)
    precision.set_knobs("fp32" if args.precision == operations.FLOAT8 else args.precision, world.device)  # float8 is tried
    if world.rank == 0:
        channel.emit("environment", **record.environment())
    operation = timed("data", lambda: operations.make(args, world))
    channel.emit(
        "setup",
        world_size=world.size,
        backend=world.backend,
        devices=world.gather(record.device(world)),
        precision=settings.read(),
        timed=MODE["timed"],
    )
    step = measure.Step(operation.run, list, operation.run, lambda: None, None, None, None, None, [])
    timed("first-step", lambda: measure.first_step(world, step))
    if args.profile:
        profiling.run(channel, args, world, step)
        return
    windows(channel, args, world, step)
    problems = timed("proof", lambda: _problems(channel, args, world, operation))
    flops = {"flops_per_item": 2.0 * math.prod(map(int, args.shape.split("x")))} if args.shape else {}
    channel.emit("reference", proof="full", problems=problems, agrees=not problems, **flops)
    world.barrier()  # the line is written before any rank ends
    if problems:
        raise Numerics(problems[0])


def _problems(channel, args, world, operation):
    """Return what is wrong with the last results of any rank, and emit in which precision products were computed."""
    ranks = world.gather(operation.check())
    problems = ["rank %d: %s" % (rank, wrong) for rank, wrong in enumerate(ranks) if wrong]
    if args.shape and args.precision not in (operations.FLOAT8, operations.FLOAT4):
        probed = world.gather(effective_precision.run(args.precision, world.device))
        channel.emit("precision", requested=args.precision, effective=probed, changed=[])
        problems += [wrong for wrong in (effective_precision.problem(args.precision, rank) for rank in probed) if wrong]
    return problems
