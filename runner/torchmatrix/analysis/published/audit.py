"""Figures -> findings: what is impossible, or can't be judged, in published throughputs and in our own."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.gpu_specs import GpuFacts
from torchmatrix.analysis.published import scaling_checks
from torchmatrix.analysis.published.figures import TRAINING, Figure
from torchmatrix.analysis.published.findings import IMPOSSIBLE, SUSPECT, UNCLEAR, Finding, Unchecked, finding, place, shown
from torchmatrix.analysis.published.scaling_checks import SAME_JOB, Jobs
from torchmatrix.matrix import catalog

LEAST_GAIN = 1.10
"""AMP over fp32 or TF32 on tensor cores, whose peak in fp16 is twice that of TF32 and more. Our own decision."""
LEAST_STEP_SECONDS = 0.010
"""Steps that would be shorter than this at the AMP peak are not judged by LEAST_GAIN: the host may be the bottleneck."""
TENSOR_CORES_FROM = 1.5
"""A GPU has tensor (or matrix) cores for fp16 if its peak is so many times that of fp32."""
ROUNDING = 0.01
"""Half a unit of the last digit may be this share of a figure."""
ABOVE_PEAK = 1.10
"""Up to so many times the peak a published figure is only suspect: the peak is that of the vendor's boost clock. Our own."""
_PEAK_OF = {"fp32-conv-tf32": "tf32", "fp16": "amp", "bf16": "amp-bf16"}
_FAST, _SLOW = ("amp", "amp-bf16", "fp16", "bf16"), ("fp32", "tf32", "fp32-conv-tf32")
_ITEMS_PER_SECOND = re.compile(
    r"(?i)((images?|imgs?|samples?|examples?|items?|sequences?|seqs?|sentences?|inferences?|requests?|quer(y|ies))?"
    r" ?(/|per) ?s(ec(ond)?s?)?|[ifq]ps)?"
)
_ALL_BUT_PRECISION = tuple(name for name in SAME_JOB if "precision" not in name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """How many figures could be held against a peak and how many against scaling; those without a peak, with the reasons."""

    figures: int
    against_peak: int
    against_scaling: int
    unchecked: tuple[Unchecked, ...]

    @property
    def is_any(self) -> bool:
        """Was anything looked at?"""
        return self.against_peak + self.against_scaling > 0


def checked(figures: Sequence[Figure], mixed: Sequence[str] = ()) -> Checked:
    """What `check` could look at: without it, the absence of findings says nothing. `mixed`: cells that have no figure."""
    reasons = [(figure, found) for figure in figures if isinstance(found := _load(figure), str)]
    several = scaling_checks.coverage(figures)
    unchecked = [Unchecked(row=f.row, column=f.column, cell=f.cell, reason=reason) for f, reason in reasons]
    unchecked += [Unchecked(row=0, column="", cell=cell, reason="its GPUs are of several models") for cell in mixed]
    return Checked(
        figures=len(figures) + len(mixed),
        against_peak=len(figures) - len(reasons),
        against_scaling=several.baseline + several.siblings,
        unchecked=tuple(unchecked),
    )


def check(figures: Sequence[Figure]) -> list[Finding]:
    """All findings, in the order of the rows. Where a check lacks a fact it says nothing: `checked` does."""
    found: list[Finding] = []
    jobs, alone = Jobs(figures), dict[tuple[Any, ...], list[Figure]]()
    for figure in figures:
        if figure.gpus == 1:
            alone.setdefault(_model_and_gpu(figure), []).append(figure)
    for figure in figures:
        found += scaling_checks.check(figure, jobs)
        found += _gain(figure, alone.get(_model_and_gpu(figure), []))
        found += _above_peak(figure)
        found += _rounded(figure)
        found += _unknown(figure)
    return found


def _model_and_gpu(figure: Figure) -> tuple[Any, ...]:
    return tuple(getattr(figure, name) for name in _ALL_BUT_PRECISION)


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
        f"{figure.precision} is {figure.throughput / other.throughput:.2f} times {other.precision} ({place(other)}) on a GPU "
    )
    reason += "with tensor cores: check whether they were used."
    yield finding(figure, SUSPECT, "throughput", shown(figure), reason, f"{LEAST_GAIN:.2f} times")


def _above_peak(figure: Figure) -> Iterator[Finding]:
    load = _load(figure)
    if isinstance(load, str) or load[0] <= load[1]:
        return
    needed, peak = load
    digits = 0 if f"{needed / 1e12:.0f}" != f"{peak / 1e12:.0f}" else 2
    reason = (
        f"It needs {needed / 1e12:.{digits}f} TFLOP/s of each GPU, whose peak in {figure.precision} is {peak / 1e12:.{digits}f}"
    )
    level = IMPOSSIBLE if figure.cell or needed > ABOVE_PEAK * peak else SUSPECT
    reason += "." if level == IMPOSSIBLE else ": a card may run above its vendor's boost clock, but no model reaches the peak."
    yield finding(figure, level, "throughput", shown(figure), reason, f"{peak / 1e12:.0f} TFLOP/s")


def _load(figure: Figure) -> tuple[float, float] | str:
    """FLOP/s that the figure needs of each GPU, at least, and the GPU's peak; else why they can't be told."""
    facts, flops = _facts(figure), _flops_per_item(figure)
    if figure.gpus == 0 or figure.published_gpu.casefold().startswith("cpu"):
        return "it was measured without a GPU"
    if figure.gpus is None:
        return "the number of GPUs isn't given"
    if facts is None:
        return f'gpus.csv lists no GPU that surely is "{figure.published_gpu}"' if figure.published_gpu else "no GPU is named"
    if flops is None:
        return _why_no_flops(figure)
    if not figure.cell and not _ITEMS_PER_SECOND.fullmatch(figure.unit):
        return f"it is in {figure.unit}, not in items per second"
    peak = gpu_specs.peak_flops(facts, _PEAK_OF.get(figure.precision, figure.precision))
    if peak is not None:
        return figure.throughput / figure.gpus * flops, peak
    if figure.precision:
        return f"no peak of {facts.name} in {figure.precision} is known"
    said = figure.published_precision
    return f'it isn\'t known what the precision "{said}" means' if said else "the precision isn't given"


def _why_no_flops(figure: Figure) -> str:
    model = catalog.find(figure.model)
    if model is None or model.forward_flops is None:
        return f'the operations of the model "{figure.published_model}" aren\'t known'
    return f"the {'sequence length' if model.flops_per == 'token' else 'image size'} isn't given"


def _rounded(figure: Figure) -> Iterator[Finding]:
    share = figure.rounding / figure.throughput
    if share > ROUNDING:
        reason = f"It is rounded to ± {figure.rounding:g}, which is {100 * share:.1f} % of it."
        yield finding(figure, UNCLEAR, "throughput", shown(figure), reason, f"{100 * ROUNDING:g} %")


def _unknown(figure: Figure) -> Iterator[Finding]:
    if figure.is_vision and not figure.memory_format:
        reason = "The memory format is unknown: NHWC is up to 1.5 times as fast as NCHW."
        yield finding(figure, UNCLEAR, "memory_format", "", reason, "nchw or nhwc")
    if figure.batch_per_gpu is None:
        reason = "The batch per GPU is unknown: without it, neither a throughput nor a scale factor means much."
        yield finding(figure, UNCLEAR, "batch_per_gpu", "", reason, "a number")
    if figure.gpus is None:
        reason = "The number of GPUs is unknown, so neither the peak nor the scaling can be checked."
        yield finding(figure, UNCLEAR, "gpus", "", reason, "a number")


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
    """Floating-point operations per item, as its source says, else by what is known of the model; None if unknown."""
    forward = figure.forward_flops or _known_forward_flops(figure)
    return None if forward is None else (TRAINING if figure.mode == "train" else 1) * forward


def _known_forward_flops(figure: Figure) -> float | None:
    """None if our model isn't known or the figure doesn't say the size."""
    model = catalog.find(figure.model)
    if model is None or model.forward_flops is None:
        return None
    size = figure.sequence_length if model.flops_per == "token" else ((figure.image_size or 0) / 224) ** 2
    return model.forward_flops * size if size else None
