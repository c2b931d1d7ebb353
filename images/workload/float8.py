"""Training with the products of linear layers in float8, by torchao's dynamic scaling: precisions fp8 and fp8-rowwise.

Weights stay float32, and all else is autocast to bfloat16. fp8 scales each tensor as a whole: inputs and weights are e4m3,
gradients of outputs e5m2. fp8-rowwise scales each row and column by a power of two: all are e4m3.
"""

import dataclasses

import torch

import measurements
import precision
from channel import Unsupported
from recipes import FLOAT8
from runtimes.exporting import library
from runtimes.torchao import LEAST, linear_share

_MULTIPLE = 16
"""The kernels take matrices whose sides are multiples of this."""


def emulates():
    """Say whether products are emulated in float32, on devices without float8; tests replace this."""
    return False


def layers(model):
    """Return the linear layers that are converted, by name: all that the kernels take but the last one, the output head, which
    torchao's examples leave out, too; nor subclasses, whose weights other code may multiply.
    """
    linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    return {
        name: module
        for name, module in list(linear.items())[:-1]
        if type(module) is torch.nn.Linear and not any(side % _MULTIPLE for side in module.weight.shape)
    }


def apply(args, model):
    """Convert the linear layers of `model` in place, before it is wrapped. Return the facts; none for other precisions."""
    name = args.precision
    if name not in FLOAT8:
        return {}
    if not measurements.trains(args):
        raise Unsupported("precision %s is for training" % name)
    chosen = layers(model)
    share = linear_share(model, chosen.values())
    if share < LEAST:
        text = "precision %s is that of linear layers, and those that float8 takes are only %.0f %% of this model's products"
        raise Unsupported(text % (name, 100 * share))
    first = convert(name, model, chosen).get_submodule(next(iter(chosen)))
    left = layers(model)
    if left:
        raise Unsupported("torchao left %d of %d linear layers as they were" % (len(left), len(chosen)))
    _try(name, first)
    return {"name": "torchao", "version": library("torchao").__version__, "recipe": FLOAT8[name].name, "float8_share": share}


def _try(name, layer):
    """Run a converted layer: an older torchao can't in each recipe under autocast."""
    rows = torch.ones(_MULTIPLE, layer.in_features, device=layer.weight.device)
    try:
        with torch.no_grad(), precision.autocast(name, layer.weight.device):
            layer(rows)
    except (AssertionError, NotImplementedError) as error:
        raise Unsupported("this torchao can't train in %s under autocast: %s" % (name, error)) from None


def convert(name, model, names):
    """Return `model` with the linear layers of these `names` in float8; "" is a model that is one such layer."""
    float8 = library("torchao.float8")
    if not hasattr(float8.Float8LinearConfig, "from_recipe_name"):
        raise Unsupported("this torchao has no recipes of float8")
    config = dataclasses.replace(float8.Float8LinearConfig.from_recipe_name(FLOAT8[name].name), emulate=emulates())
    return float8.convert_to_float8_training(model, config=config, module_filter_fn=lambda _, place: place in names)
