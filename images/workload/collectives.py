"""How fast the ranks can all-reduce: from 1 MB to the size of this model's gradients (docs/method.md)."""

import time

import torch
import torch.distributed as dist

REPEATS = 10
WARM_UP = 3


def probe(world, gradient_bytes):
    """One record per size: `bytes`, median `seconds` of an all-reduce of float32 and the bus bandwidth in bytes per second.

    Bus bandwidth = bytes / seconds * 2 (N - 1) / N: what each link of a ring carries, so that it can be compared across N
    (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
    """
    return [_measure(world, size) for size in sizes(gradient_bytes)]


def sizes(gradient_bytes):
    """1, 4, 16 … MB up to the gradients' size, and that size itself."""
    found, size = [], 1 << 20
    while size < gradient_bytes:
        found.append(size)
        size *= 4
    return [*found, gradient_bytes]


def _measure(world, size):
    tensor = torch.ones(max(1, size // 4), device=world.device)
    seconds = []
    for index in range(WARM_UP + REPEATS):
        tensor.fill_(1.0)
        world.barrier()
        world.synchronize()
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        world.synchronize()
        if index >= WARM_UP:
            seconds.append(time.perf_counter() - begin)
    slowest = sorted(max(times) for times in zip(*world.gather(seconds)))
    median = slowest[len(slowest) // 2]
    bus = size / median * 2 * (world.size - 1) / world.size
    return {"bytes": size, "seconds": median, "bus_bytes_per_second": bus}
