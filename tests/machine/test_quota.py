"""Shares that control groups let this process use: invented trees of both versions, with namespaces; and a real group."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from support.records import launch_lines
from torchmatrix.facts.environments import UNKNOWN, environment_of
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_of
from torchmatrix.facts.store import Results
from torchmatrix.machine.cpu import Quota, Throttled, quota, throttled, usable_cpus
from torchmatrix.machine.host import Host
from torchmatrix.machine.telemetry.cpu import open_cpu

GIB = 1 << 30
V2 = ("29 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",)


def tree(root: Path, group: str, mounts: tuple[str, ...], files: Mapping[str, str]) -> Path:
    """Write what /proc and /sys say; `files`: below /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(group)
    (root / "proc/self/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + "".join(mounts))
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def v1(controller: str, top: str, place: str = "") -> str:
    return f"33 31 0:30 {top} /sys/fs/cgroup/{place or controller} ro,nosuid master:11 - cgroup cgroup rw,{controller}\n"


POD = "/kubepods/pod1/c1"
UNLIMITED_V1 = {
    "cpu/cpu.cfs_quota_us": "-1",
    "cpu/cpu.cfs_period_us": "100000",
    "memory/memory.limit_in_bytes": str((1 << 63) - 4096),
}


@pytest.mark.parametrize(
    ("group", "mounts", "files", "cpus", "memory"),
    [
        ("0::/\n", V2, {"cpu.max": "150000 100000", "memory.max": str(2 * GIB)}, 1.5, 2 * GIB),  # a pod: a namespace of its own
        ("0::/\n", V2, {"cpu.max": "max 100000", "memory.max": "max", "memory.high": "max"}, None, None),
        ("0::/\n", V2, {"memory.max": "max", "memory.high": str(GIB)}, None, GIB),
        (  # the group above has the tighter one, and one above that the tightest of memory
            "0::/a/b/c\n", V2,
            {"a/b/c/cpu.max": "9 3", "a/b/cpu.max": "50000 25000", "a/memory.max": str(GIB), "a/b/memory.max": "9000000000"},
            2.0, GIB,
        ),
        # moved out of its own namespace
        ("0::/../../other\n", V2, {"cpu.max": "30000 100000", "other/cpu.max": "10000 100000"}, 0.3, None),
        ("0::/gone\n", V2, {"cpu.max": "max 100000"}, None, None),
        (  # a container of version 1 without a namespace: only its own group is mounted
            f"4:memory:{POD}\n3:cpu,cpuacct:{POD}\n", (v1("cpu,cpuacct", POD), v1("memory", POD)),
            {"cpu,cpuacct/cpu.cfs_quota_us": "300000", "cpu,cpuacct/cpu.cfs_period_us": "100000",
             "memory/memory.limit_in_bytes": "1073741824"},
            3.0, GIB,
        ),
        (  # the same from the host, where the limit is the pod's
            f"4:memory:{POD}\n1:cpu:{POD}\n", (v1("cpu", "/"), v1("memory", "/")),
            UNLIMITED_V1 | {"cpu/kubepods/pod1/cpu.cfs_quota_us": "250000", "cpu/kubepods/pod1/cpu.cfs_period_us": "100000",
                            f"cpu{POD}/cpu.cfs_quota_us": "-1", f"cpu{POD}/cpu.cfs_period_us": "100000"},
            2.5, None,
        ),
        ("4:memory:/\n1:cpu:/\n", (v1("cpu", "/"), v1("memory", "/")), UNLIMITED_V1, None, None),
        (  # both versions at once: the second has no controllers
            "1:cpu:/x\n0::/\n", (v1("cpu", "/"), V2[0].replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")),
            {"cpu/x/cpu.cfs_quota_us": "100000", "cpu/x/cpu.cfs_period_us": "50000", "unified/cgroup.procs": ""},
            2.0, None,
        ),
        ("1:cpu:/\n", (v1("cpu", "/", r"a\040b"),), {"a b/cpu.cfs_quota_us": "9", "a b/cpu.cfs_period_us": "9"}, 1.0, None),
        (  # version 1 tells a limit of a group above that a container doesn't see
            f"4:memory:{POD}\n", (v1("memory", POD),),
            {"memory/memory.limit_in_bytes": "8589934592", "memory/memory.stat": f"cache 1\nhierarchical_memory_limit {GIB}"},
            None, GIB,
        ),
        (  # no limit, in the words of version 1
            "4:memory:/\n", (v1("memory", "/"),),
            {"memory/memory.stat": f"hierarchical_memory_limit {(1 << 63) - 4096}\nhierarchical_memsw_limit 1"}, None, None,
        ),
        # slices of systemd, one of which may burst
        (
            "0::/user.slice/user-1.slice/run.scope\n", V2,
            {"user.slice/cpu.max": "800000 100000", "user.slice/user-1.slice/cpu.max": "250000 100000",
             "user.slice/user-1.slice/cpu.max.burst": "100000", "user.slice/memory.swap.max": "0"},
            2.5, None,
        ),
        # in a container of LXC, whose own group is one below the root of its namespace
        (
            "0::/init.scope\n", V2,
            {"cpu.max": "400000 100000", "memory.max": str(GIB), "init.scope/cpu.max": "max 100000"}, 4.0, GIB,
        ),
        # what no kernel writes
        ("0::/\n", V2, {"cpu.max": "\u00b2 100000", "memory.max": "\u00b2"}, None, None),
        ("", (), {}, None, None),
    ],
)  # fmt: skip
def test_the_tightest_limit_of_all_groups_above_holds(
    tmp_path: Path, group: str, mounts: tuple[str, ...], files: dict[str, str], cpus: float | None, memory: int | None
) -> None:
    limits = quota(tree(tmp_path, group, mounts, files))
    assert (limits.cpus, limits.memory_bytes) == (cpus, memory)


@pytest.mark.parametrize("name", ["a\u2028b", "a\x0cb", "a\rb", "a\x85 - cgroup2"])
def test_a_mounted_folder_of_any_name_hides_no_limit(tmp_path: Path, name: str) -> None:
    mounts = (f"40 22 8:2 / /mnt/{name} rw - ext4 /dev/sdb1 rw\n", *V2)
    root = tree(tmp_path, f"1:name=systemd:/{name}\n0::/\n", mounts, {"cpu.max": "50000 100000"})
    assert quota(root).cpus == 0.5


@pytest.mark.parametrize(
    ("group", "mounts", "unseen"),
    [
        ("0::/\n", V2, False),
        ("0::/\n", (), True),
        ("4:memory:/a\n1:cpu,cpuacct:/a\n", (v1("memory", "/"), v1("cpu,cpuacct", "/")), False),
        ("4:memory:/a\n1:cpu,cpuacct:/a\n", (v1("memory", "/"),), True),
        ("4:memory:/a\n1:cpu,cpuacct:/a\n0::/\n", V2, True),
        ("5:freezer:/\n1:cpu:/a\n0::/\n", (v1("cpu", "/"), V2[0].replace("cgroup rw", "cgroup/unified rw")), False),
        # the host's groups in a container with a namespace of its own: which of them is its own isn't told
        ("0::/\n", (V2[0].replace(" / ", " /../../.. "),), True),
        ("0::/\n", (V2[0].replace(" / ", " /../../.. "), *V2), False),
        ("1:name=systemd:/\n", (), False),  # no controller of either
        ("", (), False),
    ],
)
def test_groups_that_cant_be_seen_are_unknown_limits_and_not_none(
    tmp_path: Path, cpu_host: Host, group: str, mounts: tuple[str, ...], unseen: bool
) -> None:
    limits = quota(tree(tmp_path, group, mounts, {"cpu.max": "max 100000"}))
    assert (limits.unseen, limits.cpus, limits.memory_bytes) == (unseen, None, None)
    host = replace(cpu_host, limits_unseen=limits.unseen)
    assert host.limits_in_words.startswith("no limit of CPU time and memory is known: ") is unseen
    (launch,) = (launch_of(Path("x"), launch_lines(host=host.as_record())),)
    assert isinstance(launch, Launch)
    assert environment_of(launch)["host CPU quota"] == (UNKNOWN if unseen else "no limit")


def test_each_of_several_groups_may_hold_a_launch_up(tmp_path: Path) -> None:
    """The outer one had its share of trouble long ago; now the inner one is the tighter."""
    files = {"a/cpu.max": "90000 100000", "a/b/cpu.max": "50000 100000"}
    files |= {"a/cpu.stat": "nr_throttled 900\nthrottled_usec 500000000", "a/b/cpu.stat": "nr_throttled 1\nthrottled_usec 1"}
    root = tree(tmp_path, "0::/a/b\n", V2, files)
    limits = quota(root)
    before = throttled(limits)
    (root / "sys/fs/cgroup/a/b/cpu.stat").write_text("nr_throttled 31\nthrottled_usec 20000001\n")
    after = throttled(limits)
    assert before and after
    assert (after.periods - before.periods, after.seconds - before.seconds) == (30, pytest.approx(20.0))


@pytest.mark.parametrize(("limit", "processes"), [(None, 8), (0.3, 1), (1.0, 1), (1.5, 2), (64.0, 8)])
def test_a_command_has_no_more_processes_than_its_quota_has_time_for(
    monkeypatch: pytest.MonkeyPatch, limit: float | None, processes: int
) -> None:
    monkeypatch.setattr("torchmatrix.machine.cpu.os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr("torchmatrix.machine.cpu.quota", lambda: Quota(cpus=limit))
    assert usable_cpus() == processes


def test_without_proc_nothing_is_limited(tmp_path: Path) -> None:
    assert quota(tmp_path) == Quota() and throttled(Quota()) is None


@pytest.mark.parametrize(("name", "count"), [("throttled_usec", 2_500_000), ("throttled_time", 2_500_000_000)])
def test_what_the_quota_held_up_is_read_with_the_cpu(tmp_path: Path, name: str, count: int) -> None:
    stat = f"nr_periods 90\nnr_throttled 7\n{name} {count}"
    root = tree(tmp_path, "0::/a/b\n", V2, {"a/cpu.max": "100000 100000", "a/cpu.stat": stat, "a/b/cpu.stat": "usage_usec 9"})
    limits = quota(root)
    assert throttled(limits) == Throttled(periods=7, seconds=2.5)
    sensor, _ = open_cpu(root, limits=limits)
    (reading,) = sensor.read()
    assert (reading["quota_periods"], reading["quota_seconds"]) == (7, 2.5)
    unlimited, _ = open_cpu(root)
    assert not {"quota_periods", "quota_seconds"} & unlimited.read()[0].keys(), "unknown is absent, not 0"


@pytest.fixture
def group() -> Iterator[Path]:
    """Yield a real group of version 1 or 2 that may use 0.3 CPUs."""
    places = {"cpu.cfs_quota_us": Path("/sys/fs/cgroup/cpu"), "cpu.max": Path("/sys/fs/cgroup")}
    name, place = next(((name, place) for name, place in places.items() if (place / "cgroup.procs").exists()), ("", Path()))
    folder = place / f"torchmatrix-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        (folder / name).write_text("30000")
    except OSError as error:
        folder.rmdir() if folder.is_dir() else None
        pytest.skip(f"no control group can be made here: {error}")
    yield folder
    folder.rmdir()


TELL = """
import json, os, sys, time
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from torchmatrix.machine import cpu, host
limits = cpu.quota()
end = time.monotonic() + float(sys.argv[2])
while not cpu.throttled(limits).periods and time.monotonic() < end:
    pass
here = host.detect()
print(json.dumps([limits.cpus, cpu.throttled(limits).periods, len(here.cores), here.cpu_quota, here.limits_in_words]))
"""


def test_a_real_groups_quota_is_what_a_process_in_it_plans_by(group: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TELL, str(group), str(PATIENCE_SECONDS)], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    cpus, periods, cores, recorded, words = json.loads(done.stdout)
    assert (cpus, recorded, cores) == (0.3, 0.3, 1) and periods > 0
    assert words.startswith("control groups let this process use 0.3 CPUs' worth of time")


@pytest.mark.thorough
def test_a_run_in_a_real_group_says_its_share_plans_by_it_and_records_it(
    group: Path, fake_matrix: Path, tmp_path: Path
) -> None:
    (group / ("cpu.max" if (group / "cpu.max").exists() else "cpu.cfs_quota_us")).write_text("150000")
    within = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", sys.executable, "-m", "torchmatrix"]

    def run_in_group(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*within, *words, "--engine", "local"], cwd=tmp_path, capture_output=True, text=True)

    assert "note  share: control groups let this process use 1.5 CPUs' worth of time" in run_in_group("doctor").stdout
    done = run_in_group("run", "--fast")
    assert done.returncode == 0, done.stderr
    assert "note: control groups let this process use 1.5 CPUs' worth of time" in done.stderr
    (run,) = Results(tmp_path / "results").runs()
    (launch,) = run.launches()
    assert (launch.host["cpu_quota"], len(launch.host["cores"]), launch.devices.threads) == (1.5, 1, 1)
    assert [skip.reason for skip in run.read_record().skips] == ["needs 2 CPU cores, one per process; this machine has 1"]
    readings = [reading for event in launch.telemetry for reading in event.readings]
    assert all({"quota_periods", "quota_seconds"} <= reading.keys() for reading in readings) and readings
