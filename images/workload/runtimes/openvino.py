"""OpenVINO on a CPU, in the precision asked for: by itself it would compute in bfloat16 on a CPU that has AMX."""

import torch

from channel import Unsupported
from runtimes.exporting import Export, library

_HINT = {"fp32": "f32", "amp-bf16": "bf16"}


def prepare(args, model, example):
    openvino = library("openvino")
    if args.device != "cpu" or args.precision not in _HINT:
        raise Unsupported("openvino runs here on a CPU, in %s" % " or ".join(_HINT))
    export = Export(model, example)
    with torch.no_grad():
        shapes = [list(tensor.shape) for tensor in export.given]
        graph = openvino.convert_model(export.flat, example_input=tuple(export.given), input=shapes)
    options = {
        "INFERENCE_PRECISION_HINT": _HINT[args.precision],
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }
    ready = openvino.Core().compile_model(graph, "CPU", options)
    used = _used_settings(ready)
    if used["precision"] != options["INFERENCE_PRECISION_HINT"]:
        raise Unsupported("openvino computes in %s, not in %s" % (used["precision"], options["INFERENCE_PRECISION_HINT"]))

    def run(tensors):
        results = ready([tensor.numpy() for tensor in tensors], share_inputs=True, share_outputs=False)
        return [torch.from_numpy(results[index]) for index in range(count)]

    count = len(export.gave)
    return export.run_by(run, name="openvino", version=openvino.__version__, **used)


def _used_settings(ready):
    """Return the precision and the devices that the compiled model reports."""
    dtype = ready.get_property("INFERENCE_PRECISION_HINT")
    precision = {"float32": "f32", "float": "f32", "bfloat16": "bf16", "float16": "f16"}.get(
        _type_name(dtype), _type_name(dtype)
    )
    return {"precision": precision, "devices": list(map(str, ready.get_property("EXECUTION_DEVICES")))}


def _type_name(dtype):
    return dtype.get_type_name() if hasattr(dtype, "get_type_name") else str(dtype)
