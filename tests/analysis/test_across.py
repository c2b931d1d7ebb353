"""GPU beside GPU: the pairs that are compared, what the intervals are over, and reasons of missing figures."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.records import write_run
from torchmatrix.analysis import across, machines, prices, run_summary
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.pairs import pair
from torchmatrix.analysis.prices import Price, PriceList
from torchmatrix.analysis.rows import LaunchRow, Refused, StackUsed, stack_match
from torchmatrix.core.errors import BadInput

GPUS = {
    "h100": ("NVIDIA H100 80GB HBM3", 80), "4090": ("NVIDIA GeForce RTX 4090", 24), "mi300x": ("AMD Instinct MI300X", 192),
}  # fmt: skip
CUDA = {"name": "torch2.5.1-cu124", "torch": "2.5.1", "accelerator": "cuda"}
ROCM = {"name": "torch2.5.1-rocm6.2", "torch": "2.5.1", "accelerator": "rocm"}
B4, B8 = {"batch": 4}, {"batch": 8}
NEWER = {"name": "torch2.7.1-cu128", "torch": "2.7.1", "accelerator": "cuda"}


def launch(rate: float, stack: dict[str, Any] = CUDA, job: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"rate": rate, "stack": stack, "job": {"batch": 4, **(job or {})}, **more}


def fleet(root: Path, **gpus_and_launches: tuple[str, list[dict[str, Any]]]) -> list[LaunchRow]:
    """Return the table of these machines: by name the GPU (of GPUS) and the launches."""
    parts = []
    for name, (gpu, launches) in gpus_and_launches.items():
        driver, gib = GPUS[gpu]
        gpu_facts = {"name": driver, "uuid": f"{name}-0", "memory_bytes": gib * 2**30, "power_limit_watts": 300.0 + len(parts)}
        host = {"name": name, "cpu": "c", "gpus": [gpu_facts] * 2, "cores": [0], "driver": f"5{len(parts)}"}
        rows = [{"device": driver, "memory_bytes": gib * 2**30, "workload": _workload(fields), **fields} for fields in launches]
        run = write_run(root / name, rows, folder=name, host=host, machine=f"id-{name}")
        parts.append((machines.of_runs([run])[0], run_summary.launch_rows(run.launches())))
    return machines.fleet_rows(parts)


def _workload(fields: dict[str, Any]) -> str:
    return "-".join(f"{key}{value}" for key, value in sorted(fields["job"].items()))


def shown(relative: across.Relative, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row.value(name) for name in columns) for row in relative.table]


def test_each_gpu_is_set_over_the_baseline_gpu_by_workload_stack_and_number_of_devices(tmp_path: Path) -> None:
    slow, fast = [100.0, 101.0, 102.0], [250.0, 251.0, 252.0]
    table = fleet(
        tmp_path,
        desk=("4090", [launch(rate) for rate in slow] + [launch(180.0, devices=(0, 1))]),
        rack=("h100", [launch(rate) for rate in fast] + [launch(490.0, devices=(0, 1))]),
    )
    relative = across.relative_table(CellIndex(table), "RTX 4090")
    assert shown(relative, "gpu", "machine", "count", "stack_match", "level", "why", "n", "baseline_n") == [
        ("RTX 4090", "desk", 1, "equal", "", "", 3, 3), ("RTX 4090", "desk", 2, "equal", "", "", 1, 1),
        ("H100 SXM5 80GB", "rack", 1, "equal", "launches", "", 3, 3),
        ("H100 SXM5 80GB", "rack", 2, "equal", "launches", "", 1, 1),
    ]  # fmt: skip
    of_slow, _, of_one, of_two = relative.table
    expected = pair(fast, slow).interval
    assert (of_slow.ratio, of_slow.ratio_low, of_slow.ratio_high) == (1.0, 1.0, 1.0)
    assert (of_one.ratio, of_one.ratio_low, of_one.ratio_high) == pytest.approx((expected.value, expected.low, expected.high))
    assert of_two.ratio == pytest.approx(490 / 180) and math.isnan(of_two.ratio_low)
    assert of_one.workload == "resnet50-train-fp32-b4-224px" and of_one.throughput == pytest.approx(251)


def test_two_machines_with_one_gpu_are_two_rows_and_one_row_over_machines(tmp_path: Path) -> None:
    def three(rate: float) -> list[dict[str, Any]]:
        return [launch(rate * share) for share in (0.99, 1.0, 1.01)]

    table = fleet(
        tmp_path, a=("4090", three(100)), b=("4090", three(104)), c=("h100", three(200)), d=("h100", three(212)),
    )  # fmt: skip
    relative = across.relative_table(CellIndex(table), "4090")
    assert shown(relative, "gpu", "machine", "machines", "of_gpu", "n", "level") == [
        ("RTX 4090", None, 2, True, 6, ""), ("RTX 4090", "a", 1, False, 3, ""), ("RTX 4090", "b", 1, False, 3, ""),
        ("H100 SXM5 80GB", None, 2, True, 6, "machines"), ("H100 SXM5 80GB", "c", 1, False, 3, "launches"),
        ("H100 SXM5 80GB", "d", 1, False, 3, "launches"),
    ]  # fmt: skip
    rows = relative.table
    over_machines = pair([200, 212], [100, 104]).interval
    assert (rows[3].ratio, rows[3].ratio_low, rows[3].ratio_high) == pytest.approx(
        (over_machines.value, over_machines.low, over_machines.high)
    )
    assert (rows[3].throughput, rows[3].baseline_machines) == (pytest.approx(206), 2)
    assert rows[4].ratio == pytest.approx(200 / 102)
    assert rows[1].ratio == pytest.approx(100 / 102) and math.isnan(rows[1].ratio_low)


def test_one_machine_beside_two_has_an_interval_over_launches_and_says_so(tmp_path: Path) -> None:
    noisy = [launch(rate) for rate in (99.0, 100.0, 101.0)]
    table = fleet(
        tmp_path, a=("4090", noisy), b=("h100", [launch(200.0)] * 3), c=("h100", [launch(220.0)] * 3),
    )  # fmt: skip
    (pooled,) = (row for row in across.relative_table(CellIndex(table), "4090").table if row.machines == 2)
    over_launches = pair([210.0, 210.0, 210.0], [99.0, 100.0, 101.0]).interval
    assert (pooled.level, pooled.ratio) == ("launches", pytest.approx(over_launches.value))
    assert (pooled.ratio_low, pooled.ratio_high) == pytest.approx((over_launches.low, over_launches.high), rel=1e-3)
    other = across.relative_table(CellIndex(table), "H100")
    (single,) = (row for row in other.table if row.machine == "a")
    assert (single.level, single.ratio) == ("launches", pytest.approx(1 / over_launches.value))
    assert single.ratio_low == pytest.approx(1 / pooled.ratio_high)


def test_stacks_of_one_torch_release_stand_for_each_other_and_are_marked(tmp_path: Path) -> None:
    table = fleet(
        tmp_path, a=("h100", [launch(100.0), launch(110.0, NEWER)]), b=("mi300x", [launch(90.0, ROCM)]),
    )  # fmt: skip
    relative = across.relative_table(CellIndex(table), "H100")
    assert shown(relative, "gpu", "stack", "baseline_stack", "stack_class", "stack_match", "why")[2:] == [
        ("MI300X", "torch2.5.1-rocm6.2", "torch2.5.1-cu124", "torch 2.5.1", "equivalent", ""),
        ("MI300X", None, "torch2.7.1-cu128", "torch 2.7.1", None, "not measured"),
    ]
    other = across.relative_table(CellIndex(table), "MI300X")
    assert shown(other, "stack", "why")[:2] == [
        ("torch2.5.1-cu124", ""),
        ("torch2.7.1-cu128", "baseline: no stack with torch 2.7.1"),
    ]


def test_a_stack_of_one_name_built_by_another_recipe_is_only_equivalent(tmp_path: Path) -> None:
    table = fleet(
        tmp_path,
        a=("4090", [launch(100.0, image={"reference": "i", "environment": "r1"})]),
        b=("h100", [launch(200.0, image={"reference": "i", "environment": "r2"})]),
    )
    assert shown(across.relative_table(CellIndex(table), "4090"), "stack_match") == [("equal",), ("equivalent",)]


@pytest.mark.parametrize("image", [None, {"reference": "i"}, {"reference": "i", "environment": None}])
@pytest.mark.parametrize(("torch", "match"), [("2.5.1", "equivalent"), (None, None)])
def test_an_unknown_recipe_is_like_no_other_not_even_an_unknown_one(
    tmp_path: Path, image: dict[str, Any] | None, torch: str | None, match: str | None
) -> None:
    stack = {"name": "mine", "torch": torch}
    fields = {"stack": stack, "image": image, **({} if torch else {"torch": None})}
    table = fleet(tmp_path, a=("4090", [launch(100.0, **fields)]), b=("h100", [launch(200.0, **fields)]))
    assert shown(across.relative_table(CellIndex(table), "4090"), "stack_match") == [("equal",), (match,)]
    mine = StackUsed(name="mine", release=torch, recipe="r1")
    assert stack_match(mine, replace(mine, recipe=None)) == match and stack_match(mine, mine) == "equal"


def test_each_gpu_at_its_own_batch_only_on_request_and_with_both_batches_shown(tmp_path: Path) -> None:
    table = fleet(
        tmp_path,
        a=("4090", [launch(100.0, job=B8), launch(90.0, job=B4), launch(0.1, job={"batch": 16}, outcome="oom")]),
        b=("h100", [launch(300.0, job={"batch": 32}), launch(200.0, job=B4)]),
    )  # fmt: skip
    same = across.relative_table(CellIndex(table), "4090")
    h100 = [row for row in shown(same, "gpu", "batch", "baseline_batch", "ratio", "why") if row[0].startswith("H100")]
    assert h100 == [
        ("H100 SXM5 80GB", 32, None, pytest.approx(math.nan, nan_ok=True), "batch 32, baseline 4, 8"),
        ("H100 SXM5 80GB", 4, 4, pytest.approx(200 / 90), ""),
        ("H100 SXM5 80GB", 8, 8, pytest.approx(math.nan, nan_ok=True), "not measured"),
    ]
    assert same.refused == (Refused(a="H100 SXM5 80GB", b="RTX 4090", field="batch_used", values=(("32", "4, 8"),), rows=1),)
    relative = across.relative_table(CellIndex(table), "4090", batch="own")
    assert shown(relative, "gpu", "workload", "batch", "baseline_batch", "ratio", "chosen_of") == [
        ("RTX 4090", "resnet50-train-fp32-224px", 8, 8, 1.0, 3),
        ("H100 SXM5 80GB", "resnet50-train-fp32-224px", 32, 8, pytest.approx(3.0), 2),
    ]
    assert relative.refused == ()


@pytest.mark.parametrize(
    ("change", "field", "values"),
    [
        ({"workload_hash": "w2"}, "workload_hash", ("w2", "w1")),
        ({"method": {"name": "aime", "statistic": "median"}}, "method.name", ("aime", "steady")),
        ({"job": {"batch": 4, "steps": 9}}, "steps", ("9", "50")),
        ({"job": {"batch": 4, "precision": "amp"}}, "precision", ("amp", "fp32")),
    ],
)
def test_other_work_is_refused_once_with_the_field_named(
    tmp_path: Path, change: dict[str, Any], field: str, values: tuple[str, str]
) -> None:
    cells = [{}, {"devices": (0, 1)}]
    table = fleet(
        tmp_path, a=("4090", [launch(100.0, **cell) for cell in cells]),
        b=("h100", [{**launch(200.0, **cell), **change} for cell in cells]),
    )  # fmt: skip
    relative = across.relative_table(CellIndex(table), "4090")
    assert relative.refused == (Refused(a="H100 SXM5 80GB", b="RTX 4090", field=field, values=(values,), rows=2),)
    whys = [row[1] for row in shown(relative, "gpu", "why", "ratio") if row[0].startswith("H100") and row[1] != "not measured"]
    assert whys == [f"they differ in {field} ({values[0]} and {values[1]})"] * 2


def test_machines_that_did_other_work_are_not_pooled(tmp_path: Path) -> None:
    table = fleet(
        tmp_path, a=("4090", [launch(100.0)]), b=("h100", [launch(200.0)]), c=("h100", [launch(220.0, workload_hash="w2")]),
        d=("h100", [launch(0.1, outcome="oom")]),
    )  # fmt: skip
    rows = shown(across.relative_table(CellIndex(table), "4090"), "gpu", "machine", "machines", "of_gpu", "failed", "why")
    assert rows[1:] == [
        ("H100 SXM5 80GB", None, 1, True, 1, ""), ("H100 SXM5 80GB", "b", 1, False, 0, ""),
        ("H100 SXM5 80GB", "d", 0, False, 1, "oom"),
        ("H100 SXM5 80GB", "c", 1, True, 0, "they differ in workload_hash (w2 and w1)"),
    ]  # fmt: skip


def test_verdicts_are_corrected_for_the_number_of_ratios_and_the_baseline_has_none(tmp_path: Path) -> None:
    jobs = [{"batch": 4, "image_size": 64 + 32 * place} for place in range(12)]

    def launches(*rates: float) -> list[dict[str, Any]]:
        return [
            launch(rate, job=job) for job, some in zip(jobs, rates, strict=True) for rate in (0.99 * some, some, 1.01 * some)
        ]

    rates = [200.0, 50.0, *[100.0] * 9, 101.8]
    table = fleet(tmp_path, desk=("4090", launches(*[100.0] * 12)), rack=("h100", launches(*rates)))
    relative = across.relative_table(CellIndex(table), "RTX 4090")
    rows = [row for row in relative.table if row.gpu.startswith("H100")]
    by_ratio = {round(row.ratio, 3): row.verdict for row in rows}
    assert by_ratio == {2.0: "FASTER", 0.5: "SLOWER", 1.0: "SAME", 1.018: "AMBIGUOUS"}
    (close,) = [row for row in rows if round(row.ratio, 3) == 1.018]
    assert close.ratio_low > 1.0 and close.adjusted_p_value > 0.05, "by itself it would be FASTER"
    assert {verdict for gpu, verdict in shown(relative, "gpu", "verdict") if gpu == "RTX 4090"} == {""}


def test_pooled_machines_are_judged_by_the_launches_of_all(tmp_path: Path) -> None:
    def three(rate: float) -> list[dict[str, Any]]:
        return [launch(factor * rate) for factor in (0.99, 1.0, 1.01)]

    table = fleet(tmp_path, a=("h100", three(300.0)), b=("h100", three(310.0)), desk=("4090", three(100.0)))
    for baseline, verdict in (("RTX 4090", "FASTER"), ("H100", "SLOWER")):
        rows = [row for row in across.relative_table(CellIndex(table), baseline).table if row.of_gpu and row.level]
        assert [row.verdict for row in rows] == [verdict] and rows[0].adjusted_p_value < 0.001


def test_geometric_means_count_what_is_missing_and_why(tmp_path: Path) -> None:
    jobs = [{"batch": batch} for batch in (1, 2, 4, 8)]
    table = fleet(
        tmp_path, a=("4090", [launch(100.0, job=job) for job in jobs]),
        b=("h100", [launch(200.0, job=jobs[0]), launch(800.0, job=jobs[1]), launch(0.1, job=jobs[2], outcome="oom")]),
    )  # fmt: skip
    means = across.relative_means(across.relative_table(CellIndex(table), "4090"))
    assert [(row.gpu, row.count, row.n, row.missing, row.missing_why) for row in means] == [
        ("RTX 4090", 1, 4, 0, ""), ("H100 SXM5 80GB", 1, 2, 2, "1 oom, 1 not measured"),
    ]  # fmt: skip
    assert means[1].ratio == pytest.approx(4.0)


def test_the_baseline_is_the_gpu_that_was_launched_first_unless_one_is_named(tmp_path: Path) -> None:
    table = fleet(tmp_path, a=("h100", [launch(2.0)]), b=("4090", [launch(1.0)]), c=("mi300x", [launch(3.0)]))
    assert across.relative_table(CellIndex(table)).baseline == "H100 SXM5 80GB"
    assert across.relative_table(CellIndex(table), "mi300").baseline == "MI300X"
    with pytest.raises(BadInput, match="no GPU A100") as error:
        across.relative_table(CellIndex(table), "A100")
    assert "RTX 4090" in error.value.hint
    for part in ("H10", "090"):  # whole words
        with pytest.raises(BadInput, match=f"no GPU {part}"):
            across.relative_table(CellIndex(table), part)
    assert across.relative_table(CellIndex([])).table == []


def test_a_fleet_s_gpus_have_their_specifications_their_machines_and_the_driver_s_own_limits(tmp_path: Path) -> None:
    table = fleet(tmp_path, a=("4090", [launch(1.0)]), b=("h100", [launch(1.0)]), c=("h100", [launch(1.0)]))
    runs = [machines.RunFolder(path.parent) for path in sorted(tmp_path.glob("*/*/*/run.jsonl"))]
    rows = machines.fleet_gpu_table(machines.of_runs(runs), run_summary.cells_table(CellIndex(table).every))
    names = (
        "gpu",
        "machines",
        "counts",
        "drivers",
        "power_limit_low_watts",
        "power_limit_high_watts",
        "catalog_name",
        "memory_gb",
    )
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("RTX 4090", ("a",), (2,), ("50",), 300.0, 300.0, "GeForce RTX 4090", 24.0),
        ("H100 SXM5 80GB", ("b", "c"), (2, 2), ("51", "52"), 301.0, 302.0, "H100 SXM5 80GB", 80.0),
    ]


def test_throughput_per_watt_joule_gigabyte_and_price(tmp_path: Path) -> None:
    readings = [
        (moment, {"device": "GPU-0", "power_watts": 200.0, "energy_joules": 200.0 * moment}) for moment in (99, 105, 115, 121)
    ]
    table = fleet(tmp_path, a=("4090", [launch(2.0, readings=readings)]))  # 40 items in 20 s
    price = Price(gpu="GeForce RTX 4090", per_hour=0.5, purchase=1600.0, currency="EUR", source="s", date="2026-01-01")
    held = PriceList(prices={price.gpu: price})
    (cell,) = run_summary.cells_table(CellIndex(prices.charged(table, held)).every)
    row = machines.worth(cell, held)
    assert row is not None
    assert row.per_watt == pytest.approx(2 / 200) and row.per_gb == pytest.approx(2 / 24)
    assert row.per_price == pytest.approx(2 / 1.6) and row.cost == pytest.approx(1e6 * 0.5 / 3600 / 2)
    unpriced = machines.worth(cell, prices.NONE)
    assert unpriced is not None
    assert math.isnan(unpriced.per_price) and unpriced.machine == "a"
