"""ONNX Runtime: on a CPU, on NVIDIA's GPUs by CUDA, or there by TensorRT. On a GPU, inputs and outputs stay there (IO binding),
and nothing may fall back to the CPU, which ONNX Runtime would do silently.
"""

import torch

import devices
from channel import Unsupported
from runtimes.exporting import Export, library

_CPU, _CUDA, _TENSORRT = ("%sExecutionProvider" % name for name in ("CPU", "CUDA", "Tensorrt"))


def prepare(args, model, example):
    onnxruntime = library("onnxruntime")
    export = Export(model, example)
    device = export.given[0].device
    providers = _providers(args, device)
    missing = [name for name, _ in providers if name not in onnxruntime.get_available_providers()]
    if missing:
        raise Unsupported("this onnxruntime has no %s; it has: %s" % (missing[0], onnxruntime.get_available_providers()))
    session = _session(onnxruntime, export.onnx(), device, providers)
    used = session.get_providers()
    if used[: len(providers)] != [name for name, _ in providers]:
        raise Unsupported("onnxruntime fell back to %s; %s was asked for" % (used[0], providers[0][0]))
    run = _run_on_cpu(session, export) if not devices.of(device).is_gpu else _bound(onnxruntime, session, device, export)
    return export.run_by(run, name="onnxruntime", version=onnxruntime.__version__, providers=used)


def _providers(args, device):
    """Return the requested provider, with its options, in a list."""
    if not devices.of(device).is_gpu:
        return [(_CPU, {})]
    if devices.of(device).name != "cuda":
        raise Unsupported("onnxruntime runs here on a CPU and on NVIDIA's GPUs")
    options = {"device_id": device.index, "user_compute_stream": str(torch.cuda.current_stream(device).cuda_stream)}
    cuda = (_CUDA, {**options, "use_tf32": int(args.precision == "tf32"), "cudnn_conv_algo_search": "EXHAUSTIVE"})
    tensorrt = (_TENSORRT, {**options, "trt_fp16_enable": args.precision == "half"})
    return [tensorrt if args.runtime == "onnxruntime-tensorrt" else cuda]


def _session(onnxruntime, graph, device, providers):
    try:
        return onnxruntime.InferenceSession(graph, _options(onnxruntime, device), providers=providers)
    except Exception as error:  # onnxruntime's classes have no common base
        if "explicitly disabled" not in str(error):
            raise
        raise Unsupported("onnxruntime would run a part of the model on the CPU: %s" % error) from None


def _options(onnxruntime, device):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    if devices.of(device).is_gpu:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        getattr(onnxruntime, "preload_dlls", lambda: None)()  # CUDA and cuDNN: those that came with torch
    return options


def _used_inputs(session, export):
    """Return the graph's inputs, each with the index of its tensor: what a model doesn't use is not in its graph."""
    return [(node.name, export.inputs.index(node.name)) for node in session.get_inputs()]


def _run_on_cpu(session, export):
    wanted, outputs = _used_inputs(session, export), export.outputs

    def run(tensors):
        arrays = session.run(outputs, {name: tensors[index].numpy() for name, index in wanted})
        return list(map(torch.from_numpy, arrays))

    return run


def _bound(onnxruntime, session, device, export):
    """Return a function that runs on torch's stream, from and into tensors of the device."""
    wanted, outputs, like = _used_inputs(session, export), export.outputs, export.gave
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")

    numpy = library("numpy")

    def describe(tensor):
        type_name = str(tensor.dtype).replace("torch.", "")
        return "cuda", device.index, getattr(numpy, type_name), tuple(tensor.shape), tensor.data_ptr()

    def run(tensors):
        given, results = [tensor.contiguous() for tensor in tensors], [torch.empty_like(tensor) for tensor in like]
        binding = session.io_binding()
        for name, index in wanted:
            binding.bind_input(name, *describe(given[index]))
        for name, tensor in zip(outputs, results):
            binding.bind_output(name, *describe(tensor))
        session.run_with_iobinding(binding, options)
        return results

    return run
