"""The best of several cells: which may be the highest, and by how much it is ahead.

Figures of cells with the same rounds are compared by their moments, all at once. A run that makes further rounds for some cells
only compares pair by pair, each by the rounds that both have, as the tables of ratios do.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from torchmatrix.analysis import intervals, verdicts
from torchmatrix.analysis.cells import Cell
from torchmatrix.analysis.pairs import UNTESTED, Chances

Cells: TypeAlias = Sequence[Cell[Any]]


def may_be_best(cells: Cells, level: float = verdicts.FALSE_DISCOVERIES) -> list[int]:
    """Return the places of the cells that may be the highest: see verdicts.may_be_best.

    By pairs, each of which has rounds of its own, several may be out in turn; where none is left, it is the highest.
    """
    if not _are_unequal(cells):
        return verdicts.may_be_best([cell.moments() for cell in cells], level)
    least = level / max(1, len(cells) - 1)
    left = [place for place, cell in enumerate(cells) if not any(_p_ahead(other, cell) <= least for other in cells)]
    return left or [cells.index(_highest_first(cells)[0])]


def chances_of_best(cells: Cells) -> Chances:
    """Return p-values of one claim: that the highest is above all others, and that all are the same as the highest: see
    verdicts.chances_of_best.
    """
    if not _are_unequal(cells):
        return verdicts.chances_of_best([cell.moments() for cell in cells])
    if len(cells) < 2 or not all(cell.moments() for cell in cells):
        return UNTESTED
    first, *others = _highest_first(cells)
    alone = max(min(_p_ahead(better, other) for better in cells) for other in others)
    return Chances(differs=min(1.0, len(others) * alone), same=max(first.over(other).chances.same for other in others))


def over_the_others(first: Cell[Any], others: Cells, level: float) -> intervals.Interval:
    """Return the ratio of the first to the best of the others, with Hsu's limits at 1 - `level` (verdicts.over_the_others)."""
    if not _are_unequal([first, *others]):
        return verdicts.over_the_others(first.moments(), [other.moments() for other in others], level)
    return verdicts.lowest_of([first.over(other) for other in others], level)


def _are_unequal(cells: Cells) -> bool:
    return any(cell.row.further for cell in cells if cell.launches)


def _highest_first(cells: Cells) -> list[Cell[Any]]:
    return sorted(cells, key=lambda cell: -(moments.log if (moments := cell.moments()) else -math.inf))


def _p_ahead(cell: Cell[Any], other: Cell[Any]) -> float:
    """Return the p-value of a cell that is noteworthily above another one; infinite for one that isn't, or isn't tested."""
    pair = cell.over(other)
    is_ahead = pair.log > max(pair.jump, math.log1p(intervals.NOTEWORTHY)) and not math.isnan(pair.chances.differs)
    return pair.chances.differs if is_ahead else math.inf
