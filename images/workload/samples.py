"""The lines of timed steps: one "sample" for each block or window, after "steps" lines where it has many."""

import math
import os

from channel import Numerics

STEPS_AT_ONCE = 16000
"""Most steps of all ranks together whose times and losses stand on one line, which the host limits to 1 MB."""


def emit(channel, items, phase, window, ranks):
    """Write the times and losses of a block of the warm-up or a window. `items`: of a step; `ranks`: the records that
    measure.window returned. The edges are those of the ranks on this node, since another node has a clock of its own.

    Raises Numerics if a loss is not finite or GradScaler skipped all steps of a window, after the line is written.
    """
    count, here = len(ranks[0]["step_seconds"]), ranks[: int(os.environ.get("LOCAL_WORLD_SIZE", len(ranks)))]
    losses = [r["losses"] for r in ranks]
    steps = {"step_seconds": [r["step_seconds"] for r in ranks], "losses": losses}
    at_once = max(1, STEPS_AT_ONCE // len(ranks))
    if count > at_once:
        for first in range(0, count, at_once):
            part = {name: [row[first : first + at_once] for row in rows] for name, rows in steps.items()}
            channel.emit("steps", phase=phase, window=window, first=first, **part)
        steps = {}
    channel.emit(
        "sample",
        phase=phase,
        window=window,
        steps=count,
        items=items * count,
        start_monotonic_seconds=min(r["start_monotonic_seconds"] for r in here),
        stop_monotonic_seconds=max(r["stop_monotonic_seconds"] for r in here),
        seconds=[r["seconds"] for r in ranks],
        enqueue_seconds=[r["enqueue_seconds"] for r in ranks],
        loss=[rank[-1] if rank else None for rank in losses],
        sharing=[r["sharing"] for r in ranks],
        **steps,
        **{name: [r[name] for r in ranks] for name in ("scale", "skipped_steps") if name in ranks[0]},
    )
    if phase == "measure" and any(r.get("skipped_steps") == count for r in ranks):
        raise Numerics("GradScaler skipped all %d steps of window %d: nothing was trained" % (count, window))
    for rank, row in enumerate(losses):
        for step, loss in enumerate(row, count - len(row)):
            if not math.isfinite(loss):
                raise Numerics("the loss of rank %d is not finite in step %d of %s window %d" % (rank, step, phase, window))
