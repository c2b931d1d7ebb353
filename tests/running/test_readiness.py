"""Before a launch: devices that are busy or hot, with sensors that say what the test wants."""

import os
from collections.abc import Generator

import pytest

from torchmatrix.core.errors import EngineUnusable, ExitCode
from torchmatrix.machine.telemetry import Reading
from torchmatrix.matrix.method import METHODS, Method
from torchmatrix.running import readiness
from torchmatrix.running.readiness import Ready


class Script:
    """A sensor that gives one prepared reading after the other, and the last one for ever."""

    def __init__(self, *readings: Reading) -> None:
        self._readings = list(readings)

    def read(self) -> list[Reading]:
        return [self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]]

    def close(self) -> None:
        pass


def outcome(waiting: Generator[str, None, Ready]) -> tuple[list[str], Ready]:
    lines = []
    while True:
        try:
            lines.append(next(waiting))
        except StopIteration as over:
            return lines, over.value


def test_a_free_and_cool_gpu_is_ready_at_once() -> None:
    lines, ready = outcome(readiness.wait([Script({"device": "GPU-0", "temperature_celsius": 41})], ["GPU-0"], Method()))
    assert lines == [] and ready.temperature_celsius == 41 and not ready.too_warm


def test_the_cold_method_waits_until_the_hottest_gpu_is_below_its_limit() -> None:
    hot, cool = {"device": "GPU-0", "temperature_celsius": 61}, {"device": "GPU-0", "temperature_celsius": 49}
    lines, ready = outcome(readiness.wait([Script(hot, hot, cool)], ["GPU-0"], METHODS["aime"], poll_seconds=0.01))
    assert lines == ["cooling down: 61 °C, wanted below 50 °C"] * 2 and ready.temperature_celsius == 49 and not ready.too_warm


def test_a_gpu_that_stays_hot_is_measured_after_the_time_out_and_marked() -> None:
    method = Method(name="cold", start_below_celsius=50, cool_down_seconds=0.05)
    lines, ready = outcome(
        readiness.wait([Script({"device": "GPU-0", "temperature_celsius": 61})], ["GPU-0"], method, poll_seconds=0.01)
    )
    assert lines and ready.too_warm and ready.waited_seconds >= 0.05


def test_a_busy_gpu_is_refused_with_the_process_named_and_nobody_is_ended() -> None:
    sensor = Script({"device": "GPU-0", "processes": [os.getpid()]})
    with pytest.raises(EngineUnusable) as refusal:
        outcome(readiness.wait([sensor], ["GPU-0"], Method(), patience_seconds=0))
    assert f"process {os.getpid()} (" in str(refusal.value) and "user" in str(refusal.value)
    assert refusal.value.exit_code == ExitCode.ENGINE_UNUSABLE and "wait for it" in refusal.value.hint


def test_a_process_that_is_just_ending_is_waited_for() -> None:
    sensor = Script({"device": "GPU-0", "processes": [os.getpid()]}, {"device": "GPU-0"})
    lines, _ = outcome(readiness.wait([sensor], ["GPU-0"], Method(), poll_seconds=0.01))
    assert len(lines) == 1 and lines[0].startswith("waiting for process")


def test_what_others_do_on_gpus_of_other_cells_does_not_matter() -> None:
    sensors = [Script({"device": "GPU-7", "processes": [os.getpid()]}), Script({"device": "GPU-0"})]
    assert outcome(readiness.wait(sensors, ["GPU-0"], Method(), patience_seconds=0))[0] == []


def test_a_hot_cpu_does_not_keep_a_cool_gpu_waiting() -> None:
    sensors = [Script({"device": "cpu", "temperature_celsius": 70}), Script({"device": "GPU-0", "temperature_celsius": 30})]
    lines, ready = outcome(readiness.wait(sensors, ["cpu", "GPU-0"], METHODS["cold"]))
    assert lines == [] and ready.temperature_celsius == 30


class Late(Script):
    """A sensor that has nothing to say at first, as amd-smi's, which is asked every five seconds."""

    def read(self) -> list[Reading]:
        if len(self._readings) > 1:
            self._readings.pop(0)
            return []
        return super().read()


def test_a_gpu_that_has_not_been_read_yet_is_waited_for() -> None:
    sensor = Late({"device": "GPU-0"}, {"device": "GPU-0"}, {"device": "GPU-0", "temperature_celsius": 44})
    lines, ready = outcome(readiness.wait([sensor], ["GPU-0"], METHODS["cold"], poll_seconds=0.01))
    assert lines == ["waiting for the first reading"] * 2 and ready.temperature_celsius == 44


def test_a_process_that_is_not_visible_from_here_is_still_named_by_its_id() -> None:
    assert readiness.describe(2**22 + 1) == f"process {2**22 + 1} (a program not visible from here, user unknown)"


def test_a_gpu_that_cant_be_read_twice_is_lost_and_once_is_chance() -> None:
    dead, well = {"device": "GPU-0", "error": "GPU is lost"}, {"device": "GPU-0", "temperature_celsius": 44}
    assert readiness.lost([Script(dead)], ["GPU-0"], poll_seconds=0.01) == ("GPU-0", "GPU is lost")
    assert readiness.lost([Script(dead, well)], ["GPU-0"], poll_seconds=0.01) is None
    assert readiness.lost([Script(dead)], ["GPU-1"], poll_seconds=0.01) is None and readiness.lost([], ["GPU-0"]) is None
