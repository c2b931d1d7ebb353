"""TorchScript: the model as it runs for an example, traced and frozen, without Python."""

import torch

from runtimes.exporting import Export


def prepare(args, model, example):
    export = Export(model, example)
    with torch.no_grad():
        traced = torch.jit.freeze(torch.jit.trace(export.flat, tuple(export.given)))
    return export.run_by(lambda tensors: traced(*tensors), name="torchscript", version=torch.__version__)
