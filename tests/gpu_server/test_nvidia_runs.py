"""Whole runs through the command on invented servers with NVIDIA GPUs: plan, devices, telemetry, trouble, report."""

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from invented_servers import uuid
from stand_ins import Running

from support import FAKE_PYTHON
from torchmatrix.analysis import run_summary, watched
from torchmatrix.core import assets

H100 = [uuid(number) for number in range(8)]
SLICES = [uuid(number, "MIG") for number in (10, 11, 13, 14)]
CELL = "stand-in/resnet50-train-fp32-b4-224px"


def skipped(server: Running) -> dict[str, str]:
    """Return the reasons why cells are skipped, by device set."""
    plan = json.loads(server.run("plan", "--json", "--engine", "local").stdout)
    return {skip["id"].rpartition("/")[2]: skip["reason"] for skip in plan["skips"]}


def test_launches_get_the_planned_gpus_by_uuid_in_their_order_below_a_mask(eight_h100: Running) -> None:
    """Here a scheduler left four GPUs: gpu0 is the first of them."""
    eight_h100.matrix("counts = []\nlists = [[3, 1]]")
    done = eight_h100.run("run", "--engine", "local", "--json", CUDA_VISIBLE_DEVICES=f"2,4,{H100[6]},7")
    assert done.returncode == 0, done.stderr
    assert sorted(eight_h100.used) == [H100[7], f"{H100[7]},{H100[4]}"]
    recorded = {launch.devices.label: [gpu.uuid for gpu in launch.devices.gpus] for launch in eight_h100.launches()}
    assert recorded == {"gpu3": [H100[7]], "gpu3+1": [H100[7], H100[4]]}
    assert json.loads(done.stdout)["outcomes"] == {"ok": 2}


def test_a_launch_that_uses_another_gpu_than_planned_has_no_number(eight_h100: Running) -> None:
    eight_h100.matrix("counts = [1]")
    assert eight_h100.run("run", "--engine", "local", FAKE_USES=H100[5]).returncode == 1
    (launch,) = eight_h100.launches()
    assert launch.outcome == "crashed" and H100[5].removeprefix("GPU-") in launch.error
    assert math.isnan(run_summary.launch_rows([launch])[0].throughput)


def test_sets_of_different_models_are_refused_and_those_of_one_model_planned(mixed_rtx: Running) -> None:
    mixed_rtx.matrix("counts = [1, 4]\nlists = [[2, 3]]")
    assert skipped(mixed_rtx) == {
        "gpu0+1+2+3": "mixes GPU models (NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 4090): a scale factor over them is "
        "meaningless"
    }
    output = mixed_rtx.run("plan", "--engine", "local").stderr
    assert "2 x NVIDIA GeForce RTX 4090, 2 x NVIDIA GeForce RTX 3090, driver 570.133.20" in output
    mixed_rtx.matrix("counts = [1, 4]\nlists = [[2, 3]]\nmixed = true")
    assert skipped(mixed_rtx) == {}


@pytest.mark.thorough
def test_two_gpu_models_in_one_server_are_measured_apart_and_compared(mixed_rtx: Running) -> None:
    mixed_rtx.matrix("counts = [1]\nlists = [[0, 1], [2, 3]]\neach = true", launches=2)
    done = mixed_rtx.run("run", "--engine", "local", "--json")
    assert json.loads(done.stdout)["outcomes"] == {"ok": 12}
    rates = {cell["id"].rpartition("/")[2]: cell["throughput"] for cell in json.loads(done.stdout)["cells"]}
    alone = dict.fromkeys(("gpu0", "gpu1", "gpu2", "gpu3"), 10_000.0)
    assert rates == pytest.approx({**alone, "gpu0+1": 15_000.0, "gpu2+3": 15_000.0})
    words = mixed_rtx.report()
    assert "ResNet-50: GeForce RTX 4090 is highest; no difference shown from GeForce RTX 3090" in words
    assert "GPUs do 1.50× the work of one" in words
    for name in ("GeForce RTX 4090", "GeForce RTX 3090"):
        assert f"{name} 75.0 % ± 0.0" in words, "the efficiency of each says whose it is"
    assert "Each additional device adds s of one device" in words


def test_sets_with_a_slice_among_several_gpus_are_refused(sliced_a100: Running) -> None:
    sliced_a100.matrix("counts = [1, 2]\neach = true")
    assert skipped(sliced_a100) == {
        "gpu0+1": "has a MIG slice among several GPUs: slices can't reach each other's memory, and NCCL doesn't join them"
    }


@pytest.mark.thorough
def test_slices_are_measured_one_by_one(sliced_a100: Running) -> None:
    sliced_a100.matrix("counts = [1]\neach = true")
    assert sliced_a100.run("run", "--engine", "local").returncode == 0
    assert Counter(sliced_a100.used) == Counter([*SLICES, uuid(1)])
    energy = [watched.summarize(launch).energy_problem for launch in sliced_a100.launches() if launch.devices.label == "gpu0"]
    assert energy == ["no energy counter can be read"]
    assert (
        "PyTorch on 1 × NVIDIA A100-SXM4-80GB, 2 × NVIDIA A100-SXM4-80GB MIG 1g.10gb, 1 × NVIDIA A100-SXM4-80GB MIG 2g.20gb, "
        "1 × NVIDIA A100-SXM4-80GB MIG 3g.40gb" in sliced_a100.report()
    )


def test_a_driver_that_was_updated_is_named_by_doctor_and_plan(eight_h100: Running) -> None:
    eight_h100.change(-1, init=18)
    eight_h100.matrix("counts = [1]")
    doctor = eight_h100.run("doctor", "--engine", "local")
    assert "NVML/RM version mismatch.; the driver was updated while it was loaded: reboot" in doctor.stdout + doctor.stderr
    done = eight_h100.run("run", "--engine", "local")
    assert done.returncode == 3 and "needs an NVIDIA GPU; this machine has no GPU" in done.stderr


@pytest.mark.thorough
@pytest.mark.sweep
def test_trouble_during_a_run_is_reported_and_the_rest_is_measured(eight_h100: Running, somebody: int) -> None:
    """gpu0 gets hot in its first launch, somebody uses gpu1 during its first launch, gpu2 dies in the second round."""
    eight_h100.matrix("lists = [[0], [1], [2, 3]]\ncounts = []", launches=2)
    eight_h100.change(0, when="measure", part=H100[0], reasons=0x40, temperature=91)
    eight_h100.change(0, when="exit", part=H100[0], reasons=0, temperature=60)
    eight_h100.change(1, when="measure", part=H100[1], processes=somebody)
    eight_h100.change(1, when="exit", part=H100[1], processes=0)
    eight_h100.change(2, when="measure", part=H100[2], count=5, lost=15)  # two launches of two windows before
    done = eight_h100.run("run", "--engine", "local", "--json", FAKE_SECONDS="1.5", FAKE_DIES=f"5 {H100[2]}")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"ok": 6, "crashed": 2}
    launches = eight_h100.launches()
    hot = [watched.summarize(launch).throttled for launch in launches if launch.devices.label == "gpu0"]
    assert hot == [True, False, False], "the first try is repeated, and kept"
    foreign = [watched.summarize(launch).foreign for launch in launches if launch.devices.label == "gpu1"]
    assert [len(processes) for processes in foreign] == [1, 0] and foreign[0][0].startswith(f"process {somebody} (sleep, user ")
    died, left_out = (launch for launch in launches if launch.outcome == "crashed")
    assert died.error == "RuntimeError: CUDA error: unspecified launch failure"
    assert left_out.error and left_out.error.startswith(f"gpu2 ({H100[2]}) is lost, so nothing was launched: GPU is lost; look")
    assert {died.devices.label, left_out.devices.label} == {"gpu2", "gpu2+3"} and died.round == left_out.round == 2
    words = eight_h100.report()
    assert f"gpu2 ({H100[2]}) is lost, so nothing was launched" in words
    assert "1 launch was measured again because heat or hardware had slowed the devices down" in words
    assert f"others used the devices during the launch: process {somebody} (sleep" in eight_h100.page


@pytest.mark.thorough
def test_a_gpu_that_somebody_uses_is_refused_and_the_same_command_continues(eight_h100: Running, somebody: int) -> None:
    eight_h100.matrix("counts = [1]\nlists = [[7]]")
    eight_h100.change(7, processes=somebody)
    refused = eight_h100.run("run", "--engine", "local")
    assert refused.returncode == 4 and f"the GPU is busy: process {somebody} (sleep, user " in refused.stderr
    assert f"on {H100[7]}" in refused.stderr and "torchmatrix ends nobody's process" in refused.stderr
    eight_h100.change(7, processes=0)
    assert eight_h100.run("run", "--engine", "local").returncode == 0
    assert sorted(eight_h100.used) == [H100[0], H100[7]]


@pytest.mark.thorough
@pytest.mark.sweep
def test_energy_per_item_of_two_gpus_is_that_of_their_counters(eight_h100: Running) -> None:
    """2 GPUs x 600 W x 2 windows of 10.5 s = 25,200 J for 80 images."""
    eight_h100.matrix("lists = [[0, 1]]\ncounts = []")
    for number in (0, 1):
        eight_h100.change(number, power=600)
    assert eight_h100.run("run", "*gpu0+1", "--engine", "local", FAKE_SECONDS="10.5").returncode == 0
    (launch,) = [launch for launch in eight_h100.launches() if launch.devices.label == "gpu0+1"]
    row = run_summary.launch_rows([launch])[0]
    assert row.value("energy_problem") is None and row.power_watts == 1200.0
    assert row.energy_per_item == pytest.approx(315.0, rel=0.05)


@pytest.mark.thorough
def test_the_default_matrix_runs_whole_on_eight_h100(eight_h100: Running) -> None:
    """Two stand-ins are its stacks: ResNet-50 on 1, 2, 4 and 8 GPUs, on the newest BERT, too."""
    whole, _, _ = assets.DEFAULT_MATRIX.read_text().partition("\n# --- What runs on a CPU")
    _, _, workloads = whole.replace(', "nvidia-*", "*rocm*"', "").partition("\n[[workload]]")
    stacks = [
        f'[[stack]]\nname = "{name}"\npython = "{FAKE_PYTHON}"\naccelerator = "cuda"\n'
        for name in ("torch2.5.1-old", "torch2.15.0-new")
    ]
    text = f"[gpus]\ncounts = [1, 2, 4, 8]\n{''.join(stacks)}\n[[workload]]{workloads}"
    (eight_h100.folder / "matrix.toml").write_text(text)
    done = eight_h100.run("run", "--fast", "--engine", "local", "--json", FAKE_LARGEST_BATCH="256")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"ok": 15}
    assert Counter(used.count("GPU-") for used in eight_h100.used) == {1: 6, 2: 3, 4: 3, 8: 3}
    assert set(eight_h100.used) == {",".join(H100[:count]) for count in (1, 2, 4, 8)}
    assert Path(eight_h100.folder / "reports/index.html").exists()
    assert "8 × NVIDIA H100 80GB HBM3" in eight_h100.report()


def test_a_limit_that_somebody_sets_between_two_launches_is_read_and_keeps_them_apart(eight_h100: Running) -> None:
    """The header of each launch has what was set then, not what was found when the run began."""
    eight_h100.matrix("counts = [1]", launches=3)
    eight_h100.change(0, when="exit", count=2, power_limit=500)
    done = eight_h100.run("run", "--engine", "local", "--json")
    assert done.returncode == 0, done.stderr
    assert [launch.devices.gpus[0].facts["power_limit_watts"] for launch in eight_h100.launches()] == [700.0, 700.0, 500.0]
    record = json.loads(done.stdout)
    assert record["outcomes"] == {"ok": 2, "unlike": 1}
    (cell,) = record["cells"]
    assert (cell["n"], cell["failed"], cell["left_out"]) == (2, 0, 1)
    assert cell["reason"] == "left out: power limit 500 W, the others 700 W"
    assert "1 of 3 launches, which are unlike the others: power limit 500 W, the others 700 W" in eight_h100.page
