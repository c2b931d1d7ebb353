"""Figures -> findings: what is impossible, or can't be judged, in published throughputs and in our own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.gpu_specs import GpuFacts
from torchmatrix.analysis.published.figures import Figure
from torchmatrix.analysis.scaling import IMPOSSIBLE_EFFICIENCY
from torchmatrix.matrix import catalog

LEAST_GAIN = 1.10
"""AMP over fp32 or TF32 on tensor cores, whose peak in fp16 is twice that of TF32 and more. Our own decision."""
LEAST_STEP_SECONDS = 0.010
"""Steps that would be shorter than this at the AMP peak are not judged by LEAST_GAIN: the host may be the bottleneck."""
TENSOR_CORES_FROM = 1.5
"""A GPU has tensor (or matrix) cores for fp16 if its peak is so many times that of fp32."""
ROUNDING = 0.01
"""Half a unit of the last digit may be this share of a figure."""
DAYS_APART = 1
"""So many days may lie between a baseline and the figure over it: runs cross midnight."""
_TRAINING = 3
"""Backward takes twice the operations of forward (arXiv:2001.08361, section 2.1)."""
_PEAK_OF = {"fp32-conv-tf32": "tf32", "fp16": "amp", "bf16": "amp-bf16"}
_FAST, _SLOW = ("amp", "amp-bf16", "fp16", "bf16"), ("fp32", "tf32", "fp32-conv-tf32")
_SAME_JOB = (
    "vendor", "framework", "gpu", "published_gpu", "model", "published_model", "mode", "memory_format", "compile", "image_size",
    "sequence_length", "data", "unit", "torch", "image",
)  # fmt: skip
"""What two rows of one source must have in common to be set beside each other at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """`row` as in figures.Figure; `cell` for a figure of ours. `reason` is a sentence, `limit` what was overstepped."""

    row: int
    cell: str
    field: str
    value: str
    reason: str
    limit: str


def check(figures: Sequence[Figure]) -> list[Finding]:
    """All findings, in the order of the rows. Where a check lacks a fact it says nothing; the lack itself may be a finding."""
    found: list[Finding] = []
    alone: dict[tuple[Any, ...], list[Figure]] = {}
    for figure in figures:
        if figure.gpus == 1:
            alone.setdefault(_job(figure), []).append(figure)
    for figure in figures:
        same = alone.get(_job(figure), [])
        found += _efficiency(figure, same)
        found += _gain(figure, same)
        found += _above_peak(figure)
        found += _rounded(figure)
        found += _unknown(figure)
    return found


def _job(figure: Figure) -> tuple[Any, ...]:
    return tuple(getattr(figure, name) for name in _SAME_JOB)


def _finding(figure: Figure, field: str, value: str, reason: str, limit: str) -> Finding:
    return Finding(row=figure.row, cell=figure.cell, field=field, value=value, reason=reason, limit=limit)


def _efficiency(figure: Figure, alone: Sequence[Figure]) -> Iterator[Finding]:
    """Of N > 1 GPUs over the same job on one (`alone`); at least, whatever digits were rounded away."""
    base = _baseline(figure, alone)
    if base is None or figure.gpus is None:
        return
    least = (figure.throughput - figure.rounding) / figure.gpus / (base.throughput + base.rounding)
    if least > IMPOSSIBLE_EFFICIENCY:
        efficiency = figure.throughput / figure.gpus / base.throughput
        reason = (
            f"{figure.gpus} GPUs at an efficiency of {efficiency:.3f} over {_place(base)} ({base.throughput:g} on one GPU): "
        )
        reason += "no machine scales better than linearly."
        yield _finding(figure, "throughput", f"{figure.throughput:g}", reason, f"efficiency {IMPOSSIBLE_EFFICIENCY}")
    for name in ("machine", "date", "driver"):
        if _is_elsewhere(name, getattr(figure, name), getattr(base, name)):
            reason = f"Its baseline, {_place(base)}, is recorded with another {name}: {getattr(base, name)}."
            limit = f"{DAYS_APART} day apart" if name == "date" else f"the same {name}"
            yield _finding(figure, name, getattr(figure, name), reason, limit)


def _baseline(figure: Figure, alone: Sequence[Figure]) -> Figure | None:
    """The same job on one GPU: of the nearest circumstances, and of several such the fastest."""
    if (figure.gpus or 0) < 2 or figure.batch_per_gpu is None:
        return None
    wanted = (figure.batch_per_gpu, figure.precision, figure.published_precision)
    same = [other for other in alone if (other.batch_per_gpu, other.precision, other.published_precision) == wanted]

    def nearness(other: Figure) -> tuple[int, float]:
        near = sum(not _is_elsewhere(n, getattr(figure, n), getattr(other, n)) for n in ("machine", "date", "driver"))
        return near, other.throughput

    return max(same, key=nearness, default=None)


def _is_elsewhere(name: str, a: str, b: str) -> bool:
    """Are both known and not the same? Dates: further apart than DAYS_APART, or of other months or years if that is all."""
    if not a or not b:
        return False
    if name != "date":
        return a != b
    try:
        return abs((date.fromisoformat(a) - date.fromisoformat(b)).days) > DAYS_APART
    except ValueError:
        common = min(len(a), len(b))
        return a[:common] != b[:common]


def _gain(figure: Figure, alone: Sequence[Figure]) -> Iterator[Finding]:
    """Of AMP over fp32, on one GPU: on several the all-reduce, and with real data the loader, may bound both."""
    facts = _facts(figure)
    if facts is None or figure.precision not in _FAST or figure.gpus != 1 or figure.data == "real":
        return
    if not _has_tensor_cores(facts) or _least_step_seconds(figure, facts) < LEAST_STEP_SECONDS:
        return
    batch = figure.batch_per_gpu or 0
    slow = [other for other in alone if other.precision in _SLOW]
    slow = [other for other in slow if other.batch_per_gpu is not None and other.batch_per_gpu <= batch]
    other = min(slow, key=lambda other: (other.batch_per_gpu != batch, other.throughput), default=None)
    if other is None or (figure.throughput + figure.rounding) / (other.throughput - other.rounding) >= LEAST_GAIN:
        return
    reason = (
        f"{figure.precision} is {figure.throughput / other.throughput:.2f} times {other.precision} ({_place(other)}) on a GPU "
    )
    reason += "with tensor cores: check whether they were used."
    yield _finding(figure, "throughput", f"{figure.throughput:g}", reason, f"{LEAST_GAIN:.2f} times")


def _above_peak(figure: Figure) -> Iterator[Finding]:
    facts, flops = _facts(figure), _flops_per_item(figure)
    peak = gpu_specs.peak_flops(facts, _PEAK_OF.get(figure.precision, figure.precision)) if facts else None
    if not figure.gpus or flops is None or peak is None:
        return
    needed = figure.throughput / figure.gpus * flops
    if needed > peak:
        reason = f"It needs {needed / 1e12:.0f} TFLOP/s of each GPU, whose peak in {figure.precision} is {peak / 1e12:.0f}."
        yield _finding(figure, "throughput", f"{figure.throughput:g}", reason, f"{peak / 1e12:.0f} TFLOP/s")


def _rounded(figure: Figure) -> Iterator[Finding]:
    share = figure.rounding / figure.throughput
    if share > ROUNDING:
        reason = f"It is rounded to ± {figure.rounding:g}, which is {100 * share:.1f} % of it."
        yield _finding(figure, "throughput", f"{figure.throughput:g}", reason, f"{100 * ROUNDING:g} %")


def _unknown(figure: Figure) -> Iterator[Finding]:
    if figure.is_vision and not figure.memory_format:
        reason = "The memory format is unknown: NHWC is up to 1.5 times as fast as NCHW."
        yield _finding(figure, "memory_format", "", reason, "nchw or nhwc")
    if figure.batch_per_gpu is None:
        reason = "The batch per GPU is unknown: without it, neither a throughput nor a scale factor means much."
        yield _finding(figure, "batch_per_gpu", "", reason, "a number")


def _facts(figure: Figure) -> GpuFacts | None:
    return next((facts for facts in gpu_specs.load() if facts.name == figure.gpu), None)


def _has_tensor_cores(facts: GpuFacts) -> bool:
    fp16, fp32 = gpu_specs.peak_flops(facts, "amp"), gpu_specs.peak_flops(facts, "fp32")
    return fp16 is not None and fp32 is not None and fp16 > TENSOR_CORES_FROM * fp32


def _least_step_seconds(figure: Figure, facts: GpuFacts) -> float:
    """How long a step would take at the peak of AMP; 0 if that is unknown."""
    flops, peak = _flops_per_item(figure), gpu_specs.peak_flops(facts, "amp")
    return (figure.batch_per_gpu or 0) * flops / peak if flops and peak else 0.0


def _flops_per_item(figure: Figure) -> float | None:
    """Floating-point operations per item, by what is known of the model; None if that or the size is unknown."""
    model = catalog.models().get(figure.model)
    if model is None or model.forward_flops is None:
        return None
    size = figure.sequence_length if model.flops_per == "token" else ((figure.image_size or 0) / 224) ** 2
    return (_TRAINING if figure.mode == "train" else 1) * model.forward_flops * size if size else None


def _place(figure: Figure) -> str:
    return figure.cell or f"row {figure.row}"
