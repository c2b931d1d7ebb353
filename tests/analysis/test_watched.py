"""Summaries of a launch's telemetry, against values worked out by hand."""

import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from support.records import write_run
from torchmatrix.analysis import run_summary, traces, watched
from torchmatrix.facts.host_lines import OtherNode
from torchmatrix.facts.host_parts import Gpu, NodeDevices
from torchmatrix.facts.launch import Launch
from torchmatrix.reporting import report


def single(tmp_path: Path, **launch: Any) -> Launch:
    (only,) = write_run(tmp_path, [launch]).launches()
    return only


def reading(device: str = "GPU-0", **values: Any) -> dict[str, Any]:
    return {"device": device, **values}


def test_energy_is_the_counter_between_the_windows_edges_and_per_item_exact(tmp_path: Path) -> None:
    """300 W from 1000 J at time 90: the window from 100.25 to 120.75 took 20.5 s x 300 W; 40 items."""
    times = [90.0 + 0.9 * i for i in range(45)]
    readings = [(t, reading(energy_joules=1000 + 300 * (t - 90), power_watts=300.0)) for t in times]
    launch = single(tmp_path, edges=(100.25, 120.75), readings=readings)
    summary = watched.summarize(launch)
    assert summary.energy_joules == pytest.approx(20.5 * 300) and summary.energy_problem is None
    assert summary.power_watts == pytest.approx(300)
    row = run_summary.launch_rows([launch])[0]
    assert row.energy_per_item == pytest.approx(20.5 * 300 / 40)


def test_energy_of_several_gpus_is_their_sum(tmp_path: Path) -> None:
    readings = [(90.0 + t, reading(f"GPU-{i}", energy_joules=100.0 * (i + 1) * t)) for t in range(40) for i in (0, 1)]
    assert watched.summarize(single(tmp_path, devices=(0, 1), readings=readings)).energy_joules == pytest.approx(20 * 300)


@pytest.mark.parametrize("begin", [10_000.0, 100.0])
def test_a_counter_that_went_back_during_a_window_is_no_energy_and_hides_no_error(tmp_path: Path, begin: float) -> None:
    """The driver of GPU 0 was reset at 110; GPU 1 counts on."""
    lost = [begin + 300.0 * t if t < 20 else 300.0 * (t - 20) for t in range(40)]
    errors = [(5, 0), (0, 2)]
    readings = [
        (90.0 + t, reading(f"GPU-{i}", energy_joules=[lost[t], 900.0 * t][i], ecc_uncorrected=errors[t >= 20][i]))
        for t in range(40)
        for i in (0, 1)
    ]
    summary = watched.summarize(single(tmp_path, devices=(0, 1), readings=readings))
    assert math.isnan(summary.energy_joules) and summary.energy_problem == "the energy counter went back"
    assert summary.ecc_errors == 2


def test_the_energy_of_one_gpu_is_never_shown_as_that_of_both(tmp_path: Path) -> None:
    readings = [(90.0 + t, reading("GPU-0", energy_joules=300.0 * t, power_watts=300.0)) for t in range(40)]
    summary = watched.summarize(single(tmp_path, devices=(0, 1), readings=readings))
    assert math.isnan(summary.energy_joules) and math.isnan(summary.power_watts)


def test_a_reading_that_may_be_another_gpus_is_nobodys(tmp_path: Path) -> None:
    """Facts of 0.1 about AMD's GPUs whose unique id is 0: one UUID for all."""
    readings = [(90.0 + t, reading(energy_joules=300.0 * t, power_watts=300.0, temperature_celsius=60)) for t in range(40)]
    identified = single(tmp_path / "a", readings=readings)
    assert watched.summarize(identified).power_watts == 300.0
    twins = replace(identified, host=identified.host | {"gpus": [{"uuid": "GPU-0"}, {"uuid": "GPU-0"}]})
    summary = watched.summarize(twins)
    assert math.isnan(summary.power_watts) and math.isnan(summary.energy_joules) and math.isnan(summary.temperature_first)
    assert traces.whole_of([identified]) and not traces.whole_of([twins])


@pytest.mark.parametrize(
    ("uuids", "name_of_second", "watts"),
    [
        (("GPU-1a", "GPU-2b"), "GPU-2b", 700.0),
        (("PCI-0000:05:00.0", "PCI-0000:05:00.0"), "PCI-0000:05:00.0@2", 700.0),  # alike machines: unique on each
        (("GPU-1", "GPU-1"), "GPU-1@2", 700.0),  # the same with pseudonyms
        (("GPU-0000000000000000", "GPU-0000000000000000"), "GPU-0000000000000000", math.nan),  # as 0.1 recorded them
        (("PCI-0000:05:00.0", "PCI-0000:05:00.0"), "nobody", math.nan),
        ((None, None), "None@2", math.nan),
    ],
)
def test_two_nodes_readings_are_told_apart(
    tmp_path: Path, uuids: tuple[str | None, str | None], name_of_second: str, watts: float
) -> None:
    first, second = (Gpu(name="AMD", uuid=uuid, facts={}) for uuid in uuids)
    readings = [(90.0 + t, reading(name, power_watts=power)) for t in range(40)
                for name, power in ((str(uuids[0]), 300.0), (name_of_second, 400.0))]  # fmt: skip
    launch = single(tmp_path, readings=readings)
    node = OtherNode(name="b", number=2, devices=NodeDevices(gpus=(second,)), facts={})
    host = launch.host | {"gpus": [{"uuid": uuids[0]}]}
    both = replace(launch, devices=replace(launch.devices, gpus=(first,)), other_nodes=(node,), host=host)
    assert watched.summarize(both).power_watts == pytest.approx(watts, nan_ok=True)


def test_a_counter_that_disagrees_with_the_power_readings_is_reported(tmp_path: Path) -> None:
    readings = [(90.0 + t, reading(energy_joules=300.0 * t, power_watts=250.0)) for t in range(40)]
    summary = watched.summarize(single(tmp_path, readings=readings))
    assert summary.energy_joules == pytest.approx(6000) and "power readings say 5000 J" in str(summary.energy_problem)


@pytest.mark.parametrize(
    ("edges", "readings", "problem"),
    [
        ((100.0, 120.0), [(90.0 + t, reading(power_watts=300.0)) for t in range(40)], "no energy counter"),
        ((100.0, 105.0), [(90.0 + t, reading(energy_joules=9.0 * t)) for t in range(40)], "shorter than 10 s"),
        ((100.0, 120.0), [(105.0 + t, reading(energy_joules=9.0 * t)) for t in range(40)], "could not be read around"),
        ((100.0, 120.0), [(90.0 + t, reading(energy_joules=7.0)) for t in range(40)], "did not advance"),
        ((100.0, 120.0), [(90.0 + t, reading(energy_joules=9.0 * (t % 20))) for t in range(40)], "could not be read around"),
    ],
)
def test_an_energy_that_cannot_be_had_is_unknown_never_zero(
    tmp_path: Path, edges: tuple[float, float], readings: list[Any], problem: str
) -> None:
    summary = watched.summarize(single(tmp_path, edges=edges, readings=readings))
    assert math.isnan(summary.energy_joules) and problem in str(summary.energy_problem)


def test_without_telemetry_everything_is_unknown(tmp_path: Path) -> None:
    summary = watched.summarize(single(tmp_path))
    assert math.isnan(summary.temperature_last) and math.isnan(summary.power_watts) and math.isnan(summary.energy_joules)
    assert summary.steady is None and not summary.throttled and summary.foreign == ()


@pytest.mark.parametrize("word", ["hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"])
def test_one_slow_down_inside_the_window_marks_the_launch_whatever_else_stands_beside_it(tmp_path: Path, word: str) -> None:
    readings = [(90.0 + t, reading(reasons=["sw_power_cap", word] if t == 15 else ["sw_power_cap"])) for t in range(40)]
    summary = watched.summarize(single(tmp_path, readings=readings))
    assert summary.throttled and summary.reasons["sw_power_cap"] == 1.0 and summary.reasons[word] == pytest.approx(1 / 21)


def test_a_power_cap_or_a_slow_down_outside_the_windows_is_no_throttling(tmp_path: Path) -> None:
    readings = [(90.0 + t, reading(reasons=["hw_slowdown"] if t < 9 else ["sw_power_cap"])) for t in range(40)]
    assert not watched.summarize(single(tmp_path, readings=readings)).throttled


def test_a_cpu_that_counts_thermal_events_in_the_window_is_throttled(tmp_path: Path) -> None:
    readings = [(90.0 + t, reading("cpu", throttle_count=5 if t < 20 else 6)) for t in range(40)]
    assert watched.summarize(single(tmp_path, vendor="cpu", readings=readings)).throttled


def warming(rise: float = 0.0, clock: float = 0.0, noise: float = 0.0) -> list[tuple[float, dict[str, Any]]]:
    """Return one reading a second from 90 to 129, in whole degrees as in NVML; `rise` in °C and `clock` in MHz per second."""
    random = Random(0)
    return [
        (90.0 + t, reading(temperature_celsius=round(60 + rise * t + random.gauss(0, noise)), sm_clock_mhz=1980 + clock * t))
        for t in range(40)
    ]


@pytest.mark.parametrize(("rise", "steady"), [(0.0, True), (0.05, True), (0.2, False), (-0.2, False), (1.0, False)])
def test_a_launch_is_steady_if_temperature_and_clock_stay(tmp_path: Path, rise: float, steady: bool) -> None:
    summary = watched.summarize(single(tmp_path, readings=warming(rise)))
    assert summary.steady is steady and math.isnan(summary.clock_change)
    assert (summary.temperature_first, summary.temperature_last) == (round(60 + rise * 10), round(60 + rise * 30))
    assert math.isnan(summary.warming) if steady else summary.warming == pytest.approx(60 * rise, rel=0.1)


@pytest.mark.parametrize("seed", range(20))
def test_a_temperature_that_goes_up_and_down_is_steady(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    readings = [(90.0 + t, reading(temperature_celsius=60 + random.choice([-1, 0, 1]), sm_clock_mhz=1980)) for t in range(40)]
    assert watched.summarize(single(tmp_path, readings=readings)).steady is True


def test_a_falling_clock_is_not_steady_and_says_how_much_the_figure_may_be_off(tmp_path: Path) -> None:
    """From 1930 to 1830 MHz in the window: at its end 50 MHz below the mean."""
    summary = watched.summarize(single(tmp_path, readings=warming(clock=-5.0)))
    assert summary.steady is False and summary.clock_change == pytest.approx(-50 / 1880) and math.isnan(summary.warming)


def test_where_only_the_temperature_can_be_read_it_decides(tmp_path: Path) -> None:
    readings = [(90.0 + t, reading("cpu", temperature_celsius=60 + t)) for t in range(40)]
    summary = watched.summarize(single(tmp_path, vendor="cpu", readings=readings))
    assert summary.steady is False and summary.warming == pytest.approx(60)


def test_of_several_devices_the_one_that_changes_most_is_reported(tmp_path: Path) -> None:
    readings = [
        (90.0 + t, reading(f"GPU-{gpu}", temperature_celsius=60 + rise * t))
        for t in range(40)
        for gpu, rise in enumerate((0, 0.5))
    ]
    assert watched.summarize(single(tmp_path, devices=(0, 1), readings=readings)).warming == pytest.approx(30)


def test_five_readings_tell_nothing(tmp_path: Path) -> None:
    readings = [(90.0 + 5 * t, reading(temperature_celsius=60 + 5 * t, sm_clock_mhz=1980 - 50 * t)) for t in range(7)]
    summary = watched.summarize(single(tmp_path, readings=readings))
    assert summary.steady is None and math.isnan(summary.warming) and math.isnan(summary.clock_change)


def test_the_report_says_what_was_not_steady_and_what_it_means_for_the_figure(tmp_path: Path) -> None:
    page = report.render(
        report.view_of(write_run(tmp_path, [{"readings": warming(rise=0.2, clock=-5.0)}, {"readings": warming()}]))
    )
    assert "in 1 of 2 launches temperature or clock still changed in the timed windows: temperature by up to +12" in page
    assert "the clock at their end was 2.7 % below its mean, so the figure may be up to so much too high" in page


def gpu_over_time(**keys: Any) -> list[tuple[float, dict[str, Any]]]:
    """Return readings once a second from 90 to 159, the window from 100 to 120; each key by a function of the time."""
    return [(float(t), reading(**{key: value(float(t)) for key, value in keys.items()})) for t in range(90, 160)]


QUIET = {
    "temperature_celsius": lambda t: 61,
    "sm_clock_mhz": lambda t: 1755,
    "power_watts": lambda t: 640 + 2 * math.sin(7 * t),
    "utilization_percent": lambda t: 100 if t < 150 else 0,
}


def test_a_quiet_gpu_is_steady_until_it_is_idle(tmp_path: Path) -> None:
    idle = {"sm_clock_mhz": lambda t: 1755 if t < 150 else 345, "power_watts": lambda t: 640 if t < 150 else 90}
    summary = watched.summarize(single(tmp_path, readings=gpu_over_time(**QUIET | idle)))
    assert summary.steady is True and math.isnan(summary.later_clock) and not summary.throttled_later


@pytest.mark.parametrize(
    ("key", "course", "remark"),
    [
        ("memory_temperature_celsius", lambda t: round(70 + 0.3 * t), "temperature by up to +1"),
        ("memory_clock_mhz", lambda t: 2619 if t < 112 else 2300, "the clock at their end was"),
        ("power_watts", lambda t: 500 + 2.5 * t, "power by up to +6"),
    ],
)
def test_memory_and_power_are_judged_too(tmp_path: Path, key: str, course: Any, remark: str) -> None:
    launch = {"readings": gpu_over_time(**QUIET | {key: course})}
    assert watched.summarize(single(tmp_path / "a", **launch)).steady is False
    page = report.render(report.view_of(write_run(tmp_path / "b", [launch])))
    assert "in 1 of 1 launches " in page and remark in page


def test_a_clock_that_falls_after_the_windows_is_reported(tmp_path: Path) -> None:
    """1755 MHz in the windows, 1600 from 125 s on, with as much use and power; the requests and the proofs run then."""
    launch = {"readings": gpu_over_time(**QUIET | {"sm_clock_mhz": lambda t: 1755 if t < 125 else 1600})}
    summary = watched.summarize(single(tmp_path / "a", **launch))
    assert summary.steady is False and summary.later_clock == pytest.approx((1755 * 5 + 1600 * 25) / 30 / 1755 - 1)
    page = report.render(report.view_of(write_run(tmp_path / "b", [launch])))
    assert "the machine slowed down after the timed windows; after them the clock was" in page


@pytest.mark.parametrize("other", [{"power_watts": lambda t: 640 if t < 121 else 690}, {"utilization_percent": lambda t: 60}])
def test_a_lower_clock_under_another_load_means_nothing(tmp_path: Path, other: dict[str, Any]) -> None:
    lower = {"sm_clock_mhz": lambda t: 1755 if t < 121 else 1600}
    assert watched.summarize(single(tmp_path, readings=gpu_over_time(**QUIET | lower | other))).steady is True


@pytest.mark.parametrize(
    "later", [{"reasons": lambda t: ["hw_thermal_slowdown"] if t > 130 else []}, {"throttle_count": lambda t: int(t > 130)}]
)
def test_a_slow_down_after_the_windows_is_reported_and_repeats_nothing(tmp_path: Path, later: dict[str, Any]) -> None:
    launch = {"readings": gpu_over_time(**QUIET | later)}
    summary = watched.summarize(single(tmp_path / "a", **launch))
    assert summary.steady is False and summary.throttled_later and not summary.throttled
    page = report.render(report.view_of(write_run(tmp_path / "b", [launch])))
    assert "after them a slow-down by heat or hardware was seen" in page


def test_power_at_its_limit_is_reported_where_the_machine_is_not_steady(tmp_path: Path) -> None:
    limit = {"power_watts": lambda t: 699.0, "power_limit_watts": lambda t: 700.0}
    summary = watched.summarize(single(tmp_path / "a", readings=gpu_over_time(**QUIET | limit)))
    assert summary.at_limit == 1.0 and summary.steady is True
    falling = QUIET | limit | {"sm_clock_mhz": lambda t: 1900 - t}
    page = report.render(report.view_of(write_run(tmp_path / "b", [{"readings": gpu_over_time(**falling)}])))
    assert "the power was at its limit" in page


def test_other_peoples_processes_and_a_lost_gpu_are_kept_by_name(tmp_path: Path) -> None:
    readings = [(101.0, reading(foreign=["process 7 (python, user bob)"])), (102.0, reading(error="GPU is lost; reset it"))]
    readings += [(95.0, reading(foreign=["process 8, which was over before the window"]))]
    summary = watched.summarize(single(tmp_path, readings=readings))
    assert summary.foreign == ("process 7 (python, user bob)",) and summary.errors == ("GPU is lost; reset it",)


def test_a_jump_of_the_wall_clock_moves_no_figure_and_is_reported(tmp_path: Path) -> None:
    launch = single(tmp_path, readings=[(90.0 + t, reading(energy_joules=300.0 * t)) for t in range(40)])
    assert launch.exit is not None and launch.exit.unix_seconds is not None
    launch = replace(launch, exit=replace(launch.exit, unix_seconds=launch.exit.unix_seconds - 3600))
    row = run_summary.launch_rows([launch])[0]
    assert row.seconds == pytest.approx(40.0) and row.throughput == pytest.approx(2.0)
    assert row.value("energy_joules") == pytest.approx(6000) and row.value("clock_jump_seconds") == pytest.approx(-3600)


def test_time_lost_to_a_cpu_quota_is_reported_on_gpus_too_and_unlike_slots_are_marked(tmp_path: Path) -> None:
    held = [(90.0 + t, reading("cpu", quota_seconds=2.0 + 0.25 * t, quota_periods=5 * t)) for t in range(40)]
    free = [(90.0 + t, reading("cpu", quota_seconds=2.0, quota_periods=5)) for t in range(40)]
    on_gpus = [(90.0 + t, reading(power_watts=300.0)) for t in range(40)] + held
    assert watched.summarize(single(tmp_path / "a", readings=on_gpus)).quota_seconds == pytest.approx(20 * 0.25)
    assert watched.summarize(single(tmp_path / "b", vendor="cpu", readings=free)).quota_seconds == 0
    unlike = "CPU slots are unlike devices: cores of other types than slot 0 has are in slot 1"
    gpus = {"indices": [0, 1], "label": "cpu0+1", "vendor": "cpu", "gpus": [], "threads": 1, "nodes": 1, "unlike": unlike}
    launches = [
        {"vendor": "cpu", "readings": held},
        {"vendor": "cpu", "devices": (0, 1), "readings": free, "gpus": gpus},
        {"vendor": "cpu", "stack": "free", "readings": free},
    ]
    page = report.render(report.view_of(write_run(tmp_path / "c", launches)))
    cells = page[page.index('<section id="cells"') :].split("</section>")[0]
    assert cells.count("CPU quota</abbr>") == 1 and "for up to 5.0 s in a launch" in cells
    assert cells.count("unlike core groups</abbr>") == 1 and unlike in cells
