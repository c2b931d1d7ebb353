"""Names of CPUs: by /proc/cpuinfo, or by its cores and its board, or not at all."""

from pathlib import Path

import pytest

from torchmatrix.machine.cpu import cpu_name
from torchmatrix.machine.host import numa_nodes


def arm(*models: tuple[str, str]) -> str:
    """Return /proc/cpuinfo of a machine with one CPU of each of these models."""
    fields = "Features\t: fp asimd\nCPU implementer\t: {}\nCPU architecture: 8\nCPU part\t: {}\nCPU revision\t: 0\n"
    return "\n".join(f"processor\t: {number}\n" + fields.format(*model) for number, model in enumerate(models))


V2, N1, A72, A53 = ("0x41", "0xd4f"), ("0x41", "0xd0c"), ("0x41", "0xd08"), ("0x41", "0xd03")
GH200 = {
    "sys/class/dmi/id/sys_vendor": "Quanta Cloud Technology Inc.\n",
    "sys/class/dmi/id/product_name": "QuantaGrid S74G-2U\n",
}
EMPTY_DMI = {
    "sys/class/dmi/id/sys_vendor": "To Be Filled By O.E.M.\n",
    "sys/class/dmi/id/product_name": "System Product Name\n",
}


@pytest.mark.parametrize(
    ("cpuinfo", "files", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\n", GH200, "AMD EPYC 9654 96-Core Processor"),
        ("processor : 0\ncpu : POWER9, altivec supported\nclock : 3800MHz\n", {}, "POWER9, altivec supported"),
        ("processor : 0\nisa : rv64imafdc\nuarch : sifive,u74-mc\n", {}, "sifive,u74-mc"),
        (arm(V2, V2), GH200, "Arm Neoverse-V2 (Quanta Cloud Technology Inc. QuantaGrid S74G-2U)"),
        (arm(N1), {}, "Arm Neoverse-N1"),
        (arm(N1), EMPTY_DMI, "Arm Neoverse-N1"),
        (
            arm(A53, A53, A72),
            {"proc/device-tree/model": "Rockchip RK3399\0"},
            "Arm Cortex-A53 + Arm Cortex-A72 (Rockchip RK3399)",
        ),
        # Kernels that call every ARM CPU by its architecture
        ("model name\t: ARMv8 Processor rev 1 (v8l)\n" + arm(("0x4e", "0x004")), {}, "NVIDIA Carmel"),
        # Kinds that aren't in the table keep their numbers
        (arm(("0x41", "0xdff")), {}, "Arm part 0xdff"),
        (arm(("0x99", "0x001")), {}, "implementer 0x99 part 0x001"),
        (arm(("?", "0x001")), {}, "ARM core ? 0x001"),
        # A cluster of several makers; hypervisors and clouds
        (arm(A53, ("0x51", "0x001"), ("0x61", "0x022")), {}, "Arm Cortex-A53 + Qualcomm part 0x001 + Apple part 0x022"),
        (arm(N1, N1), {**GH200, "sys/class/dmi/id/product_name": "Unknown\n"}, "Arm Neoverse-N1"),
        ("processor : 0\nCPU Family : Loongson-64bit\nModel Name : Loongson-3A5000\n", GH200, "Loongson-3A5000"),
        ("processor : 0\nvendor_id : IBM/S390\n", EMPTY_DMI, None),
        ("", {**GH200, "sys/class/dmi/id/product_name": "Unknow\n"}, None),
        ("", {**GH200, "sys/class/dmi/id/product_name": "[Empty]\n"}, None),
        ("processor : 0\nhart : 1\nisa : rv64imac\nmvendorid : 0x5b7\n", {}, None),
        # Without cores, the board
        ("processor : 0\n", {"proc/device-tree/model": "StarFive VisionFive 2 v1.3B\0"}, "StarFive VisionFive 2 v1.3B"),
        ("", GH200, "Quanta Cloud Technology Inc. QuantaGrid S74G-2U"),
        ("", EMPTY_DMI, None),
        ("", {"sys/class/dmi/id/sys_vendor": "Dell Inc.\n", "sys/class/dmi/id/product_name": "None\n"}, None),
        ("model name\t:\n", {}, None),
        (None, {}, None),
    ],
)
def test_a_cpu_is_named_by_the_best_that_is_told(
    tmp_path: Path, cpuinfo: str | None, files: dict[str, str], name: str | None
) -> None:
    for path, text in {**files, **({} if cpuinfo is None else {"proc/cpuinfo": cpuinfo})}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert cpu_name(tmp_path) == name


def test_a_name_in_another_encoding_is_still_a_name(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_bytes(b"model name : \xb5Server 1\n")
    assert cpu_name(tmp_path) == "\N{REPLACEMENT CHARACTER}Server 1"


@pytest.mark.parametrize(
    ("cpus_of_nodes", "count"),
    [
        (["0-71", "", "", "", "", "", "", "", ""], 1),  # one Grace Hopper: its GPU may have eight nodes
        (["0-71", "72-143", "", ""], 2),
        (["0-15", "16-31"], 2),
        ([None, None], 2),  # kernels that don't tell
        ([], 1),
    ],
)
def test_a_numa_node_without_cpus_is_memory_only(tmp_path: Path, cpus_of_nodes: list[str | None], count: int) -> None:
    for number, cpus in enumerate(cpus_of_nodes):
        (tmp_path / f"node{number}").mkdir()
        if cpus is not None:
            (tmp_path / f"node{number}/cpulist").write_text(f"{cpus}\n")
    assert numa_nodes(tmp_path) == count
