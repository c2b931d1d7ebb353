"""Intel's GPUs: found in sysfs and by xpu-smi, chosen by a mask, planned, given to launches, and read while they run.

The trees are made by the documentation of i915 and xe: no such GPU has been seen.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchmatrix.core.errors import BadInput
from torchmatrix.engines.containers import device_options
from torchmatrix.engines.engine import visible_devices
from torchmatrix.machine.host import Host
from torchmatrix.machine.host_gpus import VendorGpus
from torchmatrix.machine.intel import intel_gpus, open_intel
from torchmatrix.machine.masks import masked
from torchmatrix.matrix import matrix_file
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import make_plan
from torchmatrix.running.launch_cell import device_flags

FLEX, MAX, OWN = "0000:4d:00.0", "0000:9a:00.0", "0000:00:02.0"
LISTED = {
    "device_list": [
        {"device_id": 1, "device_name": "Intel(R) Data Center GPU Max 1550", "pci_bdf_address": MAX, "uuid": "max-uuid"},
    ]
}
DETAILS = {"device_id": 1, "memory_physical_size_byte": "68719476736"}
MATRIX = """
[gpus]
counts = [1, 2]
[[stack]]
torch = "2.8.0"
xpu = true
[[stack]]
torch = "2.7.1"
cuda = "12.8"
[[workload]]
model = "resnet50"
precision = "amp-bf16"
batch = 8
"""


def write_gpu(root: Path, minor: int, address: str, driver: str, files: dict[str, str]) -> None:
    """Write what sysfs has of one GPU, and its render node."""
    device = root / "sys/devices" / address
    usual = {"vendor": "0x8086", "device": "0x0bd5", "numa_node": "1", "local_cpulist": "8-15"}
    for name, text in (usual | files).items():
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(f"{text}\n")
    (root / "sys/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(root / "sys/drivers" / driver)
    node = root / f"sys/class/drm/renderD{minor}"
    node.mkdir(parents=True)
    (node / "device").symlink_to(device)
    (root / "dev/dri").mkdir(parents=True, exist_ok=True)
    (root / f"dev/dri/renderD{minor}").touch()


def found_in(root: Path, notes: list[str], xpu_smi: bool = True) -> VendorGpus:
    def ask(words: Sequence[str]) -> Any:
        return (LISTED if words == ("discovery",) else DETAILS) if xpu_smi else None

    return intel_gpus(notes, root / "sys", root / "dev", ask)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Write a machine with a processor's own GPU, one card under xe and one under i915; their numbers are not in PCI order."""
    write_gpu(tmp_path, 128, OWN, "i915", {})
    xe = {"tile0/gt0/freq0/max_freq": "1600", "tile0/gt0/freq0/act_freq": "1550", "hwmon/hwmon5/energy1_input": "2500000"}
    write_gpu(tmp_path, 129, MAX, "xe", {**xe, "hwmon/hwmon5/temp2_input": "61000", "hwmon/hwmon5/temp3_input": "70000"})
    i915 = {"drm/card2/gt/gt0/rps_max_freq_mhz": "2050", "drm/card2/lmem_total_bytes": "17179869184"}
    write_gpu(tmp_path, 130, FLEX, "i915", {**i915, "hwmon/hwmon6/power1_max": "150000000"})
    return tmp_path


def test_cards_are_found_in_the_order_of_the_bus_and_a_processors_own_gpu_is_left_out(server: Path) -> None:
    notes: list[str] = []
    listed = found_in(server, notes)
    assert [(gpu.index, gpu.uuid, gpu.pci_bus, gpu.vendor) for gpu in listed.gpus] == [
        (0, f"PCI-{FLEX}", FLEX, "intel"),
        (1, "max-uuid", MAX, "intel"),
    ]
    flex, big = listed.gpus
    assert (flex.name, flex.memory_bytes, flex.clocks_max_mhz) == ("Intel GPU (device 0x0bd5)", 16 << 30, 2050)
    assert (big.name, big.memory_bytes, big.clocks_max_mhz) == ("Intel(R) Data Center GPU Max 1550", 64 << 30, 1600)
    assert (flex.power_limit_watts, big.power_limit_watts) == (150.0, None) and flex.numa_node == 1
    assert flex.render_node == str(server / "dev/dri/renderD130") and flex.groups == (os.getgid(),)
    assert listed.driver and listed.driver.startswith("i915 and xe (kernel ")
    (note,) = notes
    assert "processor is not used" in note


def test_without_xpu_smi_what_only_it_knows_is_unknown(server: Path) -> None:
    _, big = found_in(server, [], xpu_smi=False).gpus
    assert (big.name, big.uuid, big.memory_bytes) == ("Intel GPU (device 0x0bd5)", f"PCI-{MAX}", None)


def test_a_laptop_is_no_gpu_machine_and_other_makers_cards_are_none_of_intels(tmp_path: Path) -> None:
    write_gpu(tmp_path, 128, OWN, "i915", {})
    write_gpu(tmp_path, 129, "0000:01:00.0", "nouveau", {"vendor": "0x10de"})
    notes: list[str] = []
    assert found_in(tmp_path, notes).gpus == () and len(notes) == 1


@pytest.mark.parametrize(
    ("mask", "left", "why"),
    [("1", [1], ""), ("1,0,1", [0, 1], ""), ("0.1", [], "ends at '0.1'"), ("", [], ""), ("0,7", [0], "ends at '7'")],
)
def test_the_affinity_mask_is_obeyed(server: Path, mask: str, left: list[int], why: str) -> None:
    notes: list[str] = []
    left_over = masked(found_in(server, []), {"ZE_AFFINITY_MASK": mask, "CUDA_VISIBLE_DEVICES": ""}, notes)
    assert [gpu.index for gpu in left_over.gpus] == left
    assert f"ZE_AFFINITY_MASK is set: {len(left)} of 2 GPUs are used" in notes[0] and why in notes[0]


@pytest.fixture
def intel_host(cpu_host: Host, server: Path) -> Host:
    listed = found_in(server, [])
    same = tuple(replace(gpu, name=listed.gpus[1].name, memory_bytes=64 << 30) for gpu in listed.gpus)
    return replace(cpu_host, vendor="intel", gpus=same, driver=listed.driver)


def test_an_xpu_stack_runs_on_one_and_two_cards_and_a_cuda_stack_says_what_it_needs(intel_host: Host) -> None:
    plan = make_plan(matrix_file.parse(MATRIX), intel_host, Prerequisites(containers=True))
    assert [(cell.stack.name, cell.gpus.label) for cell in plan.cells] == [
        ("torch2.8.0-xpu", "gpu0"),
        ("torch2.8.0-xpu", "gpu0+1"),
    ]
    assert plan.cells[0].stack.accelerator == "xpu" and plan.cells[0].stack.indexes[0].url.endswith("/xpu")
    (skip,) = {(skip.why.reason, skip.why.fix) for skip in plan.skips}
    assert skip[0].startswith("needs an NVIDIA GPU; this machine has 2 x Intel")


def test_several_cards_need_a_torch_with_xccl(intel_host: Host) -> None:
    plan = make_plan(matrix_file.parse(MATRIX.replace("2.8.0", "2.7.1")), intel_host, Prerequisites(containers=True))
    assert [cell.gpus.label for cell in plan.cells] == ["gpu0"]
    (skip,) = (skip for skip in plan.skips if skip.cell.stack.accelerator == "xpu")
    assert skip.cell.gpus.label == "gpu0+1" and "torch 2.7.1 has no XCCL" in skip.why.reason


def test_an_intel_gpu_is_missing_where_there_is_none(cpu_host: Host) -> None:
    plan = make_plan(matrix_file.parse(MATRIX), cpu_host, Prerequisites(containers=True))
    assert not plan.cells and any(
        skip.why.reason.startswith("needs an Intel GPU") and "/dev/dri/renderD*" in skip.why.fix for skip in plan.skips
    )


def test_a_launch_gets_the_render_nodes_of_its_cards_and_no_others(intel_host: Host) -> None:
    cell = make_plan(matrix_file.parse(MATRIX), intel_host, Prerequisites(containers=True)).cells[0]
    (gpu,) = cell.gpus.gpus
    assert device_options(cell.gpus) == {
        "devices": [f"{gpu.render_node}:{gpu.render_node}:rw"],
        "group_add": [str(group) for group in gpu.groups],
    }
    assert visible_devices(cell.gpus) == {"ZE_AFFINITY_MASK": "0"}
    assert device_flags(cell, intel_host, seed=0, timeout_seconds=60)["--device"] == "xpu"


def test_a_card_is_read_as_far_as_its_driver_shows_it(server: Path) -> None:
    sensor, note = open_intel(found_in(server, []).gpus, server / "sys")
    assert sensor and note and "other programs" in note
    flex, big = sensor.read()
    assert flex == {"device": f"PCI-{FLEX}", "power_limit_watts": 150.0}
    assert big == {
        "device": "max-uuid", "temperature_celsius": 61.0, "memory_temperature_celsius": 70.0, "sm_clock_mhz": 1550,
        "energy_joules": 2.5,
    }  # fmt: skip


def test_a_driver_that_shows_nothing_is_told(tmp_path: Path) -> None:
    write_gpu(tmp_path, 128, FLEX, "xe", {})
    sensor, note = open_intel(found_in(tmp_path, []).gpus, tmp_path / "sys")
    assert sensor is None and note and note.startswith("unseen: temperature")


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ('torch = "2.7.1"\nxpu = true\ncpu = true', "needs exactly one of"),
        ('torch = "2.5.1"\nxpu = true', "torch 2.5.1 has no xpu wheels; it has: cpu, "),
        ('image = "intel/pytorch:1"\nxpu = true', "comes with the image"),
        ('torch = "2.7.1+xpu"\n', 'write torch = "2.7.1" and xpu = true'),
    ],
)
def test_a_stack_that_cannot_be_is_refused_in_words(table: str, wrong: str) -> None:
    with pytest.raises(BadInput) as caught:
        matrix_file.parse(f'[[stack]]\n{table}\n[[workload]]\nmodel = "resnet50"\nbatch = 8\n')
    assert wrong in str(caught.value)
