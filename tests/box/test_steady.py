"""Steady means steady: a slow drift is waited for or told, and a flat machine loses no time. On a simulated clock."""

from statistics import mean

import pytest
from drifting import Machine, launch, steady

NOISE = 0.003
TOLERANCE = 0.005


def launches(tau: float, noise: float = NOISE, count: int = 12, **how: float) -> list:
    return [launch(Machine(tau=tau, noise=noise, seed=seed), **how) for seed in range(count)]


@pytest.mark.parametrize("tau", [5.0, 15.0, 30.0, 60.0, 90.0])
def test_a_slow_down_is_waited_for(tau: float) -> None:
    found = launches(tau)
    assert abs(mean(one.bias for one in found)) <= TOLERANCE and max(abs(one.bias) for one in found) <= TOLERANCE
    assert all(one.flat for one in found)


@pytest.mark.parametrize("tau", [150.0, 300.0])
def test_a_slow_down_that_outlasts_the_cap_is_told(tau: float) -> None:
    found = launches(tau)
    assert mean(one.bias for one in found) > TOLERANCE and abs(mean(one.told for one in found)) <= TOLERANCE
    assert sum(one.flat is False for one in found) >= 11


def test_a_flat_machine_loses_no_time() -> None:
    found = launches(0.0, count=40)
    assert mean(one.longer for one in found) <= 1.10
    assert abs(mean(one.bias for one in found)) <= 0.0005 and sum(one.flat is True for one in found) >= 38


def test_without_a_longer_warm_up_the_drift_is_only_told() -> None:
    """As the methods cold and aime do it, and at a cap in steps."""
    for found in (launches(15.0, cap_seconds=0.0), [launch(Machine(tau=15.0, noise=NOISE, seed=0), more=lambda seconds: None)]):
        assert all(one.flat is False and not one.warm_up and one.longer < 1.05 for one in found)
        assert mean(one.bias for one in found) > 0.01 and abs(mean(one.told for one in found)) <= TOLERANCE


def test_windows_timed_before_a_drift_was_seen_are_warm_up() -> None:
    found = launch(Machine(tau=15.0, noise=NOISE, seed=0))
    assert any(len(rank["step_seconds"]) == 122 for ranks in found.warm_up for rank in ranks) and found.longer > 1.5


def test_too_few_steps_tell_nothing() -> None:
    machine, series = Machine(tau=5.0, noise=NOISE, seed=0), steady.Series()
    found = steady.measure(series, 300.0, lambda: [machine.block(4)], machine.block, lambda ranks: None)
    assert (found.flat, found.drift) == (None, None) and len(series.points) == 4


def test_steps_without_any_scatter_are_flat() -> None:
    machine, series = Machine(tau=0.0, noise=0.0, seed=0), steady.Series()
    assert steady.measure(series, 300.0, lambda: [machine.block(20)], machine.block, lambda ranks: None).flat is True


def test_a_second_of_scattered_steps_tells_no_end_that_no_machine_has() -> None:
    """Short launches on a busy machine: an exponential through them may end anywhere, and the host takes no such figure."""
    told = []
    for seed in range(300):
        machine, series = Machine(tau=0.0, noise=0.3, seed=seed), steady.Series()
        series.add(machine.block(6))
        found = steady.measure(series, 0.0, lambda machine=machine: [machine.block(10)], machine.block, lambda ranks: None)
        if found.flat is False:
            told.append(found.drift)
    assert None in told and all(drift is None or -0.5 <= drift <= 1.0 for drift in told)
