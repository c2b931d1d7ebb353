"""Ratios between stacks and settings, against values worked out by hand; nothing is paired that differs in more."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from support.records import write_run
from torchmatrix.analysis import run_summary, speedups
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.core.errors import BadInput

RATES = (0.99, 1.0, 1.01)


def index(tmp_path: Path, *cells: dict[str, Any]) -> CellIndex:
    """Index three launches of each cell, whose median is the cell's `rate`; one of a cell that fails."""
    launches = [
        {**cell, "rate": cell.get("rate", 1.0) * factor} for cell in cells for factor in (RATES if "rate" in cell else (1.0,))
    ]
    return CellIndex(run_summary.launch_rows(write_run(tmp_path, launches).launches()))


def cell(stack: str = "a", precision: str = "fp32", compile: bool = False, **more: Any) -> dict[str, Any]:
    channels_last = more.pop("channels_last", False)
    job = {"precision": precision, "compile": compile, "channels_last": channels_last, "batch": more.pop("batch", 4)}
    size = more.pop("image_size", 224)
    name = f"resnet50-{precision}-{compile}-{channels_last}-{size}-{job['batch']}"
    return {"stack": stack, "workload": name, "job": job | {"image_size": size}, **more}


def table_of(ratios: Sequence[speedups.Ratio]) -> pd.DataFrame:
    return pd.DataFrame([ratio.columns() for ratio in ratios])


def test_a_named_baseline_is_used_everywhere(tmp_path: Path) -> None:
    cells = [{"stack": "a", "rate": 50.0}, {"stack": "b", "rate": 100.0}]
    table = table_of(speedups.speedup_table(index(tmp_path, *cells), "b"))
    assert dict(zip(table["stack"], table["ratio"], strict=True)) == pytest.approx({"a": 0.5, "b": 1.0})
    assert set(table["baseline"]) == {"b"}


def test_an_unknown_baseline_is_refused_with_the_known_stacks(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        speedups.speedup_table(index(tmp_path, {"stack": "a", "rate": 1.0}, {"stack": "b", "rate": 1.0}), "c")
    assert "no stack c" in str(caught.value) and "a, b" in caught.value.hint


def test_a_ratio_that_is_missing_says_why(tmp_path: Path) -> None:
    cells = [{"stack": "a", "rate": 50.0}, {"stack": "b", "outcome": "oom"}, {"stack": "c", "rate": 60.0, "batch_used": 8}]
    table = table_of(speedups.speedup_table(index(tmp_path, *cells))).set_index("stack")
    assert table["why"].to_dict() == {"a": "", "b": "oom", "c": "batch 8, baseline 4"}
    assert table["ratio"].isna().tolist() == [False, True, True]
    table = table_of(speedups.speedup_table(index(tmp_path / "2", *cells), "b")).set_index("stack")
    assert table["why"].to_dict() == {"a": "baseline: oom", "b": "oom", "c": "baseline: oom"}


def test_each_setting_is_compared_with_all_else_equal(tmp_path: Path) -> None:
    cells = [
        cell(rate=100.0), cell(compile=True, rate=130.0), cell(precision="amp", rate=200.0),
        cell(precision="amp", compile=True, rate=300.0), cell(channels_last=True, rate=110.0),
    ]  # fmt: skip
    table = table_of(speedups.settings_table(index(tmp_path, *cells)))
    pairs = {(row["setting"], row["over"]): row["ratio"] for row in table.to_dict("records")}
    assert pairs == pytest.approx({
        ("compile", cells[0]["workload"]): 1.3, ("compile", cells[2]["workload"]): 1.5, ("amp", cells[0]["workload"]): 2.0,
        ("amp", cells[1]["workload"]): 300 / 130, ("channels_last", cells[0]["workload"]): 1.1,
    })  # fmt: skip
    assert (table["ratio_low"] < table["ratio"]).all() and (table["ratio_high"] > table["ratio"]).all()


@pytest.mark.parametrize("other", [{"stack": "b"}, {"batch": 8}, {"image_size": 64}, {"devices": (1,)}])
def test_cells_that_differ_in_more_are_no_pair(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not speedups.settings_table(index(tmp_path, cell(rate=1.0), cell(**{"compile": True, "rate": 2.0, **other})))


def test_a_pair_with_a_failed_side_stays_and_is_counted(tmp_path: Path) -> None:
    cells = [
        cell(rate=100.0), cell(compile=True, outcome="crashed"), cell(precision="amp", outcome="oom"),
        cell(precision="amp", compile=True, rate=5.0), cell("b", rate=10.0), cell("b", compile=True, rate=20.0),
    ]  # fmt: skip
    table = table_of(speedups.settings_table(index(tmp_path, *cells)))
    compiled = table[table["setting"] == "compile"]
    assert sorted(word for word in compiled["why"] if word) == ["baseline: oom", "crashed"]
    assert [ratio for ratio in compiled["ratio"] if not math.isnan(ratio)] == [pytest.approx(2.0)]


def test_nothing_at_all_gives_empty_tables(tmp_path: Path) -> None:
    empty = index(tmp_path)
    assert speedups.speedup_table(empty) == speedups.settings_table(empty) == []


def test_all_verdicts_of_a_report_are_corrected_together(tmp_path: Path) -> None:
    """b is ahead of a: enough for one comparison, not for one of many without another difference."""
    same = [cell(stack, rate=100.0, batch=n) for n in (*range(1, 4), *range(5, 21)) for stack in "ab"]

    def judged(others: int, ahead: float) -> tuple[speedups.Ratio, int]:
        cells = [*same[: 2 * others], cell(rate=100.0), cell("b", rate=ahead)]
        ratios = speedups.ratios_of(index(tmp_path / str(others), *cells))
        return next(ratio for ratio in ratios.speedups if ratio.pair.value > 1.01), ratios.significance.comparisons

    among_few, few = judged(3, 102.8)
    among_many, many = judged(19, 102.3)
    assert (few, many) == (8, 40)  # ratios, and who is the fastest
    assert (among_few.verdict, among_few.reason) == ("FASTER", "different")
    assert (among_many.verdict, among_many.reason) == ("AMBIGUOUS", "many")
    assert among_many.pair.chances.differs < among_few.adjusted_p_value < 0.05 < among_many.adjusted_p_value


def test_a_baseline_and_a_missing_ratio_have_no_verdict(tmp_path: Path) -> None:
    ratios = speedups.ratios_of(index(tmp_path, cell(rate=100.0), cell("b", rate=130.0), cell("c", outcome="oom"))).speedups
    assert {ratio.cell.row.stack: ratio.verdict for ratio in ratios} == {"a": "", "b": "FASTER", "c": ""}
    assert [math.isnan(ratio.adjusted_p_value) for ratio in ratios] == [True, False, True]


def test_pairs_of_a_setting_differ_in_it_alone(tmp_path: Path) -> None:
    def cell(rate: float, **job: object) -> dict[str, Any]:
        name = "-".join(map(str, job.values()))
        return {"stack": "a", "workload": name, "job": {"batch": 4, **job}, "rate": rate, "devices": (0, 1)}

    cells = (
        cell(100.0, parallel="ddp", precision="fp32"), cell(200.0, parallel="ddp", precision="amp"),
        cell(50.0, parallel="fsdp", precision="fp32"), cell(80.0, parallel="fsdp", precision="amp"),
        cell(70.0, parallel="ddp", precision="fp32", data="disk", workers=2),
        cell(60.0, parallel="ddp", precision="fp32", data="disk", workers=2, decoder="pillow"),
    )  # fmt: skip
    found = {
        (ratio.setting, ratio.cell.row.workload, ratio.base.row.workload): ratio.pair.value
        for ratio in speedups.settings_table(index(tmp_path, *cells)) if ratio.base
    }  # fmt: skip
    assert found == {
        ("amp", "ddp-amp", "ddp-fp32"): pytest.approx(2.0), ("amp", "fsdp-amp", "fsdp-fp32"): pytest.approx(1.6),
        ("fsdp", "fsdp-fp32", "ddp-fp32"): pytest.approx(0.5), ("fsdp", "fsdp-amp", "ddp-amp"): pytest.approx(0.4),
        ("disk", "ddp-fp32-disk-2", "ddp-fp32"): pytest.approx(0.7),
        ("disk", "ddp-fp32-disk-2-pillow", "ddp-fp32"): pytest.approx(0.6),
    }  # fmt: skip
