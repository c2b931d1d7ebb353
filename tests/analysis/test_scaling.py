"""E*, weak devices and the decomposition of the scaling loss, against values worked out by hand."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.records import write_run
from torchmatrix.analysis import run_summary, scaling
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.scaling import collectives_table

RATES = (0.99, 1.0, 1.01)


def index(tmp_path: Path, *cells: dict[str, Any]) -> CellIndex:
    """Index three launches of each cell, whose median is the cell's `rate`."""
    launches = [{**cell, "rate": cell["rate"] * factor} for cell in cells for factor in RATES]
    return CellIndex(run_summary.launch_rows(write_run(tmp_path, launches).launches()))


def test_e_star_is_over_the_sum_of_the_very_devices_each_alone(tmp_path: Path) -> None:
    cells = index(tmp_path, {"rate": 100.0}, {"rate": 80.0, "devices": (1,)}, {"rate": 150.0, "devices": (0, 1)})
    (row,) = scaling.scaling_table(cells)
    assert (row["E"], row["E_star"]) == pytest.approx((0.75, 150 / 180))
    assert row["E_star_low"] < 150 / 180 < row["E_star_high"]


def test_e_star_is_unknown_unless_every_device_was_measured_alone(tmp_path: Path) -> None:
    (row,) = scaling.scaling_table(index(tmp_path, {"rate": 100.0}, {"rate": 150.0, "devices": (0, 1)}))
    assert row["E"] == pytest.approx(0.75) and math.isnan(row["E_star"])


def test_a_weak_device_stands_out_and_a_slightly_slower_one_does_not(tmp_path: Path) -> None:
    cells = [{"rate": rate, "devices": (i,)} for i, rate in enumerate((100.0, 90.0, 101.0, 98.5))]
    rows = scaling.devices_table(index(tmp_path, *cells))
    assert {row["device"]: row["weak"] for row in rows} == {"gpu0": False, "gpu1": True, "gpu2": False, "gpu3": False}
    assert [row["ratio"] for row in rows] == pytest.approx([1.0, 0.9, 1.01, 0.985])


def test_one_device_alone_is_compared_with_nothing(tmp_path: Path) -> None:
    assert not scaling.devices_table(index(tmp_path, {"rate": 100.0}))


def explained(tmp_path: Path) -> dict[str, Any]:
    workload, both = "resnet50-train-fp32-b4", {"devices": (0, 1)}
    cells: list[dict[str, Any]] = [{"rate": 100.0}, {"rate": 90.0, "devices": (1,)}, {"rate": 144.0, **both}]
    cells += [{"rate": 171.0, **both, "workload": f"{workload}-independent", "parallel": "independent"}]
    cells += [{"rate": 160.0, **both, "workload": f"{workload}-no-sync", "parallel": "no-sync"}]
    (row,) = scaling.decomposition_table(index(tmp_path, *cells))
    return row


def test_the_loss_is_decomposed_into_factors_whose_product_it_is(tmp_path: Path) -> None:
    row = explained(tmp_path)
    assert row["E_hetero"] == pytest.approx(0.9)
    assert row["E_corun"] == pytest.approx(171 / 180)
    assert row["E_ddp"] == pytest.approx(160 / 171)
    assert row["E_comm"] == pytest.approx(144 / 160)
    assert math.prod(row[name] for name in scaling.FACTORS) == pytest.approx(row["E"]) == pytest.approx(0.72)
    assert all(row[f"{name}_low"] < row[name] < row[f"{name}_high"] for name in ("E", *scaling.FACTORS))


def test_exposed_communication_is_the_step_with_all_reduce_less_the_step_without(tmp_path: Path) -> None:
    row = explained(tmp_path)
    assert row["exposed_seconds"] == pytest.approx(8 / 144 - 8 / 160) and row["step_seconds"] == pytest.approx(8 / 144)


def test_a_factor_whose_launches_failed_is_unknown(tmp_path: Path) -> None:
    workload, both = "resnet50-train-fp32-b4", {"devices": (0, 1)}
    cells: list[dict[str, Any]] = [{"rate": 100.0}, {"rate": 90.0, "devices": (1,)}, {"rate": 144.0, **both}]
    cells += [{"rate": 1.0, **both, "workload": f"{workload}-independent", "parallel": "independent", "outcome": "crashed"}]
    cells += [{"rate": 160.0, **both, "workload": f"{workload}-no-sync", "parallel": "no-sync"}]
    (row,) = scaling.decomposition_table(index(tmp_path, *cells))
    assert math.isnan(row["E_corun"]) and math.isnan(row["E_ddp"]) and row["E_comm"] == pytest.approx(0.9)


def test_the_helper_cells_of_an_explanation_give_no_scale_factor_of_their_own(tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [{"rate": 100.0}, {"rate": 200.0, "devices": (0, 1), "parallel": "independent",
                                                    "workload": "resnet50-train-fp32-b4-independent"}]  # fmt: skip
    assert not scaling.scaling_table(index(tmp_path, *cells))


@pytest.mark.parametrize(
    ("efficiency", "low", "wrong"),
    [(1.05, 1.01, True), (1.05, 0.99, False), (1.015, 1.01, False), (1.05, math.nan, False), (1.11, math.nan, True)],
)
def test_an_efficiency_is_impossible_only_if_noise_does_not_explain_it(efficiency: float, low: float, wrong: bool) -> None:
    assert scaling.is_impossible(efficiency, low) is wrong


def test_the_weakest_of_equal_devices_is_not_weak_by_noise() -> None:
    """Eight equal devices, three launches each, 1 % of scatter: the smallest median alone would be 0.9 % below the truth."""
    random = np.random.default_rng(1)
    draws = [random.normal(100.0, 1.0, (8, 3)).tolist() for _ in range(1000)]
    assert np.mean([np.mean(scaling.weakest_of(alone)) for alone in draws]) == pytest.approx(100.0, abs=0.1)
    assert np.mean([min(map(np.median, alone)) for alone in draws]) < 99.2
    weak = [[*alone[:7], [rate - 10 for rate in alone[7]]] for alone in draws]
    assert np.mean([np.mean(scaling.weakest_of(alone)) for alone in weak]) == pytest.approx(90.0, abs=0.1)


IB = {"event": "transport", "library": "nccl", "network": "IB", "paths": ["NET/IB/0/GDRDMA"], "interface": "ib0"}
NODES: tuple[dict[str, Any], ...] = (
    {"rate": 100.0}, {"rate": 180.0, "devices": (0, 1)},
    {"rate": 306.0, "devices": (0, 1), "nodes": 2, "told": [IB]}, {"rate": 160.0, "nodes": 2, "told": [IB]},
)  # fmt: skip


def test_a_loss_over_nodes_is_what_is_lost_inside_a_node_times_what_is_lost_between(tmp_path: Path) -> None:
    rows = {row["per_node"]: row for row in scaling.nodes_table(index(tmp_path, *NODES))}
    assert (rows[2]["count"], rows[2]["nodes"], rows[2]["devices"]) == (4, 2, "gpu0+1@2nodes")
    assert (rows[2]["S_nodes"], rows[2]["E_inside"], rows[2]["E_between"]) == pytest.approx((1.7, 0.9, 0.85))
    assert rows[2]["E"] == pytest.approx(0.9 * 0.85) and rows[2]["E_low"] < 0.765 < rows[2]["E_high"]
    assert (rows[1]["E_inside"], rows[1]["E_between"]) == pytest.approx((1.0, 0.8))
    assert rows[2]["transport"] == "nccl over IB (NET/IB/0/GDRDMA)"


def test_scale_factors_go_on_over_nodes_against_one_device(tmp_path: Path) -> None:
    by_devices = {row["devices"]: row for row in scaling.scaling_table(index(tmp_path, *NODES))}
    row = by_devices["gpu0+1@2nodes"]
    assert (row["count"], row["S"], row["E"], row["s"]) == pytest.approx((4, 3.06, 0.765, 2.06 / 3))
    assert row["baseline"].endswith("/gpu0") and math.isnan(row["E_star"]), "the devices of other nodes were not measured alone"


def test_without_its_node_alone_a_cell_over_nodes_has_no_ratio_to_it(tmp_path: Path) -> None:
    (row,) = scaling.nodes_table(index(tmp_path, NODES[0], NODES[2]))
    assert math.isnan(row["E_between"]) and math.isnan(row["S_nodes"]) and row["E"] == pytest.approx(0.765)


def test_collectives_are_the_medians_of_the_launches_that_probed_them(tmp_path: Path) -> None:
    def probed(event: str, seconds: float, **named: str) -> dict[str, Any]:
        return {
            "event": event,
            **named,
            "sizes": [{"bytes": 2**20, "seconds": seconds, "bus_bytes_per_second": 2**20 / seconds}],
        }

    launches = [
        {"devices": (0, 1), "told": [probed("all-reduce", seconds), probed("collective", 2 * seconds, operation="all-gather")]}
        for seconds in (1.0, 2.0, 4.0)
    ]
    launches += [{"devices": (0, 1), "outcome": "oom"}]
    rows = collectives_table(run_summary.launch_rows(write_run(tmp_path, launches).launches()))
    assert [(row["operation"], row["bytes"], row["n"], row["seconds"], row["bus_bytes_per_second"]) for row in rows] == [
        ("all-reduce", 2**20, 3, 2.0, 2**19), ("all-gather", 2**20, 3, 4.0, 2**18),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("links", "nodes", "share"),
    [
        ([["X", "NV18"], ["NV18", "X"]], 1, 0.8),
        ([["X", "SYS"], ["SYS", "X"]], 1, math.nan),
        ([["X", "n/a"], ["NV18", "X"]], 1, math.nan),
        ([["X", "NV18"], ["NV18", "X"]], 2, math.nan),  # over a network
        ([["X"]], 1, math.nan),  # of another number of GPUs
    ],
)
def test_a_bus_bandwidth_stands_beside_what_the_links_carry(
    tmp_path: Path, links: list[list[str]], nodes: int, share: float
) -> None:
    """An H200 has 450 GB/s in each direction by its data sheet."""
    events = [{"event": "all-reduce", "sizes": [{"bytes": 2**20, "seconds": 1.0, "bus_bytes_per_second": 360e9}]}]
    host = {"name": "testhost", "links": links}
    run = write_run(tmp_path, [{"devices": (0, 1), "nodes": nodes, "told": events, "host": host}])
    (row,) = collectives_table(run_summary.launch_rows(run.launches()))
    assert row["of_link"] == pytest.approx(share, nan_ok=True) and row["bus_bytes_per_second"] == 360e9


def test_what_a_library_can_not_do_has_no_row(tmp_path: Path) -> None:
    events = [{"event": "collective", "operation": "reduce-scatter", "sizes": [], "error": "gloo can't"}]
    run = write_run(tmp_path, [{"devices": (0, 1), "told": events}])
    assert run.launches()[0].collectives[0].error == "gloo can't" and run.launches()[0].outcome == "ok"
    assert not collectives_table(run_summary.launch_rows(run.launches()))
