"""Telemetry of launches over time: temperature, clock, power, slow-downs, with the timed windows."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchmatrix.analysis.watched import Watched, edges, series_of, summarize
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.wire import Facts
from torchmatrix.machine.telemetry import SLOWDOWNS

MOST_READINGS = 360
"""The most readings in one trace, of all devices together; of more, every k-th of each device is kept."""
MOST_IN_ALL = 16_000
"""The most readings in all traces of a page together, so that a page of thousands of cells stays small."""
LEAST_READINGS = 12
"""The fewest readings in one trace, however many traces there are."""
LEAST_OF_DEVICE = 4
"""If each device can't keep this many, a trace keeps the device that was slowed down, or was hottest, and counts the others."""
QUANTITIES = {
    "temperature_celsius": "temperature in °C",
    "clock_mhz": "clock in MHz",
    "power_watts": "power in W",
    "busy_cpus": "busy CPUs",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    """Readings of one device, such as gpu0: `values` by name of QUANTITIES at each of `seconds`; None is unknown."""

    device: str
    seconds: tuple[float, ...]
    values: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """One launch over time. All times are in seconds since the launch began, on the monotonic clock.

    `readings`: every `every`-th of each device. `more_devices`: how many others are left out; `picked`: why this one was not
    ("slowed": down, "hottest", or "first" if no temperature is known; "" if none is left out). `windows`: begin and end of each
    timed window. `slowdowns`: begin, end and reason of each spell in which all readings of a device, none left out, say that
    it was slowed down.
    """

    cell: str
    round: int
    readings: tuple[Readings, ...]
    more_devices: int
    picked: str
    every: int
    windows: tuple[tuple[float, float], ...]
    slowdowns: tuple[tuple[float, float, str], ...]
    seen: Watched


@dataclass(frozen=True, kw_only=True, slots=True)
class Whole:
    """A complete trace; `slowed`: the devices that were slowed down."""

    trace: Trace
    slowed: frozenset[str]


def whole_of(launches: Iterable[Launch]) -> dict[str, Whole]:
    """Return for each cell the trace of its last ok launch with readings, in the order of the cells."""
    last = {launch.cell: launch for launch in launches if _is_watched(launch)}
    return {cell: _whole(launch) for cell, launch in last.items()}


def shortened(traces: Collection[Whole]) -> list[Trace]:
    """Shorten the traces of a page: together they have some MOST_IN_ALL readings."""
    most = min(MOST_READINGS, max(LEAST_READINGS, MOST_IN_ALL // max(1, len(traces))))
    return [_shortened(trace, most) for trace in traces]


def _is_watched(launch: Launch) -> bool:
    ddp = launch.makes_figures
    if not ddp or launch.monotonic_seconds is None or not launch.is_ok or not edges(launch):
        return False
    names = _names(launch)
    return any(
        reading["device"] in names and reading.keys() & _KEYS for sample in launch.telemetry for reading in sample.readings
    )


_KEYS = frozenset({*QUANTITIES, "sm_clock_mhz", "energy_joules"})


def _whole(launch: Launch) -> Whole:
    begin, names = launch.monotonic_seconds or 0.0, _names(launch)
    devices = zip(names.values(), series_of(launch, list(names)), strict=True)
    series = {name: [(at - begin, reading) for at, reading in device.points] for name, device in devices}
    spells = {name: _spells(points) for name, points in series.items()}
    trace = Trace(
        cell=launch.cell,
        round=launch.round,
        readings=tuple(_readings(name, points) for name, points in series.items() if points),
        more_devices=0,
        picked="",
        every=1,
        windows=tuple((start - begin, stop - begin) for start, stop in edges(launch)),
        slowdowns=tuple(sorted(spell for of_device in spells.values() for spell in of_device)),
        seen=summarize(launch),
    )
    return Whole(trace=trace, slowed=frozenset(name for name, of_device in spells.items() if of_device))


def _shortened(whole: Whole, most: int) -> Trace:
    all_devices, picked = whole.trace.readings, ""
    kept = all_devices
    if len(all_devices) * LEAST_OF_DEVICE > most:
        worth = {device.device: (device.device in whole.slowed, _hottest_celsius(device)) for device in all_devices}
        kept = (max(all_devices, key=lambda device: worth[device.device]),)
        slowed, celsius = worth[kept[0].device]
        picked = "" if len(all_devices) == 1 else "slowed" if slowed else "hottest" if celsius else "first"
    step = max(1, math.ceil(sum(len(device.seconds) for device in kept) / most))
    readings = tuple(_every(step, device) for device in kept)
    return replace(whole.trace, readings=readings, more_devices=len(all_devices) - len(kept), picked=picked, every=step)


def _every(step: int, readings: Readings) -> Readings:
    """Keep every k-th reading; values that are unknown in all of them are left out."""
    values = {name: column[::step] for name, column in readings.values.items()}
    columns = {name: column for name, column in values.items() if any(value is not None for value in column)}
    return Readings(device=readings.device, seconds=readings.seconds[::step], values=columns)


def _hottest_celsius(readings: Readings) -> float:
    return max((value or 0.0 for value in readings.values.get("temperature_celsius", ())), default=0.0)


def _names(launch: Launch) -> dict[str | None, str]:
    """Return the cell's names of devices by those of the readings; on a CPU it is the CPU."""
    devices = launch.devices
    named = {gpu.uuid: name for name, gpu in zip(devices.names, devices.gpus, strict=False)} or {"cpu": "cpu"}
    return {device: name for device, name in named.items() if device not in launch.ambiguous_devices}


def _readings(name: str, points: Sequence[tuple[float, Facts]]) -> Readings:
    """Return the readings of a device; unknown power is the mean since the previous reading, from the energy counter."""
    rows: list[Facts] = []
    before: tuple[float, float] | None = None
    for seconds, reading in points:
        row = {key: reading.get(key) for key in QUANTITIES}
        row["clock_mhz"] = reading.get("sm_clock_mhz", reading.get("clock_mhz"))
        joules = reading.get("energy_joules")
        if row["power_watts"] is None and joules is not None and before and seconds > before[0] and joules >= before[1]:
            row["power_watts"] = (joules - before[1]) / (seconds - before[0])
        before = (seconds, joules) if joules is not None else before
        rows.append(row)
    values = {key: tuple(row[key] for row in rows) for key in QUANTITIES}
    return Readings(device=name, seconds=tuple(seconds for seconds, _ in points), values=values)


def _spells(points: Sequence[tuple[float, Facts]]) -> list[tuple[float, float, str]]:
    """Return spells from the first to the last of successive readings with the same reasons for a slow-down."""
    spells: list[tuple[float, float, str]] = []
    previous = ""
    for seconds, reading in points:
        reasons = ", ".join(sorted(SLOWDOWNS & set(reading.get("reasons") or ())))
        if reasons and reasons == previous:
            spells[-1] = (spells[-1][0], seconds, reasons)
        elif reasons:
            spells.append((seconds, seconds, reasons))
        previous = reasons
    return spells
