"""What can run a model in inference: one entry for each module of images/workload/runtimes, and for each choice within one."""

from dataclasses import dataclass

_BOTH = ("cpu", "cuda", "rocm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """`words`: what a reader sees. `on_cpu`, `on_gpu`: the precisions that it runs in, empty where it doesn't run at all.

    `accelerators` of the stacks that it runs on. `of_torch`: its model is a torch module, which torch.compile can compile and
    which has a train mode; of others the graph is exported. `quantized`: what it turns linear layers into.
    `packages`: the name of its rows in the catalog, if it has any; `in_images`: it comes with vendors' images only.
    `capability`: the oldest NVIDIA GPU.
    """

    name: str
    words: str
    on_cpu: tuple[str, ...] = ()
    on_gpu: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = _BOTH
    of_torch: bool = False
    quantized: str | None = None
    packages: str | None = None
    in_images: bool = False
    capability: str | None = None


EAGER = "eager"
_ALL = ("fp32", "tf32", "amp", "amp-bf16", "half", "bf16-weights")
_HALVES = ("fp32", "tf32", "half")

RUNTIMES = (
    Runtime(name=EAGER, words="PyTorch", on_cpu=_ALL, on_gpu=_ALL, of_torch=True),
    Runtime(
        name="torchscript", words="TorchScript", on_cpu=("fp32", "half", "bf16-weights"), on_gpu=(*_HALVES, "bf16-weights")
    ),
    Runtime(
        name="onnxruntime", words="ONNX Runtime", on_cpu=("fp32",), on_gpu=_HALVES, accelerators=("cpu", "cuda"),
        packages="onnxruntime",
    ),
    Runtime(
        name="onnxruntime-tensorrt", words="ONNX Runtime with TensorRT", on_gpu=("tf32", "half"), accelerators=("cuda",),
        packages="onnxruntime", in_images=True,
    ),  # it can't turn TF32 off
    Runtime(name="openvino", words="OpenVINO", on_cpu=("fp32", "amp-bf16"), accelerators=("cpu",), packages="openvino"),
    Runtime(name="torch-tensorrt", words="Torch-TensorRT", on_gpu=_HALVES, accelerators=("cuda",), in_images=True),
    Runtime(name="tensorrt", words="TensorRT", on_gpu=_HALVES, accelerators=("cuda",), in_images=True),
    Runtime(
        name="torchao-int8", words="torchao int8", on_cpu=("fp32", "bf16-weights"), on_gpu=("fp32", "half", "bf16-weights"),
        accelerators=("cpu", "cuda"), of_torch=True, quantized="int8", packages="torchao",
    ),
    Runtime(
        name="torchao-int4", words="torchao int4", on_gpu=("bf16-weights",), accelerators=("cuda",), of_torch=True,
        quantized="int4", packages="torchao", capability="8.0",
    ),
    Runtime(
        name="torchao-float8", words="torchao float8", on_gpu=("bf16-weights",), accelerators=("cuda",), of_torch=True,
        quantized="float8", packages="torchao", capability="8.9",
    ),
)  # fmt: skip
BY_NAME = {runtime.name: runtime for runtime in RUNTIMES}
