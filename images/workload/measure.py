"""The measurement of a figure, in the order of a launch: the step, the first step, the warm-up, the timed window.

Only this code runs while a clock does (docs/method.md, "A launch"), and the steps and streams of measurements/. The models are
in families/, the runtimes that run them in runtimes/.
"""

import collections
import contextlib
import gc
import math
from time import monotonic, perf_counter_ns

import sharing
import steady

Step = collections.namedtuple("Step", "run losses enqueue taken optimizer scaler outputs serve batches kept", defaults=(None,))
"""``run(index)`` does one step on batch `index` of `batches` (modulo their number) and returns nothing. ``losses()``, called
outside the window, returns the losses since its last call: one per step in training, that of the last step in inference, none
of a step without a loss. ``enqueue(index)`` is the part of the step that submits work without waiting for the device.
``taken()``: with a GradScaler, which skips some steps, how many the optimizer has done so far; else None. For the proofs,
training has its `optimizer` and `scaler`, and inference ``outputs()``, of the last step; else they are None. ``serve(batch)``,
in inference: from a batch in the host's memory to the outputs in the host's memory, which it returns. `kept`, in inference: a
kept.Kept of all steps."""


def first_step(world, step):
    """Run the first step, which compiles and allocates what later steps reuse."""
    run_steps(world, step, 1, 0)


WarmUp = collections.namedtuple("WarmUp", "steps pace series")
"""`steps` done, `pace`: the seconds per step of the fastest block, `series`: the step times (steady.Series)."""


BLOCKS = 20
"""About so many blocks fill the seconds of a warm-up: between two the host collects garbage and speaks for some 50 ms, in which
the device cools. Blocks of eight copies of 60 µs took a minute for half a second of warm-up."""


def warm_up(args, world, step, tell):
    """Run blocks of steps: at least `warmup_steps` and `warmup_seconds`.

    The first block is in no test for a drift, since libraries choose their algorithms in it. `tell` is called with each block's
    records, as `window` returns them. Return a WarmUp.
    """
    size = max(1, math.ceil(args.warmup_steps / 2))
    done, seconds, pace, series = 0, 0.0, math.inf, steady.Series()
    while done < args.warmup_steps or seconds < args.warmup_seconds:
        ranks = window(world, step, size, done)
        tell(ranks)
        if done:
            series.add(ranks)
        slowest = max(r["seconds"] for r in ranks)
        done, seconds, pace = done + size, seconds + slowest, min(pace, slowest / size)
        size = max(size, math.ceil(args.warmup_seconds / BLOCKS / pace))
    return WarmUp(done, pace, series)


def timed_windows(args, world, step, begun, tell, ended):
    """Time the windows of the figure when the machine is steady; return a steady.Steady. `begun`: the WarmUp; `tell`: as in
    `warm_up`; `ended`: as in `window`.

    Batches rotate on and on from the warm-up, so that the number of a step says which batch it had.
    """
    count, done, first = max(args.steps, math.ceil(1.1 * args.seconds / begun.pace)), begun.steps, begun.steps

    def go_on(size):
        nonlocal first
        first += size
        return window(world, step, size, first - size, ended)

    def time_windows():
        return [go_on(count) for _ in range(args.windows)]

    def more(seconds):
        nonlocal done
        size = max(1, math.ceil(seconds / begun.pace))
        if args.warmup_cap and done + size > args.warmup_cap:
            return None
        done += size
        return go_on(size)

    return steady.measure(begun.series, args.warmup_cap_seconds, time_windows, more, tell)


def _do_nothing():
    pass


def window(world, step, steps, first, ended=_do_nothing):
    """Time `steps` steps, which all ranks begin together; return one record per rank, in rank order: that of `run_steps`
    with the `losses`, and with how the rank shared the machine meanwhile (`sharing`). `ended` is called right after the steps,
    before the ranks wait for each other.
    """
    taken = step.taken()
    with no_garbage_collection():
        before = sharing.read()
        world.barrier()
        record = run_steps(world, step, steps, first)
        record["sharing"] = sharing.since(before)
    ended()
    record["losses"] = step.losses()
    if taken is not None:
        record.update(scale=step.scaler.get_scale(), skipped_steps=steps - step.taken() + taken)
    return world.gather(record)


def run_steps(world, step, steps, first):
    """Run `steps` steps, with one device synchronisation before and one after; return this rank's record. The first, the
    timed and the proven steps are run here: by what called it, none can tell whether its time counts.

    The record: wall `seconds` of the window, `start_monotonic_seconds` and `stop_monotonic_seconds` (its edges on the clock
    that the host shares), `enqueue_seconds` (until the last step was submitted to the device) and `step_seconds` (`steps`
    numbers, read after the window). Nothing else happens inside the window.
    """
    run, mark, marks = step.run, world.kind.mark, []
    world.synchronize()
    begin = monotonic()
    start = perf_counter_ns()
    marks.append(mark())
    for index in range(first, first + steps):
        run(index)
        marks.append(mark())
    enqueued = perf_counter_ns()
    world.synchronize()
    stop = perf_counter_ns()
    end = monotonic()
    return {
        "seconds": (stop - start) / 1e9,
        "start_monotonic_seconds": begin,
        "stop_monotonic_seconds": end,
        "enqueue_seconds": (enqueued - start) / 1e9,
        "step_seconds": [world.kind.seconds(*pair) for pair in zip(marks, marks[1:])],
    }


@contextlib.contextmanager
def no_garbage_collection(collect=True):
    if collect:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
