"""The roofline of a generation: what the device does at most, measured in the same launch, and the least that a step must read.

Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009. What is measured are the operations of microbenchmarks.
"""

import functools
import time

import torch

import families
import measurements
import observation
import operations
import precision

REPEATS, MOST_SECONDS = 20, 0.5
"""A roof is the best of so many runs; fewer if they take longer."""


def bandwidth(world, size):
    """Return the most bytes/s of the device's memory by kind, for arrays that are `size` bytes together.

    Of copy, triad and read (operations.stream). The bytes count that these read and write, not those that
    a cache adds to them.
    """
    rates = {}
    for kind, arrays in (("copy", 2), ("triad", 3), ("read", 2)):
        each = max(4, size // arrays // 4 * 4)
        rates[kind] = arrays * each / _least_seconds(world, operations.stream(world, kind, each))
    return rates


def product_rate(world, dtype, most):
    """Return the most FLOP/s of a product of square random matrices of `dtype`; all three take `most` bytes at most."""
    size = _largest(world, dtype, most)
    return 2 * size**3 / _least_seconds(world, operations.product(world, (size, size, size), dtype))


def _largest(world, dtype, most):
    each = torch.empty((), dtype=dtype).element_size()
    return min(world.kind.product_size, max(64, int((most / 3 / each) ** 0.5) // 64 * 64))


ROOF_SIZE, ROOF_REPEATS, ROOF_SHARE, ROOF_SECONDS = 256, 3, 8, 0.01
"""The first product of a launch's roof, how often each is timed, and the part of the free memory that they take; sizes double
until the products of one took so long in all."""


def products_roof(args, world):
    """Return the FLOP/s that this device does in products of the precision's type or of float32, whichever are faster."""
    free, kinds = world.kind.free_bytes(), {torch.float32, precision.product_type(args.precision)}
    most = world.kind.array_bytes if free is None else min(world.kind.array_bytes, free // ROOF_SHARE)
    fast = [kind for kind in kinds if kind == torch.float32 or world.kind.has_kernels(str(kind)[len("torch.") :])]
    return max(_roof_of(world, kind, _largest(world, kind, most)) for kind in fast)


def _roof_of(world, dtype, largest):
    """Return the best rate of products of growing size, by the clock of the windows: that of the host."""
    size, best = min(ROOF_SIZE, largest), 0.0
    while True:
        product, seconds = operations.product(world, (size, size, size), dtype), []
        for _ in range(1 + ROOF_REPEATS):
            world.synchronize()
            begin = time.perf_counter()
            product.run(0)
            world.synchronize()
            seconds.append(time.perf_counter() - begin)
        best = max(best, 2 * size**3 / max(min(seconds), 1e-9))
        if 2 * size > largest or len(seconds) * min(seconds) > ROOF_SECONDS:  # whatever a neighbour made one of them wait
            return best
        size *= 2


def _least_seconds(world, operation):
    """Return the seconds of the fastest run of an operation on the device."""
    operation.run(0)
    least, end = float("inf"), time.monotonic() + MOST_SECONDS
    for _ in range(REPEATS):
        begin = world.kind.mark()
        operation.run(0)
        stop = world.kind.mark()
        world.synchronize()
        least = min(least, world.kind.seconds(begin, stop))
        if time.monotonic() > end:
            break
    return max(least, 1e-9)


def prefill_flops(args, work, windows):
    """Return the least FLOPs that a batch of prompts needs: each token sees those before it, and the last has logits.

    `work`: the model's observation.Work. `windows`: tokens that each layer sees at most, by its number.
    """
    return args.batch * work.flops(args.sequence_length, 1, functools.partial(_pairs, args.sequence_length, windows))


def _pairs(length, windows, layer):
    """Return how many pairs of tokens a layer needs where each of `length` tokens sees those before it, in its window."""
    window = min(windows.get(layer, length), length)
    return window * (window + 1) / 2 + (length - window) * window


def flops_per_item(args, family, model):
    """Return the FLOPs of an item by formula; None for a model that is not measured in tokens.

    Training has three times those of the forward pass of one sequence, whose attention counts for all pairs of tokens: this is
    PaLM's formula 6 N + 12 · layers · width · length (arXiv:2204.02311, appendix B), where N are the weights that a token is
    multiplied with. In generation each layer's attention counts for the pairs that it needs.
    """
    if families.facts_of(args).get("unit") != "tokens":
        return None
    if args.mode == "generate":
        work = observation.work_of(model)
        whole = args.sequence_length + args.output_length - 1
        pairs = functools.partial(_pairs, whole, windows_of(family.static_cache(model, whole)))
        return work.flops(whole, args.output_length, pairs) / args.output_length
    forward = sum(observation.flops_by_part(model, args.sequence_length).values())
    return (3 if measurements.trains(args) else 1) * forward / args.sequence_length


def windows_of(cache):
    """Return how many tokens each layer of a static KV cache keeps, by the layer's number; layers without keys have none."""
    lengths = (getattr(layer, "max_cache_len", None) for layer in cache.layers)
    return {number: length for number, length in enumerate(lengths) if length}


def cached(layers, positions):
    """Return the bytes of the cache that a step reads, the mean over `positions`: keys and values of each token and of all
    before it, in a window of as many as the cache keeps, and states of recurrent layers, which are read whole.
    """
    total = 0.0
    for layer in layers:
        length = getattr(layer, "max_cache_len", None)
        depth = sum(min(position + 1, length) for position in positions) / len(positions) if length else 0
        for tensor, is_state in kept(layer):
            is_by_token = length and not is_state and tensor.dim() > 2 and tensor.shape[-2] == length  # [.., length, width]
            total += bytes_of(tensor) * (depth / length if is_by_token else 1)
    return total


def kept(layer):
    """Yield each tensor that a layer of a cache holds, and whether it is a state: these are in dictionaries or lists."""
    for value in vars(layer).values():
        is_state = isinstance(value, (dict, list, tuple))
        several = value.values() if isinstance(value, dict) else value if is_state else (value,)
        yield from ((part, is_state) for part in several if torch.is_tensor(part) and part.is_floating_point())


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()
