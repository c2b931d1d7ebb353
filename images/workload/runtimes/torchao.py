"""torchao: linear layers in int8 (weights, and activations as they come), float8 (likewise) or int4 (weights alone)."""

import torch

from channel import Unsupported
from runtimes.exporting import library

_CONFIGS = {
    "torchao-int8": "Int8DynamicActivationInt8WeightConfig",
    "torchao-float8": "Float8DynamicActivationFloat8WeightConfig",
    "torchao-int4": "Int4WeightOnlyConfig",
}
LEAST = 0.5
"""Share of the numbers in matrices and kernels that must be in linear layers: else most of a model isn't quantized at all."""


def prepare(args, model, example):
    """Quantize `model` in place, without calibration, since activations are scaled as they come."""
    quantization = library("torchao.quantization")
    if not hasattr(quantization, _CONFIGS[args.runtime]):
        raise Unsupported("this torchao has no %s" % _CONFIGS[args.runtime])
    share = linear_share(model, [module for module in model.modules() if isinstance(module, torch.nn.Linear)])
    if share < LEAST:
        raise Unsupported("torchao quantizes linear layers, which are only %.0f %% of this model's products" % (100 * share))
    setting = torch.get_float32_matmul_precision()
    quantization.quantize_(model, getattr(quantization, _CONFIGS[args.runtime])())
    torch.set_float32_matmul_precision(setting)  # torchao sets "high" for the rest; the matrix decides that
    model.facts = {"name": args.runtime, "version": library("torchao").__version__, "quantized_share": share}
    return model


def linear_share(model, layers):
    """Return the share of these linear `layers` in the numbers that take part in products; embeddings are only looked up."""
    looked_up, multiplied = (
        {id(module.weight) for module in model.modules() if isinstance(module, kind)}
        for kind in (torch.nn.Embedding, torch.nn.Linear)
    )
    looked_up -= multiplied  # an output head may share the embedding's weights
    whole = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() > 1 and id(parameter) not in looked_up)
    return sum(layer.weight.numel() for layer in layers) / max(whole, 1)
