"""Eager float32: the same model from the same seed, its loss and gradients by plain automatic differentiation, and its FLOPs.

It shares no code with the timed step: no DDP, no optimizer, no autocast of precision.py. An error of a runtime,
a wrapper or a setting in the timed step does not occur here.
"""

import argparse
import contextlib
import math

import torch
from torch.autograd import backward

import chance
import devices
import failures
import families
import float8
import measurements
import precision
from kept import tensors_of as kept_tensors
from proofs import arithmetic, deeds, quantizing
from recipes import FLOAT8

_AUTOCAST = {"amp": torch.float16, "amp-bf16": torch.bfloat16, **dict.fromkeys(FLOAT8, torch.bfloat16)}
_WEIGHT_TYPES = {"half": torch.float16, "bf16-weights": torch.bfloat16, "bf16-master": torch.bfloat16}
_LOSS_SCALES = {"amp": (1024.0, 1.0)}
"""Factors of the loss to keep small gradients in float16's range, as in GradScaler; the first with finite results counts."""


def arguments(args):
    """Return the arguments of the reference."""
    changes = {
        "precision": "fp32",
        "runtime": "eager",
        "arithmetic": "fp32",
        "quantized": None,
        "compile": False,
        "channels_last": False,
        "attention": "eager",
        "checkpointing": False,
    }
    return argparse.Namespace(**dict(vars(args), **changes))


def fresh(args):
    """Build the model as it was before its first step, on the CPU; its weights depend on the seed alone."""
    reference_args = arguments(args)
    chance.seed(reference_args.seed)
    model, _ = families.build(reference_args, torch.device("cpu"))
    model.train(measurements.in_training_mode(reference_args))
    return precision.in_type(model, torch.float32) if args.precision in _WEIGHT_TYPES else model


DRAWS = 32
"""Seeds by which is known how far other random numbers move a loss."""


class Reference:
    """The fresh model on the device, and the batch of one step: which `seed` draws; None: the timed one of number `index`."""

    def __init__(self, args, world, model, index, seed):
        self._args, self._reference_args, self._world = args, arguments(args), world
        precision.set_knobs("fp32", world.device)
        self.family, self.model = families.of(args), model.to(world.device)
        self.batch = self._timed_batch(index) if seed is None else families.batch_of(self._reference_args, world.device, seed)
        if args.precision in _WEIGHT_TYPES:  # a user's file may give inputs in that type
            self._keep_in(torch.float32)
        self._kept = deeds.copied_buffers(self.model), chance.states(self.model)

    def _timed_batch(self, index):
        batches = families.batches(self._reference_args, self._world.device)
        return batches[index % len(batches)]

    def answer(self):
        """Return the loss, and in training the gradients of all parameters, else the outputs."""
        self._reset()
        return self._answer()

    def _reset(self):
        """Reset all but the weights to the initial state."""
        buffers, generators = self._kept
        deeds.set_buffers(self.model, buffers)
        chance.restore(self.model, generators)
        chance.seed(self._args.seed)

    def twice(self):
        """Return the losses of two answers."""
        return self.answer()[0], self.answer()[0]

    def losses_of_other_draws(self):
        """Return the losses with the random numbers of other seeds."""
        losses, seed = [], self._args.seed
        for number in range(1, DRAWS + 1):
            self._args = argparse.Namespace(**dict(vars(self._args), seed=seed + number))
            losses.append(self.answer()[0])
        self._args = argparse.Namespace(**dict(vars(self._args), seed=seed))
        return losses

    def counted_answer(self):
        """Return the answer, its FLOPs, None where they can't be counted, why, and those of the forward pass.

        Where watching fails, the answer is made without.
        """
        watched = arithmetic.Watched()
        try:
            with watched if arithmetic.CAN_WATCH else contextlib.nullcontext():
                answer = self.answer()
        except Exception as error:  # of any class: what is counted is beside the work
            if failures.kind_of(error) == "oom":
                raise
            return self.answer(), None, failures.describe(error), 0
        return (answer, *watched.total(measurements.trains(self._args)), watched.forward_flops)

    def rounded(self):
        """Return the answer in the requested precision, in eager mode; for fp32 from weights that were rounded once more."""
        name, device = self._args.precision, self._world.device
        if self._args.arithmetic == "fp32":
            self._round_weights()
        precision.set_knobs(name, device)
        try:
            self._keep_in(_WEIGHT_TYPES.get(name, torch.float32))
            quantizing.emulate(self.model, self._args.quantized)
            for scale in _LOSS_SCALES.get(name, (1.0,)):
                self._reset()
                half = torch.autocast(device_type=devices.of(device).name, dtype=_AUTOCAST[name]) if name in _AUTOCAST else None
                with quantizing.float8_products(float8.layers(name, self.model) if name in FLOAT8 else {}, name):
                    loss, results = self._answer(half, scale)
                if all(bool(torch.isfinite(tensor).all()) for tensor in results):
                    break
            return loss, results
        finally:
            self._keep_in(torch.float32)
            precision.set_knobs("fp32", device)

    def away(self, index, kept, numbers):
        """Return how far `numbers`, which were `kept` of the outputs for the timed batch `index`, are from this model's: the
        largest difference, relative to the largest number of its tensor; infinite where they have other tensors.
        """
        self._reset()
        judged, self.batch = self.batch, self._timed_batch(index)
        if self._args.precision in _WEIGHT_TYPES:
            self.batch = {name: precision.in_type(tensor, torch.float32) for name, tensor in self.batch.items()}
        with torch.no_grad():
            outputs = families.infer(self.family, self.model, self.batch)
        self.batch = judged
        tensors = kept_tensors(outputs)
        if len(tensors) != len(numbers):
            return math.inf
        sizes = [float(families.numbers_of(tensor).abs().max()) for tensor in tensors]
        pairs = zip(kept.numbers(outputs), numbers, sizes)
        return max((abs(complex(expected) - found) / max(size, 1e-30) for expected, found, size in pairs), default=0.0)

    def _answer(self, rounding=None, scale=1.0):
        """Return the means over the step's micro batches, of which each goes through the model by itself."""
        first, *others = families.micro_batches(self._args, self.batch)
        loss, results = self._answer_part(first, rounding, scale)
        for batch in others:
            further, more = self._answer_part(batch, rounding, scale)
            loss, results = loss + further, [total.add_(part) for total, part in zip(results, more)]
        if self._args.accumulate == 1:
            return loss, results
        return loss / self._args.accumulate, [total.div_(self._args.accumulate) for total in results]

    def _answer_part(self, batch, rounding, scale):
        training = measurements.trains(self._args)
        with torch.set_grad_enabled(training), rounding or contextlib.nullcontext():
            outputs = self.family.forward(self.model, batch) if training else families.infer(self.family, self.model, batch)
            loss = self.family.loss(outputs, batch)
        if not training:
            return float(loss), deeds.tensors_of(outputs)
        self.model.zero_grad(set_to_none=True)
        backward(loss * scale)  # not autograd.grad: a model may have hooks on gradients, and checkpoints that refuse it
        pairs = [(p, p.grad if p.requires_grad else None) for p in self.model.parameters()]
        gradients = [_float_numbers(torch.zeros_like(p) if g is None else g) / scale for p, g in pairs]
        self.model.zero_grad(set_to_none=True)
        return float(loss.detach()), gradients

    def _keep_in(self, dtype):
        """Convert weights and inputs to another type; they stay rounded when they are float32 again."""
        precision.in_type(self.model, dtype)
        self.batch = {name: precision.in_type(tensor, dtype) for name, tensor in self.batch.items()}

    def _round_weights(self):
        """Move each weight by up to one unit roundoff, either way."""
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in (p for p in self.model.parameters() if p.is_floating_point() or p.is_complex()):
                noise = 2 * torch.rand(parameter.shape, generator=generator) - 1
                parameter.mul_(1 + 2.0**-24 * noise.to(parameter.device))


def _float_numbers(tensor):
    return families.numbers_of(tensor).float()
