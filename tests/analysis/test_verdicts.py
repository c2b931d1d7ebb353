"""Verdicts on several ratios: what Benjamini and Hochberg's correction leaves of them."""

import math

import pytest
from scipy.special import ndtri

from torchmatrix.analysis.intervals import adjusted, difference_verdict
from torchmatrix.analysis.pairs import UNKNOWN_PAIR, UNTESTED, Chances, Pair, pair, pair_by_rounds
from torchmatrix.analysis.verdicts import judged, needed_confidence, significance_of, surviving, verdict_at


def with_p(differs: float, value: float = 1.05) -> Pair:
    """Return a pair of very many launches whose test for a difference has this p-value."""
    return Pair(value=value, log=math.log(value), error=math.log(value) / -ndtri(differs / 2), freedom=math.inf)


def with_sameness(p: float) -> Pair:
    """Return a pair of ratio 1 whose test for sameness has this p-value."""
    return Pair(value=1.0, log=0.0, error=math.log(1.02) / -ndtri(p), freedom=math.inf)


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
    corrected = adjusted(paper)
    assert sum(p <= 0.05 for p in paper) == 9 and sum(p <= 0.05 for p in corrected) == 4
    assert corrected[:4] == pytest.approx([0.0015, 0.003, 0.0095, 0.035625]) and corrected[-1] == 1.0
    assert adjusted(list(reversed(paper))) == pytest.approx(list(reversed(corrected)))


def test_what_was_not_tested_stays_unknown_and_does_not_count() -> None:
    corrected = adjusted([0.02, math.nan, 0.04])
    assert corrected[0] == pytest.approx(0.04) and math.isnan(corrected[1]) and corrected[2] == pytest.approx(0.04)
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
    tested = (pair_by_rounds if paired else pair)(above, below)
    interval, test = tested.interval, tested.chances
    assert (test.differs < 0.05) == (interval.low > 1 or interval.high < 1)
    assert (test.same < 0.025) == (interval.low > 0.98 and interval.high < 1.02)
    assert judged([tested])[0].verdict == difference_verdict(interval)


def test_too_few_launches_are_no_test() -> None:
    assert math.isnan(pair([1.0], [1.0, 2.0]).chances.differs)
    assert math.isnan(pair_by_rounds([1.0, 2.0], [1.0, 2.0]).chances.same)
    (none,) = judged([UNKNOWN_PAIR])
    assert none.verdict == "n/a" and math.isnan(none.adjusted_p_value)


def test_a_verdict_that_one_comparison_supports_may_not_survive_twenty() -> None:
    tests = [with_p(0.03)] + [with_p(0.5)] * 19
    assert judged(tests[:1])[0].verdict == "FASTER"
    results = judged(tests)
    assert {result.verdict for result in results} == {"AMBIGUOUS"} and results[0].adjusted_p_value == pytest.approx(0.5)
    besides = judged(tests[:1], [Chances(differs=0.5, same=1.0)] * 19)
    assert [result.verdict for result in besides] == ["AMBIGUOUS"], "what is tested besides counts, too"
    same = [with_sameness(0.02)] + [with_sameness(0.4)] * 3
    assert [result.verdict for result in judged(same)] == ["AMBIGUOUS"] * 4
    assert judged(same[:1])[0].verdict == "SAME"


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
    family = [with_p(0.001), with_p(0.04), with_sameness(0.001), UNKNOWN_PAIR]
    level = significance_of([member.chances for member in family])
    assert [verdict_at(member, level) for member in family] == [member.verdict for member in judged(family)]
    assert [member.verdict for member in judged(family)] == ["FASTER", "AMBIGUOUS", "SAME", "n/a"]


def test_a_mark_stays_only_if_its_one_sided_test_survives_the_number_of_tests() -> None:
    assert surviving([True, False, True], [0.02, 0.001, math.nan]) == [True, False, True]
    assert surviving([True], [0.02]) == [True] and surviving([True] + [False] * 9, [0.02] + [0.9] * 9)[0] is False
    assert surviving([], []) == []


def test_the_one_sided_test_is_half_of_the_two_sided_one() -> None:
    above, below = [103.0, 105.0, 107.0], [98.0, 100.0, 102.0]
    p = pair(above, below).chances.differs
    assert (pair(above, below).p_above(), pair(above, below).inverse.p_above()) == pytest.approx((p / 2, 1 - p / 2))
    twice, hardly = (pair(above, [100.0, 101.0]).p_above(least=2.0) for above in ([210.0, 212.0], [200.0, 202.0]))
    assert twice < 0.05 < hardly
    assert math.isnan(pair([1.0], [1.0, 2.0]).p_above()) and pair([2.0, 2.0], [1.0, 1.0]).p_above() == 0.0
