"""Test whether launches may run at once: its decision, and how often that is wrong."""

from random import Random

import pytest

from torchmatrix.analysis import pairs
from torchmatrix.analysis.pairs import LOOKS, is_disturbed, is_shown, ratio_of
from torchmatrix.facts.run_record import LaneTest, ParallelTest

ALONE = [100.0, 100.1, 99.9, 100.0]


@pytest.mark.parametrize(
    ("beside", "shown", "disturbed"),
    [
        ([100.0, 100.1, 99.9, 100.0], True, False),
        ([99.8, 99.9, 99.7, 99.8], True, False),
        ([97.0, 97.1, 96.9, 97.0], False, True),
        ([103.0, 103.1, 102.9, 103.0], False, True),
        ([99.0, 101.0, 98.0, 102.0], False, False),
    ],
)
def test_the_whole_interval_must_lie_within_half_a_percent(beside: list[float], shown: bool, disturbed: bool) -> None:
    interval = ratio_of(beside, ALONE)
    assert (is_shown(interval), is_disturbed(interval)) == (shown, disturbed)


def test_two_rounds_show_nothing() -> None:
    interval = ratio_of([100.0, 100.0], [100.0, 100.0])
    assert not is_shown(interval) and not is_disturbed(interval)
    assert not is_shown(ratio_of([], []))


def decided(rng: Random, effect: float, scatter: float) -> bool:
    """Return whether one lane passes the whole test. `scatter`: of a launch, relative."""
    alone = [rng.gauss(1.0, scatter) for _ in range(LOOKS[-1])]
    beside = [effect * rng.gauss(1.0, scatter) for _ in range(LOOKS[-1])]
    for count in LOOKS:
        interval = ratio_of(beside[:count], alone[:count])
        if is_shown(interval) or is_disturbed(interval):
            return is_shown(interval)
    return False


def test_a_disturbance_of_half_a_percent_seldom_passes_and_none_passes_nearly_always() -> None:
    rng = Random(3)
    assert sum(decided(rng, 0.995, 0.002) for _ in range(1000)) <= 40, "2.5 % are allowed: 40 of 1000 is 3 sigma above"
    assert sum(decided(rng, 1.0, 0.002) for _ in range(300)) >= 285
    assert sum(decided(rng, 0.98, 0.002) for _ in range(300)) == 0
    assert sum(decided(rng, 1.0, 0.01) for _ in range(300)) <= 6, "too noisy to be shown"


def test_the_reason_names_every_lane_with_its_interval_and_number_of_rounds() -> None:
    lanes = tuple(
        LaneTest(
            devices=name, cell="c", ratio=value, low=value - 0.001, high=value + 0.001, alone=(1.0,) * 4, beside=(1.0,) * 4
        )
        for name, value in (("gpu0", 1.0), ("gpu1", 0.97))
    )
    test = ParallelTest(shown=False, why=pairs.why(lanes), lanes=lanes)
    assert pairs.in_words(test) == (
        "gpu0 and gpu1 run one after the other: they disturb each other by more than 0.5 %: "
        "gpu0 beside the others / alone 1.0000 (0.9990 to 1.0010, n = 4); "
        "gpu1 beside the others / alone 0.9700 (0.9690 to 0.9710, n = 4)"
    )
