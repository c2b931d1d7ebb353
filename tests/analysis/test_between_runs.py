"""Two runs of one machine: their launches alone would tell them apart much too often."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.records import write_run
from torchmatrix.analysis import between_runs, compare
from torchmatrix.analysis.between_runs import Figure
from torchmatrix.analysis.history import variances_of_history
from torchmatrix.analysis.machines import choose_launches
from torchmatrix.analysis.pairs import pair
from torchmatrix.facts.store import Results
from torchmatrix.reporting import terminal


def write_nights(root: Path, levels: list[float]) -> Results:
    """Write a run a night, each with five launches."""
    for night, level in enumerate(levels, start=1):
        launches = [{"rate": level * share} for share in (0.998, 0.999, 1.0, 1.001, 1.002)]
        write_run(root, launches, run=f"202601{night:02d}T010000Z")
    return Results(root)


def compared(results: Results) -> compare.Comparison:
    both = [choose_launches(results, word).launches for word in ("last", "last~1")]
    return compare.compare(*both, between=variances_of_history(results, *both))


def test_without_history_a_verdict_holds_within_the_two_runs_and_says_how_much_more_it_takes(tmp_path: Path) -> None:
    comparison = compared(write_nights(tmp_path, [100.0, 102.0]))
    assert comparison.rows[0].verdict == "FASTER" and comparison.level == compare.TWO_RUNS and comparison.between is None
    text = terminal.comparison_in_words(comparison)
    assert "level: within these two runs" in text and "by 2.8 % to be reported" in text


def test_with_history_the_variance_of_runs_is_in_the_interval(tmp_path: Path) -> None:
    comparison = compared(write_nights(tmp_path, [100.0, 101.0, 99.5, 100.5, 99.0, 101.0, 100.0, 102.0]))
    assert comparison.level == compare.RUNS and comparison.between is not None and comparison.between.runs == 6
    assert comparison.rows[0].verdict == "AMBIGUOUS" and comparison.rows[0].low < 1 < comparison.rows[0].high
    assert "level: runs of this machine" in terminal.comparison_in_words(comparison)


def test_two_sides_of_one_run_need_no_history(tmp_path: Path) -> None:
    results = write_nights(tmp_path, [100.0, 101.0, 99.5, 100.5, 99.0])
    write_run(
        tmp_path, [{"stack": s, "rate": r} for s, r in (("a", 1.0), ("b", 1.1)) for _ in range(3)], run="20260201T010000Z"
    )
    both = [choose_launches(results, word).launches for word in ("b", "a")]
    assert variances_of_history(results, *both) is None and compare.compare(*both).level == compare.ONE_RUN


@pytest.mark.parametrize("nights", [6, 20])
def test_two_equal_runs_are_told_apart_in_five_of_a_hundred_cases_with_history_and_in_forty_without(nights: int) -> None:
    """Runs scatter by 1 %, launches by 0.5 %: three launches a run."""
    random = np.random.default_rng(nights)
    alarms = {"with": 0, "without": 0}
    for _ in range(600):
        runs = [100.0 * math.exp(random.normal(0, 0.01)) * np.exp(random.normal(0, 0.005, 3)) for _ in range(nights + 2)]
        figures = [between_runs.figure(rates.tolist(), place) for place, rates in enumerate(runs[2:])]
        estimate = between_runs.estimated({("cell", "work"): figures})
        difference = pair(runs[0].tolist(), runs[1].tolist())
        assert estimate is not None
        for name, ratio in (("without", difference), ("with", between_runs.widened(difference, estimate))):
            alarms[name] += ratio.interval.low > 1 or ratio.interval.high < 1
    assert alarms["with"] / 600 <= 0.07 and alarms["without"] / 600 > 0.25


def test_a_lasting_change_of_level_hardly_moves_the_scatter_between_runs() -> None:
    flat = [Figure(log=0.001 * (-1) ** n, squared_error=0.0, place=n) for n in range(20)]
    jumped = [*flat[:10], *(replace(figure, log=figure.log + 0.02) for figure in flat[10:])]
    estimates = [between_runs.estimated({("c", "w"): series}) for series in (flat, jumped)]
    assert estimates[0] and estimates[1] and estimates[0].scatter == pytest.approx(0.0014, abs=1e-4)
    assert estimates[1].scatter < 0.004 < np.std([figure.log for figure in jumped])


def nights(random: np.random.Generator, count: int, cells: int, scatter: np.ndarray, again: float = 0.0) -> np.ndarray:
    """Return mean logarithms of cells (rows) over the nights; each night correlates with the one before by `again`."""
    levels = random.normal(size=(cells, count))
    for night in range(1, count):
        levels[:, night] = again * levels[:, night - 1] + math.sqrt(1 - again**2) * levels[:, night]
    return scatter[:, None] * levels


def false_share(random: np.random.Generator, runs: int, lag: int, scatter: np.ndarray, again: float) -> np.ndarray:
    """Return by cell how often two of its nights, `lag` apart, are told apart although nothing changed."""
    alarms = np.zeros(len(scatter))
    for _ in range(60):
        logs = nights(random, runs + lag + 1, len(scatter), scatter, again)
        rates = [[(100 * np.exp(log + random.normal(0, 0.002, 3))).tolist() for log in row] for row in logs]
        two = (len(logs[0]) - 1 - lag, len(logs[0]) - 1)
        others = [night for night in range(len(logs[0])) if night not in two]
        series = {
            (str(cell), "w"): [between_runs.figure(row[night], place) for place, night in enumerate(others)]
            for cell, row in enumerate(rates)
        }
        spread = between_runs.estimated(series, lag)
        assert spread is not None
        for cell, row in enumerate(rates):
            ratio = between_runs.widened(pair(row[two[0]], row[two[1]]), spread.cells.get((str(cell), "w"), spread)).interval
            alarms[cell] += not ratio.low <= 1 <= ratio.high
    return alarms / 60


def test_a_noisy_cell_and_a_quiet_one_are_each_judged_by_their_own_nights() -> None:
    """One variance for all would tell noisy ones apart in a quarter of cases, and never find quiet ones the same."""
    scatter = np.repeat([0.003, 0.03], 10)
    alarms = false_share(np.random.default_rng(1), 12, 1, scatter, 0.0)
    assert alarms[:10].mean() <= 0.08 and alarms[10:].mean() <= 0.09


def test_runs_ten_apart_differ_by_more_where_nights_resemble_each_other() -> None:
    alarms = false_share(np.random.default_rng(2), 20, 10, np.repeat(0.01, 10), 0.9)
    assert alarms.mean() <= 0.06


def test_a_mean_over_cells_holds_how_runs_differ_once(tmp_path: Path) -> None:
    """All cells of a run share what a night did to it: sixteen of them say no more of it than one."""
    random = np.random.default_rng(3)
    for night in range(1, 11):
        level = 100 * math.exp(random.normal(0, 0.01))
        launches = [
            {"rate": level * share, "workload": f"w{cell}", "job": {"batch": cell + 1}}
            for cell in range(16) for share in (0.999, 1.0, 1.001)
        ]  # fmt: skip
        write_run(tmp_path, launches, run=f"202601{night:02d}T010000Z")
    results = Results(tmp_path)
    both = [choose_launches(results, word).launches for word in ("last", "last~1")]
    (mean,) = compare.compare(*both, between=variances_of_history(results, *both)).means
    (row, *_) = compare.compare(*both, between=variances_of_history(results, *both)).rows
    assert math.log(mean.high / mean.low) == pytest.approx(math.log(row.high / row.low), rel=0.1) and mean.verdict != "n/a"
    (untold,) = compare.compare(*both).means
    assert math.isnan(untold.low) and untold.verdict == "n/a" and untold.ratio == pytest.approx(mean.ratio)
