"""Cells from run to run: nothing is left out, changes of level with what else changed."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from support.records import nights, write_run
from torchmatrix.analysis import facts_cache
from torchmatrix.analysis.history import Trend, series, trends
from torchmatrix.facts.environments import differences_in_words
from torchmatrix.facts.store import Results

CELL = "stack-a/resnet50-train-fp32-b4/gpu0"


def launches(rate: float, **more: Any) -> list[dict[str, Any]]:
    return [{"rate": rate * scatter, **more} for scatter in (0.999, 1.0, 1.001)]


def host(driver: str, **more: Any) -> dict[str, Any]:
    return {"name": "testhost", "driver": driver, "kernel": "6.1", **more}


def trends_of(root: Path) -> list[Trend]:
    results = Results(root)
    return trends(series(facts_cache.each(results, results.runs())))


def test_a_row_says_what_the_report_of_that_run_says(tmp_path: Path) -> None:
    write_run(tmp_path, [{"rate": 99.0}, {"rate": 100.0}, {"rate": 104.0}, {"outcome": "crashed"}])
    results = Results(tmp_path)
    (row,) = series(facts_cache.read(results, results.runs()))
    assert (row.host, row.cell, row.run, row.outcome) == ("testhost", CELL, "20260101T000000Z", "ok")
    assert (row.n, row.failed, row.value, row.unit) == (3, 1, pytest.approx(100.0), "images")
    assert row.low < 99 and row.high > 104 and row.started == 1767225600.0 and row.environment == {}


def test_failed_skipped_and_unlaunched_cells_are_rows_with_their_reason(tmp_path: Path) -> None:
    first, second, third, fourth = nights(4)
    write_run(tmp_path, launches(100.0), run=first)
    write_run(tmp_path, [{"outcome": "oom", "error": "CUDA out of memory"}], run=second)
    write_run(tmp_path, [], skips=[(CELL, "the driver is too old")], run=third)
    write_run(tmp_path, [], run=fourth, complete=False).append("planned", cell=CELL)
    (trend,) = trends_of(tmp_path)
    assert [row.outcome for row in trend.rows] == ["ok", "oom", "skipped", "not launched"]
    assert [row.reason for row in trend.rows] == [
        None, "CUDA out of memory", "the driver is too old", "the run is not finished",
    ]  # fmt: skip
    assert [math.isnan(row.value) for row in trend.rows] == [False, True, True, True]
    assert trend.unit == "images" and trend.first == trend.last and math.isnan(trend.change)


def test_the_same_cell_on_two_hosts_is_two_trends(tmp_path: Path) -> None:
    write_run(tmp_path, launches(100.0))
    write_run(tmp_path, launches(50.0), folder="other")
    assert [(trend.host, trend.last) for trend in trends_of(tmp_path)] == [("other", 50.0), ("testhost", 100.0)]


def test_a_new_level_stands_beside_what_changed_with_it(tmp_path: Path) -> None:
    for number, run in enumerate(nights(12)):
        new = number >= 7
        write_run(tmp_path, launches(95.0 if new else 100.0, host=host("575.2" if new else "570.1")), run=run)
    (trend,) = trends_of(tmp_path)
    (change,) = trend.changes
    assert (change.run, change.before, change.runs) == (nights(12)[7], nights(12)[6], (7, 5))
    assert change.ratio.value == pytest.approx(0.95) and change.ratio.high < 0.96
    assert change.environment == {"host driver": ("570.1", "575.2")} and change.environment_run == change.run
    assert [bool(row.environment) for row in trend.rows] == [number == 7 for number in range(12)]


def test_a_change_of_environment_on_a_night_that_failed_belongs_to_the_new_level(tmp_path: Path) -> None:
    for number, run in enumerate(nights(12)):
        rate, driver = (100.0, "570.1") if number < 6 else (95.0, "575.2")
        failed = {"outcome": "crashed"} if number == 6 else {}
        write_run(tmp_path, launches(rate, host=host(driver), **failed), run=run)
    (change,) = trends_of(tmp_path)[0].changes
    assert change.run == nights(12)[7] and change.environment == {"host driver": ("570.1", "575.2")}


def test_a_change_of_environment_next_to_the_new_level_is_named_as_such(tmp_path: Path) -> None:
    for number, run in enumerate(nights(12)):
        write_run(tmp_path, launches(100.0 if number < 6 else 95.0, host=host("1" if number < 7 else "2")), run=run)
    (change,) = trends_of(tmp_path)[0].changes
    assert (change.run, change.environment_run) == (nights(12)[6], nights(12)[7])


def test_a_fact_that_a_night_lacks_is_no_change_of_environment(tmp_path: Path) -> None:
    drivers = ["570.1", None, "570.1", "570.1", "571.0"]
    for run, driver in zip(nights(5), drivers, strict=True):
        outcome = "build-failed" if run == nights(5)[2] else "ok"
        write_run(tmp_path, launches(100.0, host=host(driver), outcome=outcome), run=run)
    (trend,) = trends_of(tmp_path)
    assert [row.environment for row in trend.rows] == [{}, {}, {}, {}, {"host driver": ("570.1", "571.0")}]


def test_other_code_another_batch_and_other_packages_are_named(tmp_path: Path) -> None:
    first, second, third = nights(3)
    write_run(tmp_path, launches(100.0), run=first, workload_hash="a" * 64)
    write_run(tmp_path, launches(100.0, torch="2.7.1"), run=second, workload_hash="b" * 64)
    write_run(tmp_path, launches(100.0, torch="2.7.1", batch_used=2), run=third, workload_hash="b" * 64)
    _, changed, rebatched = trends_of(tmp_path)[0].rows
    assert changed.environment == {"box torch": ("2.5.1+cu124", "2.7.1"), "workload hash": ("a" * 12, "b" * 12)}
    assert rebatched.environment == {"batch per device": ("4", "2")}


def test_a_record_is_json_and_unknown_is_null(tmp_path: Path) -> None:
    write_run(tmp_path, [{"rate": 100.0}])
    record = json.loads(json.dumps(trends_of(tmp_path)[0].as_record(), allow_nan=False))
    assert record["change"] is None and record["runs"][0]["low"] is None and record["runs"][0]["throughput"] == 100.0


def test_long_lists_of_differences_are_cut_and_say_so(tmp_path: Path) -> None:
    differences = {f"package p{number}": ("1" * 99, "2") for number in range(5)}
    text = differences_in_words(differences)
    assert text.startswith(f"package p0 {'1' * 39}… -> 2, ") and text.endswith(", and 2 more")
