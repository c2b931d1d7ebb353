"""The best of several cells: which may be the highest, and by how much it is ahead.

Figures of cells with the same rounds are compared by their moments, all at once. A run that makes further rounds for some cells
only compares pair by pair, each by the rounds that both have, as the tables of ratios do.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from torchmatrix.analysis import intervals, verdicts
from torchmatrix.analysis.cells import Cell
from torchmatrix.analysis.pairs import UNTESTED, Chances, Pair


def may_be_best(
    figures: Sequence[Any],
    level: float = verdicts.FALSE_DISCOVERIES,
    moments: Callable[[Any], intervals.Moments | None] = Cell.moments,
    over: Callable[[Any, Any], Pair] = Cell.over,
) -> list[int]:
    """Return the places of the figures that may be the highest: see verdicts.may_be_best. They are those of cells, or have
    these `moments` and ratios `over` each other.

    By pairs, each of which has rounds of its own, several may be out in turn; where none is left, it is the highest.
    """
    known = list(map(moments, figures))
    if not _are_unequal(known):
        return verdicts.may_be_best(known, level)
    least = level / max(1, len(figures) - 1)
    every = list(enumerate(figures))
    left = [place for place, one in every if not any(_p_ahead(over(other, one)) <= least for at, other in every if at != place)]
    return left or [max(range(len(known)), key=lambda place: _height(known[place]))]


def chances_of_best(cells: Sequence[Cell[Any]]) -> Chances:
    """Return p-values of one claim: that the highest is above all others, and that all are the same as the highest: see
    verdicts.chances_of_best.
    """
    known = [cell.moments() for cell in cells]
    if not _are_unequal(known):
        return verdicts.chances_of_best(known)
    if len(cells) < 2 or None in known:
        return UNTESTED
    first, *others = sorted(cells, key=lambda cell: -_height(cell.moments()))
    alone = max(min(_p_ahead(better.over(other)) for better in cells if better is not other) for other in others)
    return Chances(differs=min(1.0, len(others) * alone), same=max(first.over(other).chances.same for other in others))


def over_the_others(first: Cell[Any], others: Sequence[Cell[Any]], level: float) -> intervals.Interval:
    """Return the ratio of the first to the best of the others, with Hsu's limits at 1 - `level` (verdicts.over_the_others)."""
    known = [cell.moments() for cell in (first, *others)]
    if not _are_unequal(known):
        return verdicts.over_the_others(known[0], known[1:], level)
    return verdicts.lowest_of([first.over(other) for other in others], level)


def _are_unequal(figures: Sequence[intervals.Moments | None]) -> bool:
    """Check whether they may have unequal rounds: only a run that looks more than once makes further ones for some cells."""
    return any(figure is not None and figure.looks > 1 for figure in figures)


def _height(figure: intervals.Moments | None) -> float:
    return -math.inf if figure is None else figure.log


def _p_ahead(pair: Pair) -> float:
    """Return the p-value of a figure that is noteworthily above another one; infinite for one that isn't, or isn't tested."""
    is_ahead = pair.log > max(pair.jump, math.log1p(intervals.NOTEWORTHY)) and not math.isnan(pair.chances.differs)
    return pair.chances.differs if is_ahead else math.inf
