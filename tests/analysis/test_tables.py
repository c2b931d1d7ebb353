"""Figures of the tables: throughput, intervals, scale factors, speed-ups, against values worked out by hand."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.records import write_run
from torchmatrix.analysis import run_summary as run_tables
from torchmatrix.analysis import scaling
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.launch_row import columns_of
from torchmatrix.analysis.pairs import pair
from torchmatrix.analysis.speedups import speedup_table


def tables(tmp_path: Path, launches: list[dict]) -> tuple:
    """Return the tables of launches, cells, scaling and speed-ups, for pandas."""
    rows = run_tables.launch_rows(write_run(tmp_path, launches).launches())
    cells = CellIndex(rows)
    computed = (
        list(map(columns_of, rows)),
        list(map(columns_of, run_tables.cells_table(cells.every))),
        scaling.scaling_table(cells),
        [ratio.columns() for ratio in speedup_table(cells)],
    )
    return tuple(pd.DataFrame(rows, dtype=object) for rows in computed)


def test_throughput_is_all_items_over_the_slowest_rank_without_warm_up(tmp_path: Path) -> None:
    table, *_ = tables(tmp_path, [{"rate": 320.0, "devices": (0, 1)}])
    assert table["throughput"].tolist() == pytest.approx([320.0])
    assert table["per_device"].tolist() == pytest.approx([160.0])


def test_a_cell_has_the_median_the_t_interval_and_a_verdict(tmp_path: Path) -> None:
    _, cells, *_ = tables(tmp_path, [{"rate": rate} for rate in (98.0, 100.0, 105.0)])
    row = cells.iloc[0]
    assert row["throughput"] == pytest.approx(100.0) and row["n"] == 3
    half = 1.025 * 4.302653 * 3.605551 / math.sqrt(3)  # of a median of three, t(2, 0.975), their standard deviation
    assert (row["low"], row["high"]) == pytest.approx((100 - half, 100 + half), rel=1e-6)
    assert row["cv"] == pytest.approx(3.605551 / 101, rel=1e-6) and row["verdict"] == "noisy"


def test_two_launches_that_differ_much_have_no_limit_below_0(tmp_path: Path) -> None:
    _, cells, *_ = tables(tmp_path, [{"rate": 10.0}, {"rate": 14.0}])
    row = cells.iloc[0]
    assert (row["low"], row["high"]) == (0.0, pytest.approx(12 + 12.706205 * 2, rel=1e-6))


def test_one_launch_has_no_interval_and_no_verdict(tmp_path: Path) -> None:
    _, cells, *_ = tables(tmp_path, [{}])
    assert math.isnan(cells.iloc[0]["low"]) and cells.iloc[0]["verdict"] == "n/a"


@pytest.mark.parametrize("outcome", ["oom", "crashed", "numerics", "unsupported", "build-failed"])
def test_a_number_never_comes_from_a_failed_launch(tmp_path: Path, outcome: str) -> None:
    table, cells, scales, _ = tables(tmp_path, [{}, {"devices": (0, 1), "outcome": outcome}])
    failed = table[table["devices"] == "gpu0+1"]
    assert failed["throughput"].isna().all() and failed["outcome"].tolist() == [outcome]
    assert cells["failed"].tolist() == [0, 1] and cells["n"].tolist() == [1, 0]
    assert scales["S"].isna().all()


def test_scale_factors_are_defined_as_in_the_report(tmp_path: Path) -> None:
    launches = [{"rate": r} for r in (99.0, 100.0, 101.0)]
    launches += [{"rate": 3.25 * r, "devices": (0, 1, 2, 3)} for r in (99.0, 100.0, 101.0)]
    *_, scales, _ = tables(tmp_path, launches)
    row = scales.iloc[0]
    assert (row["S"], row["E"], row["s"]) == pytest.approx((3.25, 0.8125, 0.75))
    assert row["baseline"].endswith("/gpu0") and not row["impossible"]
    assert row["S_low"] < 3.25 < row["S_high"]
    assert row["E_low"] == pytest.approx(row["S_low"] / 4) and row["s_high"] == pytest.approx((row["S_high"] - 1) / 3)


def test_a_ratio_has_welchs_interval_on_the_logarithms() -> None:
    from scipy.stats import ttest_ind  # takes a second to import, in each process that tests

    above, below = [110.0, 112.0, 111.0], [100.0, 101.0, 99.0]
    ratio = pair(above, below).interval
    limits = ttest_ind(np.log(above), np.log(below), equal_var=False).confidence_interval(0.95)
    assert (ratio.value, ratio.high / ratio.low) == pytest.approx(
        (math.exp(np.log(above).mean() - np.log(below).mean()), math.exp(limits.high - limits.low))
    )
    assert ratio.high / ratio.value == pytest.approx(ratio.value / ratio.low)


def test_the_baseline_is_the_first_of_the_very_gpus_used(tmp_path: Path) -> None:
    launches = [{"rate": 100.0}, {"rate": 80.0, "devices": (2,)}, {"rate": 160.0, "devices": (2, 3)}]
    *_, scales, _ = tables(tmp_path, launches)
    assert scales.iloc[0]["S"] == pytest.approx(2.0) and scales.iloc[0]["baseline"].endswith("/gpu2")


def test_efficiency_above_the_possible_is_flagged_not_celebrated(tmp_path: Path) -> None:
    single, pair = {"rate": 100.0}, {"rate": 210.0, "devices": (0, 1)}
    *_, scales, _ = tables(tmp_path / "a", [single, single, pair, pair])
    assert scales["impossible"].tolist() == [True]
    *_, scales, _ = tables(tmp_path / "b", [single, pair])
    assert scales["impossible"].tolist() == [False], "of single launches nobody knows the noise"
    *_, scales, _ = tables(tmp_path / "c", [single, pair | {"rate": 230.0}])
    assert scales["impossible"].tolist() == [True], "above 1.10 it isn't noise"


def test_a_missing_baseline_gives_no_factor(tmp_path: Path) -> None:
    *_, scales, _ = tables(tmp_path, [{"rate": 200.0, "devices": (0, 1)}])
    assert scales["S"].isna().all()


def test_speed_ups_are_over_the_first_stack_that_has_a_number(tmp_path: Path) -> None:
    launches = [{"stack": "old", "outcome": "crashed"}, {"stack": "mid", "rate": 50.0}, {"stack": "new", "rate": 100.0}]
    *_, speedups = tables(tmp_path, launches)
    with_ratio = speedups.dropna(subset=["ratio"])
    assert dict(zip(with_ratio["stack"], with_ratio["ratio"], strict=True)) == pytest.approx({"mid": 1.0, "new": 2.0})
    assert set(speedups["baseline"]) == {"mid"}


def test_nothing_at_all_gives_empty_tables(tmp_path: Path) -> None:
    assert all(len(table) == 0 for table in tables(tmp_path, []))


def test_a_value_that_a_failed_cell_lacks_is_none_in_the_table(tmp_path: Path) -> None:
    table, cells, *_ = tables(tmp_path, [{}, {"stack": "b", "outcome": "build-failed"}])
    for rows in (table, cells):
        by_stack = rows.set_index("stack")
        assert by_stack["effective"].to_dict() == {"stack-a": "fp32", "b": None} and by_stack["torch_build"]["b"] is None


def test_a_lone_surrogate_in_the_facts_breaks_no_table(tmp_path: Path) -> None:
    table, *_ = tables(tmp_path, [{"outcome": "crashed", "error": "\ud83d and \ud800"}])
    assert table["error"].tolist() == ["? and ?"]


def test_a_cell_says_which_difference_it_could_have_seen(tmp_path: Path) -> None:
    """Two cells of three launches each, with a scatter of 1 %, by Student's t with four degrees of freedom."""
    _, cells, *_ = tables(tmp_path / "a", [{"rate": 100.0 * math.exp(0.01 * z)} for z in (-1, 0, 1)])
    error = 0.01 * math.sqrt(2 / 3)
    assert cells["detectable"].tolist() == pytest.approx([math.exp((2.776445 + 0.841621) * error) - 1], rel=1e-4)
    _, cells, *_ = tables(tmp_path / "b", [{"rate": 100.0}] * 3)
    assert cells["detectable"].tolist() == [0.01], "less is not called a difference"
    _, cells, *_ = tables(tmp_path / "c", [{}])
    assert cells["detectable"].isna().all()


@pytest.mark.parametrize(
    ("rates", "outliers"),
    [
        ((100.0, 100.4, 99.7, 100.1, 90.0), 1),
        ((100.0, 100.4, 99.7, 100.1, 99.0), 0),
        ((100.0, 100.4, 90.0), 0),
        ((100.0, 100.0, 100.0, 100.0, 90.0), 0),
    ],
    ids=["one far away", "none", "too few to tell", "most are equal"],
)
def test_launches_far_from_the_others_are_counted_and_kept(tmp_path: Path, rates: tuple[float, ...], outliers: int) -> None:
    _, cells, *_ = tables(tmp_path, [{"rate": rate} for rate in rates])
    assert cells["outliers"].tolist() == [outliers] and cells["n"].tolist() == [len(rates)]


def test_what_ran_as_attention_has_a_column_and_what_is_no_kind_of_it_does_not_reach_it(tmp_path: Path) -> None:
    def told(**types: object) -> tuple[dict[str, object], ...]:
        return ({"event": "precision", "effective": [{"matmul": "fp32", "convolution": "fp32", **types}]},)

    seen = {"a": told(types={"attention": ["flash", "/home/me", "math"]}), "b": told(types={"attention": None}), "c": told()}
    launches = [{"rate": 100.0, "stack": stack, "told": events} for stack, events in seen.items()]
    _, cells, *_ = tables(tmp_path, launches)
    found = cells.set_index("stack")["attention_kernels"].to_dict()
    assert found == {"a": "flash, math", "b": None, "c": None}


def test_a_model_of_several_types_is_mixed_and_its_mfu_is_weighted_and_a_changed_setting_is_reported(tmp_path: Path) -> None:
    mixed = "mixed: bfloat16 75 %, float32 25 %"
    ranks = [{"matmul": "fp32", "convolution": "fp32"}, {"matmul": "fp32", "convolution": "fp32", "mixed": mixed}]
    events = (
        {"event": "precision", "effective": ranks, "changed": ["deterministic_algorithms: False, then True"]},
        {"event": "remarks", "texts": ["the inputs are zeros", "compiled in part: forward runs in eager mode"]},
    )
    launches = [
        {"rate": 100.0, "flops": 67e9, "devices": (0, 1), "told": events},
        {"rate": 100.0, "flops": 67e9, "stack": "plain"},
    ]
    weighed = ranks[1] | {"types": {"flops": {"bfloat16": 75e9, "float32": 25e9}}}
    launches.append(
        {"rate": 100.0, "flops": 67e9, "stack": "weighed", "told": [{**events[0], "effective": [ranks[0], weighed]}]}
    )
    launches.append({"rate": 100.0, "flops": 67e9, "stack": "unseen", "job": {"precision": "fp8-te"}})
    _, cells, *_ = tables(tmp_path, launches)
    assert math.isnan(cells.set_index("stack").loc["unseen", "mfu"]), "the share of float8 in its products isn't known"
    first, plain, by_type = (cells[cells["stack"] == name].iloc[0] for name in ("stack-a", "plain", "weighed"))
    peak = 100 / (75 / 989e12 + 25 / 67e12)  # of an H200
    assert by_type["mfu"] == pytest.approx(100.0 * 67e9 / peak) and by_type["mfu"] < plain["mfu"]
    assert first["effective"] == mixed and math.isnan(first["mfu"])
    assert first["changed_settings"] == "deterministic_algorithms: False, then True"
    assert first["remarks"] == "the inputs are zeros; compiled in part: forward runs in eager mode" and plain["remarks"] is None
    assert plain["effective"] == "fp32" and plain["mfu"] > 0 and plain["changed_settings"] is None
