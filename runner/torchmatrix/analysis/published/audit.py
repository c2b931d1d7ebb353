"""Figures -> findings: what is impossible, or can't be judged, in published throughputs and in our own."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from operator import attrgetter
from typing import Any

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.gpu_specs import GpuFacts
from torchmatrix.analysis.published import TRAINING, Figure, units
from torchmatrix.analysis.rows import CellRow, group_by
from torchmatrix.analysis.scaling import IMPOSSIBLE_EFFICIENCY, IMPOSSIBLE_UNTESTED
from torchmatrix.machine.vendors import VENDORS
from torchmatrix.matrix import catalog

# Findings: how sure the audit is, about which field, over which limit, and why.

IMPOSSIBLE, SUSPECT, UNCLEAR, OTHER_BUILD = "impossible", "suspect", "unclear", "other build"
LEVELS = {
    IMPOSSIBLE: "can't be true as stated",
    SUSPECT: "unlikely: look for a cause",
    UNCLEAR: "can't be judged well: something is unknown, coarse or from elsewhere",
    OTHER_BUILD: "PyTorch was installed for another kind of device than the stack asks for, such as CUDA's on a CPU",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A problem of one figure. `row` and `column` as in figures.Figure; `cell` for a figure of ours. `level`: one of LEVELS.

    `field`: the figure's field in question and `value` its content, "" if unknown (a throughput in `unit`). `reason` is a
    sentence, `limit` what was exceeded.
    """

    row: int
    column: str
    cell: str
    level: str
    field: str
    value: str
    unit: str
    limit: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unchecked:
    """A figure that could not be compared with a peak, and why. `row`, `column` and `cell` as in figures.Figure."""

    row: int
    column: str
    cell: str
    reason: str


def finding(figure: Figure, level: str, field: str, value: str, reason: str, limit: str) -> Finding:
    """Make a finding about `figure`."""
    return Finding(
        row=figure.row,
        column=figure.column,
        cell=figure.cell,
        level=level,
        field=field,
        value=value,
        unit=figure.unit if field == "throughput" else "",
        limit=limit,
        reason=reason,
    )


def shown(figure: Figure) -> str:
    """Return a figure's throughput as written: with all its digits, without an exponent."""
    return f"{figure.throughput:.12g}" if not _is_of_each(figure) else f"{figure.gpus} x {figure.per_gpu:.12g}"


def _is_of_each(figure: Figure) -> bool:
    return bool(figure.gpus) and units.meaning(figure.unit).of_each


def place(about: Figure | Finding | Unchecked) -> str:
    """Return the cell, or the row and, where a row has several figures, the column."""
    return about.cell or f"row {about.row}" + (f", {about.column}" if about.column else "")


# Scaling: does a published figure of several GPUs scale better than linearly, over one GPU or, without that, over siblings?

SUSPECT_EFFICIENCY = IMPOSSIBLE_EFFICIENCY
"""Within one run of ours this is impossible if the interval proves it: nothing but the number of devices differs there."""
DAYS_APART = 1
"""How many days may lie between a baseline and the figure over it: runs cross midnight."""
SAME_JOB = (
    "vendor", "framework", "gpu", "published_gpu", "model", "published_model", "mode", "precision", "published_precision",
    "memory_format", "compile", "image_size", "sequence_length", "data", "unit", "torch", "image",
)  # fmt: skip
"""The fields that two rows of one source must share to be compared at all."""
_job_of = attrgetter(*SAME_JOB)
_CIRCUMSTANCES = ("machine", "date", "driver")
_circumstances = attrgetter(*_CIRCUMSTANCES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """Numbers of figures of several GPUs: how many have a baseline, how many only siblings, how many neither."""

    several: int
    baseline: int
    siblings: int
    unchecked: int


class Jobs:
    """The figures of one source by job, to find what each can be compared with."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        self._by_job = {job: _fastest_of_each(same) for job, same in group_by(figures, _job).items()}
        self._baselines: dict[tuple[Any, ...], Figure | None] = {}

    def baseline(self, figure: Figure) -> Figure | None:
        """Return the same job and batch on one GPU: the one with the nearest circumstances, the fastest of several such.

        An unstated batch may be the same; a batch that both state equally comes first.
        """
        if (figure.gpus or 0) < 2 or not _is_rate(figure):
            return None
        key = (_job(figure), figure.batch_per_gpu, *_circumstances(figure))
        if key not in self._baselines:
            same = [other for other in self._on(1, figure) if _may_be_equal(figure, other)]
            self._baselines[key] = max(same, key=lambda other: _nearness(figure, other), default=None)
        return self._baselines[key]

    def sibling(self, figure: Figure) -> Figure | None:
        """Return the same job on fewer GPUs, or on one with a larger batch, for a figure without a baseline.

        Of the nearest ones it is the fastest per GPU.
        """
        fewer = self._fewer(figure) if _is_rate(figure) else []
        fitting = [other for other in fewer if _may_be_equal(figure, other) or _has_larger_batch(figure, other)]
        return max(fitting, key=lambda other: _nearness(figure, other), default=None)

    def _fewer(self, figure: Figure) -> list[Figure]:
        fewer = [count for count in self._by_job[_job(figure)] if 0 < count < (figure.gpus or 0)]
        return [other for count in fewer for other in self._on(count, figure)]

    def _on(self, count: int, figure: Figure) -> list[Figure]:
        return self._by_job[_job(figure)].get(count, [])


def _fastest_of_each(figures: Sequence[Figure]) -> dict[int, list[Figure]]:
    """Return figures of one job by their number of GPUs; of those with the same batch and circumstances only the fastest."""
    best: dict[tuple[Any, ...], Figure] = {}
    for figure in figures:
        key = (figure.gpus, figure.batch_per_gpu, *_circumstances(figure))
        if key not in best or figure.throughput > best[key].throughput:
            best[key] = figure
    return group_by(best.values(), lambda figure: figure.gpus or 0)


def _is_rate(figure: Figure) -> bool:
    """Check whether more is faster: throughputs without a unit are rates, of whatever items."""
    return not figure.unit or bool(figure.cell) or units.meaning(figure.unit).kind == units.RATE


def coverage(figures: Sequence[Figure]) -> Coverage:
    """Count the figures of several GPUs that could be compared with something."""
    jobs, counts = Jobs(figures), [0, 0, 0]
    for figure in figures:
        if (figure.gpus or 0) > 1:
            counts[0 if jobs.baseline(figure) else 1 if jobs.sibling(figure) else 2] += 1
    return Coverage(several=sum(counts), baseline=counts[0], siblings=counts[1], unchecked=counts[2])


def check_scaling(figure: Figure, jobs: Jobs) -> Iterator[Finding]:
    """Yield findings of more than linear scaling over the baseline, else over a sibling; and of a baseline from elsewhere."""
    if base := jobs.baseline(figure):
        yield from _more_than_linear(figure, base)
        yield from _from_elsewhere(figure, base)
    elif sibling := jobs.sibling(figure):
        yield from _more_than_linear(figure, sibling)


def _more_than_linear(figure: Figure, other: Figure) -> Iterator[Finding]:
    """Yield a finding if `figure` is faster per GPU than `other`, at least, whatever digits were rounded away."""
    assert figure.gpus and other.gpus
    per_gpu, other_per_gpu = figure.throughput / figure.gpus, other.throughput / other.gpus
    efficiency = (per_gpu - figure.rounding / figure.gpus) / (other_per_gpu + other.rounding / other.gpus)
    if efficiency <= SUSPECT_EFFICIENCY:
        return
    same_batch, error = figure.batch_per_gpu == other.batch_per_gpu, _relative_error(figure, other)
    if efficiency <= 1 + error:
        return
    limit = IMPOSSIBLE_UNTESTED if math.isnan(error) else SUSPECT_EFFICIENCY
    level = IMPOSSIBLE if same_batch and efficiency > limit else SUSPECT
    over = "one GPU" if other.gpus == 1 else f"{other.gpus} GPUs"
    claim = (
        f"{figure.gpus} GPUs at an efficiency of {per_gpu / other_per_gpu:.3f} over {place(other)} ({shown(other)} on {over})"
    )
    reason = "no machine scales better than linearly"
    if not same_batch:
        reason += f", but the batch may differ ({_batch(figure)}, there {_batch(other)})"
    elif figure.batch_per_gpu is None:
        reason += "; the batch per GPU isn't stated"
    overstepped = f"efficiency {limit if level == IMPOSSIBLE else SUSPECT_EFFICIENCY:.2f}"
    yield finding(figure, level, "throughput", shown(figure), f"{claim}: {reason}.", overstepped)


def _relative_error(figure: Figure, other: Figure) -> float:
    """Return half of the 95 % interval of the ratio of two figures of ours; NaN for others' figures and for single launches."""
    return math.hypot(figure.half_interval / figure.throughput, other.half_interval / other.throughput)


def _from_elsewhere(figure: Figure, base: Figure) -> Iterator[Finding]:
    for name in _CIRCUMSTANCES:
        if _is_elsewhere(name, getattr(figure, name), getattr(base, name)):
            reason = f"Its baseline, {place(base)}, is recorded with another {name}: {getattr(base, name)}."
            limit = f"{DAYS_APART} day apart" if name == "date" else f"the same {name}"
            yield finding(figure, UNCLEAR, name, getattr(figure, name), reason, limit)


def _job(figure: Figure) -> tuple[Any, ...]:
    return tuple(_job_of(figure))


def _may_be_equal(figure: Figure, other: Figure) -> bool:
    return None in (figure.batch_per_gpu, other.batch_per_gpu) or figure.batch_per_gpu == other.batch_per_gpu


def _has_larger_batch(figure: Figure, other: Figure) -> bool:
    """Check whether `other` has the larger batch: a GPU is usually faster then, so exceeding it per GPU is no less odd."""
    return (other.batch_per_gpu or 0) > (figure.batch_per_gpu or 0)


def _batch(figure: Figure) -> str:
    return "not stated" if figure.batch_per_gpu is None else f"{figure.batch_per_gpu} per GPU"


def _nearness(figure: Figure, other: Figure) -> tuple[bool, int, float]:
    near = sum(
        a == b or not a or not b or (name == "date" and not _is_elsewhere(name, a, b))
        for name, a, b in zip(_CIRCUMSTANCES, _circumstances(figure), _circumstances(other), strict=True)
    )
    return figure.batch_per_gpu == other.batch_per_gpu, near, other.throughput / (other.gpus or 1)


@lru_cache(65_536)
def _is_elsewhere(name: str, a: str, b: str) -> bool:
    """Check whether both values are known and differ.

    Dates differ if they are further apart than DAYS_APART, or of other months or years if nothing more is stated.
    """
    if not a or not b:
        return False
    if name != "date":
        return a != b
    try:
        return abs((date.fromisoformat(a) - date.fromisoformat(b)).days) > DAYS_APART
    except ValueError:
        common = min(len(a), len(b))
        return a[:common] != b[:common]


def as_record(counted: Coverage) -> Mapping[str, int]:
    """Return the counts for `audit --json`."""
    return {
        "on_several_gpus": counted.several,
        "with_baseline": counted.baseline,
        "checked_against_siblings": counted.siblings,
        "without_either": counted.unchecked,
    }


LEAST_GAIN = 1.10
"""AMP over fp32 or TF32 on tensor cores, whose peak in fp16 is twice that of TF32 and more. Our own decision."""
LEAST_STEP_SECONDS = 0.010
"""Steps that would be shorter than this at the AMP peak are not judged by LEAST_GAIN: the host may be the bottleneck."""
TENSOR_CORES_FROM = 1.5
"""A GPU has tensor (or matrix) cores for a precision if its peak is at least this many times that of fp32."""
ROUNDING = 0.01
"""Half a unit of the last digit may be this share of a figure."""
ABOVE_PEAK = 1.10
"""Up to this many times the peak a published figure is only suspect: the peak is that of the boost clock. Our own decision."""
_PEAK_OF = {"fp32-conv-tf32": "tf32", "fp16": "amp", "bf16": "amp-bf16"}
_FAST, _SLOW = ("amp", "amp-bf16", "fp16", "bf16"), ("fp32", "tf32", "fp32-conv-tf32")
_ALL_BUT_PRECISION = tuple(name for name in SAME_JOB if "precision" not in name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """How many figures could be compared with a peak and how many with others; those without a peak, with the reasons."""

    figures: int
    against_peak: int
    against_scaling: int
    unchecked: tuple[Unchecked, ...]

    @property
    def is_any(self) -> bool:
        """Check whether any figure could be checked."""
        return self.against_peak + self.against_scaling > 0


def checked(figures: Sequence[Figure], mixed: Sequence[str] = ()) -> Checked:
    """Return what `check` could examine: without it, the absence of findings says nothing. `mixed`: cells without a figure."""
    reasons = [(figure, load) for figure in figures if isinstance(load := _load(figure), str)]
    several = coverage(figures)
    unchecked = [Unchecked(row=f.row, column=f.column, cell=f.cell, reason=reason) for f, reason in reasons]
    unchecked += [Unchecked(row=0, column="", cell=cell, reason="its GPUs are of several models") for cell in mixed]
    return Checked(
        figures=len(figures) + len(mixed),
        against_peak=len(figures) - len(reasons),
        against_scaling=several.baseline + several.siblings,
        unchecked=tuple(unchecked),
    )


def check(figures: Sequence[Figure]) -> list[Finding]:
    """Return all findings, in the order of the rows. A check that lacks a fact finds nothing: `checked` tells so."""
    findings: list[Finding] = []
    slow = (figure for figure in figures if figure.gpus == 1 and figure.precision in _SLOW and figure.batch_per_gpu is not None)
    jobs, on_one_gpu = Jobs(figures), group_by(slow, _model_and_gpu)
    for figure in figures:
        findings += check_scaling(figure, jobs)
        findings += _gain(figure, on_one_gpu)
        findings += _above_peak(figure)
        findings += _rounded(figure)
        findings += _unknown(figure)
    return findings


def _model_and_gpu(figure: Figure) -> tuple[Any, ...]:
    return tuple(getattr(figure, name) for name in _ALL_BUT_PRECISION)


def _gain(figure: Figure, slow: Mapping[tuple[Any, ...], Sequence[Figure]]) -> Iterator[Finding]:
    """Yield a finding if AMP gains too little over fp32 on one GPU. `slow`: of these, by model and GPU.

    On several the all-reduce, and with real data the loader, may bound both.
    """
    facts = _facts(figure)
    if facts is None or figure.precision not in _FAST or figure.gpus != 1 or figure.data == "real" or not _is_rate(figure):
        return
    if not _has_tensor_cores(facts, figure.precision) or _least_step_seconds(figure, facts) < LEAST_STEP_SECONDS:
        return
    batch = figure.batch_per_gpu or 0
    alone = [other for other in slow.get(_model_and_gpu(figure), ()) if (other.batch_per_gpu or 0) <= batch]
    other = min(alone, key=lambda other: (other.batch_per_gpu != batch, other.throughput), default=None)
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
    level, why = IMPOSSIBLE if figure.cell or needed > ABOVE_PEAK * peak else SUSPECT, _BOOST
    if level == IMPOSSIBLE and not figure.cell and needed <= ABOVE_PEAK * _peak_by_default(figure):
        level, why = SUSPECT, _TF32
    reason += "." if level == IMPOSSIBLE else f": {why}."
    yield finding(figure, level, "throughput", shown(figure), reason, f"{peak / 1e12:.0f} TFLOP/s")


_BOOST = "a card may run above its vendor's boost clock, but no model reaches the peak"
_TF32 = "others call fp32 what PyTorch does without being told, convolutions in TF32 on tensor cores: look which it is"


def _peak_by_default(figure: Figure) -> float:
    """Return the peak of one GPU in TF32 if others may mean that by the figure's fp32; else 0."""
    facts = _facts(figure)
    by_convolutions = facts is not None and facts.vendor == "NVIDIA" and figure.precision == "fp32" and figure.is_vision
    return gpu_specs.peak_flops(facts, "tf32") or 0.0 if facts and by_convolutions else 0.0


def _load(figure: Figure) -> tuple[float, float] | str:
    """Return the FLOP/s that the figure needs of each GPU, at least, and the GPU's peak; or why they are unknown."""
    facts, flops = _facts(figure), _flops_per_item(figure)
    if figure.gpus == 0 or figure.published_gpu.casefold().startswith("cpu"):
        return "it was measured without a GPU"
    if figure.per_gpu is None:
        return "the number of GPUs isn't given"
    if facts is None:
        return f'gpus.csv lists no GPU that surely is "{figure.published_gpu}"' if figure.published_gpu else "no GPU is named"
    if not figure.cell and units.meaning(figure.unit).kind != units.RATE:
        return f"it is in {figure.unit}, not in items per second" if figure.unit else "its unit isn't given"
    if flops is None:
        return _why_no_flops(figure)
    peak = gpu_specs.peak_flops(facts, _PEAK_OF.get(figure.precision, figure.precision))
    if peak is not None:
        return figure.per_gpu * flops, peak
    if figure.precision:
        return f"no peak of {facts.name} in {figure.precision} is known"
    published = figure.published_precision
    return f'it isn\'t known what the precision "{published}" means' if published else "the precision isn't given"


def _why_no_flops(figure: Figure) -> str:
    model = catalog.find(figure.model)
    if model is None or model.forward_flops is None:
        return f'the operations of the model "{figure.published_model}" aren\'t known'
    is_text, items = model.flops_per == "token", units.meaning(figure.unit).items
    if items in (("images",) if is_text else ("tokens", "sequences")):
        return f"it is in {figure.unit}, which {figure.published_model} has none of"
    return f"the {'sequence length' if is_text else 'image size'} isn't given"


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
        can = "neither the peak nor the scaling can" if figure.per_gpu is None else "the scaling can't"
        reason = f"The number of GPUs is unknown, so {can} be checked."
        yield finding(figure, UNCLEAR, "gpus", "", reason, "a number")


def _facts(figure: Figure) -> GpuFacts | None:
    return next((facts for facts in gpu_specs.load() if facts.name == figure.gpu), None)


def _has_tensor_cores(facts: GpuFacts, precision: str) -> bool:
    fast, fp32 = gpu_specs.peak_flops(facts, _PEAK_OF.get(precision, precision)), gpu_specs.peak_flops(facts, "fp32")
    return fast is not None and fp32 is not None and fast > TENSOR_CORES_FROM * fp32


def _least_step_seconds(figure: Figure, facts: GpuFacts) -> float:
    """Return how long a step would take at the peak of AMP; 0 if that is unknown."""
    flops, peak = _flops_per_item(figure), gpu_specs.peak_flops(facts, "amp")
    return (figure.batch_per_gpu or 0) * flops / peak if flops and peak else 0.0


def _flops_per_item(figure: Figure) -> float | None:
    """Return floating-point operations per item, as the source states, else by what is known of the model; None if unknown."""
    forward = figure.forward_flops or _known_forward_flops(figure)
    return None if forward is None else (TRAINING if figure.mode == "train" else 1) * forward


def _known_forward_flops(figure: Figure) -> float | None:
    """Return the model's forward operations per item, at least; None if the model is unknown or no size is stated.

    Only the training of a model that continues texts needs the product with the vocabulary for every token: a prefill asks for
    the last one's, and encoders are trained with other heads.
    """
    model = catalog.find(figure.model)
    if model is None or model.forward_flops is None:
        return None
    items = units.meaning(figure.unit).items
    if model.flops_per == "token":
        size: float | None = 1 if items == "tokens" else None if items == "images" else figure.sequence_length
    else:
        side = (figure.image_size or 0) / 224
        size = side * side if items in ("", "images") else None
    needs_vocabulary = model.predicts_all and figure.mode == "train"
    forward = model.forward_flops if needs_vocabulary else model.forward_flops - model.vocabulary_flops
    return forward * size if size and math.isfinite(size) else None


# Our own figures: is the PyTorch that ran of the kind that the stack asks for?


def is_other_build(cell: CellRow) -> bool:
    """Check whether PyTorch was installed with CUDA or ROCm where the stack asks for the CPU's, or the other way round.
    The local part of its version tells (PEP 440): 2.7.1+cpu, 2.7.1+cu128, 2.7.1+rocm6.3. Without one nothing is known.
    """
    _, _, local = (cell.of.torch_build or "").partition("+")
    requested = cell.of.accelerator
    if not local or requested not in _BUILDS:
        return False
    return any(local.startswith(prefix) for accelerator, prefix in _BUILDS.items() if accelerator != requested)


_BUILDS = {"cpu": "cpu"} | {vendor.accelerator: vendor.wheels for vendor in VENDORS.values()}
"""Prefixes of the local part of a version. "cpu" doesn't begin with "cu"."""


def findings(table: Sequence[CellRow], figures: Sequence[Figure]) -> list[Finding]:
    """Return all findings on a run, of its cells (see other_builds) and its figures."""
    return other_builds(table) + check(figures)


def other_builds(table: Sequence[CellRow]) -> list[Finding]:
    """Return a finding for each stack that got another build than it asks for, by its first such cell. `table`: of all cells
    (run_summary.cells_table).
    """
    first = {row.of.stack: row for row in reversed(table) if row.n and is_other_build(row)}
    return [
        Finding(
            row=0, column="", cell=row.of.cell, level=OTHER_BUILD, field="torch", value=row.of.torch_build or "", unit="",
            limit=f"a build for {row.of.accelerator}",
            reason=f"{stack} asks for {row.of.accelerator}, but all its figures are of PyTorch {row.of.torch_build}",
        )
        for stack, row in first.items()
    ]  # fmt: skip
