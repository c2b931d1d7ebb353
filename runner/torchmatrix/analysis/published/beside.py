"""Our figures beside published ones (reports/published): which are comparable, in what others differ, and the verdicts.

A figure is unknown, never assumed: what its source doesn't say differs from ours. Rules and words are in glossary.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from torchmatrix.analysis.intervals import UNKNOWN, Interval, around, reproduction_verdict
from torchmatrix.analysis.published import audit, claims, figure_files
from torchmatrix.analysis.published.claims import Tested
from torchmatrix.analysis.published.figures import Figure, Measured
from torchmatrix.ground import assets
from torchmatrix.ground.errors import BadInput
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.factors import PRECISIONS
from torchmatrix.matrix.matrix_file import Preset

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
def load() -> tuple[Figure, ...]:
    """All published throughputs, file by file."""
    paths = [
        path for path in sorted(assets.PUBLISHED.glob("*.csv")) if path.stem != "gpus" and not path.stem.endswith(claims.FILES)
    ]
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
    wanted = [claim for claim in claims.load() if claims.is_wanted(claim, preset.article if preset else None, measured)]
    tested = tuple(one for claim in wanted for one in claims.evidence(claim, measured, scales))
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
    return [beside(theirs, alike.get(_kind(theirs), ())) for theirs in load()]


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
    for file in dict.fromkeys(figure.file for figure in load()):
        for finding in audit.check([figure for figure in load() if figure.file == file]):
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
