"""The factors: each is one thing that a workload can vary. All that the tool knows of a factor stands in its entry here.

Derived from the entries: the keys of [[workload]], the conditions of --where, the workload's flags, the ids, the values that
two launches must share to be compared, the columns of tables and exports, the labels and pairs of the charts. A new factor is
one entry here and the lines in images/workload that take its flag and act on it.
"""

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from torchmatrix.core import assets
from torchmatrix.core.toml_keys import Key
from torchmatrix.facts.operations import MICRO, SHAPE
from torchmatrix.machine.vendors import ACCELERATORS

# The modes of workloads: what images/workload/measurements can measure. A new file there is a new mode.
#
# The host reads only the literal MODE of each file, so that it needs no torch.


@dataclass(frozen=True, kw_only=True, slots=True)
class Mode:
    """A mode. `trains`: whether it trains the model; `windows`: whether its figure is timed windows of steps; `timed`: what is
    timed; `noun`, `verb`: its words for readers: "training"; a model "trains".
    """

    trains: bool
    windows: bool
    timed: str
    noun: str
    verb: str


def _read() -> dict[str, Mode]:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (assets.WORKLOAD / "measurements").glob("*.py")}
    headers = {name: header for name, text in texts.items() if (header := _HEADER.search(text))}
    modes = {name: Mode(**ast.literal_eval(header[1])) for name, header in headers.items()}
    return dict(sorted(modes.items(), key=lambda item: (not item[1].trains, item[0])))


_HEADER = re.compile(r"^MODE = (\{.*?^\})", re.MULTILINE | re.DOTALL)
MODES: Mapping[str, Mode] = _read()
"""All modes by name, those that train first."""
WITH_WINDOWS = tuple(name for name, mode in MODES.items() if mode.windows)


# Runtimes for inference: one entry for each module of images/workload/runtimes, and for each choice within one


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """One way to run a model. `words`: its name for readers. `on_cpu`, `on_gpu`: its precisions, empty where it doesn't run.

    `accelerators`: of the stacks that it runs on. `of_torch`: its model is a torch module, which torch.compile can compile and
    which has a train mode; other runtimes export the graph. `quantized`: the type that it turns linear layers into.
    `packages`: the name of its rows in the catalog, if it has any; `in_images`: it comes with vendors' images only.
    `capability`: the oldest NVIDIA GPU; `beyond`: the first one after it that can't.
    """

    name: str
    words: str
    on_cpu: tuple[str, ...] = ()
    on_gpu: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ACCELERATORS
    of_torch: bool = False
    quantized: str | None = None
    packages: str | None = None
    in_images: bool = False
    capability: str | None = None
    beyond: str | None = None


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
    *(
        Runtime(
            name=f"torchao-{kind}", words=f"torchao {kind.upper()}", on_gpu=("bf16-weights",), accelerators=("cuda",),
            of_torch=True, quantized=kind, packages="torchao", capability="10.0", beyond="11.0" if kind == "mxfp4" else None,
        )
        for kind in ("mxfp8", "mxfp4", "nvfp4")
    ),
)  # fmt: skip


def _words_of(runtime: Runtime) -> tuple[str, str]:
    """Return how a runtime and PyTorch's own are called where they are compared."""
    return (
        (f"{runtime.quantized} weights (torchao)", "the weights as they are")
        if runtime.quantized
        else (runtime.words, "PyTorch")
    )


RUNTIMES_BY_NAME = {runtime.name: runtime for runtime in RUNTIMES}


Value = str | int | float | bool | None


OF_THE_JOB = "data"
"""The factor whose values are other jobs: what reads its data does more work, and is never advised against."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """Two values that are compared with all else equal: `value` over `over`, in `words` for a chart's title.

    `name` is the setting in tables of such pairs.
    """

    name: str
    value: Value
    over: Value
    words: tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Factor:
    """One factor. `name`: its key in matrix.toml and --where, and its field in the facts. `meaning`: a phrase for readers.

    `kind`, `choices`, `minimum`, `maximum`, `pattern` (`explanation`: in words): the allowed values; with `axis` a list
    multiplies. `default`: also assumed for facts recorded before the factor existed; None: the batch is required, the optimizer
    depends on the library.

    `flag`: of the workload; a truth value passes it alone, if it isn't the default. `part`: of the id, at `place` among
    the parts ({}: the value), left out for the default unless `always_in_id`. `label`: the same for charts.

    It applies to `modes` and `devices` (empty: all) and, with `of_some_models`, only to models that take it (models.json);
    elsewhere its value is None. Where a workload lacks what it `needs`, a factor and its value, it has its default. `decides`:
    whether it may change the figure; then launches that differ in it aren't compared. `idle_for`: globs on models whose speed
    it can't change, a negative control; `acts_in`: the only modes in which it changes anything (empty: all). `has_column`:
    whether tables and exports have a column of its name.
    """

    name: str
    meaning: str
    kind: type
    default: Value = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    pattern: str = ""
    explanation: str = ""
    axis: bool = True
    flag: str
    part: str = ""
    place: int = 50
    always_in_id: bool = False
    label: str = ""
    of_some_models: bool = False
    modes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    needs: tuple[str, Value] | None = None
    decides: bool = True
    has_column: bool = True
    contrasts: tuple[Contrast, ...] = ()
    idle_for: tuple[str, ...] = ()
    acts_in: tuple[str, ...] = ()

    def key(self) -> Key:
        """Return the key of the factor in a [[workload]] table."""
        return Key(
            kind=self.kind,
            default=self.default,
            choices=self.choices,
            minimum=self.minimum,
            maximum=LARGEST if self.maximum is None and self.kind is int else self.maximum,
            pattern=self.pattern,
            explanation=self.explanation,
            axis=self.axis,
            meaning=f"{self.meaning[0].upper()}{self.meaning[1:]}.",
        )

    def applies(self, takes: Collection[str], mode: Value, device: Value) -> bool:
        """Check whether the factor applies to a model that `takes` these factors, in this mode, on this device (gpu or cpu).

        Microbenchmarks have no model to be built, compiled or trained: of what is an axis they have what they take.
        """
        if mode == MICRO and self.axis and self.name not in (*ALWAYS, *takes):
            return False
        return (
            (not self.of_some_models or self.name in takes)
            and (not self.modes or mode in self.modes)
            and (not self.devices or device in self.devices)
        )

    def settled(self, values: Mapping[str, Value]) -> Value:
        """Return its value among those of all factors; its default where the workload lacks what it needs."""
        return self.default if self.needs and values[self.needs[0]] != self.needs[1] else values[self.name]

    def part_for(self, value: Value) -> str:
        """Return the part of an id for `value`; "" if it has none."""
        is_in_id = value is not None and (self.always_in_id or value != self.default)
        return self.part.format(value) if is_in_id else ""

    def words_for(self, value: Value) -> tuple[str, ...]:
        """Return the words of the workload's command line for `value`."""
        if value is None or (isinstance(value, bool) and value == self.default):
            return ()
        return (self.flag,) if isinstance(value, bool) else (self.flag, str(value))

    def recorded_in(self, workload: Mapping[str, Any]) -> Any:
        """Return its value in a launch's facts; the default where they are older than the factor and it applies, else None.

        What acts with data from disk alone has none elsewhere.
        """
        if self.needs and self.needs[0] == OF_THE_JOB != self.name and workload.get(OF_THE_JOB) != self.needs[1]:
            return None
        if self.name in workload:
            return workload[self.name]
        return self.default if self.applies((), workload.get("mode"), workload.get("device", "gpu")) else None


ALWAYS = ("model", "mode", "precision", "batch", "parallel")
"""The factors that every workload has."""
LARGEST = 1_000_000_000
"""The largest whole number that a factor takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Float8:
    """A precision of training with linear layers in float8. `words`: for charts' titles; `label`: for their settings.

    `packages`: the name of its rows in the catalog, if it has any; `in_images`: it comes with vendors' images only.
    `capability`: the oldest NVIDIA GPU. `multiple`: of the tokens of a batch.
    """

    name: str
    words: str
    label: str
    packages: str | None = None
    in_images: bool = False
    capability: str
    multiple: int = 16


IN_FLOAT8 = {
    recipe.name: recipe
    for recipe in (
        Float8(name="fp8", words="float8 training", label="float8", packages="torchao", capability="8.9"),
        Float8(name="fp8-rowwise", words="rowwise float8", label="float8, rowwise", packages="torchao", capability="9.0"),
        Float8(name="mxfp8", words="MXFP8 training", label="MXFP8", packages="torchao", capability="10.0", multiple=32),
        Float8(
            name="fp8-te", words="Transformer Engine's float8", label="float8, Transformer Engine", in_images=True,
            capability="8.9",
        ),
    )
}  # fmt: skip
"""By name. The workload knows them by images/workload/recipes.py."""
BF16_MASTER = "bf16-master"
"""Precision of training in bfloat16, of which the optimizer keeps the weights in float32."""
NVFP4 = "nvfp4"
"""Precision of a product alone."""
PRECISIONS = ("fp32", "tf32", "amp", "amp-bf16", "half", "bf16-weights", BF16_MASTER, *IN_FLOAT8, NVFP4)

TUNED = (
    *("precision", "runtime", "compile", "compile_mode", "compile_shapes", "channels_last", "attention", "cudnn_benchmark"),
    *("native_kernels", "grad"),
)  # fmt: skip
"""The factors that are ways to do the same work: a reader asks which of them is fastest. The others change the work."""
_WITHOUT_CONVOLUTIONS = ("bert-*", "gpt2*", "distilbert*", "roberta*", "albert*", "electra*")

FACTORS = (
    Factor(name="model", meaning="what is trained or run", kind=str, flag="--model", part="{}", place=1),
    Factor(
        name="mode", meaning=" or ".join(MODES), kind=str, default="train", choices=tuple(MODES),
        flag="--mode", part="{}", place=2, always_in_id=True,
    ),
    Factor(
        name="precision", kind=str, default="fp32",
        meaning="as requested: fp32 (IEEE), tf32, autocast (amp: fp16, amp-bf16), all in half (fp16) or bf16-weights, in"
        " training with fp32 weights in the optimizer (bf16-master), linear layers in float8 (" + ", ".join(IN_FLOAT8) + "),"
        " or a product of NVFP4",
        choices=PRECISIONS, flag="--precision", part="{}", place=3, always_in_id=True,
        contrasts=(
            Contrast(name="amp", value="amp", over="fp32", words=("AMP (float16)", "fp32")),
            Contrast(name="amp-bf16", value="amp-bf16", over="fp32", words=("AMP (bfloat16)", "fp32")),
            Contrast(name="tf32", value="tf32", over="fp32", words=("TF32", "fp32")),
            Contrast(name="half", value="half", over="fp32", words=("float16 weights", "fp32")),
            Contrast(name="bf16-weights", value="bf16-weights", over="fp32", words=("bfloat16 weights", "fp32")),
            Contrast(
                name=BF16_MASTER, value=BF16_MASTER, over="bf16-weights",
                words=("fp32 master weights", "bfloat16 weights alone"),
            ),
            *(
                Contrast(name=name, value=name, over="amp-bf16", words=(recipe.words, "AMP (bfloat16)"))
                for name, recipe in IN_FLOAT8.items()
            ),
        ),
    ),
    Factor(
        name="runtime", meaning="what runs the model in inference; torch.compile is a factor of its own", kind=str,
        default=EAGER, choices=tuple(runtime.name for runtime in RUNTIMES), flag="--runtime", part="{}", place=9, label="{}",
        modes=("infer", "generate"),
        contrasts=tuple(
            Contrast(name=runtime.name, value=runtime.name, over=EAGER, words=_words_of(runtime))
            for runtime in RUNTIMES[1:]
        ),
    ),
    Factor(
        name="compile", meaning="with torch.compile", kind=bool, default=False, flag="--compile", part="compile", place=9,
        label="compiled",
        contrasts=(Contrast(name="compile", value=True, over=False, words=("torch.compile", "eager")),),
    ),
    Factor(
        name="compile_mode", meaning="what torch.compile optimises for, where it compiles", kind=str, default="default",
        choices=("default", "reduce-overhead", "max-autotune"), flag="--compile-mode", part="{}", place=9, label="{}",
        needs=("compile", True),
        contrasts=(
            Contrast(
                name="reduce-overhead", value="reduce-overhead", over="default", words=("reduce-overhead", "default compile")
            ),
            Contrast(name="max-autotune", value="max-autotune", over="default", words=("max-autotune", "default compile")),
        ),
    ),
    Factor(
        name="compile_shapes", kind=str, default="auto", choices=("auto", "static", "dynamic"),
        meaning="shapes that torch.compile compiles for: static, dynamic or auto (static until a shape changes)",
        flag="--compile-shapes", part="{}-shapes", place=9, label="{} shapes", needs=("compile", True),
        contrasts=(
            Contrast(name="dynamic-shapes", value="dynamic", over="static", words=("dynamic shapes", "static shapes")),
        ),
    ),
    Factor(
        name="channels_last", meaning="images in NHWC memory format", kind=bool, default=False, flag="--channels-last",
        part="nhwc", place=8, label="NHWC",
        contrasts=(Contrast(name="channels_last", value=True, over=False, words=("channels_last", "contiguous memory")),),
        idle_for=_WITHOUT_CONVOLUTIONS,
    ),
    Factor(
        name="attention", kind=str, default="eager",
        meaning="eager, sdpa, or auto: what transformers takes for the model by itself; only for models with attention",
        choices=("eager", "sdpa", "auto"), flag="--attention", part="{}", place=7, always_in_id=True, label="{} attention",
        of_some_models=True,
    ),
    Factor(
        name="cudnn_benchmark", meaning="let cuDNN try its algorithms and keep the fastest", kind=bool, default=True,
        flag="--no-cudnn-benchmark", part="no-cudnn-benchmark", label="no cuDNN benchmark", devices=("gpu",),
        idle_for=_WITHOUT_CONVOLUTIONS,
        contrasts=(
            Contrast(name="cudnn_benchmark", value=True, over=False, words=("cudnn.benchmark", "cuDNN’s own choice")),
        ),
    ),
    Factor(
        name="native_kernels", kind=bool, default=True, flag="--no-native-kernels", part="no-native-kernels",
        meaning="kernels of torch._native in place of torch's own, where the stack has some (torch 2.12 and newer)",
        label="no native kernels", devices=("gpu",),
        contrasts=(
            Contrast(name="native_kernels", value=True, over=False, words=("native kernels", "none of torch._native")),
        ),
    ),
    Factor(
        name="grad", meaning="how inference turns gradients off: none (not at all), no_grad or inference_mode",
        kind=str, default="no_grad", choices=("none", "no_grad", "inference_mode"), flag="--grad", part="grad-{}",
        label="grad {}", modes=("infer",),
        contrasts=(
            Contrast(name="grad-none", value="none", over="no_grad", words=("gradients recorded", "no_grad")),
            Contrast(name="inference_mode", value="inference_mode", over="no_grad", words=("inference_mode", "no_grad")),
        ),
    ),
    Factor(
        name="eval", kind=bool, meaning="inference in eval mode; else in train mode, with dropout and batch statistics",
        default=True, flag="--no-eval", part="train-mode", label="train mode", modes=("infer",),
        contrasts=(Contrast(name="eval", value=True, over=False, words=("eval mode", "train mode")),),
    ),
    Factor(
        name="optimizer", meaning="sgd, adamw or adamw-fused; by default what the model is usually trained with", kind=str,
        choices=("sgd", "adamw", "adamw-fused"), flag="--optimizer", part="{}", place=10, acts_in=("train",),
        contrasts=(Contrast(name="fused", value="adamw-fused", over="adamw", words=("fused AdamW", "AdamW")),),
    ),
    Factor(
        name="checkpointing", kind=bool, default=False, flag="--checkpointing", part="checkpointing", place=10,
        meaning="activation checkpointing: the activations of each block are computed again in the backward pass",
        label="checkpointing", modes=("train",), needs=("mode", "train"),
        contrasts=(
            Contrast(name="checkpointing", value=True, over=False, words=("activation checkpointing", "kept activations")),
        ),
    ),
    Factor(
        name="accumulate", kind=int, default=1, minimum=1, maximum=1_000, flag="--accumulate", part="accumulate{}", place=10,
        meaning="micro batches per step: so many times forward and backward, then one step by the mean gradient",
        label="accumulate {}", modes=("train",), needs=("mode", "train"),
    ),
    Factor(
        name="data", kind=str, default="synthetic", choices=("synthetic", "disk"), flag="--data", part="{}", place=11,
        meaning="synthetic: random tensors that are there already; disk: files that torch's DataLoader reads: JPEGs or tokens",
        label="data from {}", modes=("train",), needs=("mode", "train"),
        contrasts=(Contrast(name="disk", value="disk", over="synthetic", words=("data from disk", "synthetic data")),),
    ),
    Factor(
        name="workers", meaning="processes per device that load data; 0: the training process itself", kind=int, default=4,
        minimum=0, maximum=256, flag="--workers", part="w{}", place=11, label="workers {}", modes=("train",),
        needs=("data", "disk"),
    ),
    Factor(
        name="prefetch", meaning="batches that each of them loads ahead", kind=int, default=2, minimum=1, maximum=64,
        flag="--prefetch", part="ahead{}", place=11, label="prefetch {}", modes=("train",), needs=("data", "disk"),
    ),
    Factor(
        name="pin_memory", meaning="a GPU copies batches from memory that can't be paged out", kind=bool, default=True,
        flag="--no-pin-memory", part="pageable", place=11, label="pageable", modes=("train",), needs=("data", "disk"),
    ),
    Factor(
        name="decoder", meaning="what decodes JPEGs", kind=str, default="torchvision", choices=("torchvision", "pillow"),
        flag="--decoder", part="{}", place=11, modes=("train",), needs=("data", "disk"),
    ),
    Factor(
        name="page_cache", meaning="warm: the files are in memory when the windows begin; cold: each is read from the disk",
        kind=str, default="warm", choices=("warm", "cold"), flag="--page-cache", part="{}-cache", place=11,
        label="{} page cache", modes=("train",), needs=("data", "disk"),
    ),
    Factor(
        name="batch", meaning="items per device and step; with accumulate, of each micro batch", kind=int, minimum=1,
        flag="--batch", part="b{}", place=4, decides=False, has_column=False,
    ),  # two launches must share the batch that was used, which is recorded apart
    Factor(
        name="image_size", meaning="pixels per side", kind=int, default=224, minimum=32, flag="--image-size", part="{}px",
        place=5, always_in_id=True, of_some_models=True, has_column=False,
    ),
    Factor(
        name="sequence_length", meaning="tokens per sequence", kind=int, default=128, minimum=2, flag="--sequence-length",
        part="s{}", place=6, always_in_id=True, of_some_models=True, has_column=False,
    ),
    Factor(
        name="output_length", meaning="tokens that each sequence is continued by, after those of its prompt", kind=int,
        default=32, minimum=2, flag="--output-length", part="o{}", place=6, always_in_id=True, modes=("generate",),
        has_column=False,
    ),
    Factor(
        name="audio_seconds", meaning="seconds of sound per clip, of 16,000 samples a second", kind=int, default=10, minimum=1,
        maximum=3_600, flag="--audio-seconds", part="{}s", place=6, always_in_id=True, of_some_models=True, has_column=False,
    ),
    Factor(
        name="shape", kind=str, default="4096x4096x4096", flag="--shape", part="{}", place=4, always_in_id=True,
        meaning="M x N x K of the product of an M x K and a K x N matrix", pattern=SHAPE,
        explanation='write it as "4096x4096x8192": M x N x K, each below ten million', of_some_models=True, has_column=False,
    ),
    Factor(
        name="bytes", kind=int, default=2**28, minimum=8, flag="--bytes", part="{}B", place=4, always_in_id=True,
        meaning="bytes of each array of a stream or a copy, or of what ranks exchange", maximum=2**38, of_some_models=True,
        has_column=False,
    ),
    Factor(
        name="direction", kind=str, default="to-device", choices=("to-device", "to-host", "both"), flag="--direction",
        part="{}", place=5, always_in_id=True, meaning="which way a copy between the host and a device goes",
        of_some_models=True, has_column=False,
    ),
    Factor(
        name="pinned", kind=bool, default=True, flag="--no-pinned", part="pageable", place=6, has_column=False,
        meaning="copies from and to host memory that stays in place (pinned)", label="pageable", of_some_models=True,
    ),
    Factor(
        name="pattern", kind=str, default="random", choices=("random", "zeros", "ones"), flag="--pattern", part="{}", place=6,
        meaning="the numbers of a microbenchmark: they move the clock of a GPU", label="{}", of_some_models=True,
        has_column=False,
    ),
    Factor(
        name="parallel", kind=str, default="ddp", choices=("ddp", "fsdp", "tp"), flag="--parallel", part="{}", place=100,
        meaning="how several processes train one model: each with all of it (ddp), with a part of every parameter (fsdp), or "
        "with a part of every matrix, all on one batch (tp)",
        label="{}", has_column=False, contrasts=(Contrast(name="fsdp", value="fsdp", over="ddp", words=("FSDP", "DDP")),),
    ),
    Factor(
        name="find_unused_parameters", kind=bool, default=False, flag="--find-unused-parameters", part="find-unused", place=101,
        meaning="let DDP look, in each step, for parameters without a gradient: a model with such needs it, and it costs time",
        label="finds unused", modes=("train",), needs=("parallel", "ddp"), has_column=False,
    ),
    Factor(
        name="steps", meaning="minimum number of steps in a timed window", kind=int, default=50, minimum=1, axis=False,
        flag="--steps", has_column=False,
    ),
    Factor(
        name="seconds", meaning="minimum seconds of a timed window", kind=float, default=0.0, minimum=0, maximum=86_400,
        axis=False, flag="--seconds", has_column=False,
    ),
    Factor(
        name="windows", meaning="number of timed windows", kind=int, default=1, minimum=1, axis=False, flag="--windows",
        modes=WITH_WINDOWS, has_column=False,
    ),
    Factor(
        name="requests", meaning="at most so many requests are timed one by one, in inference as many end to end; 0: none",
        kind=int, default=1000, minimum=0, maximum=10_000, axis=False, flag="--requests", modes=("infer", "generate"),
        decides=False, has_column=False,
    ),
    Factor(
        name="request_seconds", kind=float,
        meaning="so long at most for the requests of each kind: fewer if they take longer, but at least 10, in generation 3",
        default=10.0, minimum=0, maximum=86_400, axis=False, flag="--request-seconds", modes=("infer", "generate"),
        decides=False, has_column=False,
    ),
    Factor(
        name="warmup_steps", meaning="minimum number of warm-up steps", kind=int, default=10, minimum=1,
        axis=False, flag="--warmup-steps", has_column=False,
    ),
    Factor(
        name="warmup_seconds", meaning="minimum seconds of warm-up, regardless of the caps", kind=float, default=0.0,
        minimum=0, maximum=86_400, axis=False, flag="--warmup-seconds", has_column=False,
    ),
    Factor(
        name="warmup_cap", meaning="maximum number of warm-up steps, if the step time drifts; by default only seconds limit it",
        kind=int, minimum=1, axis=False, flag="--warmup-cap", has_column=False,
    ),
    Factor(
        name="warmup_cap_seconds", kind=float,
        meaning="maximum seconds of warm-up, if the step time drifts; 0 with the methods cold and aime",
        default=300.0, minimum=0, maximum=86_400, axis=False, flag="--warmup-cap-seconds", decides=False, has_column=False,
    ),
)  # fmt: skip
"""All factors, in the order in which lists multiply: the first varies slowest."""

BY_NAME = {factor.name: factor for factor in FACTORS}
COLUMNS = tuple(factor for factor in FACTORS if factor.has_column)
CONTRASTED = tuple(factor for factor in FACTORS if factor.contrasts)
"""The factors of whose values the charts show pairs."""
_NAMES = {factor.name for factor in CONTRASTED}
SETTLED = tuple(f for f in FACTORS if f.contrasts or (f.has_column and f.needs and f.needs[0] in _NAMES))
"""These, and those that act with one of their values alone, as the number of workers does with data from disk."""


def id_of(values: Mapping[str, Value]) -> str:
    """Return the factors' part of a workload's id."""
    ordered = sorted(FACTORS, key=lambda factor: factor.place)
    return "-".join(part for factor in ordered if (part := factor.part_for(values.get(factor.name))))
