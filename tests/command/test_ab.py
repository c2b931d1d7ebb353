"""`run --ab A B`: what it measures, that it is a separate run, what it prints last, and what it refuses."""

import json
from pathlib import Path

import pytest

from support import FAKE_PYTHON, Command
from support.records import write_run
from torchmatrix.facts.store import Results

JOB = "resnet50-train-fp32-b4-224px"


@pytest.fixture
def two(fake_matrix: Path) -> Path:
    """Write stacks a, b and c of the fake interpreter; one workload is for c only."""
    stacks = "".join(f'[[stack]]\nname = "{name}"\npython = "{FAKE_PYTHON}"\naccelerator = "cpu"\n' for name in "abc")
    head, _, tail = fake_matrix.read_text(encoding="utf-8").partition("[[stack]]")
    workload = tail[tail.index("[[workload]]") :]
    only_c = '[[workload]]\ndevice = "cpu"\nmodel = "resnet50"\nbatch = 8\nsteps = 5\nwindows = 2\nstacks = ["c"]\n'
    fake_matrix.write_text(f"{head}{stacks}{workload}{only_c}", encoding="utf-8")
    return fake_matrix


def test_two_stacks_are_measured_in_turns_and_the_run_ends_with_their_comparison(torchmatrix: Command, two: Path) -> None:
    done = torchmatrix("run", "--ab", "b", "a")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["A: b", "B: a"] and lines[2].startswith("A / B") and lines[-1] == "reports/index.html"
    assert [line.split()[:3] for line in lines[3:5]] == [[f"{JOB}/{n}", "≈", "1.00×"] for n in ("cpu0", "cpu0+1")]
    assert all("5 and 5" in line and line.endswith("the same within 2 %") for line in lines[3:5])
    (run,) = Results(two.parent / "results").runs()
    started = sorted(run.launches(), key=lambda launch: launch.unix_seconds)
    assert len(started) == 20 and {launch.stack.name for launch in started} == {"a", "b"}
    assert [launch.round for launch in started] == sorted(launch.round for launch in started)  # of one block
    assert f"again: torchmatrix compare {run.id}:b {run.id}:a" in done.stderr
    again = torchmatrix("compare", f"{run.id}:b", f"{run.id}:a").stdout.splitlines()
    assert again == lines[2:-2]


def test_only_what_both_have_is_measured_and_the_selection_narrows_it(torchmatrix: Command, two: Path) -> None:
    data = json.loads(torchmatrix("run", "--ab", "a", "c", "*/cpu0", "--launches", "2", "--json").stdout)
    assert [cell["id"] for cell in data["cells"]] == [f"{name}/{JOB}/cpu0" for name in "ac"]
    assert data["ab"] == ["a", "c"] and data["outcomes"] == {"ok": 4} and data["exit_code"] == 0
    (row,) = data["comparison"]["rows"]
    assert row["stacks"] == ["a", "c"] and row["launches"] == [2, 2] and row["verdict"] == "SAME" and row["detectable"] == 0.01
    skips = Results(two.parent / "results").runs()[0].read_record().skips
    assert [skip.cell for skip in skips] == ["c/resnet50-train-fp32-b8-224px/cpu0"]
    assert "a doesn't do the same" in skips[0].reason


@pytest.mark.thorough
def test_ten_rounds_are_compared_round_by_round(torchmatrix: Command, two: Path) -> None:
    done = torchmatrix("run", "--ab", "a", "b", "*/cpu0", "--launches", "10")
    assert "10 and 10" in done.stdout and "the same within 2 %" in done.stdout and "round by round" in done.stdout


@pytest.mark.thorough
def test_a_run_with_ab_and_one_without_do_not_continue_each_other(torchmatrix: Command, two: Path) -> None:
    results = Results(two.parent / "results")
    words = ("run", "--where", "stack=[ab]", "--launches", "2")
    torchmatrix(*words)
    home = results.runs()[0]
    lines = home.record.read_text().splitlines()
    home.record.write_text("".join(f"{line}\n" for line in lines if '"run-exit"' not in line))  # as if it had been stopped
    torchmatrix("run", "--ab", "a", "b", "--launches", "2")
    assert len(results.runs()) == 2
    assert f"run {home.id}" in torchmatrix(*words).stderr and len(results.runs()) == 2


def test_failed_launches_are_no_comparison_and_end_as_in_any_run(torchmatrix: Command, two: Path) -> None:
    done = torchmatrix("run", "--ab", "a", "b", "*/cpu0", FAKE_BEHAVIOUR="crash")
    assert done.returncode == 1 and "nothing to compare: A has no launch that is ok (5 launches: 5 crashed)" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (("a", "a"), 2, "error: --ab a a is one stack twice", "name two stacks"),
        (("a", "bb"), 2, "error: --ab: the matrix has no stack bb", 'did you mean "b"?'),
        (("a", "c", "*-b8-*"), 2, "error: a and c share no cell; the first: c/resnet50-train-fp32-b8-224px/cpu0", "plan 'a/*'"),
        (("a", "c", "--where", "stack=c"), 2, "error: a and c share no cell; the first: c/", "plan 'a/*'"),
        (("a", "c", "nothing"), 3, "error: the selection matches no cell", "torchmatrix plan"),
        (("a",), 2, "error: Option '--ab' requires 2 arguments", "--help"),
    ],
)
def test_what_can_not_be_compared_is_refused_before_anything_runs(
    torchmatrix: Command, two: Path, words: tuple[str, ...], code: int, message: str, hint: str
) -> None:
    done = (
        torchmatrix("run", *words[2:], "--ab", *words[:2])
        if len(words) > 1
        else torchmatrix("run", "--ab", *words, engine=None)
    )
    assert done.returncode == code and message in done.stderr and hint in done.stderr.split("hint:")[1]
    assert not (two.parent / "results").exists() or not Results(two.parent / "results").runs()


def test_compare_names_the_command_that_measures_both_in_one_run(torchmatrix: Command, tmp_path: Path) -> None:
    for run, stack in (("20260101T000000Z", "a"), ("20260102T000000Z", "b")):
        name = {"stack": stack, "workload": "w", "cell": f"{stack}/w/gpu0"}
        write_run(tmp_path / "results", [{"rate": rate, **name} for rate in (99.0, 100.0, 101.0)], run=run)
    output = torchmatrix("compare", "last~1", "last").stdout
    assert "level: within these two runs" in output
    assert "one run of both shows smaller differences: torchmatrix run --ab a b '*/w/gpu0'" in output
    assert "torchmatrix run" not in torchmatrix("compare", "last", "last").stdout
