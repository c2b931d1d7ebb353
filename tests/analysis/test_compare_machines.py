"""Comparing machines: matching, refusals and how often they are reported, sums and corrected verdicts."""

from pathlib import Path
from typing import Any

import pytest

from support.records import write_run
from torchmatrix.analysis import compare
from torchmatrix.analysis.compare import Comparison
from torchmatrix.analysis.machines import choose_launches, choose_sides
from torchmatrix.analysis.rows import Refused
from torchmatrix.core.errors import BadInput
from torchmatrix.facts.store import Results

CUDA = {"name": "torch2.5.1-cu124", "torch": "2.5.1"}
ROCM = {"name": "torch2.5.1-rocm6.2", "torch": "2.5.1"}
NEWER = {"name": "torch2.7.1-cu128", "torch": "2.7.1"}
RATES = (99.0, 100.0, 101.0)


def cell(rate: float, job: dict[str, Any] | None = None, stack: dict[str, Any] = CUDA, **more: Any) -> list[dict[str, Any]]:
    """Return three launches about this rate."""
    batch = (job or {}).get("batch", 4)
    workload = "-".join([f"b{batch}", *(f"{key}-{value}" for key, value in sorted((job or {}).items()) if key != "batch")])
    names = {"stack": stack, "workload": workload}
    return [{"rate": rate * share / 100, "job": {"batch": batch, **(job or {})}, **names, **more} for share in RATES]


def compared(root: Path, a: list[dict[str, Any]], b: list[dict[str, Any]], batch: str = "same") -> Comparison:
    for name, launches in (("a", a), ("b", b)):
        host = {"name": name, "cpu": "c", "gpus": [], "cores": [0]}
        write_run(
            root,
            [{"host": host, "machine": f"id-{name}", **launch} for launch in launches],
            folder=name,
            host=host,
            machine=f"id-{name}",
        )
    results = Results(root)
    return compare.compare(choose_launches(results, "a").launches, choose_launches(results, "b").launches, batch)


def shown(comparison: Comparison, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(row, name) for name in names) for row in comparison.rows]


def test_machines_are_matched_by_work_and_number_of_devices_whatever_the_devices_are_called(tmp_path: Path) -> None:
    a = cell(200) + cell(380, devices=(0, 1))
    b = cell(100, vendor="cpu") + cell(160, vendor="cpu", devices=(2, 3))
    comparison = compared(tmp_path, a, b)
    assert shown(comparison, "label", "ratio", "verdict", "count") == [
        ("torch2.5.1-cu124/b4/gpu0 | cpu0", pytest.approx(2.0), "FASTER", 1),
        ("torch2.5.1-cu124/b4/gpu0+1 | cpu2+3", pytest.approx(2.375), "FASTER", 2),
    ]
    assert comparison.only_one == () and not comparison.one_machine


def test_the_same_devices_are_matched_before_others_of_that_number(tmp_path: Path) -> None:
    a = cell(10, devices=(1,)) + cell(20, devices=(0,)) + cell(30, devices=(2,))
    b = cell(1, devices=(0,)) + cell(1, devices=(1,)) + cell(1, devices=(3,))
    comparison = compared(tmp_path, a, b)
    assert shown(comparison, "label", "ratio") == [
        ("torch2.5.1-cu124/b4/gpu0", pytest.approx(20)), ("torch2.5.1-cu124/b4/gpu1", pytest.approx(10)),
        ("torch2.5.1-cu124/b4/gpu2 | gpu3", pytest.approx(30)),
    ]  # fmt: skip


def test_a_stack_that_both_have_is_matched_first_and_the_rest_by_torch_release_and_marked(tmp_path: Path) -> None:
    comparison = compared(tmp_path, cell(110, stack=NEWER) + cell(90, stack=ROCM), cell(100, stack=NEWER) + cell(100))
    assert shown(comparison, "label", "stacks", "stack_match", "verdict") == [
        ("torch2.7.1-cu128/b4/gpu0", ("torch2.7.1-cu128",) * 2, "equal", "FASTER"),
        ("torch2.5.1-rocm6.2 | torch2.5.1-cu124/b4/gpu0", ("torch2.5.1-rocm6.2", "torch2.5.1-cu124"), "equivalent", "SLOWER"),
    ]


def test_stacks_without_a_counterpart_are_on_one_side_only_and_are_counted_as_missing(tmp_path: Path) -> None:
    comparison = compared(tmp_path, cell(90, stack=ROCM), cell(100) + cell(120, stack=NEWER))
    assert shown(comparison, "label", "stack_match") == [("b4/gpu0", "equivalent")]
    assert comparison.only_one == ("torch2.7.1-cu128/b4/gpu0",)
    (mean,) = comparison.means
    assert (mean.ratio, mean.n, mean.missing) == (pytest.approx(0.9), 1, 1)


def test_several_builds_of_one_release_are_not_chosen_from(tmp_path: Path) -> None:
    other = {"name": "torch2.5.1-cu121", "torch": "2.5.1"}
    (row,) = compared(tmp_path, cell(1) + cell(2, stack=other), cell(3, stack=ROCM)).rows
    assert row.refused == "A has several stacks (torch2.5.1-cu121, torch2.5.1-cu124): name one"


def test_other_batches_are_compared_on_request_only_the_larger_with_the_larger(tmp_path: Path) -> None:
    a = cell(20, {"batch": 16}) + cell(10, {"batch": 4}) + cell(40, {"batch": 32})
    b = cell(5, {"batch": 4}) + cell(8, {"batch": 8}) + cell(2, {"batch": 2})
    same = compared(tmp_path / "same", a, b)
    assert [(row.label, row.verdict) for row in same.rows if not row.refused] == [("torch2.5.1-cu124/b4/gpu0", "FASTER")]
    assert same.refused == (Refused(a="A", b="B", field="batch_used", values=(("16", "2"), ("32", "8")), rows=2),)
    own_batches = compared(tmp_path / "own", a, b, batch="own")
    assert shown(own_batches, "label", "batches", "ratio") == [
        ("torch2.5.1-cu124/resnet50-train-fp32-224px (batch 16 | 2)/gpu0", (16, 2), pytest.approx(10)),
        ("torch2.5.1-cu124/resnet50-train-fp32-224px (batch 32 | 8)/gpu0", (32, 8), pytest.approx(5)),
        ("torch2.5.1-cu124/b4/gpu0", (4, 4), pytest.approx(2)),
    ]
    assert own_batches.refused == ()


@pytest.mark.parametrize(
    ("change", "field", "values"),
    [
        ({"workload_hash": "w2"}, "workload_hash", ("w1", "w2")),
        ({"job": {"batch": 4, "precision": "amp"}, "workload": "amp-b4"}, "precision", ("fp32", "amp")),
    ],
)
def test_a_differing_field_is_named_once(tmp_path: Path, change: dict[str, Any], field: str, values: tuple[str, str]) -> None:
    cells = [cell(100.0, devices=devices) for devices in ((0,), (0, 1), (0, 1, 2, 3))]
    a = [launch for launches in cells for launch in launches]
    comparison = compared(tmp_path, a, [{**launch, **change} for launch in a])
    assert comparison.refused == (Refused(a="A", b="B", field=field, values=(values,), rows=3),)
    assert {row.refused for row in comparison.rows} == {f"they differ in {field} ({values[0]} and {values[1]})"}
    assert (comparison.means[-1].n, comparison.means[-1].missing) == (0, 3)


def test_geometric_means_by_number_of_devices_and_a_count_of_wins(tmp_path: Path) -> None:
    a = cell(200) + cell(50, {"batch": 8}) + cell(100, {"batch": 16}) + cell(400, devices=(0, 1))
    b = cell(100) + cell(100, {"batch": 8}) + cell(100, {"batch": 16}) + cell(100, devices=(0, 1))
    comparison = compared(tmp_path, a, b)
    assert [(mean.count, mean.ratio, mean.n) for mean in comparison.means] == [
        (1, pytest.approx(1.0), 3), (2, pytest.approx(4.0), 1), (None, pytest.approx(4**0.25), 4),
    ]  # fmt: skip
    assert {str(end) for mean in comparison.means for end in (mean.low, mean.high)} == {"nan"}, "a mean over cells has no level"
    assert {record["low"] for record in comparison.as_record()["means"]} == {None}
    assert comparison.verdicts == {"FASTER": 2, "SLOWER": 1, "SAME": 0, "AMBIGUOUS": 1, "DISTURBED": 0, "n/a": 0}
    assert comparison.comparisons == 4


def test_verdicts_are_corrected_for_the_number_of_comparisons(tmp_path: Path) -> None:
    """One of 20 cells differs by so little that its own interval just excludes 1."""
    jobs = [{"batch": batch} for batch in range(1, 21)]
    a = [launch for job in jobs for launch in cell(102.2 if job["batch"] == 1 else 100.5, job)]
    b = [launch for job in jobs for launch in cell(100.0, job)]
    comparison = compared(tmp_path / "all", a, b)
    row = comparison.rows[0]
    assert row.low > 1 and (row.verdict, row.reason) == ("AMBIGUOUS", "many") and row.settle is not None and row.settle > 3
    assert row.p_value < 0.05 < row.adjusted_p_value and comparison.comparisons == 20


def test_a_side_without_any_ok_launch_is_one_sentence(tmp_path: Path) -> None:
    a = [
        {**launch, "outcome": outcome}
        for launch, outcome in zip(cell(1) + cell(1, {"batch": 8}), ["oom"] * 4 + ["crashed"] * 2, strict=True)
    ]
    comparison = compared(tmp_path, a, cell(1) + cell(1, {"batch": 8}))
    assert comparison.empty == "A has no launch that is ok (6 launches: 4 oom, 2 crashed)"


def test_launches_of_two_machines_are_never_one_side(tmp_path: Path) -> None:
    compared(tmp_path, cell(1), cell(2))
    a, b = (choose_launches(Results(tmp_path), name).launches for name in "ab")
    (row,) = compare.compare([*a, *b], b).rows
    assert row.refused == "A has launches of 2 machines: name one"


def test_two_stacks_are_of_the_newest_run_that_planned_both(tmp_path: Path) -> None:
    def planned(*stacks: str) -> list[dict[str, str]]:
        names = {"workload": "w", "ddp_workload": "w", "parallel": "ddp", "devices": "gpu0"}
        return [{"cell": f"{stack}/w/gpu0", "stack": stack, **names} for stack in stacks]

    for day, stacks in enumerate((("a", "b"), ("a", "b"), ("a", "c")), start=1):
        launches = [{"stack": stack, "rate": 100.0 * day} for stack in stacks for _ in range(2)]
        write_run(tmp_path, launches, run=f"2026010{day}T000000Z", cells=planned(*stacks))
    results = Results(tmp_path)
    sides = choose_sides(results, "a", "b")
    assert [{(launch.run, launch.stack.name) for launch in side.launches} for side in sides] == [
        {("20260102T000000Z", "a")}, {("20260102T000000Z", "b")},
    ]  # fmt: skip
    assert sides[0].note == "a: of run 20260102T000000Z, the newest with both"
    newest = choose_sides(results, "a", "c")
    assert {launch.run for side in newest for launch in side.launches} == {"20260103T000000Z"} and newest[0].note is None
    with pytest.raises(BadInput, match='"none" is not a file'):
        choose_sides(results, "a", "none")
    named = choose_sides(results, "20260101T000000Z:a", "c")
    assert [{launch.run for launch in side.launches} for side in named] == [{"20260101T000000Z"}, {"20260103T000000Z"}]


def test_a_machine_stands_for_its_newest_complete_run_and_a_stack_of_it_can_be_named(tmp_path: Path) -> None:
    for day, complete in ((1, True), (2, False)):
        write_run(
            tmp_path,
            cell(1) + cell(2, stack=NEWER),
            run=f"2026010{day}T000000Z",
            folder="box",
            machine="1234",
            complete=complete,
        )
    side = choose_launches(Results(tmp_path), "box")
    assert {launch.run for launch in side.launches} == {
        "20260101T000000Z"
    } and side.note == "box stands for its run 20260101T000000Z"
    assert {launch.stack.name for launch in choose_launches(Results(tmp_path), "1234:*2.7*").launches} == {"torch2.7.1-cu128"}
    with pytest.raises(BadInput, match="no run or machine nobox"):
        choose_launches(Results(tmp_path), "nobox:*")


def test_files_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    run = write_run(tmp_path, cell(1))
    broken = sorted(run.path.rglob("round*.jsonl"))[0]
    broken.write_text("{}\n")
    for word in ("last", str(run.path)):
        side = choose_launches(Results(tmp_path), word)
        assert [file.path for file in side.unreadable] == [broken] and len(side.launches) == 2


def test_the_record_for_programs_keeps_its_fields_and_has_the_new_ones(tmp_path: Path) -> None:
    record = compared(tmp_path, cell(2), cell(1)).as_record()
    assert {
        "rows",
        "only_one",
        "environment",
        "refused",
        "means",
        "verdicts",
        "comparisons",
        "correction",
        "batch",
    } <= record.keys()
    assert record["correction"] == "Benjamini-Hochberg, FDR 5%" and record["level"] == "launches of two runs"
    assert {"label", "ratio", "low", "high", "launches", "failed", "verdict", "settle", "refused", "paired"} <= record["rows"][
        0
    ].keys()
