"""Our figures beside published ones (reports/published): which are comparable, in what others differ, and the verdicts.

A figure is unknown, never assumed: what its source doesn't say differs from ours. Rules and words are in glossary.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from torchmatrix.analysis.intervals import UNKNOWN, Interval, around, reproduction_verdict
from torchmatrix.analysis.published import audit, claims, figures
from torchmatrix.analysis.published.claims import Tested
from torchmatrix.analysis.published.figures import Figure, Measured
from torchmatrix.ground import assets
from torchmatrix.ground.errors import BadInput
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.matrix_file import Preset

_WORDS = {
    "framework": "framework", "precision": "precision", "memory_format": "memory format", "compile": "compile",
    "batch_per_gpu": "batch per GPU", "image_size": "image size", "sequence_length": "sequence length", "data": "data",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """A throughput of ours beside a published one. `differs`: why they are not comparable; `besides`: what else differs.

    `ratio`: ours over theirs, NaN if they are not comparable. `low` to `high`, in items per second, counts as reproduced.
    `doubts`: what the audit finds in the published figure.
    """

    ours: Measured
    theirs: Figure
    differs: tuple[str, ...]
    besides: tuple[str, ...]
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
    return tuple(figure for path in paths for figure in figures.read(path))


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
    pairs = [beside(theirs, measured) for theirs in load()]
    found = [pair for these in pairs for pair in _nearest(these)]
    wanted = [claim for claim in claims.load() if claims.is_wanted(claim, preset.article if preset else None, measured)]
    tested = tuple(one for claim in wanted for one in claims.evidence(claim, measured, scales))
    if preset is None and not found and not tested:
        return None
    own = preset.claims if preset else ()
    found.sort(key=lambda pair: (bool(pair.differs), pair.theirs.file not in own))
    return Section(preset=preset, throughputs=tuple(found), left_out=sum(map(len, pairs)) - len(found), claims=tested)


def beside(theirs: Figure, measured: Iterable[Measured]) -> list[Beside]:
    """Every cell of the same model, mode, GPU model and number of GPUs beside this published figure."""
    if not (theirs.model and theirs.gpu and theirs.gpus):
        return []
    names = ("model", "mode", "gpu", "gpus")
    return [_beside(theirs, own) for own in measured if all(getattr(theirs, n) == getattr(own.figure, n) for n in names)]


def differences(theirs: Figure, ours: Figure) -> tuple[str, ...]:
    """The fields in which a ratio would compare two different things, each with both values. The model is the same."""
    names = ("framework", "precision", "compile", "batch_per_gpu")
    return _differing(theirs, ours, names + (("memory_format", "image_size") if ours.is_vision else ("sequence_length",)))


def _nearest(pairs: list[Beside]) -> list[Beside]:
    comparable = [pair for pair in pairs if not pair.differs]
    return comparable or sorted(pairs, key=lambda pair: len(pair.differs))[:1]


def _beside(theirs: Figure, own: Measured) -> Beside:
    differs, found = differences(theirs, own.figure), own.interval
    over = Interval(
        value=found.value / theirs.throughput, low=found.low / theirs.throughput, high=found.high / theirs.throughput
    )
    low, high = around(theirs.throughput)
    return Beside(
        ours=own,
        theirs=theirs,
        differs=differs,
        besides=_differing(theirs, own.figure, ("data",)),
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
