"""Comparing: verdicts by their limits, what may be compared, what differs."""

import math
from pathlib import Path
from typing import Any

import pytest

from support.records import write_run
from torchmatrix.analysis import compare
from torchmatrix.analysis.intervals import Interval, difference_verdict
from torchmatrix.analysis.machines import choose_launches
from torchmatrix.analysis.pairs import pair
from torchmatrix.core.errors import BadInput
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_at
from torchmatrix.facts.store import Results


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [
        (1.05, 1.03, 1.07, "FASTER"),
        (0.95, 0.93, 0.97, "SLOWER"),
        (1.005, 0.99, 1.015, "SAME"),
        (1.008, 1.002, 1.014, "SAME"),  # beyond its interval, but by less than a hundredth
        (1.05, 0.98, 1.12, "AMBIGUOUS"),
        (1.0, 0.97, 1.03, "AMBIGUOUS"),
        (1.5, math.nan, math.nan, "n/a"),
    ],
)
def test_a_verdict_needs_an_interval_that_supports_it(value: float, low: float, high: float, verdict: str) -> None:
    assert difference_verdict(Interval(value=value, low=low, high=high)) == verdict


def test_how_many_launches_would_settle_it_shrinks_as_the_difference_grows() -> None:
    base = [98.0, 100.0, 102.0]
    few = pair([103.0, 105.0, 107.0], base).settled_by()
    many = pair([100.0, 102.0, 104.0], base).settled_by()
    assert few is not None and many is not None and 2 <= few < many
    assert pair([100.0], base).settled_by() is None


def launches(tmp_path: Path, name: str, rates: tuple[float, ...], **more: Any) -> list[Launch]:
    return list(write_run(tmp_path / name, [{"rate": rate, **more} for rate in rates]).launches())


def sides(results: Results, a: str, b: str) -> compare.Comparison:
    """Compare the launches that two words name."""
    return compare.compare(choose_launches(results, a).launches, choose_launches(results, b).launches)


def test_the_ratio_is_a_over_b_with_interval_and_verdict(tmp_path: Path) -> None:
    a, b = launches(tmp_path, "a", (119.0, 120.0, 121.0)), launches(tmp_path, "b", (99.0, 100.0, 101.0))
    (row,) = compare.compare(a, b).rows
    assert row.ratio == pytest.approx((119 * 120 * 121 / (99 * 100 * 101)) ** (1 / 3))
    assert 1 < row.low < 1.2 < row.high and row.verdict == "FASTER" and row.launches == (3, 3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"workload_hash": "w2"}, "workload_hash (w1 and w2)"),
        ({"batch_used": 8}, "batch_used (4 and 8)"),
        ({"method": {"name": "aime", "statistic": "mean"}}, "method.name (steady and aime), method.statistic"),
        ({"method": {"name": "steady", "statistic": "median", "parallel": True}}, "method.parallel (False and True)"),
        ({"protocol": 2}, "protocol (1 and 2)"),
    ],
)
def test_what_is_not_the_same_work_is_refused_and_the_field_is_named(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    a, b = launches(tmp_path, "a", (100.0, 101.0)), launches(tmp_path, "b", (100.0, 101.0), **change)
    (row,) = compare.compare(a, b).rows
    assert row.refused is not None and field in row.refused and math.isnan(row.ratio) and row.verdict == "n/a"


def test_two_stacks_of_one_run_are_compared_workload_by_workload(tmp_path: Path) -> None:
    cells = [{"stack": stack, "rate": rate} for stack, base in (("old", 50.0), ("new", 100.0)) for rate in (base, base + 1)]
    write_run(tmp_path, cells)
    results = Results(tmp_path)
    (row,) = sides(results, "new", "last:old").rows
    assert row.ratio == pytest.approx(math.sqrt(100 * 101 / (50 * 51))) and row.label == "resnet50-train-fp32-b4/gpu0"


@pytest.mark.parametrize(("rounds", "paired", "verdict"), [(9, False, "AMBIGUOUS"), (12, True, "SAME")])
def test_from_ten_rounds_on_two_cells_of_a_run_are_compared_round_by_round(
    tmp_path: Path, rounds: int, paired: bool, verdict: str
) -> None:
    """The machine loses 3 % a round; the cells are the same within 1 %."""
    rates = [100.0 * 0.97**number for number in range(rounds)]
    cells = [{"stack": "a", "rate": rate * (1.01 if i % 2 else 1.0), "round": i + 1} for i, rate in enumerate(rates)]
    cells += [{"stack": "b", "rate": rate * (1.0 if i % 2 else 1.01), "round": i + 1} for i, rate in enumerate(rates)]
    write_run(tmp_path, cells)
    results = Results(tmp_path)
    (row,) = sides(results, "a", "b").rows
    assert row.paired is paired and row.verdict == verdict and row.launches == (rounds, rounds)
    assert (row.settle is None) is paired


def test_several_stacks_are_never_pooled_into_one_side(tmp_path: Path) -> None:
    cells = [{"stack": stack, "rate": rate} for stack, rate in (("old1", 50.0), ("old2", 150.0), ("new", 100.0))] * 2
    write_run(tmp_path, cells)
    results = Results(tmp_path)
    (row,) = sides(results, "old*", "new").rows
    assert row.refused == "A has several stacks (old1, old2): name one" and math.isnan(row.ratio)


def test_a_side_without_an_ok_launch_is_reported(tmp_path: Path) -> None:
    a, b = launches(tmp_path, "a", (100.0,), outcome="crashed"), launches(tmp_path, "b", (100.0,))
    (row,) = compare.compare(a, b).rows
    assert row.refused == "A has no launch that is ok" and row.failed == (1, 0)


def test_the_trial_of_a_batch_is_no_measurement(tmp_path: Path) -> None:
    (trial,) = write_run(tmp_path / "a", [{"trial": True}]).path.rglob("round1-try1.jsonl")
    a, b = [launch_at(trial.rename(trial.with_name("batch4-try1.jsonl")))], launches(tmp_path, "b", (100.0,))
    (row,) = compare.compare(a, b).rows
    assert row.refused is not None and "trial" in row.refused


def test_the_environments_difference_stands_beside_the_ratio(tmp_path: Path) -> None:
    a = launches(tmp_path, "a", (100.0, 101.0), host={"driver": "570.1", "kernel": "6.1", "name": "h"})
    b = launches(tmp_path, "b", (100.0, 101.0), host={"driver": "580.2", "kernel": "6.1", "name": "h"})
    assert compare.compare(a, b).environment == {"host driver": ("570.1", "580.2")}


def test_another_attention_that_ran_stands_beside_the_ratio(tmp_path: Path) -> None:
    def told(kind: str) -> list[dict[str, Any]]:
        rank = {"matmul": "fp32", "convolution": "fp32", "types": {"attention": [kind]}}
        return [{"event": "precision", "requested": "fp32", "effective": [rank], "changed": []}]

    a, b = (launches(tmp_path, name, (100.0, 101.0), told=told(kind)) for name, kind in (("a", "flash"), ("b", "eager")))
    assert compare.compare(a, b).environment == {"box attention that ran": ("flash", "eager")}


def test_files_folders_runs_and_stacks_can_be_named(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{}, {}])
    results = Results(tmp_path)
    file = next(run.path.rglob("round1*.jsonl"))
    words = {str(file): 1, str(file.parent): 2, run.id: 2, "last": 2, "stack-a": 2, f"{run.id}:stack-*": 2}
    assert {word: len(choose_launches(results, word).launches) for word in words} == words


@pytest.mark.parametrize("word", ["nosuch", "last~3", "last~²", "20990101T000000Z:stack-a"])
def test_a_name_that_means_nothing_says_what_there_is(tmp_path: Path, word: str) -> None:
    write_run(tmp_path, [{}])
    with pytest.raises(BadInput) as error:
        choose_launches(Results(tmp_path), word)
    assert "stack-a" in error.value.hint


def test_nothing_in_common_is_reported(tmp_path: Path) -> None:
    a, b = launches(tmp_path, "a", (100.0,)), launches(tmp_path, "b", (100.0,), workload="other", model="resnet18")
    with pytest.raises(BadInput, match="share no workload"):
        compare.compare(a, b)
