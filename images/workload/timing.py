"""Windows of steps, timed with one device synchronisation before and one after (METHOD: Time 1 to 5)."""

import contextlib
import gc
import time

import torch


def measure_window(world, step, steps, first_step):
    """Time `steps` calls of ``step(index)``; returns one record per rank, in rank order, the same on every rank.

    A record: wall `seconds` of the window, `start_monotonic_seconds` and `stop_monotonic_seconds` (its edges on the clock
    that the host shares), `enqueue_seconds` (until the last step was handed to the device), `step_seconds` and `losses`
    (`steps` numbers each, read after the window). Nothing else happens inside the window.
    """
    marks, losses = _Marks(world.device), []
    with _no_garbage_collection():
        world.barrier()
        world.synchronize()
        start = time.perf_counter_ns()
        marks.add()
        for index in range(first_step, first_step + steps):
            losses.append(step(index))
            marks.add()
        enqueued = time.perf_counter_ns()
        world.synchronize()
        stop = time.perf_counter_ns()
    offset = time.monotonic() - time.perf_counter()  # 0 on Linux, where both read CLOCK_MONOTONIC
    record = {
        "seconds": (stop - start) / 1e9,
        "start_monotonic_seconds": start / 1e9 + offset,
        "stop_monotonic_seconds": stop / 1e9 + offset,
        "enqueue_seconds": (enqueued - start) / 1e9,
        "step_seconds": marks.intervals(),
        "losses": torch.stack(losses).double().tolist(),
    }
    return world.gather(record)


@contextlib.contextmanager
def _no_garbage_collection():
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def seconds_per_step(ranks):
    """The slowest rank's wall time of a window over its number of steps."""
    return max(r["seconds"] for r in ranks) / len(ranks[0]["step_seconds"])


def is_flat(previous, current, tolerance):
    """True if the slowest rank's mean step time of two successive blocks differs by at most `tolerance` (a ratio)."""
    before, now = (max(sum(r["step_seconds"]) / len(r["step_seconds"]) for r in block) for block in (previous, current))
    return abs(now - before) <= tolerance * before


class _Marks:
    """Points in time on the device: CUDA/HIP events (read only after the window), perf_counter on a CPU."""

    def __init__(self, device):
        self._cuda = device.type == "cuda"
        self._marks = []

    def add(self):
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter_ns())

    def intervals(self):
        pairs = zip(self._marks, self._marks[1:])
        if self._cuda:
            return [a.elapsed_time(b) / 1e3 for a, b in pairs]
        return [(b - a) / 1e9 for a, b in pairs]
