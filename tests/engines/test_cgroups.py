"""Launches without a container have limits, too: real control groups where there are any, and invented trees of version 2."""

import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import FAKE_PYTHON, Command, until
from torchmatrix.core.settings import Settings
from torchmatrix.engines import containment
from torchmatrix.engines.containment import Limits
from torchmatrix.engines.engine import Exit
from torchmatrix.engines.processes import LocalExecution
from torchmatrix.facts.store import Results

GROW = "kept = []\nwhile True:\n    kept.append(bytearray(5_000_000))\n"
BOMB = """
import os, sys, time
print("up", flush=True)
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            os.environ.clear()
    except OSError:
        time.sleep(0.01)
"""
"""Every process of it starts others for ever."""
SMALL = Limits(memory_bytes=100_000_000, processes=64)


@pytest.fixture
def place() -> containment.GroupPlace:
    """Return the place where this machine lets us make groups."""
    group_place = containment.find_group_place()
    if group_place.why_not:
        pytest.skip(f"no control groups here: {group_place.why_not}")
    return group_place


@pytest.fixture
def owner(place: containment.GroupPlace) -> Iterator[str]:
    """Yield the owner of the groups; after the test there are none."""
    name = f"test-groups-{uuid.uuid4().hex}"
    yield name
    assert containment.remove_left_groups(place, name) == []


def running(mark: str) -> list[str]:
    """Return the ids of the processes whose command line contains `mark`."""
    ids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            ids += [path.parent.name] if mark.encode() in path.read_bytes() else []
        except OSError:
            continue
    return ids


@pytest.mark.parametrize(
    "code", [GROW, f"import os, sys\nif os.fork() == 0:\n{textwrap.indent(GROW, '    ')}\nos.wait()\nsys.exit(1)"]
)
def test_a_launch_that_outgrows_its_memory_is_out_of_memory(place: containment.GroupPlace, owner: str, code: str) -> None:
    with LocalExecution([sys.executable, "-S", "-c", code], {}, owner, place=place, limits=SMALL) as execution:
        list(execution.lines())
        end = execution.wait()
    assert end.oom_killed and end.returncode != 0
    assert execution.started["memory_bytes"] == 100_000_000 and execution.started["processes"] == 64


def test_a_launch_within_its_limits_ends_as_it_would_without_them(place: containment.GroupPlace, owner: str) -> None:
    code = "kept = bytearray(20_000_000); raise SystemExit(3)"
    with LocalExecution([sys.executable, "-S", "-c", code], {}, owner, place=place, limits=SMALL) as execution:
        list(execution.lines())
        assert execution.wait() == Exit(returncode=3, oom_killed=False)


def test_a_fork_bomb_ends_with_its_launch(place: containment.GroupPlace, owner: str) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    with LocalExecution([sys.executable, "-S", "-c", BOMB, mark], {}, owner, place=place, limits=SMALL) as execution:
        assert next(iter(execution.lines())) == ("out", b"up\n")
        until(lambda: len(running(mark)) > 32)
        assert len(running(mark)) <= 64 + 1, "and its supervisor, which is outside"
        execution.stop()
        until(lambda: not running(mark))


def test_what_a_killed_tool_and_supervisor_leave_is_ended_and_removed_at_the_next_start(
    place: containment.GroupPlace, owner: str
) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    command = [sys.executable, "-S", "-c", BOMB, mark]
    tool = textwrap.dedent(f"""
        from torchmatrix.engines import containment
        from torchmatrix.engines.containment import Limits
        from torchmatrix.engines.processes import LocalExecution
        limits = Limits(memory_bytes=100_000_000, processes=64)
        with LocalExecution({command!r}, {{}}, {owner!r}, place=containment.find_group_place(), limits=limits) as execution:
            for line in execution.lines():
                print(line, flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", tool], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and "up" in process.stdout.readline()
    (supervisor,) = (
        pid for pid in running(mark) if f"PPid:\t{process.pid}\n" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    )
    process.send_signal(signal.SIGSTOP)
    subprocess.run(["kill", "-KILL", supervisor], check=True)
    process.kill()
    process.communicate()
    assert len(containment.remove_left_groups(place, owner)) == 1
    until(lambda: not running(mark))


def test_a_cell_out_of_memory_does_not_end_the_run(
    torchmatrix: Command, place: containment.GroupPlace, site: Callable[..., Settings], tmp_path: Path
) -> None:
    site(TORCHMATRIX_MEMORY_SHARE=0.01)
    greedy = tmp_path / "greedy"
    greedy.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {FAKE_PYTHON} "$@"\nexec {sys.executable} -S {tmp_path}/grow.py\n')
    greedy.chmod(0o755)
    (tmp_path / "grow.py").write_text(GROW)
    stacks = "".join(
        f'[[stack]]\nname = "{name}"\npython = "{python}"\naccelerator = "cpu"\n'
        for name, python in (("greedy", greedy), ("modest", FAKE_PYTHON))
    )
    workload = '[[workload]]\ndevice = "cpu"\nmodel = "resnet50"\nbatch = 4\nsteps = 5\n'
    (tmp_path / "matrix.toml").write_text(f"[run]\nlaunches = 2\n[cpus]\ncounts = [1]\n{stacks}{workload}")
    done = torchmatrix("run", "--engine", "local")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    (run,) = Results(tmp_path / "results").runs()
    outcomes = sorted((launch.stack.name, launch.outcome) for launch in run.launches())
    assert outcomes == [("greedy", "oom")] * 2 + [("modest", "ok")] * 2
    memory = {launch.started["memory_bytes"] for launch in run.launches()}
    assert len(memory) == 1 and memory.pop() < 10 << 30
    assert containment.remove_left_groups(place, Results(tmp_path / "results").owner) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Write what /proc and /sys say to a process in the group /user/shell of version 2, which may use the group /user."""
    process, user = tmp_path / "self", tmp_path / "sys" / "user"
    for folder in (process, user / "shell"):
        folder.mkdir(parents=True)
    (process / "cgroup").write_text("0::/user/shell\n")
    (process / "mounts").write_text(f"proc /proc proc rw 0 0\ncgroup2 {tmp_path / 'sys'} cgroup2 rw,nosuid 0 0\n")
    (user / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (user / "cgroup.procs").write_text("")
    for name, word in {"memory.max": "max", "memory.high": "max", "cpu.max": "max 100000", "pids.max": "20000"}.items():
        (user / "shell" / name).write_text(word + "\n")
    return tmp_path


def test_a_group_of_version_2_stands_beside_the_tools_own(tree: Path) -> None:
    place = containment.GroupPlace(folders=(tree / "sys" / "user",))
    group = containment.make_group(place, "owner", SMALL)
    (folder,) = group.folders
    assert folder.parent == tree / "sys" / "user"
    assert ((folder / "memory.max").read_text(), (folder / "pids.max").read_text()) == ("100000000", "64")
    assert containment.oom_kills(group) == 0
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n")
    assert containment.oom_kills(group) == 1


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("sys/user/cgroup.subtree_control", "cpu\n", "sys/user: memory and pids can't be limited there"),
        ("sys/user/cgroup.subtree_control", "memory\n", "sys/user: pids can't be limited there"),
        ("sys/user/shell/memory.max", "8589934592\n", "sys/user/shell: the launch would escape memory.max"),
        ("sys/user/shell/cpu.max", "50000 100000\n", "sys/user/shell: the launch would escape cpu.max"),
        ("sys/user/shell/cpuset.cpus", "0-3\n", "sys/user/shell: the launch would escape cpuset.cpus"),
        ("self/mounts", "proc /proc proc rw 0 0\n", "the kernel has no control groups for memory and processes"),
        ("self/cgroup", "0::/elsewhere/shell\n", "cgroup.subtree_control: No such file or directory"),
        ("self/cgroup", "", "the kernel has no control groups for memory and processes"),
    ],
)
def test_where_no_group_can_be_made_the_reason_is_known(tree: Path, file: str, text: str, reason: str) -> None:
    (tree / file).write_text(text)
    place = containment.find_group_place(tree / "self")
    assert place.folders == () and place.why_not.endswith(reason)


def test_doctor_says_why_launches_have_no_limit_of_memory(
    torchmatrix: Command, fake_matrix: Path, place: containment.GroupPlace
) -> None:
    """Ask once with this machine's control groups, once where an empty folder hides them."""
    assert "no limit of memory" not in torchmatrix("doctor", "--engine", "local").stdout
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh"]
    if os.geteuid() or subprocess.run([*hidden, "true"], capture_output=True).returncode:
        pytest.skip("hiding the control groups needs root and namespaces of mounts")
    command = [*hidden, sys.executable, "-m", "torchmatrix", "doctor", "--engine", "local"]
    done = subprocess.run(command, cwd=fake_matrix.parent, capture_output=True, text=True)
    (note,) = (line for line in done.stdout.splitlines() if " limits: " in line)
    assert note.startswith("note  limits: launches (local) have no limit of memory and processes: /sys/fs/cgroup/")
    assert note.endswith(": No such file or directory") and "fix: as an ordinary user: systemd-run --user" in done.stdout
