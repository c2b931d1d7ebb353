"""TensorRT on NVIDIA's GPUs, from ONNX, strongly typed: each operation computes in the type of the model."""

import torch

from channel import Unsupported
from runtimes.exporting import Export, library


def prepare(args, model, example):
    tensorrt = library("tensorrt")
    export = Export(model, example)
    engine = _build_engine(tensorrt, export.onnx(), args.precision == "tf32")
    context = engine.create_execution_context()
    like, names = export.gave, (*export.inputs, *export.outputs)
    held = {engine.get_tensor_name(index) for index in range(engine.num_io_tensors)}

    def run(tensors):
        given, results = [tensor.contiguous() for tensor in tensors], [torch.empty_like(tensor) for tensor in like]
        for name, tensor in zip(names, (*given, *results)):
            if name in held:  # what a model doesn't use is not in its graph
                context.set_tensor_address(name, tensor.data_ptr())
        if not context.execute_async_v3(torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("TensorRT could not run the model")
        return results

    return export.run_by(run, name="tensorrt", version=tensorrt.__version__)


def _build_engine(tensorrt, graph, tf32):
    logger = tensorrt.Logger(tensorrt.Logger.WARNING)
    builder = tensorrt.Builder(logger)
    network = builder.create_network(1 << int(tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse(graph):
        raise Unsupported("TensorRT can't read the model: %s" % parser.get_error(0))
    config = builder.create_builder_config()
    (config.set_flag if tf32 else config.clear_flag)(tensorrt.BuilderFlag.TF32)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise Unsupported("TensorRT can't build the model")
    return tensorrt.Runtime(logger).deserialize_cuda_engine(plan)
