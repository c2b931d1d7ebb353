"""Readings that are told of the devices while a launch runs."""

from types import SimpleNamespace
from typing import Any

import pytest

from torchmatrix.engines.docker import DockerEngine
from torchmatrix.engines.local import LocalEngine
from torchmatrix.planning.plan import GpuSet
from torchmatrix.running.launch_cell import DeviceReadings


@pytest.mark.parametrize(("engine", "kept"), [(LocalEngine, True), (DockerEngine, False)])
def test_what_a_quota_made_this_process_wait_is_told_only_of_launches_below_it(engine: Any, kept: bool) -> None:
    readings: list[Any] = []
    job: Any = SimpleNamespace(engine_for=lambda stack: engine)
    cell: Any = SimpleNamespace(stack=None, gpus=GpuSet(indices=(0,), vendor="cpu", cpus=("0",)))
    execution: Any = SimpleNamespace(owns=lambda pid: False)
    reading = {"device": "cpu", "busy_cpus": 1.0, "quota_periods": 3, "quota_seconds": 0.5}
    DeviceReadings(execution, readings.extend, job, cell)([reading, {"device": "GPU-of-another-launch"}])
    assert readings == [reading if kept else {"device": "cpu", "busy_cpus": 1.0}]
