"""Settings of a machine: what is read of it before each launch, and what is unknown."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from support.fake_nvml import FakeNvml, gives, raises
from torchmatrix.machine.conditions import of_amd, of_host
from torchmatrix.machine.host import Host, before_launch, board_identity, numa_layout
from torchmatrix.machine.host_gpus import nvidia_gpus

SERVER = {
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_driver": "intel_pstate",
    "sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference": "balance_performance",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq": "800000",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": "3500000",
    "sys/devices/system/cpu/cpufreq/policy1/scaling_governor": "performance",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "0",
    "sys/devices/system/cpu/cpuidle/current_driver": "intel_idle",
    "sys/devices/system/cpu/cpuidle/current_governor_ro": "menu",
    "sys/devices/system/cpu/cpu0/cpuidle/state0/name": "POLL",
    "sys/devices/system/cpu/cpu0/cpuidle/state0/disable": "0",
    "sys/devices/system/cpu/cpu0/cpuidle/state10/name": "C6",
    "sys/devices/system/cpu/cpu0/cpuidle/state10/disable": "0",
    "sys/devices/system/cpu/smt/active": "1",
    "sys/devices/system/cpu/vulnerabilities/meltdown": "Not affected",
    "sys/devices/system/cpu/vulnerabilities/spectre_v2": "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
    "proc/sys/kernel/numa_balancing": "1",
    "proc/cpuinfo": "processor\t: 0\nmicrocode\t: 0x2b000603\n\nprocessor\t: 1\nmicrocode\t: 0x2b000603\n",
}
TOLD = {
    "governor": "performance", "frequency_driver": "intel_pstate", "energy_preference": "balance_performance",
    "clock_limits": "800 to 3500 MHz", "turbo": True, "idle_states": "intel_idle, menu: POLL C6", "smt": True,
    "hugepages": "madvise, defrag madvise", "numa_balancing": True, "microcode": "0x2b000603",
    "mitigations": ("spectre_v2: Mitigation: Enhanced / Automatic IBRS; IBPB: conditional",),
}  # fmt: skip


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def test_a_machine_that_tells_nothing_is_unknown_in_everything(tmp_path: Path) -> None:
    assert set(of_host(tmp_path).values()) == {None}


def test_a_server_is_read_whole(tmp_path: Path) -> None:
    assert of_host(tree(tmp_path, SERVER)) == TOLD


@pytest.mark.parametrize(
    ("file", "text", "field", "value"),
    [
        ("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave", "governor", "performance, powersave"),
        ("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "2100000", "clock_limits", "800 to 2100 MHz"),
        ("sys/devices/system/cpu/intel_pstate/no_turbo", "1", "turbo", False),
        ("sys/devices/system/cpu/cpu0/cpuidle/state10/disable", "1", "idle_states", "intel_idle, menu: POLL"),
        ("sys/devices/system/cpu/smt/active", "0", "smt", False),
        ("sys/devices/system/cpu/vulnerabilities/spectre_v2", "Vulnerable", "mitigations", ("spectre_v2: Vulnerable",)),
        ("sys/devices/system/cpu/vulnerabilities/spectre_v2", "Not affected", "mitigations", ()),
        ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never", "hugepages", "always, defrag madvise"),
        ("proc/sys/kernel/numa_balancing", "0", "numa_balancing", False),
    ],
)
def test_what_somebody_changes_is_seen(tmp_path: Path, file: str, text: str, field: str, value: Any) -> None:
    assert of_host(tree(tmp_path, SERVER | {file: text})) == TOLD | {field: value}


def test_turbo_of_other_drivers_is_cpufreqs_boost(tmp_path: Path) -> None:
    assert of_host(tree(tmp_path, {"sys/devices/system/cpu/cpufreq/boost": "0"}))["turbo"] is False


def test_the_memory_of_each_numa_node_is_told(tmp_path: Path) -> None:
    files = {"node0/cpulist": "0-31", "node0/meminfo": "Node 0 MemTotal:       263854324 kB", "node1/cpulist": ""}
    assert numa_layout(tree(tmp_path, files)) == ("CPUs 0-31: 252 GiB", "CPUs none: unknown memory")


def test_a_board_is_known_by_a_hash_of_its_serial_number_where_that_can_be_read(tmp_path: Path) -> None:
    assert board_identity(tmp_path) is None
    assert board_identity(tree(tmp_path, {"board_serial": "To be filled by O.E.M."})) is None
    first = board_identity(tree(tmp_path, {"board_serial": "HM20S1234567"}))
    assert first and "1234567" not in first and first != board_identity(tree(tmp_path, {"board_serial": "HM20S1234568"}))


def test_amds_gpus_are_read_from_sysfs_before_a_launch(tmp_path: Path, amd_host: Host) -> None:
    files = {"hwmon/hwmon3/power1_cap": "750000000", "power_dpm_force_performance_level": "high",
             "current_compute_partition": "SPX", "current_memory_partition": "NPS1"}  # fmt: skip
    assert of_amd(tmp_path / "none") == {"power_limit_watts": None, "performance_level": None, "partitions": None}
    tree(tmp_path / "sys/class/drm/renderD128/device", files)
    first, second = before_launch(amd_host, ("GPU-a0",), tmp_path).gpus
    assert (first.power_limit_watts, first.performance_level, first.partitions) == (750.0, "high", "SPX/NPS1")
    assert second == amd_host.gpus[1], "it is not of the launch"


def test_what_is_set_on_nvidias_gpus_meanwhile_is_seen_before_the_next_launch(tmp_path: Path, cpu_host: Host) -> None:
    usual = {
        "nvmlDeviceGetPowerManagementLimit": gives(700_000), "nvmlDeviceGetEccMode": gives([1, 1]),
        "nvmlDeviceGetPersistenceMode": gives(1), "nvmlDeviceGetComputeMode": gives(0), "nvmlDeviceGetMigMode": gives([0, 0]),
        "nvmlDeviceGetApplicationsClock": lambda _, domain: {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 2619}[domain],
        "nvmlDeviceGetGspFirmwareMode": gives([1, 1]), "nvmlDeviceGetGspFirmwareVersion": gives(b"570.133.20"),
    }  # fmt: skip
    listed = nvidia_gpus([], FakeNvml(**usual), tmp_path, tmp_path)
    host = replace(cpu_host, vendor="nvidia", gpus=listed.gpus)
    gpu = host.gpus[1]
    assert (gpu.ecc, gpu.persistence, gpu.compute_mode, gpu.mig, gpu.auto_boost) == (True, True, "default", False, None)
    assert (gpu.application_clocks, gpu.gsp_firmware, gpu.clocks_max_memory_mhz) == (
        "1980 MHz and 2619 MHz",
        "570.133.20",
        1593,
    )
    changed = FakeNvml(**usual | {"nvmlDeviceGetPowerManagementLimit": gives(500_000), "nvmlDeviceGetEccMode": gives([0, 1])})
    now = before_launch(host, (gpu.uuid,), tmp_path, changed)
    assert now.gpus == (host.gpus[0], replace(gpu, power_limit_watts=500.0, ecc=False)), "the first GPU was not asked"
    assert changed.calls[-1] == "nvmlShutdown"


def test_a_driver_that_tells_nothing_any_more_makes_it_unknown(tmp_path: Path, nvidia_host: Host) -> None:
    host = replace(nvidia_host, gpus=tuple(replace(gpu, power_limit_watts=700.0, vbios="96") for gpu in nvidia_host.gpus))
    nvml = FakeNvml(nvmlDeviceGetHandleByUUID=raises(pynvml.NVML_ERROR_GPU_IS_LOST))
    first, second, *_ = before_launch(host, ("GPU-000",), tmp_path, nvml).gpus
    assert (first.power_limit_watts, first.vbios, second.power_limit_watts) == (None, "96", 700.0)
