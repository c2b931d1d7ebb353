"""`torchmatrix compare` on machines, stacks and folders: its output, its notes and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from support import Command
from support.records import write_run

CUDA, ROCM = {"name": "torch2.5.1-cu124", "torch": "2.5.1"}, {"name": "torch2.5.1-rocm6.2", "torch": "2.5.1"}


def cells(rate: float, batch: int, stack: dict[str, Any] = CUDA, **more: Any) -> list[dict[str, Any]]:
    """Return three launches each on one and on two GPUs, at this batch and at batch 4."""
    launches = []
    for devices in ((0,), (0, 1)):
        for size in (4, batch):
            workload = f"resnet50-train-fp32-b{size}"
            fields = {"stack": stack, "job": {"batch": size}, "workload": workload, "devices": devices, **more}
            launches += [{"rate": rate * len(devices) * share, **fields} for share in (0.995, 1.0, 1.005)]
    return launches


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Record results of two machines called gpu01 and of one called mi300x."""
    results = tmp_path / "results"
    for folder, identity, rate, stack in (("gpu01", "aaaa1111", 200.0, CUDA), ("gpu01-bbbb", "bbbb2222", 100.0, CUDA)):
        host = {"name": "gpu01", "cpu": "c", "gpus": [], "cores": [0]}
        launches = [{**launch, "machine": identity, "host": host} for launch in cells(rate, 16 if rate == 200 else 8, stack)]
        write_run(results, launches, folder=folder, host=host, machine=identity)
    host = {"name": "mi300x", "cpu": "c", "gpus": [], "cores": [0]}
    launches = [{**launch, "machine": "cccc3333", "host": host} for launch in cells(150.0, 32, ROCM)]
    write_run(results, launches, folder="mi300x", host=host, machine="cccc3333", run="20260102T000000Z")
    return results


def test_two_machines_are_compared_by_what_both_measured(torchmatrix: Command, three: Path) -> None:
    done = torchmatrix("compare", "gpu01#aaaa", "gpu01#bbbb")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in lines[1:3]] == [
        f"torch2.5.1-cu124/resnet50-train-fp32-b4/{n}" for n in ("gpu0", "gpu0+1")
    ]
    assert lines[3] == "not checked in 2 rows: that A and B do as many operations per item (a side has no count)"
    assert lines[4] == (
        "not comparable, 2 rows: they differ in batch_used (16 and 8); to compare each side at its own batch: --own-batch"
    )
    assert lines[6:11] == [
        "geometric mean of A / B on 1 device: 2.00×; 1 ratio, 1 missing; not tested: how runs differ is unknown",
        "geometric mean of A / B on 2 devices: 2.00×; 1 ratio, 1 missing; not tested: how runs differ is unknown",
        "geometric mean of A / B: 2.00×; 2 ratios, 2 missing; not tested: how runs differ is unknown",
        "A is faster in 2, slower in 0, the same in 0, no difference shown in 0",
        "verdicts corrected for 2 comparisons (Benjamini–Hochberg, FDR 5 %); intervals are not",
    ]
    assert lines[11] == "intervals are over launches: they hold for these machines, not for others with the same devices"
    assert "note: gpu01#aaaa stands for its run 20260101T000000Z" in done.stderr


def test_each_side_at_its_own_batch_and_equivalent_stacks_are_marked(torchmatrix: Command, three: Path) -> None:
    done = torchmatrix("compare", "mi300x", "gpu01#bbbb", "--own-batch")
    assert done.returncode == 0 and "not comparable" not in done.stdout
    assert "resnet50-train-fp32-224px (batch 32 | 8)/gpu0 ≈" in done.stdout
    assert "≈ equivalent stacks, one release of torch in two builds: torch2.5.1-rocm6.2 | torch2.5.1-cu124" in done.stdout
    record = json.loads(torchmatrix("compare", "mi300x", "gpu01#bbbb", "--own-batch", "--json").stdout)
    assert record["batch"] == "own" and {row["stack_match"] for row in record["rows"]} == {"equivalent"}
    assert sorted(row["batches"] for row in record["rows"]) == [[4, 4], [4, 4], [32, 8], [32, 8]]


def test_a_name_of_two_machines_is_not_guessed(torchmatrix: Command, three: Path) -> None:
    done = torchmatrix("compare", "gpu01", "mi300x")
    assert done.returncode == 2 and "error: gpu01 names 2 machines" in done.stderr and "gpu01#aaaa, gpu01#bbbb" in done.stderr


def test_a_side_without_figures_is_one_sentence_and_exits_2(torchmatrix: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "results", cells(1.0, 8, outcome="oom"), folder="broken", machine="a")
    write_run(tmp_path / "results", cells(1.0, 8), folder="fine", machine="b")
    done = torchmatrix("compare", "broken", "fine")
    assert done.returncode == 2 and done.stdout == "nothing to compare: A has no launch that is ok (12 launches: 12 oom)\n"
    (tmp_path / "empty").mkdir()
    none = torchmatrix("compare", "fine", "empty")
    assert none.returncode == 2 and "error: empty has no launches" in none.stderr and not none.stdout


def test_files_that_cannot_be_read_are_named(torchmatrix: Command, three: Path) -> None:
    broken = min(three.rglob("mi300x/**/round*.jsonl"))
    broken.write_text('{"event": "launch", "run": 7}')
    for words in (("compare", "mi300x", "gpu01#aaaa", "--json"), ("gate", "--host", "mi300x")):
        done = torchmatrix(*words)
        assert f"{broken} can't be read and is left out: run is 7, not a text" in done.stderr, done.stderr
    json.loads(torchmatrix("compare", "mi300x", "gpu01#aaaa", "--json").stdout)


def test_hostile_texts_do_not_reach_the_terminal(torchmatrix: Command, tmp_path: Path) -> None:
    evil = {"name": "evil\x1b[31m", "torch": "2.5.1"}
    host = {"name": "box\x1b[0m", "cpu": "c", "gpus": [], "cores": [0]}
    for folder in ("a", "b"):
        launches = [{**launch, "workload": f"b4-{i}"} for i, launch in enumerate(cells(1.0, 8, evil, host=host))]
        write_run(tmp_path / "results", launches, folder=folder, host=host, machine=folder * 8)
    done = torchmatrix("compare", "a" * 8, "b" * 8)
    assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "words", [("baseline", "20260103T000000Z"), ("20260103T000000Z", "baseline"), ("results/gpu01/baseline", "last")]
)
def test_a_run_whose_folder_was_renamed_is_compared_by_where_it_lies(
    torchmatrix: Command, tmp_path: Path, words: tuple[str, str]
) -> None:
    for number, rate in enumerate((100.0, 100.5, 99.5), start=1):
        run = write_run(tmp_path / "results", cells(rate, 8), folder="gpu01", machine="a" * 16, run=f"2026010{number}T000000Z")
        if number == 2:
            run.path.rename(run.path.with_name("baseline"))
    done = torchmatrix("compare", *words, "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)["rows"]) == 4
