"""Profiles of a step: steps under torch.profiler, and as many without it for comparison.

bench.py comes here with --profile. Nothing here is a figure: no window counts, nothing is proven, and the host keeps the
results apart from all launches. Traces are sent as they are; the host reads them (torchmatrix_plugins/profile/).
"""

import base64
import contextlib
import gzip
import os
import tempfile
import time

import torch

import measure
from channel import Unsupported

STEPS_OF_MEMORY = 2
WINDOW, STEP = "torchmatrix: steps", "torchmatrix: step"
"""Names of the traced steps in a trace, of all together and of each."""
PART_BYTES = 480000
"""Bytes of a packed trace on one line, where they stand in base64; the host takes lines of 1 MB."""


def prepare(args):
    """Prepare torch for profiling, before anything is compiled: kernels for a CPU may get names, with which they take minutes
    to compile. Raise Unsupported if this torch can't profile.
    """
    if not hasattr(torch, "profiler") or not torch.profiler.kineto_available():
        raise Unsupported("torch %s can't profile: it was built without Kineto" % torch.__version__)
    if args.name_kernels:
        with contextlib.suppress(ImportError, AttributeError):
            from torch._inductor import config

            config.cpp.enable_kernel_profile = True


def run(channel, args, world, step):
    """Time steps without the profiler, then trace as many, then a few more with their memory; emit all of it.

    Rank 0 is traced, and the other ranks do the same steps.
    """
    measure.warm_up(args, world, step, lambda ranks: None)
    plain = _seconds(world, step, args.profile)
    _trace(world, step, 1, memory=False)  # the profiler's own first steps
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiled = _trace(world, step, args.profile, memory=False, path=path)
        channel.emit("profile", steps=args.profile, plain_seconds=plain, profiled_seconds=profiled)
        _send(channel, "trace", path)
        _trace(world, step, STEPS_OF_MEMORY, memory=True, path=path)
        _send(channel, "memory", path)


def _seconds(world, step, steps):
    """Return the wall seconds of `steps` steps on each rank, with one device synchronisation before and one after."""
    with measure.no_garbage_collection():
        world.barrier()
        world.synchronize()
        with torch.profiler.record_function(WINDOW):
            begin = time.perf_counter()
            for index in range(steps):
                with torch.profiler.record_function(STEP):
                    step.run(index)
            world.synchronize()
            seconds = time.perf_counter() - begin
    step.losses()
    return world.gather(seconds)


def _trace(world, step, steps, memory, path=None):
    """Time steps like `_seconds`, on rank 0 under the profiler, and write its trace to `path`."""
    if world.rank > 0:
        return _seconds(world, step, steps)
    activities = [getattr(torch.profiler.ProfilerActivity, name) for name in world.kind.activities]
    with torch.profiler.profile(activities=activities, profile_memory=memory) as profile:
        seconds = _seconds(world, step, steps)
    if path:
        profile.export_chrome_trace(path)
    return seconds


def _send(channel, name, path):
    """Write the packed file in parts; only on rank 0, which has it."""
    if channel.rank > 0:
        return
    with open(path, "rb") as file:
        packed = gzip.compress(file.read(), 6)
    count = -(-len(packed) // PART_BYTES)
    for number in range(count):
        data = packed[number * PART_BYTES : (number + 1) * PART_BYTES]
        channel.emit("part", name=name, number=number, count=count, data=base64.b64encode(data).decode())
