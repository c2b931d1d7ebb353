"""What a launch measures: one module for each value of --mode; a new file is a new mode, for the host too.

A mode's module has these:

- ``MODE``, a literal, since the host reads it without torch (matrix/factors.py): whether it `trains` the model; whether its
  figure is timed `windows` of steps, which are proven; what is `timed`, for the record; the `noun` that readers see, and the
  `verb`: what a model does
- ``make_step(args, world, family, model, batches)``: a measure.Step, which is one round of all that the mode does; `model`: as
  the runtime prepared it. The warm-up is made of such steps
- ``streams(args, world, step, pace, new)``: lines, each an event and its fields, of what is timed after the windows. `pace`:
  the seconds of a step; `new`: an unseen.Unseen, which has batches that no step has seen

A mode without a model has a ``launch`` in place of the last two, which is all of its launch after the process group is there
(micro.py).

requests.py is a measurement that a mode's `streams` may give. `stream` makes the lines of any other one.
"""

import importlib
import os

PIECES_AT_ONCE = 16000
"""Most pieces on one line, which the host limits to 1 MB."""


def names():
    """Return the values of --mode: the names of the modules with a MODE."""
    folder = os.path.dirname(os.path.abspath(__file__))
    files = sorted(name for name in os.listdir(folder) if name.endswith(".py") and name != "__init__.py")
    return [name[:-3] for name in files if _has_mode(os.path.join(folder, name))]


def _has_mode(path):
    with open(path, encoding="utf-8") as file:
        return any(line.startswith("MODE = ") for line in file)


def of(args):
    """Return the module of the mode of `args`."""
    return importlib.import_module("measurements." + args.mode)


def trains(args):
    """Check whether the mode of `args` trains the model."""
    return of(args).MODE["trains"]


def in_training_mode(args):
    """Check whether the model runs in training mode, with dropout and batch statistics: always where it trains."""
    return trains(args) or not args.eval


def stream(world, phase, unit, pieces, edges):
    """Return the lines of one phase: pieces of work that each rank timed one by one.

    `pieces`: of this rank, for each piece in order: its `items`, whose name is `unit`, its `seconds`, and if pieces belong to
    requests, the number of its request in `requests`. `edges`: when the first began and the last ended, on the clock that the
    host shares (time.monotonic).
    """
    lines = []
    for rank, (rows, (begin, end)) in enumerate(world.gather((pieces, edges))):
        fields = {"phase": phase, "unit": unit, "rank": rank, "start_monotonic_seconds": begin, "stop_monotonic_seconds": end}
        for first in range(0, len(rows["seconds"]), PIECES_AT_ONCE):
            part = {name: row[first : first + PIECES_AT_ONCE] for name, row in rows.items()}
            lines.append(("stream", dict(fields, **part)))
    return lines
