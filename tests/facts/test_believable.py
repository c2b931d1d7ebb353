"""Readings that no device can have: left out of every figure, counted, and told."""

import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.records import launch_lines, write_run
from torchmatrix.analysis import run_summary, traces, watched
from torchmatrix.facts import believable
from torchmatrix.facts.host_parts import Gpu
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import run_around
from torchmatrix.reporting import report

CARD = Gpu(power_limit_watts=450.0, clocks_max_mhz=2520, clocks_max_memory_mhz=10_501, memory_bytes=24 * 2**30)
GARBAGE = {
    "power_watts": (4_294_967.295, 4_294_967.0, -1.0), "power_limit_watts": (4_294_967.295,),
    "temperature_celsius": (255.0, 65_535.0, -273.0), "memory_temperature_celsius": (4_294_967_295.0,),
    "sm_clock_mhz": (65_535.0, -5.0), "memory_clock_mhz": (4_294_967_295.0,), "utilization_percent": (65_535.0, 111.0),
    "memory_used_bytes": (2.0**63,), "pcie_generation": (4_294_967_295,),
    "energy_joules": (18_446_744_073_709.55, 0.0, -7.0), "ecc_uncorrected": (4_294_967_295,),
}  # fmt: skip


def honest(random: Random, seconds: int = 60) -> list[dict[str, Any]]:
    """Draw the readings of a card that works, once a second: its power peaks above the limit, its counter lags by up to 1 s."""
    joules, readings = random.uniform(0, 1e9), []
    for _ in range(seconds):
        watts = random.uniform(20, 1.3 * 450)
        joules += watts * random.uniform(0, 2)
        readings.append(
            {
                "device": "GPU-0", "power_watts": watts, "power_limit_watts": random.choice([300.0, 450.0, 600.0]),
                "temperature_celsius": random.uniform(-5, 105), "memory_temperature_celsius": random.uniform(20, 110),
                "sm_clock_mhz": random.uniform(0, 2700), "memory_clock_mhz": random.uniform(405, 10_501),
                "utilization_percent": random.choice([0.0, 100.0]), "memory_used_bytes": random.randrange(24 * 2**30),
                "energy_joules": joules, "ecc_uncorrected": 3, "pcie_generation": random.randint(1, 6),
            }
        )  # fmt: skip
    return readings


def points(readings: list[dict[str, Any]]) -> believable.Points:
    return tuple((100.0 + number, reading) for number, reading in enumerate(readings))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("gpu", [CARD, Gpu(), None])
def test_what_a_working_device_reports_is_believed(seed: int, gpu: Gpu | None) -> None:
    given = points(honest(Random(seed)))
    assert believable.believable(given, gpu) == (given, {})


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in GARBAGE.items() for value in values])
@pytest.mark.parametrize("place", [0, 1, 30, 58, 59])
def test_garbage_is_left_out_alone_wherever_it_is(key: str, value: float, place: int) -> None:
    readings = honest(Random(f"{key}{place}"))
    readings[place] = readings[place] | {key: value}
    kept, lost = believable.believable(points(readings), CARD)
    without = {name: known for name, known in readings[place].items() if name != key}
    assert [reading for _, reading in kept] == [*readings[:place], without, *readings[place + 1 :]]
    assert lost == {key: believable.Lost(number=1, of=60, worst=value)}


def launch(tmp_path: Path, readings: list[dict[str, Any]]) -> Launch:
    """Return a launch with a window from 120 to 140 on a card with these readings, one a second from 100 on."""
    gpu = launch_lines()[0]["gpus"]
    gpu = gpu | {"gpus": [{**gpu["gpus"][0], "power_limit_watts": 450.0}]}
    (only,) = write_run(tmp_path, [{"edges": (120.0, 140.0), "gpus": gpu, "readings": points(readings)}]).launches()
    return only


def test_a_mean_of_the_power_is_that_of_what_is_left_and_the_page_says_how_much_was_lost(tmp_path: Path) -> None:
    """As a public report has it: the card reports 4,294,967 W for a third of the time, and has no energy counter."""
    readings = [{"device": "GPU-0", "power_watts": 4_294_967.295 if 20 <= n < 27 else 400.0} for n in range(60)]
    made = launch(tmp_path, readings)
    summary = watched.summarize(made)
    assert summary.power_watts == 400.0
    assert summary.impossible_readings == "7 of 60 readings of the power are impossible (such as 4294967 W)"
    (row,) = run_summary.launch_rows([made])
    assert row.value("impossible_readings") == summary.impossible_readings
    (trace,) = traces.shortened(traces.whole_of([made]).values())
    assert max(watts for watts in trace.readings[0].values["power_watts"] if watts is not None) == 400.0
    run = run_around(made.path)
    assert run
    page = report.render(report.view_of(run))
    assert "impossible readings" in page and summary.impossible_readings in page


def test_one_odd_reading_of_the_counter_costs_no_energy_and_a_jump_costs_all(tmp_path: Path) -> None:
    counter = [{"device": "GPU-0", "energy_joules": 1000.0 + 300 * n} for n in range(60)]
    odd = [*counter[:20], {"device": "GPU-0", "energy_joules": 18_446_744_073_709.55}, *counter[21:]]
    assert watched.summarize(launch(tmp_path / "odd", odd)).energy_joules == pytest.approx(20 * 300)
    jump = [*counter[:25], *({"device": "GPU-0", "energy_joules": 1e9 + 300.0 * n} for n in range(35))]
    summary = watched.summarize(launch(tmp_path / "jump", jump))
    assert math.isnan(summary.energy_joules) and summary.energy_problem == "the energy counter jumped"


def test_readings_of_several_devices_are_counted_together() -> None:
    lost = believable.Lost(number=2, of=10, worst=-1.0), believable.Lost(number=1, of=12, worst=300.0)
    assert believable.in_words([{"temperature_celsius": lost[0]}, {"temperature_celsius": lost[1]}, {}]) == (
        "3 of 22 readings of the temperature are impossible (such as 300 °C)"
    )
    assert believable.in_words([{}, {}]) is None
