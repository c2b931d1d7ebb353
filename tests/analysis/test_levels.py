"""Changes of level, simulated: few false alarms on noise, real steps found at their place."""

import math

import numpy as np
import pytest

from torchmatrix.analysis import intervals, levels, verdicts
from torchmatrix.analysis.pairs import pair

NOISE = 0.01


def noisy(seed: int, *steps: tuple[int, float], noise: float = NOISE) -> list[float]:
    """Return as many figures at each level as `steps` name, with normal scatter."""
    random = np.random.default_rng(seed)
    return [level * float(random.normal(1.0, noise)) for count, level in steps for _ in range(count)]


@pytest.mark.parametrize("length", [6, 20, 100])
def test_noise_alone_is_seldom_a_change(length: int) -> None:
    alarms = [bool(levels.level_changes(noisy(seed, (length, 100.0), noise=0.03))) for seed in range(200)]
    assert sum(alarms) / len(alarms) <= 0.05


def test_noise_with_outliers_is_seldom_a_change() -> None:
    """One night in twenty is far too slow."""
    alarms = 0
    for seed in range(100):
        random = np.random.default_rng(1000 + seed)
        slow = np.where(random.random(100) < 0.05, 0.7, 1.0)
        alarms += bool(levels.level_changes(list(100 * slow * random.normal(1.0, NOISE, 100))))
    assert alarms <= 5


def test_nights_that_resemble_each_other_seldom_make_a_change() -> None:
    """First-order autocorrelation of 0.4, as of a place that is warm for some days."""
    alarms = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        scatter = [float(random.normal(0, NOISE))]
        for _ in range(99):
            scatter.append(0.4 * scatter[-1] + float(random.normal(0, NOISE * 0.84**0.5)))
        alarms += bool(levels.level_changes(list(100 * np.exp(scatter))))
    assert alarms <= 10


@pytest.mark.parametrize(("before", "after"), [(10, 10), (60, 5), (5, 60), (30, 3), (150, 150)])
def test_a_step_of_five_per_cent_is_found_at_its_place(before: int, after: int) -> None:
    changes = [levels.level_changes(noisy(seed, (before, 100.0), (after, 95.0))) for seed in range(50)]
    exact = sum(len(places) == 1 and abs(places[0] - before) <= 1 for places in changes)
    assert exact >= 45


def test_a_dip_that_has_passed_is_two_changes() -> None:
    changes = [levels.level_changes(noisy(seed, (120, 100.0), (8, 95.0), (120, 100.0))) for seed in range(20)]
    assert sum(len(p) == 2 and abs(p[0] - 120) <= 1 and abs(p[1] - 128) <= 1 for p in changes) >= 18


def test_several_levels_are_all_found() -> None:
    assert levels.level_changes(noisy(3, (30, 100.0), (30, 95.0), (30, 110.0), (30, 104.0))) == [30, 60, 90]


@pytest.mark.parametrize(
    ("figures", "places"),
    [
        ([], []),
        ([100.0], []),
        ([100.0] * 400, []),
        ([100.0] * 3 + [90.0] * 3, [3]),
        ([100.0] * 20 + [98.0] * 3, [20]),
        ([100.0] * 20 + [50.0] * 2, []),  # two nights are no level yet
        ([100.0] * 20 + [50.0] + [100.0] * 20, []),
        ([100.0] * 50 + [99.5] * 50, []),  # certain, but not noteworthy
        ([100.0] * 3 + [90.0] * 2, []),
    ],
)
def test_figures_without_scatter(figures: list[float], places: list[int]) -> None:
    assert levels.level_changes(figures) == places


@pytest.mark.parametrize("seed", range(30))
def test_chances_that_are_not_computed_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(seed)
    steps = np.repeat(random.normal(scale=0.03, size=6), random.integers(3, 60, size=6))
    figures = np.exp(steps + random.standard_t(3, size=len(steps)) * 0.008).tolist()
    found = levels.level_changes(figures)
    monkeypatch.setattr(levels, "ndtri", lambda chance: math.inf)  # no t is too small
    assert levels.level_changes(figures) == found and (seed != 1 or found)


def test_the_same_figures_give_the_same_changes() -> None:
    figures = noisy(5, (40, 100.0), (40, 97.0))
    assert (
        levels.level_changes(figures)
        == levels.level_changes(figures)
        == levels.level_changes([1e6 * figure for figure in figures])
    )


@pytest.mark.parametrize(("few", "many"), [(2, 10), (3, 20), (4, 10)])
def test_few_launches_that_lie_in_one_level_are_not_told_apart_from_many(few: int, many: int) -> None:
    """A lone pair: no other cell of the run shows that its launches come in levels."""
    random, false = np.random.default_rng(few), 0
    for _ in range(300):
        a, b = (list(random.normal(1, 0.003, n) * np.where(random.random(n) < 0.3, 0.95, 1.0)) for n in (few, many))
        both = pair(a, b)
        false += verdicts.judged([both])[0].verdict in ("FASTER", "SLOWER")
        moments = [intervals.moments(values) for values in (a, b)]
        best = int(moments[1].log > moments[0].log)
        for level in (0.9 * both.chances.differs, 1.1 * both.chances.differs):
            is_out = level > both.chances.differs and abs(both.log) > math.log1p(intervals.NOTEWORTHY)
            assert verdicts.may_be_best(moments, level) == ([best] if is_out else [0, 1]), "as the pair is tested"
    assert false <= 0.03 * 300


def test_few_launches_beside_few_others_are_tested_by_what_they_show() -> None:
    a, b = intervals.moments([100.0, 100.1, 99.9]), intervals.moments([101.0, 99.0, 103.0, 97.0])
    assert a.beside(b) is a and b.beside(a) is b
    many = intervals.moments([101.0, 99.0, 103.0, 97.0, 100.0])
    assert a.beside(many).squared_error == pytest.approx(many.squared_error * 5 / 3) and many.beside(a) is many
    noisy = intervals.moments([101.0, 80.0, 120.0])
    assert noisy.beside(many) == noisy, "it scatters more by itself"
