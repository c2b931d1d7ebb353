"""The distance of two sets of gradients (or outputs, or changes) by group of parameters, and its tolerances.

A distance is relative: |measured - reference| / |reference| in the Euclidean norm over all elements of a group. It is 1 where
nothing was computed, and about 1.4 for the gradients of two unrelated batches.
"""

import math

import torch

from recipes import FLOAT8, with_blocks

GROUPS = 32
"""The largest number of groups of parameters."""
NEGLIGIBLE = 1e-3
"""A group's norm counts as at least this share of the whole: below it, a relative error says nothing."""
_BITS = with_blocks({
    "fp32": 24, "tf32": 11, "amp": 11, "half": 11, "amp-bf16": 8, "bf16-weights": 8, "int8": 8, "float8": 6, "int4": 6,
    "bf16-master": 8,
})  # fmt: skip
_BITS.update(dict.fromkeys(FLOAT8, 8))
"""Bits of the significand; for quantized types, such that 8 roundings (below) are their effect on a small model's outputs. For
training in float8 those of bfloat16 around it: its own effect, which depends on the model, is the noise."""
ROUNDING = {name: 2.0**-bits for name, bits in _BITS.items()}
"""Half the distance of two neighbouring numbers, relative to them (unit roundoff)."""
TIMES_NOISE = {name: 16.0 if name == "fp32" else 4.0 for name in _BITS}
"""Tolerance over noise. The noise of fp32 is that of rounding the weights once, and a step rounds in every operation: a
compiled ResNet-18 was 3 times as far away. The noise of other precisions is their effect in eager mode; a compiled model
rounds elsewhere, which gave 0.95 times as much."""
JUMP = 0.05
"""The least tolerance of a model with rectifiers: a rounding error that switches one moves the gradient by a jump, which a
noise measured once may miss. Seen: 0.011 between memory formats (ResNet-18), 0.028 from rounding the weights (ResNet-50)."""
MOST = 0.4
"""No tolerance is larger: half a batch is 0.46 to 2 away (ResNet-18, ResNet-50, BERT), no gradient 1."""
COARSE = 0.3
"""A precision that moves more than this by itself leaves little room below MOST: what is too far may be held against it."""
OF_A_GROUP, MOST_OF_A_GROUP = 4.0, 0.8
"""A single group may be this many times as far away, but no further than this: its noise is less certain (a small group of
BERT in bfloat16 was five times its noise away). A group without a gradient is 1 away."""
LOST = dict.fromkeys(FLOAT8, 2.0)
"""So many times its noise a group may be away, even if that is further: the small gradient of a group can be lost in float8's
noise (0.97 of it in a layer of BERT-tiny) and then tells nothing. Groups with a noise of less than 0.5 are judged."""


def groups(names):
    """Return the group of each parameter: its module path, cut at the largest depth that gives at most GROUPS groups."""
    paths = [name.split(".")[:-1] or ["(model)"] for name in names]
    deepest = max(map(len, paths))
    by_depth = [[".".join(path[:depth]) for path in paths] for depth in range(1, deepest + 1)]
    few = [labels for labels in by_depth if len(set(labels)) <= GROUPS]
    return few[-1] if few else ["(model)"] * len(names)


def squares(tensors, labels):
    """Return the sum of squares of each group, in float64."""
    totals = dict.fromkeys(labels, 0.0)
    for tensor, label in zip(tensors, labels):
        totals[label] += square(tensor)
    return totals


def square(tensor):
    """Return the sum of squares in float64; of floating-point numbers without a copy in that type."""
    numbers = tensor if tensor.is_floating_point() else tensor.double()
    return float(torch.linalg.vector_norm(numbers, dtype=torch.float64)) ** 2


PIECE, PIECE_ON_GPU = 1 << 17, 1 << 24
"""Elements of a piece. Its copies in float64 stay in a CPU's cache; those of a large model take seconds to write and read."""


def in_pieces(*tensors):
    """Return an iterator over tensors of one shape piece by piece: tuples of flat tensors."""
    size = PIECE_ON_GPU if tensors[0].is_cuda else PIECE
    return zip(*(tensor.reshape(-1).split(size) for tensor in tensors))


def distances(measured, reference, labels):
    """Return the relative distance of each group, and of all together under None.

    A distance is infinite where a value isn't finite or the shapes differ (the number of boxes that a detector finds varies).
    """
    difference, size = dict.fromkeys(labels, 0.0), squares(reference, labels)
    for found, right, label in zip(measured, reference, labels):
        difference[label] += _squared_difference(found, right)
    whole = sum(size.values())
    relative = {label: _ratio(difference[label], max(size[label], NEGLIGIBLE**2 * whole)) for label in size}
    relative[None] = _ratio(sum(difference.values()), whole)
    return relative


def _squared_difference(measured, reference):
    if measured.shape != reference.shape:
        return math.inf
    pieces = in_pieces(measured.to(reference.device), reference)
    return sum(square(found.double() - right.double()) for found, right in pieces)


def _ratio(part, whole):
    ratio = math.sqrt(part / whole) if whole > 0 else math.inf
    return ratio if math.isfinite(ratio) else math.inf


def tolerances(precision, noise, has_rectifiers):
    """Return the largest allowed distance by group, under None for all together, from the precision's `noise` (distances)."""
    least = JUMP if has_rectifiers else 2.0**10 * ROUNDING["fp32"] if precision == "fp32" else 8 * ROUNDING[precision]
    allowed = {label: max(least, TIMES_NOISE[precision] * distance) for label, distance in noise.items()}
    whole = min(allowed.pop(None), MOST)
    most = {label: max(MOST_OF_A_GROUP, LOST.get(precision, 0) * noise[label]) for label in allowed}
    return {None: whole, **{label: min(OF_A_GROUP * distance, most[label]) for label, distance in allowed.items()}}


def too_far(found, allowed):
    """Return the groups (None: all together) whose distance is more than allowed, the worst first."""
    return sorted((label for label in found if not found[label] <= allowed[label]), key=lambda label: -found[label])
