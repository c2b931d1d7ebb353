"""Launches -> what was read of their devices over time: temperature, clock, power, slow-downs, beside the timed windows."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchmatrix.analysis.watched import Watched, edges, summarize
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.wire import Facts
from torchmatrix.machine.telemetry import SLOWDOWNS

MOST_READINGS = 360
"""In one trace, of all devices together; of more, every k-th of each device is kept."""
MOST_IN_ALL = 16_000
"""In all traces of a page together, so that a page of thousands of cells stays small."""
LEAST_READINGS = 12
"""In one trace, however many there are."""
LEAST_OF_DEVICE = 4
"""If each device can't keep so many, a trace keeps the device that was slowed down, or was hottest, and counts the others."""
QUANTITIES = {
    "temperature_celsius": "temperature in °C",
    "clock_mhz": "clock in MHz",
    "power_watts": "power in W",
    "busy_cpus": "busy CPUs",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    """Of one device, such as gpu0: `values` by name of QUANTITIES at each of `seconds`; None is unknown."""

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
    """A trace of which nothing is left out; `slowed`: the devices that were slowed down."""

    trace: Trace
    slowed: frozenset[str]


def whole_of(launches: Iterable[Launch]) -> dict[str, Whole]:
    """Of each cell that of its last ok launch with readings, in the order of the cells."""
    last = {launch.cell: launch for launch in launches if _is_watched(launch)}
    return {cell: _whole(launch) for cell, launch in last.items()}


def shortened(traces: Collection[Whole]) -> list[Trace]:
    """As all of a page are: together they have some MOST_IN_ALL readings."""
    most = min(MOST_READINGS, max(LEAST_READINGS, MOST_IN_ALL // max(1, len(traces))))
    return [_shortened(trace, most) for trace in traces]


def _is_watched(launch: Launch) -> bool:
    ddp = launch.makes_figures
    if not ddp or launch.monotonic_seconds is None or not launch.is_ok or not edges(launch):
        return False
    own = _names(launch)
    return any(r["device"] in own and r.keys() & _KEYS for told in launch.telemetry for r in told.readings)


_KEYS = frozenset({*QUANTITIES, "sm_clock_mhz", "energy_joules"})


def _whole(launch: Launch) -> Whole:
    begin, names = launch.monotonic_seconds or 0.0, _names(launch)
    series: dict[str, list[tuple[float, Facts]]] = {name: [] for name in names.values()}
    for told in sorted(launch.telemetry, key=lambda told: told.monotonic_seconds):
        for reading in told.readings:
            if reading["device"] in names:
                series[names[reading["device"]]].append((told.monotonic_seconds - begin, reading))
    spells = {name: _spells(points) for name, points in series.items()}
    trace = Trace(
        cell=launch.cell,
        round=launch.round,
        readings=tuple(_readings(name, points) for name, points in series.items() if points),
        more_devices=0,
        picked="",
        every=1,
        windows=tuple((start - begin, stop - begin) for start, stop in edges(launch)),
        slowdowns=tuple(sorted(spell for some in spells.values() for spell in some)),
        seen=summarize(launch),
    )
    return Whole(trace=trace, slowed=frozenset(name for name, some in spells.items() if some))


def _shortened(found: Whole, most: int) -> Trace:
    every, picked = found.trace.readings, ""
    kept = every
    if len(every) * LEAST_OF_DEVICE > most:
        worth = {one.device: (one.device in found.slowed, _hottest_celsius(one)) for one in every}
        kept = (max(every, key=lambda one: worth[one.device]),)
        picked = _why(*worth[kept[0].device]) if len(every) > 1 else ""
    step = max(1, math.ceil(sum(len(one.seconds) for one in kept) / most))
    readings = tuple(_every(step, one) for one in kept)
    return replace(found.trace, readings=readings, more_devices=len(every) - len(kept), picked=picked, every=step)


def _every(step: int, one: Readings) -> Readings:
    """Every k-th reading; what is unknown in all of them is left out."""
    values = {name: some[::step] for name, some in one.values.items()}
    known = {name: some for name, some in values.items() if any(value is not None for value in some)}
    return Readings(device=one.device, seconds=one.seconds[::step], values=known)


def _hottest_celsius(one: Readings) -> float:
    return max((value or 0.0 for value in one.values.get("temperature_celsius", ())), default=0.0)


def _why(was_slowed: bool, celsius: float) -> str:
    return "slowed" if was_slowed else "hottest" if celsius else "first"


def _names(launch: Launch) -> dict[str | None, str]:
    """Devices as the readings call them -> as the cell does; on a CPU it is the CPU."""
    devices = launch.devices
    named = {gpu.uuid: name for name, gpu in zip(devices.names, devices.gpus, strict=False)} or {"cpu": "cpu"}
    return {device: name for device, name in named.items() if device not in launch.ambiguous_devices}


def _readings(name: str, points: Sequence[tuple[float, Facts]]) -> Readings:
    """Where no power can be read, it is the mean since the reading before, from the energy counter."""
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


def trace_from(facts: Mapping[str, Any]) -> Trace:
    """Of a trace as a dictionary, perhaps read from a file."""
    pairs = {name: tuple(map(tuple, facts[name])) for name in ("windows", "slowdowns")}
    seen = Watched(**facts["seen"] | {name: tuple(facts["seen"][name]) for name in ("foreign", "errors")})
    return Trace(**{**facts, **pairs, "seen": seen, "readings": tuple(map(_readings_from, facts["readings"]))})


def _readings_from(facts: Mapping[str, Any]) -> Readings:
    values = {name: tuple(some) for name, some in facts["values"].items()}
    return Readings(device=facts["device"], seconds=tuple(facts["seconds"]), values=values)
