"""The libraries whose models are measured: one module each, and models.json with everything that is known about their models.

A new model of a library is one entry in models.json. A new library is one module here with these functions:

- ``build(args, device)``: the model on `device`, and the choices that the library made (for the record)
- ``batch(args, generator)``: one random batch on the CPU, a dictionary of tensors
- ``forward(model, batch)``: the model's outputs; does nothing else, since inference times it
- ``loss(outputs, batch)``: a scalar tensor, from the outputs of forward
- ``training_loss(model, batch)``: forward and loss, as the library trains

Nothing is downloaded. The host reads models.json too: it is the only place for units, parameters and usual optimizers.
"""

import contextlib
import importlib
import json
import os

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from channel import Unsupported

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.json")) as _file:
    LIBRARIES = json.load(_file)


def of(model):
    """The module of the library that has `model`; raises Unsupported for a name that is not in models.json."""
    for library, facts in LIBRARIES.items():
        if model in facts["models"]:
            return importlib.import_module("families." + library)
    raise Unsupported("model %s is not in models.json" % model)


def batches(args, device):
    """Random batches, resident on `device`, to be used in turn; each rank has its own."""
    family, generator = of(args.model), torch.Generator().manual_seed(args.seed + 1000 * args.rank)
    made = (family.batch(args, generator) for _ in range(args.batches))
    return [{name: tensor.to(device) for name, tensor in batch.items()} for batch in made]


def has_dropout(model):
    return any(_loud(module) and not _is_batch_norm(module) for module in model.modules())


def has_rectifiers(model):
    return any(isinstance(module, (torch.nn.ReLU, torch.nn.ReLU6, torch.nn.Hardswish)) for module in model.modules())


def has_batch_norm(model):
    return any(map(_is_batch_norm, model.modules()))


@contextlib.contextmanager
def quiet(model):
    """`model` without dropout, and with batch norms that use their running statistics: its gradients depend on nothing random,
    and are not divided by the scatter of a few values, which amplifies rounding errors by up to 250,000.
    """
    before = [(module, {name: getattr(module, name) for name in _loud(module)}) for module in model.modules()]
    _set_all((module, _loud(module)) for module, _ in before)
    try:
        yield
    finally:
        _set_all(before)


def _set_all(settings):
    for module, values in settings:
        for name, value in values.items():
            setattr(module, name, value)


def _loud(module):
    """The settings of a module that `quiet` changes, and to what. Some attentions keep their dropout as a plain number."""
    if isinstance(module, _DropoutNd):
        return {"training": False, "p": 0.0} if module.p else {}
    if _is_batch_norm(module):
        return {"training": False}
    return {name: 0.0 for name, value in vars(module).items() if "dropout" in name and isinstance(value, float) and value}


def _is_batch_norm(module):
    return isinstance(module, _BatchNorm)


def parameter_count(model):
    return sum(p.numel() for p in model.parameters())


def gradient_bytes(model):
    """The size of all gradients together, which one step all-reduces."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
