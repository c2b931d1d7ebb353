"""Phases of a launch's time, the distribution of its steps, readings meanwhile: exact values for made-up launches."""

import math
from pathlib import Path
from typing import Any

import pytest

from support.read_back import spent, traces_of
from support.records import launch_lines
from torchmatrix.analysis import time_split
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_of


def launch(
    extra: tuple[dict[str, Any], ...] = (), steps: list[list[float]] | None = None, cache: str = "cold", **fields: Any
) -> Launch:
    """Return a launch of 40 s, whose measured window has these step times of each rank."""
    header, *events = launch_lines(**fields)
    for event in events:
        if steps and event.get("phase") == "measure":
            seconds, count = [sum(rank) for rank in steps], len(steps[0])
            event |= {"step_seconds": steps, "seconds": seconds, "steps": count, "items": 4 * count * len(steps)}
            event["stop_monotonic_seconds"] = event["start_monotonic_seconds"] + max(seconds)
        if event["event"] == "hello":
            event["compile_cache"] = cache
    parsed = launch_of(Path("h/r/c/round1-try1.jsonl"), [header, *extra, *events])
    assert isinstance(parsed, Launch), parsed
    return parsed


def phases(**seconds: float) -> tuple[dict[str, Any], ...]:
    return tuple({"event": "phase", "phase": name.replace("_", "-"), "seconds": value} for name, value in seconds.items())


def test_the_phases_are_medians_over_launches_and_the_rest_is_what_is_left() -> None:
    some = [launch(phases(**{"import": 2.0, "init": 1.0, "model": 3.0, "first_step": first})) for first in (4.0, 5.0, 9.0)]
    (row,) = time_split.phases_table(spent(some))
    assert (row["import"], row["init"], row["model to device"], row["first step"]) == (2.0, 1.0, 3.0, 5.0)
    assert (row["warm-up"], row["measure"], row["total"], row["n"]) == (0.4, 0.4, 40.0, 3)
    assert row["the rest"] == pytest.approx(40 - 2 - 1 - 3 - 5 - 0.8) and row["cache"] == ""


def test_a_phase_that_was_not_recorded_is_unknown_and_in_the_rest() -> None:
    (row,) = time_split.phases_table(spent([launch(phases(init=1.0))]))
    assert math.isnan(row["import"]) and row["the rest"] == pytest.approx(40 - 1 - 0.8)


def test_cold_and_warm_compilations_are_kept_apart_and_failed_launches_out() -> None:
    job = {"compile": True}
    cold, warm, failed = launch(job=job), launch(job=job, cache="warm"), launch(job=job, outcome="oom")
    rows = time_split.phases_table(spent([cold, warm, failed]))
    assert [{name: row[name] for name in ("cache", "n")} for row in rows] == [
        {"cache": "cold", "n": 1},
        {"cache": "warm", "n": 1},
    ]


def test_step_times_of_all_ranks_and_launches_are_pooled() -> None:
    low, high = [[0.01 * (i + 1) for i in range(50)]] * 2, [[0.01 * (i + 1) for i in range(50, 101)]] * 2
    some = [launch(steps=low, devices=(0, 1)), launch(steps=high, devices=(0, 1)), launch(outcome="crashed", devices=(0, 1))]
    (row,) = time_split.steps_table(spent(some))
    assert (row["launches"], row["steps"], row["devices"]) == (2, 202, "gpu0+1")
    assert (row["p50"], row["max"]) == pytest.approx((0.51, 1.01)) and row["p95"] == pytest.approx(0.96, abs=0.006)


def test_no_launch_gives_empty_tables() -> None:
    assert time_split.phases_table([]) == time_split.steps_table([]) == traces_of([]) == []


def readings(seconds: range, **values: Any) -> list[tuple[float, dict[str, Any]]]:
    return [(float(t), {"device": "GPU-0", **{k: v(t) if callable(v) else v for k, v in values.items()}}) for t in seconds]


def test_a_trace_counts_time_from_the_launchs_begin() -> None:
    samples = readings(range(90, 131), temperature_celsius=lambda t: t - 50, sm_clock_mhz=1980, power_watts=512.0)
    (trace,) = traces_of([launch(readings=samples)])
    assert (trace.windows, trace.every, trace.more_devices) == (((10.0, 30.0),), 1, 0)
    (curve,) = trace.readings
    assert (curve.device, curve.seconds[0], curve.seconds[-1]) == ("gpu0", 0.0, 40.0)
    assert [curve.values[name][0] for name in ("temperature_celsius", "clock_mhz", "power_watts")] == [40, 1980, 512.0]
    assert "busy_cpus" not in curve.values


def test_a_long_trace_is_thinned_and_says_so_but_no_slow_down_is_lost() -> None:
    slow = readings(
        range(90, 1170), sm_clock_mhz=lambda t: t, reasons=lambda t: ["hw_thermal_slowdown"] if 101 <= t <= 102 else []
    )
    (trace,) = traces_of([launch(readings=slow)])
    assert (trace.every, len(trace.readings[0].seconds)) == (3, 360)
    assert trace.readings[0].values["clock_mhz"][:3] == (90, 93, 96)
    assert trace.slowdowns == ((11.0, 12.0, "hw_thermal_slowdown"),) and trace.seen.throttled


def test_power_from_a_counter_is_the_mean_since_the_reading_before() -> None:
    rows = [(t, {**r, "device": "cpu"}) for t, r in readings(range(100, 104), energy_joules=lambda t: 50.0 * t, busy_cpus=1.5)]
    (trace,) = traces_of([launch(vendor="cpu", readings=rows)])
    assert trace.readings[0].values["power_watts"] == (None, 50.0, 50.0, 50.0)


def test_every_watched_cell_has_a_trace() -> None:
    plain = readings(range(100, 110), temperature_celsius=50)
    some = [launch(stack=stack, readings=plain) for stack in "abc"]
    assert [trace.cell.split("/")[0] for trace in traces_of([*some, launch(stack="unwatched")])] == ["a", "b", "c"]


@pytest.mark.thorough
def test_of_thousands_of_traces_each_is_short_and_keeps_its_hottest_device() -> None:
    def both(t: float) -> list[tuple[float, dict[str, Any]]]:
        return [(t, {"device": f"GPU-{i}", "temperature_celsius": 50 + 10 * (i == 5)}) for i in range(8)]

    samples = [sample for t in range(100, 140) for sample in both(float(t))]
    some = [launch(workload=f"w{i}", devices=tuple(range(8)), readings=samples) for i in range(1500)]
    first = traces_of(some)[0]
    assert [(curve.device, curve.values["temperature_celsius"][0]) for curve in first.readings] == [("gpu5", 60)]
    assert first.more_devices == 7 and len(first.readings[0].seconds) == 10
    assert first.picked == "hottest"


def test_of_many_devices_a_trace_says_why_it_keeps_this_one() -> None:
    def all_at(t: float, **facts: Any) -> list[tuple[float, dict[str, Any]]]:
        slow = {"reasons": ["hw_thermal_slowdown"]} if t < 100 else {}  # before the timed windows, which it doesn't throttle
        return [(t, {"device": f"GPU-{i}", "power_watts": 300, **facts, **(slow if i == 2 else {})}) for i in range(8)]

    many = [launch(workload=f"w{i}", devices=tuple(range(8)), readings=all_at(105.0)) for i in range(1500)]
    slowed = launch(
        workload="slowed", devices=tuple(range(8)), readings=[*all_at(99.0, temperature_celsius=50), *all_at(101.0)]
    )
    unknown, *_, kept = traces_of([*many, slowed])
    assert (unknown.picked, kept.picked, kept.readings[0].device, kept.seen.throttled) == ("first", "slowed", "gpu2", False)
    assert traces_of([slowed])[0].picked == ""
