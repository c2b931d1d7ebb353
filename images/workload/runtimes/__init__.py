"""What runs a model: one module each, with ``prepare(model, example)``, which returns what is called instead of the model.

`model` is already wrapped for its ranks; `example` is a function that returns a batch, for runtimes that need one.
"""

import importlib


def of(args):
    """The module of the runtime that `args` ask for."""
    return importlib.import_module("runtimes." + ("compile" if args.compile else "eager"))
