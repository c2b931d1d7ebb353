"""Launches that are forked from a process with the libraries loaded: stand-ins that misbehave, and real training."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from boxes import NET

from support import PATIENCE_SECONDS, Command, processes_of, until
from torchmatrix.engines import cgroups, fork_servers
from torchmatrix.engines.engine import Exit, LaunchSpec
from torchmatrix.engines.fork_servers import ForkServer, ForkServers
from torchmatrix.engines.limits import Limits
from torchmatrix.engines.processes import NOWHERE, UNLIMITED, LocalExecution
from torchmatrix.facts.events import read_lines
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results
from torchmatrix.ground import assets
from torchmatrix.planning.plan import GpuSet

BENCH = """
import os, subprocess, sys, tempfile, threading, time, types
loaded = []
def parse(flags):
    return types.SimpleNamespace(threads=int(os.environ.get("THREADS", "0")), model=flags[0])
def set_environment(args):
    os.environ["SEEN_BY_LIBRARIES"] = "yes"
def load(args):
    import families, phases
    families.load(args)
def leave(code):
    sys.stdout.flush()
    os._exit(code)
def main(flags):
    what = flags[0]
    print("begun", os.getpid(), os.getppid(), sys.argv[1:], flush=True)
    if what == "tell":
        kept = [name for name in ("SEEN_BY_LIBRARIES", "OPENBLAS_NUM_THREADS", "TORCHMATRIX_LAUNCH") if name in os.environ]
        print(loaded, kept, os.getpid() == os.getpgid(0), os.read(0, 1), flush=True)
        loaded.append("in the launch")
    elif what == "raise":
        raise RuntimeError("on purpose")
    elif what == "leave":
        sys.exit(3)
    elif what == "killed":
        os.kill(os.getpid(), 9)
    elif what == "grow":
        kept = []
        while True:
            kept.append(bytearray(5_000_000))
    elif what == "stray":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        print("left", flush=True)
    elif what == "litter":
        print(tempfile.mkdtemp(), flush=True)
    elif what == "hang":
        time.sleep(600)
"""
PHASES = "import bench, os, tempfile, threading, time\nbench.loaded.append('once')\ntempfile.mkdtemp()\n"
FAMILIES = "def load(args):\n    pass\n"
FRESH = LaunchSpec(arguments=("tell",), processes=1, gpus=GpuSet(indices=(0,), vendor="cpu"), cache="", owner="o")


@pytest.fixture(autouse=True)
def no_kills_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a control group the kernel's counter is that of the machine, where other tests run out of memory on purpose."""
    monkeypatch.setattr("torchmatrix.engines.processes.kernel_oom_kills", lambda: 0)


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A workload that does what its first flag says."""
    folder = tmp_path / "box"
    folder.mkdir()
    shutil.copy(assets.WORKLOAD / "fork_server.py", folder)
    for name, text in (("bench", BENCH), ("phases", PHASES), ("families", FAMILIES)):
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def owner() -> Iterator[str]:
    """Whose processes these are; after the test there are none."""
    name = f"test-forks-{uuid.uuid4().hex}"
    yield name
    until(lambda: not processes_of(f"TORCHMATRIX_OWNER={name}".encode()))


@pytest.fixture
def make(box: Path, owner: str) -> Iterator[Callable[..., ForkServer]]:
    """Makes servers, which end with the test."""
    made: list[ForkServer] = []

    def one(place: cgroups.Place = NOWHERE, limits: Limits = UNLIMITED, python: str = sys.executable) -> ForkServer:
        made.append(ForkServer(python, {}, owner, place, limits, box))
        return made[-1]

    yield one
    for server in made:
        server.end()


def oldest_python() -> str:
    """The oldest one that a stack may have, of those that this machine has."""
    for name in ("python3.8", "python3.9"):
        if shutil.which(name) and subprocess.run([name, "-c", ""], capture_output=True).returncode == 0:
            return name
    pytest.skip("no python3.8 or python3.9")


def launched(server: ForkServer, owner: str, *flags: str, **options: Any) -> tuple[list[str], list[str], Exit]:
    """What a forked launch said on both streams, and how it ended."""
    with LocalExecution([sys.executable, "bench.py", *flags], {}, owner, server=server, **options) as execution:
        lines = [(stream, line.decode().rstrip()) for stream, line in execution.lines()]
        end = execution.wait()
    return [text for name, text in lines if name == "out"], [text for name, text in lines if name == "err"], end


def test_launches_share_what_was_imported_and_nothing_else(
    make: Callable[..., ForkServer], owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)  # the tests have it, a user hasn't
    server = make()
    assert server.load(["tell"]) is None and server.load(["tell"]) is None
    found = [launched(server, owner, "tell") for _ in range(2)]
    for said, errors, end in found:
        assert (end, errors) == (Exit(returncode=0, oom_killed=False), [])
        assert said[0].endswith("['tell']")
        assert said[1] == "['once'] ['TORCHMATRIX_LAUNCH'] True b''", (
            "imported once; the environment is that of a fresh process"
        )
    first, second = (said[0].split()[1:3] for said, _, _ in found)
    assert first[0] != second[0] and first[1] != second[1], "each has a process and a supervisor of its own"


def test_the_oldest_python_of_a_stack_forks_too(make: Callable[..., ForkServer], owner: str) -> None:
    server = make(python=oldest_python())
    assert server.load(["tell"]) is None
    assert launched(server, owner, "tell")[2] == Exit(returncode=0, oom_killed=False)


@pytest.mark.parametrize(
    ("what", "code", "error"),
    [("raise", 1, "RuntimeError: on purpose"), ("leave", 3, ""), ("killed", -signal.SIGKILL, "")],
)
def test_a_launch_ends_as_a_fresh_one_would_and_a_bad_end_is_that_of_its_server(
    make: Callable[..., ForkServer], owner: str, what: str, code: int, error: str
) -> None:
    server = make()
    assert server.load([what]) is None
    _, errors, end = launched(server, owner, what)
    assert end == Exit(returncode=code, oom_killed=False) and (errors or [""])[-1] == error
    assert server.is_over


def test_what_a_launch_leaves_ends_with_it(make: Callable[..., ForkServer], owner: str) -> None:
    server = make()
    server.load(["stray"])
    said, _, end = launched(server, owner, "stray")
    assert said[-1] == "left" and end.returncode == 0 and not server.is_over
    left = [command_of(pid) for pid in processes_of(f"TORCHMATRIX_OWNER={owner}".encode())]
    assert len(left) == 2 and all(b"fork_server.py" in command for command in left), "the server and its supervisor"


def test_temporary_files_of_the_server_and_of_each_launch_go_with_them(
    make: Callable[..., ForkServer], owner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    server = make()
    assert server.load(["litter"]) is None
    (servers_own,) = (tmp_path / "tmp").iterdir()
    (made,) = {Path(said[1]) for said, _, _ in [launched(server, owner, "litter", scratch=True)]}
    assert made.parent.parent == tmp_path / "tmp" and made.parent != servers_own
    assert list((tmp_path / "tmp").iterdir()) == [servers_own] and list(servers_own.iterdir())
    server.end()
    assert not list((tmp_path / "tmp").iterdir())


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_launch_that_is_stopped_ends_and_leaving_its_block_ends_it_too(make: Callable[..., ForkServer], owner: str) -> None:
    for stop in (True, False):
        server = make()
        server.load(["hang"])
        with LocalExecution([sys.executable, "bench.py", "hang"], {}, owner, server=server) as execution:
            begun = next(iter(execution.lines()))[1].split()
            assert begun[0] == b"begun" and execution.owns(int(begun[1])) and not execution.owns(os.getpid())
            if stop:
                execution.stop()
                assert execution.wait().returncode in (-signal.SIGTERM, -signal.SIGKILL)
        assert server.is_over


def test_a_killed_server_is_a_killed_launch(make: Callable[..., ForkServer], owner: str) -> None:
    server = make()
    server.load(["hang"])
    with LocalExecution([sys.executable, "bench.py", "hang"], {}, owner, server=server) as execution:
        lines = execution.lines()
        parent = int(next(lines)[1].split()[2])
        above = int(Path(f"/proc/{parent}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        os.kill(above, signal.SIGKILL)
        list(lines)
        assert execution.wait() == Exit(returncode=-signal.SIGKILL, oom_killed=False)


def test_a_launch_that_outgrows_its_memory_is_out_of_memory(make: Callable[..., ForkServer], owner: str) -> None:
    place, limits = cgroups.find(), Limits(memory_bytes=100_000_000, processes=64)
    if place.why_not:
        pytest.skip(f"no control groups here: {place.why_not}")
    server = make(place, limits)
    server.load(["grow"])
    _, _, end = launched(server, owner, "grow", place=place, limits=limits)
    assert end.oom_killed and end.returncode != 0
    assert cgroups.remove_left(place, owner) == []


def test_a_tool_that_is_killed_leaves_nothing(box: Path, owner: str) -> None:
    tool = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from torchmatrix.engines import cgroups
        from torchmatrix.engines.fork_servers import ForkServer
        from torchmatrix.engines.limits import Limits
        from torchmatrix.engines.processes import NOWHERE, UNLIMITED, LocalExecution
        server = ForkServer(sys.executable, {{}}, {owner!r}, cgroups.Place(), Limits(), Path({str(box)!r}))
        assert server.load(["hang"]) is None
        with LocalExecution([sys.executable, "bench.py", "hang"], {{}}, {owner!r}, server=server) as execution:
            for line in execution.lines():
                print(line, flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", tool], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and "begun" in process.stdout.readline()
    assert len(processes_of(f"TORCHMATRIX_OWNER={owner}".encode())) == 4, "the server and the launch, each with its supervisor"
    process.kill()
    process.communicate(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("imports", "problem"),
    [
        ("threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", "the libraries have started 1 threads"),
        ("os.abort()", "the fork server has ended"),
    ],
)
def test_a_process_that_should_not_be_forked_is_not(
    make: Callable[..., ForkServer], box: Path, imports: str, problem: str
) -> None:
    (box / "phases.py").write_text(f"{PHASES}{imports}\n")
    assert make().load(["tell"]) == problem


def test_a_process_that_has_opened_a_device_is_not_forked(box: Path) -> None:
    code = "import fork_server; kept = open('/dev/zero'); print(fork_server.problem(('/dev/zero',)), fork_server.problem())"
    done = subprocess.run([sys.executable, "-c", code], cwd=box, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "the libraries have opened /dev/zero None"


def test_what_can_t_be_imported_is_the_failure_of_the_launch(make: Callable[..., ForkServer], box: Path, owner: str) -> None:
    (box / "phases.py").write_text("import no_such_library\n")
    server = make()
    assert server.load(["tell"]) is None
    assert launched(server, owner, "tell")[2].returncode == 0


class Server:
    """Stands in for a ForkServer."""

    def __init__(self, problem: str | None = None) -> None:
        self.problem, self.is_over, self.is_busy = problem, False, False

    def load(self, flags: object) -> str | None:
        return self.problem

    def end(self) -> None:
        self.is_over = True


def asked(number: int | None, lane: str = "") -> LaunchSpec:
    return LaunchSpec(arguments=("tell",), processes=1, gpus=FRESH.gpus, cache="", owner="o", round=number, lane=lane)


def test_a_server_is_kept_for_a_stack_a_lane_and_a_round() -> None:
    servers, made = ForkServers(), list[Server]()

    def make() -> Any:
        made.append(Server())
        return made[-1]

    def ready(python: str, number: int | None, lane: str = "") -> Any:
        return servers.ready(python, asked(number, lane), make)

    assert ready("a", None) == (None, None) and not made
    first, why = ready("a", 1)
    assert why is None and ready("a", 1)[0] is first and ready("b", 1)[0] is not first and ready("a", 1, "gpu0")[0] is not first
    assert ready("a", 2)[0] is not first and first.is_over, "launches of one cell share none"
    assert [one.is_over for one in made] == [True, False, False, False]
    made[-1].end()
    assert ready("a", 2)[0] is made[-1] is not made[-2], "one that has ended is replaced"
    servers.end()
    assert all(one.is_over for one in made)


def test_idle_servers_end_when_there_are_too_many() -> None:
    servers, made = ForkServers(), [Server() for _ in range(fork_servers.MOST + 2)]
    made[0].is_busy = True
    for number, one in enumerate(made):
        found: Any = one
        assert servers.ready(str(number), asked(1), partial(lambda found: found, found))[0] is one
    assert [one.is_over for one in made] == [False, True, True] + [False] * (fork_servers.MOST - 1)


def test_what_can_t_be_forked_is_told() -> None:
    problem: Any = Server("the libraries have started 3 threads")
    assert ForkServers().ready("a", asked(1), lambda: problem) == (None, "the libraries have started 3 threads")
    assert problem.is_over

    def fails() -> Any:
        raise OSError(24, "Too many open files")

    assert ForkServers().ready("a", asked(1), fails) == (None, "no fork server can be started: Too many open files")


SMALL = """
[[workload]]
device = "cpu"
model = ["resnet18", "bert-tiny"]
batch = 2
image_size = 32
sequence_length = 16
steps = 3
warmup_steps = 2
warmup_cap = 4
counts = [1]
"""


def told(launch: Launch, name: str) -> dict[str, Any]:
    return next(event for event in read_lines(launch.path) if event["event"] == name)


@pytest.mark.thorough
def test_forked_and_fresh_launches_tell_the_same_facts(torchmatrix: Command, real_matrix: Path, tmp_path: Path) -> None:
    real_matrix.write_text(real_matrix.read_text(encoding="utf-8") + SMALL, encoding="utf-8")
    for words in (("--launches", "2", "--fork"), ("--launches", "1", "--no-fork")):
        done = torchmatrix("run", *words, "--engine", "local")
        assert done.returncode == 0, done.stderr
    forked, fresh = (list(run.launches()) for run in Results(tmp_path / "results").runs())
    assert (len(forked), len(fresh)) == (4, 2) and {one.outcome for one in (*forked, *fresh)} == {"ok"}
    by_cell = {other.cell: other for other in fresh}
    for one in forked:
        other = by_cell[one.cell]
        assert one.started["process"] == {"state": "forked", "note": None}
        assert other.started["process"] == {"state": "fresh", "note": None}
        assert one.reference and other.reference and one.reference.fingerprint == other.reference.fingerprint
        for name in ("environment", "setup", "precision"):
            same = [
                {k: v for k, v in told(launch, name).items() if k != "crc" and "seconds" not in k} for launch in (one, other)
            ]
            assert same[0] == same[1]
    owner = f"TORCHMATRIX_OWNER={Results(tmp_path / 'results').owner}".encode()
    assert not processes_of(owner), "servers end with the run"


@pytest.mark.thorough
def test_a_forked_launch_has_a_deadline_and_the_next_is_measured(
    torchmatrix: Command, real_matrix: Path, tmp_path: Path
) -> None:
    text = real_matrix.read_text(encoding="utf-8").replace("timeout_minutes = 10", "timeout_minutes = 0.75")
    (tmp_path / "net.py").write_text(NET.replace("found = self.first(images)", "__import__('time').sleep(3600)"))
    endless = '[[workload]]\ndevice = "cpu"\nmodel = "net.py:Net"\nbatch = 2\ncounts = [1]\n'
    real_matrix.write_text(text + SMALL + endless, encoding="utf-8")
    done = torchmatrix("run", "--launches", "1", "--fork", "--engine", "local")
    assert done.returncode == 1, done.stderr
    (run,) = Results(tmp_path / "results").runs()
    outcomes = {launch.workload.model.partition(".")[0]: launch.outcome for launch in run.launches()}
    assert outcomes == {"resnet18": "ok", "bert-tiny": "ok", "net": "timeout"}
    assert {json.dumps(launch.started["process"]) for launch in run.launches()} == {'{"state": "forked", "note": null}'}
