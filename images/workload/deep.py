"""What a server must be able to do before its figures mean anything: one short look at all devices of this box.

Devices by identity, peer access, the precision of products, all-reduces (are they right, and how fast?) and a steady load.
Flags in, lines ``@matrix {json}`` out, as bench.py writes them; one process per device. Needs what bench.py needs.
"""

import argparse
import os
import sys
import time

import cache
import failures
from channel import VERSION, Channel, Unsupported

REDUCED_MEGABYTES = {"cuda": 256, "xpu": 256, "cpu": 16}
LOAD_SIZE = {"cuda": 8192, "xpu": 8192, "cpu": 768}
SLICES = 10
PRECISIONS = ("fp32", "tf32", "amp", "amp-bf16")


def parse(argv):
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cuda", "xpu", "cpu"), required=True, help="cuda also names ROCm devices")
    parser.add_argument("--seconds", type=float, default=30, help="length of the load")
    parser.add_argument("--load-size", type=int, default=0, help="rows and columns of the load's matrices; 0: by device")
    parser.add_argument("--megabytes", type=int, default=0, help="size of copies and of the largest all-reduce; 0: by device")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads per process; 0: one per allowed CPU")
    parser.add_argument("--cpus", default="", help='CPUs of each process, such as "0-3:4-7"')
    parser.add_argument("--cache", default="", help="folder for compile caches")
    parser.add_argument("--collective-timeout", type=float, default=120, help="seconds a rank waits for the others")
    args = parser.parse_args(argv)
    args.rank = int(os.environ.get("RANK", "0"))
    args.load_size = args.load_size or LOAD_SIZE[args.device]
    args.bytes = (args.megabytes or REDUCED_MEGABYTES[args.device]) << 20
    return args


def main(argv):
    channel = Channel(int(os.environ.get("RANK", "0")))
    args = parse(argv)
    cache.prepare(args.cache, args.rank)
    channel.emit("hello", protocol=VERSION, arguments=vars(args), argv=sys.argv)
    try:
        _run(channel, args)
    except Exception as error:  # the edge of the process: every failure becomes a failure line and an exit code
        channel.emit_failure(failures.kind_of(error), failures.message(error))
        raise
    sys.stderr.flush()
    os._exit(0)  # see bench.py: threads of a process group may abort while the interpreter is torn down


def _run(channel, args):
    world = _timed(channel, "start", lambda: _start(args))
    _timed(channel, "devices", lambda: _devices(channel, world))
    _timed(channel, "peers", lambda: channel.emit("peers", **_peers(world, args.bytes)))
    _timed(channel, "precision", lambda: _precisions(channel, world))
    if world.size > 1:
        _timed(channel, "all-reduce", lambda: _all_reduce(channel, world, args.bytes))
    _timed(channel, "load", lambda: channel.emit("load", **_load(world, args.load_size, args.seconds)))
    world.finish()
    channel.emit("done")


def _timed(channel, phase, action):
    begin = time.perf_counter()
    result = action()
    channel.emit("phase", phase=phase, seconds=time.perf_counter() - begin)
    return result


def _start(args):
    import devices
    from world import World

    devices.of_kind(args.device).require()
    return World(args)


def _devices(channel, world):
    import record

    channel.emit("environment", **record.environment())
    channel.emit("devices", backend=world.backend, devices=world.gather(record.device(world)))


def _peers(world, size):
    """Return which GPU (row) can read another's memory, and at which speed a copy arrives whole there; None for CPUs."""
    import torch

    import devices

    figures = {"access": None, "bytes_per_second": None, "wrong": []}
    world.barrier()
    if world.rank == 0 and world.kind.is_gpu and world.size > 1:
        gpus = [devices.of_kind(world.kind.name)(index) for index in range(world.size)]
        ids = range(world.size)
        figures["access"] = world.kind.access(world.size)
        speeds = [[None if here is there else _copy_speed(torch, here, there, size) for there in gpus] for here in gpus]
        figures["bytes_per_second"] = speeds
        figures["wrong"] = [[source, target] for source in ids for target in ids if speeds[source][target] == 0]
    world.barrier()
    return figures


def _copy_speed(torch, source, target, size):
    """Return the bytes per second of a copy between two devices; 0 if what arrives is not what was sent."""
    sent = torch.arange(size // 4, dtype=torch.int32, device=source.torch)
    sent.to(target.torch)  # the first copy sets up the access
    target.synchronize()
    begin = time.perf_counter()
    arrived = sent.to(target.torch)
    source.synchronize()
    target.synchronize()
    seconds = time.perf_counter() - begin
    return size / seconds if torch.equal(arrived.cpu(), sent.cpu()) else 0


def _precisions(channel, world):
    """Emit for each precision in what products really compute on every rank, or why the device can't have it."""
    import precision
    from proofs import effective_precision

    for name in PRECISIONS:
        try:
            precision.set_knobs(name, world.device)
        except Unsupported as reason:
            channel.emit("precision", requested=name, effective=None, unsupported=str(reason), problems=[])
            continue
        effective = world.gather(effective_precision.run(name, world.device))
        problems = [effective_precision.problem(name, measured) for measured in effective]
        channel.emit("precision", requested=name, effective=effective, unsupported=None, problems=[p for p in problems if p])


def _all_reduce(channel, world, size):
    """Emit how many elements of a sum over all ranks are wrong, and how fast the sums are."""
    import collectives

    wrong = world.gather(collectives.wrong_elements(world, collectives.ALL_REDUCE, size))
    channel.emit("all-reduce", sizes=collectives.probe(world, size), wrong_elements=wrong)


def _load(world, size, seconds):
    """Multiply matrices on all devices at once for `seconds`, in `SLICES` timed blocks.

    Return the edges on the host's clock, the FLOP/s of each rank and block, and whether each rank's product is right
    (`finite`, as it was called when nothing else was checked).
    """
    import operations

    dtype = world.kind.load_type
    product = operations.product(world, (size, size, size), dtype)
    product.run(0)
    world.barrier()
    world.synchronize()
    start, blocks = time.monotonic(), []
    for number in range(1, SLICES + 1):
        begin, done = time.monotonic(), 0
        while done == 0 or time.monotonic() < start + seconds * number / SLICES:
            product.run(0)
            world.synchronize()
            done += 1
        blocks.append(done * 2 * size**3 / (time.monotonic() - begin))
    return {
        "start_monotonic_seconds": start,
        "stop_monotonic_seconds": time.monotonic(),
        "dtype": str(dtype).replace("torch.", ""),
        "flops_per_second": world.gather(blocks),
        "finite": world.gather(product.check() is None),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
