"""The geometric mean of ratios with an interval over launches: its coverage, and what it refuses to say."""

import math
from random import Random

import pytest

from torchmatrix.analysis.intervals import Moments, moments
from torchmatrix.analysis.verdicts import Significance, mean_ratio


def cells(random: Random, count: int, launches: int, scatter: float = 0.02) -> dict[object, Moments | None]:
    return {n: moments([100.0 * math.exp(random.gauss(0.0, scatter)) for _ in range(launches)]) for n in range(count)}


def pairs_over_one(told: dict[object, Moments | None]) -> list[tuple[object, object, float]]:
    """Every other cell over the first."""
    centers = {cell: one[0] for cell, one in told.items() if one}
    return [(cell, 0, math.exp(centers[cell] - centers[0])) for cell in told if cell]


@pytest.mark.parametrize("count", [2, 4, 11])
@pytest.mark.parametrize("launches", [3, 5])
def test_a_mean_of_equal_cells_is_called_faster_or_slower_as_seldom_as_its_level_says(count: int, launches: int) -> None:
    """All pairs share a baseline. Measured: 4 to 6 of 100; 8 with three launches and eleven cells."""
    random, wrong, tries = Random(count * launches), 0, 600
    for _ in range(tries):
        told = cells(random, count, launches)
        found = mean_ratio(pairs_over_one(told), told, Significance()).interval
        wrong += not found.low <= 1 <= found.high
    assert wrong / tries <= 0.09


def test_a_pair_s_mean_is_the_ratio_s_own_interval() -> None:
    from torchmatrix.analysis.pairs import pair

    a, b = [101.0, 103.0, 102.0], [90.0, 91.0, 92.0]
    told: dict[object, Moments | None] = {"a": moments(a), "b": moments(b)}
    own = pair(a, b).interval
    found = mean_ratio([("a", "b", own.value)], told, Significance())
    assert found.interval.low == pytest.approx(own.low) and found.interval.high == pytest.approx(own.high)
    assert found.verdict == "FASTER" and found.n == 1


def test_one_launch_has_no_interval_and_no_verdict() -> None:
    found = mean_ratio([("a", "b", 1.2)], {"a": None, "b": moments([1.0, 1.1])}, Significance())
    assert found.interval.value == 1.2 and math.isnan(found.interval.low) and found.verdict == "n/a"
    with pytest.raises(ValueError, match="no ratio"):
        mean_ratio([], {}, Significance())


def test_a_cell_that_cancels_out_does_not_widen_the_interval() -> None:
    """a over b and b over a: the mean is 1 whatever the launches say."""
    told: dict[object, Moments | None] = {"a": moments([1.0, 3.0]), "b": None}
    found = mean_ratio([("a", "b", 2.0), ("b", "a", 0.5)], told, Significance())
    assert found.interval.value == pytest.approx(1.0) and found.verdict == "SAME"
