"""Differences of the outputs of an inference from those of eager float32, as asked of a backend, and their limits.

There are four figures, since none is enough alone: a cosine of 0.99997 hid a difference of 0.53 between outputs of up to 112.
"""

import math

import torch

from proofs import agreement
from recipes import with_blocks

LIMITS = with_blocks({
    "fp32": (1e-4, 0.99999), "tf32": (2e-2, 0.9999), "amp": (2e-2, 0.9999), "half": (2e-2, 0.9999),
    "amp-bf16": (1e-1, 0.998), "bf16-weights": (1e-1, 0.998), "int8": (2e-1, 0.99), "float8": (3e-1, 0.98), "int4": (5e-1, 0.9),
})  # fmt: skip
"""The largest relative difference and the least cosine, unless the precision's own noise on this model is more. Seen in fp32:
1e-6 (ONNX Runtime and OpenVINO, ResNet-50 and BERT); 5e-3 where OpenVINO silently computed in bfloat16."""
TOP1 = with_blocks({
    "fp32": 0.99, "tf32": 0.9, "amp": 0.9, "half": 0.9, "amp-bf16": 0.7, "bf16-weights": 0.7, "int8": 0.5, "float8": 0.5,
    "int4": 0.2,
})  # fmt: skip
"""The least share of rows whose largest output is at the same index."""
ENOUGH = 20
"""Fewer rows are only judged in fp32: where two outputs are nearly equal, rounding alone decides which is the largest."""
_WORST = 1e300
"""Stands for a difference that is not finite."""


def figures(measured, reference):
    """Compare two lists of tensors: the largest absolute difference; the largest relative one, to the largest output of the
    tensor; the least cosine of two tensors; `top1`: the share of `rows` with the same largest output (None: there are no rows).
    """
    if [t.shape for t in measured] != [t.shape for t in reference]:  # the number of boxes that a detector finds varies
        return {"largest_absolute": _WORST, "largest_relative": _WORST, "cosine": 0.0, "top1": None, "rows": 0}
    pairs = [(m.to(r.device).double(), r.double()) for m, r in zip(measured, reference) if r.numel()]
    if not pairs:
        return {"largest_absolute": 0.0, "largest_relative": 0.0, "cosine": 1.0, "top1": None, "rows": 0}
    differences = [float((m - r).abs().max()) for m, r in pairs]
    largest = [float(r.abs().max()) for _, r in pairs]
    same = [(_index_of_largest(m) == _index_of_largest(r)).flatten() for m, r in pairs if r.dim() > 1 and r.shape[-1] > 1]
    rows = sum(map(len, same))
    return {
        "largest_absolute": _finite(max(differences)),
        "largest_relative": _finite(max(a / max(s, 1e-30) for a, s in zip(differences, largest))),
        "cosine": min(_cosine(m, r) for m, r in pairs),
        "top1": sum(int(tensor.sum()) for tensor in same) / rows if rows else None,
        "rows": rows,
    }


def limits(arithmetic, noise):
    """Return the limits; `noise`: the figures of the precision's own effect in eager mode."""
    relative, cosine = LIMITS[arithmetic]
    times = agreement.TIMES_NOISE[arithmetic]
    return {
        "relative_allowed": min(max(relative, times * noise["largest_relative"]), 1.0),
        "cosine_least": max(min(cosine, 1 - times * (1 - noise["cosine"])), 0.5),
    }


def problems(arithmetic, found, allowed, against):
    """Return texts about what is wrong with `found`, the figures of outputs held `against` others."""
    texts = []
    if not found["largest_relative"] <= allowed["relative_allowed"]:
        text = "the outputs differ from %s by up to %.2g (%.2g of the largest output), more than %.2g of it"
        texts.append(text % (against, found["largest_absolute"], found["largest_relative"], allowed["relative_allowed"]))
    if not found["cosine"] >= allowed["cosine_least"]:
        texts.append(
            "the cosine of the outputs with %s is %.6f, less than %.6f" % (against, found["cosine"], allowed["cosine_least"])
        )
    is_judged = found["top1"] is not None and (arithmetic == "fp32" or found["rows"] >= ENOUGH)
    if is_judged and found["top1"] < TOP1[arithmetic]:
        texts.append(
            "the largest output is that of %s in only %.0f %% of %d rows" % (against, 100 * found["top1"], found["rows"])
        )
    return texts


def _index_of_largest(tensor):
    """Return the index of the largest in the last dimension (classes, positions, tokens); of [B, C, H, W] in the classes."""
    return tensor.argmax(1 if tensor.dim() == 4 else -1)


def _cosine(measured, reference):
    if not bool(torch.isfinite(measured).all()):
        return 0.0
    product = float(torch.dot(measured.flatten(), reference.flatten())) / max(float(measured.norm() * reference.norm()), 1e-300)
    return max(-1.0, min(1.0, product))


def _finite(value):
    return value if math.isfinite(value) else _WORST
