"""Steps that leave parts out by chance (LayerDrop, stochastic depth, an early exit): no single one tells the work of all."""

import collections
import statistics

import torch

import chance
import extras
import families
import measurements
from proofs import arithmetic

PASSES = 32
"""Forward passes by which the mean work and its scatter are known."""
SAME = 1e-6
"""Relative differences of equal work."""

SLIGHT = 0.02
"""Work that scatters by no more is as good as equal for the time that a step takes."""

Varying = collections.namedtuple("Varying", "per_item deviation")
"""FLOPs of the forward pass of an item, the mean over PASSES, and the standard deviation of a pass, relative to it."""


def look(args, family, model, batch):
    """Return a Varying where forward passes of one batch differ in their work; else None. No model of models.json does so."""
    facts = families.facts_of(args)
    is_listed = bool(facts) and "is_users" not in facts
    if is_listed or not measurements.in_training_mode(args) or not arithmetic.CAN_WATCH or args.parallel == "fsdp":
        return None
    what = "whether each step does the same work"
    counts = extras.attempt(what, lambda: _counts(args, family, model, batch, min(arithmetic.FEW, args.batch)))
    if not counts or max(counts) - min(counts) <= SAME * max(counts):
        return None
    counts = extras.attempt(what, lambda: _counts(args, family, model, batch, args.batch)) or counts  # some work is per step
    mean = statistics.fmean(counts)
    return Varying(mean, statistics.stdev(counts) / mean)


def _counts(args, family, model, batch, items):
    """Return the FLOPs per item of the passes on so many items; nothing where they can't be counted."""
    few = {name: tensor[:items] for name, tensor in batch.items()}
    counts = []
    with torch.random.fork_rng(devices=[]), families.quiet(model), torch.no_grad():
        chance.seed(args.seed)  # all launches draw the same passes
        for _ in range(PASSES):
            watched = arithmetic.Watched()
            with watched:
                family.forward(model, few)
            if watched.uncounted:
                return []
            counts.append(sum(watched.flops.values()) / items)
    return counts


def mean_of_steps(varying, flops, forward, items):
    """Return the FLOPs of the mean step from those of one, of which `forward` are its forward pass of `items`."""
    return flops * varying.per_item * items / forward if varying and flops and forward else flops


def remarks(varying):
    """Say that the work varies and which figure stands for it."""
    text = "each step leaves parts out by chance: the FLOPs of one vary by %.2g %%, and their mean over %d passes counts"
    return [text % (100 * varying.deviation, PASSES)] if varying else []


UNKNOWN = "whether every step of the windows changed all parameters: steps leave parts out by chance"
