"""The effective precision: the one that matrix products and convolutions really compute in, whatever the settings say.

Known matrices are multiplied (and convolved) as the workload does and compared with float64; in training also the products of
the backward pass that give the gradients of both. The relative error reveals the width of the inputs' mantissas: about 3e-7 for
float32 (24 bits), 4e-4 for TF32 and float16 (11 bits), 3e-3 for bfloat16 (8 bits); rounding n-bit inputs gives about
2**-n / sqrt(3) each.
"""

import argparse
import contextlib
import copy
import functools

import failures
import measurements
from recipes import FLOAT8

CHANNELS = 64
EXPECTED = {"fp32": "fp32", "tf32": "tf32", "amp": "fp16", "half": "fp16", "amp-bf16": "bf16", "bf16-weights": "bf16"}
EXPECTED.update({"bf16-master": "bf16", **dict.fromkeys(FLOAT8, "bf16")})
"""The effective precision of products and convolutions for each setting of --precision."""
QUANTIZED = {"int8": (5e-3, 2e-2), "float8": (2e-2, 7e-2), "int4": (5e-2, 2e-1), "mxfp8": (2e-2, 7e-2)}
QUANTIZED.update({"mxfp4": (0.1, 0.3), "nvfp4": (8e-2, 0.25)})
"""The least and largest error of a linear layer quantized in each way: int8 rounds a row to 127 steps of its largest number,
float8 (e4m3) keeps 4 bits, int4 rounds a group of weights to 15 steps; e2m1 in blocks gave 0.17 (mxfp4) and 0.14 (nvfp4)."""
TRAINED = {"float8_e4m3fn": (2e-2, 5e-2), "float8_e5m2": (4.5e-2, 8e-2)}
"""The same by the type of the gradients, of a layer that trains in float8: 3.7e-2 in e4m3, 5.9e-2 with a gradient in e5m2. In
bfloat16 both are 3e-3."""
_FLOAT32_BELOW = 3e-5
_ELEVEN_BITS_BELOW = 1.3e-3
_EIGHT_BITS_BELOW = 1.5e-2
_SUMMED_BELOW = 5e-2
"""Sums in bfloat16, as in torch 1.12 on a CPU, have larger errors: 1.9e-2 over 256 products, 2.8e-2 over 576."""


_BACKWARD = "_backward"
"""The suffix of the name of an operation's backward pass."""


def effective(relative_error, dtype):
    """Return fp32, tf32, fp16, bf16 or wrong, from the error against float64 and the name of the result's dtype."""
    if not relative_error < _EIGHT_BITS_BELOW:  # also NaN
        return "wrong"
    if relative_error < _FLOAT32_BELOW:
        return "fp32"
    if relative_error < _ELEVEN_BITS_BELOW:
        return "fp16" if dtype == "float16" else "tf32"
    return "bf16"


def problem(requested, found):
    """Return why `found` (effective precision by operation) does not meet `requested`, or None.

    A convolution may be more precise than tf32, since cuDNN chooses the fastest algorithm that is allowed; nothing may be
    less precise than requested.
    """
    expected = EXPECTED[requested]
    allowed = {"matmul": {expected}, "convolution": {expected} | ({"fp32"} if requested == "tf32" else set())}
    allowed.update({name + _BACKWARD: precisions for name, precisions in allowed.items() if found.get(name + _BACKWARD)})
    bad = [
        "%s computes in %s" % (name.replace("_", " "), found[name])
        for name in sorted(allowed)
        if found[name] not in allowed[name]
    ]
    if bad:
        return "precision %s was requested, but %s (measured against float64)" % (requested, " and ".join(bad))
    if found.get("linear") != found.get("quantized"):
        text = "linear layers were to be quantized to %s, but compute in %s (measured against float64)"
        return text % (found["quantized"], found["linear"])
    return None


def remarks(found):
    """Return texts about what is legal in `found`, but must be known."""
    names = ", ".join(name.replace("_", " ") for name in found.get("bf16_sums", ()))
    return ["this torch adds up products in bfloat16, too (%s): less precise than others" % names] if names else []


def probe(args, device):
    """Probe `device` as `run` does, through the runtime of `args`.

    Where the runtime or the precision quantizes, "linear" is the precision that linear layers compute in, "quantized" the one
    that they should.
    """
    import runtimes

    plain = argparse.Namespace(**vars(args))
    plain.runtime = "eager" if args.quantized else args.runtime
    precisions = run(args.precision, device, functools.partial(runtimes.prepare, plain), measurements.trains(args))
    if args.precision in FLOAT8:
        return dict(precisions, quantized="float8", linear=_trained(args.precision, device))
    if not args.quantized:
        return precisions
    error, dtype = _relative_errors(args.precision, device, functools.partial(runtimes.prepare, args), *_linear_layer(device))
    least, most = QUANTIZED[args.quantized]
    return dict(
        precisions,
        quantized=args.quantized,
        linear=args.quantized if least < error[""] < most else effective(error[""], dtype),
    )


def _trained(name, device):
    """Return float8 if a linear layer, converted as those of the model, computes in it forward and backward; else in what."""
    import float8

    layer, given = _linear_layer(device)
    errors, dtype = _relative_errors(name, device, lambda layer, _: float8.convert(name, layer, [""]), layer, given, True)
    ranges = {"": TRAINED["float8_e4m3fn"], _BACKWARD: TRAINED[FLOAT8[name].gradients]}
    wrong = [error for part, error in errors.items() if not ranges[part][0] < error < ranges[part][1]]
    return effective(wrong[0], dtype) if wrong else "float8"


def run(requested, device, prepare=lambda module, example: module, training=False):
    """Probe `device` under the current settings: {"matmul": name, "convolution": name, "relative_errors": …}.

    `prepare`: the runtime's preparation of a module, as for the model; `example` as runtimes take it. `training`: also
    "matmul_backward" and "convolution_backward", each by the less precise of two gradients; None where the device has no such
    pass. "bf16_sums": the operations whose error is larger than that of bfloat16, except where their sums have few terms.
    """
    precisions, errors = _probe_operations(requested, device, prepare, training, _operations(device))
    result = dict(precisions, relative_errors=errors)
    doubtful = [name for name, precision in precisions.items() if precision == "wrong" and errors[name] < _SUMMED_BELOW]
    if doubtful and requested in ("amp-bf16", "bf16-weights", "bf16-master"):
        few, _ = _probe_operations(requested, device, prepare, training, _operations(device, few=True))
        summed = [name for name in doubtful if few[name] == "bf16"]
        result.update(dict.fromkeys(summed, "bf16"), bf16_sums=summed)
    return result


def _probe_operations(requested, device, prepare, training, operations):
    """Return the effective precision and the relative error of each operation."""
    precisions, errors = {}, {}
    for name, (module, given) in operations.items():
        part_errors, dtype = _relative_errors(requested, device, prepare, module, given, training)
        for part, error in part_errors.items():
            errors[name + part] = error
            precisions[name + part] = None if error is None else effective(error, dtype)
    return precisions, errors


def _relative_errors(requested, device, prepare, module, given, training=False):
    """Return the relative errors of the prepared module's result, in `training`, of its gradients, and the result's type."""

    import precision

    exact = _compute(copy.deepcopy(module).double(), given.double(), training)
    module, given = (precision.converted(requested, thing.to(device)) for thing in (module, given))
    ready = prepare(module.train(training), lambda: ((given,), {}))
    rounding = functools.partial(precision.autocast, requested, device)
    try:
        results = _compute(ready, given, training, rounding)
    except (RuntimeError, NotImplementedError) as error:
        if not training or not failures.NO_KERNEL.search(str(error).lower()):
            raise
        results = _compute(ready, given, False, rounding)  # a device may lack the backward pass of what a model doesn't do
    distances = [float((result.cpu().double() - expected).norm() / expected.norm()) for result, expected in zip(results, exact)]
    by_part = {"": distances[0]}
    if training:
        by_part[_BACKWARD] = max(distances[1:], key=lambda error: (error != error, error)) if distances[1:] else None
    return by_part, str(results[0].dtype).replace("torch.", "")


def _compute(module, given, training, rounding=contextlib.nullcontext):
    """Return the module's result and, in `training`, the gradients of its input and weight for a known one of its output."""
    import torch

    given = given.detach().requires_grad_(training)
    with torch.set_grad_enabled(training), rounding():
        result = module(given)
    if not training:
        return [result]
    generator = torch.Generator().manual_seed(2)
    output_gradient = torch.randn(result.shape, generator=generator, dtype=torch.float32).to(result.device, result.dtype)
    return [result.detach(), *torch.autograd.grad(result, [given, next(iter(module.parameters()))], output_gradient)]


def _linear_layer(device):
    """Return a linear layer of known weights, and its input."""
    import torch

    import devices

    size, generator = devices.of(device).probe_size, torch.Generator().manual_seed(1)
    random = functools.partial(torch.randn, generator=generator, dtype=torch.float32)  # whatever a model's file has set
    layer = torch.nn.Linear(size, size, bias=False)
    layer.weight.data = random(size, size)
    return layer, random(size, size)


def _operations(device, few=False):
    """Return a module with known weights, and its input, for each operation.

    `few`: all but a few of these numbers are zeros, so that no sum, forward or backward, has more than four terms.
    """
    import torch

    import devices

    class Operation(torch.nn.Module):
        def __init__(self, operation, weight):
            super().__init__()
            self.operation, self.weight = operation, torch.nn.Parameter(weight)

        def forward(self, given):
            return self.operation(given, self.weight)

    generator = torch.Generator().manual_seed(1)
    random = functools.partial(torch.randn, generator=generator, dtype=torch.float32)  # whatever a model's file has set
    size, pixels = devices.of(device).probe_size, devices.of(device).probe_pixels
    left, right = (random(size, size) for _ in range(2))
    image = random(2, CHANNELS, pixels, pixels)
    kernel = random(CHANNELS, CHANNELS, 3, 3)
    if few:
        left, right, centre = map(_keep_two_per_row, (left, right, kernel[:, :, 1, 1]))
        kernel = torch.nn.functional.pad(centre[:, :, None, None], (1, 1, 1, 1))
        image *= torch.nn.functional.one_hot(torch.arange(2 * CHANNELS) * 7 % (pixels * pixels), pixels * pixels).view_as(image)
    return {
        "matmul": (Operation(torch.matmul, right), left),
        "convolution": (Operation(torch.nn.functional.conv2d, kernel), image),
    }


def _keep_two_per_row(matrix):
    """Set all numbers to zero but those on the diagonal and right of it: two in each row and column."""
    import torch

    ones = torch.eye(len(matrix))
    return matrix * (ones + ones.roll(1, 1))
