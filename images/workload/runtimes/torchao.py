"""torchao: linear layers in int8 (weights, and activations as they come), float8 (likewise) or int4 (weights alone).

Or weights and activations in blocks with a scale of their own: OCP's MXFP8 and MXFP4, NVIDIA's NVFP4 (prototypes in torchao).
"""

import torch

import failures
from channel import Unsupported
from runtimes.exporting import library

_STABLE, _PROTOTYPES = "torchao.quantization", "torchao.prototype.mx_formats"
_CONFIGS = {
    "torchao-int8": (_STABLE, "Int8DynamicActivationInt8WeightConfig"),
    "torchao-float8": (_STABLE, "Float8DynamicActivationFloat8WeightConfig"),
    "torchao-int4": (_STABLE, "Int4WeightOnlyConfig"),
    "torchao-mxfp8": (_PROTOTYPES, "MXDynamicActivationMXWeightConfig"),
    "torchao-mxfp4": (_PROTOTYPES, "MXDynamicActivationMXWeightConfig"),
    "torchao-nvfp4": (_PROTOTYPES, "NVFP4DynamicActivationNVFP4WeightConfig"),
}
"""The module and the name of torchao's configuration."""
_DIVISORS = {"torchao-int4": (1, 128), "torchao-float8": (16, 16)}
"""What must divide a layer's rows and columns; in blocks 32."""
_NARROW = 16
"""A layer of no more columns torchao 0.11 leaves as it is with int8; 0.18 does not, and the work stays the same."""
LEAST = 0.5
"""Share of the numbers in matrices and kernels that must be in linear layers: else most of a model isn't quantized at all."""


def prepare(args, model, example):
    """Quantize `model` in place, without calibration, since activations are scaled as they come."""
    place, name = _CONFIGS[args.runtime]
    if not hasattr(library(place), name):
        raise Unsupported("this torchao has no %s" % name)
    chosen = [module for module in model.modules() if can_quantize(args.runtime, module)]
    share = linear_share(model, chosen)
    if share < LEAST:
        raise Unsupported("torchao quantizes linear layers, which are only %.0f %% of this model's products" % (100 * share))
    setting = torch.get_float32_matmul_precision()
    config = getattr(library(place), name)(**options(args.runtime))
    attempt(
        "torchao can't quantize so",
        lambda: library(_STABLE).quantize_(model, config, filter_fn=lambda module, _: can_quantize(args.runtime, module)),
    )
    left = [layer for layer in chosen if type(layer.weight) is torch.nn.Parameter]
    if left and len(left) < len(chosen):  # if it took none, the proof of the precision says so
        text = "torchao left %d of %d linear layers as they were, such as one of %d x %d"
        raise Unsupported(text % (len(left), len(chosen), left[0].out_features, left[0].in_features))
    if place == _PROTOTYPES:
        _prepare_prototypes(chosen)
    torch.set_float32_matmul_precision(setting)  # torchao sets "high" for the rest; the matrix decides that
    model.facts = {"name": args.runtime, "version": library("torchao").__version__, "quantized_share": share}
    return model


def _prepare_prototypes(layers):
    """Let quantized layers take a part of a tensor, such as the last token's, and try one of them."""
    for layer in layers:
        layer.register_forward_pre_hook(lambda _, given: (given[0].contiguous(), *given[1:]))
    rows = torch.ones(1, layers[0].in_features, device=layers[0].weight.device, dtype=layers[0].weight.dtype)
    with torch.no_grad():
        attempt("torchao can't multiply so", lambda: layers[0](rows))


def attempt(what, action):
    """Call `action`; whatever a library raises, but for a lack of memory, means that it lacks a kernel, a device or a type."""
    try:
        return action()
    except Exception as error:
        if failures.kind_of(error) == "oom":
            raise
        raise Unsupported("%s: %s" % (what, failures.describe(error))) from None


def can_quantize(runtime, module):
    """Say whether `runtime` quantizes a module: linear layers whose sides its groups and blocks divide, since torchao leaves
    others as they are without a word (findings/int4-skipped-layers.sh; of float8 by its source); in MXFP4 those without a bias,
    which torch's product on NVIDIA leaves out.
    """
    if not isinstance(module, torch.nn.Linear):
        return False
    if runtime == "torchao-int8":
        return module.in_features > _NARROW
    rows, columns = _DIVISORS.get(runtime, (32, 32))
    is_whole = not module.out_features % rows and not module.in_features % columns
    return is_whole and (runtime != "torchao-mxfp4" or module.bias is None)


def options(runtime):
    """Return the words of torchao's configuration; tests add that its products are emulated."""
    if runtime == "torchao-mxfp4":
        return dict.fromkeys(("weight_dtype", "activation_dtype"), torch.float4_e2m1fn_x2)
    return {"use_triton_kernel": False} if runtime == "torchao-nvfp4" else {}  # its kernel is in a library of its own


def linear_share(model, layers):
    """Return the share of these linear `layers` in the numbers that take part in products; embeddings are only looked up."""
    looked_up, multiplied = (
        {id(module.weight) for module in model.modules() if isinstance(module, kind)}
        for kind in (torch.nn.Embedding, torch.nn.Linear)
    )
    looked_up -= multiplied  # an output head may share the embedding's weights
    whole = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() > 1 and id(parameter) not in looked_up)
    return sum(layer.weight.numel() for layer in layers) / max(whole, 1)
