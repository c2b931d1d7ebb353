"""Verdicts on several ratios: what Benjamini and Hochberg's correction leaves of them."""

import math

import pytest

from torchmatrix.analysis.intervals import UNKNOWN, Interval, difference_verdict, paired_ratio, ratio
from torchmatrix.analysis.verdicts import (
    UNTESTED,
    Chances,
    adjusted,
    chances,
    judged,
    needed_confidence,
    p_above,
    significance_of,
    surviving,
    verdict_at,
)

CLEAR = Interval(value=1.05, low=1.01, high=1.09)


def test_p_values_are_adjusted_as_benjamini_and_hochberg_do_it() -> None:
    """The example of their paper (1995): of 15 p-values 4 are below 5 % after the correction, 9 before."""
    paper = [
        0.0001,
        0.0004,
        0.0019,
        0.0095,
        0.0201,
        0.0278,
        0.0298,
        0.0344,
        0.0459,
        0.3240,
        0.4262,
        0.5719,
        0.6528,
        0.7590,
        1.0,
    ]
    found = adjusted(paper)
    assert sum(p <= 0.05 for p in paper) == 9 and sum(p <= 0.05 for p in found) == 4
    assert found[:4] == pytest.approx([0.0015, 0.003, 0.0095, 0.035625]) and found[-1] == 1.0
    assert adjusted(list(reversed(paper))) == pytest.approx(list(reversed(found)))


def test_what_was_not_tested_stays_unknown_and_does_not_count() -> None:
    found = adjusted([0.02, math.nan, 0.04])
    assert found[0] == pytest.approx(0.04) and math.isnan(found[1]) and found[2] == pytest.approx(0.04)
    assert adjusted([]) == []


SAMPLES = [
    ([100.0, 101.0, 102.0], [100.0, 100.5, 101.5]),
    ([103.0, 105.0, 107.0], [98.0, 100.0, 102.0]),
    ([100.0, 100.1, 100.2], [100.1, 100.0, 100.3]),
    ([100.0, 100.0], [100.0, 100.0]),
    ([103.0, 103.0], [100.0, 100.0]),
]


@pytest.mark.parametrize(("above", "below"), SAMPLES)
@pytest.mark.parametrize("paired", [False, True])
def test_one_comparison_has_the_verdict_of_its_interval(above: list[float], below: list[float], paired: bool) -> None:
    if paired:
        above, below = above * 2, below * 2
    found, test = (paired_ratio if paired else ratio)(above, below), chances(above, below, paired)
    assert (test.differs < 0.05) == (found.low > 1 or found.high < 1)
    assert (test.same < 0.025) == (found.low > 0.98 and found.high < 1.02)
    assert judged([found], [test])[0].verdict == difference_verdict(found)


def test_too_few_launches_are_no_test() -> None:
    assert math.isnan(chances([1.0], [1.0, 2.0]).differs) and math.isnan(chances([1.0, 2.0], [1.0, 2.0], paired=True).same)
    (none,) = judged([UNKNOWN], [UNTESTED])
    assert none.verdict == "n/a" and math.isnan(none.adjusted_p_value)


def test_a_verdict_that_one_comparison_supports_may_not_survive_twenty() -> None:
    tests = [Chances(differs=0.03, same=1.0)] + [Chances(differs=0.5, same=1.0)] * 19
    assert judged([CLEAR], tests[:1])[0].verdict == "FASTER"
    found = judged([CLEAR] * 20, tests)
    assert {one.verdict for one in found} == {"AMBIGUOUS"} and found[0].adjusted_p_value == pytest.approx(0.5)
    narrow = Interval(value=1.0, low=0.99, high=1.01)
    same = [Chances(differs=0.9, same=0.02)] + [Chances(differs=0.9, same=0.9)] * 3
    assert [one.verdict for one in judged([narrow] * 4, same)] == ["AMBIGUOUS"] * 4
    assert judged([narrow], same[:1])[0].verdict == "SAME"


def test_one_more_difference_needs_the_more_confidence_the_more_comparisons_there_are() -> None:
    assert needed_confidence([0.2]) == pytest.approx(0.95)
    assert needed_confidence([0.2] * 10) == pytest.approx(0.995)
    assert needed_confidence([0.01] * 4 + [0.2] * 6) == pytest.approx(0.975)
    assert needed_confidence([0.01] * 3) == pytest.approx(0.95) == needed_confidence([])


def test_the_significance_of_a_family_is_where_the_correction_draws_the_line() -> None:
    ps = [0.001, 0.012, 0.02, 0.6]
    level = significance_of([Chances(differs=p, same=0.9) for p in ps] + [UNTESTED])
    assert level.comparisons == 4 and level.differs == pytest.approx(0.05 * 3 / 4) and level.same == pytest.approx(0.025 / 4)
    assert [p <= level.differs for p in ps] == [p <= 0.05 for p in adjusted(ps)]
    assert significance_of([Chances(differs=0.5, same=0.5)] * 10).differs == pytest.approx(0.005)


def test_a_verdict_at_the_significance_of_a_family_is_the_one_of_the_family() -> None:
    found = [CLEAR, CLEAR, Interval(value=1.0, low=0.99, high=1.01), UNKNOWN]
    tests = [Chances(differs=0.001, same=0.9), Chances(differs=0.04, same=0.9), Chances(differs=0.9, same=0.001), UNTESTED]
    level = significance_of(tests)
    assert [verdict_at(*one, level) for one in zip(found, tests, strict=True)] == [one.verdict for one in judged(found, tests)]
    assert [one.verdict for one in judged(found, tests)] == ["FASTER", "AMBIGUOUS", "SAME", "n/a"]


def test_a_mark_stays_only_if_its_one_sided_test_survives_the_number_of_tests() -> None:
    assert surviving([True, False, True], [0.02, 0.001, math.nan]) == [True, False, True]
    assert surviving([True], [0.02]) == [True] and surviving([True] + [False] * 9, [0.02] + [0.9] * 9)[0] is False
    assert surviving([], []) == []


def test_the_one_sided_test_is_half_of_the_two_sided_one() -> None:
    above, below = [103.0, 105.0, 107.0], [98.0, 100.0, 102.0]
    p = chances(above, below).differs
    assert (p_above(above, below), p_above(below, above)) == pytest.approx((p / 2, 1 - p / 2))
    assert p_above([210.0, 212.0], [100.0, 101.0], least=2.0) < 0.05 < p_above([200.0, 202.0], [100.0, 101.0], least=2.0)
    assert math.isnan(p_above([1.0], [1.0, 2.0])) and p_above([2.0, 2.0], [1.0, 1.0]) == 0.0
