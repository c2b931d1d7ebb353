"""Emulated quantization of linear layers in their own type: the noise of int8, float8 and int4, for the reference."""

import torch


def emulate(model, kind):
    """Round the operands of linear layers as quantizing to `kind` does: the weights and, except for int4, the inputs."""
    if kind not in _QUANTIZED:
        return
    for layer in [module for module in model.modules() if isinstance(module, torch.nn.Linear)]:
        layer.weight.data = _QUANTIZED[kind](layer.weight.data)
        if kind != "int4":
            layer.register_forward_pre_hook(lambda _, given: (_QUANTIZED[kind](given[0]), *given[1:]))


def _round_to_int8(rows):
    """Round to 127 steps to either side of 0, up to the largest number of a row."""
    step = rows.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
    return (rows / step).round() * step


def _round_to_float8(rows):
    """Round to float8_e4m3, whose largest number is 448."""
    scale = rows.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    return (rows / scale).to(torch.float8_e4m3fn).to(rows.dtype) * scale


def _round_to_int4(rows):
    """Round to 15 steps from the least to the largest of each 128 numbers of a row."""
    groups = rows.reshape(-1, min(128, rows.shape[-1]))
    least, most = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = (most - least).clamp(min=1e-12) / 15
    return (((groups - least) / step).round() * step + least).reshape(rows.shape)


_QUANTIZED = {"int8": _round_to_int8, "float8": _round_to_float8, "int4": _round_to_int4}
