"""Allocation: cells that may be measured at the same time."""

from dataclasses import replace

import pytest

from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import Cell, make_plan
from torchmatrix.running import launch_order

WORKLOADS = '[[workload]]\nmodel = ["resnet18", "resnet50"]\nbatch = 4\n'
STACK = '[[stack]]\nname = "own"\npython = "/usr/bin/python3"\naccelerator = "cuda"\n'
CPU_STACK = '[[stack]]\nname = "slow"\npython = "/usr/bin/python3"\naccelerator = "cpu"\n'
ON_CPU = '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 2\n'


def cells_of(host: Host, text: str) -> tuple[Cell, ...]:
    return make_plan(matrix_file.parse(text), host, Prerequisites(containers=False)).cells


def names(lanes: tuple[launch_order.Lane, ...]) -> list[tuple[str, int]]:
    return [(lane.devices, len(lane.cells)) for lane in lanes]


@pytest.mark.parametrize(
    ("lists", "together", "alone"),
    [
        ("[[0], [1]]", [("gpu0", 2), ("gpu1", 2)], []),
        ("[[0], [1], [2, 3]]", [("gpu0", 2), ("gpu1", 2), ("gpu2+3", 4)], []),
        ("[[0, 1], [2, 3]]", [("gpu0+1", 4), ("gpu2+3", 4)], []),
        ("[[0], [0, 1, 2, 3]]", [], [("gpu0+1+2+3", 4)]),
        ("[[0, 1], [1, 2], [3]]", [("gpu3", 2), ("gpu0+1+2", 8)], []),
    ],
)
def test_cells_without_a_common_gpu_are_lanes_of_their_own(
    nvidia_host: Host, lists: str, together: list[tuple[str, int]], alone: list[tuple[str, int]]
) -> None:
    allocation = launch_order.allocate(cells_of(nvidia_host, f"[gpus]\ncounts = []\nlists = {lists}\n{STACK}{WORKLOADS}"))
    assert (names(allocation.together), names(allocation.alone)) == (together, alone)


def test_one_lane_is_no_lanes_and_the_reason_is_told(nvidia_host: Host) -> None:
    allocation = launch_order.allocate(cells_of(nvidia_host, f"[gpus]\ncounts = [1, 2]\n{STACK}{WORKLOADS}"))
    assert allocation.together == () and allocation.why_alone == "no two cells on gpu0+1 have GPUs of their own"


def test_cells_on_the_cpu_run_beside_none_on_gpus(nvidia_host: Host) -> None:
    gpus = "[gpus]\ncounts = []\nlists = [[0], [1]]\n"
    text = f"{gpus}[cpus]\ncounts = [1, 2]\nwhen = 'always'\n{STACK}{CPU_STACK}{WORKLOADS}{ON_CPU}"
    cells = [cell for cell in cells_of(nvidia_host, text) if cell.gpus.label != "cpu0+1"]
    apart = [*cells, replace(cells[-1], id="other", gpus=replace(cells[-1].gpus, indices=(1,), cpus=("8,9",)))]
    assert [cell.gpus.label for cell in apart[-2:]] == ["cpu0", "cpu1"], "slots on cores of their own"
    allocation = launch_order.allocate(apart)
    assert (names(allocation.together), names(allocation.alone)) == ([("gpu0", 2), ("gpu1", 2)], [("cpu0", 1), ("cpu1", 1)])
    assert allocation.why_alone == "cells on the CPU would disturb the launches on GPUs, which need it, too"


@pytest.mark.parametrize(
    ("counts", "together", "why"),
    [("1", [("cpu0", 1), ("cpu1", 1)], ""), ("[1, 2]", [], "no two cells on cpu0+1 have cores of their own")],
)
def test_slots_on_cores_of_their_own_may_run_at_once(
    cpu_host: Host, counts: str, together: list[tuple[str, int]], why: str
) -> None:
    every = cells_of(cpu_host, f"[cpus]\ncounts = [2]\neach = true\n{CPU_STACK}{ON_CPU}")
    allocation = launch_order.allocate([cell for cell in every if str(len(cell.gpus.indices)) in counts])
    assert (names(allocation.together), allocation.why_alone) == (together, why)


@pytest.mark.parametrize("part", [{"slice_of": "GPU-whole"}, {"partition_of": "0000:05:00"}])
def test_parts_of_one_gpu_stay_in_one_lane(nvidia_host: Host, part: dict[str, str]) -> None:
    first, second, third, _ = nvidia_host.gpus
    sliced = (replace(first, **part), replace(second, **part), third)
    text = f"[gpus]\ncounts = []\nlists = [[0], [1], [2]]\n{STACK}{WORKLOADS}"
    allocation = launch_order.allocate(cells_of(replace(nvidia_host, gpus=sliced), text))
    assert names(allocation.together) == [("gpu0+1", 4), ("gpu2", 2)]


def test_a_schedule_is_split_without_changing_its_order(nvidia_host: Host) -> None:
    cells = cells_of(nvidia_host, f"[gpus]\ncounts = []\nlists = [[0], [1]]\n{STACK}{WORKLOADS}")
    schedule = list(launch_order.interleave(cells, 3, seed=5))
    mixed = [launch for pair in zip(schedule[:6], schedule[6:], strict=True) for launch in pair]
    lanes = launch_order.split_by_lane(mixed, launch_order.allocate(cells).together)
    assert lanes == [schedule[:6], schedule[6:]]
    assert launch_order.split_by_lane(mixed, launch_order.allocate(cells).together[:1]) == [schedule[:6]]
