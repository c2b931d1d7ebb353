"""Other programs on this machine: busy CPUs before a launch, and other runs on the same devices."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support import until
from torchmatrix.core.errors import EngineUnusable
from torchmatrix.machine import claims, quiet
from torchmatrix.machine.claims import claimed
from torchmatrix.running import readiness
from torchmatrix.running.readiness import Patience

HOLD = """
import sys, time
from pathlib import Path
from torchmatrix.machine.claims import claimed
with claimed(Path(sys.argv[1]), sys.argv[2].split(), 600):
    print("held", flush=True)
    time.sleep(600)
"""
LOCK = """
import fcntl, sys, time
with open(sys.argv[1]) as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def process_of(code: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """Run code in another process until the block ends; it says when it holds what it is to hold."""
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "claims").mkdir()
    monkeypatch.setenv("TORCHMATRIX_CLAIMS", str(tmp_path / "claims"))
    return tmp_path / "claims"


@pytest.fixture
def other(place: Path, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start another run, on GPU-a, with results in tmp_path/theirs."""
    with process_of(HOLD, str(tmp_path / "theirs"), "GPU-a") as process:
        yield process


@pytest.mark.parametrize(("gpus", "what"), [(["GPU-a"], "one of its GPUs"), (["GPU-b"], "its CPUs"), ([], "its CPUs")])
def test_a_claim_is_seen_in_whichever_folder_its_user_could_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: list[str], what: str
) -> None:
    """Root writes to /run/lock, where users often can't: theirs lie in /dev/shm."""
    folders = [tmp_path / name for name in ("of-root", "of-users")]
    for folder in folders:
        folder.mkdir()
    monkeypatch.delenv("TORCHMATRIX_CLAIMS", raising=False)
    monkeypatch.setattr(claims, "_FOLDERS", (str(folders[1]),))
    with claims.claimed(tmp_path, ["GPU-a"], 60):
        monkeypatch.setattr(claims, "_FOLDERS", tuple(map(str, folders)))
        with pytest.raises(EngineUnusable, match=f"measures on {what}"):
            ExitStack().enter_context(claims.claimed(tmp_path, gpus, 60))
    with claims.claimed(tmp_path, gpus, 60):
        assert len(list(folders[0].iterdir())) == 1 and not list(folders[1].iterdir())


@pytest.mark.parametrize(("gpus", "what"), [(["GPU-a"], "one of its GPUs"), (["GPU-b"], "its CPUs"), ([], "its CPUs")])
def test_a_second_run_on_the_same_devices_gives_way(
    other: "subprocess.Popen[str]", place: Path, tmp_path: Path, gpus: list[str], what: str
) -> None:
    with pytest.raises(EngineUnusable, match=f"measures on {what}: process {other.pid}, results in {tmp_path}/theirs") as error:
        ExitStack().enter_context(claimed(tmp_path, gpus, 60))
    assert "for another 10 minutes" in str(error.value) and "--anyway" not in error.value.hint
    with pytest.raises(EngineUnusable) as error:  # of a command that has the option
        ExitStack().enter_context(claimed(tmp_path, gpus, 60, beside=False))
    assert "--anyway" in error.value.hint
    (claim,) = place.iterdir()  # who gave way claims nothing
    assert claim.stat().st_mode & 0o777 == 0o644, "other users must be able to read it"
    with claimed(tmp_path, gpus, 60, beside=True):
        assert len(list(place.iterdir())) == 2
    assert len(list(place.iterdir())) == 1


def test_runs_on_other_gpus_and_cpus_go_on(
    other: "subprocess.Popen[str]", place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {100, 101})
    with claimed(Path(), ["GPU-b"], 60):
        assert len(list(place.iterdir())) == 2


def test_what_a_killed_run_claimed_is_free(other: "subprocess.Popen[str]", place: Path) -> None:
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    assert len(list(place.iterdir())) == 1
    with claimed(Path(), ["GPU-a"], 60):
        assert len(list(place.iterdir())) == 1, "its file is gone"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', "\x00" * 50, '{"pid": 1, "folder": "f", "gpus": 3}'])
def test_odd_files_are_no_claims(place: Path, content: str) -> None:
    odd = place / "torchmatrix-1.json"
    odd.write_text(content)
    (place / "torchmatrix-2.json").symlink_to("/nowhere")
    os.mkfifo(place / "torchmatrix-3.json")
    with process_of(LOCK, str(odd)), claimed(Path(), ["GPU-a"], 60):
        assert odd.exists()


def test_a_hostile_claim_controls_no_terminal_and_ends_some_day(place: Path) -> None:
    file, cpus = place / "torchmatrix-7.json", sorted(os.sched_getaffinity(0))
    file.write_text(json.dumps({"pid": 7, "folder": "a\x1b]52;c;x\x07" * 900, "gpus": [], "cpus": cpus, "ends": 1e300}))
    with process_of(LOCK, str(file)):
        with pytest.raises(EngineUnusable) as error:
            ExitStack().enter_context(claimed(Path(), [], 60))
        assert "\x1b" not in str(error.value) and len(str(error.value)) < 500


def test_a_folder_that_nobody_can_write_to_stops_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHMATRIX_CLAIMS", str(tmp_path / "nowhere"))
    with claimed(tmp_path, ["GPU-a"], 60):
        pass


def test_of_many_runs_that_begin_at_once_at_most_one_measures(place: Path, tmp_path: Path) -> None:
    code = HOLD.replace("time.sleep(600)", "time.sleep(3)")
    words, nowhere = [sys.executable, "-c", code, str(tmp_path), "GPU-a"], subprocess.DEVNULL
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=nowhere) for _ in range(6)]
    held = [process.communicate()[0] == b"held\n" for process in started]
    assert sum(held) <= 1 and not list(place.iterdir())


class Machine:
    """A machine with four CPUs, of which others use `used`, one value for each look; the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, used: list[float]) -> None:
        self.used, self.now = used, 0.0
        monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
        monkeypatch.setattr(quiet, "busy_cpus", self.look)
        monkeypatch.setattr(quiet, "busiest", lambda: [])
        monkeypatch.setattr(readiness, "time", self)

    def look(self) -> float:
        self.now += 0.2
        return self.used.pop(0) if len(self.used) > 1 else self.used[0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        return self.now

    def waited(self, patience: Patience, needed: int) -> tuple[list[str], float]:
        """Return what was told, and the seconds."""
        told: list[str] = []
        waiting = patience.wait(needed)
        while True:
            try:
                told.append(next(waiting))
            except StopIteration as over:
                return told, over.value


@pytest.mark.parametrize(
    ("needed", "used", "waits"), [(4, 0.3, False), (4, 0.5, True), (1, 3.0, False), (1, 3.2, True), (2, 2.1, False)]
)
def test_a_launch_waits_for_the_cpus_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, needed: int, used: float, waits: bool
) -> None:
    told, seconds = Machine(monkeypatch, [used, used, 0.0]).waited(Patience(seconds=300.0), needed)
    assert told == ([f"other programs use {used:.1f} CPUs; 5 min at most"] if waits else [])
    assert (2 <= seconds < 4) if waits else seconds == 0.0


def test_waiting_in_vain_is_not_repeated_until_the_machine_was_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, patience = Machine(monkeypatch, [4.0]), Patience(seconds=300.0)
    told, seconds = machine.waited(patience, 4)
    assert len(told) == 2 and "launched all the same" in told[1] and 300 <= seconds < 302
    assert machine.waited(patience, 4) == ([], pytest.approx(0.2))
    machine.used = [0.0, 4.0]
    assert machine.waited(patience, 4) == ([], 0.0)
    assert machine.waited(patience, 4)[1] >= 300


def test_without_patience_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, [4.0])
    assert machine.waited(Patience(), 4) == ([], 0.0) and machine.now == 0.0


def test_a_busy_cpu_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            until(lambda: quiet.busy_cpus(0.2) > 0.5)
            until(lambda: busy.pid in quiet.busiest())
            assert f"process {busy.pid} (python" in readiness.describe(busy.pid)
        finally:
            busy.kill()
