"""A model of the user's own: one file, which the host has checked as far as possible without running it. It has

- a builder of the model: a function or class that is called without arguments and returns a torch.nn.Module
- ``batch(size, generator)``: random inputs and targets of `size` items, each a tensor, or a tuple or dictionary of tensors
- ``loss(outputs, targets)``: a scalar tensor; not needed if the model returns its loss

The model is called with the inputs: a tensor, the tensors of a tuple in order, or those of a dictionary by name.
"""

import argparse
import collections
import dataclasses
import importlib.util
import sys

import torch

import chance
import measurements
from channel import Unsupported
from families import ModelFileError, numbers_of, read_file, tensors_of

_ALLOWED = "a tensor, or a tuple or dictionary of tensors"


class Own:
    """A family (see families/__init__.py) whose functions call those of the user's file."""

    def __init__(self, path, builder, sha256):
        self._path, self._builder = path, builder
        self._name = path.rpartition("/")[2]
        self._built = self._batch_is_checked = None
        self._module = _module_of(path, sha256)

    def build(self, args, device):
        model = self._user_function(self._builder)()
        if not isinstance(model, torch.nn.Module):
            raise self._error(self._builder, "gave %s, not a torch.nn.Module" % _describe(model))
        if measurements.trains(args) and not any(parameter.requires_grad for parameter in model.parameters()):
            raise self._error(self._builder, "gave a model without parameters to train")
        self._give_shapes(args, model)
        self._check_weights(model)
        if args.channels_last:
            model = model.to(memory_format=torch.channels_last)
        return model.to(device), {"attention": None, "frozen": sum(not p.requires_grad for p in model.parameters())}

    def batch(self, args, generator):
        state = generator.get_state()
        made = self._make_batch(args, generator)
        if not self._batch_is_checked:
            self._check_batch(made, self._make_batch(args, torch.Generator().set_state(state)))
        if args.channels_last:
            made = {name: _channels_last(tensor) for name, tensor in made.items()}
        return made

    def forward(self, model, batch):
        inputs = _unflatten(batch, "inputs")
        if isinstance(inputs, dict):
            return model(**inputs)
        return model(*inputs) if isinstance(inputs, tuple) else model(inputs)

    def apart(self, outputs):
        """Return the outputs of inference in containers of ours, so that all is computed when the step ends: nothing of the
        user's runs when they are read. Raises Unsupported if they hold anything else than tensors, numbers and texts.
        """
        return _apart(outputs, self._name)

    def loss(self, outputs, batch):
        if hasattr(self._module, "loss"):
            value = self._module.loss(outputs, _unflatten(batch, "targets"))
            if not torch.is_tensor(value) or value.dim():
                raise self._error("loss", "gave %s, not a scalar tensor" % _describe(value))
            return value
        value = outputs.get("loss") if isinstance(outputs, dict) else getattr(outputs, "loss", outputs)
        if torch.is_tensor(value) and not value.dim():
            return value
        if torch.is_grad_enabled():
            raise self._error(self._builder, "gave a model that returns no loss: write a function loss(outputs, targets)")
        return _mean_square(outputs)

    def training_loss(self, model, batch):
        return self.loss(self.forward(model, batch), batch)

    def _user_function(self, name):
        if not callable(getattr(self._module, name, None)):
            raise ModelFileError("%s has no function %s" % (self._name, name))
        return getattr(self._module, name)

    def _make_batch(self, args, generator):
        made = self._user_function("batch")(args.batch, generator)
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise self._error("batch", "gave %s, not a pair: inputs, targets" % _describe(made))
        flat = {}
        for name, part in zip(("inputs", "targets"), made):
            tensors = _flatten(name, part)
            if tensors is None or (name == "inputs" and not tensors):
                raise self._error("batch", "gave %s as %s, not %s" % (_describe(part), name, _ALLOWED))
            flat.update(tensors)
        for name, tensor in flat.items():
            if not tensor.dim() or len(tensor) != args.batch:
                raise self._error("batch", "gave %s of the shape %s, not of %d items" % (name, list(tensor.shape), args.batch))
        return flat

    def _give_shapes(self, args, model):
        """Run a first forward pass, from which lazy modules get their shapes and weights."""
        if _shapeless(model):
            few = argparse.Namespace(**dict(vars(args), batch=min(args.batch, 2)))
            with torch.no_grad():
                self.forward(model.eval(), self.batch(few, torch.Generator().manual_seed(args.seed)))
        if _shapeless(model):
            raise self._error(self._builder, "gave a model whose forward pass leaves %s without a shape" % _shapeless(model)[0])

    def _check_weights(self, model):
        """Check that the model is the same whenever it is built from the same seed: a proof compares two of them."""
        weights = [float(numbers_of(parameter.detach()).sum(dtype=torch.float64)) for parameter in model.parameters()]
        generators = repr([state.tolist() if torch.is_tensor(state) else state for state in chance.states(model)])
        if self._built not in (None, (weights, generators)):
            what = "weights from the same seed: draw them with a default generator of torch, random or numpy"
            if self._built[0] == weights:
                what = "generators of its own, each time: seed them"
            raise self._error(self._builder, "gave other " + what)
        self._built = weights, generators

    def _check_batch(self, made, again):
        if made.keys() != again.keys() or not all(_is_equal(made[name], again[name]) for name in made):
            raise self._error("batch", "gave other data from the same generator: pass it to torch.randn and the others")
        self._batch_is_checked = True

    def _error(self, function, what):
        code = getattr(getattr(self._module, function, None), "__code__", None)
        line = ", line %d" % code.co_firstlineno if code and code.co_filename == self._path else ""
        return ModelFileError("%s%s: %s %s" % (self._name, line, function, what))


def _shapeless(model):
    """Return the names of parameters and buffers that have no shape yet."""
    return [name for name, tensor in (*model.named_parameters(), *model.named_buffers()) if torch.nn.parameter.is_lazy(tensor)]


_families = {}


def of(args):
    """Return the family of the file that `args` name; the file is run once."""
    key = args.model_file, args.model_builder
    if key not in _families:
        _families[key] = Own(args.model_file, args.model_builder, args.model_sha256)
    return _families[key]


def _module_of(path, sha256):
    """Run the file and return its module. Raises Unsupported where the stack lacks what it imports."""
    read_file(path, sha256)
    spec = importlib.util.spec_from_file_location("own_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_model"] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        text = "%s imports %s, which this stack lacks; a [[stack]] may name it: packages = [...]"
        raise Unsupported(text % (path.rpartition("/")[2], error.name)) from error
    return module


def _flatten(name, part):
    """Return tensors by name, such as {"inputs": …}, {"inputs.0": …} or {"inputs.mask": …}; None if `part` isn't _ALLOWED."""
    if part is None:
        return {}
    if torch.is_tensor(part):
        return {name: part}
    if not isinstance(part, (tuple, list, dict)):
        return None
    pairs = part.items() if isinstance(part, dict) else enumerate(part)
    tensors = {"%s.%s" % (name, key): tensor for key, tensor in pairs}
    return tensors if all(map(torch.is_tensor, tensors.values())) else None


def _unflatten(batch, name):
    """Reverse _flatten."""
    if name in batch:
        return batch[name]
    tensors = {key[len(name) + 1 :]: tensor for key, tensor in batch.items() if key.startswith(name + ".")}
    if not tensors:
        return None
    return tuple(tensors.values()) if "0" in tensors else tensors


class _Named(dict):
    """A dict whose members are attributes, too, in place of a user's dict or dataclass."""

    def __getattr__(self, name):
        if name in self:
            return self[name]
        text = "%s is no member of what the model returns: in inference only what its forward pass has computed is timed"
        raise AttributeError(text % name)


_VALUES = (type(None), bool, int, float, complex, str, bytes, torch.Size, torch.dtype, torch.device)
_LIBRARIES = ("torch", "transformers", "numpy")
"""Packages whose objects, such as a cache, are left as they are where they can't be called."""


def _apart(value, file):
    if torch.is_tensor(value):
        return value if type(value).__module__.partition(".")[0] in (*_LIBRARIES, "torchao") else _plain(value, file)
    if isinstance(value, _VALUES):
        return value
    if isinstance(value, dict):
        return _Named((name, _apart(member, file)) for name, member in value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _Named((field.name, _apart(getattr(value, field.name), file)) for field in dataclasses.fields(value))
    if isinstance(value, (tuple, list)):
        members = [_apart(member, file) for member in value]
        if hasattr(value, "_fields"):
            return collections.namedtuple("Outputs", value._fields)._make(members)
        return members if isinstance(value, list) else tuple(members)
    if type(value).__module__.partition(".")[0] in _LIBRARIES and not callable(value):
        return value
    raise Unsupported(_LATE % (file, _describe(value)))


def _plain(tensor, file):
    """Return the tensor that one of a user's own class is, which holds its numbers: not one whose operations compute them."""
    if getattr(type(tensor), "__torch_dispatch__", None) is not getattr(torch.Tensor, "__torch_dispatch__", None):
        raise Unsupported(_LATE % (file, "a " + type(tensor).__name__))
    with torch._C.DisableTorchFunction():
        return tensor.as_subclass(torch.Tensor)


_LATE = "%s: the model returns %s, of which nobody can say when it is computed; return tensors, also in tuples, lists or dicts"


def _channels_last(tensor):
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _is_equal(first, second):
    return first.dtype == second.dtype and first.shape == second.shape and torch.equal(first, second)


def _mean_square(outputs):
    """Return a number that depends on all outputs, to check inference, which has no loss. Rounding hardly moves it."""
    tensors = tensors_of(outputs)
    if not tensors:
        raise ModelFileError("the model returns no floating-point tensor, but %s" % _describe(outputs))
    return torch.stack([tensor.float().square().mean() for tensor in tensors]).mean()


def _describe(value):
    if isinstance(value, (tuple, list)):
        return "a %s of %d" % (type(value).__name__, len(value))
    if torch.is_tensor(value):
        return "a tensor of the shape %s" % list(value.shape)
    return "nothing (None)" if value is None else "a %s" % type(value).__name__
