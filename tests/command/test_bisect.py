"""`bisect OLD NEW`: the stack in which the level changed, what it says where that is unknown, and what it refuses."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support import FAKE_PYTHON, Command
from torchmatrix.facts.store import Results
from torchmatrix.machine import claims

CELL = "*/cpu0"
LEVELS = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.25, "e": 1.25, "f": 1.25, "g": 1.25}
"""Time of an item on each stack, over the stand-in's usual time."""


def write_stacks(matrix: Path, levels: dict[str, float]) -> None:
    """Write a matrix with a stand-in for each stack, which takes `levels` times the usual time."""
    tables = []
    for name, level in levels.items():
        python = matrix.parent / name / "python"
        python.parent.mkdir()
        python.write_text(
            Path(FAKE_PYTHON).read_text(encoding="utf-8").replace("ITEM_SECONDS = 0.0001", f"ITEM_SECONDS = {0.0001 * level}")
        )
        python.chmod(0o755)
        tables.append(f'[[stack]]\nname = "{name}"\npython = "{python}"\naccelerator = "cpu"\n')
    head, _, tail = matrix.read_text(encoding="utf-8").partition("[[stack]]")
    matrix.write_text(head + "".join(tables) + tail[tail.index("[[workload]]") :], encoding="utf-8")


def searched(torchmatrix: Command, ends: Sequence[str], *words: str, **variables: str) -> dict[str, Any]:
    done = torchmatrix("bisect", *ends, "--listed", "--cell", CELL, "--launches", "2", "--json", *words, **variables)
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def test_the_stack_that_changed_the_level_is_found_by_halves(torchmatrix: Command, fake_matrix: Path) -> None:
    write_stacks(fake_matrix, LEVELS)
    record = searched(torchmatrix, "ag")
    assert (record["ended"], record["old"], record["new"]) == ("found", "c", "d")
    assert record["change"]["ratio"] == pytest.approx(0.8) and record["change"]["launches"] == [2, 2]
    assert [step["middle"] for step in record["steps"]] == [None, "d", "b", "c"]
    assert [step["goes_on"] for step in record["steps"]] == [["a", "g"], ["a", "d"], ["b", "d"], ["c", "d"]]
    assert record["others"] == [] and not record["not_monotone"] and record["between"] == []
    started = [
        sorted({launch.stack.name for launch in run.launches()}) for run in Results(fake_matrix.parent / "results").runs()
    ]
    assert started == [["a", "g"], ["a", "d", "g"], ["a", "b", "d"], ["b", "c", "d"]]


def test_the_answer_says_what_it_rests_on_and_what_to_do_next(torchmatrix: Command, fake_matrix: Path) -> None:
    write_stacks(fake_matrix, {"a": 1.0, "b": 1.0, "c": 0.5})
    done = torchmatrix("bisect", "a", "c", "--listed", "--cell", CELL, "--launches", "2", "--write", "search.toml")
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    assert first == "the level changed in c: 2.00× ± 0.000, p = 0, over b; 2 and 2 launches, in turns"
    (why,) = (line.partition(": ")[2] for line in others if line.startswith("which operators: "))
    profiled = torchmatrix(*why.replace("'", "").split()[1:])
    assert profiled.returncode == 0 and "profiling c/" in profiled.stderr
    assert "at most 1 step of three stacks, 6 launches each" in done.stderr


@pytest.mark.thorough
def test_what_was_measured_is_not_measured_again_and_an_interrupted_search_goes_on(
    torchmatrix: Command, fake_matrix: Path
) -> None:
    write_stacks(fake_matrix, LEVELS)
    results = Results(fake_matrix.parent / "results")
    first = searched(torchmatrix, "ag")
    newest = max(results.runs(), key=lambda run: run.id)
    record = newest.record.read_text().splitlines()
    newest.record.write_text("\n".join(line for line in record if '"run-exit"' not in line) + "\n")
    for path in list(newest.path.rglob("round1.jsonl")):
        path.unlink()
    again = searched(torchmatrix, "ag")
    assert again["ended"] == first["ended"] and (again["old"], again["new"]) == ("c", "d")
    assert len(results.runs()) == 4 and len(newest.launches()) == 6
    searched(torchmatrix, "ag", "--new")
    assert len(results.runs()) == 8


def test_several_changes_are_reported_and_the_largest_is_followed(torchmatrix: Command, fake_matrix: Path) -> None:
    write_stacks(fake_matrix, {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.25, "e": 0.4})
    record = searched(torchmatrix, "ae")
    assert (record["old"], record["new"]) == ("a", "b") and record["change"]["ratio"] == pytest.approx(2.0)
    assert [(pair["old"], pair["new"]) for pair in record["others"]] == [("c", "e")] and not record["not_monotone"]
    record = searched(torchmatrix, "ce")
    assert (record["old"], record["new"]) == ("c", "d") and record["not_monotone"]


def test_equal_ends_end_the_search(torchmatrix: Command, fake_matrix: Path) -> None:
    write_stacks(fake_matrix, {"a": 1.0, "b": 0.1, "c": 1.0})
    record = searched(torchmatrix, "ac")
    assert record["ended"] == "same" and record["change"]["ratio"] == pytest.approx(1.0) and len(record["steps"]) == 1


@pytest.mark.thorough
def test_a_stack_that_can_t_be_measured_is_left_out_but_an_end_can_t(torchmatrix: Command, fake_matrix: Path) -> None:
    write_stacks(fake_matrix, {"a": 1.0, "b": 1.0, "c": 0.5, "d": 0.5, "e": 0.5})
    broken = fake_matrix.parent / "c/python"
    broken.write_text("#!/bin/sh\necho '# 3.11'; exit 1\n")
    record = searched(torchmatrix, "ae")
    assert (record["old"], record["new"]) == ("b", "d") and record["between"] == ["c"] and list(record["left_out"]) == ["c"]
    words = ("bisect", "a", "c", "--listed", "--cell", CELL, "--launches", "2")
    done = torchmatrix(*words)
    assert done.returncode in (1, 3) and "c" in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (("2.7.1", "2.5.1"), 2, "2.7.1 is not older than 2.5.1", "2.5.1 2.7.1"),
        (("2.5.1", "2.5.1"), 2, "2.5.1 is not older than 2.5.1", ""),
        (("2.5", "2.7.1"), 2, "2.5 is neither a release of the catalog nor a stack", "2.5.0, 2.5.1"),
        (("fake", "2.7.1"), 2, "stack fake is not made of a release's wheels", "--listed"),
        (("fake", "mistyped", "--listed"), 2, "the matrix has no stack mistyped", "fake"),
        (("2.5.1", "2.7.1", "--cell", "*"), 2, "--cell * means 2 workloads or device sets", "*/WORKLOAD/DEVICES"),
        (("2.5.1", "2.7.1", "--cell", "*/gpu0"), 3, "--cell */gpu0 matches no cell", "torchmatrix plan"),
        (("2.5.1", "2.7.1", "--write", "matrix.toml"), 2, "matrix.toml exists", "--write FILE"),
    ],
)
def test_mistakes(torchmatrix: Command, fake_matrix: Path, words: tuple[str, ...], code: int, message: str, hint: str) -> None:
    named = () if "--cell" in words else ("--cell", CELL)
    done = torchmatrix("bisect", *words, *named)
    assert done.returncode == code and message in done.stderr and hint in done.stderr and "Traceback" not in done.stderr
    assert not (fake_matrix.parent / "results").exists() or not Results(fake_matrix.parent / "results").runs()


def test_beside_a_run_no_option_is_named_that_there_is_not(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    write_stacks(fake_matrix, {"a": 1.0, "b": 1.25})
    words = ("bisect", "a", "b", "--listed", "--cell", CELL, "--launches", "2")
    with claims.claimed(tmp_path / "elsewhere", set(), 600.0):
        done = torchmatrix(*words)
    assert done.returncode == 4 and "another run of torchmatrix measures" in done.stderr and "--anyway" not in done.stderr
    assert "has no effect" not in done.stderr  # of keys that the user did not write


def test_a_cell_of_two_devices_is_searched_without_its_baseline(torchmatrix: Command, fake_matrix: Path) -> None:
    write_stacks(fake_matrix, {"a": 1.0, "b": 0.5})
    words = ("--listed", "--cell", "b/resnet50-train-fp32-b4-224px/cpu0+1", "--launches", "2", "--json")
    done = torchmatrix("bisect", "a", "b", *words)
    assert done.returncode == 0, done.stderr
    change = json.loads(done.stdout)["change"]
    assert change["ratio"] == pytest.approx(2.0) and change["launches"] == [2, 2]
