"""Exchanges of data between ranks: how fast they are, and whether every element arrives (docs/method.md).

Sizes, times and bus bandwidths are defined as in nccl-tests
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md): the bus bandwidth is what each link of a ring carries, so
that it can be compared across N.
"""

import collections
import time

import torch
import torch.distributed as dist

import extras

REPEATS = 10
WARM_UP = 3
ALL_REDUCE = "all-reduce"
_VALUES = 1000
"""Numbers of a tensor that is checked: element i of rank r is i % _VALUES + r. Sums of them are exact in float32."""

Exchange = collections.namedtuple("Exchange", "sent received run")
"""``run()`` exchanges float32 numbers: each rank gives `sent` and gets `received`, which may be the same tensor."""


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
    for operation in PROBED:
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


def _all_reduce(world, elements, averages=False):
    tensor = torch.empty(elements, device=world.device)
    operation = dist.ReduceOp.AVG if averages else dist.ReduceOp.SUM
    return Exchange(tensor, tensor, lambda: dist.all_reduce(tensor, operation))


def all_reduce_for_long(world, elements):
    """Make an all-reduce that may run any number of times: it averages where the library can, since sums grow to infinity."""
    return _all_reduce(world, elements, averages=world.backend == "nccl")


def _part_and_all(world, elements):
    part = torch.empty(max(1, elements // world.size), device=world.device)
    return part, torch.empty(part.numel() * world.size, device=world.device)


def _all_gather(world, elements):
    part, every = _part_and_all(world, elements)
    return Exchange(part, every, lambda: dist.all_gather_into_tensor(every, part))


def _reduce_scatter(world, elements):
    part, every = _part_and_all(world, elements)
    return Exchange(every, part, lambda: dist.reduce_scatter_tensor(part, every))


def _all_to_all(world, elements):
    (_, out), (_, into) = (_part_and_all(world, elements) for _ in range(2))
    return Exchange(out, into, lambda: dist.all_to_all_single(into, out))


def _send_and_receive(world, elements):
    """Let each rank send to the next rank and receive from the previous one."""
    out, into = (torch.empty(elements, device=world.device) for _ in range(2))

    def exchange():
        sent = dist.P2POp(dist.isend, out, (world.rank + 1) % world.size)
        received = dist.P2POp(dist.irecv, into, (world.rank - 1) % world.size)
        for work in dist.batch_isend_irecv([sent, received]):
            work.wait()

    return Exchange(out, into, exchange)


OPERATIONS = {
    ALL_REDUCE: (_all_reduce, lambda ranks: 2 * (ranks - 1) / ranks),
    "all-gather": (_all_gather, lambda ranks: (ranks - 1) / ranks),
    "reduce-scatter": (_reduce_scatter, lambda ranks: (ranks - 1) / ranks),
    "all-to-all": (_all_to_all, lambda ranks: (ranks - 1) / ranks),
    "send-receive": (_send_and_receive, lambda ranks: 1.0),
}
"""By name: the function that makes the Exchange of a number of elements; and the ratio of the bus bandwidth to bytes per
second. The size is that of all ranks' parts together where each has a part, else that of each rank's tensor."""
PROBED = (ALL_REDUCE, "all-gather", "reduce-scatter", "send-receive")
"""What a launch of training with --all-reduce-probe times."""


def make(world, operation, size):
    """Make the Exchange of `size` bytes."""
    return OPERATIONS[operation][0](world, max(1, size // 4))


def wrong_elements(world, operation, size):
    """Run an operation once on known numbers; return how many elements arrived wrong at this rank."""
    exchange = make(world, operation, size)
    exchange.sent.copy_(_numbers(len(exchange.sent), world.device) + world.rank)
    if exchange.received is not exchange.sent:
        exchange.received.fill_(-1.0)
    exchange.run()
    world.synchronize()
    return int((exchange.received != _expected(world, operation, len(exchange.received))).sum())


def _numbers(count, device, first=0):
    return torch.arange(first, first + count, device=device).remainder_(_VALUES).float()


def _expected(world, operation, count):
    """Return what a rank must get, of `count` elements."""
    ranks, rank, device = world.size, world.rank, world.device
    of_all = ranks * (ranks - 1) / 2
    if operation == ALL_REDUCE:
        return _numbers(count, device) * ranks + of_all
    if operation == "reduce-scatter":
        return _numbers(count, device, rank * count) * ranks + of_all
    if operation == "all-gather":
        return torch.cat([_numbers(count // ranks, device) + other for other in range(ranks)])
    if operation == "all-to-all":
        part = count // ranks
        return torch.cat([_numbers(part, device, rank * part) + other for other in range(ranks)])
    return _numbers(count, device) + (rank - 1) % ranks


def _measure(world, operation, size):
    exchange, seconds = make(world, operation, size), []
    for index in range(WARM_UP + REPEATS):
        exchange.sent.fill_(1.0)  # an all-reduce leaves its sum in the tensor
        world.barrier()
        world.synchronize()
        begin = time.perf_counter()
        exchange.run()
        world.synchronize()
        if index >= WARM_UP:
            seconds.append(time.perf_counter() - begin)
    slowest = sorted(max(times) for times in zip(*world.gather(seconds)))
    median = slowest[len(slowest) // 2]
    return {"bytes": size, "seconds": median, "bus_bytes_per_second": size / median * OPERATIONS[operation][1](world.size)}
