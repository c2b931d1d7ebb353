"""An invented server with AMD GPUs: AMD's Python module loads the tests' library, in a separate /sys and /dev."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invented_servers import EIGHT_MI300X, amd_uuid
from stand_ins import RENDER_GROUP, Running, start

from torchmatrix.analysis import run_summary, watched

MI300X = [amd_uuid(number) for number in range(8)]
SEE = "import json; from torchmatrix.machine.host import detect; print(json.dumps(detect().as_record()))"
READ = """
import json
from torchmatrix.machine.host import detect
from torchmatrix.machine.telemetry.amd import open_amd
sensor, note = open_amd(detect().gpus)
sensor.read()
print(json.dumps([note, sensor.read()]))
"""


def read(server: Running) -> dict[str, dict[str, Any]]:
    note, readings = json.loads(server.python(READ))
    assert note is None
    return {reading["device"]: reading for reading in readings}


def test_eight_mi300x_are_described(eight_mi300x: Running) -> None:
    host = json.loads(eight_mi300x.python(SEE))
    assert (host["vendor"], host["driver"], host["notes"]) == ("amd", "6.12.12", [])
    assert [gpu["uuid"] for gpu in host["gpus"]] == MI300X
    assert host["links"][0] == ["X"] + 7 * ["XGMI"] and host["p2p"][7] == 7 * ["ok"] + ["X"]
    expected = {"name": "AMD Instinct MI300X", "capability": "gfx942", "memory_bytes": 206141652992, "numa_node": 1,
                "render_node": "/dev/dri/renderD168", "groups": [RENDER_GROUP], "pcie": "gen5 x16 (max gen5 x16)"}  # fmt: skip
    assert expected.items() <= host["gpus"][5].items()


def test_idle_mi300x_can_be_read_and_what_one_lacks_is_unknown(eight_mi300x: Running) -> None:
    eight_mi300x.change(6, **{"error.energy": 2, "error.cap": 2})
    readings = read(eight_mi300x)
    energy = readings[MI300X[3]].pop("energy_joules")
    assert energy == pytest.approx(1e6, rel=1e-3)
    assert readings[MI300X[3]] == {
        "device": MI300X[3], "temperature_celsius": 38, "memory_temperature_celsius": 41, "sm_clock_mhz": 2100.0,
        "memory_clock_mhz": 1300, "power_watts": 130, "power_limit_watts": 750.0, "utilization_percent": 0,
        "memory_used_bytes": 296747008, "ecc_uncorrected": 0, "ecc_corrected": 3, "reasons": [], "processes": [],
    }  # fmt: skip
    assert not {"energy_joules", "power_limit_watts"} & readings[MI300X[6]].keys()


def test_gpus_of_a_virtual_machine_without_unique_ids_each_have_their_own_readings(tmp_path: Path, somebody: int) -> None:
    cards = {number: {**EIGHT_MI300X.devices[number], "uuid": "GPU-0000000000000000"} for number in (0, 1)}
    server = start(replace(EIGHT_MI300X, devices=cards), tmp_path / "server")
    server.change(0, power=300, processes=somebody)
    server.change(1, power=430, temperature=71)
    first, second = (f"PCI-{cards[number]['pci']}" for number in (0, 1))
    assert [gpu["uuid"] for gpu in json.loads(server.python(SEE))["gpus"]] == [first, second]
    values = {gpu: (r["power_watts"], r["temperature_celsius"], r["processes"]) for gpu, r in read(server).items()}
    assert values == {first: (300, 38, [somebody]), second: (430, 71, [])}


@pytest.mark.thorough
def test_a_whole_run_on_mi300x(eight_mi300x: Running, somebody: int) -> None:
    """gpu0 gets hot in its first launch, somebody uses gpu4 during its launch, gpu2 dies in the second round."""
    eight_mi300x.matrix("lists = [[0], [4], [3, 2]]\ncounts = []", launches=2, accelerator="rocm")
    eight_mi300x.change(0, when="measure", part="gpu0", hot=1)
    eight_mi300x.change(0, when="exit", part="gpu0", hot=0)
    eight_mi300x.change(4, when="measure", part="gpu4", processes=somebody)
    eight_mi300x.change(4, when="exit", part="gpu4", processes=0)
    eight_mi300x.change(2, when="measure", part="gpu2", count=3, lost=39)  # one launch of two windows before
    done = eight_mi300x.run("run", "--engine", "local", "--json", FAKE_SECONDS="2.2", FAKE_DIES="3 gpu2")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"ok": 7, "crashed": 1}
    assert Counter(eight_mi300x.used) == {"gpu0": 3, "gpu4": 2, "gpu3": 2, "gpu3,gpu2": 2}
    launches = eight_mi300x.launches()
    assert [watched.summarize(launch).throttled for launch in launches if launch.devices.label == "gpu0"] == [
        True,
        False,
        False,
    ]
    foreign = [watched.summarize(launch).foreign for launch in launches if launch.devices.label == "gpu4"]
    assert [len(processes) for processes in foreign] == [1, 0] and foreign[0][0].startswith(f"process {somebody} (sleep")
    (died,) = (launch for launch in launches if launch.outcome == "crashed")
    assert died.devices.label == "gpu3+2" and "Seen from the host during the launch" in eight_mi300x.report()
    assert "PyTorch on 8 × AMD Instinct MI300X" in eight_mi300x.report()


@pytest.mark.thorough
@pytest.mark.sweep
def test_energy_per_item_of_two_mi300x_is_that_of_their_counters(eight_mi300x: Running) -> None:
    """2 GPUs x 650 W x 2 windows of 10.5 s = 27,300 J for 80 images."""
    eight_mi300x.matrix("lists = [[0, 1]]\ncounts = []", accelerator="rocm")
    for number in (0, 1):
        eight_mi300x.change(number, power=650)
    assert eight_mi300x.run("run", "*gpu0+1", "--engine", "local", FAKE_SECONDS="10.5").returncode == 0
    (launch,) = [launch for launch in eight_mi300x.launches() if launch.devices.label == "gpu0+1"]
    row = run_summary.launch_rows([launch])[0]
    assert row.value("energy_problem") is None and row.power_watts == 1300.0
    assert row.energy_per_item == pytest.approx(341.25, rel=0.05)
