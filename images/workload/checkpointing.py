"""Activation checkpointing: each block keeps its inputs alone, and its activations are computed again in the backward pass
(arXiv:1604.06174; torch.utils.checkpoint without reentrance).

Blocks are those that sharded.blocks finds. Only forward functions are replaced, so that names, types and hooks stay. Random
numbers are drawn again from the same state: dropout has the same mask.
"""

import contextlib
import functools

import torch.utils.checkpoint

import sharded
from channel import Unsupported

_again = []
"""While `counting`: the set of the blocks that were computed again. Else empty, as torch.compile traces it."""


def apply(model):
    """Let every block of `model` be computed again; return how many blocks there are."""
    blocks = list({id(block): block for block in sharded.blocks(model)}.values())
    if not blocks:
        raise Unsupported("nothing was checkpointed: this model has no list or sequence of blocks")
    for number, block in enumerate(blocks):
        block.forward = _recomputed(number, block.forward)
    for module in model.modules():  # a cache of keys and values would get those of a block twice
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False):
            config.use_cache = False
    return len(blocks)


def _recomputed(number, forward):
    @functools.wraps(forward)
    def run(*given, **named):
        called = functools.partial(forward, **named)
        if _again:
            called = _noting(number, called)
        return torch.utils.checkpoint.checkpoint(called, *given, use_reentrant=False)

    return run


def _noting(number, called):
    """Return `called`, whose second call notes the block."""
    calls = []

    def noted(*given):
        if calls and _again:
            _again[0].add(number)
        calls.append(number)
        return called(*given)

    return noted


@contextlib.contextmanager
def counting():
    """Yield a set that gets the numbers of the blocks that eager steps compute again."""
    _again.append(set())
    try:
        yield _again[0]
    finally:
        _again.clear()


def refuse(record):
    """Raise Unsupported where a step computes no block again: a figure would have a wrong name. `record`: of one rank."""
    if record["recomputed"] == 0:
        raise Unsupported("nothing was checkpointed: a step computes none of %d blocks again" % record["blocks"])


def remarks(record):
    """Return what the reader of a figure must know, in words."""
    left = record["blocks"] - (record["recomputed"] or 0)
    if record["recomputed"] is None:
        return ["it could not be seen whether blocks are computed again"]
    return ["%d of %d blocks are not computed again in the backward pass" % (left, record["blocks"])] if left else []
