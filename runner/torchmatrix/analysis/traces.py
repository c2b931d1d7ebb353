"""Launches -> what was read of their devices over time: temperature, clock, power, slow-downs, beside the timed windows."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from torchmatrix.analysis.watched import Watched, edges, summarize
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.parts import Facts
from torchmatrix.machine.telemetry import SLOWDOWNS

MOST_READINGS = 360
"""In one trace, of all devices together; of more, every k-th of each device is kept."""
QUANTITIES = {
    "temperature_celsius": "temperature in °C",
    "clock_mhz": "clock in MHz",
    "power_watts": "power in W",
    "busy_cpus": "busy CPUs",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """One launch over time. All times are in seconds since the launch began, on the monotonic clock.

    `readings`: columns `seconds`, `device` (such as gpu0) and those of QUANTITIES that are known; every `every`-th reading of
    each device. `windows`: begin and end of each timed window. `slowdowns`: begin, end and reason of each spell in which all
    readings of a device, none left out, say that it was slowed down.
    """

    cell: str
    round: int
    readings: pd.DataFrame
    every: int
    windows: tuple[tuple[float, float], ...]
    slowdowns: tuple[tuple[float, float, str], ...]
    seen: Watched


def traces(launches: Iterable[Launch], most: int) -> tuple[tuple[Trace, ...], int]:
    """The last ok launch with readings of each cell, those that were slowed down first; at most `most`, and how many more."""
    last = {launch.cell: launch for launch in launches if _is_watched(launch)}
    chosen = sorted(last.values(), key=lambda launch: not _slow(launch))[:most]
    return tuple(_trace(launch) for launch in chosen), len(last) - len(chosen)


def _is_watched(launch: Launch) -> bool:
    ddp = launch.workload.parallel == "ddp"
    if not ddp or launch.monotonic_seconds is None or launch.outcome != "ok" or not edges(launch):
        return False
    own = _names(launch)
    return any(r["device"] in own and r.keys() & _KEYS for told in launch.telemetry for r in told.readings)


_KEYS = frozenset({*QUANTITIES, "sm_clock_mhz", "energy_joules"})


def _slow(launch: Launch) -> bool:
    return any(SLOWDOWNS & set(r.get("reasons") or ()) for told in launch.telemetry for r in told.readings)


def _trace(launch: Launch) -> Trace:
    begin, names = launch.monotonic_seconds or 0.0, _names(launch)
    series: dict[str, list[tuple[float, Facts]]] = {name: [] for name in names.values()}
    for told in sorted(launch.telemetry, key=lambda told: told.monotonic_seconds):
        for reading in told.readings:
            if reading["device"] in names:
                series[names[reading["device"]]].append((told.monotonic_seconds - begin, reading))
    every = max(1, math.ceil(sum(map(len, series.values())) / MOST_READINGS))
    rows = [row for name, points in series.items() for row in _rows(name, points)[::every]]
    return Trace(
        cell=launch.cell,
        round=launch.round,
        readings=pd.DataFrame(rows, columns=["seconds", "device", *QUANTITIES]).dropna(axis="columns", how="all"),
        every=every,
        windows=tuple((start - begin, stop - begin) for start, stop in edges(launch)),
        slowdowns=tuple(sorted(spell for points in series.values() for spell in _spells(points))),
        seen=summarize(launch),
    )


def _names(launch: Launch) -> dict[str | None, str]:
    """Devices as the readings call them -> as the cell does; on a CPU it is the CPU."""
    devices = launch.devices
    return {gpu.uuid: name for name, gpu in zip(devices.names, devices.gpus, strict=False)} or {"cpu": "cpu"}


def _rows(name: str, points: Sequence[tuple[float, Facts]]) -> list[dict[str, Any]]:
    """One device's readings. Where no power can be read, it is the mean since the reading before, from the energy counter."""
    rows = []
    before: tuple[float, float] | None = None
    for seconds, reading in points:
        row = {key: reading.get(key) for key in QUANTITIES} | {"seconds": seconds, "device": name}
        row["clock_mhz"] = reading.get("sm_clock_mhz", reading.get("clock_mhz"))
        joules = reading.get("energy_joules")
        if row["power_watts"] is None and joules is not None and before and seconds > before[0] and joules >= before[1]:
            row["power_watts"] = (joules - before[1]) / (seconds - before[0])
        before = (seconds, joules) if joules is not None else before
        rows.append(row)
    return rows


def _spells(points: Sequence[tuple[float, Facts]]) -> list[tuple[float, float, str]]:
    """From the first to the last of successive readings with the same reasons for a slow-down."""
    found: list[tuple[float, float, str]] = []
    previous = ""
    for seconds, reading in points:
        reasons = ", ".join(sorted(SLOWDOWNS & set(reading.get("reasons") or ())))
        if reasons and reasons == previous:
            found[-1] = (found[-1][0], seconds, reasons)
        elif reasons:
            found.append((seconds, seconds, reasons))
        previous = reasons
    return found
