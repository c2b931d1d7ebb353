"""Windows of steps, timed with one device synchronisation before and one after (METHOD: Time 1 to 5)."""

import gc
import time

import torch


def measure_window(world, step, steps, first_step):
    """Time `steps` calls of ``step(index)``; returns one record per rank, in rank order, the same on every rank.

    A record: wall `seconds` of the window, `enqueue_seconds` (until the last step was handed to the device),
    `step_seconds` (a list of `steps` numbers) and the last `loss`. Nothing else happens inside the window.
    """
    marks = _Marks(world.device)
    gc.collect()
    gc.disable()
    world.barrier()
    world.synchronize()
    start = time.perf_counter_ns()
    marks.add()
    for index in range(first_step, first_step + steps):
        loss = step(index)
        marks.add()
    enqueued = time.perf_counter_ns()
    world.synchronize()
    stop = time.perf_counter_ns()
    gc.enable()
    record = {
        "seconds": (stop - start) / 1e9,
        "enqueue_seconds": (enqueued - start) / 1e9,
        "step_seconds": marks.intervals(),
        "loss": float(loss),
    }
    return world.gather(record)


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
