"""Sensors: what they read, what they leave out, and what they say when they can't read."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from support import PATIENCE_SECONDS, until
from support.fake_nvml import FakeNvml, gives, raises
from support.fake_nvml import field as field_values
from torchmatrix.machine.host import Gpu, Host
from torchmatrix.machine.telemetry import SLOWDOWNS, Reading, Sensor, Watcher
from torchmatrix.machine.telemetry.amd import open_amd
from torchmatrix.machine.telemetry.cpu import open_cpu
from torchmatrix.machine.telemetry.nvidia import open_nvidia


def _nvidia(nvml: FakeNvml) -> Sensor:
    sensor, note = open_nvidia(["GPU-1"], nvml)
    assert sensor is not None and note is None
    return sensor


def test_a_healthy_nvidia_gpu_is_read_in_the_units_of_the_keys() -> None:
    assert _nvidia(FakeNvml()).read() == [
        {
            "device": "GPU-1",
            "temperature_celsius": 61,
            "memory_temperature_celsius": 74,
            "sm_clock_mhz": 1980,
            "memory_clock_mhz": 2619,
            "pcie_generation": 4,
            "power_watts": 412.5,
            "power_limit_watts": 700.0,
            "utilization_percent": 97,
            "memory_used_bytes": 5 << 30,
            "energy_joules": 1234.567,
            "reasons": [],
            "ecc_uncorrected": 0,
            "ecc_corrected": 0,
            "processes": [7, 42],
        }
    ]


def test_without_nvml_there_is_a_note_that_says_what_is_missing_and_what_to_do() -> None:
    sensor, note = open_nvidia(["GPU-1"], FakeNvml(nvmlInit=raises(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)))
    assert sensor is None and note is not None
    assert note.startswith(
        "unseen: temperature, clocks, power and other programs: NVML can't be used: NVML Shared Library Not Found; "
    )
    assert "driver" in note
    assert open_nvidia([], FakeNvml(nvmlInit=raises(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))) == (None, None)


def test_fields_without_permission_or_support_are_absent_and_asked_for_once() -> None:
    nvml = FakeNvml(
        nvmlDeviceGetCurrentClocksEventReasons=raises(pynvml.NVML_ERROR_NO_PERMISSION),
        nvmlDeviceGetTotalEnergyConsumption=raises(pynvml.NVML_ERROR_NOT_SUPPORTED),
        nvmlDeviceGetFieldValues=gives(field_values(pynvml.NVML_ERROR_NOT_SUPPORTED, 0)),
        nvmlDeviceGetGraphicsRunningProcesses=raises(pynvml.NVML_ERROR_NOT_SUPPORTED),
    )
    sensor = _nvidia(nvml)
    for _ in range(3):
        (reading,) = sensor.read()
        assert not {"reasons", "energy_joules", "memory_temperature_celsius", "error"} & reading.keys()
        assert reading["power_watts"] == 412.5 and reading["processes"] == [7, 42]
    assert nvml.calls.count("nvmlDeviceGetTotalEnergyConsumption") == 1
    assert nvml.calls.count("nvmlDeviceGetPowerUsage") == 3


def test_a_passing_nvml_error_hides_a_field_for_one_reading_only() -> None:
    nvml = FakeNvml(nvmlDeviceGetPowerUsage=raises(pynvml.NVML_ERROR_UNKNOWN))
    sensor = _nvidia(nvml)
    assert "power_watts" not in sensor.read()[0]
    nvml.answers["nvmlDeviceGetPowerUsage"] = gives(300_000)
    assert sensor.read()[0]["power_watts"] == 300.0


def test_what_nvml_marks_as_not_available_is_absent_and_never_a_number() -> None:
    nvml = FakeNvml(
        nvmlDeviceGetMemoryInfo=gives(SimpleNamespace(used=None)),
        nvmlDeviceGetPowerUsage=gives(0xFFFFFFFF),
        nvmlDeviceGetTotalEnergyConsumption=gives(0xFFFFFFFFFFFFFFFF),
    )
    assert not {"memory_used_bytes", "power_watts", "energy_joules"} & _nvidia(nvml).read()[0].keys()


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
def test_a_gpu_lost_during_the_launch_is_an_error_with_a_way_out_and_the_others_go_on(code: int) -> None:
    nvml = FakeNvml()
    sensor, _ = open_nvidia(["GPU-1", "GPU-2"], nvml)
    assert sensor is not None and all("error" not in reading for reading in sensor.read())
    nvml.answers["nvmlDeviceGetUtilizationRates"] = lambda handle: (
        raises(code)() if handle == "GPU-2" else SimpleNamespace(gpu=1)
    )
    healthy, lost = sensor.read()
    assert healthy["utilization_percent"] == 1
    assert lost.keys() == {"device", "error"} and str(pynvml.NVMLError(code)) in lost["error"] and "Xid" in lost["error"]


def test_a_gpu_that_answers_every_question_with_an_unknown_error_is_an_error() -> None:
    nvml = FakeNvml()
    sensor = _nvidia(nvml)
    nvml.answers = {name: raises(pynvml.NVML_ERROR_UNKNOWN) for name in nvml.answers}
    (reading,) = sensor.read()
    assert reading.keys() == {"device", "error"} and "Unknown Error" in reading["error"]


def test_a_gpu_without_a_handle_is_noted_and_the_rest_is_watched() -> None:
    def handle(uuid: str) -> str:
        return raises(pynvml.NVML_ERROR_NOT_FOUND)() if uuid == "GPU-2" else uuid  # type: ignore[no-any-return]

    sensor, note = open_nvidia(["GPU-1", "GPU-2"], FakeNvml(nvmlDeviceGetHandleByUUID=handle))
    assert sensor is not None and [reading["device"] for reading in sensor.read()] == ["GPU-1"]
    assert note is not None and "GPU-2: Not Found" in note
    nvml = FakeNvml(nvmlDeviceGetHandleByUUID=handle)
    assert open_nvidia(["GPU-2"], nvml)[0] is None and "nvmlShutdown" in nvml.calls


def test_all_reasons_are_told_not_only_the_first() -> None:
    mask = sum(1 << bit for bit in range(9)) | 1 << 40
    (reading,) = _nvidia(FakeNvml(nvmlDeviceGetCurrentClocksEventReasons=gives(mask))).read()
    assert reading["reasons"] == [
        "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
        "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting", "bit_0x10000000000",
    ]  # fmt: skip
    assert set(reading["reasons"]) > SLOWDOWNS


def test_an_old_driver_is_asked_by_the_old_names() -> None:
    nvml = FakeNvml(
        nvmlDeviceGetTemperatureV=raises(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
        nvmlDeviceGetTemperature=gives(55),
        nvmlDeviceGetCurrentClocksThrottleReasons=gives(pynvml.nvmlClocksThrottleReasonSwPowerCap),
    )
    del nvml.answers["nvmlDeviceGetCurrentClocksEventReasons"]
    (reading,) = _nvidia(nvml).read()
    assert (reading["temperature_celsius"], reading["reasons"]) == (55, ["sw_power_cap"])


class AmdSmiLibraryException(Exception):
    """An error like amdsmi's: the code is in `err_code`."""

    def __init__(self, err_code: int) -> None:
        super().__init__(f"Error code: {err_code}")
        self.err_code = err_code


@dataclass
class FakeAmdSmi:
    """amdsmi on a machine with two GPUs, listed in another order than the kernel's; `answers` by function, for all GPUs."""

    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def amdsmi_init(self) -> None: ...

    def amdsmi_shut_down(self) -> None:
        self.calls.append("amdsmi_shut_down")

    def amdsmi_get_processor_handles(self) -> list[int]:
        return [129, 128]

    def amdsmi_get_gpu_enumeration_info(self, handle: int) -> dict[str, Any]:
        return {"drm_render": handle, "drm_card": 1, "hsa_id": 2, "hip_id": 1, "hip_uuid": f"GPU-{handle:016x}"}

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(name)

        def function(handle: int) -> Any:
            self.calls.append(name)
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(handle) if callable(answer) else answer

        return function


def _mi300() -> dict[str, Any]:
    return {
        "amdsmi_get_gpu_metrics_info": {
            "temperature_hotspot": 71, "temperature_edge": "N/A", "temperature_mem": 62, "current_gfxclk": 2100,
            "current_gfxclks": [2100, 2000, "N/A"], "current_uclk": 1300, "throttle_status": "N/A",
            "indep_throttle_status": "N/A", "prochot_residency_acc": 5, "ppt_residency_acc": 10,
            "socket_thm_residency_acc": 0, "vr_thm_residency_acc": 0, "hbm_thm_residency_acc": 0,
        },
        "amdsmi_get_power_info": {"socket_power": 650, "current_socket_power": 650, "average_socket_power": "N/A"},
        "amdsmi_get_power_cap_info": {"power_cap": 750_000_000},
        "amdsmi_get_energy_count": {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1},
        "amdsmi_get_gpu_vram_usage": {"vram_total": 196_592, "vram_used": 1024},
        "amdsmi_get_gpu_activity": {"gfx_activity": 99, "umc_activity": 40, "mm_activity": "N/A"},
        "amdsmi_get_gpu_total_ecc_count": {"correctable_count": 3, "uncorrectable_count": 0, "deferred_count": 0},
        "amdsmi_get_gpu_process_list": [{"pid": 9, "name": "python"}, {"pid": 9, "name": "python"}],
    }  # fmt: skip


def _amd(host: Host, library: FakeAmdSmi) -> Sensor:
    sensor, note = open_amd(host.gpus, load=lambda: library)
    assert sensor is not None and note is None
    return sensor


def test_an_amd_gpu_is_read_through_the_library_in_the_units_of_the_keys(amd_host: Host) -> None:
    reading = _amd(amd_host, FakeAmdSmi(_mi300())).read()[0]
    assert reading == {
        "device": "GPU-a0",
        "temperature_celsius": 71,
        "memory_temperature_celsius": 62,
        "sm_clock_mhz": 2050,
        "memory_clock_mhz": 1300,
        "power_watts": 650,
        "power_limit_watts": pytest.approx(750),
        "utilization_percent": 99,
        "memory_used_bytes": 1 << 30,
        "ecc_uncorrected": 0,
        "ecc_corrected": 3,
        "energy_joules": pytest.approx(30.6),
        "processes": [9],
    }


def test_amd_gpus_are_told_apart_by_render_node_whatever_the_librarys_order(amd_host: Host) -> None:
    answers = _mi300() | {"amdsmi_get_gpu_activity": lambda handle: {"gfx_activity": handle - 100}}
    read = {reading["device"]: reading["utilization_percent"] for reading in _amd(amd_host, FakeAmdSmi(answers)).read()}
    assert read == {"GPU-a0": 28, "GPU-a1": 29}


def test_an_old_library_tells_amd_gpus_apart_by_serial_number(amd_host: Host) -> None:
    class Old(FakeAmdSmi):
        def amdsmi_get_gpu_enumeration_info(self, handle: int) -> dict[str, Any]:
            raise AttributeError("not in this release")

    answers = _mi300() | {"amdsmi_get_gpu_asic_info": lambda handle: {"asic_serial": hex(handle).upper()}}
    gpus = [replace(gpu, uuid=f"GPU-{128 + gpu.index:016x}") for gpu in amd_host.gpus]
    sensor, note = open_amd(gpus, load=lambda: Old(answers))
    assert sensor is not None and note is None and [r["device"] for r in sensor.read()] == [gpu.uuid for gpu in gpus]
    strangers = [replace(gpu, uuid=f"GPU-{gpu.index:016x}") for gpu in amd_host.gpus]
    sensor, note = open_amd(strangers, load=lambda: Old(answers))
    assert sensor is None and note is not None and strangers[1].uuid in note


def _alike(host: Host, *more: dict[str, Any]) -> list[Gpu]:
    """Return GPUs that only their places tell apart: no unique id, or one that they share."""
    return [replace(host.gpus[0], render_node=f"/dev/dri/renderD{128 + i}", **facts) for i, facts in enumerate(more)]


def _telling(**functions: Any) -> FakeAmdSmi:
    """Return a library whose GPUs 128 and 129 draw 300 W and 430 W at 61 and 71 °C, and that has also `functions`."""
    power = {
        "amdsmi_get_power_info": lambda handle: {"socket_power": 300 if handle == 128 else 430},
        "amdsmi_get_gpu_metrics_info": lambda handle: {"temperature_hotspot": 61 if handle == 128 else 71},
        "amdsmi_get_gpu_activity": lambda handle: {"gfx_activity": 99},
        "amdsmi_get_energy_count": lambda handle: {"energy_accumulator": 10, "counter_resolution": 15.3},
    }
    library = FakeAmdSmi({**power, **{f"amdsmi_get_gpu_{name}": answer for name, answer in functions.items()}})
    library.amdsmi_get_gpu_enumeration_info = library.answers.pop("amdsmi_get_gpu_enumeration_info", _refuses)  # type: ignore[method-assign]
    return library


def _refuses(handle: int) -> Any:
    raise AttributeError("not in this release")


NO_UUID = "GPU-0000000000000000"
SHARED = "GPU-00000000000000ab"
IN_VM = ({"uuid": "PCI-0000:05:00.0", "pci_bus": "0000:05:00.0"}, {"uuid": "PCI-0000:26:00.0", "pci_bus": "0000:26:00.0"})
PARTS = tuple({"uuid": f"PCI-0000:05:00.0{part}", "partition_of": "0000:05:00"} for part in ("", "-1"))


@pytest.mark.parametrize(
    ("gpus", "functions", "is_read"),
    [
        (IN_VM, {"enumeration_info": lambda h: {"drm_render": h, "hip_uuid": NO_UUID}}, True),
        (PARTS, {"enumeration_info": lambda h: {"drm_render": h, "hip_uuid": SHARED}}, True),
        (IN_VM, {"device_bdf": lambda h: {128: "0000:05:00.0", 129: "0000:26:00.0"}[h].upper()}, True),
        (IN_VM, {"asic_info": lambda h: {"asic_serial": "0x0"}}, False),
        # All partitions bear the card's address and serial number
        (PARTS, {"device_bdf": lambda h: "0000:05:00.0", "asic_info": lambda h: {"asic_serial": "0xAB"}}, False),
        # Names that contradict each other: the render node is another one
        (
            IN_VM,
            {"enumeration_info": lambda h: {"drm_render": h + 8}, "device_bdf": lambda h: IN_VM[h - 128]["pci_bus"]},
            False,
        ),
        (IN_VM, {"device_bdf": lambda h: "0000:05:00.0"}, False),
    ],
)
def test_amd_gpus_that_are_alike_each_have_their_own_readings_or_none(
    amd_host: Host, gpus: tuple[dict[str, Any], ...], functions: dict[str, Any], is_read: bool
) -> None:
    alike = _alike(amd_host, *gpus)
    sensor, note = open_amd(alike, load=lambda: _telling(**functions))
    if is_read:
        assert sensor is not None and note is None
        assert {r["device"]: r["temperature_celsius"] for r in sensor.read()} == {alike[0].uuid: 61, alike[1].uuid: 71}
        watts = [None, None] if gpus == PARTS else [300, 430]
        assert [r.get("power_watts") for r in sensor.read()] == watts, "a card's power is not that of a partition"
        assert all(({"energy_joules", "utilization_percent"} <= r.keys()) is (gpus == IN_VM) for r in sensor.read())
    else:
        assert sensor is None and note is not None and all(gpu.uuid in note for gpu in alike)


def test_one_amd_gpu_and_one_handle_are_not_taken_for_each_other_unasked(amd_host: Host) -> None:
    """Take the case that a lane watches the second GPU while AMD's library sees the first one only."""

    class OnlyTheFirst(FakeAmdSmi):
        def amdsmi_get_processor_handles(self) -> list[int]:
            return [128]

    sensor, note = open_amd(amd_host.gpus[1:], load=lambda: OnlyTheFirst(_mi300()))
    assert sensor is None and note is not None and "GPU-a1" in note
    listed = json.dumps([{"gpu": 0, "render": "renderD128", "bdf": "0000:05:00.0"}])
    sensor, note = open_amd(amd_host.gpus[1:], load=_no_library, run=FakeCommand("", listed=listed).run)
    assert sensor is None and note is not None and "GPU-a1" in note


def test_what_amdsmi_does_not_know_is_absent(amd_host: Host) -> None:
    answers = {
        "amdsmi_get_gpu_metrics_info": {"temperature_hotspot": 0xFFFF, "current_gfxclk": "N/A", "current_uclk": 96},
        "amdsmi_get_power_info": {"current_socket_power": "N/A", "average_socket_power": 31},
        "amdsmi_get_energy_count": {"power": 0, "counter_resolution": 15.3, "timestamp": 1},
        "amdsmi_get_gpu_activity": AmdSmiLibraryException(2),
        "amdsmi_get_gpu_vram_usage": AmdSmiLibraryException(15),
    }
    library = FakeAmdSmi(answers)
    sensor = _amd(amd_host, library)
    for _ in range(2):
        assert sensor.read()[0] == {"device": "GPU-a0", "memory_clock_mhz": 96, "power_watts": 31}
    assert library.calls.count("amdsmi_get_gpu_activity") == 2, "not supported: asked once of each GPU"
    assert library.calls.count("amdsmi_get_gpu_vram_usage") == 4, "busy: asked again"


def test_an_amd_gpu_that_answers_nothing_is_an_error(amd_host: Host) -> None:
    failing = {name: AmdSmiLibraryException(39) for name in _mi300()}
    reading = _amd(amd_host, FakeAmdSmi(failing)).read()[0]
    assert reading.keys() == {"device", "error"} and "Error code: 39" in reading["error"] and "dmesg" in reading["error"]


def test_throttling_of_an_mi300_since_the_last_reading_is_told(amd_host: Host) -> None:
    answers = _mi300()
    sensor = _amd(amd_host, FakeAmdSmi(answers))
    assert "reasons" not in sensor.read()[0], "unknown before there are two readings"
    assert sensor.read()[0]["reasons"] == []
    answers["amdsmi_get_gpu_metrics_info"] |= {"ppt_residency_acc": 11, "hbm_thm_residency_acc": 4}
    assert sensor.read()[0]["reasons"] == ["sw_power_cap", "sw_thermal_slowdown"]
    answers["amdsmi_get_gpu_metrics_info"] |= {"prochot_residency_acc": 6}
    assert sensor.read()[0]["reasons"] == ["hw_thermal_slowdown"]


@pytest.mark.parametrize(
    ("status", "reasons"),
    [
        (0, []),
        (1 << 0 | 1 << 36 | 1 << 34, ["sw_power_cap", "sw_thermal_slowdown"]),
        (1 << 47 | 1 << 16 | 1 << 57, ["current_limit", "hw_thermal_slowdown", "bit_0x200000000000000"]),
        (True, ["throttled"]),
        (False, []),
        ("N/A", None),
        (0xFFFFFFFFFFFFFFFF, None),
    ],
)
def test_throttle_bits_of_older_amd_gpus_become_words(amd_host: Host, status: Any, reasons: list[str] | None) -> None:
    metrics = {"temperature_edge": 50, "indep_throttle_status": status}
    assert _amd(amd_host, FakeAmdSmi({"amdsmi_get_gpu_metrics_info": metrics})).read()[0].get("reasons") == reasons


def _no_library() -> Any:
    raise ImportError("No module named 'amdsmi'")


def _printed(**changes: Any) -> dict[str, Any]:
    """Return what `amd-smi metric --json` says of one GPU (a Radeon without energy counter)."""
    return {
        "gpu": 0,
        "usage": {"gfx_activity": {"value": 88, "unit": "%"}, "umc_activity": {"value": 3, "unit": "%"}, "vcn_busy": "N/A"},
        "power": {"socket_power": {"value": 203, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
        "clock": {"gfx_0": {"clk": {"value": 2400, "unit": "MHz"}}, "gfx_1": {"clk": "N/A"}, "mem_0": {"clk": "N/A"}},
        "temperature": {"edge": {"value": 51, "unit": "C"}, "hotspot": {"value": 68, "unit": "C"}, "mem": "N/A"},
        "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 2, "total_deferred_count": 0},
        "energy": {"total_energy_consumption": {"value": 0.0, "unit": "J"}},
        "mem_usage": {"total_vram": {"value": 30576, "unit": "MB"}, "used_vram": {"value": 2048, "unit": "MB"}},
        "throttle": {"prochot_accumulated": "N/A", "ppt_accumulated": "N/A"},
    } | changes


@dataclass
class FakeCommand:
    """The command amd-smi, and a clock."""

    metric: str
    listed: str = json.dumps(
        [{"gpu": 0, "render": "renderD129", "hip_uuid": "N/A"}, {"gpu": 1, "render": "renderD128", "hip_uuid": "N/A"}]
    )
    now: float = 100.0
    runs: int = 0

    def run(self, arguments: Sequence[str]) -> str:
        if arguments[0] == "list":
            return self.listed
        self.runs += 1
        return self.metric


def _open_command(host: Host, command: FakeCommand) -> tuple[Sensor, str]:
    sensor, note = open_amd(host.gpus, load=_no_library, run=command.run, clock=lambda: command.now)
    assert sensor is not None and note is not None
    return sensor, note


def test_without_the_library_the_command_is_read(amd_host: Host) -> None:
    metric = json.dumps({"gpu_data": [_printed(), _printed(gpu=1, usage="N/A")]})
    sensor, note = _open_command(amd_host, FakeCommand(f"WARNING: User is missing the group: render\n{metric}"))
    first, second = sensor.read()
    assert second == {
        "device": "GPU-a1",
        "temperature_celsius": 68,
        "sm_clock_mhz": 2400,
        "power_watts": 203,
        "utilization_percent": 88,
        "memory_used_bytes": 2 << 30,
        "ecc_uncorrected": 2,
        "ecc_corrected": 0,
        "reasons": [],
    }
    assert first["device"] == "GPU-a0" and "utilization_percent" not in first
    assert "No module named 'amdsmi'" in note and "every 5 s" in note and "pip install" in note


def test_the_command_is_run_every_5_s_and_old_values_are_not_told_again(amd_host: Host) -> None:
    energy = {"total_energy_consumption": {"value": 812.5, "unit": "J"}}
    throttle = {"socket_thermal_accumulated": 7, "ppt_accumulated": 3}
    command = FakeCommand(json.dumps([_printed(gpu=number, energy=energy, throttle=throttle) for number in (0, 1)]))
    sensor, _ = _open_command(amd_host, command)
    assert sensor.read()[0]["energy_joules"] == 812.5
    command.now += 4.9
    assert sensor.read() == [] and command.runs == 1
    command.now += 0.2
    command.metric = command.metric.replace('"socket_thermal_accumulated": 7', '"socket_thermal_accumulated": 9')
    assert sensor.read()[1]["reasons"] == ["sw_thermal_slowdown"]


@pytest.mark.parametrize("printed", ["", "Traceback (most recent call last)", "{}", '[{"gpu": 5}]'])
def test_a_command_that_prints_no_reading_is_an_error(amd_host: Host, printed: str) -> None:
    for reading in _open_command(amd_host, FakeCommand(printed))[0].read():
        assert reading.keys() == {"device", "error"} and "amd-smi" in reading["error"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[WARNING] User is missing the group: render\n", ""),
        ("[1] a job\n", ""),
        ("{}\n", "\nlegend:\n  N/A: not available\n"),
    ],
)
def test_what_else_the_command_prints_hides_no_reading(amd_host: Host, before: str, after: str) -> None:
    printed = json.dumps([_printed(), {"info": "no driver"}, _printed(gpu=1)])
    sensor, _ = _open_command(amd_host, FakeCommand(before + printed + after, listed=f"{before}{FakeCommand.listed}{after}"))
    assert [reading["power_watts"] for reading in sensor.read()] == [203, 203]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "nan", "-inf", "1e999", 10**400])
def test_what_is_no_finite_number_is_absent_and_spoils_no_launch(amd_host: Host, number: Any) -> None:
    answers = _mi300() | {
        "amdsmi_get_power_info": {"socket_power": number},
        "amdsmi_get_gpu_activity": {"gfx_activity": number},
    }
    answers["amdsmi_get_gpu_metrics_info"] |= {"indep_throttle_status": number, "ppt_residency_acc": number}
    readings = _amd(amd_host, FakeAmdSmi(answers)).read()
    assert all(r["temperature_celsius"] == 71 and not {"power_watts", "utilization_percent"} & r.keys() for r in readings)
    assert json.loads(json.dumps(readings, allow_nan=False)) == readings


@pytest.mark.parametrize(
    "answer", [[{"name": "python"}], [{"pid": 9}, {"pid": "N/A"}], [{"process_info": "none"}], [{"pid": [9]}]]
)
def test_processes_that_cant_be_told_are_unknown_and_hide_no_other_device(amd_host: Host, answer: Any) -> None:
    answers = _mi300() | {"amdsmi_get_gpu_process_list": lambda handle: answer if handle == 128 else [{"pid": 7}]}
    first, second = _amd(amd_host, FakeAmdSmi(answers)).read()
    assert "processes" not in first and first["power_watts"] == 650 and second["processes"] == [7]


def test_without_library_and_command_there_is_a_note(amd_host: Host) -> None:
    def run(arguments: Sequence[str]) -> str:
        raise FileNotFoundError(2, "No such file or directory", "/opt/rocm/bin/amd-smi")

    sensor, note = open_amd(amd_host.gpus, load=_no_library, run=run)
    assert sensor is None and note is not None
    assert (
        note.startswith("unseen: temperature, clocks, power and other programs: ")
        and "/opt/rocm/bin/amd-smi" in note
        and "pip install" in note
    )
    sensor, note = open_amd(amd_host.gpus, load=_no_library, run=FakeCommand("", listed='[{"gpu": 0}, {"gpu": 1}]').run)
    assert sensor is None and note is not None and "GPU-a0, GPU-a1" in note
    assert open_amd((), load=_no_library, run=run) == (None, None)


def _rapl(root: Path, zone: str, name: str, energy: int, wraps_at: int = 1_000_000_000) -> Path:
    folder = root / "class/powercap" / zone
    folder.mkdir(parents=True)
    for file, text in (("name", name), ("energy_uj", energy), ("max_energy_range_uj", wraps_at)):
        (folder / file).write_text(f"{text}\n")
    return folder / "energy_uj"


def _joules(sensor: Sensor) -> Any:
    return sensor.read()[0].get("energy_joules")


def test_cpu_energy_is_of_the_packages_once_and_only_grows(tmp_path: Path) -> None:
    first = _rapl(tmp_path, "intel-rapl:0", "package-0", 900_000_000)
    _rapl(tmp_path, "intel-rapl:1", "package-1", 50_000_000)
    _rapl(tmp_path, "intel-rapl:0:0", "core", 7_000_000)
    _rapl(tmp_path, "intel-rapl:2", "psys", 8_000_000)
    _rapl(tmp_path, "intel-rapl-mmio:0", "package-0", 900_000_000)
    sensor, note = open_cpu(tmp_path)
    assert note is None and _joules(sensor) == 950
    first.write_text("100000000\n")
    assert _joules(sensor) == pytest.approx(950 + 200), "the counter went over its maximum"
    first.write_text("130000000\n")
    assert _joules(sensor) == pytest.approx(950 + 230)


def test_cpu_energy_that_only_root_may_read_is_absent_with_a_way_out(tmp_path: Path) -> None:
    _rapl(tmp_path, "intel-rapl:1", "package-1", 50_000_000)
    hidden = _rapl(tmp_path, "intel-rapl:0", "package-0", 1)
    hidden.unlink()
    hidden.mkdir()  # unreadable for root too, as whom the tests may run
    sensor, note = open_cpu(tmp_path)
    assert _joules(sensor) is None, "the other package alone would mislead"
    assert note is not None and str(hidden) in note and "sudo chmod" in note
    assert open_cpu(tmp_path / "nothing")[1] is None


def test_cpu_throttling_counts_each_package_once(tmp_path: Path) -> None:
    for cpu, (package, events) in enumerate(((0, 3), (0, 5), (1, 2), (1, 0))):
        folder = tmp_path / f"devices/system/cpu/cpu{cpu}"
        (folder / "thermal_throttle").mkdir(parents=True)
        (folder / "topology").mkdir()
        (folder / "topology/physical_package_id").write_text(f"{package}\n")
        (folder / "thermal_throttle/package_throttle_count").write_text(f"{events}\n")
        (folder / "thermal_throttle/core_throttle_count").write_text("1\n")
    assert open_cpu(tmp_path)[0].read()[0]["throttle_count"] == (5 + 1) + (2 + 1)
    assert "throttle_count" not in open_cpu(tmp_path / "nothing")[0].read()[0]


@dataclass
class FakeSystem:
    """psutil's answers for a virtual machine with two CPUs; `times`: user, idle, steal in seconds."""

    times: tuple[float, float, float] = (100.0, 100.0, 100.0)
    iowait: float = 50.0
    temperatures: dict[str, Any] = field(default_factory=dict)

    def cpu_count(self) -> int:
        return 4

    def cpu_times(self) -> Any:
        user, idle, steal = self.times
        names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
        values = (user, 0.0, 0.0, idle, self.iowait, 0.0, 0.0, steal, user, 0.0)
        return SimpleNamespace(_fields=names, **dict(zip(names, values, strict=True)))

    def virtual_memory(self) -> Any:
        return SimpleNamespace(used=3 << 30)

    def cpu_freq(self, percpu: bool) -> Any:
        return [SimpleNamespace(current=3000.0), SimpleNamespace(current=2000.0)]

    def sensors_temperatures(self) -> Any:
        return self.temperatures


def test_cpu_shares_are_of_the_time_since_the_last_reading(tmp_path: Path) -> None:
    system = FakeSystem()
    sensor, _ = open_cpu(tmp_path, system)
    assert sensor.read()[0] == {"device": "cpu", "clock_mhz": 2500.0, "memory_used_bytes": 3 << 30}, "no time has passed"
    system.times = (106.0, 102.0, 102.0)
    (reading,) = sensor.read()
    assert (reading["utilization_percent"], reading["steal_percent"], reading["busy_cpus"]) == (80.0, 20.0, 3.2)


def test_a_counter_of_the_kernel_that_goes_back_makes_no_cpu_busier_than_it_can_be(tmp_path: Path) -> None:
    system = FakeSystem()
    sensor, _ = open_cpu(tmp_path, system)
    system.times, system.iowait = (102.0, 100.0, 100.0), 49.9  # proc(5): iowait may decrease
    (reading,) = sensor.read()
    assert (reading["utilization_percent"], reading["busy_cpus"]) == (100.0, 4.0)
    for set_back in ((50.0, 110.0, 100.0), (110.0, 50.0, 100.0)):
        system.times = set_back
        assert "utilization_percent" not in sensor.read()[0], "a counter that was set back tells nothing"


def test_cpu_temperature_is_the_hottest_packages(tmp_path: Path) -> None:
    def entry(label: str, current: float) -> Any:
        return SimpleNamespace(label=label, current=current)

    intel = {"coretemp": [entry("Package id 0", 60), entry("Core 0", 71), entry("Package id 1", 65)], "nvme": [entry("", 90)]}
    for temperatures, expected in ((intel, 65), ({"k10temp": [entry("Tctl", 70), entry("Tccd1", 55)]}, 70), ({}, None)):
        sensor, _ = open_cpu(tmp_path, FakeSystem(temperatures=temperatures))
        assert sensor.read()[0].get("temperature_celsius") == expected


def test_a_cpu_sensor_that_fails_takes_nothing_else_with_it(tmp_path: Path) -> None:
    class Broken(FakeSystem):
        def cpu_freq(self, percpu: bool) -> Any:
            raise OSError("offline")

    (reading,) = open_cpu(tmp_path, Broken())[0].read()
    assert "clock_mhz" not in reading and reading["memory_used_bytes"] == 3 << 30


def test_this_machines_cpu_is_read() -> None:
    sensor, _ = open_cpu()
    (reading,) = sensor.read()
    assert reading["device"] == "cpu" and 0 < reading["memory_used_bytes"] < psutil.virtual_memory().total


@dataclass
class FakeSensor:
    """A sensor that answers at once, or hangs in its first reading until `release` is set."""

    release: threading.Event = field(default_factory=threading.Event)
    hangs: bool = False

    def read(self) -> list[Reading]:
        if self.hangs:
            self.release.wait()
        return [{"device": "gpu"}]

    def close(self) -> None: ...


def test_the_watcher_reads_at_begin_and_end_and_in_between() -> None:
    rounds: list[list[Reading]] = []
    first = threading.Event()

    def tell(readings: list[Reading]) -> None:
        rounds.append(readings)
        first.set()

    with Watcher([FakeSensor()], tell, seconds=60):
        assert first.wait(PATIENCE_SECONDS)
        assert rounds == [[{"device": "gpu"}]]
    assert len(rounds) == 2, "once more on leaving"
    with Watcher([FakeSensor()], tell, seconds=0.01):
        until(lambda: len(rounds) > 4)


def test_a_sensor_that_hangs_delays_the_end_by_the_watchers_patience_only() -> None:
    sensor = FakeSensor(hangs=True)
    started = time.monotonic()
    with Watcher([sensor], lambda _: None, seconds=0.01, patience_seconds=0.2):
        pass
    waited = time.monotonic() - started
    sensor.release.set()
    assert 0.2 <= waited < PATIENCE_SECONDS
