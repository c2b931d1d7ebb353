"""Does a published figure of several GPUs scale better than linearly, over one GPU or, without that, over its siblings?"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from torchmatrix.analysis.published.figures import Figure
from torchmatrix.analysis.published.findings import IMPOSSIBLE, SUSPECT, UNCLEAR, Finding, finding, place, shown
from torchmatrix.analysis.scaling import IMPOSSIBLE_EFFICIENCY, IMPOSSIBLE_UNTESTED

SUSPECT_EFFICIENCY = IMPOSSIBLE_EFFICIENCY
"""Of one run of ours this is impossible already if the interval proves it: there nothing but the number of devices differs."""
DAYS_APART = 1
"""So many days may lie between a baseline and the figure over it: runs cross midnight."""
SAME_JOB = (
    "vendor", "framework", "gpu", "published_gpu", "model", "published_model", "mode", "precision", "published_precision",
    "memory_format", "compile", "image_size", "sequence_length", "data", "unit", "torch", "image",
)  # fmt: skip
"""What two rows of one source must have in common to be set beside each other at all."""
_CIRCUMSTANCES = ("machine", "date", "driver")


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """Of the figures of several GPUs: how many have a baseline, how many only siblings, how many neither."""

    several: int
    baseline: int
    siblings: int
    unchecked: int


class Jobs:
    """The figures of one source by job, to find what each can be held against."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        self._by_job: dict[tuple[Any, ...], list[Figure]] = {}
        for figure in figures:
            self._by_job.setdefault(_job(figure), []).append(figure)
        self._baselines: dict[tuple[Any, ...], Figure | None] = {}

    def baseline(self, figure: Figure) -> Figure | None:
        """The same job and batch on one GPU: of the nearest circumstances, and of several such the fastest.

        A batch that either doesn't say may be the same; one that both say equally comes first.
        """
        if (figure.gpus or 0) < 2:
            return None
        key = (_job(figure), figure.batch_per_gpu, *(getattr(figure, name) for name in _CIRCUMSTANCES))
        if key not in self._baselines:
            same = [other for other in self._fewer(figure) if other.gpus == 1 and _may_be_equal(figure, other)]
            self._baselines[key] = max(same, key=lambda other: _nearness(figure, other), default=None)
        return self._baselines[key]

    def sibling(self, figure: Figure) -> Figure | None:
        """Without a baseline: the same job on fewer GPUs, or on one with a larger batch; per GPU the fastest of the nearest."""
        fitting = [other for other in self._fewer(figure) if _may_be_equal(figure, other) or _has_larger_batch(figure, other)]
        return max(fitting, key=lambda other: _nearness(figure, other), default=None)

    def _fewer(self, figure: Figure) -> list[Figure]:
        count = figure.gpus or 0
        return [other for other in self._by_job[_job(figure)] if other.gpus and other.gpus < count]


def coverage(figures: Sequence[Figure]) -> Coverage:
    """How many figures of several GPUs could be held against something."""
    jobs, found = Jobs(figures), [0, 0, 0]
    for figure in figures:
        if (figure.gpus or 0) > 1:
            found[0 if jobs.baseline(figure) else 1 if jobs.sibling(figure) else 2] += 1
    return Coverage(several=sum(found), baseline=found[0], siblings=found[1], unchecked=found[2])


def check(figure: Figure, jobs: Jobs) -> Iterator[Finding]:
    """More than linear scaling over the baseline, else over a sibling; and a baseline from elsewhere."""
    if base := jobs.baseline(figure):
        yield from _more_than_linear(figure, base)
        yield from _from_elsewhere(figure, base)
    elif sibling := jobs.sibling(figure):
        yield from _more_than_linear(figure, sibling)


def _more_than_linear(figure: Figure, other: Figure) -> Iterator[Finding]:
    """Per GPU, `figure` over `other`; at least, whatever digits were rounded away."""
    assert figure.gpus and other.gpus
    own, others = figure.throughput / figure.gpus, other.throughput / other.gpus
    least = (own - figure.rounding / figure.gpus) / (others + other.rounding / other.gpus)
    if least <= SUSPECT_EFFICIENCY:
        return
    sure, off = figure.batch_per_gpu == other.batch_per_gpu, _relative_error(figure, other)
    if least <= 1 + off:
        return
    limit = IMPOSSIBLE_UNTESTED if math.isnan(off) else SUSPECT_EFFICIENCY
    level = IMPOSSIBLE if sure and least > limit else SUSPECT
    over = "one GPU" if other.gpus == 1 else f"{other.gpus} GPUs"
    what = f"{figure.gpus} GPUs at an efficiency of {own / others:.3f} over {place(other)} ({shown(other)} on {over})"
    why = "no machine scales better than linearly"
    if not sure:
        why += f", but the batch may differ ({_batch(figure)}, there {_batch(other)})"
    elif figure.batch_per_gpu is None:
        why += "; the batch per GPU isn't stated"
    overstepped = f"efficiency {limit if level == IMPOSSIBLE else SUSPECT_EFFICIENCY:.2f}"
    yield finding(figure, level, "throughput", shown(figure), f"{what}: {why}.", overstepped)


def _relative_error(figure: Figure, other: Figure) -> float:
    """Half of the 95 % interval of the ratio of two figures of ours; NaN of others and of single launches."""
    return math.hypot(figure.half_interval / figure.throughput, other.half_interval / other.throughput)


def _from_elsewhere(figure: Figure, base: Figure) -> Iterator[Finding]:
    for name in _CIRCUMSTANCES:
        if _is_elsewhere(name, getattr(figure, name), getattr(base, name)):
            reason = f"Its baseline, {place(base)}, is recorded with another {name}: {getattr(base, name)}."
            limit = f"{DAYS_APART} day apart" if name == "date" else f"the same {name}"
            yield finding(figure, UNCLEAR, name, getattr(figure, name), reason, limit)


def _job(figure: Figure) -> tuple[Any, ...]:
    return tuple(getattr(figure, name) for name in SAME_JOB)


def _may_be_equal(figure: Figure, other: Figure) -> bool:
    return None in (figure.batch_per_gpu, other.batch_per_gpu) or figure.batch_per_gpu == other.batch_per_gpu


def _has_larger_batch(figure: Figure, other: Figure) -> bool:
    """Then a GPU is usually faster there, so that exceeding it per GPU is no less odd."""
    return (other.batch_per_gpu or 0) > (figure.batch_per_gpu or 0)


def _batch(figure: Figure) -> str:
    return "not stated" if figure.batch_per_gpu is None else f"{figure.batch_per_gpu} per GPU"


def _nearness(figure: Figure, other: Figure) -> tuple[bool, int, float]:
    near = sum(not _is_elsewhere(n, getattr(figure, n), getattr(other, n)) for n in _CIRCUMSTANCES)
    return figure.batch_per_gpu == other.batch_per_gpu, near, other.throughput / (other.gpus or 1)


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


def as_record(found: Coverage) -> Mapping[str, int]:
    """For `audit --json`."""
    return {
        "on_several_gpus": found.several,
        "with_baseline": found.baseline,
        "checked_against_siblings": found.siblings,
        "without_either": found.unchecked,
    }
