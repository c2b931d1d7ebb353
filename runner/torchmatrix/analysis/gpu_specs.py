"""What vendors say about their GPUs (reports/published/gpus.csv), and the share of it that a model used."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from torchmatrix.ground import assets
from torchmatrix.machine.host_gpus import MEMORY_TOLERANCE, memory_error, name_words

_MAKERS = ("nvidia", "tesla")
"""Drivers before 470 left "NVIDIA" out; "Tesla" came and went."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuFacts:
    """One row of gpus.csv; reports/published/README.md describes the columns. All numbers are per card, None if unknown.

    Peaks are in TFLOP/s (10^12 per second) of dense matrices, fp16 and bf16 with fp32 accumulation. `memory_gb` is in
    units of 2^30 bytes. `devices_per_card` is how many devices the driver shows for one card.
    """

    name: str
    vendor: str
    architecture: str
    compute_capability: str
    devices_per_card: int
    memory_gb: float
    memory_type: str
    bandwidth_gb_per_second: float | None
    link_gb_per_second: float | None
    power_watts: float | None
    launch_date: str
    fp32_tflops: float | None
    fp32_matrix_tflops: float | None
    tf32_tflops: float | None
    fp16_tflops: float | None
    bf16_tflops: float | None
    status: str
    source: str
    driver_names: tuple[str, ...]


@cache
def load() -> tuple[GpuFacts, ...]:
    """Read gpus.csv once, in the order of the file."""
    with (assets.PUBLISHED / "gpus.csv").open(encoding="utf-8", newline="") as lines:
        return tuple(_facts(row) for row in csv.DictReader(lines))


@lru_cache(1024)
def find(name: str, memory_bytes: int | None) -> GpuFacts | None:
    """The GPU that the driver calls `name`, word by word, with or without "NVIDIA" or "Tesla", in any case; never a guess.

    `memory_bytes` is the memory of one device, None if unknown. A GPU is not the one in the table if its memory is more
    than 10 % off, though it bears the name: other sizes are other GPUs, and a slice of a partitioned GPU keeps the name.
    None if no row fits, or if several fit equally well.
    """
    return nearest(_by_driver().get(_bare_name(name), ()), memory_bytes)


def nearest(named: Sequence[GpuFacts], memory_bytes: int | None) -> GpuFacts | None:
    """Of GPUs that bear one name, the one with this memory (see `find`)."""
    if memory_bytes is None:
        return named[0] if len(named) == 1 else None
    errors = [_memory_error(facts, memory_bytes) for facts in named]
    least = min([MEMORY_TOLERANCE, *errors])
    fitting = [facts for facts, error in zip(named, errors, strict=True) if error <= least]
    return fitting[0] if len(fitting) == 1 else None


PEAKED = ("fp32", "tf32", "amp", "amp-bf16")
"""The precisions with a peak of their own."""


def peak_flops(facts: GpuFacts, precision: str) -> float | None:
    """Peak of one device in FLOP/s (dense); `precision`: one of PEAKED, half (as amp) or bf16-weights (as amp-bf16).

    None where the hardware has no such mode or its peak is unknown. The fp32 peak of NVIDIA's GPUs is that of the CUDA
    cores, as their tensor cores have no fp32 mode; AMD's have one, which PyTorch's fp32 products use, so its peak counts
    where the table has it. AMP computes a part of a model in fp32, so no model reaches the peak of fp16 or bf16.
    """
    peaks = {
        "fp32": facts.fp32_matrix_tflops or facts.fp32_tflops,
        "tf32": facts.tf32_tflops,
        "amp": facts.fp16_tflops,
        "half": facts.fp16_tflops,
        "amp-bf16": facts.bf16_tflops,
        "bf16-weights": facts.bf16_tflops,
    }
    per_card = peaks.get(precision)
    return None if per_card is None else per_card * 1e12 / facts.devices_per_card


def link_peak(facts: GpuFacts | None) -> float | None:
    """What one device's links to other devices carry in one direction at most, in bytes/s; None where that is unknown."""
    known = facts and facts.link_gb_per_second
    return known * 1e9 / facts.devices_per_card if facts and known else None


def mfu(items_per_second_per_device: float | None, flops_per_item: float | None, peak: float | None) -> float:
    """Model FLOPs utilisation of one device as a fraction of 1: items/s × FLOPs per item ÷ `peak` in FLOP/s.

    After PaLM, appendix B (arXiv:2204.02311): the observed rate over the rate at which the device would do nothing but
    the model's own operations at its peak. `flops_per_item` therefore counts what the model needs (forward, and backward
    when it trains; a multiply-add is two), not what the implementation repeats, such as recomputed activations.
    NaN if any of the three is unknown.
    """
    if items_per_second_per_device is None or flops_per_item is None or not peak:
        return math.nan
    return items_per_second_per_device * flops_per_item / peak


def _facts(row: dict[str, str]) -> GpuFacts:
    def number(column: str) -> float | None:
        return float(row[column]) if row[column] else None

    return GpuFacts(
        name=row["name"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        compute_capability=row["compute_capability"],
        devices_per_card=int(row["devices_per_card"]),
        memory_gb=float(row["memory_gb"]),
        memory_type=row["memory_type"],
        bandwidth_gb_per_second=number("bandwidth_gb_per_second"),
        link_gb_per_second=number("link_gb_per_second"),
        power_watts=number("power_watts"),
        launch_date=row["launch_date"],
        fp32_tflops=number("fp32_tflops"),
        fp32_matrix_tflops=number("fp32_matrix_tflops"),
        tf32_tflops=number("tf32_tflops"),
        fp16_tflops=number("fp16_tflops"),
        bf16_tflops=number("bf16_tflops"),
        status=row["status"],
        source=row["source"],
        driver_names=tuple(row["driver_names"].split(" | ")),
    )


@cache
def _by_driver() -> dict[tuple[str, ...], list[GpuFacts]]:
    found: dict[tuple[str, ...], list[GpuFacts]] = {}
    for facts in load():
        for name in dict.fromkeys(map(_bare_name, facts.driver_names)):
            found.setdefault(name, []).append(facts)
    return found


def _bare_name(name: str) -> tuple[str, ...]:
    return tuple(word for word in name_words(name) if word not in _MAKERS)


def _memory_error(facts: GpuFacts, memory_bytes: int) -> float:
    """How far `memory_bytes` is from one device's memory, as a fraction of the latter."""
    return memory_error(facts.memory_gb / facts.devices_per_card, memory_bytes)
