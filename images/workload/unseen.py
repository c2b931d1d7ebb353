"""Batches that no step has seen: the timed windows are held against steps on them, and requests are made of them (latency.py).

In the windows few batches take turns. Whatever keeps results by input looks thousands of times as fast as it is. Right after
the windows, steps on new batches are timed as theirs were. Where they take longer, steps on the old batches and on new ones are
timed in turns, so that a machine that was disturbed meanwhile is no finding. The host judges (facts/plausible.py).
"""

import argparse
import itertools
import random
import statistics
import time

import torch

import families
import measure

STEPS, ROUNDS = 3, 5
"""New batches that are timed together; how often more are, in turns with the old ones, as long as the new ones take longer."""
LONGER = 1.2
"""By this ratio to the mean step."""
MOST_NUMBERS = 4e6
"""So many random numbers are drawn for STEPS batches at most (0.1 s). Where they need more, fewer items are drawn and each
stands in its batch several times, in random order."""
SECONDS = 0.05
"""For so long new batches are drawn for requests of one kind. Then each request has one item replaced."""
TRIES = 100
_SEED = 10**9
"""Between the seeds of a rank's old and new batches."""
NEW, OLD = "unseen", "seen"


def _itself(tensor):
    return tensor


class Unseen:
    """The new batches of one rank; `step`: what runs them, by `step.batches`, behind those that it has seen. `problem`: why the
    device has no room for them, the same on all ranks; None if it has.
    """

    def __init__(self, args, world, step):
        self._args, self._world, self._device, self._step = args, world, world.device, step
        self._like, self._old = step.batches[0], len(step.batches)
        seed = args.seed + 1000 * args.rank + _SEED
        self._generator, self._random = torch.Generator().manual_seed(seed), random.Random(seed)
        self._varies = all(one.layout is torch.strided and not one.is_quantized for one in self._like.values())
        share = MOST_NUMBERS / STEPS / sum(one.numel() for one in self._like.values()) if self._varies else 1.0
        self._items = max(1, int(args.batch * min(1.0, share)))
        self.problem = self._why_no_room()
        self._drawn, self._newest, self._known, self._placed = [], (), set(), []
        self._cost, self._turn = 0.0, 0

    def _why_no_room(self):
        """The same on all ranks."""
        return next(filter(None, self._world.gather(self._lack())), None)

    def _lack(self):
        """Of memory on the device: an allocation that fails in a step would end the launch."""
        free = self._world.kind.free_bytes()
        if free is None:
            return None
        needed = 2 * STEPS * sum(tensor.numel() * tensor.element_size() for tensor in self._like.values())
        return "new batches need %d MB on the device, %d MB are free" % (needed >> 20, free >> 20) if free < needed else None

    def _renew(self):
        """Place new batches beside those before, whose places in memory would be known."""
        self._placed += [self._new(self._device)[1] for _ in range(STEPS)]
        self._step.batches[self._old :] = self._placed[-STEPS:]

    def drop(self):
        """Leave the step the batches that it had."""
        self._placed.clear()
        del self._step.batches[self._old :]

    def steps(self, windows):
        """Time steps on new batches; yields (phase, number, records of the ranks). `windows`: the timed ones."""
        new, old = [], []
        while not new or (len(old) < ROUNDS and _are_longer(new, old or windows) and not self._why_no_room()):
            if new:
                old.append(measure.window(self._world, self._step, self._old, 0))
                yield OLD, len(old) - 1, old[-1]
            self._renew()
            new.append(measure.window(self._world, self._step, STEPS, self._old))
            yield NEW, len(new) - 1, new[-1]

    def on_device(self):
        """Batches without end, none of which had that content before, each behind those of the step: its number. Where there
        is no room for them, those of the step in turn.
        """
        if self.problem:
            yield from itertools.cycle(range(self._old))
        for batch in self._endless(self._device):
            self._step.batches[self._old :] = [batch]
            yield self._old

    def in_host_memory(self):
        """The same in the host's memory, pinned for a GPU."""
        return self._endless(torch.device("cpu"), self._world.kind.pinned)

    def _endless(self, device, place=_itself):
        """New ones for SECONDS, then one with another item each time."""
        spent, rows, own = 0.0, (), None
        while True:
            if not self._varies or not self._drawn or spent + self._cost <= SECONDS:
                (rows, batch), own = self._new(device), None
                batch, spent = _each(place, batch), spent + self._cost
            else:
                if own is None:
                    rows, own = self._newest, _each(place, self._assembled(device))
                rows, batch = self._varied(rows, own), own
            yield batch

    def _new(self, device):
        """The numbers of items that no other batch has, and a batch of them."""
        begin = time.perf_counter()
        few = argparse.Namespace(**dict(vars(self._args), batch=self._items))
        self._drawn.append(families.draw(few, self._generator))
        rows = range(self._items * (len(self._drawn) - 1), self._items * len(self._drawn))
        is_whole = self._items == self._args.batch
        self._newest = tuple(rows if is_whole else self._random.choices(rows, k=self._args.batch))
        self._known.add(self._newest)
        found = _each(lambda one: one.to(device), self._drawn[-1]) if is_whole else self._assembled(device)
        self._cost = time.perf_counter() - begin
        return self._newest, found

    def _assembled(self, device):
        """The newest batch, in tensors of its own."""
        rows = torch.tensor([row % self._items for row in self._newest], device=device)
        items = _each(lambda one: one.to(device).index_select(0, rows), self._drawn[-1])
        return {name: one.to(device, copy=True).copy_(items[name]) for name, one in self._like.items()}

    def _varied(self, rows, batch):
        """Replace an item of `batch`, the next one each time, so that none had all of these in this order. Returns them."""
        self._turn += 1
        at = self._turn // 2 % self._args.batch  # two kinds of requests take turns
        for _ in range(TRIES):
            item = self._random.randrange(self._items * len(self._drawn))
            now = (*rows[:at], item, *rows[at + 1 :])
            if now not in self._known:
                break
        drawn = self._drawn[item // self._items]
        for name, tensor in batch.items():
            tensor[at].copy_(drawn[name][item % self._items])
        self._known.add(now)
        return now


def _each(change, batch):
    return {name: change(tensor) for name, tensor in batch.items()}


def _are_longer(new, old):
    """Whether all of `new` take some rank longer than any of `old`. Each is the records of the ranks in order."""
    return any(
        min(statistics.median(records[rank]["step_seconds"]) for records in new)
        > LONGER * max(statistics.mean(records[rank]["step_seconds"]) for records in old)
        for rank in range(len(new[0]))
    )
