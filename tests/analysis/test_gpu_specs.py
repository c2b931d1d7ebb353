"""GPU that a driver's name means, its peaks per device, and the utilisation taken against them."""

import csv
import math
from collections import Counter
from dataclasses import replace

import pytest

from torchmatrix.analysis import gpu_specs
from torchmatrix.core import assets

GIB = 2**30
MIB = 2**20


@pytest.mark.parametrize(
    ("name", "memory_bytes", "expected"),
    [
        ("NVIDIA H200", 143771 * MIB, "H200 SXM"),
        ("NVIDIA H200 NVL", 143771 * MIB, "H200 NVL"),
        ("NVIDIA H100 80GB HBM3", 81559 * MIB, "H100 SXM5 80GB"),
        ("NVIDIA H100 PCIe", 81559 * MIB, "H100 PCIe 80GB"),
        ("NVIDIA A100-SXM4-80GB", 81920 * MIB, "A100 80GB SXM4"),
        ("A100-SXM-80GB", 81251 * MIB, "A100 80GB SXM4"),
        ("NVIDIA A100-SXM4-40GB", 40960 * MIB, "A100 40GB SXM4"),
        ("NVIDIA A100 80GB PCIe", 81920 * MIB, "A100 80GB PCIe"),
        ("Tesla V100-SXM2-16GB", 16160 * MIB, "V100 SXM2 16GB"),
        ("Tesla V100-SXM2-32GB", 32510 * MIB, "V100 SXM2 32GB"),
        ("Tesla T4", 14.56 * GIB, "T4"),
        ("NVIDIA GeForce RTX 3090", 24576 * MIB, "GeForce RTX 3090"),
        ("NVIDIA B300 SXM6 AC", 275040 * MIB, "B300 SXM"),
        ("AMD Instinct MI250X", 64 * GIB, "Instinct MI250X"),
        ("AMD Instinct MI300X", 206141652992, "Instinct MI300X"),
        ("AMD Instinct MI325X OAM", 274_861_129_728, "Instinct MI325X"),
        ("AMD Instinct MI350 OAM", 309_220_868_096, "Instinct MI350X"),
        ("AMD Instinct MI355 OAM", 309_220_868_096, "Instinct MI355X"),
    ],
)
def test_a_drivers_name_finds_its_row(name: str, memory_bytes: float, expected: str) -> None:
    for memory in (int(memory_bytes), None):
        facts = gpu_specs.find(name, memory)
        assert facts is not None and facts.name == expected


@pytest.mark.parametrize("suffix", ["Laptop GPU", "Max-Q", "D", "SUPER", "Ti", "MIG 1g.5gb", "Mobile"])
def test_a_suffix_of_another_product_has_no_peak(suffix: str) -> None:
    for memory in (24 * GIB, None):
        assert gpu_specs.find(f"NVIDIA GeForce RTX 4090 {suffix}", memory) is None


def test_case_and_the_makers_prefix_do_not_matter() -> None:
    names = ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090", "nvidia geforce rtx 3090")
    assert len({gpu_specs.find(name, 24 * GIB) for name in names}) == 1
    assert gpu_specs.find("T4", None) is gpu_specs.find("Tesla T4", None) is gpu_specs.find("NVIDIA Tesla T4", None) is not None


@pytest.mark.parametrize(
    ("name", "memory_bytes"),
    [
        ("NVIDIA H100", 96 * GIB),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GIB),
        ("NVIDIA GeForce RTX 3090 Laptop GPU", 24 * GIB),
        ("NVIDIA GeForce RTX 4060 Ti", 8 * GIB),
        ("AMD Instinct MI250X / MI250", 64 * GIB),
        ("AMD Instinct MI300X", 24 * GIB),
        ("AMD GPU", None),
        ("cpu", None),
        ("", None),
    ],
)
def test_neither_a_likely_name_nor_another_size_is_taken_for_a_known_gpu(name: str, memory_bytes: int | None) -> None:
    assert gpu_specs.find(name, memory_bytes) is None


def test_memory_tells_gpus_of_one_name_apart() -> None:
    v100 = gpu_specs.find("Tesla V100-SXM2-16GB", None)
    assert v100 is not None
    twin = replace(v100, name="twin", memory_gb=17)
    nearest = [gpu_specs.nearest((v100, twin), memory) for memory in (16 * GIB, 17 * GIB, 20 * GIB, None)]
    assert nearest == [v100, twin, None, None]
    assert gpu_specs.nearest((v100, replace(v100, name="same")), 16 * GIB) is None


def test_peaks_are_per_device_and_per_precision() -> None:
    assert _peaks("NVIDIA H200") == [67e12, 494.5e12, 989e12, 989e12, 1979e12]
    assert _peaks("NVIDIA GeForce RTX 3090") == [35.6e12, 35.6e12, 71e12, 71e12, None]
    assert _peaks("Tesla V100-SXM2-16GB") == [15.7e12, 15.7e12, 125e12, 15.7e12, None]
    assert _peaks("AMD Instinct MI250X") == [47.85e12, None, 191.5e12, 191.5e12, None]
    (h200,) = (facts for facts in gpu_specs.load() if facts.name == "H200 SXM")
    assert gpu_specs.peak_flops(h200, "fp8") == gpu_specs.peak_flops(h200, "fp8-rowwise") == 1979e12
    assert gpu_specs.peak_flops(h200, "mxfp8") is None, "Hopper has no scales of blocks"
    (b200,) = (facts for facts in gpu_specs.load() if facts.name == "B200 SXM")
    assert gpu_specs.peak_flops(b200, "fp8") == gpu_specs.peak_flops(b200, "mxfp8") == 4500e12
    (ampere,) = (facts for facts in gpu_specs.load() if facts.name == "A100 80GB SXM4")
    assert gpu_specs.peak_flops(ampere, "fp8") is None


def test_the_peak_of_several_types_is_that_of_the_least_time_for_all() -> None:
    """Of 100 FLOPs 80 in float8 (1979 TFLOP/s) and 20 in bfloat16 (989): 80 / 1979 + 20 / 989 units of time."""
    (h200,) = (facts for facts in gpu_specs.load() if facts.name == "H200 SXM")
    both = gpu_specs.mixed_peak(h200, "fp8", {"float8": 80.0, "bfloat16": 20.0})
    assert both == pytest.approx(100 / (80 / 1979e12 + 20 / 989e12)) and 989e12 < both < 1979e12
    assert gpu_specs.mixed_peak(h200, "amp", {"float16": 5.0}) == gpu_specs.peak_flops(h200, "amp")
    as_tf32, as_fp32 = (gpu_specs.mixed_peak(h200, name, {"float32": 1.0, "bfloat16": 1.0}) for name in ("tf32", "amp-bf16"))
    assert as_tf32 and as_fp32 and as_tf32 > as_fp32
    for unknown in ({}, {"float64": 1.0, "float32": 9.0}, {"float32": 0.0}):
        assert gpu_specs.mixed_peak(h200, "fp32", unknown) is None
    (ampere,) = (facts for facts in gpu_specs.load() if facts.name == "A100 80GB SXM4")
    assert gpu_specs.mixed_peak(ampere, "amp-bf16", {"float8": 1.0, "bfloat16": 99.0}) is None


def test_utilisation_by_hand() -> None:
    """1000 images/s of 3 × 2 × 4.1 GFLOP (ResNet-50: forward and twice that backward) are 24.6 TFLOP/s; of 246 a tenth."""
    assert gpu_specs.mfu(1000, 3 * 2 * 4.1e9, 246e12) == pytest.approx(0.1)


def test_the_utilisation_of_an_unknown_gpu_is_not_a_number() -> None:
    assert gpu_specs.find("NVIDIA Future 1", 1 * GIB) is None
    for arguments in ((1000, 1e9, None), (1000, None, 1e12), (None, 1e9, 1e12), (math.nan, 1e9, 1e12)):
        assert math.isnan(gpu_specs.mfu(*arguments))


@pytest.mark.parametrize("facts", gpu_specs.load(), ids=lambda facts: facts.name)
def test_each_row_is_well_formed(facts: gpu_specs.GpuFacts) -> None:
    numbers = [getattr(facts, field) for field in facts.__slots__ if isinstance(getattr(facts, field), int | float)]
    assert len(numbers) >= 6 and all(number > 0 and math.isfinite(number) for number in numbers)
    assert facts.fp32_tflops and facts.fp16_tflops and facts.fp16_tflops >= facts.fp32_tflops
    assert facts.fp16_tflops >= (facts.tf32_tflops or 0) and (facts.fp32_matrix_tflops or math.inf) >= facts.fp32_tflops
    assert facts.vendor in ("NVIDIA", "AMD") and facts.status in ("verified", "partly") and facts.source
    assert len(facts.launch_date) in (7, 10) and facts.architecture and facts.memory_type
    assert facts.compute_capability or not facts.driver_names, "only of a GPU that no driver has shown yet may it be unknown"
    assert all(name and name == name.strip() for name in facts.driver_names)


def test_rows_agree_with_each_other_and_with_their_description() -> None:
    names = Counter((name.casefold(), facts.memory_gb) for facts in gpu_specs.load() for name in facts.driver_names)
    assert set(names.values()) == set(Counter(facts.name for facts in gpu_specs.load()).values()) == {1}
    with (assets.PUBLISHED / "gpus.csv").open(newline="") as lines:
        reader = csv.DictReader(lines)
        assert reader.fieldnames == list(gpu_specs.GpuFacts.__slots__)
        assert all(None not in row and None not in row.values() for row in reader)
    description = (assets.PUBLISHED / "README.md").read_text()
    assert [column for column in gpu_specs.GpuFacts.__slots__ if f"`{column}`" not in description] == []


def _peaks(name: str) -> list[float | None]:
    facts = gpu_specs.find(name, None)
    assert facts is not None
    return [gpu_specs.peak_flops(facts, precision) for precision in gpu_specs.PEAKED]


@pytest.mark.parametrize(
    ("name", "bytes_per_second"),
    [("NVIDIA H100 80GB HBM3", 450e9), ("NVIDIA A100-SXM4-80GB", 300e9), ("NVIDIA L4", None), ("NVIDIA unknown", None)],
)
def test_what_links_carry_is_known_of_gpus_that_have_them(name: str, bytes_per_second: float | None) -> None:
    assert gpu_specs.link_peak(gpu_specs.find(name, None)) == bytes_per_second
