"""Highest of several figures: which may be it, and how far it is ahead, corrected for picking the extreme."""

import math

import pytest

from torchmatrix.analysis.intervals import Interval, Moments, center_interval, moments
from torchmatrix.analysis.pairs import pair
from torchmatrix.analysis.verdicts import chances_of_best, may_be_best, of_picked, over_the_others

TIGHT, WIDE = (0.999, 1.0, 1.001), (0.97, 1.0, 1.03)


def stack(speed: float, scatter: tuple[float, ...] = TIGHT) -> Moments:
    return moments([100 * speed * factor for factor in scatter])


def test_who_is_far_behind_another_is_not_the_best() -> None:
    assert may_be_best([stack(1.0), stack(1.1), stack(1.3)]) == [2]
    assert may_be_best([stack(1.3, WIDE), stack(1.28, WIDE), stack(1.0, WIDE)]) == [0, 1]
    assert may_be_best([stack(1.0)]) == [0] and may_be_best([]) == []


def test_a_difference_below_one_per_cent_makes_nobody_the_best() -> None:
    assert may_be_best([stack(1.0), stack(1.008)]) == [0, 1] and may_be_best([stack(1.0), stack(1.012)]) == [1]


def test_of_more_candidates_the_best_must_be_further_ahead() -> None:
    p = pair([104 * f for f in WIDE], [94 * f for f in WIDE]).chances.differs
    assert 0.01 < p < 0.05
    two = [stack(1.04, WIDE), stack(0.94, WIDE)]
    assert may_be_best(two) == [0] and may_be_best([*two, *[stack(0.5)] * 5]) == [0, 1]
    assert may_be_best(two, level=0.9 * p) == [0, 1]


def test_one_launch_is_never_out_and_is_not_tested() -> None:
    assert may_be_best([stack(2.0), None]) == [0, 1] and math.isnan(chances_of_best([stack(2.0), None]).differs)
    assert math.isnan(over_the_others(stack(2.0), [None]).value)


@pytest.mark.parametrize("others", [[stack(0.95, WIDE)], [stack(0.95, WIDE), stack(0.9, WIDE), stack(0.5)]])
def test_the_chance_of_the_claim_is_the_level_from_which_it_is_made(others: list[Moments]) -> None:
    every = [stack(1.0, WIDE), *others]
    p = chances_of_best(every).differs
    assert len(may_be_best(every, 1.01 * p)) == 1 < len(may_be_best(every, 0.99 * p))


def test_of_two_it_is_the_comparison_of_two() -> None:
    above, below = [103.0, 105.0, 107.0], [98.0, 100.0, 102.0]
    assert chances_of_best([moments(above), moments(below)]) == pair(above, below).chances
    interval, wanted = over_the_others(moments(above), [moments(below)]), pair(above, below).interval
    assert (interval.value, interval.low, interval.high) == pytest.approx((wanted.value, wanted.low, wanted.high))


def test_the_lead_of_the_best_has_the_limits_of_all_others() -> None:
    """The next is 4 % behind; a third, known badly, might be as near."""
    lead = over_the_others(stack(1.04), [stack(1.0), stack(0.99, (0.9, 1.0, 1.1))])
    alone = over_the_others(stack(1.04), [stack(1.0)])
    assert lead.value == pytest.approx(1.04) and lead.low < 0.9 < 1.03 < alone.low < lead.value < lead.high < 1.05


def test_the_interval_of_what_was_picked_is_that_of_a_higher_level() -> None:
    values = [99.0, 100.0, 101.0, 102.0]
    plain = center_interval(values)
    assert of_picked(plain, 3, 1) == plain
    picked = of_picked(plain, 3, 5)
    t_at_99, t_at_95 = 5.8409, 3.1824
    assert (picked.high - picked.value) / (plain.high - plain.value) == pytest.approx(t_at_99 / t_at_95, rel=1e-4)
    unbounded = Interval(value=1.0, low=math.nan, high=math.nan)
    assert of_picked(unbounded, 0, 5) is unbounded
    wide = center_interval([10.0, 14.0])
    assert wide.low == of_picked(wide, 1, 3).low == 0.0 and of_picked(wide, 1, 3).high > wide.high
