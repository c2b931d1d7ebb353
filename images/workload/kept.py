"""What each step leaves: one number of each tensor that it gives, or the tokens that it chose. It shows that this step computed
what the others did.
"""

import itertools
import random

import torch

import families

MOST_TENSORS = 16
"""Tensors of a step's outputs of which a number is kept, the first ones."""


def tensors_of(outputs):
    """Return the tensors of which a number is kept."""
    tensors = (tensor for tensor in families.floats_of(outputs) if tensor.layout is torch.strided and tensor.numel())
    return list(itertools.islice(tensors, MOST_TENSORS))


class Kept:
    """The numbers of the steps since the last `take`, by the number of their batch. Where in a tensor the number stands is
    drawn anew in each launch, by a seed that nothing else knows.

    Keeping is part of the step: a number that is computed only when it is read is computed there. On a GPU it is a kernel in
    the device's queue, for which nothing waits.
    """

    UNLIKE = "step %d gave other outputs for a batch than a step before: a number of them is %.6g, and was %.6g"

    def __init__(self):
        self._random, self._places, self._steps = random.SystemRandom(), {}, []

    def keep(self, index, outputs):
        """Keep a number of each real tensor in `outputs`, which are those of a step on batch `index`."""
        self._steps.append((index, self.numbers(outputs)))

    def numbers(self, outputs):
        """Return the number of each real tensor in `outputs`, from the places that are kept."""
        return [self._number(*pair) for pair in enumerate(tensors_of(outputs))]

    def _number(self, position, tensor):
        key = position, tensor.shape
        if key not in self._places:
            self._places[key] = tuple(self._random.randrange(size) for size in tensor.shape)
        number = tensor.detach()[self._places[key]]
        return number.item() if tensor.device.type == "cpu" else number.clone()

    def take(self):
        """Return (index, numbers) of each step, and forget them. What is in a device's memory is read here."""
        steps, self._steps = self._steps, []
        return [(index, [complex(number) for number in numbers]) for index, numbers in steps]

    @staticmethod
    def differ(then, now, sizes, most):
        """Return (now, then) of the first numbers that differ by more than `most`, relative to themselves or the size of their
        tensor, or how many there are; None if all agree.
        """
        if len(then) != len(now):
            return len(now), len(then)
        pairs = ((a, b) for a, b, size in zip(then, now, sizes) if not abs(a - b) <= most * max(abs(a), size))
        return next(((abs(b), abs(a)) for a, b in pairs), None)


AGREE = 0.75
"""The least share of tokens that are chosen again for the same prompt: two of nearly equal logits may change places."""


class Chosen(Kept):
    """The same of generation: the token of the largest logit at each place that has a next step, which waits for it."""

    UNLIKE = "request %d chose other tokens for a prompt than one before: of %d, %d are the same"

    def keep(self, index, tokens):
        self._steps.append((index, torch.stack(tokens)))

    def take(self):
        steps, self._steps = self._steps, []
        return [(index, tokens.flatten().tolist()) for index, tokens in steps]

    @staticmethod
    def differ(then, now, sizes, most):
        same = sum(a == b for a, b in zip(then, now))
        return None if same >= AGREE * max(len(then), len(now)) else (len(now), same)
