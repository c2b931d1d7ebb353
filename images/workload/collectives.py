"""The speed at which ranks exchange data, from 1 MB to the size of this model's gradients (docs/method.md).

Sizes, times and bus bandwidths are defined as in nccl-tests
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md): the bus bandwidth is what each link of a ring carries, so
that it can be compared across N.
"""

import time

import torch
import torch.distributed as dist

import extras

REPEATS = 10
WARM_UP = 3
ALL_REDUCE = "all-reduce"


def probe(world, gradient_bytes, operation=ALL_REDUCE):
    """Time an operation on float32; return a record per size: `bytes`, median `seconds`, bus bandwidth in bytes per second."""
    return [_measure(world, operation, size) for size in sizes(gradient_bytes)]


def have_room(world, gradient_bytes):
    """Check that every rank can hold what is exchanged: a rank that ran out of memory amid the others would make them wait."""
    what = "room for twice the gradients, to time collectives"
    fits = extras.attempt(what, lambda: torch.empty(2 * gradient_bytes, dtype=torch.uint8, device=world.device) is not None)
    return all(world.gather(fits))


def others(world, gradient_bytes):
    """Yield (operation, records, error) of each operation besides the all-reduce: no records where the library lacks it."""
    for operation in OPERATIONS:
        if operation != ALL_REDUCE:
            try:
                yield operation, probe(world, gradient_bytes, operation), None
            except (RuntimeError, ValueError, AttributeError) as error:  # on all ranks alike: a library may lack it
                yield operation, [], str(error).split("\n")[0][:200]


def sizes(gradient_bytes):
    """Return 1, 4, 16 … MB up to the gradients' size, and that size itself, in bytes."""
    smaller, size = [], 1 << 20
    while size < gradient_bytes:
        smaller.append(size)
        size *= 4
    return [*smaller, gradient_bytes]


def _all_reduce(world, elements):
    tensor = torch.empty(elements, device=world.device)
    return tensor, lambda: dist.all_reduce(tensor)


def _all_gather(world, elements):
    part = torch.empty(max(1, elements // world.size), device=world.device)
    every = torch.empty(part.numel() * world.size, device=world.device)
    return part, lambda: dist.all_gather_into_tensor(every, part)


def _reduce_scatter(world, elements):
    part = torch.empty(max(1, elements // world.size), device=world.device)
    every = torch.empty(part.numel() * world.size, device=world.device)
    return every, lambda: dist.reduce_scatter_tensor(part, every)


def _send_and_receive(world, elements):
    """Make the tensor and the operation by which each rank sends to the next rank and receives from the previous one."""
    out, into = (torch.empty(elements, device=world.device) for _ in range(2))

    def exchange():
        sent = dist.P2POp(dist.isend, out, (world.rank + 1) % world.size)
        received = dist.P2POp(dist.irecv, into, (world.rank - 1) % world.size)
        for work in dist.batch_isend_irecv([sent, received]):
            work.wait()

    return out, exchange


OPERATIONS = {
    ALL_REDUCE: (_all_reduce, lambda ranks: 2 * (ranks - 1) / ranks),
    "all-gather": (_all_gather, lambda ranks: (ranks - 1) / ranks),
    "reduce-scatter": (_reduce_scatter, lambda ranks: (ranks - 1) / ranks),
    "send-receive": (_send_and_receive, lambda ranks: 1.0),
}
"""By name: the function that makes the tensor to be sent and the operation, for a number of elements; and the ratio of the bus
bandwidth to bytes per second. The size is that of all ranks' parts together where each has a part (all-gather, reduce-scatter),
else that of each rank's tensor."""


def _measure(world, operation, size):
    make, factor = OPERATIONS[operation]
    (sent, run), seconds = make(world, max(1, size // 4)), []
    for index in range(WARM_UP + REPEATS):
        sent.fill_(1.0)  # an all-reduce leaves its sum in the tensor
        world.barrier()
        world.synchronize()
        begin = time.perf_counter()
        run()
        world.synchronize()
        if index >= WARM_UP:
            seconds.append(time.perf_counter() - begin)
    slowest = sorted(max(times) for times in zip(*world.gather(seconds)))
    median = slowest[len(slowest) // 2]
    return {"bytes": size, "seconds": median, "bus_bytes_per_second": size / median * factor(world.size)}
