"""Gate: every verdict on recorded nights, the two-nights rule, the canary, its formats, and how often it is wrong."""

import json
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest

from support import PATIENCE_SECONDS, Command
from support.records import write_run
from torchmatrix.core.errors import BadInput, NothingSelected
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.nightly import gate
from torchmatrix.nightly.gate import Gate, GateOptions, JudgedCell, judge, learned, verdicts
from torchmatrix.nightly.gate.judged import accept, accepted_path, read_accepted, unreadable_record

CELL = "stack-a/resnet50-train-fp32-b4/gpu0"
CANARY = "canary/resnet50-train-fp32-b4/gpu0"
WEEK = (100.0, 100.5, 99.5, 100.3, 99.7, 100.2, 99.8)
"""The cell's value on seven nights; the limit that they set is 0.978."""


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def day(number: int) -> str:
    return f"202601{number:02d}T010000Z"


def three(value: float, **more: Any) -> list[dict[str, Any]]:
    """Return three launches with this median rate."""
    return [{"rate": value * pace, **more} for pace in (0.999, 1.0, 1.001)]


def write(root: Path, *launches_by_night: Sequence[dict[str, Any]], first: int = 1, **more: Any) -> list[RunFolder]:
    """Write one run a night."""
    return [write_run(root, list(launches), run=day(first + i), **more) for i, launches in enumerate(launches_by_night)]


def write_values(root: Path, *values: float, first: int = 1, **more: Any) -> None:
    write(root, *(three(value, **more) for value in values), first=first)


def judged(root: Path, baseline: str | None = None, **options: Any) -> Gate:
    runs = gate.read_runs(Results(root), nights=options.get("nights", 7), baseline=baseline)
    return judge(runs, GateOptions(named=baseline is not None, **options))


def only(night_gate: Gate, cell: str = CELL) -> JudgedCell:
    (judged_cell,) = [row for row in night_gate.cells if row.cell == cell]
    return judged_cell


def test_the_limit_is_learned_from_what_earlier_nights_were_off_from_their_own_baselines(tmp_path: Path) -> None:
    write_values(tmp_path, *WEEK, 100.4)
    tonight = judged(tmp_path)
    cell, logs = only(tonight), np.log(WEEK)
    variances = [1, 1 / 2, *(math.pi / (2 * n) for n in (3, 4, 5, 6, 7))]
    errors = [(logs[n] - np.median(logs[:n])) / math.sqrt(1 + variances[n - 1]) for n in range(1, 7)]
    scatter = math.sqrt(np.mean(np.square(errors)))
    (factor,) = learned.factors(np.array([6.0]), np.array([variances[6]]), np.zeros(1), cells=1)
    half = factor * scatter * math.sqrt(1 + variances[6])
    assert tonight.verdict == "PASS" and cell.verdict == "ok"
    assert (cell.ratio, cell.low, cell.high) == pytest.approx((100.4 / 100.0, math.exp(-half), math.exp(half)))
    assert cell.nights == tuple(day(n) for n in range(1, 8)) and cell.rule == "7 nights scatter by 0.37 %"
    assert factor == pytest.approx(learned.factor(6, variances[6]), rel=0.01)
    shown = half + 0.8416 * scatter * math.sqrt(1 + variances[6])
    assert cell.detectable == pytest.approx(1 - math.exp(-shown), rel=1e-4)
    assert "tonight would have shown a loss of 1.4 % in 4 of 5 cases" in verdicts.text(tonight)


@pytest.mark.parametrize(("freedom", "nights", "alike"), [(3, 3, 0.0), (6, 7, 0.0), (27, 7, 0.0), (27, 7, 0.5)])
def test_the_factor_lets_two_nights_in_a_row_fall_below_by_its_chance(freedom: int, nights: int, alike: float) -> None:
    random, draws, v = np.random.default_rng(freedom), 400_000, math.pi / (2 * nights)
    scatter = np.sqrt(random.chisquare(freedom, draws) / freedom)
    limit = random.normal(0, math.sqrt(v), draws) - learned.factor(freedom, v, alike, 0.01) * scatter * math.sqrt(1 + v)
    first, new = random.normal(size=draws), random.normal(size=draws)
    second = alike * first + math.sqrt(1 - alike**2) * new
    assert ((first < limit) & (second < limit)).mean() == pytest.approx(0.01, rel=0.06)


def test_a_limit_is_never_closer_than_the_tolerance(tmp_path: Path) -> None:
    write_values(tmp_path, *[100.0] * 7, 98.5)
    assert (only(judged(tmp_path)).low, only(judged(tmp_path)).verdict) == (0.99, "suspected")
    assert (only(judged(tmp_path, tolerance=0.02)).low, only(judged(tmp_path, tolerance=0.02)).verdict) == (0.98, "ok")


def test_the_night_s_figure_is_the_median_or_the_mean_as_the_method_says(tmp_path: Path) -> None:
    rates = [{"rate": rate} for rate in (90.0, 100.0, 101.0)]
    mean = [{**rate, "method": {"name": "aime", "statistic": "mean"}} for rate in rates]
    write(tmp_path / "a", rates, rates)
    write(tmp_path / "b", mean, mean)
    assert (only(judged(tmp_path / "a")).value, only(judged(tmp_path / "b")).value) == pytest.approx((100.0, 97.0))


@pytest.mark.parametrize(
    ("last_nights", "verdict", "whole"),
    [
        ((95.0,), "suspected", "PASS"),
        ((95.0, 95.3), "regression", "REGRESSION"),
        ((95.0, 100.1), "ok", "PASS"),
        ((95.0, 100.1, 95.0), "suspected", "PASS"),
        ((95.0, 95.3, 95.1), "regression", "REGRESSION"),
        ((99.0, 98.9), "ok", "PASS"),
        ((106.0,), "faster", "PASS"),
    ],
)
def test_slower_on_two_nights_in_a_row_is_a_regression(
    tmp_path: Path, last_nights: tuple[float, ...], verdict: str, whole: str
) -> None:
    write_values(tmp_path, *WEEK, *last_nights)
    tonight = judged(tmp_path)
    assert (only(tonight).verdict, tonight.verdict) == (verdict, whole)


def test_both_nights_of_a_regression_are_judged_by_the_nights_before_the_first(tmp_path: Path) -> None:
    write_values(tmp_path, *WEEK, 95.0, 95.3)
    cell = only(judged(tmp_path))
    assert cell.nights == tuple(day(n) for n in range(1, 8)) and not cell.strays
    assert (cell.ratio, *cell.before) == pytest.approx((0.953, 0.95))
    assert cell.why == "slower on 2 nights in a row"


def test_slower_nights_are_no_baseline_for_the_next(tmp_path: Path) -> None:
    write_values(tmp_path, *WEEK, 95.0, 95.3, 95.1, 95.2)
    cell = only(judged(tmp_path))
    assert cell.nights == tuple(day(n) for n in range(1, 8)) and cell.before == pytest.approx((0.95, 0.953, 0.951))
    assert cell.why == "slower on 4 nights in a row"


def test_a_bad_night_that_passed_does_not_widen_the_limit(tmp_path: Path) -> None:
    write_values(tmp_path, *WEEK, 90.0, *WEEK, 100.0)
    cell = only(judged(tmp_path))
    assert cell.strays == (day(8),) and cell.low > 0.98 and "1 left out as strays" in verdicts.figures(cell)


LOWER = (*WEEK, *(0.95 * value for value in WEEK), 95.0)


def test_a_lower_level_is_reported_every_night_and_never_becomes_the_baseline_by_itself(tmp_path: Path) -> None:
    write_values(tmp_path, *LOWER)
    cell = only(judged(tmp_path))
    assert cell.verdict == "regression" and cell.center == pytest.approx(100.0) and len(cell.before) == 7


def test_an_accepted_regression_is_reported_as_such_and_begins_a_new_baseline(tmp_path: Path) -> None:
    write_values(tmp_path, *LOWER)
    results, regressed_night = Results(tmp_path), judged(tmp_path)
    accepted = accept(results, regressed_night, ["stack-a/*"], "driver 580")
    runs = gate.read_runs(results)
    tonight = judge(runs, GateOptions(), accepted)
    assert tonight.verdict == "PASS" and only(tonight).verdict == "accepted" and "driver 580" in only(tonight).why
    write_values(tmp_path, 95.2, 94.9, 95.1, 90.0, 90.0, first=len(LOWER) + 1)
    later = gate.read_runs(results)
    assert read_accepted(results, later[-1].host) == accepted
    assert only(judge(later[:-2], GateOptions(), accepted)).verdict == "ok"
    assert only(judge(later, GateOptions(), accepted)).verdict == "regression"


@pytest.mark.parametrize(
    "damage", [lambda path: path.write_bytes(path.read_bytes().replace(b"driver", b"drover")), make_folder]
)
def test_a_damaged_record_accepts_nothing_and_is_reported(
    torchmatrix: Command, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    write_values(tmp_path / "results", *LOWER)
    assert torchmatrix("gate", "--accept", CELL, "--because", "driver 580").returncode == 0
    path = accepted_path(Results(tmp_path / "results"), "testhost")
    damage(path)
    done = torchmatrix("gate")
    assert done.returncode == 5 and f"{path.relative_to(tmp_path)} can't be read and is left out" in done.stderr
    again = torchmatrix("gate", "--accept", CELL, "--because", "driver 580")
    assert again.returncode == 2 and "is damaged" in again.stderr and "hint: restore it" in again.stderr


def test_a_run_dated_into_the_future_is_neither_judged_nor_a_night_before(tmp_path: Path) -> None:
    write_values(tmp_path, *WEEK, 100.4)
    usual = judged(tmp_path)
    write_run(tmp_path, three(50.0), run="20990101T000000Z", unix_seconds=4e9)
    assert judged(tmp_path) == usual and usual.run == day(8)
    with pytest.raises(BadInput, match="it isn't known when 20990101T000000Z began"):
        gate.read_runs(Results(tmp_path), "20990101T000000Z")
    named = judge(gate.read_runs(Results(tmp_path), "20990101T000000Z", baseline=day(8)), GateOptions(named=True))
    assert named.baseline == (day(8),) and math.isnan(named.started)


def test_accepting_a_run_dated_into_the_future_accepts_nothing(tmp_path: Path) -> None:
    write_values(tmp_path, *LOWER)
    tonight = judged(tmp_path)
    for started in (4e9, math.nan):
        assert accept(Results(tmp_path), replace(tonight, started=started), ["stack-a/*"], "a wrong clock") == {}


def test_the_verb_says_which_runs_it_never_takes_for_the_last(torchmatrix: Command, tmp_path: Path) -> None:
    write_values(tmp_path / "results", *WEEK, 100.4)
    write_run(tmp_path / "results", three(50.0), run="mine", unix_seconds=4e9)
    done = torchmatrix("gate")
    assert done.returncode == 0 and f"{day(8)} on testhost against 7 nights" in done.stdout
    assert "note: when testhost/mine began isn't known, or is still to come" in done.stderr


@pytest.mark.parametrize("change", [(b"driver 580", b"driver 581"), (b'"crc"', b'"CRC"'), (b"}\n", b"} \n")])
def test_the_record_of_accepted_regressions_is_read_whole_or_refused(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    write_values(tmp_path, *LOWER)
    results, night = Results(tmp_path), judged(tmp_path)
    accepted = accept(results, night, ["stack-a/*"], "driver 580")
    path = accepted_path(results, night.host)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_accepted(results, night.host) == accepted
    accept(results, night, ["stack-a/*"], "driver 580")
    path.write_bytes(path.read_bytes().replace(*change, 1))
    assert read_accepted(results, night.host) == {} and [file.path for file in unreadable_record(results, night.host)] == [path]


def test_what_is_not_slower_cant_be_accepted(tmp_path: Path) -> None:
    write_values(tmp_path, *WEEK, 100.0)
    with pytest.raises(BadInput, match="no slower cell matches"):
        accept(Results(tmp_path), judged(tmp_path), ["stack-a/*"], "no reason")


def test_a_slow_drift_is_reported_although_no_night_is_slower_than_the_ones_before(tmp_path: Path) -> None:
    steady, lost = (*WEEK, *WEEK), [0.998**night for night in range(1, 16)]
    write_values(tmp_path, *steady, *(share * value for share, value in zip(lost, [*WEEK, *WEEK, *WEEK], strict=False)))
    cell = only(judged(tmp_path))
    assert cell.verdict == "regression" and "slower little by little" in cell.why
    write_values(tmp_path / "flat", *steady, *steady)
    assert only(judged(tmp_path / "flat")).verdict == "ok"


def test_an_unfinished_run_is_incomplete_and_no_regression(tmp_path: Path) -> None:
    write_values(tmp_path, *WEEK)
    write(tmp_path, three(90.0), first=8, complete=False)
    assert judged(tmp_path).verdict == "INCOMPLETE"


def test_a_folder_dated_into_the_future_is_not_the_last_run(tmp_path: Path) -> None:
    runs = write(tmp_path, three(100.0), three(101.0))
    runs[0].path.rename(runs[0].path.with_name("20990101T010000Z"))
    assert Results(tmp_path).runs()[-1].id == runs[1].id


def test_strict_needs_one_night_only(tmp_path: Path) -> None:
    write_values(tmp_path, *WEEK, 95.0)
    tonight = judged(tmp_path, strict=True)
    assert tonight.verdict == "REGRESSION" and only(tonight).why == "slower on one night (--strict)"


def test_the_baseline_is_of_the_last_nights(tmp_path: Path) -> None:
    write_values(tmp_path, 50.0, 50.0, 50.0, *WEEK, 100.0)
    assert only(judged(tmp_path, nights=7)).nights[0] == day(4)
    tonight = judged(tmp_path, nights=3)
    assert tonight.baseline == only(tonight).nights == (day(8), day(9), day(10))


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [((96.0, 96.0), "ok"), ((94.0, 100.0), "ok"), ((100.0, 94.0), "suspected"), ((94.0, 94.0), "suspected")],
)
def test_before_three_nights_launches_decide_and_less_than_five_percent_is_no_regression(
    tmp_path: Path, rates: tuple[float, float], verdict: str
) -> None:
    write_values(tmp_path, 100.0, *(rates[:1] if rates[0] != rates[1] else ()), rates[1])
    cell = only(judged(tmp_path))
    assert cell.verdict == verdict and "how nights differ is unknown" in cell.rule


def test_the_first_nights_can_show_a_regression_too(tmp_path: Path) -> None:
    write_values(tmp_path, 100.0, 90.0, 90.2)
    cell = only(judged(tmp_path))
    assert cell.verdict == "regression" and cell.nights == (day(1),) and cell.low == pytest.approx(0.95)
    noisy = [{"rate": rate} for rate in (80.0, 90.0, 104.0)]
    write(tmp_path / "noisy", three(100.0), noisy, noisy)
    assert only(judged(tmp_path / "noisy")).verdict == "ok"


def test_single_launches_say_nothing_before_three_nights(tmp_path: Path) -> None:
    write(tmp_path / "a", [{"rate": 100.0}], [{"rate": 50.0}])
    tonight = judged(tmp_path / "a")
    assert (tonight.verdict, only(tonight).verdict) == ("NO-BASELINE", "n/a") and "unknown" in only(tonight).why
    write(tmp_path / "b", *([{"rate": rate}] for rate in (*WEEK, 90.0, 90.0)))
    assert only(judged(tmp_path / "b")).verdict == "regression"


def test_a_night_of_fewer_launches_may_differ_by_more(tmp_path: Path) -> None:
    week = [[{"rate": value * pace} for pace in (0.97, 1.0, 1.03)] for value in WEEK]
    write(tmp_path / "a", *week, week[0])
    write(tmp_path / "b", *week, [{"rate": 100.0}])
    assert only(judged(tmp_path / "b")).low < only(judged(tmp_path / "a")).low - 0.05


@pytest.mark.parametrize("outcome", ["oom", "crashed", "numerics", "build-failed", "timeout"])
def test_one_launch_that_fails_counts_at_once(tmp_path: Path, outcome: str) -> None:
    write(tmp_path, three(100.0), [*three(100.0)[:2], {"outcome": outcome}])
    tonight = judged(tmp_path)
    assert tonight.verdict == "REGRESSION" and only(tonight).verdict == "failed"
    assert only(tonight).why == f"1 of 3 launches: {outcome}: RuntimeError: boom" and Path(only(tonight).facts).is_file()


def test_failures_of_several_kinds_are_counted_by_kind(tmp_path: Path) -> None:
    kinds = ("unsupported", "crashed", "oom", "crashed")
    write(tmp_path, [{"outcome": kind} for kind in kinds], [{"outcome": kind} for kind in kinds])
    cell = only(judged(tmp_path))
    assert cell.verdict == "failed"  # what crashed could run
    assert cell.why.startswith("4 of 4 launches failed (1 unsupported, 2 crashed, 1 oom), the first: unsupported: ")


def test_a_failure_that_is_not_new_counts_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, three(100.0), [{"outcome": "oom"}], [{"outcome": "oom"}])
    assert only(judged(tmp_path)).why.endswith("it also failed on 1 of the 2 nights before")


def test_what_never_was_supported_is_no_regression(tmp_path: Path) -> None:
    bad = {"outcome": "unsupported", "stack": "old"}
    write(tmp_path / "a", [*three(100.0), bad], [*three(100.0), bad])
    assert judged(tmp_path / "a").verdict == "PASS"
    write(tmp_path / "b", three(100.0), [{"outcome": "unsupported"}])
    assert only(judged(tmp_path / "b")).verdict == "failed"


def test_a_planned_cell_without_a_measurement_is_missing(tmp_path: Path) -> None:
    write(tmp_path, [*three(100.0), *three(50.0, stack="b")])
    (run,) = write(tmp_path, three(100.0), first=2, complete=False)
    run.append("planned", cell="b/resnet50-train-fp32-b4/gpu0")
    tonight = judged(tmp_path)
    cell = only(tonight, "b/resnet50-train-fp32-b4/gpu0")
    assert tonight.verdict == "INCOMPLETE" and cell.verdict == "missing"
    assert cell.why == "planned, but not measured; the run is not finished"


@pytest.mark.parametrize(
    ("change", "verdict", "whole"),
    [
        ({}, "missing", "REGRESSION"),
        ({"matrix": "another"}, "removed", "PASS"),
        ({"command": "torchmatrix run stack-a*"}, "removed", "PASS"),
    ],
)
def test_a_cell_that_is_no_longer_planned_is_missing_unless_something_else_was_asked_for(
    tmp_path: Path, change: dict[str, str], verdict: str, whole: str
) -> None:
    write(tmp_path, [*three(100.0), *three(50.0, stack="b")])
    write(tmp_path, three(100.0), first=2, **change)
    tonight = judged(tmp_path)
    assert tonight.verdict == whole and only(tonight, "b/resnet50-train-fp32-b4/gpu0").verdict == verdict
    named = judged(tmp_path, baseline=day(1))
    assert only(named, "b/resnet50-train-fp32-b4/gpu0").verdict == "missing", "a run that was named holds what is to be there"


def test_a_skip_that_is_new_counts_and_an_old_one_does_not(tmp_path: Path) -> None:
    gone = "b/resnet50-train-fp32-b4/gpu0"
    write(tmp_path, [*three(100.0), *three(50.0, stack="b")], skips=[("c/x/gpu0", "no such GPU")])
    write(tmp_path, three(100.0), first=2, skips=[("c/x/gpu0", "no such GPU"), (gone, "driver 470 is too old")])
    tonight = judged(tmp_path)
    assert tonight.verdict == "REGRESSION" and [cell.cell for cell in tonight.cells] == [CELL, gone]
    assert only(tonight, gone).verdict == "skipped-now" and "driver 470 is too old" in only(tonight, gone).why


def test_interrupted_launches_are_missing_only_where_none_was_ok(tmp_path: Path) -> None:
    _, second = write(tmp_path, three(100.0), [*three(100.0), *three(50.0, stack="b")])
    for path in [*second.path.glob("b/*/*/*.jsonl"), *second.path.glob("stack-a/*/*/round3*.jsonl")]:
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    tonight = judged(tmp_path)
    assert only(tonight).verdict == "ok" and only(tonight, "b/resnet50-train-fp32-b4/gpu0").why == "interrupted or lost"


def test_a_new_cell_passes_and_the_first_run_has_no_baseline(tmp_path: Path) -> None:
    write(tmp_path, three(100.0))
    assert (judged(tmp_path).verdict, only(judged(tmp_path)).verdict) == ("NO-BASELINE", "new")
    write(tmp_path, [*three(100.0), *three(50.0, stack="b")], first=2)
    tonight = judged(tmp_path)
    assert tonight.verdict == "PASS" and only(tonight, "b/resnet50-train-fp32-b4/gpu0").why == "no night before measured it"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"workload_hash": "w2"}, "workload_hash (w1 and w2)"),
        ({"batch_used": 8}, "batch_used (4 and 8)"),
        ({"method": {"name": "cold", "statistic": "median"}}, "method.name (steady and cold)"),
        ({"job": {"steps": 60}}, "steps (50 and 60)"),
    ],
)
def test_nights_of_other_work_are_no_baseline(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    write_values(tmp_path, *WEEK)
    write_values(tmp_path, 70.0, first=8, **change)
    tonight = judged(tmp_path)
    assert tonight.verdict == "NO-BASELINE" and only(tonight).verdict == "new" and math.isnan(only(tonight).ratio)
    assert only(tonight).why == f"the baseline starts again; not comparable with {day(7)} and 6 more: they differ in {field}"
    write_values(tmp_path, 70.1, first=9, **change)
    assert (only(judged(tmp_path)).verdict, only(judged(tmp_path)).nights) == ("ok", (day(8),))
    assert only(judged(tmp_path, baseline=day(7))).verdict == "n/a"


def test_one_night_of_other_work_in_between_interrupts_nothing(tmp_path: Path) -> None:
    write_values(tmp_path, *WEEK[:6])
    write_values(tmp_path, 70.0, first=7, batch_used=8)
    write_values(tmp_path, 95.0, 95.0, first=8)
    cell = only(judged(tmp_path))
    assert cell.verdict == "regression" and day(7) not in cell.nights and f"not comparable with {day(7)}" in cell.why


def test_a_night_of_mixed_work_is_not_judged(tmp_path: Path) -> None:
    write(tmp_path, three(100.0), [{"rate": 50.0}, {"rate": 100.0, "workload_hash": "w2"}])
    assert only(judged(tmp_path)).verdict == "n/a" and "did different work" in only(judged(tmp_path)).why


def test_a_named_run_is_the_baseline_with_the_scatter_of_the_launches(tmp_path: Path) -> None:
    write_values(tmp_path, 100.0, 90.0, 97.0, 97.1)
    cell = only(judged(tmp_path, baseline=day(1)))
    assert cell.verdict == "regression" and cell.nights == (day(1),) and cell.low == 0.99
    assert (cell.ratio, *cell.before) == pytest.approx((0.971, 0.97))
    assert only(judged(tmp_path, baseline="last~1")).verdict == "ok"
    write_values(tmp_path / "b", 100.0, 97.0)
    assert only(judged(tmp_path / "b", baseline=day(1))).verdict == "suspected", "the night before is the baseline itself"
    assert only(judged(tmp_path / "b", baseline=day(1), strict=True)).verdict == "regression"


def test_against_a_named_run_too_the_nights_tell_what_is_usual(tmp_path: Path) -> None:
    noisy = [100.0 + offset for offset in (3.0, -3.0, 1.0, -2.0, 2.5, -1.0, 3.0, -2.5)]
    write_values(tmp_path, 100.0, *noisy, 96.0, 96.0)
    cell = only(judged(tmp_path, baseline=day(1)))
    assert cell.verdict == "ok" and cell.nights == (day(1),) and "9 nights scatter by" in cell.rule
    few = only(judge(gate.read_runs(Results(tmp_path), day(4), baseline=day(1)), GateOptions(named=True)))
    assert few.low == 0.99 and "how nights differ is unknown" in few.rule


def serving(rate: float, *requests: int) -> list[dict[str, Any]]:
    """Return launches of the same work, each with this number of requests: a single one has no median, and 0 is no request."""
    served = [{metric: [seconds] * count for metric, seconds in (("latency", 0.1), ("end-to-end", 0.2))} for count in requests]
    return [
        {"rate": rate, "job": {"mode": "infer", "requests": len(row["latency"])}, "served": row if row["latency"] else None}
        for row in served
    ]


@pytest.mark.parametrize("requests", [(1, 1, 1), (5, 1, 5), (0, 0, 0)])
def test_a_gated_metric_without_a_value_is_reported_and_counted(tmp_path: Path, requests: tuple[int, ...]) -> None:
    write(tmp_path, *(serving(value, 5, 5, 5) for value in WEEK), serving(100.0, *requests))
    tonight, left = judged(tmp_path), sum(count < 2 for count in requests)
    assert {cell.name.removeprefix(CELL): cell.verdict for cell in tonight.cells} == {
        "": "ok", " (latency_p50)": "n/a", " (end_to_end_p50)": "n/a",
    }  # fmt: skip
    assert tonight.cells[1].why == f"no latency_p50 in {left} of 3 ok launches; {day(7)} had one"
    assert (tonight.verdict, tonight.judged) == ("PASS", 1) and verdicts.record(tonight)["not_judged"] == 2
    assert "1 ok, 2 n/a; judged: 1 of 3 figures" in verdicts.text(tonight) and "(latency_p50)" in verdicts.text(tonight)
    assert ElementTree.fromstring(verdicts.junit(tonight)).get("skipped") == "2"


def test_a_night_without_the_metric_is_reported_as_no_baseline(tmp_path: Path) -> None:
    write(tmp_path, serving(100.0, 5, 5), serving(100.0, 1, 1), serving(100.0, 5, 5))
    by_metric = {cell.metric: cell for cell in judged(tmp_path).cells}
    assert by_metric["latency_p50"].nights == (day(1),)
    assert by_metric["latency_p50"].why == "no latency_p50 on 1 of the 2 nights before"


def test_a_metric_that_the_work_never_had_is_not_missed(tmp_path: Path) -> None:
    write(tmp_path, *(serving(value, 1, 1) for value in WEEK), serving(100.0, 1, 1))
    assert {cell.metric for cell in judged(tmp_path).cells} == {"throughput"}


def test_runs_that_can_t_be_compared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingSelected, match="no runs"):
        judged(tmp_path)
    write_values(tmp_path, 100.0, 100.0)
    for word, message in ((day(2), "its own baseline"), ("all", "names 2 runs"), ("nosuch", "no run nosuch")):
        with pytest.raises(BadInput, match=message):
            judged(tmp_path, baseline=word)


def test_other_hosts_and_experiments_in_between_are_no_nights(tmp_path: Path) -> None:
    cells = [three(100.0, stack=stack) for stack in "abcd"]
    for number in range(1, 4):
        write_run(tmp_path, [launch for cell in cells for launch in cell], run=day(number))
    for number in range(4, 8):
        write_run(tmp_path, three(50.0, stack="a"), run=day(number), command="torchmatrix run a/*")
        write_run(tmp_path, three(10.0, stack="a"), run=f"202601{number:02d}T020000Z", folder="other")
    write_run(tmp_path, [launch for cell in cells for launch in cell], run=day(9))
    tonight = judged(tmp_path, nights=2)
    assert tonight.host == "testhost" and tonight.baseline == (day(2), day(3)) and tonight.verdict == "PASS"


def with_canary(root: Path, canary: float, cell: float, **more: Any) -> Gate:
    """Judge a week, then two nights on which both cells have these ratios; on the first of them only if they are slower."""
    for number, value in enumerate(WEEK, 1):
        write_run(root, [*three(value), *three(value, stack="canary")], run=day(number))
    for number, highest in ((8, 1.0), (9, math.inf)):
        ratios = min(cell, highest), min(canary, highest)
        cells = [*three(100.0 * ratios[0]), *three(100.0 * ratios[1], stack="canary", **more)]
        write_run(root, cells, run=day(number))
    return judged(root, canary=("canary/*",))


@pytest.mark.parametrize(
    ("canary", "cell", "cause", "words"),
    [
        (0.969, 0.95, "machine", f"canary {CANARY} is 3.1 % slower, too"),
        (1.001, 0.95, "software", f"canary {CANARY} moved by +0.1 %, within its limits"),
        (1.05, 0.95, "software", f"canary {CANARY} is 5.0 % faster"),
        (1.05, 1.05, "machine", f"canary {CANARY} is 5.0 % faster, too"),
    ],
)
def test_the_canary_tells_the_machine_from_the_software(
    tmp_path: Path, canary: float, cell: float, cause: str, words: str
) -> None:
    slower = only(with_canary(tmp_path, canary, cell))
    assert (slower.cause, slower.cause_why) == (cause, words)


def test_a_regression_of_the_machine_is_a_regression(tmp_path: Path) -> None:
    tonight = with_canary(tmp_path, 0.95, 0.95)
    assert tonight.verdict == "REGRESSION" and only(tonight, CANARY).verdict == "regression"
    assert (only(tonight, CANARY).cause, only(tonight, CANARY).cause_why) == ("machine", "it is the canary")


def test_a_canary_that_was_upgraded_tells_nothing(tmp_path: Path) -> None:
    cell = only(with_canary(tmp_path, 0.95, 0.95, torch="2.9.0"))
    assert cell.cause == "unclear" and "its own software has changed: box torch" in cell.cause_why


def test_a_canary_that_failed_tells_of_failures_only(tmp_path: Path) -> None:
    week = [[*three(value), *three(value, stack="canary"), *three(value, stack="b")] for value in WEEK]
    bad = [*three(90.0), {"outcome": "crashed", "stack": "canary"}, {"outcome": "crashed", "stack": "b"}]
    write(tmp_path, *week, bad)
    tonight = judged(tmp_path, canary=("canary/*",))
    assert (only(tonight).cause, only(tonight).cause_why) == ("unclear", f"canary {CANARY} failed")
    assert only(tonight, "b/resnet50-train-fp32-b4/gpu0").cause == "machine"


def test_a_canary_that_moved_leaves_the_cause_of_a_failure_open(tmp_path: Path) -> None:
    week = [[*three(value), *three(value, stack="canary")] for value in WEEK]
    write(tmp_path, *week, [{"outcome": "oom"}, *three(80.0, stack="canary")])
    tonight = judged(tmp_path, canary=("canary/*",))
    assert only(tonight).verdict == "failed" and only(tonight).cause == "unclear" and "slower" in only(tonight).cause_why


def test_a_canary_on_the_cell_s_own_device_comes_first(tmp_path: Path) -> None:
    def cells(first: float, second: float) -> list[dict[str, Any]]:
        canaries = [*three(first, stack="canary"), *three(second, stack="canary", devices=(1,))]
        return [*three(first), *three(first, devices=(1,)), *canaries]

    write(tmp_path, *(cells(value, value) for value in WEEK), cells(95.0, 100.0), cells(95.0, 100.0))
    tonight = judged(tmp_path, canary=("canary/*",))
    assert only(tonight).cause == "machine" and only(tonight, CELL.replace("gpu0", "gpu1")).cause == "software"


def test_a_canary_that_is_no_cell_is_refused(tmp_path: Path) -> None:
    write_values(tmp_path, 100.0, 100.0)
    with pytest.raises(BadInput, match="no cell matches the canary nosuch") as error:
        judged(tmp_path, canary=("nosuch*",))
    assert "stack-a" in error.value.hint


def test_what_changed_since_the_baseline_stands_beside_the_regression(tmp_path: Path) -> None:
    write_values(tmp_path, *WEEK, host={"driver": "570.1", "kernel": "6.1"})
    write_values(tmp_path, 95.0, 95.0, first=8, host={"driver": "580.2", "kernel": "6.1"})
    tonight = judged(tmp_path)
    assert only(tonight).changes == {"host driver": ("570.1", "580.2")}
    assert f"stack-a: changed since {day(7)}:\n  host driver: 570.1 -> 580.2" in verdicts.text(tonight)


def test_throttling_is_named_as_the_reason_of_a_slower_cell(tmp_path: Path) -> None:
    reading = {"device": "GPU-0", "temperature_celsius": 90, "reasons": ["hw_slowdown"]}
    hot = three(95.0, readings=[(float(t), reading) for t in range(100, 120)])
    write(tmp_path, *(three(value) for value in WEEK), hot)
    assert "the devices were throttled in 3 of 3 launches" in only(judged(tmp_path)).why


BESIDE_A_BACKUP = [{"run_seconds": 3.0, "wait_seconds": 1.0, "cpus": "0", "busy_seconds": 4.0, "stolen_seconds": 0.0}]


@pytest.mark.parametrize("nights", [1, 2, 4])
def test_a_night_that_a_backup_disturbed_is_no_regression_and_no_new_normal(tmp_path: Path, nights: int) -> None:
    slow = three(70.0, sharing=BESIDE_A_BACKUP)
    write(tmp_path, *(three(value) for value in WEEK), *[slow] * nights)
    tonight = only(judged(tmp_path))
    assert tonight.verdict == "n/a" and "other programs disturbed 3 of 3 launches of this night" in tonight.why
    write(tmp_path, three(100.0), first=len(WEEK) + nights + 1)
    assert only(judged(tmp_path)).verdict == "ok" and only(judged(tmp_path)).ratio == pytest.approx(1.0, abs=0.02)
    write(tmp_path, three(70.0), first=len(WEEK) + nights + 2)
    assert only(judged(tmp_path)).verdict == "suspected", "slow and not disturbed"


def regressed(root: Path) -> Gate:
    """Judge one regression, one suspicion, one failure, one new cell, one that is ok."""
    for number, value in enumerate((*WEEK, 95.0, 95.3), 1):
        usual = value if number <= len(WEEK) else 100.0
        others = [*three(95.0 if number == 9 else usual, stack="b"), *three(usual, stack="c"), *three(100.0, stack="d")]
        if number == 9:
            others[-1] = {"outcome": "crashed", "stack": "d"}
            others += three(1.0, stack="e")
        write_run(root, [*three(value), *others], run=day(number))
    return judged(root)


def test_the_text_begins_with_the_verdict_and_says_what_to_do(tmp_path: Path) -> None:
    tonight = regressed(tmp_path)
    lines = verdicts.text(tonight, Path("elsewhere")).splitlines()
    assert lines[0] == f"REGRESSION 2 of 5 cells: {day(9)} on testhost against 7 nights before"
    assert lines[1] == "1 regression, 1 suspected, 1 ok, 1 failed, 1 new; judged: 4 of 5 figures"
    assert lines[2].startswith("tonight would have shown a loss of 1.4 % in 4 of 5 cases (median of 3 figures; worst: 1.5 % ")
    assert lines[3].startswith(f"regression  {CELL}  0.9530 of the baseline (slower below 0.9881: ")
    assert lines[3].endswith("7 nights scatter by 0.36 %, moderated by 3 cells), nights before: 0.9500")
    assert f"  repeat: torchmatrix reproduce {CELL} --results elsewhere" in lines
    assert f"  compare: torchmatrix compare testhost/{day(9)}:stack-a testhost/{day(7)}:stack-a --results elsewhere" in lines
    assert "new         e/resnet50-train-fp32-b4/gpu0: no night before measured it" in lines
    assert not any("c/resnet50" in line for line in lines)


def test_the_headline_counts_what_counts(tmp_path: Path) -> None:
    tonight = regressed(tmp_path)
    assert sum(cell.counts for cell in tonight.cells) == 2
    assert verdicts.headline(tonight).startswith("REGRESSION 2 of 5 cells")


def test_many_cells_of_one_reason_take_one_line(tmp_path: Path) -> None:
    write(tmp_path, [launch for stack in "abcdefgh" for launch in three(100.0, stack=stack)])
    lines = verdicts.text(judged(tmp_path)).splitlines()
    assert lines[2] == "new         a/resnet50-train-fp32-b4/gpu0 and 7 more: no night before measured it"
    assert lines[-1].startswith("the baseline must be an earlier run") and len(lines) == 4


def test_the_record_is_json_without_nan(tmp_path: Path) -> None:
    record = json.loads(json.dumps(verdicts.record(regressed(tmp_path)), allow_nan=False))
    assert record["verdict"] == "REGRESSION" and record["text"].startswith("REGRESSION 2 of 5")
    cells = {cell["cell"]: cell for cell in record["cells"]}
    assert cells[CELL]["counts"] and cells[CELL]["ratio"] == pytest.approx(0.953)
    assert cells["e/resnet50-train-fp32-b4/gpu0"]["ratio"] is None


def test_junit_has_a_testcase_per_cell(tmp_path: Path) -> None:
    root = ElementTree.fromstring(verdicts.junit(regressed(tmp_path)))
    suite = root[0]
    assert {**suite.attrib, "name": ""} == {
        "name": "", "tests": "5", "failures": "2", "errors": "0", "skipped": "1", "hostname": "testhost",
        "timestamp": "2026-01-09T01:00:00",
    }  # fmt: skip
    cases = {case.get("name"): case for case in suite}
    failure = cases[CELL].find("failure")
    assert failure is not None and failure.get("type") == "regression" and "0.9530" in (failure.get("message") or "")
    assert "torchmatrix compare" in (failure.text or "")
    assert cases["d/resnet50-train-fp32-b4/gpu0"].find("failure") is not None
    assert cases["e/resnet50-train-fp32-b4/gpu0"].find("skipped") is not None
    passed = cases["b/resnet50-train-fp32-b4/gpu0"]
    assert passed.find("failure") is None and "suspected" in (passed.findtext("system-out") or "")


def test_markdown_has_a_row_per_cell_with_those_that_count_first(tmp_path: Path) -> None:
    page = verdicts.markdown(regressed(tmp_path))
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert page.startswith("### torchmatrix gate: REGRESSION") and len(rows) == 2 + 5
    assert rows[2].startswith(f"| regression | `{CELL}` | 0.9530 | 0.9881 |") and rows[3].startswith("| failed |")
    assert all(line.count("|") == 7 for line in rows)


HOSTILE = (
    "x|y`z```</td><script>alert(1)</script> @everyone [a](http://b) \x1b[31m\x00\x08\u202e\ud800 ]]>\n"
    "| fake | row |\n```\n# big"
)


def test_hostile_words_are_inert_in_every_format() -> None:
    cells = tuple(
        JudgedCell(
            cell=HOSTILE, verdict=verdict, why=HOSTILE, stack=HOSTILE, rule=HOSTILE, ratio=0.9, low=0.95, nights=(HOSTILE,),
            changes={HOSTILE: (HOSTILE, HOSTILE)}, facts=HOSTILE, cause="unclear", cause_why=HOSTILE,
        )
        for verdict in ("regression", "failed", "missing", "suspected", "new")
    )  # fmt: skip
    tonight = Gate(run=HOSTILE, host=HOSTILE, started=0.0, complete=True, baseline=(), options=GateOptions(), cells=cells)
    text = verdicts.text(tonight, Path(HOSTILE.replace("\x00", "")))
    assert all(c.isprintable() or c == "\n" for c in text) and "\n| fake" not in text and "\n#" not in text
    root = ElementTree.fromstring(verdicts.junit(tonight))
    failure = root[0][0].find("failure")
    assert failure is not None and "<script>" in failure.get("message", "") and len(root[0]) == len(cells)
    page = verdicts.markdown(tonight)
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(cells) and all(row.count("|") == 7 for row in rows)
    for span in rows[2].split("|")[2:7:3]:
        assert span.strip().startswith("```` ") and span.strip().endswith(" ````") and "````" not in span.strip()[4:-4]
    assert page.count("\n```") == 2, "the details stand in one fence"


def recorder(path: Path, more: str = "") -> str:
    """Return a command that writes its input and variables to `path`."""
    script = path.with_suffix(".py")
    script.write_text(
        "import json, os, sys\n"
        "names = ('TORCHMATRIX_VERDICT', 'TORCHMATRIX_RUN')\n"
        f"told = {{'stdin': json.load(sys.stdin), **{{name: os.environ[name] for name in names}}}}\n"
        f"open({str(path)!r}, 'w').write(json.dumps(told))\n" + more
    )
    return shlex.join([sys.executable, str(script)])


def test_a_hook_sees_the_documented_variables_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "UV_INDEX_SITE_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "TORCHMATRIX_MIRRORS",
        "TORCHMATRIX_HOOK_KEY",
        "https_proxy",
    ):
        monkeypatch.setenv(name, "said")
    output = tmp_path / "seen"
    assert verdicts.call_hook(f"env > {output}", {"verdict": "REGRESSION", "run": "r"}) is None
    names = {line.partition("=")[0] for line in output.read_text().splitlines()}
    assert {"TORCHMATRIX_HOOK_KEY", "TORCHMATRIX_VERDICT", "TORCHMATRIX_RUN", "PATH", "https_proxy"} <= names
    assert names.isdisjoint({"UV_INDEX_SITE_PASSWORD", "AWS_SECRET_ACCESS_KEY", "TORCHMATRIX_MIRRORS"})


def test_the_hook_receives_the_verdict(tmp_path: Path) -> None:
    record = verdicts.record(regressed(tmp_path / "results"))
    assert verdicts.call_hook(recorder(tmp_path / "told.json"), record) is None
    received = json.loads((tmp_path / "told.json").read_text())
    assert received["stdin"] == json.loads(json.dumps(record))
    assert (received["TORCHMATRIX_VERDICT"], received["TORCHMATRIX_RUN"]) == ("REGRESSION", day(9))


@pytest.mark.parametrize(
    ("command", "seconds", "problem"),
    [
        ("exit 3", PATIENCE_SECONDS, "exit code 3"),
        ("nosuchcommand", PATIENCE_SECONDS, "exit code 127"),
        ("sleep 6000 & sleep 6000", 0.2, "longer than 0.2 s"),
    ],
)
def test_a_failing_hook_is_reported(command: str, seconds: float, problem: str) -> None:
    why = verdicts.call_hook(command, {"verdict": "REGRESSION", "run": "r", "much": "x" * 1_000_000}, timeout_seconds=seconds)
    assert why is not None and problem in why


def test_the_command_reports_the_verdict_by_its_exit_code(
    torchmatrix: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    nothing = torchmatrix("gate")
    assert nothing.returncode == 3 and "no runs" in nothing.stderr and "torchmatrix run" in nothing.stderr
    write_values(results, WEEK[0])
    first = torchmatrix("gate")
    assert first.returncode == 3 and first.stdout.startswith("NO-BASELINE 1 cell") and "torchmatrix run --new" in first.stdout
    write_values(results, *WEEK[1:], 95.0, first=2)
    assert torchmatrix("gate").returncode == 0
    write_values(results, 95.1, first=9)
    hook = recorder(tmp_path / "told.json", more="print('posted'); sys.exit(7)")
    done = torchmatrix("gate", "--json", "--junit", "out/junit.xml", "--markdown", "out/gate.md", "--hook", hook)
    assert done.returncode == 5 and json.loads(done.stdout)["cells"][0]["verdict"] == "regression"
    assert "posted" in capfd.readouterr().err  # the hook is a process of its own and writes to descriptor 2
    assert "warning: the hook ended with exit code 7" in done.stderr
    assert json.loads((tmp_path / "told.json").read_text())["TORCHMATRIX_VERDICT"] == "REGRESSION"
    assert ElementTree.parse(tmp_path / "out/junit.xml").getroot()[0].get("failures") == "1"
    assert CELL in (tmp_path / "out/gate.md").read_text()
    (tmp_path / "told.json").unlink()
    before = torchmatrix("gate", "last~1", "--hook", hook)
    assert before.returncode == 0 and before.stdout.startswith("PASS 1 cell") and not (tmp_path / "told.json").exists()
    wrong = torchmatrix("gate", "--canary", "nosuch")
    assert wrong.returncode == 2 and "no cell matches the canary" in wrong.stderr
    assert torchmatrix("gate", "--baseline", day(1)).returncode == 5
    assert torchmatrix("gate", "--baseline", day(1), "--tolerance", "6").returncode == 0
    unwritable = torchmatrix("gate", "--junit", "results", "--hook", hook)
    assert unwritable.returncode == 4 and (tmp_path / "told.json").exists(), (
        "the hook is called although a file can't be written"
    )


def test_two_acceptances_at_once_are_both_read(tmp_path: Path) -> None:
    (tmp_path / "testhost").mkdir()
    results, names = Results(tmp_path), [f"stack/w{number}/gpu0" for number in range(24)]

    def add(name: str) -> None:
        accept(results, made_of(name), [name], "driver 580")

    def made_of(name: str) -> Gate:
        cells = (JudgedCell(cell=name, verdict="regression"),)
        return cast(Gate, SimpleNamespace(host="testhost", run="r", started=1e9, cells=cells))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, names))
    assert unreadable_record(results, "testhost") == [] and sorted(read_accepted(results, "testhost")) == sorted(names)
