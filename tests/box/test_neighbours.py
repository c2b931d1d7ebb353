"""What a rank reads of how it shares its machine: from the kernel that runs this test, beside a neighbour on the same CPU."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import sharing

SPIN = "while True: pass"


def busy(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.fixture
def one_cpu() -> Iterator[int]:
    """Pin this process, and all that it starts, to one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield min(before)
    os.sched_setaffinity(0, before)


def test_a_neighbour_on_the_same_cpu_is_seen(one_cpu: int) -> None:
    with subprocess.Popen([sys.executable, "-c", SPIN]) as neighbour:
        try:
            time.sleep(0.2)
            before = sharing.read()
            busy(0.4)
            shared = sharing.since(before)
        finally:
            neighbour.kill()
    assert shared["cpus"] == str(one_cpu) and shared["run_seconds"] == pytest.approx(0.4, rel=0.1)
    assert shared["wait_seconds"] > 0.25 * shared["run_seconds"] and shared["switches"] > 0
    assert shared["busy_seconds"] - shared["run_seconds"] > 0.25 * shared["run_seconds"]


def test_a_pause_is_no_waiting() -> None:
    before = sharing.read()
    time.sleep(0.3)
    shared = sharing.since(before)
    assert shared["run_seconds"] < 0.1 and shared["wait_seconds"] < 0.1


@pytest.mark.parametrize("hidden", ["schedstat", "/proc/stat"])
def test_what_the_kernel_hides_is_left_out(monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    read = sharing._text
    monkeypatch.setattr(sharing, "_text", lambda path: None if path.endswith(hidden) else read(path))
    names = set(sharing.since(sharing.read()))
    of = {"schedstat": {"run_seconds", "wait_seconds"}, "/proc/stat": {"cpus", "busy_seconds", "stolen_seconds"}}
    assert names == {"switches", "faults"}.union(*(of[other] for other in of if other != hidden))


@pytest.mark.parametrize(("cpus", "text"), [([3], "3"), ([0, 1, 2, 3], "0-3"), ([0, 2, 3, 9], "0,2-3,9"), ([1, 3, 5], "1,3,5")])
def test_cpus_are_listed_as_the_kernel_does(cpus: list[int], text: str) -> None:
    assert sharing._ranges(cpus) == text
