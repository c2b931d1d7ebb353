"""The figure of one GPU model's machines over that of another's: the ratio, its interval, and the tests that it stands for."""

import math
from collections.abc import Sequence

from torchmatrix.analysis import verdicts
from torchmatrix.analysis.fleet_cells import FleetCell
from torchmatrix.analysis.intervals import Interval, error_over_sum, ratio, ratio_to_sum
from torchmatrix.analysis.verdicts import UNTESTED, Chances

LAUNCHES, MACHINES = "launches", "machines"
"""What an interval is over: the launches of these very machines, or machines of this GPU model."""


def over_baseline(own: Sequence[FleetCell], base: Sequence[FleetCell]) -> tuple[Interval, str, Chances]:
    """The ratio, what its interval is over, and the tests that the interval stands for.

    Both sides with several machines: over their figures (Welch). Otherwise over launches: the mean of the machines' figures
    with the launches' errors only, which says nothing of further machines. One of several baseline machines has no interval,
    since it is on both sides.
    """
    statistic = own[0].row["statistic"]
    shared = {id(cell) for cell in own} & {id(cell) for cell in base}
    if len(shared) == len(own) == len(base):
        return Interval(value=1.0, low=1.0, high=1.0), "", UNTESTED
    if shared:
        return Interval(value=own[0].value / _mean(base), low=math.nan, high=math.nan), "", UNTESTED
    if len(own) > 1 and len(base) > 1:
        above, below = ([cell.value for cell in side] for side in (own, base))
        return ratio(above, below, "mean"), MACHINES, verdicts.chances(above, below, statistic="mean")
    if len(base) > 1:
        found, chances = _over_mean(own[0], base, statistic)
        return found, LAUNCHES, chances
    if len(own) > 1:
        found, chances = _over_mean(base[0], own, statistic)
        return Interval(value=1 / found.value, low=1 / found.high, high=1 / found.low), LAUNCHES, chances
    sides = own[0].samples, base[0].samples
    return ratio(*sides, statistic), LAUNCHES, verdicts.chances(*sides, statistic=statistic)


def _over_mean(one: FleetCell, several: Sequence[FleetCell], statistic: str) -> tuple[Interval, Chances]:
    """One machine's figure over the mean of several machines' figures."""
    samples = [cell.samples for cell in several]
    found = _scaled(ratio_to_sum(one.samples, samples, statistic), len(several))
    if math.isnan(found.low):
        return found, UNTESTED
    error, freedom = error_over_sum(one.samples, samples, statistic)
    return found, verdicts.chances_of(math.log(found.value), error, freedom)


def _mean(cells: Sequence[FleetCell]) -> float:
    return sum(cell.value for cell in cells) / len(cells)


def _scaled(found: Interval, factor: float) -> Interval:
    return Interval(value=found.value * factor, low=found.low * factor, high=found.high * factor)
