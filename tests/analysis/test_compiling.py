"""Duration of compiling, and whether compilations differ: exact values for made-up launches."""

import math
from pathlib import Path
from typing import Any

import pytest
from test_time_split import launch, phases

from support.records import write_run
from torchmatrix.analysis import run_summary
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.time_split import compiles_table
from torchmatrix.reporting import report


def compiled(rate: float, cache: str, first: float = 9.0, **more: Any) -> Any:
    return launch(phases(first_step=first), cache=cache, rate=rate, job={"compile": True}, **more)


def rows_of(*launches: Any) -> list[dict[str, Any]]:
    return compiles_table(CellIndex(run_summary.launch_rows(list(launches))))


def test_first_steps_and_both_scatters_are_those_of_their_launches() -> None:
    cold = [compiled(rate, "cold", first) for rate, first in ((100.0, 8.0), (100.0 * math.e**0.1, 12.0), (100.0, 9.0))]
    warm = [compiled(rate, "warm", 0.5) for rate in (100.0, 100.0 * math.e**0.001, 100.0)]
    (row,) = rows_of(*cold, *warm)
    assert (row["compiled"], row["reused"]) == (3, 3)
    assert (row["first_step_seconds"], row["first_step_low"], row["first_step_high"]) == (9.0, 8.0, 12.0)
    assert row["sd_between_artefacts"] == pytest.approx(0.1 / math.sqrt(3))
    assert row["sd_same_artefact"] == pytest.approx(0.001 / math.sqrt(3))
    assert row["p"] == pytest.approx(1 / (1 + 100.0**2))  # F(2, 2): the tail beyond x is 1 / (1 + x)
    assert row["varies"] is True


def test_too_few_launches_of_a_kind_say_nothing_and_failed_ones_do_not_count() -> None:
    (row,) = rows_of(compiled(100.0, "cold"), compiled(150.0, "cold"), compiled(1.0, "cold", outcome="crashed"),
                     *(compiled(100.0 + i, "warm") for i in range(3)))  # fmt: skip
    assert row["compiled"] == 2 and row["varies"] is None and math.isnan(row["p"])


def test_without_compilation_or_only_with_an_earlier_ones_code_there_is_no_row() -> None:
    assert rows_of(launch(rate=100.0), compiled(100.0, "warm")) == []
    assert rows_of() == []


def test_many_cells_are_corrected_for_their_number() -> None:
    """A ratio of variances of 30 has p = 1/31: beyond chance in one cell, not in two."""
    low, high = 100.0, 100.0 * math.e ** (0.001 * math.sqrt(30))

    def cell(batch: int) -> list[Any]:
        rates = [(low, "cold"), (high, "cold"), (low, "cold"), (low, "warm"), (low * math.e**0.001, "warm"), (low, "warm")]
        return [
            launch(phases(first_step=1.0), cache=cache, rate=rate, job={"compile": True}, workload=f"w-b{batch}")
            for rate, cache in rates
        ]

    assert [row["varies"] for row in rows_of(*cell(4))] == [True]
    assert [row["varies"] for row in rows_of(*cell(4), *cell(8))] == [False, False]


def test_a_report_shows_compile_times_of_several_compilations(tmp_path: Path) -> None:
    jobs = [{"job": {"compile": True}, "rate": 100.0 + i} for i in range(2)]
    run = write_run(tmp_path, jobs)
    page = report.page_of(run).text
    assert "<h3>Compile time</h3>" in page and "Code varies" in page
