"""`run --parallel` through the command on an invented server: cells that run at once, cells that don't, interruptions."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from invented_servers import uuid
from stand_ins import Running

from support import until

PARALLEL = ("run", "--engine", "local", "--parallel")
TWO_LANES = "counts = []\nlists = [[0], [1]]"


def forget_the_dead(server: Running) -> None:
    """Remove killed processes from the stand-in's list, as the driver no longer lists a process that has ended."""
    lines = [line.split() for line in server.journal.read_text().splitlines()]
    ended = {process for word, process, _ in lines if word == "exit"}
    dead = [(process, devices) for word, process, devices in lines if word == "launch" and process not in ended]
    with server.journal.open("a") as file:
        file.writelines(f"exit {process} {gpus}\n" for process, gpus in dead if not Path(f"/proc/{process}").exists())


def test_plan_says_what_could_run_at_once_and_the_longest_lane_counts(eight_h100: Running) -> None:
    eight_h100.matrix("counts = []\nlists = [[0], [1], [2, 3]]", launches=20)
    assert eight_h100.run("plan", "--engine", "local").stderr.startswith("4 cells on 1 stack: 80 launches, about 60 min;")
    lines = eight_h100.run("plan", "--engine", "local", "--parallel").stderr.splitlines()
    assert lines[0].startswith("4 cells on 1 stack: 80 launches, about 46 min;"), "30 min of gpu2+3, gpu2 and the test"
    test = "at once, if a test of about 16 min shows that they don't disturb each other"
    assert lines[1] == f"gpu0, gpu1, gpu2+3: {test}; else one by one: 60 min"
    eight_h100.matrix("counts = [1, 2]")
    lines = eight_h100.run("plan", "--engine", "local", "--parallel").stderr.splitlines()
    assert lines[1] == "nothing can run at once: no two cells on gpu0+1 have GPUs of their own"


@pytest.mark.thorough
def test_launches_on_two_gpus_overlap_after_a_test_that_is_printed_and_recorded(eight_h100: Running) -> None:
    eight_h100.matrix(TWO_LANES)
    done = eight_h100.run(*PARALLEL, "--json", FAKE_SECONDS="0.3")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"ok": 2}, "the launches of the test don't count"
    assert "gpu0 and gpu1 run at once: none is disturbed by more than 0.5 %" in done.stderr
    first, second = eight_h100.launches()
    assert first.exit and first.exit.beside == (second.cell,) and second.exit and second.exit.beside == (first.cell,)
    assert first.windows[-1].edges and second.windows[0].edges
    assert second.windows[0].edges[0] < first.windows[-1].edges[1], "windows overlap"
    assert len(eight_h100.used) == 2 * (1 + 4 + 4 + 1) + 2
    read = {reading["device"] for launch in (first, second) for event in launch.telemetry for reading in event.readings}
    assert read == {"cpu", uuid(0), uuid(1)}
    assert "At once gpu0 and gpu1 run at once: none is disturbed by more than 0.5 %" in eight_h100.report()


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.sweep
def test_a_run_that_was_ended_while_lanes_ran_keeps_what_was_finished(eight_h100: Running, number: signal.Signals) -> None:
    eight_h100.matrix(TWO_LANES, launches=4)
    process = subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", *PARALLEL], cwd=eight_h100.folder, stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, env={**os.environ, **eight_h100.environment, "FAKE_SECONDS": "0.5"}, text=True,
    )  # fmt: skip
    until(lambda: sum(launch.outcome == "ok" for launch in eight_h100.launches()) >= 2, process)
    process.send_signal(number)
    code = process.wait()
    assert code == (130 if number == signal.SIGINT else -signal.SIGKILL)
    finished = {launch.path for launch in eight_h100.launches() if launch.outcome == "ok"}
    assert len(finished) < 8 and {recorded.outcome for recorded in eight_h100.launches()} <= {"ok", "interrupted", "lost"}
    forget_the_dead(eight_h100)
    before = len(eight_h100.used)
    done = eight_h100.run(*PARALLEL, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"ok": 8}
    assert len(eight_h100.used) == before + 8 - len(finished), "neither the test nor what was finished is launched again"
    assert finished <= {launch.path for launch in eight_h100.launches() if launch.outcome == "ok"}


@pytest.mark.thorough
def test_launches_that_ran_with_others_are_not_compared_with_launches_alone(eight_h100: Running) -> None:
    eight_h100.matrix(TWO_LANES)
    for words in (PARALLEL, ("run", "--engine", "local")):
        assert eight_h100.run(*words).returncode == 0
    refused = eight_h100.run("compare", "last", "last~1")
    assert refused.returncode == 2 and "they differ in method.parallel (False and True)" in refused.stdout
