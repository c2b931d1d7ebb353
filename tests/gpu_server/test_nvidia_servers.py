"""Invented servers with NVIDIA GPUs as the tool describes them: NVIDIA's bindings load the tests' shared library."""

import json
from typing import Any

import pytest
from invented_servers import uuid
from stand_ins import Running

H100 = [uuid(number) for number in range(8)]
SLICES = [uuid(number, "MIG") for number in (10, 11, 13, 14)]
SEE = "import json; from torchmatrix.machine.host import detect; print(json.dumps(detect().as_record()))"
READ = """
import json, sys
from torchmatrix.machine.host import detect
from torchmatrix.machine.telemetry.nvidia import open_nvidia
sensor, note = open_nvidia([gpu.uuid for gpu in detect().gpus])
print(json.dumps([note, sensor and sensor.read()]))
"""


def described(server: Running) -> dict[str, Any]:
    return dict(json.loads(server.python(SEE)))


def read(server: Running) -> tuple[str | None, dict[str, dict[str, Any]]]:
    """Return a note on what can't be watched, and the readings by device."""
    note, readings = json.loads(server.python(READ))
    return note, {reading["device"]: reading for reading in readings or ()}


def test_eight_h100_are_described(eight_h100: Running) -> None:
    host = described(eight_h100)
    assert [gpu["uuid"] for gpu in host["gpus"]] == H100 and host["notes"] == []
    assert (host["vendor"], host["driver"], host["cuda_driver"]) == ("nvidia", "570.133.20", "12.8")
    assert host["links"][0] == ["X"] + 7 * ["NV18"] and host["p2p"][7] == 7 * ["ok"] + ["X"]
    expected = {"name": "NVIDIA H100 80GB HBM3", "capability": "9.0", "memory_bytes": 85520809984, "power_limit_watts": 700.0,
                "ecc": True, "persistence": True, "pcie": "gen5 x16 (max gen5 x16)", "clocks_max_mhz": 1980,
                "memory_bus_bits": 5120, "repairs": "0 rows remapped",
                "pci_bus": "00000000:4B:00.0", "vbios": "96.00.A5.00.01", "slice_of": None}  # fmt: skip
    assert expected.items() <= host["gpus"][3].items()


def test_idle_h100_can_be_read(eight_h100: Running) -> None:
    note, readings = read(eight_h100)
    assert note is None and list(readings) == H100
    assert readings[H100[5]] == {
        "device": H100[5], "temperature_celsius": 34, "memory_temperature_celsius": 40, "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619, "pcie_generation": 5, "power_watts": 70.0, "power_limit_watts": 700.0,
        "utilization_percent": 0, "memory_used_bytes": 536870912, "energy_joules": 1000000.0, "reasons": ["gpu_idle"],
        "ecc_uncorrected": 0, "ecc_corrected": 2, "processes": [],
    }  # fmt: skip


def test_geforce_cards_have_no_ecc_and_their_links_are_those_of_the_board(mixed_rtx: Running) -> None:
    host = described(mixed_rtx)
    assert [gpu["name"][-4:] for gpu in host["gpus"]] == ["4090", "4090", "3090", "3090"]
    assert host["links"] == [
        ["X", "NODE", "NODE", "NODE"],
        ["NODE", "X", "NODE", "NODE"],
        ["NODE", "NODE", "X", "NV4"],
        ["NODE", "NODE", "NV4", "X"],
    ]
    assert host["p2p"][0] == ["X", "chipset", "chipset", "chipset"] and host["p2p"][2] == ["chipset", "chipset", "X", "ok"]
    _, readings = read(mixed_rtx)
    assert not {"ecc_uncorrected", "ecc_corrected", "memory_temperature_celsius"} & readings[uuid(0)].keys()


def test_slices_are_devices_by_their_own_uuid(sliced_a100: Running) -> None:
    host = described(sliced_a100)
    assert [gpu["uuid"] for gpu in host["gpus"]] == [*SLICES, uuid(1)]
    assert [gpu["slice_of"] for gpu in host["gpus"]] == 4 * [uuid(0)] + [None]
    assert [gpu["name"].rpartition(" ")[2] for gpu in host["gpus"]][:4] == ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]
    assert [gpu["memory_bytes"] for gpu in host["gpus"]] == [42412802048, 20937965568, 10200547328, 10200547328, 85899345920]
    assert host["links"][0] == ["X", "n/a", "n/a", "n/a", "n/a"] == host["p2p"][0]


def test_a_slice_has_its_gpus_clocks_but_no_power_of_its_own(sliced_a100: Running) -> None:
    note, readings = read(sliced_a100)
    assert note is None
    assert readings[SLICES[0]] == {
        "device": SLICES[0], "temperature_celsius": 34, "memory_temperature_celsius": 40, "sm_clock_mhz": 1410,
        "memory_clock_mhz": 1593, "pcie_generation": 4, "memory_used_bytes": 39845888, "reasons": ["gpu_idle"],
        "ecc_uncorrected": 0, "ecc_corrected": 2, "processes": [],
    }  # fmt: skip
    assert readings[uuid(1)]["power_watts"] == 70.0 and readings[uuid(1)]["energy_joules"] == 1000000.0


def test_a_scheduler_may_give_out_single_slices(sliced_a100: Running) -> None:
    host = json.loads(sliced_a100.python(SEE, CUDA_VISIBLE_DEVICES=f"{SLICES[2]},{SLICES[1]}"))
    assert [gpu["uuid"] for gpu in host["gpus"]] == SLICES[1:3]
    assert host["notes"] == ["CUDA_VISIBLE_DEVICES is set: 2 of 5 GPUs are used; gpu0 is the first of them"]


def test_a_gpu_in_mig_mode_without_slices_is_left_out_with_the_way_out(eight_h100: Running) -> None:
    eight_h100.change(2, mig=1)
    host = described(eight_h100)
    assert [gpu["uuid"] for gpu in host["gpus"]] == H100[:2] + H100[3:]
    assert host["notes"] == [
        "GPU 2 is in MIG mode and has no slice, so nothing can use it: make one (sudo nvidia-smi mig -i 2 -cgi PROFILE -C) "
        "or leave the mode (sudo nvidia-smi -i 2 -mig 0)"
    ]


def test_a_dead_gpu_is_left_out_and_the_others_are_used(eight_h100: Running) -> None:
    eight_h100.change(3, lost=15)
    host = described(eight_h100)
    assert [gpu["uuid"] for gpu in host["gpus"]] == H100[:3] + H100[4:]
    assert host["notes"] == [
        "GPU 3 can't be used: GPU is lost; look for Xid in the kernel log (sudo dmesg); reset the GPU (sudo nvidia-smi "
        "--gpu-reset) or reboot; 7 of 8 GPUs are used; gpu0 is the first of them"
    ]


@pytest.mark.parametrize(
    ("code", "words"),
    [(18, "RM has detected an NVML/RM version mismatch.; the driver was updated while it was loaded: reboot"),
     (4, "Insufficient Permissions; you need read and write access to /dev/nvidia*; ls -l /dev/nvidia* shows the owners"),
     (999, "Unknown Error; try nvidia-smi")],
)  # fmt: skip
def test_a_driver_that_cant_be_used_is_reported_with_the_fix(eight_h100: Running, code: int, words: str) -> None:
    eight_h100.change(-1, init=code)
    host = described(eight_h100)
    assert host["gpus"] == [] and host["notes"][0].endswith(f"GPUs can't be used: NVML says {words}")


def test_what_a_driver_doesnt_support_is_unknown_and_the_rest_is_read(eight_h100: Running) -> None:
    eight_h100.change(0, **{"error.energy": 3, "error.power": 3, "error.fields": 3})
    _, readings = read(eight_h100)
    assert not {"energy_joules", "power_watts", "memory_temperature_celsius"} & readings[H100[0]].keys()
    assert readings[H100[0]]["sm_clock_mhz"] == 1980 and readings[H100[1]]["power_watts"] == 70.0
