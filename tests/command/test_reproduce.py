"""`torchmatrix reproduce` with the stand-in interpreter: how a launch is named, what is kept, what is refused."""

import os
from pathlib import Path

import pytest

from support import Command
from torchmatrix.engines import recipes
from torchmatrix.facts import lines
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results


def launches(tmp_path: Path) -> list[Launch]:
    """Return the launches of all runs, oldest run first."""
    return [launch for run in Results(tmp_path / "results").runs() for launch in run.launches()]


def rewrite(path: Path, **changes: object) -> None:
    """Change fields of a launch's header."""
    head, *rest = lines.read(path).events
    path.write_bytes(lines.packed([head | changes, *rest]))


def test_a_launch_is_repeated_by_its_file_its_cell_and_a_glob(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    assert torchmatrix("run", "--launches", "1").returncode == 0
    first = next(launch for launch in launches(tmp_path) if launch.cell.endswith("/cpu0"))
    for target in (str(first.path), first.cell, "fake/*/cpu0"):
        done = torchmatrix("reproduce", target)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == first.command, "the command, to be pasted"
        assert "95 % interval" in done.stderr and "launches: 1 ok" in done.stderr, "the table that run ends with"
        assert "then: 10000 images/s, now: 10000 images/s, ratio 1.0000 (one launch each: no interval)" in done.stderr
    recorded = launches(tmp_path)
    assert len(recorded) == 5 and {launch.outcome for launch in recorded} == {"ok"}
    same = ("cell", "batch_used", "workload_hash", "stack", "workload")
    assert all(getattr(again, key) == getattr(first, key) for again in recorded[2:] for key in same)


def test_print_starts_nothing(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    assert torchmatrix("run", "*cpu0", "--launches", "1").returncode == 0
    (first,) = launches(tmp_path)
    done = torchmatrix("reproduce", str(first.path), "--print")
    assert done.returncode == 0 and done.stdout.strip() == first.command and len(launches(tmp_path)) == 1


def test_a_batch_that_was_found_is_used_again_though_another_would_fit_now(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8").replace("batch = 4", 'batch = "auto"'), encoding="utf-8")
    assert torchmatrix("run", "*cpu0", "--launches", "1", FAKE_LARGEST_BATCH="20").returncode == 0
    done = torchmatrix("reproduce", "fake/*/cpu0", FAKE_LARGEST_BATCH="32")
    assert done.returncode == 0, done.stderr
    then, now = launches(tmp_path)
    assert then.batch_used == now.batch_used == 16
    assert not list(now.path.parent.glob("batch*")), "no batch was tried"


def test_the_newest_launch_of_a_cell_is_meant(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    assert torchmatrix("run", "*cpu0", "--launches", "2").returncode == 0
    older, newer = launches(tmp_path)
    older.path.rename(older.path.with_name("round10-try1.jsonl"))
    rewrite(newer.path, command="the newest")
    done = torchmatrix("reproduce", "fake/*/cpu0", "--print")
    assert done.stdout.strip() == "the newest"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("fake/*", "2 cells of run"),
        ("no-such*", "no-such* is not a preset, a launch file or a measured cell"),
        ("aime-1999", "aime-1999 is not a preset, a launch file or a measured cell"),
        ("matrix.toml", "matrix.toml is not a launch file: it has no header"),
    ],
)
def test_what_names_no_single_launch_is_refused(torchmatrix: Command, fake_matrix: Path, target: str, message: str) -> None:
    assert torchmatrix("run", "--launches", "1").returncode == 0
    done = torchmatrix("reproduce", target)
    assert done.returncode == 2 and message in done.stderr and "\nhint: " in done.stderr and "Traceback" not in done.stderr
    if target == "fake/*":
        assert "/cpu0" in done.stderr and "/cpu0+1" in done.stderr


def test_another_workload_is_another_measurement(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    assert torchmatrix("run", "*cpu0", "--launches", "1").returncode == 0
    (launch,) = launches(tmp_path)
    rewrite(launch.path, workload_hash="f" * 64)
    done = torchmatrix("reproduce", str(launch.path))
    assert done.returncode == 2 and f"{'f' * 12} then, {recipes.workload_hash()[:12]} now" in done.stderr
    assert len(launches(tmp_path)) == 1


def test_a_launch_that_never_started_or_lies_in_no_run_is_refused(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8").replace("fake_python", "no_python"), encoding="utf-8")
    assert torchmatrix("run", "*cpu0", "--launches", "1").returncode == 1
    (failed,) = launches(tmp_path)
    done = torchmatrix("reproduce", str(failed.path))
    assert done.returncode == 2 and "never started: build-failed: " in done.stderr and "Traceback" not in done.stderr
    assert torchmatrix("reproduce", "fake/*/cpu0").returncode == 2
    alone = tmp_path / "alone.jsonl"
    alone.write_text(failed.path.read_text())
    rewrite(alone, image={"reference": "x"})
    done = torchmatrix("reproduce", "alone.jsonl")
    assert done.returncode == 2 and "does not belong to a run" in done.stderr and "Traceback" not in done.stderr


def test_launches_are_asked_of_a_preset_and_not_of_a_recorded_launch(torchmatrix: Command) -> None:
    for words, number in (((), 1), (("--launches", "3"), 3)):
        done = torchmatrix("reproduce", "llm-cpu", "--engine", "local", "--print", *words)
        cells = done.stdout.count("* ")
        assert done.returncode == 0 and cells >= 10 and f"{cells} cells: {number * cells} launches" in done.stderr
    done = torchmatrix("reproduce", "fake/*/cpu0", "--launches", "3")
    assert done.returncode == 2 and "--launches is for presets" in done.stderr


def test_a_selection_of_a_preset_that_matches_no_cell_is_told_as_plan_tells_it(torchmatrix: Command) -> None:
    done = torchmatrix("reproduce", "suite-cpu", "no*", "--print")
    assert done.returncode == 3 and "the selection matches no cell" in done.stderr


@pytest.mark.parametrize("content", [b"\xff", b"", b"stack = 3\n", b"[[stack]]\nname = 7\n", b"no lock"])
def test_a_damaged_lock_of_a_run_is_refused(torchmatrix: Command, fake_matrix: Path, tmp_path: Path, content: bytes) -> None:
    assert torchmatrix("run", "*cpu0", "--launches", "1").returncode == 0
    (first,) = launches(tmp_path)
    lock = first.path.parents[3] / "locks" / "fake.lock"
    lock.parent.mkdir(exist_ok=True)
    lock.write_bytes(content)
    done = torchmatrix("reproduce", str(first.path), "--print")
    assert done.returncode == 2 and "fake.lock" in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_pipe_for_a_matrix_holds_up_no_report(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    assert torchmatrix("run", "*cpu0", "--launches", "1").returncode == 0
    fake_matrix.unlink()
    os.mkfifo(fake_matrix)
    assert torchmatrix("report").returncode == 0


@pytest.mark.parametrize("lock", ["\udcff", "no lock", "a pipe"])
def test_manifests_hold_no_lock_that_is_none(torchmatrix: Command, fake_matrix: Path, tmp_path: Path, lock: str) -> None:
    place = fake_matrix.with_name("matrix.lock")
    os.mkfifo(place) if lock == "a pipe" else place.write_text(lock, errors="surrogateescape")
    done = torchmatrix("bundle", "kubernetes", "--image", "x/y:1", "--claim", "c", engine=None)
    assert done.returncode == 2 and "matrix.lock" in done.stderr and not done.stdout, done.stderr


def test_the_cell_alone_is_repeated_and_compared(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    """Its devices alone, its baseline and what explains it have faster or slower figures of their own."""
    assert torchmatrix("explain", "*cpu0+1", "--launches", "1").returncode == 0
    before = len(launches(tmp_path))
    done = torchmatrix("reproduce", "fake/resnet50-train-fp32-b4-224px/cpu0+1")
    assert done.returncode == 0, done.stderr
    assert "then: 15000 images/s, now: 15000 images/s, ratio 1.0000" in done.stderr
    assert len(launches(tmp_path)) == before + 1


def test_another_matrix_than_the_one_that_was_measured_is_refused(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    assert torchmatrix("run", "*cpu0", "--launches", "1").returncode == 0
    (run,) = Results(tmp_path / "results").runs()
    run.record.write_text(run.record.read_text().replace("steps = 5", "steps = 6"))
    done = torchmatrix("reproduce", "fake/*/cpu0")
    assert done.returncode == 2 and "isn't the one that was measured: steps differ" in done.stderr


def test_an_interpreter_with_another_torch_is_another_image(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    assert torchmatrix("run", "*cpu0", "--launches", "1").returncode == 0
    (first,) = launches(tmp_path)
    assert "no interval); the same image" in torchmatrix("reproduce", str(first.path)).stderr
    image = lines.read(first.path).events[0]["image"]
    rewrite(first.path, image=image | {"torch": "1.0.0"})
    assert "no interval); another image" in torchmatrix("reproduce", str(first.path)).stderr
