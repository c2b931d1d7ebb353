"""Links of GPUs: NVLink direct and through switches, PCIe's levels, peer access, AMD's XGMI."""

from collections.abc import Sequence
from pathlib import Path

import pynvml
import pytest

from support.fake_nvml import FakeNvml, gives, linked, raises
from torchmatrix.machine.topology import (
    acs_of,
    amd_links,
    amd_nodes,
    amd_p2p,
    iommu_of,
    nvidia_links,
    nvidia_p2p,
    nvidia_pcie,
    pci_numa_node,
    sysfs_pci,
    sysfs_pcie,
)


def test_direct_nvlinks_are_counted_per_pair_and_the_rest_goes_over_pcie() -> None:
    nvml = linked({0: [1, 1, None, 2], 1: [0, 0, None], 2: [0], 3: []})
    assert nvidia_links(nvml, [0, 1, 2, 3]) == [
        ["X", "NV2", "NV1", "SYS"],
        ["NV2", "X", "SYS", "SYS"],
        ["NV1", "SYS", "X", "SYS"],
        ["SYS", "SYS", "SYS", "X"],
    ]


def test_links_through_switches_join_all_gpus_that_have_them() -> None:
    nvml = linked({0: ["switch"] * 18, 1: ["switch"] * 17 + [None], 2: []})
    assert nvidia_links(nvml, [0, 1, 2]) == [["X", "NV17", "SYS"], ["NV17", "X", "SYS"], ["SYS", "SYS", "X"]]


@pytest.mark.parametrize(
    ("level", "word"), [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS"), (60, "n/a")]
)
def test_pcie_is_told_by_the_common_ancestor(level: int, word: str) -> None:
    nvml = linked({0: [], 1: []}, nvmlDeviceGetTopologyCommonAncestor=lambda *_: level)
    assert nvidia_links(nvml, [0, 1])[0] == ["X", word]


def test_the_levels_are_this_pynvmls() -> None:
    levels = ("INTERNAL", "SINGLE", "MULTIPLE", "HOSTBRIDGE", "NODE", "SYSTEM")
    assert [getattr(pynvml, f"NVML_TOPOLOGY_{name}") for name in levels] == [0, 10, 20, 30, 40, 50]
    assert (pynvml.NVML_P2P_CAPS_INDEX_NVLINK, pynvml.NVML_P2P_STATUS_NOT_SUPPORTED) == (2, 5)
    kinds = ("GPU", "IBMNPU", "SWITCH")
    assert [getattr(pynvml, f"NVML_NVLINK_DEVICE_TYPE_{name}") for name in kinds] == [0, 1, 2]


def test_what_nvml_cant_tell_is_not_available() -> None:
    for trouble in (
        {"nvmlDeviceGetTopologyCommonAncestor": raises(pynvml.NVML_ERROR_NOT_SUPPORTED)},
        {"nvmlDeviceGetPciInfo": raises(pynvml.NVML_ERROR_UNKNOWN)},
        {"nvmlDeviceGetNvLinkState": raises(pynvml.NVML_ERROR_GPU_IS_LOST)},
    ):
        assert nvidia_links(linked({0: [], 1: []}, **trouble), [0, 1]) == [["X", "n/a"], ["n/a", "X"]]
    no_nvlink = linked({}, nvmlDeviceGetNvLinkState=raises(pynvml.NVML_ERROR_NOT_SUPPORTED))
    assert nvidia_links(no_nvlink, [0, 1])[0] == ["X", "SYS"]
    assert nvidia_links(no_nvlink, []) == nvidia_p2p(no_nvlink, []) == []


def test_a_driver_that_doesnt_tell_the_kind_of_the_far_end_is_trusted_with_gpus_only() -> None:
    old = {"nvmlDeviceGetNvLinkRemoteDeviceType": raises(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)}
    assert nvidia_links(linked({0: [1], 1: [0]}, **old), [0, 1])[0] == ["X", "NV1"]
    assert nvidia_links(linked({0: ["switch"], 1: ["switch"]}, **old), [0, 1])[0] == ["X", "n/a"]


def test_peer_access_is_ok_or_says_what_is_against_it() -> None:
    for status, word in enumerate(("ok", "chipset", "gpu", "topology", "disabled", "unsupported", "n/a")):
        nvml = linked({}, nvmlDeviceGetP2PStatus=lambda *_, status=status: status)
        assert nvidia_p2p(nvml, [0, 1]) == [["X", word], [word, "X"]]
    assert nvidia_p2p(linked({}, nvmlDeviceGetP2PStatus=raises(pynvml.NVML_ERROR_NOT_SUPPORTED)), [0, 1])[0] == ["X", "n/a"]


def test_peer_access_over_nvlink_counts_where_reading_isnt_told() -> None:
    def status(gpu: int, other: int, capability: int) -> int:
        return {0: pynvml.NVML_P2P_STATUS_UNKNOWN, 2: pynvml.NVML_P2P_STATUS_OK}[capability]

    assert nvidia_p2p(linked({}, nvmlDeviceGetP2PStatus=status), [0, 1])[0] == ["X", "ok"]


def test_pcie_of_an_nvidia_gpu_now_and_at_most() -> None:
    asleep = {"nvmlDeviceGetCurrPcieLinkGeneration": gives(1), "nvmlDeviceGetMaxPcieLinkGeneration": gives(5)}
    assert nvidia_pcie(FakeNvml(**asleep), 0) == "gen1 x16 (max gen5 x16)"
    old = {"nvmlDeviceGetMaxPcieLinkGeneration": None, "nvmlDeviceGetMaxPcieLinkWidth": None}
    assert nvidia_pcie(FakeNvml(**{**asleep, **old}), 0) == "gen1 x16"
    gone = {"nvmlDeviceGetCurrPcieLinkGeneration": None, "nvmlDeviceGetCurrPcieLinkWidth": None}
    assert nvidia_pcie(FakeNvml(**gone, **old), 0) is None


def slot(sys_root: Path, ports: Sequence[tuple[str, bytes | None]], group: str | None = None) -> Path:
    """Make a PCI device below ports, each with its configuration space (None: not shown); `group`: its IOMMU group's type."""
    folder = sys_root / "devices/pci0000:10"
    for name, space in ports:
        folder /= name
        folder.mkdir(parents=True)
        if space is not None:
            (folder / "config").write_bytes(space)
    device = folder / "0000:1b:00.0"
    device.mkdir(parents=True)
    (sys_root / "kernel/iommu_groups").mkdir(parents=True)
    if group is not None:
        (sys_root / "kernel/iommu_groups/7").mkdir()
        (sys_root / "kernel/iommu_groups/7/type").write_text(f"{group}\n")
        (device / "iommu_group").symlink_to(sys_root / "kernel/iommu_groups/7")
    (sys_root / "bus/pci/devices").mkdir(parents=True)
    place = sys_root / "bus/pci/devices/0000:1b:00.0"
    place.symlink_to(device)
    return place


def space(control: int | None) -> bytes:
    """Return a configuration space with an extended capability before that of ACS, whose control register is given."""
    made = bytearray(4096)
    made[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
    made[0x148:0x14C] = ((0x000D if control is not None else 0x000B) | 1 << 16).to_bytes(4, "little")
    made[0x14E:0x150] = (control or 0).to_bytes(2, "little")
    return bytes(made)


@pytest.mark.parametrize(
    ("ports", "told"),
    [
        ([("0000:10:01.0", space(0x1D))], "none"),  # a root port alone
        ([("0000:10:01.0", None), ("0000:14:00.0", space(None)), ("0000:15:04.0", space(0x1D))], "0000:15:04.0"),
        ([("0000:10:01.0", None), ("0000:14:00.0", space(0)), ("0000:15:04.0", space(0x01))], "none"),
        ([("0000:10:01.0", None), ("0000:14:00.0", space(0)), ("0000:15:04.0", space(0x1D)[:64])], None),  # not root
        ([("0000:10:01.0", None), ("0000:14:00.0", None)], None),
        ([("0000:10:01.0", None), ("0000:14:00.0", b"\xff" * 4096), ("0000:15:04.0", space(0))], None),  # off the bus
        ([], None),  # a virtual machine
    ],
)
def test_ports_of_switches_that_redirect_are_named(
    tmp_path: Path, ports: list[tuple[str, bytes | None]], told: str | None
) -> None:
    assert acs_of(slot(tmp_path, ports)) == told


@pytest.mark.parametrize(("group", "told"), [("DMA-FQ", "DMA-FQ"), ("identity", "identity"), (None, "off")])
def test_the_iommu_is_told_in_the_kernels_words(tmp_path: Path, group: str | None, told: str) -> None:
    assert iommu_of(tmp_path, slot(tmp_path, [], group)) == told


def test_an_iommu_that_has_other_groups_or_a_device_that_isnt_there_is_unknown(tmp_path: Path) -> None:
    assert iommu_of(tmp_path, tmp_path / "bus/pci/devices/0000:1b:00.0") is None
    place = slot(tmp_path, [])
    (tmp_path / "kernel/iommu_groups/3").mkdir()
    assert iommu_of(tmp_path, place) is None


def kfd(sys_root: Path, simds: list[int], links: dict[tuple[int, int], tuple[str, int, int]]) -> None:
    """Write KFD's nodes with these numbers of SIMDs; `links`: from and to, then folder, type and flags."""
    nodes = sys_root / "class/kfd/kfd/topology/nodes"
    for number, simd in enumerate(simds):
        (nodes / str(number)).mkdir(parents=True)
        (nodes / str(number) / "properties").write_text(f"cpu_cores_count 0\nsimd_count {simd}\n")
    for (begin, end), (folder, link_type, flags) in links.items():
        link = nodes / str(begin) / folder / str(end)
        link.mkdir(parents=True)
        (link / "properties").write_text(f"type {link_type}\nnode_from {begin}\nnode_to {end}\nweight 15\nflags {flags}\n")


def test_amds_links_are_xgmi_or_pcie_between_gpus_only(tmp_path: Path) -> None:
    both = {
        (1, 2): ("io_links", 11, 1),
        (2, 1): ("io_links", 11, 1),
        (2, 11): ("p2p_links", 2, 3),
        (11, 2): ("p2p_links", 2, 17),
    }
    kfd(tmp_path, [0, 304, 304, *[0] * 8, 304], {**both, (1, 0): ("io_links", 2, 1)})
    assert [node.folder.name for node in amd_nodes(tmp_path)] == ["1", "2", "11"]
    assert amd_links(tmp_path) == [["X", "XGMI", "n/a"], ["XGMI", "X", "PCIE"], ["n/a", "PCIE", "X"]]
    assert amd_p2p(tmp_path) == [["X", "ok", "n/a"], ["ok", "X", "ok"], ["n/a", "disabled", "X"]]


def test_without_amd_gpus_there_are_no_links(tmp_path: Path) -> None:
    assert amd_nodes(tmp_path) == amd_links(tmp_path) == amd_p2p(tmp_path) == []


def test_a_pci_device_in_sysfs(tmp_path: Path) -> None:
    device = sysfs_pci(tmp_path, "00000000:0A:00.0")
    assert device == tmp_path / "bus/pci/devices/0000:0a:00.0"
    for domain, there in (("00000009", "0009"), ("00010000", "10000"), ("0001", "0001"), ("0000ABCD", "abcd")):
        assert sysfs_pci(tmp_path, f"{domain}:0A:00.0").name == f"{there}:0a:00.0"
    assert (pci_numa_node(device), sysfs_pcie(device)) == (None, None)
    device.mkdir(parents=True)
    for name, text in {"numa_node": "1", "current_link_speed": "16.0 GT/s PCIe", "current_link_width": "8"}.items():
        (device / name).write_text(text + "\n")
    assert (pci_numa_node(device), sysfs_pcie(device)) == (1, "gen4 x8")
    for name, text in {"numa_node": "-1", "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}.items():
        (device / name).write_text(text + "\n")
    assert (pci_numa_node(device), sysfs_pcie(device)) == (None, "gen4 x8 (max gen5 x16)")
