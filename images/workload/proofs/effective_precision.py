"""The effective precision: the one that matrix products and convolutions really compute in, whatever the settings say.

Known matrices are multiplied (and convolved) as the workload would do it and compared with float64. The relative error
reveals the width of the inputs' mantissas: about 3e-7 for float32 (24 bits), 4e-4 for TF32 and float16 (11 bits), 3e-3 for
bfloat16 (8 bits); rounding n-bit inputs gives about 2**-n / sqrt(3) each.
"""

SIZE = 512
CHANNELS = 64
EXPECTED = {"fp32": "fp32", "tf32": "tf32", "amp": "fp16", "amp-bf16": "bf16"}
"""What each setting of --precision means for a product of float32 tensors under that setting's autocast."""
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
    if not bad:
        return None
    return "precision %s was requested, but %s (measured against float64)" % (requested, " and ".join(bad))


def run(requested, device, prepare=lambda module: module):
    """Probe `device` under the current settings: {"matmul": name, "convolution": name, "relative_errors": …}.

    `prepare`: what the runtime does to a module, so that the probe takes the model's way.
    """
    import torch

    import precision

    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(SIZE, SIZE, generator=generator) for _ in range(2))
    image = torch.randn(2, CHANNELS, 32, 32, generator=generator)
    kernel = torch.randn(CHANNELS, CHANNELS, 3, 3, generator=generator)
    pairs = {"matmul": (torch.matmul, left, right), "convolution": (torch.nn.functional.conv2d, image, kernel)}
    found, errors = {}, {}
    for name, (operation, a, b) in pairs.items():
        with torch.no_grad(), precision.autocast(requested, device):
            result = prepare(_module(operation))(a.to(device), b.to(device))
        exact = operation(a.double(), b.double())
        errors[name] = float((result.cpu().double() - exact).norm() / exact.norm())
        found[name] = effective(errors[name], str(result.dtype).replace("torch.", ""))
    return dict(found, relative_errors=errors)


def _module(operation):
    """A module that does one operation."""
    import torch

    class Operation(torch.nn.Module):
        def forward(self, a, b):
            return operation(a, b)

    return Operation()
