"""Requests, timed one by one while no other waits: what latency is. In inference only, after the timed windows (measure.py).

latency: the inputs are on the device; until the outputs are there. end-to-end: the inputs are in the host's memory (pinned
for a GPU); until the outputs are in the host's memory. Each request is one batch. The device is synchronised before and after
each one, so that none overlaps another; its inputs are made before its clock starts. Several ranks serve at the same time, each
its own requests.
"""

import collections
import math
import time

import measure

LATENCY, END_TO_END = "latency", "end-to-end"
LEAST = 10
"""Requests, if as many are asked for, however long they take."""
UNTIMED = 3
"""Requests of each kind before the first one that is timed."""

Requests = collections.namedtuple("Requests", "kind ranks")
"""Of each rank a record: the `seconds` of each request in order, the `inputs_seconds` in which their inputs were made, and the
edges of both kinds together on the clock that the host shares."""


def serve(args, world, step, pace, new):
    """Both kinds in turns, since a machine that is disturbed then disturbs both; none if no request is asked for. `pace`:
    seconds per step in the timed windows; `new`: an Unseen, which gives each request its inputs.
    """
    count = min(args.requests, max(LEAST, math.ceil(args.request_seconds / pace)))
    if args.mode != "infer" or not count:
        return []
    kinds = {LATENCY: (step.run, new.on_device()), END_TO_END: (step.serve, new.in_host_memory())}
    for _ in range(UNTIMED):
        for request, inputs in kinds.values():
            request(next(inputs))
    ranks = world.gather(_timed(world, kinds, count))
    return [Requests(kind, [records[kind] for records in ranks]) for kind in kinds]


def _timed(world, kinds, count):
    """The record of this rank for each of `kinds`."""
    seconds, making = {kind: [] for kind in kinds}, dict.fromkeys(kinds, 0.0)
    with measure.no_garbage_collection():
        world.barrier()
        start = time.monotonic()
        for _ in range(count):
            for kind, (request, inputs) in kinds.items():
                before = time.perf_counter_ns()
                given = next(inputs)
                world.synchronize()
                begin = time.perf_counter_ns()
                making[kind] += (begin - before) / 1e9
                request(given)
                world.synchronize()
                seconds[kind].append((time.perf_counter_ns() - begin) / 1e9)
        edges = {"start_monotonic_seconds": start, "stop_monotonic_seconds": time.monotonic()}
    return {kind: dict(edges, seconds=one, inputs_seconds=making[kind]) for kind, one in seconds.items()}


def emit(channel, requests):
    """One line for each rank."""
    for rank, record in enumerate(requests.ranks):
        channel.emit("requests", kind=requests.kind, rank=rank, **record)
