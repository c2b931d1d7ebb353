"""Ratios are of the same work only: of one model, of equal operations per item. MFU is by a launch's own count."""

import math
from pathlib import Path
from typing import Any

import pytest

from support.records import write_run
from torchmatrix.analysis import compare, facts_cache, run_summary, speedups
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results
from torchmatrix.nightly import gate
from torchmatrix.reporting import terminal

RESNET50 = 25_557_032
HALF = 14_000_000


def launches(tmp_path: Path, name: str, counts: tuple[float | None, ...], **more: Any) -> list[Launch]:
    rows = [{"rate": 100.0 + place, "flops": flops, **more} for place, flops in enumerate(counts)]
    return list(write_run(tmp_path / name, rows).launches())


def test_twice_the_operations_per_item_are_not_the_same_work(tmp_path: Path) -> None:
    a, b = launches(tmp_path, "a", (4.1e9, None, None)), launches(tmp_path, "b", (8.2e9, None, None))
    comparison = compare.compare(a, b)
    (row,) = comparison.rows
    assert row.refused == "not the same work: 4.1 and 8.2 GFLOP per item" and math.isnan(row.ratio) and row.verdict == "n/a"
    assert "not the same work: 4.1 and 8.2 GFLOP per item" in terminal.comparison_in_words(comparison)


@pytest.mark.parametrize(("theirs", "is_refused"), [(4.1e9, False), (1.01 * 4.1e9, False), (1.05 * 4.1e9, True), (None, False)])
def test_counts_that_differ_by_the_boxes_of_a_detector_and_unknown_ones_are_compared(
    tmp_path: Path, theirs: float | None, is_refused: bool
) -> None:
    a, b = launches(tmp_path, "a", (4.1e9, None)), launches(tmp_path, "b", (theirs, None))
    assert bool(compare.compare(a, b).rows[0].refused) == is_refused


OURS, SDPA = "torchmatrix 1", (0.0007867e9, 0.002884e9)
"""What torch 2.7.1 and 2.15.0 count of one model with scaled_dot_product_attention in inference."""


@pytest.mark.parametrize(
    ("a", "b", "is_refused", "is_checked"),
    [
        ({"torch": "2.7.1"}, {"torch": "2.15.0"}, False, False),
        ({"torch": "2.7.1"}, {"torch": "2.7.1"}, True, True),
        ({"torch": "2.7.1", "counter": OURS}, {"torch": "2.15.0", "counter": OURS}, True, True),
        ({"torch": "2.7.1"}, {"torch": "2.15.0", "counter": OURS}, False, False),
    ],
    ids=["torch's two counters", "torch's one counter", "ours", "ours and torch's"],
)
def test_counts_of_two_counters_refuse_nothing_and_are_told(
    tmp_path: Path, a: dict[str, Any], b: dict[str, Any], is_refused: bool, is_checked: bool
) -> None:
    both = [
        launches(tmp_path, name, (flops, None), parameters=RESNET50, **which)
        for name, flops, which in zip("ab", SDPA, (a, b), strict=True)
    ]
    (row,) = compare.compare(*both).rows
    assert (bool(row.refused), row.work_checked) == (is_refused, is_checked)
    rows = [
        {"stack": which["torch"], "flops": flops, "rate": 100.0 + n, **which}
        for flops, which in zip(SDPA, (a, b), strict=True)
        for n in (0, 1)
    ]
    if a["torch"] != b["torch"]:
        table = run_summary.launch_rows(write_run(tmp_path / "both", rows).launches())
        (ratio,) = [row for row in speedups.ratios_of(CellIndex(table)).speedups if not row.is_of_itself]
        assert bool(ratio.pair.why_not) == is_refused
    again = [launches(tmp_path, name, (SDPA[0], None), parameters=RESNET50, **which) for name, which in (("c", a), ("d", b))]
    (row,) = compare.compare(*again).rows
    assert row.work_checked and not row.refused, "two counters that agree"


def test_what_the_workload_could_not_count_is_not_lent_by_torchs_own_counter(tmp_path: Path) -> None:
    rows = [
        {"stack": "new", "flops": None, "counter": OURS, "torch": "2.15.0"},
        {"stack": "old", "flops": SDPA[0], "torch": "2.7.1"},
        {"stack": "other", "flops": SDPA[1], "counter": OURS, "torch": "2.5.1", "workload": "w", "job": {"batch": 8}},
        {"stack": "older", "flops": None, "torch": "1.12.1", "workload": "w", "job": {"batch": 8}},
    ]
    table = run_summary.launch_rows(write_run(tmp_path, rows).launches())
    known = {row.stack: (row.flops_per_item, row.flops_from) for row in table}
    assert math.isnan(known["new"][0]) and known["old"] == (SDPA[0], None) and known["older"] == (SDPA[1], "other")


def test_another_model_of_the_same_name_is_refused_also_where_nothing_counts_operations(tmp_path: Path) -> None:
    a, b = launches(tmp_path, "a", (None, None), parameters=RESNET50), launches(tmp_path, "b", (None, None), parameters=HALF)
    assert compare.compare(a, b).rows[0].refused == "not the same model: 14,000,000 and 25,557,032 parameters"


def test_what_could_not_be_checked_is_noted_beside_the_ratio(tmp_path: Path) -> None:
    both = [launches(tmp_path, name, (4.1e9, None), parameters=RESNET50) for name in "ab"]
    checked, unknown = (
        compare.compare(*both),
        compare.compare(both[0], launches(tmp_path, "c", (None, None), parameters=RESNET50)),
    )
    note = "not checked in 1 row: that A and B do as many operations per item"
    assert note in terminal.comparison_in_words(unknown) and note not in terminal.comparison_in_words(checked)


def test_launches_of_one_cell_that_counted_differently_are_no_figure_to_compare(tmp_path: Path) -> None:
    a, b = launches(tmp_path, "a", (4.1e9, 8.2e9)), launches(tmp_path, "b", (4.1e9, None))
    assert "the launches of A did different work: not the same work" in str(compare.compare(a, b).rows[0].refused)


def test_a_report_has_no_ratio_of_two_stacks_that_do_other_work(tmp_path: Path) -> None:
    rows = [
        {"stack": stack, "rate": 100.0 + n, "flops": flops} for stack, flops in (("x", 4.1e9), ("y", 8.2e9)) for n in (0, 1)
    ]
    ratios = speedups.ratios_of(CellIndex(run_summary.launch_rows(write_run(tmp_path, rows).launches())))
    (row,) = [entry for entry in ratios.speedups if entry.cell.row.stack == "y"]
    assert row.pair.why_not == "not the same work: 4.1 and 8.2 GFLOP per item" and math.isnan(row.pair.value)
    assert not row.verdict


def test_a_night_of_another_model_is_no_baseline(tmp_path: Path) -> None:
    for night, count in enumerate((RESNET50, RESNET50, HALF), 1):
        rows = [{"rate": 100.0 + n, "parameters": count} for n in range(3)]
        write_run(tmp_path, rows, run=f"2026010{night}T000000Z")
    results = Results(tmp_path)
    (judged,) = gate.judge(list(facts_cache.each(results, results.runs()))).cells
    assert judged.verdict == "new" and "not the same model: 14,000,000 and 25,557,032 parameters" in judged.why


@pytest.mark.parametrize(
    ("field", "values"),
    [("audio_seconds", (5, 10)), ("image_size", (224, 448)), ("sequence_length", (128, 512)), ("batch", (4, 8))],
)
def test_what_was_counted_belongs_to_the_size_that_was_run(tmp_path: Path, field: str, values: tuple[int, int]) -> None:
    """Each size's own count makes its MFU; a stack that can't count borrows that of the same size only."""
    rows = [
        {"stack": stack, "workload": f"w-{value}", "rate": 100.0, "flops": flops, "job": {field: value}}
        for value, counted in zip(values, (1e12, 2e12), strict=True)
        for stack, flops in (("counts", counted), ("old", None))
    ]
    cells = run_summary.cells_table(CellIndex(run_summary.launch_rows(write_run(tmp_path, rows).launches())).every)
    operations = {(row.stack, row.workload): (row.flops_per_item, row.flops_from) for row in cells}
    small, large = (f"w-{value}" for value in values)
    assert operations["counts", small] == (1e12, None) and operations["counts", large] == (2e12, None)
    assert operations["old", small] == (1e12, "counts") and operations["old", large] == (2e12, "counts")


def test_a_count_of_its_own_is_never_overwritten(tmp_path: Path) -> None:
    rows = run_summary.launch_rows(launches(tmp_path, "a", (1e12, None, 1.5e12)))
    assert [row.flops_per_item for row in rows] == [1e12, 1e12, 1.5e12]


def test_another_model_lends_no_operations(tmp_path: Path) -> None:
    rows = [{"stack": "x", "flops": 1e12, "parameters": RESNET50}, {"stack": "y", "flops": None, "parameters": HALF}]
    table = run_summary.launch_rows(write_run(tmp_path, rows).launches())
    assert [math.isnan(row.flops_per_item) for row in table] == [False, True]
