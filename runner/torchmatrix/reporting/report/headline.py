"""The answers that a page begins with: which stack is fastest, on one and on all devices, how well it scales, what failed."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchmatrix.analysis.prices import NONE
from torchmatrix.facts.launch import UNLIKE
from torchmatrix.ground.numbers import figure
from torchmatrix.ground.texts import count
from torchmatrix.reporting import words
from torchmatrix.reporting.explorers import bars, lines
from torchmatrix.reporting.explorers.choosing import Dim, Question, Row, choose
from torchmatrix.reporting.explorers.data import Data, data_of
from torchmatrix.reporting.explorers.saying import corrected, limits, where
from torchmatrix.reporting.report.view import View

RULE = (
    "Picked by a rule that does not look at the results: the model that most stacks measured (the first of them in the "
    "matrix), the most devices, AMP where it was measured, and otherwise the setting that most stacks measured."
)
_QUESTION = Question(name="headline", panels=(), whole={"gpu": 99, "machine": 99, "stack": 99})


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """`answers`: sentences with figures and intervals. `rule`: what picked their cells; "" if none was measured."""

    answers: tuple[str, ...]
    rule: str


def headline(view: View, data: Data | None = None) -> Headline:
    """Of one run; `data`: of its explorers, if they are at hand."""
    found = fastest(data or data_of(view.table, view.cells, view.scaling, view.ratios, NONE))
    said = found.answers or ("No cell was measured; the reasons are below.",)
    return Headline(answers=(*said, state(view)), rule=found.rule)


def fastest(data: Data) -> Headline:
    """Of the cells of one machine or of several: who is fastest at what the rule picks, and how well that scales."""
    chosen = choose(data.dims, _QUESTION, data.rows, {}).rows
    measured = [row for row in chosen if row["n"]]
    if not measured:
        return Headline(answers=(), rule="")
    first = max(measured, key=lambda row: row["rate"])
    said = [f"{bars.sentence(data.dims, data.metrics[0], chosen, data.significance)}.", *_scaling(data.dims, first, data.rows)]
    return Headline(answers=tuple(said), rule=f"{RULE} {corrected(data.significance)}".strip())


def _scaling(dims: Sequence[Dim], row: Row, rows: Sequence[Row]) -> list[str]:
    """What one device does of the same, and how much more the others give."""
    same = [dim.name for dim in dims if dim.name not in ("devices", "set")]
    alike = (other for other in rows if other["N"] == 1 and other["n"] and all(other[name] == row[name] for name in same))
    if row["S"] is None or (one := next(alike, None)) is None:
        return []
    within = limits(one["low"], one["high"]) or "one launch: no interval"
    alone = f"{where(dims, one)} alone: {figure(one['rate'])} {one['unit']}/s ({within})"
    if row["impossible"]:
        return [f"{alone}; E = {words.times(row['S'] / row['N'])} on {row['N']} is impossible: look for a wrong baseline."]
    return [f"{alone}; {row['N']} give {lines.gain(row)} as much {lines.factors(row, row)}{lines.tested([row])}."]


def state(view: View) -> str:
    """How many cells were measured, what failed, was skipped, or is still to come."""
    ok, planned = int((view.cells["n"] > 0).sum()) if len(view.cells) else 0, len(view.record.planned)
    every = int((view.every_cell["n"] > 0).sum()) if len(view.every_cell) else ok
    failed = [row["outcome"] for row in view.digest.launches if row["outcome"] not in ("ok", UNLIKE)]
    left_out = sum(row["outcome"] == UNLIKE for row in view.digest.launches)
    parts = [f"{every} of {count(planned, 'cell')} measured"]
    parts += [f"launches that failed: {words.counted(failed)}"] if failed else []
    parts += [f"launches left out, unlike the others of their cell: {left_out}"] if left_out else []
    parts += [f"{count(len(view.record.skips), 'cell')} skipped"] if view.record.skips else []
    parts += [f"{count(len(view.pending), 'cell')} still to be launched"] if view.pending else []
    return f"{'; '.join(parts)}."
