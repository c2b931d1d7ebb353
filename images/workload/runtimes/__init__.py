"""What runs a model: one module each, with ``prepare(model, example)``, which returns what is called in the model's place.

`model` is wrapped for its ranks already; `example` is a function that gives a batch, for runtimes that must see one.
"""

import importlib


def of(args):
    """The module of the runtime that `args` ask for."""
    return importlib.import_module("runtimes." + ("compile" if args.compile else "eager"))
