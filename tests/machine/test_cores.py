"""The cores that may be used, in groups of those that are alike: invented machines as sysfs shows them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from torchmatrix.core import inputs
from torchmatrix.machine.cpu import CoreGroup, core_groups, cpus_in, kinds_of, within
from torchmatrix.machine.host import Host


def devices(
    root: Path, cpus: Iterable[tuple[str, int]], nodes: Mapping[int, str] | None = None, files: Mapping[str, str] | None = None
) -> Path:
    """Write of each logical CPU its siblings and its socket, of each node its CPUs; `files`: more, by path."""
    more = {f"system/node/node{number}/cpulist": listed for number, listed in (nodes or {}).items()} | dict(files or {})
    for cpu, (siblings, socket) in enumerate(cpus):
        place = f"system/cpu/cpu{cpu}/topology"
        more |= {f"{place}/thread_siblings_list": siblings, f"{place}/physical_package_id": str(socket)}
    for name, text in more.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def places(groups: Iterable[CoreGroup]) -> list[tuple[int | None, int | None, int, tuple[int, ...]]]:
    return [(group.socket, group.node, group.kind, group.cores) for group in groups]


def test_two_sockets_numbered_in_turn_with_hyper_threads(tmp_path: Path) -> None:
    cpus = [(f"{cpu % 8},{cpu % 8 + 8}", cpu % 2) for cpu in range(16)]
    folder = devices(tmp_path, cpus, {0: "0,2,4,6,8,10,12,14", 1: "1,3,5,7,9,11,13,15", 2: ""})
    assert places(core_groups(folder, range(16))) == [(0, 0, 0, (0, 2, 4, 6)), (1, 1, 0, (1, 3, 5, 7))]
    masked = core_groups(folder, [2, 8, 9, 10, 11])  # both threads of core 2; of the others only the second
    assert places(masked) == [(0, 0, 0, (2, 8)), (1, 1, 0, (9, 11))]


def test_a_machine_that_says_nothing_has_one_group(tmp_path: Path) -> None:
    assert places(core_groups(tmp_path, [3, 1, 2])) == [(None, None, 0, (1, 2, 3))]
    assert places(core_groups(devices(tmp_path, [("0", -1), ("1", -1)]), [0, 1])) == [(None, None, 0, (0, 1))]


def test_offline_cpus_have_no_topology_and_are_not_allowed(tmp_path: Path) -> None:
    folder = devices(tmp_path, [("0", 0), ("1", 0), ("2", 0), ("3", 0)], {0: "0,2-3"})
    assert places(core_groups(folder, [0, 2, 3])) == [(0, 0, 0, (0, 2, 3))]


HYBRID = [(f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}", 0) for cpu in range(4)] + [(str(cpu), 0) for cpu in range(4, 8)]


@pytest.mark.parametrize(
    "files",
    [
        {"cpu_core/cpus": "0-3", "cpu_atom/cpus": "4-7"},
        {f"system/cpu/cpu{cpu}/cpu_capacity": "1024" if cpu < 4 else "620" for cpu in range(8)},
        {f"system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq": "5100000" if cpu < 4 else "3300000" for cpu in range(8)},
    ],
)
def test_core_types_are_told_by_what_the_kernel_offers(tmp_path: Path, files: dict[str, str]) -> None:
    folder = devices(tmp_path, HYBRID, {0: "0-7"}, files)
    assert places(core_groups(folder, range(8))) == [(0, 0, 0, (0, 2)), (0, 0, 1, (4, 5, 6, 7))]
    assert places(core_groups(folder, [5, 6])) == [(0, 0, 0, (5, 6))], "alone they are all alike"


def test_favoured_cores_are_of_the_same_type_and_half_a_list_of_clocks_says_nothing(tmp_path: Path) -> None:
    clocks = {f"system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq": str(5_700_000 + 100_000 * (cpu % 3)) for cpu in range(8)}
    assert len(core_groups(devices(tmp_path / "a", HYBRID, None, clocks), range(8))) == 1
    del clocks["system/cpu/cpu6/cpufreq/cpuinfo_max_freq"]
    clocks["system/cpu/cpu4/cpufreq/cpuinfo_max_freq"] = "1000000"
    assert len(core_groups(devices(tmp_path / "b", HYBRID, None, clocks), range(8))) == 1
    assert kinds_of({0: 350, 1: 1024, 2: 790, 3: 1000}) == {1: 0, 3: 0, 2: 1, 0: 2}


@pytest.mark.parametrize(
    ("cpus", "left"),
    [(None, [(0, 1, 2), (3, 4, 5)]), (9.0, [(0, 1, 2), (3, 4, 5)]), (4.9, [(0, 1, 2), (3,)]), (2.0, [(0, 1)]), (0.4, [(0,)])],
)
def test_a_quota_leaves_whole_cores_from_the_first_group_on(cpus: float | None, left: list[tuple[int, ...]]) -> None:
    groups = [CoreGroup(cores=(0, 1, 2), socket=0), CoreGroup(cores=(3, 4, 5), socket=1)]
    assert [group.cores for group in within(groups, cpus)] == left


def test_the_kernels_lists_are_read() -> None:
    assert cpus_in("0-3,8,10-11") == {0, 1, 2, 3, 8, 10, 11} and cpus_in("") == set()


def test_groups_are_recorded_and_records_without_them_can_be_read(cpu_host: Host) -> None:
    host = replace(cpu_host, core_groups=(CoreGroup(cores=(0, 1), node=1), CoreGroup(cores=(2, 3), kind=1)), cpu_quota=3.5)
    record = json.loads(json.dumps(host.as_record()))
    assert inputs.construct(Host, record, "host") == replace(host, machine=None)
    older = {name: value for name, value in record.items() if name not in ("core_groups", "cpu_quota", "memory_limit_bytes")}
    assert inputs.construct(Host, older, "host") == replace(cpu_host, machine=None)
