"""Torch-TensorRT on NVIDIA's GPUs, ahead of time and whole: parts that it can't convert would run in PyTorch: refused."""

import torch

from channel import Unsupported
from runtimes.exporting import Export, library


def prepare(args, model, example):
    torch_tensorrt = library("torch_tensorrt")
    export = Export(model, example)
    dtypes = {tensor.dtype for tensor in export.gave if tensor.is_floating_point()}
    settings = {"enabled_precisions": dtypes, "disable_tf32": args.precision != "tf32", "min_block_size": 1}
    try:
        ready = torch_tensorrt.compile(
            export.flat, ir="dynamo", inputs=list(export.given), require_full_compilation=True, **settings
        )
    except (AssertionError, NotImplementedError) as error:
        raise Unsupported("torch_tensorrt can't convert the whole model: %s" % error) from None

    def run(tensors):
        with torch.no_grad():
            return list(ready(*tensors))

    return export.run_by(run, name="torch_tensorrt", version=torch_tensorrt.__version__)
