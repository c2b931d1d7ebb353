"""`profile` and `why` of a stand-in whose steps are known: what they say, what they refuse, and that no result is touched."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import FAKE_PYTHON, Command

EAGER, COMPILED = "fake/resnet50-train-fp32-b4-224px/cpu0", "fake/resnet50-train-fp32-b4-224px-compile/cpu0"


@pytest.fixture
def two_settings(fake_matrix: Path) -> Path:
    """Write a matrix of eager and compiled steps, which the stand-in makes 10 and 6 ms long."""
    fake_matrix.write_text(
        fake_matrix.read_text(encoding="utf-8").replace("batch = 4", "batch = 4\ncompile = [false, true]"), encoding="utf-8"
    )
    return fake_matrix


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_profile_says_where_the_time_goes(torchmatrix: Command, two_settings: Path, tmp_path: Path) -> None:
    done = torchmatrix("profile", EAGER, "--steps", "4")
    assert done.returncode == 0, done.stderr
    rows = {line.split("  ")[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["conv"][:3] == ["8.000", "72.7", "%"] and rows["add"][:3] == ["1.500", "13.6", "%"]
    assert "(in no operator)" in done.stdout and "13.6 %" in done.stdout and "up to 1.0 MiB" in done.stdout
    assert "11.00 ms profiled (4 steps), 10.00 ms without the profiler, so +10 %; not measured by a run" in done.stdout
    (trace,) = (tmp_path / "profiles").rglob("trace.json.gz")
    assert str(trace.relative_to(tmp_path)) in done.stderr
    assert {"ph", "ts", "dur", "name"} <= json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"][0].keys()
    page = (tmp_path / "reports/profile.html").read_text()
    assert EAGER in page and "No figure of the cell" in page and page.count("<svg") >= 2


def test_why_adds_up_to_the_difference_of_measured_steps(torchmatrix: Command, two_settings: Path, tmp_path: Path) -> None:
    assert torchmatrix("run", "--where", "count=1").returncode == 0
    done = torchmatrix("why", EAGER, COMPILED, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    (conv, add), gap = record["bars"], record["gap"]
    assert (conv["name"], add["name"]) == ("conv", "add")
    assert conv["difference_seconds"] == pytest.approx(-0.004) and conv["share"] == pytest.approx(1.0)
    assert add["difference_seconds"] == pytest.approx(0) and gap["difference_seconds"] == pytest.approx(0)
    assert record["profiled_difference_seconds"] == pytest.approx(-0.004)
    assert record["a"]["plain_seconds"] == pytest.approx(0.010) and record["a"]["profiled_seconds"] == pytest.approx(0.011)
    assert record["a"]["measured_seconds"] == pytest.approx(0.0004) and record["a"]["measured_launches"] == 2
    assert record["difference_seconds"] == record["b"]["measured_seconds"] - record["a"]["measured_seconds"]
    attributed = sum(bar["difference_seconds"] for bar in (conv, add, gap))
    assert attributed + record["not_attributed_seconds"] == pytest.approx(record["difference_seconds"])
    assert "not attributed" in (tmp_path / "reports/why.html").read_text()


def test_what_was_profiled_is_not_profiled_again_unless_asked(torchmatrix: Command, two_settings: Path, tmp_path: Path) -> None:
    refused = torchmatrix("why", EAGER, COMPILED, "--recorded")
    assert refused.returncode == 2 and f"torchmatrix profile '{COMPILED}'" in refused.stderr
    assert not list((tmp_path / "profiles").rglob("*"))
    first = torchmatrix("why", EAGER, COMPILED)
    assert first.returncode == 0 and first.stderr.count("profiling fake/") == 2
    again = torchmatrix("why", EAGER, COMPILED, "--recorded")
    assert "profiling fake/" not in again.stderr and again.stdout == first.stdout
    lines = [line for line in first.stdout.splitlines() if line.startswith(("conv", "profiled", "without", "(not attr"))]
    assert [line.split()[-1] if "%" not in line else line.split("%")[0].split()[-1] for line in lines][:2] == ["100.0", "100.0"]
    assert torchmatrix("why", EAGER, COMPILED, "--again").stderr.count("profiling fake/") == 2
    for record in (tmp_path / "profiles").rglob(f"{COMPILED}/*/profile.json"):  # of other packages than the stack's
        record.write_text(record.read_text().replace('"environment": "', '"environment": "0'))
    assert f"torchmatrix profile '{COMPILED}'" in torchmatrix("why", EAGER, COMPILED, "--recorded").stderr


def test_kernels_are_named_where_they_have_no_names(torchmatrix: Command, two_settings: Path, tmp_path: Path) -> None:
    assert torchmatrix("why", EAGER, COMPILED).returncode == 0
    done = torchmatrix("why", EAGER, COMPILED, "--name-kernels", "--verbose")
    assert done.returncode == 0 and f"profiling {COMPILED}" in done.stderr and f"profiling {EAGER}" not in done.stderr
    assert "--name-kernels" in done.stderr
    assert "profiling fake/" not in torchmatrix("why", EAGER, COMPILED, "--name-kernels").stderr


def test_no_result_is_touched_and_no_reader_sees_a_profile(torchmatrix: Command, two_settings: Path, tmp_path: Path) -> None:
    assert torchmatrix("run", "--where", "count=1").returncode == 0
    assert torchmatrix("export", "before", "--no-charts", "--format", "json").returncode == 0
    before = files(tmp_path / "results")
    assert torchmatrix("profile", EAGER, "--profiles", "results/profiles").returncode == 0  # even inside the results
    after = {name: data for name, data in files(tmp_path / "results").items() if not name.startswith("profiles/")}
    assert {**after, ".lock": b""} == {**before, ".lock": b""}
    assert torchmatrix("export", "after", "--no-charts", "--format", "json").returncode == 0
    assert files(tmp_path / "before") == files(tmp_path / "after")
    assert torchmatrix("history", "--json").stdout.count('"run"') == 2  # of each cell one


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("profile", "fake/*"), 2, "means 4 cells"),
        (("profile", "no-such-cell"), 3, '"no-such-cell" matches no cell'),
        (("why", EAGER, EAGER), 2, "is both A and B"),
        (("why", EAGER, EAGER + "+1"), 2, "devices (1 and 2)"),
        (("why", EAGER, COMPILED, "--again", "--recorded"), 2, "contradict"),
        (("profile", EAGER, "--steps", "0"), 2, "--steps"),
    ],
)
def test_ambiguous_or_contradicting_words_are_an_error(
    torchmatrix: Command, two_settings: Path, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    done = torchmatrix(*words)
    assert done.returncode == code and message in done.stderr and "hint: " in done.stderr
    assert not (tmp_path / "profiles").exists()


@pytest.mark.parametrize(
    ("how", "message"), [("crash", "RuntimeError: crash on purpose"), ("torn", "no whole trace"), ("killed", "-9")]
)
def test_a_workload_that_fails_leaves_no_profile(
    torchmatrix: Command, two_settings: Path, tmp_path: Path, how: str, message: str
) -> None:
    done = torchmatrix("profile", EAGER, FAKE_BEHAVIOUR=how)
    assert done.returncode == 1 and message in done.stderr and "hint: " in done.stderr
    assert not (tmp_path / "profiles").exists()


def test_a_trace_that_was_damaged_is_named(torchmatrix: Command, two_settings: Path, tmp_path: Path) -> None:
    assert torchmatrix("why", EAGER, COMPILED).returncode == 0
    trace = next((tmp_path / "profiles").rglob("trace.json.gz"))
    trace.write_bytes(trace.read_bytes()[:-20])
    done = torchmatrix("why", EAGER, COMPILED)
    assert done.returncode == 2 and str(trace.relative_to(tmp_path)) in done.stderr and "--again" in done.stderr


def test_a_stack_that_is_not_built_names_the_command(torchmatrix: Command, fake_matrix: Path) -> None:
    fake_matrix.write_text(
        fake_matrix.read_text(encoding="utf-8")
        .replace(f'python = "{FAKE_PYTHON}"', 'torch = "2.5.1"\npackages = ["typing-extensions<4.13"]')
        .replace('accelerator = "cpu"', "cpu = true"),
        encoding="utf-8",
    )
    done = torchmatrix("profile", "*cpu0")
    assert done.returncode == 3 and "is not built" in done.stderr and "torchmatrix build" in done.stderr


def test_the_command_can_be_interrupted(two_settings: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchmatrix", "profile", EAGER, "--engine", "local"]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "FAKE_BEHAVIOUR": "hang"}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        while "profiling" not in process.stderr.readline():
            pass
        process.terminate()
        assert process.wait(timeout=600) == 130
    assert not (tmp_path / "profiles").exists()


def test_steps_of_two_batches_are_not_compared_nor_a_profile_that_says_none(
    torchmatrix: Command, two_settings: Path, tmp_path: Path
) -> None:
    text = two_settings.read_text(encoding="utf-8").replace("batch = 4", 'batch = "auto"')
    two_settings.write_text(text, encoding="utf-8")
    eager, compiled = (cell.replace("b4", "bauto") for cell in (EAGER, COMPILED))
    for cell, most in ((eager, "32"), (compiled, "16")):
        assert torchmatrix("run", cell, "--launches", "1", FAKE_LARGEST_BATCH=most).returncode == 0
    done = torchmatrix("why", eager, compiled)
    assert done.returncode == 2 and "the batch that fits is 32 and 16" in done.stderr
    for path in (tmp_path / "profiles").rglob("profile.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"work": {}}))
    done = torchmatrix("why", eager, compiled, "--recorded")
    assert done.returncode == 2 and "not profiled yet" in done.stderr


def test_a_profile_with_other_threads_is_made_again(torchmatrix: Command, two_settings: Path, tmp_path: Path) -> None:
    assert torchmatrix("why", EAGER, COMPILED).returncode == 0
    held = list((tmp_path / "profiles").rglob("profile.json"))
    for path in held:
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"gpus": record["gpus"] | {"threads": 1000}}))
    assert torchmatrix("why", EAGER, COMPILED).returncode == 0
    records = [json.loads(path.read_text()) for path in (tmp_path / "profiles").rglob("profile.json")]
    assert len(held) == 2 and {record["cell"] for record in records if record["gpus"]["threads"] != 1000} == {EAGER, COMPILED}
