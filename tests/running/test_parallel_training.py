"""Real training on CPU slots with cores of their own: at once or one after the other, as the test of the lanes decides."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS, Command, processes_of, until
from torchmatrix.analysis import pairs
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results

WORKLOAD = '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 2\nimage_size = 32\nsteps = 5\nwarmup_steps = 2\n'
WORDS = ("run", "--parallel", "--launches", "2", "--where", "count=1", "--engine", "local")


@pytest.fixture
def two_slots(real_matrix: Path) -> Path:
    """Write a matrix of the stack on two slots; a wide margin is what is certain on any machine."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two slots need two CPUs")
    text = real_matrix.read_text(encoding="utf-8").replace("counts = [1, 2]", "counts = [2]\neach = true")
    text = text.replace("[run]", "[run]\nparallel_percent = 20")
    real_matrix.write_text(f"{text}{WORKLOAD}warmup_cap_seconds = 0\n", encoding="utf-8")
    return real_matrix


def begin(launch: Launch) -> float:
    assert launch.monotonic_seconds is not None
    return launch.monotonic_seconds


@pytest.mark.thorough
@pytest.mark.sweep
def test_a_killed_run_continues_as_the_test_of_its_lanes_decides(
    torchmatrix: Command, two_slots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "LOOKS", (3,))  # it may take twelve rounds where other tests disturb the lanes
    store = Results(tmp_path / "results")
    process = subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", *WORDS], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: any('"exit"' in path.read_text() for path in tmp_path.rglob("probe1-*.jsonl")), process)
    process.kill()
    process.communicate(timeout=PATIENCE_SECONDS)
    until(lambda: not processes_of(f"TORCHMATRIX_OWNER={store.owner}".encode()))
    done = torchmatrix(*WORDS)
    assert done.returncode == 0, done.stderr
    (run,) = store.runs()
    test = run.read_record().parallel
    assert test is not None and {lane.devices for lane in test.lanes} == {"cpu0", "cpu1"} and run.read_record().complete
    assert ("run at once" if test.shown else "run one after the other") in done.stderr
    ended = sorted((launch for launch in run.launches() if launch.outcome == "ok"), key=begin)
    assert sorted((launch.cell, launch.round) for launch in ended) == [
        (f"torch2.5.1-cpu/resnet18-train-fp32-b2-32px/{slot}", number) for slot in ("cpu0", "cpu1") for number in (1, 2)
    ]  # fmt: skip
    overlap = [begin(after) < begin(before) + before.seconds for before, after in pairwise(ended)]
    assert any(overlap) == test.shown
    assert {launch.method.facts.get("parallel", False) for launch in ended} == {test.shown}
