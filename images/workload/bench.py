"""One measurement of one model on the devices of this box: flags in, lines ``@matrix {json}`` out.

Runs under ``python bench.py …`` for one device and under ``torchrun --nproc_per_node N bench.py …`` for N. Needs the
standard library, torch 1.12 or newer, and torchvision or transformers for their models. Python 3.8 or newer.
"""

import argparse
import faulthandler
import os
import sys
import time

import cache
import protocol

OOM_MESSAGES = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "can't allocate memory")
"""How torch 1.12 … newest, cuBLAS, cuDNN, HIP and the CPU allocator say it when they don't raise OutOfMemoryError."""


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--mode", choices=("train", "infer"), default="train")
    parser.add_argument("--precision", choices=("fp32", "tf32", "amp", "amp-bf16"), default="fp32")
    parser.add_argument("--batch", type=int, required=True, help="items per device and step")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model (after DDP wraps it)")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--attention", choices=("eager", "sdpa"), default="eager", help="transformers models only")
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    parser.add_argument("--image-size", type=int, default=224, help="pixels per side")
    parser.add_argument("--sequence-length", type=int, default=128, help="tokens")
    parser.add_argument("--steps", type=int, default=50, help="steps per timed window")
    parser.add_argument("--windows", type=int, default=1, help="timed windows")
    parser.add_argument("--warmup-steps", type=int, default=10, help="at least so many steps before the first window")
    parser.add_argument("--warmup-cap", type=int, default=100, help="at most so many, if the step time isn't flat")
    parser.add_argument("--warmup-tolerance", type=float, default=0.02, help="flat: two blocks differ by less (ratio)")
    parser.add_argument("--batches", type=int, default=4, help="different random batches, used in turn")
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True, help="cuda also names ROCm devices")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads per process; 0: one per allowed CPU")
    parser.add_argument("--cpus", default="", help='CPUs of each process, such as "0-3:4-7"')
    parser.add_argument("--cache", default="", help="folder for compile caches, kept from launch to launch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deadline", type=float, default=0, help="seconds after which this process ends itself")
    parser.add_argument("--collective-timeout", type=float, default=600, help="seconds a rank waits for the others")
    args = parser.parse_args(argv)
    args.rank = int(os.environ.get("RANK", "0"))
    return args


def main(argv):
    channel = protocol.Channel(int(os.environ.get("RANK", "0")))
    args = parse(argv)
    if args.deadline:
        faulthandler.dump_traceback_later(args.deadline, exit=True)
    _set_environment(args)
    state = cache.prepare(args.cache, args.rank)
    channel.emit("hello", protocol=protocol.VERSION, arguments=vars(args), compile_cache=state)
    try:
        _run(channel, args)
    except Exception as error:  # the border of the process: every failure becomes a failure line and an exit code
        channel.emit_failure(_kind_of(error), error)
        raise


def _set_environment(args):
    """What must be set before torch is imported: no image may override the precision, N = 1 threads as N > 1 does."""
    os.environ.pop("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", None)
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    if args.threads:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)


def _run(channel, args):
    begin = time.perf_counter()
    import phases

    channel.emit("phase", phase="import", seconds=time.perf_counter() - begin)
    phases.run(channel, args)
    cache.seal(args.cache, args.rank)
    channel.emit("done")


def _kind_of(error):
    """The outcome that an exception means: unsupported, numerics, oom or crashed."""
    if isinstance(error, protocol.Unsupported):
        return "unsupported"
    if isinstance(error, protocol.Numerics):
        return "numerics"
    text = "%s %s" % (type(error).__name__, error)
    if isinstance(error, MemoryError) or "OutOfMemoryError" in text or any(m in text for m in OOM_MESSAGES):
        return "oom"
    return "crashed"


if __name__ == "__main__":
    main(sys.argv[1:])
