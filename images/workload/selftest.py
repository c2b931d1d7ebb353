"""Does this image contain what it should, and does it train? Runs once after each build, on the CPU, without a network.

Imports the libraries, compares their versions with the recipe's and the files of a vendor's packages with what the vendor
delivered, trains a small ResNet and a small BERT for one step and, if this torch can, compiles a function. Writes one line
``@matrix {"event": "self-test", …}``, or a failure line if something is wrong.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import traceback

import bench
import cache
import failures
from channel import VERSION, Channel, Numerics

VENDOR_GUARD = "/opt/torchmatrix/vendor_guard.py"
"""Exists only in images based on a vendor's."""
SMALL = ("--batch", "2", "--batches", "1", "--image-size", "32", "--sequence-length", "16", "--device", "cpu")


def parse(argv):
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--require", action="append", default=[], help="name==version that must be installed; may be repeated")
    parser.add_argument("--built-for", choices=("cuda", "rocm", "xpu", "cpu"), default="cpu", help="what torch must support")
    parser.add_argument("--compile", action="store_true", help="also try torch.compile")
    parser.add_argument("--cache", default="", help="a writable folder")
    return parser.parse_args(argv)


def main(argv):
    channel = Channel(0)
    args = parse(argv)
    channel.emit("hello", protocol=VERSION, arguments=vars(args))
    try:
        channel.emit("self-test", **check(args))
    except Exception as error:  # the edge of the process
        channel.emit_failure(failures.kind_of(error), failures.message(error))
        traceback.print_exc()
        bench.leave(1)
    channel.emit("done")
    bench.leave(0)


def check(args):
    """Check the image and return the results; raise on the first thing that is wrong."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.make_temporary("torchmatrix-self-test-")
    wrong = mismatches(args.require) + other_builds(args.built_for) + without_device_code()
    if wrong:
        raise RuntimeError("the image differs from its recipe: " + "; ".join(wrong))
    vendor = _vendor()
    import record

    bench.load(bench.parse(["--model", "resnet18", *SMALL]))
    losses = {name: _train(name) for name in ("resnet18", "bert-tiny")}
    compiled = _compiles() if args.compile else None
    return {"losses": losses, "compiled": compiled, "vendor": vendor, **record.environment()}


def mismatches(requirements):
    """Return a line for each `name==version` that is not installed; a version without a local part (+cu124) accepts any."""
    from importlib import metadata

    lines = []
    for requirement in requirements:
        name, _, wanted = requirement.partition("==")
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            lines.append("%s is missing" % name)
            continue
        if wanted and wanted not in (version, version.split("+")[0]):
            lines.append("%s is %s, not %s" % (name, version, wanted))
    return lines


def other_builds(accelerator):
    """Return a line if torch was built without CUDA or ROCm though it is for it: an index may serve another build by that name.

    PyPI's wheels for Arm were CPU builds up to torch 2.10.
    """
    import torch

    names = {"cuda": ("CUDA", torch.version.cuda), "rocm": ("ROCm", torch.version.hip)}
    name, version = names.get(accelerator, ("", "not asked"))
    return [] if version else ["torch %s from this index is built without %s" % (torch.__version__, name)]


def without_device_code():
    """Return a line if torch needs a package with code for a GPU and has none, as AMD's wheels of ROCm 7.14 and newer do.

    Such a torch lists the GPU in get_arch_list(), and ends the first kernel with hipErrorInvalidImage.
    """
    from importlib import metadata

    try:
        headers = metadata.metadata("torch")
    except metadata.PackageNotFoundError:  # a vendor's build may have none
        return []
    extras = [name for name in headers.get_all("Provides-Extra") or () if name.startswith("device-gfx")]
    names = [distribution.metadata["Name"] or "" for distribution in metadata.distributions()]
    if not extras or any(name.startswith("amd-torch-device-") for name in names):
        return []
    text = (
        "torch %s has no code for any GPU: that is in packages such as %s, of which none is installed (packages in [[stack]])"
    )
    return [text % (headers["Version"], "amd-torch-%s==%s" % (extras[0], headers["Version"]))]


def _vendor():
    """Return the guard's record of the vendor's packages, None if this isn't a vendor's image; raise if they were changed."""
    if not os.path.exists(VENDOR_GUARD):
        return None
    done = subprocess.run(
        [sys.executable, VENDOR_GUARD, "check"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().split("\n")[-1])
    return json.loads(done.stdout.strip().split("\n")[-1])


def _train(name):
    """Return the loss of one training step on the CPU."""
    import torch

    import families
    import measurements

    class Alone:
        device, size, rank = torch.device("cpu"), 1, 0

    args = bench.parse(["--model", name, *SMALL])
    family = families.of(args)
    model, _ = families.build(args, Alone.device)
    step = measurements.of(args).make_step(args, Alone, family, model.train(), families.batches(args, Alone.device))
    step.run(0)
    (loss,) = step.losses()
    if not math.isfinite(loss):
        raise Numerics("the loss of %s is not finite" % name)
    return loss


def _compiles():
    """Return True if torch.compile gives the same result as eager mode; raise Numerics if not."""
    import torch

    def function(x):
        return torch.nn.functional.gelu(x @ x).sum()

    x = torch.randn(8, 8)
    eager, compiled = float(function(x)), float(torch.compile(function)(x))
    if abs(eager - compiled) > 1e-3 * max(1.0, abs(eager)):
        raise Numerics("torch.compile gives %r, but eager gives %r" % (compiled, eager))
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
