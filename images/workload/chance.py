"""Random generators: the default ones of torch, Python and numpy, and those that a model keeps itself."""

import random
import sys

import torch


def seed(number):
    """Seed all default generators, numpy's only if something has imported it."""
    torch.manual_seed(number)
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number % 2**32)


def states(model):
    """Return the states of all generators that are attributes of `model` and its modules, in order."""
    return [read() for read, _ in _generators(model)]


def restore(model, kept):
    """Give the generators of `model` the states that `states` returned of it or of another instance."""
    for (_, write), state in zip(_generators(model), kept):
        write(state)


def _generators(model):
    """Return for each generator the functions that read and write its state."""
    pairs = [_access(value) for module in model.modules() for value in list(vars(module).values())]
    return [pair for pair in pairs if pair]


def _access(value):
    if isinstance(value, torch.Generator):
        return value.get_state, value.set_state
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return value.getstate, value.setstate
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(value, numpy.random.RandomState):
        return value.get_state, value.set_state
    if numpy and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    return None
