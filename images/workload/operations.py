"""What a device does by itself: products of matrices and streams of bytes, on random data, each with a check of its result.

Microbenchmarks time them for long (measurements/micro.py), a launch takes its roofs from them (roofline.py), and an image's
self-check its load (deep.py). copy and triad are those of STREAM (McCalpin, 1995): a = b, and a = b + 3 c.
"""

import collections
import random
import re

import torch

import collectives
import precision
from channel import Unsupported

Operation = collections.namedtuple("Operation", "run check")
"""``run(index)`` does the operation once, on its data of that number (modulo how many there are). ``check()`` says what is
wrong with the result of the last run; None if nothing is."""

ALPHA = 3.0
_EXACT = 2**20
"""Streams carry whole numbers below this, so that their sums are exact in float32 and every element can be checked."""
_DRAWN = 2**20
"""Random numbers of an array; a larger one has them again and again, since a CPU would take seconds to draw more."""
_SAMPLED = 16
"""Rows and columns of a product whose crossings are computed again in float64."""
_FLOAT8 = tuple(getattr(torch, name) for name in ("float8_e4m3fn", "float8_e4m3fnuz") if hasattr(torch, name))
_MOST = {torch.float32: 5e-3, torch.float16: 5e-2, torch.bfloat16: 0.3}
"""How far such an element may be from it, relative to the root of the sum of its terms' squares: float32 with TF32's products,
bfloat16 where torch 1.12 adds up in it, too. Which precision it really was is measured apart (effective_precision.py)."""
FLOAT8, FLOAT4 = "fp8", "nvfp4"
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""What the last three bits of a number in float4 (e2m1) say, of which the first is the sign: OCP Microscaling, table 5."""
_OF_A_SCALE = 16
"""Numbers of a row that share a scale in NVFP4."""
RANDOM, ZEROS, ONES = "random", "zeros", "ones"


def product(world, shape, dtype, sets=1, pattern=RANDOM):
    """Make the product of an M × K and a K × N matrix; `shape`: (M, N, K); `sets`: how many pairs take turns.

    In float8 (e4m3, on MI300 e4m3fnuz) the second lies column by column, as tensor cores want it, the scales are 1, and the
    result is bfloat16.
    """
    rows, columns, inner = shape
    is_float8 = dtype in _FLOAT8
    if pattern == ONES and dtype == torch.float16 and inner > torch.finfo(dtype).max:
        raise Unsupported("sums of %d ones are more than float16 holds" % inner)
    lefts = [_matrix(world, (rows, inner), dtype, pattern) for _ in range(sets)]
    rights = [_matrix(world, (columns, inner), dtype, pattern).t() for _ in range(sets)]
    rights = rights if is_float8 else [right.contiguous() for right in rights]
    result = torch.empty(rows, columns, dtype=torch.bfloat16 if is_float8 else dtype, device=world.device)
    last, scales = [0], {name: torch.ones((), device=world.device) for name in ("scale_a", "scale_b")}

    def run(index):
        last[0] = index % sets
        if is_float8:
            torch._scaled_mm(lefts[last[0]], rights[last[0]], out_dtype=result.dtype, out=result, **scales)
        else:
            torch.mm(lefts[last[0]], rights[last[0]], out=result)

    def check():
        some, others = _crossings(rows, columns)
        return _away(result, some, others, lefts[last[0]].float()[some], rights[last[0]].float()[:, others])

    return Operation(run, check)


def product_in_float4(world, shape, sets=1, pattern=RANDOM):
    """Make the product of an M × K and a K × N matrix in NVFP4: float4 (e2m1), two numbers in a byte, with a scale in e4m3 for
    each 16 of a row. All scales are 1, so that their order, which differs between devices, doesn't matter.
    """
    rows, columns, inner = shape
    if inner % (2 * _OF_A_SCALE):
        raise Unsupported("products in float4 take a K in multiples of %d" % (2 * _OF_A_SCALE))
    lefts, rights = ([_packed(world, (side, inner // 2), pattern) for _ in range(sets)] for side in (rows, columns))
    result = torch.empty(rows, columns, dtype=torch.bfloat16, device=world.device)
    scales = [_scales_of_one(world, side, inner) for side in (rows, columns)]
    last = [0]

    def run(index):
        last[0] = index % sets
        left, right = lefts[last[0]].view(torch.float4_e2m1fn_x2), rights[last[0]].view(torch.float4_e2m1fn_x2)
        torch._scaled_mm(left, right.t(), scale_a=scales[0], scale_b=scales[1], out_dtype=result.dtype, out=result)

    def check():
        some, others = _crossings(rows, columns)
        return _away(result, some, others, _numbers(lefts[last[0]][some]), _numbers(rights[last[0]][others]).t())

    return Operation(run, check)


def _packed(world, shape, pattern):
    """Make bytes of two numbers each, of all kinds as often, or all 0.0 or 1.0."""
    if pattern == RANDOM:
        return torch.randint(0, 256, shape, dtype=torch.uint8, device=world.device)
    return torch.full(shape, 0x22 if pattern == ONES else 0, dtype=torch.uint8, device=world.device)


def _scales_of_one(world, rows, inner):
    """Make the scales of a matrix, which cuBLAS wants in whole tiles of 128 rows and four scales."""
    return torch.ones(-(-rows // 128) * 128 * -(-inner // _OF_A_SCALE // 4) * 4, device=world.device).to(torch.float8_e4m3fn)


def _numbers(packed):
    """Return the numbers that rows of bytes hold."""
    values = torch.tensor([*_E2M1, *(-value for value in _E2M1)], dtype=torch.float64)
    codes = packed.cpu().long()
    return torch.stack([values[codes & 15], values[codes >> 4]], dim=-1).flatten(1)


def _crossings(rows, columns):
    """Draw the rows and columns of a product whose crossings are computed again."""
    draw = random.SystemRandom()
    return [sorted(draw.sample(range(count), min(_SAMPLED, count))) for count in (rows, columns)]


def _away(result, some, others, left, right):
    """Say how far the crossings of a product are from those in float64, if that is too far; None if not."""
    left, right = left.cpu().double(), right.cpu().double()
    exact, size = left @ right, (left.square() @ right.square()).sqrt().clamp(min=1e-30)
    rounding = torch.finfo(result.dtype).eps * exact.abs()
    away = (result[some][:, others].cpu().double() - exact).abs() - rounding
    error = float((away / size).max())
    return None if error <= _MOST[result.dtype] else "an element of the product is %.2g away from that in float64" % error


def _matrix(world, shape, dtype, pattern):
    if pattern == RANDOM:
        return torch.randn(shape, device=world.device).to(dtype)
    return torch.full(shape, 1.0 if pattern == ONES else 0.0, dtype=dtype, device=world.device)


def stream(world, kind, size, pattern=RANDOM):
    """Make copy (of `size` bytes), triad (of three arrays of so many) or read: the dot product of two."""
    source = _array(size, world.device, pattern)
    if kind == "copy":
        into = torch.full_like(source, -1.0)
        return Operation(lambda index: into.copy_(source), lambda: _unlike(into, source))
    other = _array(size, world.device, pattern)
    if kind == "read":
        return Operation(lambda index: torch.dot(source, other), lambda: None)
    into = torch.full_like(source, -1.0)
    return Operation(
        lambda index: torch.add(source, other, alpha=ALPHA, out=into), lambda: _unlike(into, other * ALPHA + source)
    )


def _array(size, device, pattern=RANDOM):
    count = max(1, size // 4)
    if pattern != RANDOM:
        return torch.full((count,), 1.0 if pattern == ONES else 0.0, device=device)
    drawn = torch.empty(min(count, _DRAWN), device=device).random_(-_EXACT, _EXACT)
    return drawn if count <= _DRAWN else drawn.repeat(-(-count // _DRAWN))[:count].clone()


def _unlike(arrived, expected):
    wrong = int((arrived != expected).sum())
    return "%d of %d elements are wrong" % (wrong, arrived.numel()) if wrong else None


def host_copy(world, direction, size, pinned, pattern=RANDOM):
    """Make a copy between the host's memory and the device: to-device, to-host, or both at a time."""
    if not world.kind.is_gpu:
        raise Unsupported("copies between host and device need a GPU")
    outside, back = (_array(size, "cpu", pattern) for _ in range(2))
    if pinned:
        outside, back = world.kind.pinned(outside), world.kind.pinned(back)
    inside, away = (_array(size, world.device, pattern) for _ in range(2))
    to_device, to_host = (lambda: inside.copy_(outside, non_blocking=True)), (lambda: back.copy_(away, non_blocking=True))
    run = {"to-device": to_device, "to-host": to_host, "both": lambda: world.kind.beside(to_device, to_host)}[direction]

    def check():
        wrong = [_unlike(inside.cpu(), outside)] if direction != "to-host" else []
        return next(filter(None, wrong + ([_unlike(back, away.cpu())] if direction != "to-device" else [])), None)

    return Operation(lambda index: run(), check)


def peer_copy(world, size, pattern=RANDOM):
    """Make a copy from each rank's device straight into the memory of the next one's, all at a time."""
    if not world.kind.is_gpu or world.size < 2:
        raise Unsupported("copies between devices need two GPUs; between CPUs measure send-receive")
    source = _array(size, world.device, pattern)
    into = torch.empty_like(source, device=type(world.kind)((world.rank + 1) % world.size).torch)
    return Operation(lambda index: into.copy_(source, non_blocking=True), lambda: _unlike(into.cpu(), source.cpu()))


def exchange(world, name, size):
    """Make a collective operation of all ranks; every element of one on known numbers is checked apart."""
    if world.size < 2:
        raise Unsupported("%s needs two devices" % name)
    try:
        wrong = sum(world.gather(collectives.wrong_elements(world, name, size)))
    except (RuntimeError, ValueError, AttributeError) as error:  # on all ranks alike
        _refuse_lack("%s of %s" % (world.backend, name), error)
        raise
    long = collectives.all_reduce_for_long if name == collectives.ALL_REDUCE else collectives.OPERATIONS[name][0]
    made = long(world, max(1, size // 4))
    made.sent.copy_(_array(4 * len(made.sent), world.device))
    return Operation(lambda index: made.run(), lambda: "%d elements arrived wrong" % wrong if wrong else None)


def _refuse_lack(what, error):
    """Raise Unsupported where a library lacks something; any other error is one of the machine."""
    is_lack = _LACKS.search(str(error)) and not _IS_OF_DEVICE.search(str(error))
    if isinstance(error, (AttributeError, NotImplementedError)) or is_lack:
        raise Unsupported("%s: %s" % (what, str(error).split("\n")[0][:200])) from error


_LACKS = re.compile("support|not implemented|could not run", re.IGNORECASE)
_IS_OF_DEVICE = re.compile("(CUDA|HIP|NCCL|RCCL) error")


def make(args, world):
    """Make the Operation that `args` name as a model."""
    if not (args.shape if args.model == "gemm" else args.bytes or args.model.endswith("-latency")):
        raise Unsupported("%s needs --%s" % (args.model, "shape" if args.model == "gemm" else "bytes"))
    if args.model == "gemm":
        shape = tuple(map(int, args.shape.split("x")))
        if args.precision not in (FLOAT8, FLOAT4):
            return product(world, shape, precision.product_type(args.precision), args.batches, args.pattern)
        try:
            made = (
                product(world, shape, getattr(torch, world.kind.float8), args.batches, args.pattern)
                if args.precision == FLOAT8
                else product_in_float4(world, shape, args.batches, args.pattern)
            )
            made.run(0)
        except (AttributeError, NotImplementedError, RuntimeError) as error:  # an older torch, or another device
            _refuse_lack("products in %s" % ("float8" if args.precision == FLOAT8 else "float4"), error)
            raise
        return made
    if args.model in ("triad", "copy"):
        return stream(world, args.model, args.bytes, args.pattern)
    if args.model == "host-copy":
        return host_copy(world, args.direction, args.bytes, args.pinned, args.pattern)
    if args.model == "peer-copy":
        return peer_copy(world, args.bytes, args.pattern)
    name, is_short = args.model.replace("-latency", ""), args.model.endswith("-latency")
    return exchange(world, name, 8 if is_short else args.bytes)
