"""Detection of the machine: masks of schedulers, engines elsewhere, NVML's GPUs, AMD's topology."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from support.fake_nvml import FakeNvml, raises
from torchmatrix.machine.conditions import hyper_threading
from torchmatrix.machine.host import Gpu, Host, detect, seen_through, sockets
from torchmatrix.machine.host_gpus import LOST_HINT, VendorGpus, amd_gpus, nvidia_gpus
from torchmatrix.machine.masks import masked
from torchmatrix.planning.fit import why_not_mixed


def test_this_machine_is_described() -> None:
    host = detect()
    assert json.loads(json.dumps(host.as_record()))["name"] == host.name
    assert len(host.links) == len(host.p2p) == len(host.gpus)
    assert host.memory_bytes > 0 and set(host.cores) <= os.sched_getaffinity(0) and host.name and host.kernel


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
    listed = nvidia_gpus(notes, nvml, tmp_path, tmp_path)
    assert notes == [] and nvml.calls[-1] == "nvmlShutdown"
    assert (listed.driver, listed.cuda_driver) == ("570.133.7", "12.8")
    assert listed.links == (("X", "NV4"), ("NV4", "X")) and listed.p2p == (("X", "ok"), ("ok", "X"))
    first, second = listed.gpus
    assert (first.numa_node, second.numa_node) == (None, 1)
    assert (first.local_cpus, second.local_cpus) == (None, "16-31,48-63")
    assert (second.index, second.uuid, second.pci_bus, second.vbios) == (1, "GPU-1", "00000000:0B:00.0", "92.00")
    assert (second.pcie, second.clocks_max_mhz, second.memory_bytes) == ("gen4 x16 (max gen4 x16)", 1410, None)


def test_without_pynvml_only_a_machine_with_the_driver_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    notes: list[str] = []
    assert nvidia_gpus(notes, dev_root=tmp_path) == VendorGpus() and notes == []
    (tmp_path / "nvidiactl").touch()
    assert nvidia_gpus(notes, dev_root=tmp_path) == VendorGpus()
    assert "reinstall torchmatrix (it needs nvidia-ml-py)" in notes[0]


def test_without_nvmls_library_only_a_machine_with_the_driver_is_told(tmp_path: Path) -> None:
    nvml = FakeNvml(nvmlInit=raises(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    notes: list[str] = []
    assert nvidia_gpus(notes, nvml, dev_root=tmp_path) == VendorGpus() and notes == []
    (tmp_path / "nvidiactl").touch()
    assert nvidia_gpus(notes, nvml, dev_root=tmp_path) == VendorGpus()
    assert "NVML Shared Library Not Found; is NVIDIA's driver installed" in notes[0] and "nvmlShutdown" not in nvml.calls


def test_no_permission_is_said_with_a_hint(tmp_path: Path) -> None:
    notes: list[str] = []
    listed = nvidia_gpus(notes, FakeNvml(nvmlInit=raises(pynvml.NVML_ERROR_NO_PERMISSION)), dev_root=tmp_path)
    assert listed == VendorGpus() and notes == [
        "NVIDIA's GPUs can't be used: NVML says Insufficient Permissions; "
        "you need read and write access to /dev/nvidia*; ls -l /dev/nvidia* shows the owners"
    ]


def test_a_gpu_lost_while_listing_is_said(tmp_path: Path) -> None:
    notes: list[str] = []
    nvml = FakeNvml(nvmlDeviceGetUUID=raises(pynvml.NVML_ERROR_GPU_IS_LOST))
    assert nvidia_gpus(notes, nvml, tmp_path, tmp_path) == VendorGpus() and nvml.calls[-1] == "nvmlShutdown"
    assert notes == [f"NVML failed while listing GPUs: GPU is lost; {LOST_HINT}"]


def test_an_engine_on_another_machine_is_described_as_that_machine(nvidia_host: Host) -> None:
    info = {"Name": "server", "KernelVersion": "5.4", "OperatingSystem": "Other OS", "Architecture": "x86_64", "NCPU": 8,
            "MemTotal": 1 << 34}  # fmt: skip
    there = seen_through(nvidia_host, info, is_here=False)
    assert (there.name, there.gpus, len(there.cores), there.os) == ("server", (), 8, "Other OS")
    assert "run torchmatrix there" in there.notes[-1]
    assert there.machine is None, "what this machine is says nothing about that one"
    daemons = [seen_through(nvidia_host, {**info, "ID": name}, is_here=False).machine for name in ("A", "A", "B")]
    assert daemons[0] == daemons[1] != daemons[2]
    alike = {**info, "Name": nvidia_host.name, "KernelVersion": nvidia_host.kernel}
    assert seen_through(nvidia_host, alike, is_here=False).machine is None, "name and kernel say nothing"
    assert seen_through(nvidia_host, alike, is_here=None).gpus == (), "and unknown is not here"
    in_a_container = {**info, "Name": "outer", "KernelVersion": nvidia_host.kernel}
    assert seen_through(nvidia_host, in_a_container, is_here=True) is nvidia_host


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
    listed = amd_gpus(tmp_path / "sys", tmp_path / "dev")
    gpus = listed.gpus
    assert [(g.index, g.capability, g.uuid) for g in gpus] == [
        (0, "gfx942", "GPU-0000000000001001"),
        (1, "gfx942", "GPU-0000000000001002"),
    ]
    assert gpus[0].render_node == str(tmp_path / "dev/dri/renderD128") and gpus[0].memory_bytes == 206141652992
    assert gpus[0].groups == (os.getgid(),) and listed.driver
    assert (gpus[0].numa_node, gpus[0].pcie, gpus[0].clocks_max_mhz) == (0, "gen5 x16", 2100)
    assert listed.links == (("X", "XGMI"), ("n/a", "X")) and listed.p2p == (("X", "ok"), ("n/a", "X"))


def kfd_gpus(root: Path, *gpus: dict[str, object]) -> list[Gpu]:
    """Return the GPUs of a machine whose KFD tells this of them."""
    for number, facts in enumerate(gpus, start=1):
        node = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
        node.mkdir(parents=True)
        properties = {"simd_count": 304, "gfx_target_version": 90402, "drm_render_minor": 127 + number} | facts
        (node / "properties").write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
        (node / "name").write_text("ip discovery\n")
    return list(amd_gpus(root / "sys", root / "dev").gpus)


FIRST, SECOND = 0x05 << 8, 0x26 << 8 | 1 << 3
"""Bus, device and function of 0000:05:00.0 and 0000:26:01.0."""


@pytest.mark.parametrize(
    ("gpus", "uuids"),
    [
        # Each its own unique id
        ([{"unique_id": 0xAB, "location_id": FIRST}, {"unique_id": 0xAC, "location_id": SECOND}],
         ["GPU-00000000000000ab", "GPU-00000000000000ac"]),
        # A virtual machine hides it
        ([{"unique_id": 0, "location_id": FIRST}, {"unique_id": 0, "location_id": SECOND}],
         ["PCI-0000:05:00.0", "PCI-0000:26:01.0"]),
        # On one of two buses that are numbered alike
        ([{"unique_id": 0, "location_id": FIRST}, {"unique_id": 0, "location_id": FIRST, "domain": 0x1F}],
         ["PCI-0000:05:00.0", "PCI-001f:05:00.0"]),
        # The partitions of a card beside a whole one, as newer and as older kernels number them
        ([{"unique_id": 0xAB, "location_id": FIRST | part << 28} for part in (0, 1, 2)] + [{"unique_id": 0xAC}],
         ["PCI-0000:05:00.0", "PCI-0000:05:00.0-1", "PCI-0000:05:00.0-2", "GPU-00000000000000ac"]),
        ([{"unique_id": 0xAB, "location_id": FIRST | part} for part in (0, 1)], ["PCI-0000:05:00.0", "PCI-0000:05:00.1"]),
        # Partitions with unique ids of their own
        ([{"unique_id": 0xAB + part, "location_id": FIRST | part << 28} for part in (0, 1)],
         ["GPU-00000000000000ab", "GPU-00000000000000ac"]),
        # Kernels that tell no place, and nothing at all
        ([{"unique_id": 0}, {"unique_id": 0}], ["renderD128", "renderD129"]),
        ([{"drm_render_minor": 128}, {"drm_render_minor": 128}], ["KFD-1", "KFD-2"]),
        # What isn't a number isn't told
        ([{"unique_id": "?", "location_id": "-", "domain": "x y"}], ["renderD128"]),
    ],
)  # fmt: skip
def test_no_two_gpus_of_a_machine_bear_one_identity(tmp_path: Path, gpus: list[dict[str, object]], uuids: list[str]) -> None:
    listed = kfd_gpus(tmp_path, *gpus)
    assert [gpu.uuid for gpu in listed] == uuids
    assert len({gpu.render_node for gpu in listed}) == len({gpu.get("drm_render_minor", i) for i, gpu in enumerate(gpus)})


def test_a_partition_has_its_cards_name_and_place_but_is_no_pci_device_of_its_own(tmp_path: Path) -> None:
    slot = tmp_path / "sys/bus/pci/devices/0000:05:00.0"
    slot.mkdir(parents=True)
    (slot / "product_name").write_bytes(b"AMD Instinct MI300X\n")
    (slot / "numa_node").write_text("1\n")
    parts = [{"unique_id": 0xAB, "location_id": FIRST | part << 28} for part in (0, 1)]
    *both, whole = kfd_gpus(tmp_path, *parts, {"unique_id": 0xAC, "location_id": SECOND})
    assert [(gpu.name, gpu.numa_node, gpu.pci_bus) for gpu in both] == 2 * [("AMD Instinct MI300X", 1, None)]
    assert (whole.pci_bus, whole.partition_of) == ("0000:26:01.0", None)
    assert [gpu.partition_of for gpu in both] == 2 * ["0000:05:00"]


def test_amd_gpus_without_a_name_are_told_apart_by_their_chip_or_not_at_all(tmp_path: Path) -> None:
    listed = kfd_gpus(tmp_path, {"device_id": 0x74A1}, {"device_id": 0x74A1}, {"device_id": 0x744C}, {}, {})
    assert [gpu.name for gpu in listed] == [
        "AMD gfx942 (device 0x74a1)", "AMD gfx942 (device 0x74a1)", "AMD gfx942 (device 0x744c)",
        "unknown AMD GPU renderD131", "unknown AMD GPU renderD132",
    ]  # fmt: skip
    alike, other, unknown = tuple(listed[:2]), tuple(listed[1:3]), tuple(listed[3:])
    assert why_not_mixed(alike) is None
    assert why_not_mixed(other) and why_not_mixed(unknown), "unknown is never like unknown"


@pytest.mark.parametrize("mode", ["CPX", "DPX", "TPX", "QPX", "SPX", None])
def test_the_only_partition_of_a_card_that_was_given_to_a_container_is_no_whole_card(tmp_path: Path, mode: str | None) -> None:
    slot = tmp_path / "sys/bus/pci/devices/0000:05:00.0"
    slot.mkdir(parents=True)
    if mode:
        (slot / "current_compute_partition").write_text(f"{mode}\n")
    (gpu,) = kfd_gpus(tmp_path, {"unique_id": 0xAB, "location_id": FIRST})
    is_part = mode not in ("SPX", None)
    assert (gpu.partition_of, gpu.pci_bus) == (("0000:05:00", None) if is_part else (None, "0000:05:00.0"))


@pytest.mark.parametrize("name", ["NVIDIA Graphics Device", "Graphics Device", ""])
def test_gpus_whose_driver_doesnt_know_their_product_are_told_apart_by_their_chip_or_not_at_all(
    tmp_path: Path, name: str
) -> None:
    chips = {0: 0x20B210DE, 1: 0x20B210DE, 2: 0x234210DE, 3: None, 4: None}

    def pci(gpu: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{gpu + 10:02X}:00.0", domain=0, bus=gpu + 10, device=0, pciDeviceId=chips[gpu])

    answers = {"nvmlDeviceGetCount": lambda: 5, "nvmlDeviceGetName": lambda _: name, "nvmlDeviceGetPciInfo": pci}
    listed = nvidia_gpus([], FakeNvml(**answers), tmp_path, tmp_path).gpus
    assert listed[0].name == f"{name or 'NVIDIA GPU'} (device 0x20b2)" and listed[3].name == "unknown NVIDIA GPU GPU-3"
    assert why_not_mixed(listed[:2]) is None
    assert why_not_mixed(listed[1:3]) and why_not_mixed(listed[3:]), "unknown is never like unknown"


@pytest.mark.parametrize(
    "question",
    [*(f"nvmlDeviceGet{what}" for what in ("Name", "UUID", "VbiosVersion", "PciInfo")), "nvmlSystemGetDriverVersion"],
)
def test_words_of_a_driver_that_are_no_text_cost_no_other_gpu_and_no_command(tmp_path: Path, question: str) -> None:
    """Garble answers as under WSL: pynvml decodes what it gets."""

    def garbled(*of: int) -> str:
        return b"\xf8\x91".decode() if of in ((), (1,)) else FakeNvml().answers[question](*of)

    notes: list[str] = []
    listed = nvidia_gpus(notes, FakeNvml(**{question: garbled}), tmp_path, tmp_path)
    is_dead = question in ("nvmlDeviceGetName", "nvmlDeviceGetUUID")
    assert [gpu.uuid for gpu in listed.gpus] == (["GPU-0"] if is_dead else ["GPU-0", "GPU-1"])
    assert is_dead is ("GPU 1 can't be used: 'utf-8' codec can't decode" in " ".join(notes)), notes


@pytest.mark.parametrize(
    ("why", "hint"),
    [
        (raises(pynvml.NVML_ERROR_NO_PERMISSION), "ls -l /dev/nvidia* shows the owners"),
        (raises(pynvml.NVML_ERROR_GPU_IS_LOST), "look for Xid in the kernel log"),
        (lambda: "GPU-0", "update NVIDIA's driver"),
    ],
)
def test_each_gpu_that_cant_be_used_comes_with_a_way_out_of_its_own(tmp_path: Path, why: Any, hint: str) -> None:
    notes: list[str] = []
    nvml = FakeNvml(
        nvmlDeviceGetCount=lambda: 3, nvmlDeviceGetUUID=lambda gpu: "GPU-0" if gpu == 0 else why() if gpu == 1 else "GPU-2"
    )
    nvidia_gpus(notes, nvml, tmp_path, tmp_path)
    assert notes and all(hint in note for note in notes)


@pytest.mark.parametrize(
    "question", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMaxMigDeviceCount"]
)
def test_a_gpu_that_cant_tell_who_it_is_is_the_only_one_missing(tmp_path: Path, question: str) -> None:
    healthy = FakeNvml(nvmlDeviceGetMaxMigDeviceCount=lambda _: 0)

    def answer(gpu: int) -> object:
        return raises(pynvml.NVML_ERROR_UNKNOWN)() if gpu == 1 else healthy.answers[question](gpu)

    sliced = {"nvmlDeviceGetMigMode": lambda gpu: (int(gpu == 1), 0)} if question == "nvmlDeviceGetMaxMigDeviceCount" else {}
    notes: list[str] = []
    count = {"nvmlDeviceGetCount": lambda: 3}
    listed = nvidia_gpus(notes, FakeNvml(**count, **sliced, **{question: answer}), tmp_path, tmp_path)
    assert [(gpu.index, gpu.uuid) for gpu in listed.gpus] == [(0, "GPU-0"), (1, "GPU-2")]
    assert len(listed.links) == len(listed.p2p) == 2
    assert len(notes) == 1 and notes[0].startswith("GPU 1 can't be used: Unknown Error; ") and "2 of 3 GPUs" in notes[0]
    assert [gpu.uuid for gpu in masked(listed, {"CUDA_VISIBLE_DEVICES": "2"}, notes).gpus] == ["GPU-2"], "its number"


def test_a_slice_without_a_name_is_the_only_one_missing(tmp_path: Path) -> None:
    nvml = FakeNvml(
        nvmlDeviceGetMigMode=lambda gpu: (int(gpu == 0), 0),
        nvmlDeviceGetMaxMigDeviceCount=lambda _: 2,
        nvmlDeviceGetMigDeviceHandleByIndex=lambda gpu, index: f"slice-{index}",
        nvmlDeviceGetName=lambda gpu: raises(pynvml.NVML_ERROR_UNKNOWN)() if gpu == "slice-0" else "NVIDIA A100",
    )
    notes: list[str] = []
    listed = nvidia_gpus(notes, nvml, tmp_path, tmp_path)
    assert [gpu.uuid for gpu in listed.gpus] == ["GPU-slice-1", "GPU-1"] and notes[0].startswith(
        "slice 0 of GPU 0 can't be used"
    )
    assert listed.links == (("X", "n/a"), ("n/a", "X"))


def test_gpus_of_one_uuid_cant_be_told_apart_and_are_left_out(tmp_path: Path) -> None:
    notes: list[str] = []
    nvml = FakeNvml(nvmlDeviceGetCount=lambda: 3, nvmlDeviceGetUUID=lambda gpu: f"GPU-{min(gpu, 1)}")
    assert [gpu.uuid for gpu in nvidia_gpus(notes, nvml, tmp_path, tmp_path).gpus] == ["GPU-0"]
    assert [note.partition(";")[0] for note in notes] == [
        f"GPU {number} can't be used: another GPU has its UUID, GPU-1" for number in (1, 2)
    ]


@pytest.mark.parametrize("question", ["nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetDriverVersion"])
def test_a_driver_without_a_version_takes_no_gpu_with_it(tmp_path: Path, question: str) -> None:
    listed = nvidia_gpus([], FakeNvml(**{question: raises(pynvml.NVML_ERROR_UNKNOWN)}), tmp_path, tmp_path)
    assert len(listed.gpus) == 2 and None in (listed.driver, listed.cuda_driver)
