"""Requests, timed one by one while no other waits: what latency is. In inference only, after the timed windows (measure.py).

latency: the inputs are on the device; until the outputs are there. end-to-end: the inputs are in the host's memory (pinned
for a GPU); until the outputs are in the host's memory. Each request is one batch. The device is synchronised before the first
request and after each one, so that none overlaps another. Several ranks serve at the same time, each its own requests.
"""

import collections
import math
import time

import families
import measure

LATENCY, END_TO_END = "latency", "end-to-end"
LEAST = 10
"""Requests, if as many are asked for, however long they take."""
UNTIMED = 3
"""Requests before the first one that is timed."""

Requests = collections.namedtuple("Requests", "kind ranks")
"""Of each rank a record: the `seconds` of each request in order, the edges of all on the clock that the host shares."""


def serve(args, world, step, pace):
    """Both kinds, in this order; none if no request is asked for. `pace`: seconds per step in the timed windows."""
    count = min(args.requests, max(LEAST, math.ceil(args.request_seconds / pace)))
    if args.mode != "infer" or not count:
        return
    yield Requests(LATENCY, _timed(world, step.run, count))
    inputs = families.batches(args, world.device, in_host_memory=True)
    yield Requests(END_TO_END, _timed(world, lambda index: step.serve(inputs[index % len(inputs)]), count))


def _timed(world, request, count):
    for index in range(UNTIMED):
        request(index)
    seconds = []
    with measure.no_garbage_collection():
        world.barrier()
        world.synchronize()
        start = time.monotonic()
        for index in range(count):
            begin = time.perf_counter_ns()
            request(index)
            world.synchronize()
            seconds.append((time.perf_counter_ns() - begin) / 1e9)
        stop = time.monotonic()
    return world.gather({"seconds": seconds, "start_monotonic_seconds": start, "stop_monotonic_seconds": stop})


def emit(channel, requests):
    """One line for each rank."""
    for rank, record in enumerate(requests.ranks):
        channel.emit("requests", kind=requests.kind, rank=rank, **record)
