"""The libraries whose models are measured: one module each, and models.json with everything that is known about their models.

A new model of a library is one entry in models.json. A new library is one module here with these functions:

- ``build(args, device)``: the model on `device`, and the choices that the library made (for the record)
- ``batch(args, generator)``: one random batch on the CPU, a dictionary of tensors
- ``forward(model, batch)``: the model's outputs; does nothing else, since inference times it
- ``loss(outputs, batch)``: a scalar tensor, from the outputs of forward
- ``training_loss(model, batch)``: forward and loss, as the library trains

Nothing is downloaded. The host reads models.json too: it is the only place for units, parameters and usual optimizers.
"""

import importlib
import json
import os

import torch

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


def parameter_count(model):
    return sum(p.numel() for p in model.parameters())


def gradient_bytes(model):
    """The size of all gradients together, which one step all-reduces."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
