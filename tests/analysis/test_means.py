"""The geometric mean of ratios with an interval over launches: its coverage, and what it refuses to say."""

import math
from random import Random

import pytest

from torchmatrix.analysis.intervals import Moments, moments
from torchmatrix.analysis.verdicts import Significance, mean_ratio


def cells(random: Random, count: int, launches: int, scatter: float = 0.02) -> dict[object, Moments | None]:
    return {n: moments([100.0 * math.exp(random.gauss(0.0, scatter)) for _ in range(launches)]) for n in range(count)}


def pairs_over_one(moments_by_cell: dict[object, Moments | None]) -> list[tuple[object, object, float]]:
    """Return the ratio of every other cell over the first."""
    centers = {cell: stats[0] for cell, stats in moments_by_cell.items() if stats}
    return [(cell, 0, math.exp(centers[cell] - centers[0])) for cell in moments_by_cell if cell]


@pytest.mark.parametrize("count", [2, 4, 11])
@pytest.mark.parametrize("launches", [3, 5])
def test_a_mean_of_equal_cells_is_called_faster_or_slower_as_seldom_as_its_level_says(count: int, launches: int) -> None:
    """All pairs share a baseline. Measured: 4 to 6 of 100; 8 with three launches and eleven cells."""
    random, wrong, tries = Random(count * launches), 0, 600
    for _ in range(tries):
        by_cell = cells(random, count, launches)
        interval = mean_ratio(pairs_over_one(by_cell), by_cell, Significance()).interval
        wrong += not interval.low <= 1 <= interval.high
    assert wrong / tries <= 0.09


def test_a_pair_s_mean_is_the_ratio_s_own_interval() -> None:
    from torchmatrix.analysis.pairs import pair

    a, b = [101.0, 103.0, 102.0], [90.0, 91.0, 92.0]
    by_cell: dict[object, Moments | None] = {"a": moments(a), "b": moments(b)}
    ratio = pair(a, b).interval
    mean = mean_ratio([("a", "b", ratio.value)], by_cell, Significance())
    assert mean.interval.low == pytest.approx(ratio.low) and mean.interval.high == pytest.approx(ratio.high)
    assert mean.verdict == "FASTER" and mean.n == 1


def test_one_launch_has_no_interval_and_no_verdict() -> None:
    mean = mean_ratio([("a", "b", 1.2)], {"a": None, "b": moments([1.0, 1.1])}, Significance())
    assert mean.interval.value == 1.2 and math.isnan(mean.interval.low) and mean.verdict == "n/a"
    with pytest.raises(ValueError, match="no ratio"):
        mean_ratio([], {}, Significance())


def test_a_cell_that_cancels_out_does_not_widen_the_interval() -> None:
    """a over b and b over a: the mean is 1 whatever the launches say."""
    by_cell: dict[object, Moments | None] = {"a": moments([1.0, 3.0]), "b": None}
    mean = mean_ratio([("a", "b", 2.0), ("b", "a", 0.5)], by_cell, Significance())
    assert mean.interval.value == pytest.approx(1.0) and mean.verdict == "SAME"
