"""The instrument proved by real launches: equal things measure equal, and as a bare loop does. Takes half an hour.

Needs an otherwise idle machine: beside another program the intervals are too wide to prove anything, and the tests say so.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import bare_loop
from torchmatrix.analysis.intervals import Interval, difference_verdict
from torchmatrix.analysis.pairs import pair_by_rounds
from torchmatrix.analysis.run_summary import launch_rows
from torchmatrix.facts.store import Results

LAUNCHES = 24
MATRIX = """
[cpus]
counts = [1]
when = "always"
[[stack]]
name = "a"
python = "{python}"
accelerator = "cpu"
[[stack]]
name = "b"
python = "{python}"
accelerator = "cpu"
[[workload]]
device = "cpu"
model = "bert-tiny"
batch = 8
sequence_length = 64
steps = 80
[[workload]]
name = "control"
stacks = ["a"]
device = "cpu"
model = "bert-tiny"
channels_last = true
batch = 8
sequence_length = 64
steps = 80
"""
"""Stacks a and b are the same; `control` is the same again in a layout that has no meaning for BERT."""


def torchmatrix(folder: Path, *words: str) -> str:
    """Run the real command in `folder`; return its standard output."""
    command = [sys.executable, "-m", "torchmatrix", *words]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, real_python: str, one_cpu: int) -> Path:
    """Return a folder with one run: the three cells interleaved, each launched LAUNCHES times."""
    folder = tmp_path_factory.mktemp("proof")
    (folder / "matrix.toml").write_text(MATRIX.format(python=real_python))
    torchmatrix(folder, "run", "--engine", "local", "--launches", str(LAUNCHES))
    return folder


def samples(folder: Path, stack: str, control: bool) -> list[float]:
    """Return the throughputs of one cell's launches, all of which must be ok, by round."""
    (run,) = Results(folder / "results").runs()
    rows = [row for row in launch_rows(run.launches()) if (row.stack, row.value("channels_last")) == (stack, control)]
    assert [row.outcome for row in rows] == ["ok"] * LAUNCHES
    return [row.throughput for row in sorted(rows, key=lambda row: row.round)]


def told(what: str, ratio: Interval, launches: int) -> str:
    verdict = difference_verdict(ratio)
    print(f"\n{what}: {ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}], n = {launches} + {launches}: {verdict}")
    return verdict


def test_two_identical_stacks_are_the_same(measured: Path) -> None:
    (row,) = json.loads(torchmatrix(measured, "compare", "b", "a", "--json"))["rows"]
    assert row["launches"] == [LAUNCHES, LAUNCHES]
    ratio = Interval(value=row["ratio"], low=row["low"], high=row["high"])
    assert told("A/A, two identical stacks", ratio, LAUNCHES) == row["verdict"] == "SAME"


def test_channels_last_changes_nothing_for_bert(measured: Path) -> None:
    ratio = pair_by_rounds(samples(measured, "a", control=True), samples(measured, "a", control=False)).interval
    assert told("negative control, channels_last over contiguous for BERT", ratio, LAUNCHES) == "SAME"


def test_torchmatrix_measures_what_a_bare_loop_measures(real_python: str, one_cpu: int) -> None:
    settings = bare_loop.Settings(python=real_python, cpu=one_cpu, steps=200)
    compared = bare_loop.compare(settings, LAUNCHES)
    print(f"\n{compared.text}")
    ratio = compared.ratio
    assert not math.isnan(ratio.low) and ratio.low <= 1.0 <= ratio.high, "the interval excludes 1"
    assert 0.99 <= ratio.value <= 1.01, "the ratio is not within 1 %"


def test_launches_beside_a_busy_program_are_marked_and_quiet_ones_are_not(
    tmp_path: Path, real_python: str, one_cpu: int
) -> None:
    """A program that wants all of the launches' one CPU, in half of the rounds."""
    text = MATRIX.format(python=real_python).replace("steps = 80", "steps = 40\nwarmup_cap_seconds = 3")
    (tmp_path / "matrix.toml").write_text(text.replace("[cpus]", "[run]\nquiet_wait_minutes = 0\n[cpus]", 1))
    for busy in (False, True, False, True):
        neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
        try:
            torchmatrix(tmp_path, "run", "--engine", "local", "--new", "--launches", "3", "a/bert-tiny*", "b/*")
        finally:
            if neighbour:
                neighbour.kill()
                neighbour.wait()
    marked = [[row.disturbed for row in launch_rows(run.launches())] for run in Results(tmp_path / "results").runs()]
    quiet, beside = marked[0::2], marked[1::2]
    shares = [sum(map(bool, flags)) / len(flags) for flags in ([*quiet[0], *quiet[1]], [*beside[0], *beside[1]])]
    print(
        f"\nlaunches marked as disturbed: {100 * shares[0]:.0f} % of quiet ones, {100 * shares[1]:.0f} % beside a busy program"
    )
    assert shares[0] <= 0.1 and shares[1] >= 0.98
