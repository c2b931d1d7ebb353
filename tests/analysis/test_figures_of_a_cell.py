"""What a cell of several launches says where its launches differ in what they know."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from support.records import write_run
from torchmatrix.analysis import machines, metrics, run_summary
from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.cube_points import Point
from torchmatrix.analysis.metrics import LATENCY
from torchmatrix.analysis.rows import CellRow, LaunchRow
from torchmatrix.analysis.time_split import latency_rows
from torchmatrix.facts.store import RunFolder

GIB = 2**30


def edited(run: RunFolder, number: int, peak: int | None) -> None:
    """Set the peak memory of a launch, or take the line away."""
    (path,) = run.path.rglob(f"round{number}-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [line for line in lines if line["event"] != "memory" or peak is not None]
    for line in (line for line in kept if line["event"] == "memory"):
        line["peak_bytes"] = [peak]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))


def cell_of(run: RunFolder) -> tuple[Cell[LaunchRow], CellRow]:
    cells = CellIndex(run_summary.launch_rows(run.launches()))
    (cell,), (row,) = cells.figures, run_summary.cells_table(cells.figures)
    return cell, row


@pytest.mark.parametrize("lacking", [1, 2, 3])
def test_a_launch_that_lacks_a_reading_takes_none_from_the_others(tmp_path: Path, lacking: int) -> None:
    run = write_run(tmp_path, [{"rate": rate} for rate in (99.0, 100.0, 101.0)])
    for number in (1, 2, 3):
        edited(run, number, None if number == lacking else number * GIB)
    _, row = cell_of(run)
    assert row.value("peak_bytes") == (2 if lacking == 3 else 3) * GIB


def test_all_launches_must_fit_below_a_limit_of_memory(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"rate": rate} for rate in (99.0, 100.0, 101.0)])
    for number, peak in ((1, GIB), (2, GIB), (3, 3 * GIB)):
        edited(run, number, peak)
    cell, row = cell_of(run)
    assert Point(cell=cell, settings={}, metric=metrics.THROUGHPUT).limited["peak_bytes"] == row.value("peak_bytes") == 3 * GIB


def served(seconds: float, number: int, slow: float) -> dict[str, Any]:
    latencies = [seconds] * (number - 3) + [slow] * 3
    requests = {"latency": latencies, "end-to-end": [1.01 * each for each in latencies]}
    return {"rate": 44.0, "workload": "resnet50-infer-fp32-b4", "served": requests}


def test_a_percentile_that_only_some_launches_have_is_unknown(tmp_path: Path) -> None:
    """At most 10 s of requests: 101, 99 and 98 of them, and a p99 takes a hundred."""
    launches = [served(0.0985, 101, 0.16), served(0.101, 99, 0.12), served(0.102, 98, 0.12)]
    cell, _ = cell_of(write_run(tmp_path, launches))
    (told,) = latency_rows(cell.launches, LATENCY)
    assert math.isnan(told["p99"]) and told["p90"] == pytest.approx(0.101) and told["max"] == pytest.approx(0.12)
    assert math.isnan(cell.estimate("latency_p99").value) and cell.median("latency_p50") == pytest.approx(0.101)


def test_a_method_decides_how_throughputs_are_combined_and_nothing_else(tmp_path: Path) -> None:
    method = {"name": "aime", "statistic": "mean", "start_below_celsius": 50, "steps": 50}
    launches = [served(seconds, 40, seconds) | {"method": method, "rate": 4.4 / seconds} for seconds in (0.1, 0.101, 0.13)]
    cell, row = cell_of(write_run(tmp_path, launches))
    (told,) = latency_rows(cell.launches, LATENCY)
    assert told["p50"] == cell.median("latency_p50") == cell.estimate("latency_p50").value == pytest.approx(0.101)
    assert row.throughput == pytest.approx(sum(4.4 / seconds for seconds in (0.1, 0.101, 0.13)) / 3)


H100, RTX = ("NVIDIA H100 80GB HBM3", 80 * GIB), ("NVIDIA GeForce RTX 4090", 24 * GIB)


@pytest.mark.parametrize("names", [(H100, RTX), (RTX, H100), (H100, H100)])
def test_gpus_of_different_models_have_no_peak_and_no_memory_in_common(
    tmp_path: Path, names: tuple[tuple[str, int], ...]
) -> None:
    gpus = [
        {"uuid": f"GPU-{place}", "name": name, "index": place, "memory_bytes": size} for place, (name, size) in enumerate(names)
    ]
    each = {"indices": [0, 1], "label": "gpu0+1", "vendor": "nvidia", "gpus": gpus, "threads": 1, "nodes": 1}
    launch = {
        "rate": 2000.0, "devices": (0, 1), "gpus": each, "flops": 24.5e9, "device": names[0][0], "memory_bytes": names[0][1],
        "job": {"precision": "amp"}, "workload": "resnet50-train-amp-b4",
    }  # fmt: skip
    _, row = cell_of(write_run(tmp_path, [launch]))
    yields = machines.worth(row)
    assert yields is not None
    is_one = names[0] == names[1]
    assert math.isnan(row.mfu) is not is_one and math.isnan(yields.per_gb) is not is_one
    assert not is_one or yields.per_gb == pytest.approx(2000 / 160)


def test_no_verb_gives_what_a_cell_has_not(tmp_path: Path) -> None:
    """Rounds of two cells, of which one launch lacks the percentile; a method that takes the mean of throughputs."""
    launches = []
    for number in range(12):
        few = 90 if number == 5 else 110
        launches += [
            served(0.1 + number / 1e4, few, 0.2) | {"stack": "a"},
            served(0.11 + number / 1e4, 110, 0.22) | {"stack": "b"},
        ]
    cells = CellIndex(run_summary.launch_rows(write_run(tmp_path, launches).launches())).figures
    assert math.isnan(cells[0].estimate("latency_p99").value) and math.isnan(cells[0].over(cells[1], "latency_p99").value)
    assert cells[0].over(cells[1], "latency_p50").value < 1


def test_the_aim_of_an_advice_is_the_figure_that_tables_have(tmp_path: Path) -> None:
    method = {"name": "aime", "statistic": "mean", "start_below_celsius": 50, "steps": 50}
    cell, _ = cell_of(
        write_run(tmp_path, [served(seconds, 40, seconds) | {"method": method} for seconds in (0.1, 0.101, 0.13)])
    )
    point = Point(cell=cell, settings={}, metric=metrics.BY_NAME["latency_p50"])
    assert 1 / point.speed == pytest.approx(point.picked_of(1).value) == pytest.approx(point.costs["latency_p50"]) == 0.101
