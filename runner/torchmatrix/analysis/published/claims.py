"""Claims that articles make in words (reports/published/*_claims.csv): scale factors, speed-ups and their means as ranges,
compared with ours."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from torchmatrix.analysis.intervals import UNKNOWN, Interval, around, geometric_mean, reproduction_verdict
from torchmatrix.analysis.published import Figure, Measured, audit, figure_files
from torchmatrix.analysis.rows import group_by
from torchmatrix.core import assets
from torchmatrix.core.errors import BadInput
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.factors import PRECISIONS
from torchmatrix.matrix.matrix_file import Preset

FILES = "_claims"
"""The ending of the names of these files; the others of reports/published hold throughputs."""
_ALL_PRECISIONS = (*PRECISIONS, *figure_files.OTHER_PRECISIONS)
_SAME_WORK = (
    "model", "mode", "precision", "memory_format", "compile", "batch_per_gpu", "image_size", "sequence_length", "gpu", "gpus",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A row of a claims file: `quantity` scale-factor, speed-up, mean-speed-up or ratio, from `low` to `high` (infinite: "more
    than").

    `models` (names, or globs that match them), `precisions`, `gpus`: what it is about; empty if not said. `count`: of GPUs, or
    at least so many (`and_more`). `suite`: over how many models a mean is; `weights`: of its precisions, if it is over several.
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
    suite: int = 0
    weights: tuple[float, ...] = ()

    def is_about(self, figure: Figure) -> bool:
        """Check whether a figure is training (all that the articles measure) on a GPU that we know, of the claim's number,
        models and GPU models."""
        counts = figure.gpus == self.count or (self.and_more and (figure.gpus or 0) > self.count)
        named = self.names(figure.model) and (not self.gpus or figure.gpu in self.gpus)
        return counts and named and figure.mode == "train" and bool(figure.gpu)

    def names(self, model: str) -> bool:
        """Check whether it is about a model; it is about all if it names none."""
        return not self.models or any(fnmatchcase(model, name) for name in self.models)


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
    """Return all claims, file by file."""
    rows = [figure_files.rows_of(path) for path in sorted(assets.PUBLISHED.glob(f"*{FILES}.csv"))]
    return tuple(_claim(row) for numbered in rows for row in numbered.values())


def is_wanted(claim: Claim, articles: Sequence[str] | None, measured: Iterable[Measured]) -> bool:
    """Check whether a claim is of `articles`; if None, whether it names both a model and a GPU model of the run, and is no mean
    over a suite."""
    if articles is not None:
        return claim.source in articles
    if claim.suite:
        return False
    return any(cell.figure.model in claim.models and cell.figure.gpu in claim.gpus for cell in measured)


def evidence(claim: Claim, measured: Sequence[Measured], scales: Iterable[Mapping[str, Any]]) -> list[Tested]:
    """Return all that we measured of this claim: comparable cells; else the others, and how they differ; else why there are
    none."""
    if claim.quantity == "ratio":
        return [_untested(claim, "it compares GPU models; one run has only one")]
    speed_ups = _means if claim.quantity == "mean-speed-up" else _speed_ups
    tests = list(_scale_factors(claim, measured, scales) if claim.quantity == "scale-factor" else speed_ups(claim, measured))
    comparable = [tested for tested in tests if not tested.differs]
    return comparable or tests or [_untested(claim, _why_not_measured(claim, measured))]


def accepted(claim: Claim) -> tuple[float, float]:
    """Return the range that counts as reproduced: a claimed range as it is, a little more than a single figure."""
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
        suite=int(row.get("suite") or 0),
        weights=tuple(map(float, several("weights"))) if row.get("weights") else (),
    )


def _scale_factors(claim: Claim, measured: Sequence[Measured], scales: Iterable[Mapping[str, Any]]) -> Iterator[Tested]:
    rows = {row["cell"]: row for row in scales if not math.isnan(row["s"])}
    for cell in measured:
        row = rows.get(cell.figure.cell)
        if row and claim.is_about(cell.figure):
            ours = Interval(value=row["s"], low=row["s_low"], high=row["s_high"])
            impossible = (f"efficiency: {row['E']:.3f}, which is impossible",) if row["impossible"] else ()
            yield _tested(claim, _name(cell), ours, _other_precision(claim, cell) + impossible)


def _speed_ups(claim: Claim, measured: Sequence[Measured]) -> Iterator[Tested]:
    """Yield ratios of cells that differ in what the claim is about, and in nothing else of the workload."""
    for cell in measured:
        for base in measured:
            if claim.is_about(cell.figure) and _is_baseline(claim.against, cell, base):
                differs = _other_precision(claim, cell) + _other_baseline(claim, base)
                what = f"{_name(cell)} over {base.cell.row.stack}, {base.cell.row.workload}"
                yield _tested(claim, what, cell.cell.over(base.cell).interval, differs)


def _means(claim: Claim, measured: Sequence[Measured]) -> Iterator[Tested]:
    """Yield for each stack the geometric mean over models of their speed-ups; of several precisions, the weighted mean of
    theirs. It has no limits: see geometric_mean."""
    for stack, cells in group_by(measured, lambda cell: cell.cell.row.stack).items():
        ratios = [_ratios(claim, precision, cells) for precision in claim.precisions]
        if not all(ratios):
            continue
        weights = claim.weights or (1.0,) * len(ratios)
        means = [geometric_mean(list(of_model.values())).value for of_model in ratios]
        ours = sum(weight * mean for weight, mean in zip(weights, means, strict=True)) / sum(weights)
        models = len(set.intersection(*map(set, ratios)))
        differs = () if models == claim.suite else (f"models: {claim.suite}, ours {models}",)
        yield _tested(claim, f"{stack}, {models} models in {' and '.join(claim.precisions)}", Interval(value=ours), differs)


def _ratios(claim: Claim, precision: str, cells: Sequence[Measured]) -> dict[str, float]:
    """Return the speed-up of each model in one precision."""
    return {
        cell.figure.model: cell.cell.over(base.cell).interval.value
        for cell in cells
        for base in cells
        if cell.figure.precision == precision and claim.is_about(cell.figure) and _is_baseline(claim.against, cell, base)
    }


def _is_baseline(against: str, cell: Measured, base: Measured) -> bool:
    """Check whether `base` is what a claim of this kind compares `cell` with."""
    a, b = cell.figure, base.figure
    if against == "without compile":
        return bool(a.compile and not b.compile) and _agree(cell, base, "stack") and _is_same_work(cell, base, "compile")
    if against == "PyTorch 1 without compile":
        versions = a.torch.split(".")[0], b.torch.split(".")[0]
        return bool(a.compile and not b.compile) and versions == ("2", "1") and _is_same_work(cell, base, "compile")
    if against in _ALL_PRECISIONS:
        halves = a.precision == "amp" and b.precision in ("fp32", "tf32")
        return halves and _agree(cell, base, "stack") and _is_same_work(cell, base, "precision")
    return False


def _is_same_work(cell: Measured, base: Measured, except_for: str) -> bool:
    names = [name for name in _SAME_WORK if name != except_for]
    same = all(getattr(cell.figure, name) == getattr(base.figure, name) for name in names)
    return same and _agree(cell, base, "devices", "attention")


def _agree(cell: Measured, base: Measured, *names: str) -> bool:
    return all(cell.cell.row.value(name) == base.cell.row.value(name) for name in names)


def _other_precision(claim: Claim, cell: Measured) -> tuple[str, ...]:
    if not claim.precisions or cell.figure.precision in claim.precisions:
        return ()
    return (f"precision: {' or '.join(claim.precisions)}, ours {cell.figure.precision}",)


def _other_baseline(claim: Claim, base: Measured) -> tuple[str, ...]:
    if claim.against not in _ALL_PRECISIONS or claim.against == base.figure.precision:
        return ()
    return (f"baseline: {claim.against}, ours {base.figure.precision}",)


def _tested(claim: Claim, what: str, ours: Interval, differs: tuple[str, ...]) -> Tested:
    low, high = accepted(claim)
    verdict = "not comparable" if differs else reproduction_verdict(ours, low, high)
    return Tested(claim=claim, what=what, ours=ours, low=low, high=high, differs=differs, verdict=verdict)


def _untested(claim: Claim, why: str) -> Tested:
    low, high = accepted(claim)
    return Tested(claim=claim, what="", ours=UNKNOWN, low=low, high=high, differs=(why,), verdict="not measured")


def _why_not_measured(claim: Claim, measured: Sequence[Measured]) -> str:
    for noun, named, is_there in (
        ("GPU model", claim.gpus, any(m.figure.gpu in claim.gpus for m in measured)),
        ("model", claim.models, any(claim.names(m.figure.model) for m in measured)),
    ):
        if named and not is_there:
            return f"no cell of its {noun}{'s' if len(named) > 1 else ''}: {', '.join(named)}"
    if not any(claim.is_about(m.figure) for m in measured):
        return f"no cell of them on {claim.count}{' or more' if claim.and_more else ''} GPUs"
    return f"the baseline isn't measured: {claim.against}"


def _name(cell: Measured) -> str:
    return ", ".join(cell.cell.row.value(name) for name in ("stack", "workload", "devices"))


# Compare our figures with published ones (reports/published): which are comparable, how others differ, and the verdicts.
#
# Nothing is assumed: what a source doesn't state differs from ours. Rules and terms are defined in glossary.py.

_WORDS = {
    "framework": "framework", "precision": "precision", "memory_format": "memory format", "compile": "compile",
    "batch_per_gpu": "batch per GPU", "image_size": "image size", "sequence_length": "sequence length", "data": "data",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """A throughput of ours and a published one. `differs`: why they are not comparable; `besides`: what else differs.

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
    """The section of a report: throughputs (comparable ones first), claims, and the preset that the matrix repeats."""

    preset: Preset | None
    throughputs: tuple[Beside, ...]
    left_out: int
    claims: tuple[Tested, ...]


@cache
def load_figures() -> tuple[Figure, ...]:
    """Return all published throughputs, file by file."""
    paths = [path for path in sorted(assets.PUBLISHED.glob("*.csv")) if path.stem != "gpus" and not path.stem.endswith(FILES)]
    return tuple(figure for path in paths for figure in figure_files.read(path))


def preset_of(text: str) -> Preset | None:
    """Return the preset that a run's recorded matrix repeats; None also if this version can no longer read that matrix."""
    try:
        return matrix_file.parse(text).preset
    except BadInput:
        return None


def section(preset: Preset | None, measured: Sequence[Measured], scales: Sequence[Mapping[str, Any]]) -> Section | None:
    """Return everything that relates a run to published figures, or None. `scales`: the rows of scaling.scaling_table.

    If no cell is comparable to a published figure, the cell that differs in the fewest fields stands for all.
    """
    pairs, left_out = paired(measured)
    wanted = [claim for claim in load_claims() if is_wanted(claim, preset.article if preset else None, measured)]
    tested = tuple(test for claim in wanted for test in evidence(claim, measured, scales))
    if preset is None and not pairs and not tested:
        return None
    named = preset.claims if preset else ()
    pairs.sort(key=lambda pair: (bool(pair.differs), pair.theirs.file not in named))
    return Section(preset=preset, throughputs=tuple(pairs), left_out=left_out, claims=tested)


def paired(measured: Iterable[Measured]) -> tuple[list[Beside], int]:
    """Return for each published figure the comparable cells, else the nearest one; and how many further pairs there are."""
    pairs = _pairs(measured)
    chosen = [pair for group in pairs for pair in _nearest(group)]
    return chosen, sum(map(len, pairs)) - len(chosen)


def _pairs(measured: Iterable[Measured]) -> list[list[Beside]]:
    """Return the cells to compare with each published figure."""
    by_kind = group_by(measured, lambda cell: _match_key(cell.figure))
    return [beside(theirs, by_kind.get(_match_key(theirs), ())) for theirs in load_figures()]


def beside(theirs: Figure, measured: Iterable[Measured]) -> list[Beside]:
    """Compare a published figure with every cell of the same model, mode, GPU model and number of GPUs."""
    if not (theirs.model and theirs.gpu and theirs.gpus):
        return []
    return [_beside(theirs, cell) for cell in measured if _match_key(theirs) == _match_key(cell.figure)]


def _match_key(figure: Figure) -> tuple[Any, ...]:
    return figure.model, figure.mode, figure.gpu, figure.gpus


def differences(theirs: Figure, ours: Figure) -> tuple[str, ...]:
    """Return the fields in which a ratio would compare two different things, each with both values. The model is the same."""
    return _differing_texts(theirs, ours, _fields(ours))


def to_match(theirs: Figure, ours: Figure) -> str:
    """Return what [[workload]] would have to say for a cell of ours to be comparable to this published figure."""
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
    """Return a line of [[workload]]."""
    if name == "memory_format":
        return f"channels_last = {str(value == 'nhwc').lower()}"
    key = "batch" if name == "batch_per_gpu" else name
    return f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {str(value).lower()}"


def _fields(ours: Figure) -> tuple[str, ...]:
    """Return the fields in which two figures of one model must agree."""
    names = ("framework", "precision", "compile", "batch_per_gpu")
    return names + (("memory_format", "image_size") if ours.is_vision else ("sequence_length",))


def throughputs(pairs: Iterable[Beside]) -> dict[tuple[str, str, str], tuple[float, str]]:
    """Return by stack, workload and devices the first comparable published throughput, with its vendor."""
    by_cell: dict[tuple[str, str, str], tuple[float, str]] = {}
    for pair in (pair for pair in pairs if not pair.differs):
        theirs, label = pair.theirs, f"{pair.theirs.vendor}: {pair.theirs.throughput:g} {pair.theirs.unit}"
        cell = pair.ours.cell
        by_cell.setdefault((cell.row.stack, cell.row.workload, cell.row.devices), (theirs.throughput, label))
    return by_cell


def _nearest(pairs: list[Beside]) -> list[Beside]:
    comparable = [pair for pair in pairs if not pair.differs]
    return comparable or sorted(pairs, key=lambda pair: len(pair.differs))[:1]


def _beside(theirs: Figure, cell: Measured) -> Beside:
    differs, estimate = differences(theirs, cell.figure), cell.cell.estimate()
    over = Interval(
        value=estimate.value / theirs.throughput, low=estimate.low / theirs.throughput, high=estimate.high / theirs.throughput
    )
    low, high = around(theirs.throughput)
    return Beside(
        ours=cell,
        theirs=theirs,
        differs=differs,
        besides=_differing_texts(theirs, cell.figure, ("data",)),
        to_match=to_match(theirs, cell.figure) if differs else "",
        ratio=UNKNOWN if differs else over,
        low=low,
        high=high,
        verdict="not comparable" if differs else reproduction_verdict(estimate, low, high),
        doubts=_doubts().get((theirs.file, theirs.row), ()),
    )


@cache
def _doubts() -> dict[tuple[str, int], tuple[str, ...]]:
    """Return what the audit finds in the published throughputs themselves, by file and row."""
    reasons: dict[tuple[str, int], tuple[str, ...]] = {}
    for file in dict.fromkeys(figure.file for figure in load_figures()):
        for finding in audit.check([figure for figure in load_figures() if figure.file == file]):
            if finding.field == "throughput":
                key = (file, finding.row)
                reasons[key] = (*reasons.get(key, ()), finding.reason)
    return reasons


def _differing_texts(theirs: Figure, ours: Figure, names: Iterable[str]) -> tuple[str, ...]:
    pairs = [(name, getattr(theirs, name), getattr(ours, name)) for name in names]
    return tuple(
        f"{_WORDS[name]}: {_value_text(a)}, ours {_value_text(b)}" for name, a, b in pairs if a != b or a in ("", None)
    )


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not stated" if value in ("", None) else str(value)
