"""Runs the runtimes of GPUs with libraries that stand in for the real ones: what they are asked for, and where results go.

    python tests/box/gpu_runtimes.py images/workload

prints one object of JSON. Tensors are in the host's memory; the stand-ins read and write them by their addresses, as the real
libraries do on a GPU.
"""

import ctypes
import functools
import json
import sys
import types

sys.path.insert(0, sys.argv[1])

import torch

import channel
from runtimes import onnxruntime, tensorrt, torch_tensorrt
from runtimes.exporting import Export


class Model(torch.nn.Module):
    def forward(self, first, second, unused):
        return {"sum": first + 2 * second, "product": first * second}


EXAMPLE = ((torch.ones(2, 3),), {"second": torch.full((2, 3), 2.0), "unused": torch.zeros(1)})
ADDRESSES, TOLD = {}, {}


def at(address, count=6):
    return torch.tensor((ctypes.c_float * count).from_address(address)).reshape(2, 3)


def compute():
    """Do what the graph does, from and into the addresses that were told; it has no third input."""
    first, second = at(ADDRESSES["input0"]), at(ADDRESSES["input1"])
    for name, result in (("output0", first + 2 * second), ("output1", first * second)):
        ctypes.memmove(ADDRESSES[name], result.contiguous().data_ptr(), 24)
    return True


def named(names):
    return [types.SimpleNamespace(name=name) for name in names]


class Binding:
    def bind_input(self, name, place, index, number, shape, address):
        TOLD[name] = [place, index, number.__name__, list(shape)]
        ADDRESSES[name] = address

    bind_output = bind_input


class Session:
    def __init__(self, graph=b"", options=None, providers=()):
        if graph == b"fallback":
            raise RuntimeError("fallback to CPU EP has been explicitly disabled by the user")

    def get_inputs(self):
        return named(["input0", "input1"])

    def io_binding(self):
        return Binding()

    def run_with_iobinding(self, binding, options):
        compute()


class Options:
    def __init__(self):
        self.entries = {}

    def add_session_config_entry(self, name, value):
        self.entries[name] = value

    add_run_config_entry = add_session_config_entry


class TensorRT:
    """The calls of TensorRT that the runtime makes."""

    __version__ = "0"
    num_io_tensors = 4
    WARNING, STRONGLY_TYPED, TF32 = 0, 1, "tf32"

    def __init__(self):
        self.Logger = self.NetworkDefinitionCreationFlag = self.BuilderFlag = self
        self.Builder = self.OnnxParser = self.Runtime = lambda *what: self

    def __call__(self, level):
        return self

    def create_network(self, flags):
        TOLD["network"] = flags
        return self

    def parse(self, graph):
        return graph != b"odd"

    def get_error(self, index):
        return "no such operation"

    def create_builder_config(self):
        return self

    def set_flag(self, flag):
        TOLD["tf32"] = True

    def clear_flag(self, flag):
        TOLD["tf32"] = False

    def build_serialized_network(self, network, config):
        return b"plan"

    def deserialize_cuda_engine(self, plan):
        return self

    def create_execution_context(self):
        return self

    def get_tensor_name(self, index):
        return ["input0", "input1", "output0", "output1"][index]

    def set_tensor_address(self, name, address):
        ADDRESSES[name] = address

    def execute_async_v3(self, stream):
        return compute()


def outcome(action):
    """Return what an action returns, as lists, or how it refuses."""
    try:
        outputs = action()
    except channel.Unsupported as error:
        return str(error)
    return {name: tensor.tolist() for name, tensor in outputs.items()}


def args(**given):
    return types.SimpleNamespace(**{"precision": "fp32", "runtime": "onnxruntime", **given})


def call(ready):
    return ready(torch.full((2, 3), 3.0), second=torch.full((3, 2), 5.0).t(), unused=torch.zeros(1))


def main():
    torch.cuda.current_stream = lambda *device: types.SimpleNamespace(cuda_stream=7)
    device, export = torch.device("cuda", 1), Export(Model(), lambda: EXAMPLE)
    library = types.SimpleNamespace(RunOptions=Options, SessionOptions=Options, InferenceSession=Session)
    bound = export.run_by(onnxruntime._bound(library, Session(), device, export))
    results = {"bound": outcome(lambda: call(bound)), "told": dict(TOLD)}
    results["providers"] = {
        f"{runtime} {precision}": onnxruntime._providers(args(runtime=runtime, precision=precision), device)
        for runtime in ("onnxruntime", "onnxruntime-tensorrt")
        for precision in ("fp32", "tf32", "half")
    }
    results["options"] = onnxruntime._options(library, device).entries
    results["fallback"] = outcome(lambda: onnxruntime._session(library, b"fallback", device, []))
    Export.onnx = lambda self: b"graph"
    sys.modules["tensorrt"] = TensorRT()
    for precision in ("fp32", "tf32"):
        ready = tensorrt.prepare(args(precision=precision), Model(), lambda: EXAMPLE)
        results[f"tensorrt {precision}"] = outcome(functools.partial(call, ready))
        results[f"tensorrt {precision} flags"] = [TOLD["network"], TOLD["tf32"]]
    Export.onnx = lambda self: b"odd"
    results["tensorrt odd"] = outcome(lambda: tensorrt.prepare(args(), Model(), lambda: EXAMPLE))
    given = {}

    def convert(model, **settings):
        given.update(settings)
        return model

    sys.modules["torch_tensorrt"] = types.SimpleNamespace(compile=convert, __version__="0")
    results["torch_tensorrt"] = outcome(lambda: call(torch_tensorrt.prepare(args(), Model(), lambda: EXAMPLE)))
    results["asked"] = {name: str(given[name]) for name in ("enabled_precisions", "disable_tf32", "require_full_compilation")}

    def refuse(model, **settings):
        raise AssertionError("an operation stays in PyTorch")

    sys.modules["torch_tensorrt"].compile = refuse
    results["torch_tensorrt in part"] = outcome(lambda: torch_tensorrt.prepare(args(), Model(), lambda: EXAMPLE))
    print(json.dumps(results))


main()
