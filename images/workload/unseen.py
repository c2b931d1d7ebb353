"""Batches that no step has seen: the timed windows are held against steps on them, and requests are made of them.

In the windows few batches rotate, so whatever keeps results by input looks thousands of times as fast as it is. Right after the
windows, steps on new batches are timed in the same way. Where they take longer, steps on the old batches and on new ones are
timed alternately, so that a machine that was disturbed meanwhile is no finding. The host judges (facts/plausible.py).
"""

import argparse
import itertools
import random
import statistics
from time import perf_counter

import torch

import families
import measure

STEPS, ROUNDS = 3, 5
"""How many new batches are timed together; how often more of them are timed at most, alternately with the old ones, while the
new ones take longer."""
LONG_SECONDS = 0.1
"""A step of at least this is told from a shorter one by itself: then one new batch is timed at a time."""
LONGER = 1.2
"""Ratio to the mean step above which steps take longer."""
MOST_NUMBERS = 4e6
"""Random numbers that are drawn for STEPS batches at most (0.1 s). Where the batches need more, fewer items are drawn and each
stands in its batch several times, in random order."""
SECONDS = 0.05
"""Time for which new batches are drawn for requests of one kind. After it, each request has one item replaced."""
TRIES = 100
"""Random items that are tried until a batch has new content."""
_SEED = 10**9
"""Distance between the seeds of a rank's old and new batches."""
NEW, OLD = "unseen", "seen"


def _identity(tensor):
    return tensor


class Unseen:
    """The new batches of one rank. `step` runs them: they stand in `step.batches` behind the batches that it has seen.
    `problem`: why the device has no memory for them, the same on all ranks; None if it has.
    """

    def __init__(self, args, world, step):
        self._args, self._world, self._device, self._step = args, world, world.device, step
        self._like, self._old = step.batches[0], len(step.batches)
        seed = families.seed_of(args) + _SEED
        self._generator, self._random = torch.Generator().manual_seed(seed), random.Random(seed)
        self._varies = all(tensor.layout is torch.strided and not tensor.is_quantized for tensor in self._like.values())
        share = MOST_NUMBERS / STEPS / sum(tensor.numel() for tensor in self._like.values()) if self._varies else 1.0
        self._size = families.batch_of_step(args)
        self._items = max(1, int(self._size * min(1.0, share)))
        self.problem = self._find_shortage()
        self._drawn, self._newest, self._used, self._placed = [], (), set(), []
        self._cost, self._turn = 0.0, 0

    def _find_shortage(self):
        """Return the first shortage of memory of any rank, the same on all ranks; None if no rank has one."""
        return next(filter(None, self._world.gather(self._shortage_here())), None)

    def _shortage_here(self):
        """Say how much memory this rank's device lacks, or return None: an allocation that fails in a step ends the launch."""
        free = self._world.kind.free_bytes()
        if free is None:
            return None
        needed = 2 * STEPS * sum(tensor.numel() * tensor.element_size() for tensor in self._like.values())
        return "new batches need %d MB on the device, %d MB are free" % (needed >> 20, free >> 20) if free < needed else None

    def _place_batches(self, count):
        """Place new batches beside the earlier ones, whose places in memory a cache would know."""
        self._placed += [self._draw_batch(self._device)[1] for _ in range(count)]
        self._step.batches[self._old :] = self._placed[-count:]

    def drop(self):
        """Leave the step the batches that it had."""
        self._placed.clear()
        del self._step.batches[self._old :]

    def steps(self, windows):
        """Time steps on new batches; yield (phase, number, records of the ranks). `windows`: the timed ones."""
        new, old = [], []
        shortest = min(min(rank["step_seconds"]) for ranks in windows for rank in ranks)
        count = 1 if shortest >= LONG_SECONDS else STEPS
        while not new or (len(old) < ROUNDS and _take_longer(new, old or windows) and not self._find_shortage()):
            if new:
                old.append(measure.window(self._world, self._step, self._old, 0))
                yield OLD, len(old) - 1, old[-1]
            self._place_batches(count)
            new.append(measure.window(self._world, self._step, count, self._old))
            yield NEW, len(new) - 1, new[-1]

    def on_device(self):
        """Yield without end the number in `step.batches` of a batch with new content, which stands behind the step's own. Where
        the device has no memory for new batches, yield the numbers of the step's own in turn.
        """
        if self.problem:
            yield from itertools.cycle(range(self._old))
        for batch in self._yield_batches(self._device):
            self._step.batches[self._old :] = [batch]
            yield self._old

    def in_host_memory(self):
        """Return an endless generator of batches with new content in the host's memory, pinned for a GPU."""
        return self._yield_batches(torch.device("cpu"), self._world.kind.pinned)

    def _yield_batches(self, device, place=_identity):
        """Yield newly drawn batches for SECONDS, then the last one with another item each time."""
        spent, rows, varied = 0.0, (), None
        while True:
            if not self._varies or not self._drawn or spent + self._cost <= SECONDS:
                (rows, batch), varied = self._draw_batch(device), None
                batch, spent = _map_tensors(place, batch), spent + self._cost
            else:
                if varied is None:
                    rows, varied = self._newest, _map_tensors(place, self._assemble_batch(device))
                rows, batch = self._replace_item(rows, varied), varied
            yield batch

    def _draw_batch(self, device):
        """Draw items that no other batch has; return their numbers and a batch of them."""
        begin = perf_counter()
        few = argparse.Namespace(**dict(vars(self._args), batch=self._items))
        self._drawn.append(families.draw(few, self._generator))
        rows = range(self._items * (len(self._drawn) - 1), self._items * len(self._drawn))
        is_whole = self._items == self._size
        self._newest = tuple(rows if is_whole else self._random.choices(rows, k=self._size))
        self._used.add(self._newest)
        batch = _map_tensors(lambda tensor: tensor.to(device), self._drawn[-1]) if is_whole else self._assemble_batch(device)
        self._cost = perf_counter() - begin
        return self._newest, batch

    def _assemble_batch(self, device):
        """Build the newest batch in tensors of its own."""
        rows = torch.tensor([row % self._items for row in self._newest], device=device)
        items = _map_tensors(lambda tensor: tensor.to(device).index_select(0, rows), self._drawn[-1])
        return {name: tensor.to(device, copy=True).copy_(items[name]) for name, tensor in self._like.items()}

    def _replace_item(self, rows, batch):
        """Replace an item of `batch`, the next one each time, so that no batch had the same items in this order. Return the
        numbers of its items.
        """
        self._turn += 1
        at = self._turn // 2 % self._size  # two kinds of requests alternate
        for _ in range(TRIES):
            item = self._random.randrange(self._items * len(self._drawn))
            now = (*rows[:at], item, *rows[at + 1 :])
            if now not in self._used:
                break
        drawn = self._drawn[item // self._items]
        for name, tensor in batch.items():
            tensor[at].copy_(drawn[name][item % self._items])
        self._used.add(now)
        return now


def _map_tensors(change, batch):
    return {name: change(tensor) for name, tensor in batch.items()}


def _take_longer(new, old):
    """Check whether all of `new` take some rank longer than any of `old`. Each is the records of the ranks in order."""
    return any(
        min(statistics.median(records[rank]["step_seconds"]) for records in new)
        > LONGER * max(statistics.mean(records[rank]["step_seconds"]) for records in old)
        for rank in range(len(new[0]))
    )
