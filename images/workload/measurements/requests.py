"""Requests: their latency, timed one by one while no other waits. In inference, after the timed windows (measure.py).

latency: from inputs on the device to outputs on the device. end-to-end: from inputs in the host's memory (pinned for a GPU) to
outputs in the host's memory. Each request is one batch. The device is synchronised before and after each request, so that none
overlaps another; the inputs are made before the request's clock starts. Several ranks serve at the same time, each its own
requests.
"""

import math
from time import monotonic, perf_counter_ns

import measure

LATENCY, END_TO_END = "latency", "end-to-end"
LEAST = 10
"""Requests that are timed however long they take, if as many are asked for."""
UNTIMED = 3
"""Requests of each kind before the first one that is timed."""


def serve(args, world, step, pace, new):
    """Time both kinds of requests alternately, since a machine that is disturbed then disturbs both; return their lines, each
    an event and its fields: one for each kind and rank, none if no request is asked for. `pace`: seconds per step in the timed
    windows; `new`: an Unseen, which gives each request its inputs.

    A line has the `seconds` of each request in order, the `inputs_seconds` in which their inputs were made, and the edges of
    both kinds together on the clock that the host shares.
    """
    count = min(args.requests, max(LEAST, math.ceil(args.request_seconds / pace)))
    if not count:
        return []
    kinds = {LATENCY: (step.run, new.on_device()), END_TO_END: (step.serve, new.in_host_memory())}
    for _ in range(UNTIMED):
        for request, inputs in kinds.values():
            request(next(inputs))
    ranks = world.gather(_time_requests(world, kinds, count))
    return [("requests", dict(kind=kind, rank=rank, **records[kind])) for kind in kinds for rank, records in enumerate(ranks)]


def _time_requests(world, kinds, count):
    """Time `count` requests of each of `kinds`; return the record of this rank for each kind."""
    seconds, making = {kind: [] for kind in kinds}, dict.fromkeys(kinds, 0.0)
    with measure.no_garbage_collection():
        world.barrier()
        start = monotonic()
        for _ in range(count):
            for kind, (request, inputs) in kinds.items():
                before = perf_counter_ns()
                batch = next(inputs)
                world.synchronize()
                begin = perf_counter_ns()
                making[kind] += (begin - before) / 1e9
                request(batch)
                world.synchronize()
                seconds[kind].append((perf_counter_ns() - begin) / 1e9)
        edges = {"start_monotonic_seconds": start, "stop_monotonic_seconds": monotonic()}
    return {kind: dict(edges, seconds=times, inputs_seconds=making[kind]) for kind, times in seconds.items()}
