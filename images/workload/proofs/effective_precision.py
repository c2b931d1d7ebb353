"""The effective precision: the one that matrix products and convolutions really compute in, whatever the settings say.

Known matrices are multiplied (and convolved) as the workload would do it and compared with float64. The relative error
reveals the width of the inputs' mantissas: about 3e-7 for float32 (24 bits), 4e-4 for TF32 and float16 (11 bits), 3e-3 for
bfloat16 (8 bits); rounding n-bit inputs gives about 2**-n / sqrt(3) each.
"""

import argparse
import copy
import functools

SIZE = 512
CHANNELS = 64
EXPECTED = {"fp32": "fp32", "tf32": "tf32", "amp": "fp16", "half": "fp16", "amp-bf16": "bf16", "bf16-weights": "bf16"}
"""What each setting of --precision means for products and convolutions."""
QUANTIZED = {"int8": (5e-3, 2e-2), "float8": (2e-2, 7e-2), "int4": (5e-2, 2e-1)}
"""Between which errors a linear layer lies that is quantized so: int8 rounds a row to 127 steps of its largest number, float8
(e4m3) keeps 4 bits, int4 rounds a group of weights to 15 steps."""
_FLOAT32_BELOW = 3e-5
_ELEVEN_BITS_BELOW = 1.3e-3
_EIGHT_BITS_BELOW = 1.5e-2


def effective(relative_error, dtype):
    """fp32, tf32, fp16, bf16 or wrong, from the error against float64 and the name of the result's dtype."""
    if not relative_error < _EIGHT_BITS_BELOW:  # also NaN
        return "wrong"
    if relative_error < _FLOAT32_BELOW:
        return "fp32"
    if relative_error < _ELEVEN_BITS_BELOW:
        return "fp16" if dtype == "float16" else "tf32"
    return "bf16"


def problem(requested, found):
    """Why `found` (effective precision by operation) does not meet `requested`, or None.

    A convolution may be more precise than tf32, since cuDNN chooses the fastest algorithm that is allowed; nothing may be
    less precise than requested.
    """
    expected = EXPECTED[requested]
    allowed = {"matmul": {expected}, "convolution": {expected} | ({"fp32"} if requested == "tf32" else set())}
    bad = ["%s computes in %s" % (name, found[name]) for name in sorted(allowed) if found[name] not in allowed[name]]
    if bad:
        return "precision %s was requested, but %s (measured against float64)" % (requested, " and ".join(bad))
    if found.get("linear") != found.get("quantized"):
        text = "linear layers were to be quantized to %s, but compute in %s (measured against float64)"
        return text % (found["quantized"], found["linear"])
    return None


def probe(args, device):
    """As `run`, the way that the runtime of `args` takes. Where it quantizes, "linear" is what linear layers compute in, and
    "quantized" what they should.
    """
    import runtimes

    plain = argparse.Namespace(**vars(args))
    plain.runtime = "eager" if args.arithmetic in QUANTIZED else args.runtime
    found = run(args.precision, device, functools.partial(runtimes.prepare, plain))
    if args.arithmetic not in QUANTIZED:
        return found
    error, dtype = _compute(args.precision, device, functools.partial(runtimes.prepare, args), *_linear())
    least, most = QUANTIZED[args.arithmetic]
    return dict(found, quantized=args.arithmetic, linear=args.arithmetic if least < error < most else effective(error, dtype))


def run(requested, device, prepare=lambda module, example: module):
    """Probe `device` under the current settings: {"matmul": name, "convolution": name, "relative_errors": …}.

    `prepare`: what the runtime does to a module, so that the probe takes the model's way; `example` as runtimes take it.
    """
    found, errors = {}, {}
    for name, (module, given) in _operations().items():
        errors[name], dtype = _compute(requested, device, prepare, module, given)
        found[name] = effective(errors[name], dtype)
    return dict(found, relative_errors=errors)


def _compute(requested, device, prepare, module, given):
    """The relative error of what the prepared module computes, and the type of it."""
    import torch

    import precision

    with torch.no_grad():
        exact = copy.deepcopy(module).double()(given.double())
        module, given = (precision.converted(requested, one.to(device)) for one in (module, given))
        ready = prepare(module.eval(), lambda: ((given,), {}))
        with precision.autocast(requested, device):
            result = ready(given)
    return float((result.cpu().double() - exact).norm() / exact.norm()), str(result.dtype).replace("torch.", "")


def _linear():
    """A linear layer of known weights, and what it is given."""
    import torch

    generator = torch.Generator().manual_seed(1)
    random = functools.partial(torch.randn, generator=generator, dtype=torch.float32)  # whatever a model's file has set
    layer = torch.nn.Linear(SIZE, SIZE, bias=False)
    layer.weight.data = random(SIZE, SIZE)
    return layer, random(SIZE, SIZE)


def _operations():
    """For each operation a module that does it, with known weights, and what it is given."""
    import torch

    class Operation(torch.nn.Module):
        def __init__(self, operation, weight):
            super().__init__()
            self.operation, self.weight = operation, torch.nn.Parameter(weight)

        def forward(self, given):
            return self.operation(given, self.weight)

    generator = torch.Generator().manual_seed(1)
    random = functools.partial(torch.randn, generator=generator, dtype=torch.float32)  # whatever a model's file has set
    left, right = (random(SIZE, SIZE) for _ in range(2))
    image = random(2, CHANNELS, 32, 32)
    kernel = random(CHANNELS, CHANNELS, 3, 3)
    return {
        "matmul": (Operation(torch.matmul, right), left),
        "convolution": (Operation(torch.nn.functional.conv2d, kernel), image),
    }
