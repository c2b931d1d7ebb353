"""Models as functions of tensors alone, for runtimes that export a graph; and the replacements of such models."""

import importlib
import inspect
import io

import torch

from channel import Unsupported

OPSET = 17


def library(name):
    """Import the library of a runtime; raises Unsupported where it isn't installed or can't be loaded."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Unsupported("%s can't be imported: %s" % (name, error)) from None


class Flat(torch.nn.Module):
    """`model` as a function of tensors in order (`count` positional ones, then those called `names`) to a tuple of tensors."""

    def __init__(self, model, count, names):
        super().__init__()
        self.model, self.count, self.names = model, count, names

    def forward(self, *tensors):
        outputs = self.model(*tensors[: self.count], **dict(zip(self.names, tensors[self.count :])))
        return tuple(_list_tensors(outputs))


class Exported:
    """The replacement of a model: `run` takes a list of tensors and returns one."""

    def __init__(self, run, pack, names, facts):
        self._run, self._pack, self._names, self.facts = run, pack, names, facts

    def __call__(self, *positional, **named):
        return self._pack(self._run([*positional, *(named[name] for name in self._names)]))


class Export:
    """`model` made flat: `flat`, the tensors of an example that it is `given`, and what it `gave` for them."""

    def __init__(self, model, example):
        positional, named = example()
        self._names = tuple(named)
        self.given = [*positional, *named.values()]
        if not all(map(torch.is_tensor, self.given)):
            raise Unsupported("the model takes more than tensors: no graph can be exported")
        self.flat = Flat(model, len(positional), self._names).eval()
        with torch.no_grad():
            outputs = model(*positional, **named)
        self.gave = _list_tensors(outputs)
        self._pack = _make_packer(outputs)

    @property
    def inputs(self):
        """Return the names of the graph's inputs."""
        return ["input%d" % index for index in range(len(self.given))]

    @property
    def outputs(self):
        """Return the names of the graph's outputs."""
        return ["output%d" % index for index in range(len(self.gave))]

    def onnx(self):
        """Return the graph as ONNX, in bytes, for the shapes of the example.

        It is always made by TorchScript: the exporter of newer versions needs other packages, and fails for some models on
        older ones.
        """
        library("onnx")
        by_trace = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
        names = {"input_names": self.inputs, "output_names": self.outputs}
        file = io.BytesIO()
        with torch.no_grad():
            torch.onnx.export(self.flat, tuple(self.given), file, opset_version=OPSET, **names, **by_trace)
        return file.getvalue()

    def run_by(self, run, **facts):
        """Return the replacement of the model that calls `run`."""
        return Exported(run, self._pack, self._names, facts)


def _list_tensors(outputs):
    """Return the tensors of a forward pass, in order."""
    if torch.is_tensor(outputs):
        return [outputs]
    tensors = list(outputs.values() if isinstance(outputs, dict) else outputs)
    if not all(map(torch.is_tensor, tensors)):
        raise Unsupported("the model gives more than tensors: no graph can be exported")
    return tensors


def _make_packer(outputs):
    """Return a function that turns a list of tensors into outputs of the same form."""
    if torch.is_tensor(outputs):
        return lambda tensors: tensors[0]
    if isinstance(outputs, dict):
        cls, names = type(outputs), tuple(outputs)
        return lambda tensors: cls(zip(names, tensors)) if cls is dict else cls(**dict(zip(names, tensors)))
    return tuple
