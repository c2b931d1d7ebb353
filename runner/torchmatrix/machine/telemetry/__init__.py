"""Watch the devices from the host while a launch runs: one thread, one persistent handle per library, about 1 Hz.

`Sensor` is the interface; nvidia.py, amd.py and cpu.py implement it. A reading holds what could be read and nothing else: a key
that is absent is unknown, never 0.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

Reading = dict[str, Any]
"""One device at one moment. `device` (the GPU's UUID, or "cpu") is always there. The other keys, each absent if unknown:

temperature_celsius, memory_temperature_celsius, sm_clock_mhz, memory_clock_mhz, clock_mhz (of a CPU), pcie_generation (of the
link as it is now), power_watts, power_limit_watts, utilization_percent, busy_cpus (how many logical CPUs' worth of work),
steal_percent (what a hypervisor took from a CPU), memory_used_bytes, energy_joules (a counter that only grows), ecc_uncorrected
and ecc_corrected (counters), throttle_count (a counter of thermal events), quota_periods and quota_seconds (counters: how often
and how long the quota of our control group made processes wait for CPUs), reasons (a list of words: why the clock is below its
maximum), processes (a list of process ids that use the device, as the host sees them), error (why it could not be read).
"""

SLOWDOWNS = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"})
"""The reasons that spoil a measurement. A power cap (sw_power_cap) is normal in dense training: its share is recorded."""


WHOLE_GPU_KEYS = ("power_watts", "power_limit_watts", "energy_joules", "utilization_percent")
"""The readings of a whole GPU: they say nothing about one of its parts, beside which others are in use."""

UNWATCHED = "unseen: temperature, clocks, power and other programs"
"""What is unknown of a device that can't be read; the reason follows. Whether others use it was not checked, either."""


class Sensor(Protocol):
    """Reads some devices of one kind through one persistent handle."""

    def read(self) -> list[Reading]:
        """Return one reading per device; never raises: the reading's `error` says what went wrong."""
        ...

    def close(self) -> None:
        """Give the handle back; never raises."""
        ...


class Watcher:
    """Reads all sensors every `seconds` from a thread of its own and hands the readings to `tell`, inside a `with` block.

    It reads once more on leaving, so that the last window lies between two readings. A library that hangs (a GPU that fell
    off the bus) delays the end by `patience_seconds` at most.
    """

    def __init__(
        self,
        sensors: Sequence[Sensor],
        tell: Callable[[list[Reading]], None],
        seconds: float = 1.0,
        patience_seconds: float = 5.0,
    ) -> None:
        self._sensors = tuple(sensors)
        self._tell = tell
        self._seconds = seconds
        self._patience_seconds = patience_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="telemetry")

    def __enter__(self) -> "Watcher":
        if self._sensors:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._sensors:
            self._thread.join(timeout=self._patience_seconds)

    def _watch(self) -> None:
        due = time.monotonic()
        while True:
            last = self._over.is_set()
            with suppress(Exception):  # the file may just have been closed, or its disk be full: the launch says so itself
                self._tell(read_all(self._sensors))
            if last:
                return
            due = max(due + self._seconds, time.monotonic())
            self._over.wait(due - time.monotonic())


def read_within(sensors: Sequence[Sensor], seconds: float) -> list[Reading] | None:
    """Return the readings of all devices, or None if a library did not answer in time."""
    results: list[list[Reading]] = []
    thread = threading.Thread(target=lambda: results.append(read_all(sensors)), daemon=True, name="telemetry-once")
    thread.start()
    thread.join(timeout=seconds)
    return results[0] if results else None


def read_all(sensors: Sequence[Sensor]) -> list[Reading]:
    """Return the readings of all devices, now."""
    return [reading for sensor in sensors for reading in sensor.read()]
