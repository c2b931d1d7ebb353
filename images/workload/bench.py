"""One measurement of one model on the devices of this box: flags in, lines ``@matrix {json}`` out.

Runs under ``python bench.py …`` for one device and under ``python torchrun.py --nproc_per_node N bench.py …`` for N. Needs the
standard library, torch 1.12 or newer, and torchvision or transformers for their models. Python 3.8 or newer.
"""

import argparse
import faulthandler
import gc
import os
import sys
import time
import traceback

import cache
import failures
import measurements
from channel import VERSION, Channel
from recipes import FLOAT8

PRECISION_OVERRIDES = (
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
)  # fmt: skip
"""Environment variables with which an image can change what float32 means."""


RUNTIMES = (
    "eager", "torchscript", "onnxruntime", "onnxruntime-tensorrt", "openvino", "torch-tensorrt", "tensorrt", "torchao-int8",
    "torchao-int4", "torchao-float8", "torchao-mxfp8", "torchao-mxfp4", "torchao-nvfp4",
)  # fmt: skip
"""See runtimes/."""
PRECISIONS = ("fp32", "tf32", "amp", "amp-bf16", "half", "bf16-weights", "bf16-master", *FLOAT8, "nvfp4")
"""See precision.py."""


def parse(argv):
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--model-file", default="", help="a file of your own that builds the model")
    parser.add_argument("--model-builder", default="", help="the function or class in it")
    parser.add_argument("--model-sha256", default="", help="the file's, which is checked")
    parser.add_argument("--mode", choices=measurements.names(), default="train")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--runtime", choices=RUNTIMES, default="eager", help="infer only: what runs the model")
    parser.add_argument("--batch", type=int, required=True, help="items per device and step; of each micro batch; tp: of all")
    parser.add_argument("--shape", default="", help="micro only: M x N x K of a product, such as 4096x4096x4096")
    parser.add_argument("--bytes", type=int, default=0, help="micro only: of each array of a stream, or of what is exchanged")
    parser.add_argument("--direction", choices=("to-device", "to-host", "both"), default="to-device", help="micro: host-copy")
    parser.add_argument("--no-pinned", dest="pinned", action="store_false", help="micro: the host's memory may be paged out")
    parser.add_argument("--pattern", choices=("random", "zeros", "ones"), default="random", help="micro: the numbers")
    parser.add_argument("--checkpointing", action="store_true", help="train only: compute activations again in backward")
    parser.add_argument("--accumulate", type=int, default=1, help="train only: micro batches per optimizer step")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model (after DDP wraps it)")
    parser.add_argument("--compile-mode", choices=("default", "reduce-overhead", "max-autotune"), default="default")
    parser.add_argument("--compile-shapes", choices=("auto", "static", "dynamic"), default="auto", help="what is compiled for")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--attention", choices=("eager", "sdpa", "auto"), default="eager", help="transformers models only")
    parser.add_argument("--no-native-kernels", dest="native_kernels", action="store_false", help="torch's own operators only")
    parser.add_argument("--no-cudnn-benchmark", dest="cudnn_benchmark", action="store_false", help="cuDNN picks by heuristics")
    parser.add_argument("--grad", choices=("none", "no_grad", "inference_mode"), default="no_grad", help="infer only")
    parser.add_argument("--no-eval", dest="eval", action="store_false", help="infer in train mode: dropout, batch statistics")
    parser.add_argument("--optimizer", choices=("sgd", "adamw", "adamw-fused"), default="sgd")
    parser.add_argument("--image-size", type=int, default=224, help="pixels per side")
    parser.add_argument("--sequence-length", type=int, default=128, help="tokens")
    parser.add_argument("--output-length", type=int, default=32, help="generate only: tokens after those of the prompt")
    parser.add_argument("--audio-seconds", type=int, default=10, help="length of a clip of sound")
    parser.add_argument(
        "--parallel", choices=("ddp", "fsdp", "tp", "no-sync", "independent"), default="ddp", help="how N > 1 ranks interact"
    )
    parser.add_argument("--find-unused-parameters", action="store_true", help="ddp only: some get no gradient; costs time")
    parser.add_argument("--steps", type=int, default=50, help="minimum number of steps in a timed window")
    parser.add_argument("--seconds", type=float, default=0, help="minimum length of a timed window")
    parser.add_argument("--windows", type=int, default=1, help="number of timed windows")
    parser.add_argument("--warmup-steps", type=int, default=10, help="minimum number of steps of the warm-up")
    parser.add_argument("--warmup-seconds", type=float, default=0, help="minimum length of the warm-up, whatever the caps")
    parser.add_argument("--warmup-cap", type=int, default=0, help="maximum number of steps, if the step time drifts; 0: none")
    parser.add_argument("--warmup-cap-seconds", type=float, default=300, help="maximum length, if the step time drifts")
    parser.add_argument("--requests", type=int, default=0, help="infer only: at most so many are timed one by one")
    parser.add_argument("--request-seconds", type=float, default=10, help="then fewer, but at least 10 of them")
    parser.add_argument("--batches", type=int, default=4, help="different random batches, used in turn")
    parser.add_argument("--data", choices=("synthetic", "disk"), default="synthetic", help="train only: see loading.py")
    parser.add_argument("--workers", type=int, default=4, help="disk: processes that load, per rank; 0: the rank itself")
    parser.add_argument("--prefetch", type=int, default=2, help="disk: batches that each of them loads ahead")
    parser.add_argument("--no-pin-memory", dest="pin_memory", action="store_false", help="disk: batches may be paged out")
    parser.add_argument("--decoder", choices=("torchvision", "pillow"), default="torchvision", help="disk: of JPEGs")
    parser.add_argument("--page-cache", choices=("warm", "cold"), default="warm", help="disk: cold reads each file from it")
    parser.add_argument("--device", choices=("cuda", "xpu", "cpu"), required=True, help="cuda also names ROCm devices")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads per process; 0: one per allowed CPU")
    parser.add_argument("--cpus", default="", help='CPUs of each process, such as "0-3:4-7"; none: any')
    parser.add_argument("--cache", default="", help="folder for compile caches, kept from launch to launch")
    parser.add_argument("--sealed-cache", default="", help="a compile cache that is only read: --cache begins as its copy")
    parser.add_argument("--proof", choices=("full", "fingerprint", "none"), default="full", help="how the work is proven")
    parser.add_argument("--proven", type=_numbers, default={}, help="of a launch that was proven: flops_per_item=3e9")
    parser.add_argument("--peak-flops", type=float, default=0, help="of one device, in FLOP/s; more is refused; 0: unknown")
    parser.add_argument("--all-reduce-probe", action="store_true", help="also time collectives, up to the gradients' size")
    parser.add_argument("--profile", type=int, default=0, help="trace so many steps instead of measuring; gives no figure")
    parser.add_argument("--name-kernels", action="store_true", help="with --profile: name what is compiled for a CPU; slow")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deadline", type=float, default=0, help="seconds after which this process ends itself")
    parser.add_argument("--collective-timeout", type=float, default=600, help="seconds a rank waits for the others")
    args = parser.parse_args(argv)
    args.rank = int(os.environ.get("RANK", "0"))
    args.quantized = args.runtime.split("-")[1] if args.runtime.startswith("torchao-") else None
    args.arithmetic = args.quantized or args.precision
    return args


def _numbers(text):
    """Parse numbers by name, such as "flops_per_item=3e9"."""
    return {name: float(value) for name, _, value in (pair.partition("=") for pair in text.split(","))}


def main(argv):
    channel = Channel(int(os.environ.get("RANK", "0")))
    args = parse(argv)
    if args.deadline:
        faulthandler.dump_traceback_later(args.deadline, exit=True)
    overrides = set_environment(args)
    state = cache.prepare(args.cache, args.rank, args.sealed_cache)
    channel.emit("hello", protocol=VERSION, arguments=vars(args), compile_cache=state, argv=sys.argv, removed=overrides)
    try:
        _run(channel, args)
    except BaseException as error:  # the edge of the process: every failure, sys.exit(), too, becomes a line and an exit code
        channel.emit_failure(failures.kind_of(error), failures.message(error, args.model_file))
        traceback.print_exc()
        leave(1)
    leave(0)


def leave(code):
    """End without tearing the interpreter down: everything has been written, and threads of a process group may abort there
    ("terminate called without an active exception", seen once in some eighty launches of two ranks with gloo).
    """
    cache.remove_temporary()
    for stream in (sys.stdout, sys.stderr):  # a user's model may have printed
        stream.flush()
    os._exit(code)


def set_environment(args):
    """Set what must be set before torch is imported: no image may override the precision, N = 1 gets threads like N > 1, and
    kernels that replace torch's own are registered then.

    Return the overrides that were removed, for the record.
    """
    if args.threads:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
    if args.mode == "micro" and args.device != "cpu":
        os.environ.setdefault("NCCL_DEBUG", "INFO")  # the host reads by what GPUs exchange data
    if not args.native_kernels:
        os.environ.update(TORCH_DISABLE_NATIVE_JIT="1", TORCH_DISABLE_NATIVE_AOT="1")
    return {name: os.environ.pop(name) for name in PRECISION_OVERRIDES if name in os.environ}


def load(args):
    """Import what a launch with `args` needs.

    Garbage collection would take a seventh of the time of the imports, so it is off meanwhile. All objects that the imports
    make are needed to the end: the collections before each window leave them out, too.
    """
    gc.disable()
    try:
        import families
        import phases  # noqa: F401

        families.learn(args)
        families.load(args)
        measurements.of(args)
    finally:
        gc.freeze()
        gc.enable()


def _run(channel, args):
    begin = time.perf_counter()
    load(args)
    channel.emit("phase", phase="import", seconds=time.perf_counter() - begin)
    import phases

    phases.run(channel, args)
    cache.seal(args.cache, args.rank)
    channel.emit("done")


if __name__ == "__main__":
    main(sys.argv[1:])
