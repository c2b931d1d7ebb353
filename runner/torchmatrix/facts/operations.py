"""What the operations of microbenchmarks are worth: FLOPs of products, bytes of streams and copies, those of a bus.

A launch counts operations; its figure is in TFLOP (10^12) or GB (10^9 bytes). copy and triad count what STREAM counts
(McCalpin, 1995): each array that is read or written once. The bus bandwidth of a collective is that of nccl-tests
(doc/PERFORMANCE.md): what each link of a ring carries.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

MICRO = "micro"
"""The mode of microbenchmarks."""
_TERA, _GIGA = 1e12, 1e9
_ARRAYS = {"copy": 2, "triad": 3}
BUS: Mapping[str, Callable[[int], float]] = {
    "all-reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all-gather": lambda ranks: (ranks - 1) / ranks,
    "reduce-scatter": lambda ranks: (ranks - 1) / ranks,
    "all-to-all": lambda ranks: (ranks - 1) / ranks,
    "send-receive": lambda ranks: 1.0,
}
"""The ratio of the bus bandwidth to bytes per second, by the number of ranks."""
TOGETHER = frozenset((*BUS, "all-reduce-latency"))
"""Operations that all ranks do together; in all others each device works by itself."""


SHAPE = r"[1-9]\d{0,6}(x[1-9]\d{0,6}){2}"


def sides(shape: str) -> tuple[int, ...] | None:
    """Return M, N and K of a product of an M × K and a K × N matrix, such as "4096x4096x8192"; None for other texts."""
    return tuple(map(int, shape.split("x"))) if re.fullmatch(SHAPE, shape) else None


_BYTES = {"nvfp4": 0.5625, "fp8": 1, "half": 2, "bf16-weights": 2}
"""Bytes of an operand by precision, where they aren't 4 (of NVFP4 with its scales); a product of tiny ones is in bfloat16."""


def held_bytes(model: str, factors: Mapping[str, Any]) -> int:
    """Return the bytes of the arrays that an operation holds on each device: a lower bound, without what libraries take."""
    if model == "gemm":
        rows, columns, inner = sides(str(factors["shape"])) or (0, 0, 0)
        each = _BYTES.get(str(factors["precision"]), 4)
        return int((rows + columns) * inner * each + rows * columns * max(each, 2))
    return int(factors["bytes"] or 0) * _ARRAYS.get(model, 1)


def amount(model: str, factors: Mapping[str, Any], ranks: int) -> float:
    """Return how many TFLOP, GB or operations one operation of one of the ranks counts; NaN if that isn't known."""
    if model == "gemm":
        found = sides(str(factors.get("shape")))
        return 2 * math.prod(found) / _TERA if found else math.nan
    if model == "all-reduce-latency":
        return 1 / ranks
    size = factors.get("bytes")
    if not size:
        return math.nan
    if model in BUS:
        return float(size * BUS[model](ranks) / ranks / _GIGA) if ranks > 1 else math.nan
    return float(size * (2 if factors.get("direction") == "both" else _ARRAYS.get(model, 1)) / _GIGA)
