"""What the machine is taken to be: masks of schedulers, engines elsewhere, NVML's GPUs, AMD's topology."""

import json
import os
import sys
from pathlib import Path

import pynvml
import pytest

from fake_nvml import FakeNvml, raises
from torchmatrix.machine.host import Host, detect, hyper_threading, seen_through, sockets
from torchmatrix.machine.host_gpus import Found, amd_gpus, masked, nvidia_gpus


def test_this_machine_is_described() -> None:
    host = detect()
    assert json.loads(json.dumps(host.as_record()))["name"] == host.name
    assert len(host.links) == len(host.p2p) == len(host.gpus)
    assert host.memory_bytes > 0 and set(host.cores) <= os.sched_getaffinity(0) and host.name and host.kernel


def test_a_schedulers_mask_is_kept_by_index_and_by_uuid(nvidia_host: Host) -> None:
    notes: list[str] = []
    links = tuple(tuple("X" if i == j else f"NV{i}{j}" for j in range(4)) for i in range(4))
    found = Found(gpus=nvidia_host.gpus, links=links, p2p=links, driver="570")
    for mask in ("1,3", "GPU-111,GPU-333"):
        kept = masked(found, ("CUDA_VISIBLE_DEVICES",), {"CUDA_VISIBLE_DEVICES": mask}, notes)
        assert [gpu.index for gpu in kept.gpus] == [1, 3] and kept.driver == "570"
        assert kept.links == kept.p2p == (("X", "NV13"), ("NV31", "X"))
    assert notes[0] == "CUDA_VISIBLE_DEVICES is set: 2 of 4 GPUs are used; gpu0 is the first of them"
    none = masked(found, ("CUDA_VISIBLE_DEVICES",), {"CUDA_VISIBLE_DEVICES": ""}, notes)
    assert none.gpus == none.links == none.p2p == ()
    assert masked(found, ("CUDA_VISIBLE_DEVICES",), {}, notes) == found


def test_sockets_and_hyper_threads_come_from_sysfs(tmp_path: Path) -> None:
    assert (sockets(tmp_path), hyper_threading(tmp_path)) == (None, None)
    (tmp_path / "smt").mkdir()
    for cpu, package in enumerate(("0", "1", "0", "-1")):
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/topology/physical_package_id").write_text(package + "\n")
    for text, active in (("1\n", True), ("0\n", False)):
        (tmp_path / "smt/active").write_text(text)
        assert (sockets(tmp_path), hyper_threading(tmp_path)) == (2, active)


def test_two_nvidia_gpus_with_nvlink(tmp_path: Path) -> None:
    slot = tmp_path / "bus/pci/devices/0000:0b:00.0"
    slot.mkdir(parents=True)
    (slot / "numa_node").write_text("1\n")
    (slot / "local_cpulist").write_text("16-31,48-63\n")
    notes: list[str] = []
    nvml = FakeNvml(nvmlDeviceGetMemoryInfo=raises(pynvml.NVML_ERROR_NOT_SUPPORTED))
    found = nvidia_gpus(notes, nvml, tmp_path, tmp_path)
    assert notes == [] and nvml.calls[-1] == "nvmlShutdown"
    assert (found.driver, found.cuda_driver) == ("570.133.7", "12.8")
    assert found.links == (("X", "NV4"), ("NV4", "X")) and found.p2p == (("X", "ok"), ("ok", "X"))
    first, second = found.gpus
    assert (first.numa_node, second.numa_node) == (None, 1)
    assert (first.local_cpus, second.local_cpus) == (None, "16-31,48-63")
    assert (second.index, second.uuid, second.pci_bus, second.vbios) == (1, "GPU-1", "00000000:0B:00.0", "92.00")
    assert (second.pcie, second.clocks_max_mhz, second.memory_bytes) == ("gen4 x16 (max gen4 x16)", 1410, None)


def test_without_pynvml_only_a_machine_with_the_driver_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    notes: list[str] = []
    assert nvidia_gpus(notes, dev_root=tmp_path) == Found() and notes == []
    (tmp_path / "nvidiactl").touch()
    assert nvidia_gpus(notes, dev_root=tmp_path) == Found()
    assert "reinstall torchmatrix (it needs nvidia-ml-py)" in notes[0]


def test_without_nvmls_library_only_a_machine_with_the_driver_is_told(tmp_path: Path) -> None:
    nvml = FakeNvml(nvmlInit=raises(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    notes: list[str] = []
    assert nvidia_gpus(notes, nvml, dev_root=tmp_path) == Found() and notes == []
    (tmp_path / "nvidiactl").touch()
    assert nvidia_gpus(notes, nvml, dev_root=tmp_path) == Found()
    assert "NVML Shared Library Not Found; is NVIDIA's driver installed" in notes[0] and "nvmlShutdown" not in nvml.calls


def test_no_permission_is_said_with_a_hint(tmp_path: Path) -> None:
    notes: list[str] = []
    found = nvidia_gpus(notes, FakeNvml(nvmlInit=raises(pynvml.NVML_ERROR_NO_PERMISSION)), dev_root=tmp_path)
    assert found == Found() and notes == [
        "NVIDIA's GPUs can't be used: NVML says Insufficient Permissions; "
        "you need read and write access to /dev/nvidia*; ls -l /dev/nvidia* shows the owners"
    ]


def test_a_gpu_lost_while_listing_is_said(tmp_path: Path) -> None:
    notes: list[str] = []
    nvml = FakeNvml(nvmlDeviceGetUUID=raises(pynvml.NVML_ERROR_GPU_IS_LOST))
    assert nvidia_gpus(notes, nvml, tmp_path, tmp_path) == Found() and nvml.calls[-1] == "nvmlShutdown"
    assert notes == ["NVML failed while listing GPUs: GPU is lost"]


def test_an_engine_on_another_machine_is_described_as_that_machine(nvidia_host: Host) -> None:
    info = {"Name": "server", "KernelVersion": "5.4", "OperatingSystem": "Other OS", "Architecture": "x86_64", "NCPU": 8,
            "MemTotal": 1 << 34}  # fmt: skip
    there = seen_through(nvidia_host, info, over_network=True)
    assert (there.name, there.gpus, len(there.cores), there.os) == ("server", (), 8, "Other OS")
    assert "run torchmatrix there" in there.notes[-1]
    assert there.machine is None, "what this machine is says nothing about that one"
    daemons = [seen_through(nvidia_host, {**info, "ID": name}, over_network=True).machine for name in ("A", "A", "B")]
    assert daemons[0] == daemons[1] != daemons[2]
    here = {**info, "Name": nvidia_host.name, "KernelVersion": nvidia_host.kernel}
    assert seen_through(nvidia_host, here, over_network=True) is nvidia_host
    in_a_container = {**info, "Name": "outer", "KernelVersion": nvidia_host.kernel}
    assert seen_through(nvidia_host, in_a_container, over_network=False) is nvidia_host


def test_amd_gpus_are_read_from_the_kernels_topology(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for number, simd in enumerate((0, 304, 304)):
        node = nodes / str(number)
        (node / "mem_banks/0").mkdir(parents=True)
        unique = 0x1000 + number
        (node / "properties").write_text(
            f"simd_count {simd}\ngfx_target_version 90402\ndrm_render_minor {127 + number}\nunique_id {unique}\n"
            "max_engine_clk_fcompute 2100\n"
        )
        (node / "name").write_text("aqua_vanjaram\n")
        (node / "mem_banks/0/properties").write_text("heap_type 1\nsize_in_bytes 206141652992\n")
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/renderD128").touch()
    link = nodes / "1/io_links/0"
    link.mkdir(parents=True)
    (link / "properties").write_text("type 11\nnode_from 1\nnode_to 2\nflags 1\n")
    slot = tmp_path / "sys/class/drm/renderD128/device"
    slot.mkdir(parents=True)
    for name, text in {"numa_node": "0", "current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}.items():
        (slot / name).write_text(text + "\n")
    found = amd_gpus(tmp_path / "sys", tmp_path / "dev")
    gpus = found.gpus
    assert [(g.index, g.capability, g.uuid) for g in gpus] == [
        (0, "gfx942", "GPU-0000000000001001"),
        (1, "gfx942", "GPU-0000000000001002"),
    ]
    assert gpus[0].render_node == str(tmp_path / "dev/dri/renderD128") and gpus[0].memory_bytes == 206141652992
    assert gpus[0].groups == (os.getgid(),) and found.driver
    assert (gpus[0].numa_node, gpus[0].pcie, gpus[0].clocks_max_mhz) == (0, "gen5 x16", 2100)
    assert found.links == (("X", "XGMI"), ("n/a", "X")) and found.p2p == (("X", "ok"), ("n/a", "X"))
