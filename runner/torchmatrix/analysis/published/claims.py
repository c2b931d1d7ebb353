"""What articles claim in words (reports/published/*_claims.csv), scale factors and speed-ups as ranges, and ours beside it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from torchmatrix.analysis.intervals import UNKNOWN, Interval, around, reproduction_verdict
from torchmatrix.analysis.published import figure_files
from torchmatrix.analysis.published.figures import Figure, Measured
from torchmatrix.ground import assets
from torchmatrix.matrix.factors import PRECISIONS

FILES = "_claims"
"""How the names of these files end; the others of reports/published hold throughputs."""
_ALL_PRECISIONS = (*PRECISIONS, *figure_files.OTHER_PRECISIONS)
_SAME_WORK = (
    "model", "mode", "precision", "memory_format", "compile", "batch_per_gpu", "image_size", "sequence_length", "gpu", "gpus",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A row of a claims file: `quantity` scale-factor, speed-up or ratio, from `low` to `high` (infinite: "more than").

    `models`, `precisions`, `gpus`: what it is about; empty if not said. `count`: of GPUs, or at least so many (`and_more`).
    """

    vendor: str
    quantity: str
    low: float
    high: float
    models: tuple[str, ...]
    precisions: tuple[str, ...]
    gpus: tuple[str, ...]
    count: int
    and_more: bool
    against: str
    published_gpu: str
    source: str
    notes: str

    def is_about(self, figure: Figure) -> bool:
        """Training (all that the articles measure) on a GPU that we know, of the claim's number, models and GPU models."""
        counts = figure.gpus == self.count or (self.and_more and (figure.gpus or 0) > self.count)
        named = all(not known or own in known for known, own in ((self.models, figure.model), (self.gpus, figure.gpu)))
        return counts and named and figure.mode == "train" and bool(figure.gpu)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """A claim and what we measured of it: `what` names the cells; `low` to `high` is what counts as reproduced."""

    claim: Claim
    what: str
    ours: Interval
    low: float
    high: float
    differs: tuple[str, ...]
    verdict: str


@cache
def load() -> tuple[Claim, ...]:
    """All claims, file by file."""
    rows = [figure_files.rows_of(path) for path in sorted(assets.PUBLISHED.glob(f"*{FILES}.csv"))]
    return tuple(_claim(row) for numbered in rows for row in numbered.values())


def is_wanted(claim: Claim, articles: Sequence[str] | None, measured: Iterable[Measured]) -> bool:
    """Those of `articles`; where these are None, those that name both a model and a GPU model of the run."""
    if articles is not None:
        return claim.source in articles
    return any(own.figure.model in claim.models and own.figure.gpu in claim.gpus for own in measured)


def evidence(claim: Claim, measured: Sequence[Measured], scales: Iterable[Mapping[str, Any]]) -> list[Tested]:
    """All that we measured of this claim: what is comparable; else what is not, and how it differs; else why there is none."""
    if claim.quantity == "ratio":
        return [_untested(claim, "it compares GPU models; one run has only one")]
    found = list(_scale_factors(claim, measured, scales) if claim.quantity == "scale-factor" else _speed_ups(claim, measured))
    comparable = [tested for tested in found if not tested.differs]
    return comparable or found or [_untested(claim, _why_not_measured(claim, measured))]


def accepted(claim: Claim) -> tuple[float, float]:
    """What counts as reproduced: a range as it is, a little more than a single figure."""
    return (claim.low, claim.high) if claim.low < claim.high else around(claim.low)


def _claim(row: Mapping[str, str]) -> Claim:
    def several(name: str) -> tuple[str, ...]:
        return tuple(row[name].split(" | ")) if row[name] else ()

    return Claim(
        **{name: row[name] for name in ("vendor", "quantity", "against", "published_gpu", "source", "notes")},
        low=float(row["low"]),
        high=float(row["high"] or math.inf),
        models=several("model"),
        precisions=several("precision"),
        gpus=several("gpu"),
        count=int(row["gpus"].removesuffix("+")),
        and_more=row["gpus"].endswith("+"),
    )


def _scale_factors(claim: Claim, measured: Sequence[Measured], scales: Iterable[Mapping[str, Any]]) -> Iterator[Tested]:
    known = {row["cell"]: row for row in scales if not math.isnan(row["s"])}
    for own in measured:
        row = known.get(own.figure.cell)
        if row and claim.is_about(own.figure):
            ours = Interval(value=row["s"], low=row["s_low"], high=row["s_high"])
            impossible = (f"efficiency: {row['E']:.3f}, which is impossible",) if row["impossible"] else ()
            yield _tested(claim, _name(own), ours, _other_precision(claim, own) + impossible)


def _speed_ups(claim: Claim, measured: Sequence[Measured]) -> Iterator[Tested]:
    """Ratios of cells that differ in what the claim is about, and in nothing else of the workload."""
    for own in measured:
        for base in measured:
            if claim.is_about(own.figure) and _is_baseline(claim.against, own, base):
                differs = _other_precision(claim, own) + _other_baseline(claim, base)
                found = own.cell.over(base.cell).interval
                yield _tested(claim, f"{_name(own)} over {base.cell['stack']}, {base.cell['workload']}", found, differs)


def _is_baseline(against: str, own: Measured, base: Measured) -> bool:
    """Is `base` what a claim of this kind takes `own` against?"""
    a, b = own.figure, base.figure
    if against == "without compile":
        return bool(a.compile and not b.compile) and _is_one(own, base, "stack") and _is_same_work(own, base, "compile")
    if against == "PyTorch 1 without compile":
        versions = a.torch.split(".")[0], b.torch.split(".")[0]
        return bool(a.compile and not b.compile) and versions == ("2", "1") and _is_same_work(own, base, "compile")
    if against in _ALL_PRECISIONS:
        halves = a.precision == "amp" and b.precision in ("fp32", "tf32")
        return halves and _is_one(own, base, "stack") and _is_same_work(own, base, "precision")
    return False


def _is_same_work(own: Measured, base: Measured, but: str) -> bool:
    names = [name for name in _SAME_WORK if name != but]
    same = all(getattr(own.figure, name) == getattr(base.figure, name) for name in names)
    return same and _is_one(own, base, "devices", "attention")


def _is_one(own: Measured, base: Measured, *names: str) -> bool:
    return all(own.cell[name] == base.cell[name] for name in names)


def _other_precision(claim: Claim, own: Measured) -> tuple[str, ...]:
    if not claim.precisions or own.figure.precision in claim.precisions:
        return ()
    return (f"precision: {' or '.join(claim.precisions)}, ours {own.figure.precision}",)


def _other_baseline(claim: Claim, base: Measured) -> tuple[str, ...]:
    if claim.against not in _ALL_PRECISIONS or claim.against == base.figure.precision:
        return ()
    return (f"baseline: {claim.against}, ours {base.figure.precision}",)


def _tested(claim: Claim, what: str, ours: Interval, differs: tuple[str, ...]) -> Tested:
    low, high = accepted(claim)
    found = "not comparable" if differs else reproduction_verdict(ours, low, high)
    return Tested(claim=claim, what=what, ours=ours, low=low, high=high, differs=differs, verdict=found)


def _untested(claim: Claim, why: str) -> Tested:
    low, high = accepted(claim)
    return Tested(claim=claim, what="", ours=UNKNOWN, low=low, high=high, differs=(why,), verdict="not measured")


def _why_not_measured(claim: Claim, measured: Sequence[Measured]) -> str:
    for noun, known, own in (
        ("GPU model", claim.gpus, {m.figure.gpu for m in measured}),
        ("model", claim.models, {m.figure.model for m in measured}),
    ):
        if known and not own & set(known):
            return f"no cell of its {noun}{'s' if len(known) > 1 else ''}: {', '.join(known)}"
    if not any(claim.is_about(m.figure) for m in measured):
        return f"no cell of them on {claim.count}{' or more' if claim.and_more else ''} GPUs"
    return f"the baseline isn't measured: {claim.against}"


def _name(own: Measured) -> str:
    return ", ".join(own.cell[name] for name in ("stack", "workload", "devices"))
