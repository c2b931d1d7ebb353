"""Whose GPU it is: the driver, PyTorch, the tool and its sensors name the same one, also behind a mask."""

from pathlib import Path
from typing import Any

import pytest
from cells import CELLS
from gpu_machine import Machine

_BY_TORCH = "import json, torch; print(json.dumps(str(torch.cuda.get_device_properties(0).uuid)))"


def test_driver_pytorch_launch_and_sensors_name_one_gpu(machine: Machine, seen: dict[str, Any]) -> None:
    first = machine.gpus()[0]
    run = machine.run(CELLS["resnet50-fp32"](machine))
    assert run.done.returncode == 0, run.done.stderr
    (launch,) = run.launches
    sensors = {reading["device"] for readings in launch.telemetry for reading in readings.readings} - {"cpu"}
    told = [device["uuid"] for device in run.event("setup")["devices"]]
    seen |= {"driver": first, "torch": machine.asked(_BY_TORCH), "sensors": sorted(sensors), "setup": told}
    assert launch.devices.gpus[0].uuid == first["uuid"]
    assert sensors == {first["uuid"]}
    bare = first["uuid"].removeprefix("GPU-").replace("-", "").lower()
    assert [uuid.removeprefix("GPU-").replace("-", "").lower() for uuid in told] == [bare]
    if machine.is_real or seen["torch"] != "None":
        assert seen["torch"].removeprefix("GPU-").replace("-", "").lower() == bare


def test_a_mask_by_uuid_leaves_the_gpu_and_an_empty_one_leaves_none(machine: Machine, seen: dict[str, Any]) -> None:
    mask = "ROCR_VISIBLE_DEVICES" if machine.accelerator == "rocm" else "CUDA_VISIBLE_DEVICES"
    every = machine.gpus()
    last = every[-1]["uuid"]
    by_uuid = machine.gpus(**{mask: last})
    seen |= {"all": [gpu["uuid"] for gpu in every], "by uuid": [gpu["uuid"] for gpu in by_uuid]}
    assert seen["by uuid"] == [last]
    assert machine.gpus(**{mask: ""}) == []


def test_slices_are_named_by_the_driver_as_pytorch_names_them(machine: Machine, seen: dict[str, Any]) -> None:
    slices = [gpu for gpu in machine.gpus() if gpu.get("slice_of")]
    if not slices:
        pytest.skip("this GPU is not cut into slices")
    seen["slices"] = slices
    seen["torch"] = machine.asked(_BY_TORCH)
    assert any(seen["torch"] in gpu["uuid"] for gpu in slices)


def test_two_ranks_on_one_gpu_are_refused(machine: Machine, seen: dict[str, Any], tmp_path: Path) -> None:
    machine.write_matrix(tmp_path, CELLS["resnet50-amp-bf16"](machine))
    text = (tmp_path / "matrix.toml").read_text(encoding="utf-8").replace("counts = [1]", "counts = []\nlists = [[0, 0]]")
    (tmp_path / "matrix.toml").write_text(text, encoding="utf-8")
    done = machine.command(tmp_path, "run", "--engine", "local")
    seen |= {"exit code": done.returncode, "error": done.stderr[-500:]}
    assert done.returncode == 2 and "[0, 0]" in done.stderr
