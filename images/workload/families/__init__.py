"""The libraries whose models are measured: one module each, and models.json with all facts about their models.

A new model of a library is one entry in models.json. A new library is one module here with these functions (own.py has them for
a file of the user's, data.py makes random inputs):

- ``build(args, device)``: the model on `device`, and the choices that the library made (for the record)
- ``batch(args, generator)``: one random batch on the CPU, a dictionary of tensors
- ``forward(model, batch)``: the model's outputs; does nothing else, since inference times it
- ``loss(outputs, batch)``: a scalar tensor, from the outputs of forward
- ``training_loss(model, batch)``: forward and loss, as the library trains
- ``load(args)``, where the library imports a model's code only when that model is asked for: import it

Nothing is downloaded. The host reads models.json too: it is the only place for units, parameters and usual optimizers.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import random
import sys
import weakref

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

import precision
from channel import Unsupported

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.json"), encoding="utf-8") as _file:
    LIBRARIES = json.load(_file)


OPERATIONS = "operations"
"""The library of what is no model: the operations of microbenchmarks."""


class ModelFileError(Exception):
    """A mistake in the user's file, or another file than the host has read."""


def read_file(path, sha256):
    """Return the content of the user's file. Raises ModelFileError if it isn't the one that was asked for."""
    with open(path, "rb") as file:
        content = file.read()
    if sha256 and hashlib.sha256(content).hexdigest() != sha256:
        raise ModelFileError("%s is not the file that was asked for: its SHA-256 is another" % path)
    return content


def learn(args):
    """Add the model of a configuration (config.json, as transformers writes it) to those that are known; else do nothing.

    Raises ModelFileError if the file is not the one that was asked for, or no configuration.
    """
    if not args.model_file.endswith(".json"):
        return
    content = read_file(args.model_file, args.model_sha256)
    try:
        config = json.loads(content, object_hook=_number_or_table)
        entry = {"unit": "tokens", "head": "CausalLM", "type": config.pop("model_type"), "is_users": True}
        entry["weights"] = (config.pop("quantization_config", None) or {}).get("quant_method")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = "%s: %s" % (type(error).__name__, error)
        raise ModelFileError("%s is no configuration of a model: %s" % (args.model_file, reason)) from error
    tables = (value for value in config.values() if isinstance(value, dict))
    if any(key in part for part in (config, *tables) for key in _OF_EXPERTS):
        entry["active_parameters"] = None
    entry["config"] = dict({name: value for name, value in config.items() if name not in _NOT_OF_THE_SHAPE}, use_cache=False)
    LIBRARIES["transformers"]["models"][args.model] = entry
    args.model_file = ""


def _number_or_table(table):
    """Return the number for what transformers 5 writes for one that JSON lacks, such as {"__float__": "Infinity"}; else the
    table without a type of the weights, which the cell's precision decides: from 4.49 on transformers would take it, also
    that of a part (findings/config-dtype.sh).
    """
    if list(table) == ["__float__"]:
        return float(table["__float__"])
    return {name: value for name, value in table.items() if name not in _TYPES}


_OF_EXPERTS = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "num_selected_experts")
"""What configurations call the number of experts of a token."""
_TYPES = ("torch_dtype", "dtype")
_NOT_OF_THE_SHAPE = ("architectures", "transformers_version", "_name_or_path", "auto_map")
"""Keys of a config.json that don't say how the model is built."""


def of(args):
    """Return the family of the model that `args` name: a module, or an Own for the user's file.

    Raises Unsupported for a name that is not in models.json, or if the stack lacks the library.
    """
    if args.model_file:
        from families import own

        return own.of(args)
    library = library_of(args.model)
    try:
        return importlib.import_module("families." + library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise Unsupported("this stack has no %s, which model %s is of" % (library, args.model)) from None


def load(args):
    """Import the code of the model that `args` name, as far as its library has it; `build` reports what is missing.

    A user's file may do anything, so it is imported when the model is built.
    """
    if not args.model_file and library_of(args.model) != OPERATIONS:
        with contextlib.suppress(Exception):
            family = of(args)
            getattr(family, "load", lambda args: None)(args)


def build(args, device):
    """Build the model that `args` name, on `device`; return it and the choices of its library.

    Some libraries begin with a last matrix of zeros (torchvision's vision transformers): then the outputs are zeros, which
    prove nothing, and so are all gradients but those of that matrix. Such matrices are drawn at random, on the CPU, as all
    weights are.

    Raises Unsupported for a model that is not the one that models.json has under this name.
    """
    model, chosen = of(args).build(args, device)
    if not args.model_file:
        _refuse_another(args, model)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1 and not parameter.is_meta and not parameter.any():
                    parameter.copy_(_STANDARD_DEVIATION * torch.randn(parameter.shape))
    return model, chosen


def _refuse_another(args, model):
    """Raise Unsupported if the library has another model under this name: by its parameters, and by what they don't show.

    `sized_parameters` in models.json: parts of names of parameters that follow the size of the inputs, and how many there are
    at the usual size; all others are the same at every size. `defaults`: what the entry leaves to its library.
    """
    entry, library = entry_of(args.model), library_of(args.model)
    sized = entry.get("sized_parameters", {})
    is_listed = library == "transformers" and "is_users" not in entry
    wanted = {**entry.get("config", {}), **entry.get("defaults", {})} if is_listed else {}
    actual = {name: _tuple_to_list(getattr(model.config, name, None)) for name in wanted}
    differences = ["%s is %s, not %s" % (name, actual[name], wanted[name]) for name in wanted if actual[name] != wanted[name]]
    if "parameters" in entry:
        fixed = sum(p.numel() for name, p in model.named_parameters() if not any(part in name for part in sized))
        expected = entry["parameters"] - sum(sized.values())
        differences += ["it has {:,} parameters, not {:,}".format(fixed, expected)] if fixed != expected else []
    if differences:
        version = getattr(sys.modules.get(library), "__version__", "")
        raise Unsupported("%s %s has another model as %s: %s" % (library, version, args.model, "; ".join(differences)))


def _tuple_to_list(value):
    """Turn a tuple, which a newer library makes of a list, into a list."""
    return list(value) if isinstance(value, tuple) else value


_STANDARD_DEVIATION = 0.02
"""The standard deviation of the other matrices of vision transformers."""


def library_of(model):
    """Return the library that has `model`, listed or by the prefix of a library whose models need no list."""
    for library, facts in LIBRARIES.items():
        if model in facts["models"] or ("any" in facts and model.startswith(facts["any"])):
            return library
    raise Unsupported("model %s is not in models.json" % model)


def entry_of(model):
    """Return the entry of `model` in models.json; empty if its library lists none."""
    return LIBRARIES[library_of(model)]["models"].get(model, {})


def facts_of(args):
    """Return the entry in models.json of the model of `args`; empty for a file of the user's."""
    return {} if args.model_file else entry_of(args.model)


def batches(args, device):
    """Return random batches on `device`, to be used in turn. unseen.py has others.

    A batch holds what one step takes: the items of all its micro batches.
    """
    generator = torch.Generator().manual_seed(seed_of(args))
    return [_whole_batch(args, device, generator) for _ in range(args.batches)]


def batch_of(args, device, seed):
    """Return the batch of this rank on `device` that `seed` draws."""
    return _whole_batch(args, device, torch.Generator().manual_seed(seed + seed_of(args) - args.seed))


def _whole_batch(args, device, generator):
    whole = argparse.Namespace(**dict(vars(args), batch=batch_of_step(args)))
    return {name: tensor.to(device) for name, tensor in draw(whole, generator).items()}


def batch_of_step(args):
    """Return how many items a step takes."""
    return args.batch * args.accumulate


def micro_batches(args, batch):
    """Return the parts of a step's batch that go through the model one after the other; several only where it accumulates."""
    if args.accumulate == 1:
        return [batch]
    parts = {name: tensor.chunk(args.accumulate) for name, tensor in batch.items()}
    return [{name: tensors[number] for name, tensors in parts.items()} for number in range(args.accumulate)]


def seed_of(args):
    """Return the seed of this rank's batches: each rank has its own, but where all compute one batch."""
    return args.seed + (0 if args.parallel in ONE_BATCH else 1000 * args.rank)


def items_per_step(args, ranks):
    """Return the items of a step of so many ranks, which compute a batch each, or one together."""
    return items_of(args) * (1 if args.parallel in ONE_BATCH else ranks)


ONE_BATCH = ("tp",)
"""The values of --parallel by which all ranks compute one batch together."""


def draw(args, generator):
    """Draw one random batch of the precision's type, on the CPU."""
    return {name: precision.converted(args.precision, tensor) for name, tensor in of(args).batch(args, generator).items()}


EXPERTS = ".experts."
"""The part of the names of parameters that belong to experts, of which a router chooses some for each token."""


def may_be_left_out(args, parameter):
    """Check whether a step may leave a parameter out: that of an expert to which its router sends no token."""
    return "active_parameters" in facts_of(args) and EXPERTS in parameter


def items_of(args):
    """Return the items of one step: of a model that is measured in tokens, those of all its sequences; in generation those of
    the outputs.
    """
    if args.mode == "generate":
        return args.batch * args.output_length
    return batch_of_step(args) * (args.sequence_length if facts_of(args).get("unit") == "tokens" else 1)


DEPTHS = 4
"""The outputs of a generation whose logits are kept: the first, the last, and others that the seed draws."""


def depths(args):
    """Return the positions of the tokens after which a generation's logits are kept, in order."""
    first, last = args.sequence_length - 1, args.sequence_length + args.output_length - 2
    between = range(first + 1, last)
    drawn = random.Random(args.seed).sample(between, min(DEPTHS - 2, len(between)))
    return torch.tensor(sorted({first, last, *drawn}))


def infer(family, model, batch):
    """Run the forward pass of inference. Where a family's models may return containers that compute when they are read, its
    outputs are taken apart, which is a part of the work.
    """
    return getattr(family, "apart", lambda outputs: outputs)(family.forward(model, batch))


def tensors_of(outputs):
    """Return the tensors of real or complex numbers in a forward pass's outputs, at any depth, in order; see numbers_of."""
    return [numbers_of(tensor) for tensor in floats_of(outputs)]


def floats_of(outputs):
    """Yield the same as they are: sparse, quantized or complex ones, too."""
    if torch.is_tensor(outputs):
        if outputs.is_floating_point() or outputs.is_complex():
            yield outputs
    else:
        for part in _parts_of(outputs):
            yield from floats_of(part)


def _parts_of(outputs):
    if isinstance(outputs, dict):
        return outputs.values()
    if dataclasses.is_dataclass(outputs):
        return [getattr(outputs, field.name) for field in dataclasses.fields(outputs)]
    return outputs if isinstance(outputs, (list, tuple)) else ()


def numbers_of(tensor):
    """Return the numbers of `tensor`, dense and real: a sparse or quantized one is expanded, complex numbers are pairs."""
    if tensor.is_quantized:
        return tensor.dequantize()
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense


def call(args, batch):
    """Return the arguments with which the forward pass of `batch` calls a model, ``(positional, named)``."""

    class Called(Exception):
        pass

    def model(*given, **named):
        raise Called(given, named)

    try:
        of(args).forward(model, batch)
    except Called as stopped:
        return stopped.args
    raise TypeError("the forward pass of %s never calls the model" % args.model)


def has_dropout(model):
    return any(_noisy_settings(module) and not _is_batch_norm(module) for module in model.modules())


def is_dropout(module):
    """Check whether `module` does nothing but dropout."""
    return isinstance(module, _DropoutNd) and module.p > 0


def acts_in_training(module):
    """Check whether the module acts differently in training and in evaluation."""
    return is_dropout(module) or _is_batch_norm(module)


def has_rectifiers(model):
    return any(isinstance(module, (torch.nn.ReLU, torch.nn.ReLU6, torch.nn.Hardswish)) for module in model.modules())


def has_batch_norm(model):
    return any(map(_is_batch_norm, model.modules()))


@contextlib.contextmanager
def quiet(model):
    """Let `model` run deterministically: without dropout, and with batch norms that use their running statistics.

    Its gradients are then not divided by the scatter of a few values, which amplifies rounding errors by up to 250,000.
    """
    before = [(module, {name: getattr(module, name) for name in _noisy_settings(module)}) for module in model.modules()]
    _set_attributes((module, _noisy_settings(module)) for module, _ in before)
    try:
        yield
    finally:
        _set_attributes(before)


def _set_attributes(settings):
    for module, values in settings:
        for name, value in values.items():
            setattr(module, name, value)


DRAWING = weakref.WeakSet()
"""Modules that are known to draw random numbers in their own code (proofs/drawing.py)."""


def _noisy_settings(module):
    """Return the settings of a module that `quiet` changes, with their new values.

    Some modules keep their dropout, or the probability of skipping a whole path (stochastic depth), as a plain number.
    """
    if isinstance(module, _DropoutNd) or type(module).__name__ == "StochasticDepth":
        return {"training": False, "p": 0.0} if module.p else {}
    if _is_batch_norm(module):
        return {"training": False}
    settings = {
        name: 0.0
        for name, value in vars(module).items()
        if ("dropout" in name or "drop_prob" in name) and isinstance(value, float) and value
    }
    return dict(settings, training=False) if module in DRAWING else settings


def _is_batch_norm(module):
    return isinstance(module, _BatchNorm)


def parameter_count(model):
    return sum(p.numel() for p in model.parameters())


def gradient_bytes(model):
    """Return the size in bytes of all gradients, which one step all-reduces."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
