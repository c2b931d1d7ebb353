"""The step that is proven: an ordinary one after the windows, from where they left the model, on a batch that no step has seen.

Nothing is set back or seeded before it, and nothing has looked on: no code of the model can tell it from a timed step. What it
began from is kept, for eager float32 to begin there, too.
"""

import collections
import random

import families
import measurements
from proofs import deeds, pace

FULL = "full"
"""The value of --proof of a launch that is proven in full."""
BATCH = 1
"""Index at which the judged batch stands, not the first: a callable that returns its first result is found."""
Live = collections.namedtuple("Live", "deed start seed pace")
"""The deeds.Deed or deeds.Answer, the deeds.Start, the seed of the batch, and texts about a step that takes longer than timed
ones."""


def step(args, world, model, timed_step, usual):
    """Run the step; return the Live. `usual`: the pace.Usual of the timed ones."""
    look = deeds.training if measurements.trains(args) else deeds.inference

    def prove():
        seed = world.gather(random.SystemRandom().randrange(2**62))[0]
        with Placed(args, world, timed_step.batches, seed):
            prepare = deeds.Standing(world, model, timed_step)
            deed, seconds = look(world, model, timed_step, BATCH, prepare)
        return (deed, prepare.start, seed), seconds

    given, texts = pace.proven(world, timed_step, prove, usual)
    return Live(*given, pace=texts)


class Placed:
    """A context in which the batch of `seed` stands at BATCH, in place of another, so that it needs no more memory there."""

    def __init__(self, args, world, batches, seed):
        self._args, self._device, self._batches, self._seed = args, world.device, batches, seed

    def __enter__(self):
        other = self._batches[BATCH:][:1]
        self._kept = [{name: tensor.cpu() for name, tensor in batch.items()} for batch in other]
        other.clear()
        self._batches[BATCH:] = [None, *self._batches[BATCH + 1 :]]
        self._batches[BATCH] = families.batch_of(self._args, self._device, self._seed)

    def __exit__(self, *_error):
        rest = self._batches[BATCH + 1 :]
        del self._batches[BATCH:]
        self._batches += [{name: tensor.to(self._device) for name, tensor in batch.items()} for batch in self._kept] + rest
