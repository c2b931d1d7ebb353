"""The numerics gate and the FLOP count: the first steps again in eager float32, after everything has been measured.

The model is built a second time from the same seed, in fp32, eager, contiguous; its first losses are the reference for those
of the measured model. In inference they are computed from the outputs of the step that was timed, outside the windows. This
runs last, so that it affects neither the cold start nor the peak memory of the measurement.
"""

import argparse
import contextlib
import gc
import math

import torch

import failures
import families
import measure
import precision

FIRST_STEP = {"fp32": 2e-5, "tf32": 1e-2, "amp": 1e-2, "amp-bf16": 8e-2}
"""Largest relative difference of the very first loss, which depends on the forward pass alone: several times the effect of
rounding in ResNet-50 with batches of 4 (2e-6 between memory formats, 2e-2 in bfloat16), whose batch norms amplify it most."""
LATER_STEPS = 0.3
"""The same after updates, and where dropout draws other masks than the reference: training is chaotic (a difference of
3e-7 was 4e-2 two steps later), so that only gross errors show."""


def check(args, world, losses):
    """Compare `losses` (one list per rank, from the very first step) with the reference; returns the record.

    It holds both sequences, their differences, the tolerances, whether they agree and the FLOPs per item; what is unknown
    is None, and `error` says why. A float32 model may not fit where the measured one did: then there is no reference.
    """
    own = _reference_arguments(args)
    count = args.reference_steps
    record = {"flops_per_item": None, "flops_scope": "forward and backward" if args.mode == "train" else "forward"}
    record["measured"] = [rank[:count] for rank in losses]
    problem = None
    try:
        model = _prepare(own, world)
        record["flops_per_item"] = _rehearse(own, world, model)
    except Exception as error:  # the figure has been measured; what is missing is reported, not raised
        problem = failures.describe(error)
    problem = next((p for p in world.gather(problem) if p), None)
    if problem:
        return dict(record, losses=None, differences=None, tolerances=None, agrees=None, error=problem)
    reference = world.gather(measure.losses_in_order(_step(own, world, world.distribute(own, model)), count))
    found, allowed = differences(reference, record["measured"]), tolerances(args, has_dropout(model), count)
    agrees = all(difference <= tolerance for difference, tolerance in zip(found, allowed))
    return dict(record, losses=reference, differences=found, tolerances=allowed, agrees=agrees, error=None)


def differences(reference, measured):
    """The largest relative difference over the ranks, for each step; 1e9 where a loss is not finite."""
    found = []
    for step in range(min(len(reference[0]), len(measured[0]))):
        pairs = [(r[step], m[step]) for r, m in zip(reference, measured)]
        relative = [abs(m - r) / max(abs(r), 1e-6) for r, m in pairs]
        found.append(max(x if math.isfinite(x) else 1e9 for x in relative))
    return found


def tolerances(args, dropout, count):
    """The tolerance of each step; wide from the first if dropout can't use the reference's masks."""
    same_masks = args.precision == "fp32" and not args.compile and args.attention == "eager"
    first = LATER_STEPS if dropout and args.mode == "train" and not same_masks else FIRST_STEP[args.precision]
    later = LATER_STEPS if args.mode == "train" else first
    return [first] + [later] * (count - 1)


def has_dropout(model):
    return any("Dropout" in type(m).__name__ and getattr(m, "p", 0) > 0 for m in model.modules())


def _reference_arguments(args):
    changes = {"precision": "fp32", "compile": False, "channels_last": False, "attention": "eager"}
    return argparse.Namespace(**dict(vars(args), **changes))


def _prepare(own, world):
    gc.collect()
    if world.device.type == "cuda":
        torch.cuda.empty_cache()
    torch.manual_seed(own.seed)
    precision.set_knobs("fp32", world.device)
    model, _ = families.of(own.model).build(own, world.device)
    return model.train(own.mode == "train")


def _step(own, world, model):
    return measure.make_step(own, world, families.of(own.model), model, families.batches(own, world.device))


def _rehearse(own, world, model):
    """One step of this rank alone, with all the memory that later steps need, so that no rank fails while others wait for it.

    Returns its FLOPs per item, or None where torch has no counter (before 2.1). Every multiplication and every addition
    counts, element-wise operations don't (torch.utils.flop_counter). Afterwards, weights and random states are as before.
    """
    weights = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    states = torch.get_rng_state(), torch.cuda.get_rng_state(world.device) if world.device.type == "cuda" else None
    room = torch.empty(families.gradient_bytes(model) if world.size > 1 else 0, dtype=torch.uint8, device=world.device)
    alone = argparse.Namespace(**dict(vars(own), parallel="independent"))
    step = _step(alone, world, model)
    counter = _flop_counter()
    with counter or contextlib.nullcontext():
        step.run(0)
    world.synchronize()
    del room, step
    model.zero_grad(set_to_none=True)
    model.load_state_dict(weights)
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1], world.device)
    return counter.get_total_flops() / own.batch if counter else None


def _flop_counter():
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        return None
    return FlopCounterMode(display=False)
