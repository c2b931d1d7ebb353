"""Emulated quantization of linear layers in their own type: the noise of int8, float8 and int4, and of training in float8, for
the reference.
"""

import contextlib
import functools

import torch

from recipes import FLOAT8
from runtimes import torchao


def emulate(model, kind):
    """Round the operands of linear layers as quantizing to `kind` does: the weights and, except for int4, the inputs."""
    if kind is None:
        return
    for layer in [module for module in model.modules() if torchao.can_quantize("torchao-" + kind, module)]:
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


def _round_to_mxfp8(rows):
    """Round to float8_e4m3 in blocks of 32, whose scale is the least power of two that keeps them below 448 (OCP MX, RCEIL)."""
    return _in_blocks(rows, 448, lambda numbers: numbers.to(torch.float8_e4m3fn).to(rows.dtype))


def _in_blocks(rows, most, rounded):
    """Scale each 32 numbers of a row by a power of two, so that none is above `most`, round them, and scale them back."""
    blocks = rows.unflatten(-1, (-1, 32))
    part, exponent = torch.frexp(blocks.abs().amax(-1, keepdim=True).float().clamp(min=1e-30) / most)
    scale = torch.exp2((exponent - (part == 0.5).int()).float()).to(rows.dtype)
    return (rounded((blocks / scale).clamp(-most, most)) * scale).flatten(-2)


def _round_to_mxfp4(rows):
    """Round to e2m1 as _round_to_mxfp8 does to e4m3."""
    return _in_blocks(rows, 6, _round_to_e2m1)


def _round_to_nvfp4(rows):
    """Round to e2m1 in blocks of 16, whose scale is e4m3 times one of the whole tensor (NVIDIA's NVFP4)."""
    blocks = rows.float().unflatten(-1, (-1, 16))
    whole = blocks.abs().amax().clamp(min=1e-30) / (448 * 6)
    scale = (blocks.abs().amax(-1, keepdim=True) / 6 / whole).clamp(torch.finfo(torch.float8_e4m3fn).tiny, 448).to(
        torch.float8_e4m3fn
    ).float() * whole
    return (_round_to_e2m1((blocks / scale).clamp(-6, 6)) * scale).flatten(-2).to(rows.dtype)


def _round_to_e2m1(numbers):
    """Round to the numbers of four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; from the middle to an even one."""
    known = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], device=numbers.device)
    middles = (known[1:] + known[:-1]) / 2
    middles[1::2] *= 1 - 1e-6  # every other one goes up
    return (known[torch.bucketize(numbers.abs().float().contiguous(), middles)] * numbers.sign()).to(numbers.dtype)


_QUANTIZED = {
    "int8": _round_to_int8, "float8": _round_to_float8, "int4": _round_to_int4, "mxfp8": _round_to_mxfp8,
    "mxfp4": _round_to_mxfp4, "nvfp4": _round_to_nvfp4,
}  # fmt: skip


@contextlib.contextmanager
def float8_products(layers, kind):
    """Let linear layers (by name) round all operands of their products, forward and backward, to float8, meanwhile."""
    for layer in layers.values():
        layer.forward = functools.partial(_in_float8, layer, kind)
    try:
        yield
    finally:
        for layer in layers.values():
            del layer.forward


def _in_float8(layer, kind, given):
    product = _Float8Product.apply(given, layer.weight, kind)
    return product if layer.bias is None else product + layer.bias.to(product.dtype)


class _Float8Product(torch.autograd.Function):
    """The product of a linear layer. What is summed up is scaled as one: a row of the left, a column of the right operand."""

    @staticmethod
    def forward(context, given, weight, kind):
        context.save_for_backward(given, weight)
        context.kind = kind
        rows = given.reshape(-1, given.shape[-1])
        product = torch.mm(_scaled(rows, kind, 1), _scaled(weight, kind, 1).t())
        return product.reshape(*given.shape[:-1], len(weight))

    @staticmethod
    def backward(context, gradient):
        (given, weight), kind = context.saved_tensors, context.kind
        rows, above = given.reshape(-1, given.shape[-1]).float(), gradient.reshape(-1, gradient.shape[-1]).float()
        below = torch.mm(_scaled(above, kind, 1, True), _scaled(weight, kind, 0))
        of_weight = torch.mm(_scaled(above, kind, 0, True).t(), _scaled(rows, kind, 0))
        return below.reshape(given.shape), of_weight, None


def _scaled(matrix, kind, dim, is_gradient=False):
    """Round as the recipe does: a tensor has one scale; a row, along `dim`, or a block of one, one that is a power of two."""
    recipe = FLOAT8[kind]
    if recipe.scaled == "block":
        return _round_to_mxfp8(matrix.float().movedim(dim, -1)).movedim(-1, dim)
    number = getattr(torch, recipe.gradients) if is_gradient else torch.float8_e4m3fn
    most = torch.finfo(number).max
    largest = matrix.abs().amax() if recipe.scaled == "tensor" else matrix.abs().amax(dim, keepdim=True)
    scale = most / largest.float().clamp(min=1e-12)
    scale = scale if recipe.scaled == "tensor" else torch.exp2(torch.floor(torch.log2(scale)))
    return (matrix.float() * scale).clamp(-most, most).to(number).float() / scale
