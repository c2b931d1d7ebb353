"""Tests that the bench sees what it is made to see: a lost, changed or repeated launch, a traceback, something left over."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from faults.checks import Finished, completed, ended_as
from faults.kinds import kinds
from faults.workplace import Ended, Workplace
from support import Command, invoke


@pytest.fixture
def place(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> Workplace:
    """Return a workplace in which a run was completed."""
    (tmp_path / "tmp").mkdir()
    made = Workplace(folder=tmp_path, random=Random(0), usual_seconds=1.0)
    done = torchmatrix("run", "*cpu0")
    made.ended.append(Ended(code=done.returncode, stdout=done.stdout, stderr=done.stderr, has_stderr=True))
    completed(made)
    return made


def test_a_lost_a_changed_and_a_repeated_launch_are_seen(place: Workplace) -> None:
    finished = Finished(place)
    finished.check()
    path = place.files()[0]
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(AssertionError, match="was lost"):
        finished.check()
    with pytest.raises(AssertionError, match="reported, but not recorded"):
        Finished(place).check()
    with pytest.raises(AssertionError, match="not measured"):
        place.ended.clear()
        completed(place)
    path.write_bytes(content + b"\n")
    with pytest.raises(AssertionError, match="was changed"):
        finished.check()


def test_a_launch_that_was_finished_twice_is_seen(place: Workplace) -> None:
    run = invoke(place.folder, "run", "*cpu0", "--engine", "local", "--new")
    assert run.returncode == 0
    first, _ = place.results.runs()
    (cell,) = {path.parent for path in place.files() if first.path in path.parents}
    lines = (cell / "round1-try1.jsonl").read_text().splitlines()
    (cell / "round1-try2.jsonl").write_text("\n".join(line.partition(', "crc"')[0] + "}" for line in lines) + "\n")
    (cell / "round1-try2.jsonl").write_text((cell / "round1-try2.jsonl").read_text().replace('"try": 1', '"try": 2'))
    with pytest.raises(AssertionError, match="finished twice"):
        Finished(place).check()


@pytest.mark.parametrize("left", ["tmp/x", "results/.x.part", "results/host/empty/"])
def test_what_is_left_over_is_seen(place: Workplace, left: str) -> None:
    path = place.folder / left
    path.mkdir(parents=True) if left.endswith("/") else path.touch()
    with pytest.raises(AssertionError, match=r"files|folders"):
        completed(place)


def test_a_traceback_and_a_wrong_exit_code_are_seen() -> None:
    stderr = "Traceback (most recent call last):\n  File torchmatrix/cli/run.py\nKeyError\n"
    with pytest.raises(AssertionError, match="traceback"):
        ended_as(Ended(code=1, stdout="", stderr=stderr, has_stderr=True), 1)
    with pytest.raises(AssertionError, match="exit code 1 instead of 0"):
        ended_as(Ended(code=1, stdout="", stderr="", has_stderr=True), 0)
    with pytest.raises(AssertionError, match="no error with a hint"):
        ended_as(Ended(code=4, stdout="", stderr="something", has_stderr=True), 4)


def test_each_kind_has_a_name_of_its_own() -> None:
    names = [kind.name for kind in kinds()]
    assert len(names) == len(set(names)) and sum(not kind.is_input for kind in kinds()) >= 24


def test_an_unknown_kind_names_the_nearest() -> None:
    words = [sys.executable, "-m", "faults", "--only", "kill -9 of the tol"]
    done = subprocess.run(words, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 2 and 'no kind "kill -9 of the tol"; hint: kill -9 of the tool' in done.stderr
