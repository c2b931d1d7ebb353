"""Read the host's CPUs and memory: psutil, the kernel's RAPL energy counters and its thermal-throttle counters."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from torchmatrix.core.files import text_of
from torchmatrix.machine.cpu import Quota, quota, throttled, whole_number
from torchmatrix.machine.host import Host
from torchmatrix.machine.intel import open_intel
from torchmatrix.machine.telemetry import Reading, Sensor
from torchmatrix.machine.telemetry.amd import open_amd
from torchmatrix.machine.telemetry.nvidia import open_nvidia

NO_QUOTA = Quota()
_TEMPERATURES = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Drivers of CPU temperature sensors: Intel, AMD, AMD (out of tree), ARM boards."""


def open_cpu(root: Path = Path("/sys"), system: Any = psutil, limits: Quota = NO_QUOTA) -> tuple[Sensor, str | None]:
    """Return the CPU's sensor, and what can't be monitored, with reasons. `root`: where sysfs is; `system`: psutil or its like.

    `limits`: those that hold for the launches.
    """
    packages = _packages(root / "class/powercap")
    counters = tuple(_EnergyCounter(package) for package in packages)
    unreadable = [package for package in packages if whole_number(package / "energy_uj") is None]
    note = None
    if unreadable:
        files = root / "class/powercap/intel-rapl:*/energy_uj"
        note = f"no CPU energy: only root may read {unreadable[0] / 'energy_uj'}; until the next boot: sudo chmod a+r {files}"
    return CpuSensor(system, () if unreadable else counters, _throttle_files(root / "devices/system/cpu"), limits), note


@dataclass(frozen=True, slots=True)
class _Throttle:
    """One logical CPU's counters of thermal events. `package`: the id of its package."""

    package: str
    files: tuple[Path, ...]

    def count(self) -> int:
        """Return the events so far, the core's and the package's; 0 while they can't be read (the CPU is offline)."""
        return sum(whole_number(file) or 0 for file in self.files)


class _EnergyCounter:
    """A RAPL package's energy, in joules, as a counter that only grows.

    The kernel's counter starts again at 0 after max_energy_range_uj: minutes at full power, so never twice between readings.
    """

    def __init__(self, package: Path) -> None:
        self._file = package / "energy_uj"
        self._range = whole_number(package / "max_energy_range_uj") or 0
        self._last = whole_number(self._file) or 0
        self._total = self._last

    def joules(self) -> float | None:
        now = whole_number(self._file)
        if now is None:
            return None
        self._total += now - self._last + (self._range if now < self._last else 0)
        self._last = now
        return self._total / 1e6


class CpuSensor:
    """Reads the CPUs as one device, "cpu". Percentages are of the time since the last reading."""

    def __init__(
        self, system: Any, energy: Sequence[_EnergyCounter], throttles: Sequence[_Throttle], limits: Quota = NO_QUOTA
    ) -> None:
        self._system = system
        self._limits = limits
        self._energy = tuple(energy)
        self._throttles = tuple(throttles)
        self._times: Any = None
        with suppress(Exception):  # as where /proc/stat is empty
            self._times = system.cpu_times()

    def read(self) -> list[Reading]:
        """Return one reading; a key that can't be read is absent."""
        fields: dict[str, Callable[[], Any]] = {
            "temperature_celsius": self._temperature,
            "clock_mhz": self._clock,
            "memory_used_bytes": lambda: self._system.virtual_memory().used,
            "energy_joules": self._joules,
            "throttle_count": self._thermal_events,
        }
        reading: Reading = {"device": "cpu"}
        with suppress(Exception):
            reading.update(self._shares())
        with suppress(Exception):
            reading.update(self._quota_waits())
        for key, ask in fields.items():
            with suppress(Exception):  # sensors come and go; psutil lacks some on some platforms
                value = ask()
                if value is not None:
                    reading[key] = value
        return [reading]

    def close(self) -> None:
        """Return without doing anything: nothing is held."""

    def _shares(self) -> dict[str, float]:
        """Return busy and stolen percent of the time since the last reading; nothing if a counter was set back meanwhile.

        Not psutil.cpu_percent: it remembers per thread, so that its first answer in the watching thread is a meaningless 0.
        """
        before, now = self._times, self._system.cpu_times()
        self._times = now
        if before is None:
            return {}
        # "The value in this field may decrease in certain conditions": proc(5) of iowait.
        spent = {name: getattr(now, name) - getattr(before, name) for name in now._fields}
        if min(spent["user"], spent["system"], spent["idle"]) < 0:
            return {}
        spent = {name: max(0.0, seconds) for name, seconds in spent.items()}
        # The kernel counts guests' time a second time, inside user and nice.
        total = sum(seconds for name, seconds in spent.items() if name not in ("guest", "guest_nice"))
        if total <= 0:
            return {}
        idle = spent["idle"] + spent.get("iowait", 0.0)
        busy = (total - idle) / total
        shares = {"utilization_percent": round(100 * busy, 2), "busy_cpus": round(busy * self._system.cpu_count(), 3)}
        return shares | ({"steal_percent": round(100 * spent["steal"] / total, 2)} if "steal" in spent else {})

    def _quota_waits(self) -> dict[str, float]:
        """Return how the quota of a control group made processes wait."""
        waits = throttled(self._limits)
        return {"quota_periods": waits.periods, "quota_seconds": waits.seconds} if waits else {}

    def _temperature(self) -> float | None:
        """Return the temperature of the hottest package; of Intel's, not the single cores, whose readings jump."""
        sensors = self._system.sensors_temperatures()
        entries = [entry for driver in _TEMPERATURES for entry in sensors.get(driver, ())]
        packages = [entry for entry in entries if entry.label.startswith("Package")] or entries
        return max((entry.current for entry in packages), default=None)

    def _clock(self) -> float | None:
        """Return the mean over all logical CPUs, in MHz."""
        clocks = [frequency.current for frequency in self._system.cpu_freq(percpu=True) if frequency.current]
        return round(sum(clocks) / len(clocks), 1) if clocks else None

    def _joules(self) -> float | None:
        """Add up all packages, or return None: a sum over some of them would mislead."""
        joules = [counter.joules() for counter in self._energy]
        readable = [value for value in joules if value is not None]
        return sum(readable) if readable and len(readable) == len(joules) else None

    def _thermal_events(self) -> int | None:
        """Count thermal events: of each package the highest count among its CPUs (each counts what it was interrupted for)."""
        highest: dict[str, int] = {}
        for throttle in self._throttles:
            highest[throttle.package] = max(highest.get(throttle.package, 0), throttle.count())
        return sum(highest.values()) if highest else None


def _packages(powercap: Path) -> list[Path]:
    """Return RAPL's packages (Intel and AMD): not their parts (intel-rapl:0:1), not psys, not the duplicates in
    intel-rapl-mmio.
    """
    zones = [zone for zone in powercap.glob("intel-rapl:*") if re.fullmatch(r"intel-rapl:\d+", zone.name)]
    return sorted(zone for zone in zones if (text_of(zone / "name") or "").startswith("package"))


def _throttle_files(cpus: Path) -> list[_Throttle]:
    """Return the counters of every logical CPU that has them (Intel's do; AMD's kernel driver has none)."""
    throttles = []
    for cpu in sorted(cpus.glob("cpu[0-9]*")):
        names = ("package_throttle_count", "core_throttle_count")
        files = tuple(file for name in names if (file := cpu / "thermal_throttle" / name).exists())
        if files:
            throttles.append(_Throttle(text_of(cpu / "topology/physical_package_id") or "0", files))
    return throttles


# The sensors of this machine: its GPUs' and its CPU's, opened once per run.

CLOSE_SECONDS = 5.0


@contextmanager
def open_sensors(host: Host) -> Iterator[tuple[tuple[Sensor, ...], tuple[str, ...]]]:
    """Open the sensors for `host`, and describe what can't be monitored; closed on leaving."""
    opened: list[tuple[Sensor | None, str | None]] = [open_cpu(limits=quota())]
    if host.vendor == "nvidia":
        opened.append(open_nvidia([gpu.uuid for gpu in host.gpus]))
    if host.vendor == "amd":
        opened.append(open_amd(host.gpus))
    if host.vendor == "intel":
        opened.append(open_intel(host.gpus))
    sensors: Sequence[Sensor] = [sensor for sensor, _ in opened if sensor]
    try:
        yield tuple(sensors), tuple(note for _, note in opened if note)
    finally:
        for sensor in sensors:
            closing = threading.Thread(target=sensor.close, daemon=True)  # a library that hangs must not block the tool
            closing.start()
            closing.join(timeout=CLOSE_SECONDS)
