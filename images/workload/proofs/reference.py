"""Eager float32: the same model from the same seed, its loss and gradients by plain automatic differentiation, and its FLOPs.

Shares no code with the timed step: no DDP, no optimizer, no autocast of precision.py, no backward(). What a runtime, a wrapper
or a setting does wrong there is not done here.
"""

import argparse
import contextlib

import torch

import families
import precision
from proofs import deeds

_HALF = {"amp": torch.float16, "amp-bf16": torch.bfloat16}
_SCALES = {"amp": (1024.0, 1.0)}
"""Of the loss, which keep small gradients in float16's range, as GradScaler does; the first that gives something finite."""


def arguments(args):
    """What the reference runs with."""
    changes = {"precision": "fp32", "compile": False, "channels_last": False, "attention": "eager"}
    return argparse.Namespace(**dict(vars(args), **changes))


def fresh(args):
    """The model as it was before its first step, on the CPU; its weights depend on the seed alone."""
    own = arguments(args)
    torch.manual_seed(own.seed)
    model, _ = families.of(own.model).build(own, torch.device("cpu"))
    return model.train(own.mode == "train")


class Reference:
    """The fresh model on the device, and one batch."""

    def __init__(self, args, world, model, index):
        self._args, self._own, self._world = args, arguments(args), world
        precision.set_knobs("fp32", world.device)
        self.family, self.model = families.of(args.model), model.to(world.device)
        batches = families.batches(self._own, world.device)
        self.batch = batches[index % len(batches)]

    def answer(self, counter=None):
        """The loss, and the gradients of all parameters in training, else the outputs."""
        torch.manual_seed(self._args.seed)
        with counter or contextlib.nullcontext():
            return self._answer()

    def rounded(self):
        """The same as the precision asked for rounds it, in eager mode; for fp32 from weights that were rounded once more."""
        name, device = self._args.precision, self._world.device
        if name == "fp32":
            self._round_weights()
        precision.set_knobs(name, device)
        try:
            for scale in _SCALES.get(name, (1.0,)):
                torch.manual_seed(self._args.seed)
                half = torch.autocast(device_type=device.type, dtype=_HALF[name]) if name in _HALF else None
                loss, found = self._answer(half, scale)
                if all(bool(torch.isfinite(one).all()) for one in found):
                    break
            return loss, found
        finally:
            precision.set_knobs("fp32", device)

    def _answer(self, rounding=None, scale=1.0):
        training = self._args.mode == "train"
        with torch.set_grad_enabled(training), rounding or contextlib.nullcontext():
            outputs = self.family.forward(self.model, self.batch)
            loss = self.family.loss(outputs, self.batch)
        if not training:
            return float(loss), deeds.tensors_of(outputs)
        parameters = [parameter.requires_grad_() for parameter in self.model.parameters()]
        found = torch.autograd.grad(loss * scale, parameters, allow_unused=True)
        return float(loss.detach()), [
            torch.zeros_like(p) if g is None else g.float() / scale for p, g in zip(parameters, found)
        ]

    def _round_weights(self):
        """Move each weight by up to one unit roundoff, either way."""
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in self.model.parameters():
                noise = 2 * torch.rand(parameter.shape, generator=generator) - 1
                parameter.mul_(1 + 2.0**-24 * noise.to(parameter.device))


def flop_counter():
    """Counts every multiplication and addition, element-wise operations not; None in torch before 2.1."""
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        return None
    return FlopCounterMode(display=False)
