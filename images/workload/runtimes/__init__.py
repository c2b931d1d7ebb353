"""The runtimes of models: one module each, with ``prepare(args, model, example)``, which returns the model's replacement.

`model` is already wrapped for its ranks, in its precision and on its device; `example`, called, gives the arguments of a call,
``(positional, named)``, for runtimes that need one. A replacement that is no torch module has `facts`, for the record.
`prepare` raises Unsupported where the runtime would do something else than requested, such as fall back to another device.
"""

import importlib

from channel import Unsupported

_OF_TORCH = ("eager", "torchao")
"""Modules whose models torch.compile can compile."""


def prepare(args, model, example):
    """Return the callable that runs `model` as `args` ask."""
    family = args.runtime.partition("-")[0]  # one module for the choices of a library
    name = family if family in ("onnxruntime", "torchao") else args.runtime.replace("-", "_")
    if args.compile and name not in _OF_TORCH:
        raise Unsupported("runtime %s compiles by itself, without torch.compile" % args.runtime)
    ready = importlib.import_module("runtimes." + name).prepare(args, model, example)
    return importlib.import_module("runtimes.compile").prepare(args, ready, example) if args.compile else ready


def facts(ready):
    """Return a runtime's facts about itself; none of eager and compiled models."""
    return getattr(ready, "facts", {})
