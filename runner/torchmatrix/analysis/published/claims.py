"""What articles claim in words (reports/published/*_claims.csv), scale factors and speed-ups as ranges, and ours beside it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from torchmatrix.analysis.intervals import UNKNOWN, Interval, around, reproduction_verdict
from torchmatrix.analysis.published import audit, figure_files
from torchmatrix.analysis.published.figures import Figure, Measured
from torchmatrix.core import assets
from torchmatrix.core.errors import BadInput
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.factors import PRECISIONS
from torchmatrix.matrix.matrix_file import Preset

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
def load_claims() -> tuple[Claim, ...]:
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


# Our figures beside published ones (reports/published): which are comparable, in what others differ, and the verdicts.
#
# A figure is unknown, never assumed: what its source doesn't say differs from ours. Rules and words are in glossary.py.

_WORDS = {
    "framework": "framework", "precision": "precision", "memory_format": "memory format", "compile": "compile",
    "batch_per_gpu": "batch per GPU", "image_size": "image size", "sequence_length": "sequence length", "data": "data",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """A throughput of ours beside a published one. `differs`: why they are not comparable; `besides`: what else differs.

    `to_match`: the settings that would make them comparable, or why none would; "" if they are.
    `ratio`: ours over theirs, NaN if they are not comparable. `low` to `high`, in items per second, counts as reproduced.
    `doubts`: what the audit finds in the published figure.
    """

    ours: Measured
    theirs: Figure
    differs: tuple[str, ...]
    besides: tuple[str, ...]
    to_match: str
    ratio: Interval
    low: float
    high: float
    verdict: str
    doubts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """What a report shows: throughputs (comparable ones first) and claims, and what the matrix says that it repeats."""

    preset: Preset | None
    throughputs: tuple[Beside, ...]
    left_out: int
    claims: tuple[Tested, ...]


@cache
def load_figures() -> tuple[Figure, ...]:
    """All published throughputs, file by file."""
    paths = [path for path in sorted(assets.PUBLISHED.glob("*.csv")) if path.stem != "gpus" and not path.stem.endswith(FILES)]
    return tuple(figure for path in paths for figure in figure_files.read(path))


def preset_of(text: str) -> Preset | None:
    """What a run's recorded matrix repeats; None also if this version can't read that matrix any more."""
    try:
        return matrix_file.parse(text).preset
    except BadInput:
        return None


def section(preset: Preset | None, measured: Sequence[Measured], scales: Sequence[Mapping[str, Any]]) -> Section | None:
    """All that a run has to do with published figures, or None. `scales`: the rows of scaling.scaling_table.

    Of a published figure that no cell is comparable to, the cell that differs in the fewest fields stands for all.
    """
    found, left_out = paired(measured)
    wanted = [claim for claim in load_claims() if is_wanted(claim, preset.article if preset else None, measured)]
    tested = tuple(one for claim in wanted for one in evidence(claim, measured, scales))
    if preset is None and not found and not tested:
        return None
    named = preset.claims if preset else ()
    found.sort(key=lambda pair: (bool(pair.differs), pair.theirs.file not in named))
    return Section(preset=preset, throughputs=tuple(found), left_out=left_out, claims=tested)


def paired(measured: Iterable[Measured]) -> tuple[list[Beside], int]:
    """Of each published figure the cells that it is comparable to, else the nearest one; how many further pairs there are."""
    pairs = _pairs(measured)
    found = [pair for these in pairs for pair in _nearest(these)]
    return found, sum(map(len, pairs)) - len(found)


def _pairs(measured: Iterable[Measured]) -> list[list[Beside]]:
    """For each published figure the cells beside it."""
    alike: dict[tuple[Any, ...], list[Measured]] = {}
    for own in measured:
        alike.setdefault(_kind(own.figure), []).append(own)
    return [beside(theirs, alike.get(_kind(theirs), ())) for theirs in load_figures()]


def beside(theirs: Figure, measured: Iterable[Measured]) -> list[Beside]:
    """Every cell of the same model, mode, GPU model and number of GPUs beside this published figure."""
    if not (theirs.model and theirs.gpu and theirs.gpus):
        return []
    return [_beside(theirs, own) for own in measured if _kind(theirs) == _kind(own.figure)]


def _kind(figure: Figure) -> tuple[Any, ...]:
    return figure.model, figure.mode, figure.gpu, figure.gpus


def differences(theirs: Figure, ours: Figure) -> tuple[str, ...]:
    """The fields in which a ratio would compare two different things, each with both values. The model is the same."""
    return _differing(theirs, ours, _fields(ours))


def to_match(theirs: Figure, ours: Figure) -> str:
    """What [[workload]] would have to say for a cell of ours to be comparable to this published figure."""
    names = [
        name for name in _fields(ours) if getattr(theirs, name) != getattr(ours, name) or getattr(theirs, name) in ("", None)
    ]
    unknown = [_WORDS[name] for name in names if getattr(theirs, name) in ("", None)]
    if unknown:
        return f"no setting can: their source doesn't state {' and '.join(unknown)}"
    if theirs.framework != ours.framework:
        return f"no setting can: they ran {theirs.framework}"
    if theirs.precision not in PRECISIONS:
        return f"no setting can: {theirs.precision} is none of our precisions"
    return f"set {', '.join(_setting(name, getattr(theirs, name)) for name in names)}"


def _setting(name: str, value: Any) -> str:
    """A line of [[workload]]."""
    if name == "memory_format":
        return f"channels_last = {str(value == 'nhwc').lower()}"
    key = "batch" if name == "batch_per_gpu" else name
    return f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {str(value).lower()}"


def _fields(ours: Figure) -> tuple[str, ...]:
    """The fields in which two figures of one model must agree."""
    names = ("framework", "precision", "compile", "batch_per_gpu")
    return names + (("memory_format", "image_size") if ours.is_vision else ("sequence_length",))


def throughputs(pairs: Iterable[Beside]) -> dict[tuple[str, str, str], tuple[float, str]]:
    """By stack, workload and devices the first published throughput that a cell is comparable to, and whose it is."""
    found: dict[tuple[str, str, str], tuple[float, str]] = {}
    for pair in (pair for pair in pairs if not pair.differs):
        theirs, said = pair.theirs, f"{pair.theirs.vendor}: {pair.theirs.throughput:g} {pair.theirs.unit}"
        own = pair.ours.cell
        found.setdefault((own["stack"], own["workload"], own["devices"]), (theirs.throughput, said))
    return found


def _nearest(pairs: list[Beside]) -> list[Beside]:
    comparable = [pair for pair in pairs if not pair.differs]
    return comparable or sorted(pairs, key=lambda pair: len(pair.differs))[:1]


def _beside(theirs: Figure, own: Measured) -> Beside:
    differs, found = differences(theirs, own.figure), own.cell.estimate()
    over = Interval(
        value=found.value / theirs.throughput, low=found.low / theirs.throughput, high=found.high / theirs.throughput
    )
    low, high = around(theirs.throughput)
    return Beside(
        ours=own,
        theirs=theirs,
        differs=differs,
        besides=_differing(theirs, own.figure, ("data",)),
        to_match=to_match(theirs, own.figure) if differs else "",
        ratio=UNKNOWN if differs else over,
        low=low,
        high=high,
        verdict="not comparable" if differs else reproduction_verdict(found, low, high),
        doubts=_doubts().get((theirs.file, theirs.row), ()),
    )


@cache
def _doubts() -> dict[tuple[str, int], tuple[str, ...]]:
    """What the audit says of the published throughputs themselves, by file and row."""
    found: dict[tuple[str, int], tuple[str, ...]] = {}
    for file in dict.fromkeys(figure.file for figure in load_figures()):
        for finding in audit.check([figure for figure in load_figures() if figure.file == file]):
            if finding.field == "throughput":
                key = (file, finding.row)
                found[key] = (*found.get(key, ()), finding.reason)
    return found


def _differing(theirs: Figure, ours: Figure, names: Iterable[str]) -> tuple[str, ...]:
    pairs = [(name, getattr(theirs, name), getattr(ours, name)) for name in names]
    return tuple(f"{_WORDS[name]}: {_said(a)}, ours {_said(b)}" for name, a, b in pairs if a != b or a in ("", None))


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not stated" if value in ("", None) else str(value)
