"""Training with the products of linear layers in float8, scaled as the numbers come: the precisions of recipes.py.

Weights stay float32, and all else is autocast to bfloat16. fp8 and fp8-te, of torchao and of Transformer Engine, scale each
tensor as a whole: inputs and weights are e4m3, gradients of outputs e5m2. fp8-rowwise scales each row and column, and mxfp8
each 32 numbers of one, by a power of two: all are e4m3.
"""

import dataclasses
import functools

import torch

import measurements
import precision
from channel import Unsupported
from recipes import FLOAT8, TORCHAO, TORCHAO_MX, TRANSFORMER_ENGINE, is_of_transformer_engine
from runtimes.exporting import library
from runtimes.torchao import LEAST, attempt, linear_share


def emulates():
    """Say whether products are emulated in float32, on devices without float8; tests replace this."""
    return False


def layers(name, model):
    """Return the linear layers that are converted, by name: all that the recipe takes but the last one, the output head, which
    torchao's examples leave out, too; nor subclasses, whose weights other code may multiply.
    """
    linear = {place: module for place, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    return {
        place: module
        for place, module in list(linear.items())[:-1]
        if type(module) is torch.nn.Linear and not any(side % FLOAT8[name].multiple for side in module.weight.shape)
    }


def apply(args, model):
    """Convert the linear layers of `model` in place, before it is wrapped. Return the facts; none for other precisions."""
    name = args.precision
    if name not in FLOAT8:
        return {}
    if not measurements.trains(args):
        raise Unsupported("precision %s is for training" % name)
    if is_of_transformer_engine(name) and (args.parallel == "fsdp" or args.checkpointing):
        raise Unsupported("precision %s is not made for parallel fsdp and checkpointing" % name)
    chosen = layers(name, model)
    share = linear_share(model, chosen.values())
    if share < LEAST:
        text = "precision %s is that of linear layers, and those that float8 takes are only %.0f %% of this model's products"
        raise Unsupported(text % (name, 100 * share))
    first = convert(name, model, chosen).get_submodule(next(iter(chosen)))
    left = layers(name, model)
    package = library(FLOAT8[name].library.partition(".")[0])
    if left:
        raise Unsupported("%s left %d of %d linear layers as they were" % (package.__name__, len(left), len(chosen)))
    _try(name, first, package.__name__)
    return {"name": package.__name__, "version": package.__version__, "recipe": FLOAT8[name].name, "float8_share": share}


def _try(name, layer, package):
    """Train a converted layer: an older library can't in each recipe under autocast, or lacks its kernels."""
    rows = torch.ones(FLOAT8[name].multiple, layer.in_features, device=layer.weight.device, requires_grad=True)

    def train():
        with torch.enable_grad(), precision.autocast(name, layer.weight.device):
            layer(rows).sum().backward(inputs=[rows])

    attempt("this %s can't train in %s under autocast" % (package, name), train)


def convert(name, model, names):
    """Return `model` with the linear layers of these `names` in float8; "" is a model that is one such layer."""
    return _CONVERTERS[FLOAT8[name].library](name, model, names)


def _by_torchao(name, model, names):
    float8 = library(TORCHAO)
    if not hasattr(float8.Float8LinearConfig, "from_recipe_name"):
        raise Unsupported("this torchao has no recipes of float8")
    config = dataclasses.replace(float8.Float8LinearConfig.from_recipe_name(FLOAT8[name].name), emulate=emulates())
    return float8.convert_to_float8_training(model, config=config, module_filter_fn=lambda _, place: place in names)


class _InBlocks(torch.nn.Linear):
    """A linear layer whose products torchao computes in MXFP8. Its own layer, a prototype, takes no float32 weights here."""

    def forward(self, given):
        product = self.multiply(given.to(torch.bfloat16).contiguous(), self.weight.to(torch.bfloat16))
        product = product if self.bias is None else product + self.bias.to(product.dtype)
        return product if torch.is_autocast_enabled(given.device.type) else product.to(given.dtype)


def _by_torchao_in_blocks(name, model, names):
    module = library(TORCHAO_MX)
    if not hasattr(module, "_to_mxfp8_then_scaled_mm"):
        raise Unsupported("this torchao has no products in MXFP8 as are known here")
    kernels = module.KernelPreference.EMULATED if emulates() else module.KernelPreference.AUTO
    multiply = functools.partial(
        module._to_mxfp8_then_scaled_mm, kernel_preference=kernels, scale_calculation_mode=module.ScaleCalculationMode.RCEIL
    )

    def in_blocks(layer):
        layer.__class__, layer.multiply = _InBlocks, multiply
        return layer

    return _replace(model, names, in_blocks)


def _by_transformer_engine(name, model, names):
    engine = library(TRANSFORMER_ENGINE)

    def of_engine(layer):
        new = engine.Linear(
            layer.in_features, layer.out_features, bias=layer.bias is not None, params_dtype=layer.weight.dtype,
            device=layer.weight.device, init_method=lambda weight: weight,
        )  # fmt: skip
        new.weight = layer.weight
        if layer.bias is not None:
            new.bias = layer.bias
        return new.train(layer.training)

    return _replace(model, names, of_engine)


def _replace(model, names, make):
    """Return `model` with what `make` makes of its layers of these `names`."""
    for name in names:
        parent, _, child = name.rpartition(".")
        new = make(model.get_submodule(name))
        if not name:
            return new
        setattr(model.get_submodule(parent), child, new)
    return model


_CONVERTERS = {TORCHAO: _by_torchao, TORCHAO_MX: _by_torchao_in_blocks, TRANSFORMER_ENGINE: _by_transformer_engine}
