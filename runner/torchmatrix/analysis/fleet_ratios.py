"""The figure of one GPU model's machines over that of another's."""

from collections.abc import Sequence

from torchmatrix.analysis.cells import Cell
from torchmatrix.analysis.pairs import ITSELF, Pair, pair, pair_over_sum

LAUNCHES, MACHINES = "launches", "machines"
"""What an interval is over: the launches of these very machines, or machines of this GPU model."""


def over_baseline(own: Sequence[Cell], base: Sequence[Cell]) -> tuple[Pair, str]:
    """The ratio, and what its interval is over; "" where it needs none.

    Both sides with several machines: over their figures (Welch). Otherwise over launches: the mean of the machines' figures
    with the launches' errors only, which says nothing of further machines. One of several baseline machines has no interval,
    since it is on both sides.
    """
    shared = {id(cell) for cell in own} & {id(cell) for cell in base}
    if len(shared) == len(own) == len(base):
        return ITSELF, ""
    if shared:
        return Pair(value=own[0].estimate().value / _mean(base)), ""
    if len(own) > 1 and len(base) > 1:
        above, below = ([cell.estimate().value for cell in side] for side in (own, base))
        return pair(above, below), MACHINES
    if len(base) > 1:
        return _over_mean(own[0], base), LAUNCHES
    if len(own) > 1:
        return _over_mean(base[0], own).inverse, LAUNCHES
    return own[0].over(base[0]), LAUNCHES


def _over_mean(one: Cell, several: Sequence[Cell]) -> Pair:
    """One machine's figure over the mean of several machines' figures."""
    above, parts = one.moments(), [cell.moments() for cell in several]
    if above and all(parts):
        return pair_over_sum(above, [part for part in parts if part]).scaled(len(several))
    return Pair(value=one.estimate().value / _mean(several))


def _mean(cells: Sequence[Cell]) -> float:
    return sum(cell.estimate().value for cell in cells) / len(cells)
