"""Which readings of a sensor are believable. What a device can't do is unknown: one such value falsifies any mean.

A call that succeeds may return garbage (a driver's 4,294,967 W on a card of 450 W). Such a reading is left out and counted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torchmatrix.core.inputs import is_number
from torchmatrix.facts.wire import Facts

MARGIN = 2.0
"""A device never exceeds a limit that it reports by this factor; peaks of the power exceed it by less."""
MOST_WATTS = 5000.0
"""Where no limit is known, and at most: no card draws as much, nor do all CPUs of a server."""
_MOST_MHZ, _MOST_COUNT, _LATEST_PCIE = 50_000.0, 1e9, 10.0
_MOST_PERCENT = 110.0
"""Shares of two counters that are read one after the other exceed 100 % by a tick."""
_CELSIUS = (-50.0, 150.0)
_SLACK_SECONDS = 1.0
"""A counter may be as old as this when it is read."""
_NAMES = {
    "power_watts": ("the power", "W"), "power_limit_watts": ("the power limit", "W"), "energy_joules": ("the energy", "J"),
    "temperature_celsius": ("the temperature", "°C"), "memory_temperature_celsius": ("the memory's temperature", "°C"),
    "sm_clock_mhz": ("the clock", "MHz"), "clock_mhz": ("the clock", "MHz"), "memory_clock_mhz": ("the memory's clock", "MHz"),
    "utilization_percent": ("the utilization", "%"), "memory_used_bytes": ("the memory in use", "bytes"),
    "pcie_generation": ("the link's generation", ""),
    "ecc_uncorrected": ("memory errors", ""), "ecc_corrected": ("corrected memory errors", ""),
    "throttle_count": ("thermal events", ""),
}  # fmt: skip
"""What the readings that are judged are called, and their units."""


class Device(Protocol):
    """What is known of a GPU (facts.host_parts, machine.host_gpus)."""

    @property
    def power_limit_watts(self) -> float | None: ...
    @property
    def clocks_max_mhz(self) -> float | None: ...
    @property
    def clocks_max_memory_mhz(self) -> float | None: ...
    @property
    def memory_bytes(self) -> int | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """Readings of one kind that are not believable: how many `of` all, and the one that is farthest off."""

    number: int
    of: int
    worst: float

    def added(self, other: "Lost") -> "Lost":
        """Return the sum of those of two devices."""
        worst = max(self.worst, other.worst, key=abs)
        return Lost(number=self.number + other.number, of=self.of + other.of, worst=worst)


def is_believable(key: str, value: Any, limits: Mapping[str, tuple[float, float]]) -> bool:
    """Check whether a device with these limits can have this reading."""
    low, high = limits[key]
    return is_number(value) and low <= value <= high


Points = tuple[tuple[float, Facts], ...]
"""Readings of one device in order of time, each with its monotonic seconds."""


def most_watts(gpu: Device | None) -> float:
    """Return the power that a device can't exceed."""
    return min(MOST_WATTS, MARGIN * ((gpu and gpu.power_limit_watts) or math.inf))


def limits_of(gpu: Device | None) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest believable value of each kind of reading; `gpu`: None for CPUs."""
    known: Mapping[str, Any] = {
        "sm_clock_mhz": gpu and gpu.clocks_max_mhz,
        "memory_clock_mhz": gpu and gpu.clocks_max_memory_mhz,
        "memory_used_bytes": gpu and gpu.memory_bytes,
    }
    watts = most_watts(gpu)
    return {
        **dict.fromkeys(("power_watts", "power_limit_watts"), (0.0, watts)),
        **dict.fromkeys(("temperature_celsius", "memory_temperature_celsius"), _CELSIUS),
        **dict.fromkeys(("sm_clock_mhz", "memory_clock_mhz", "clock_mhz"), (0.0, _MOST_MHZ)),
        **dict.fromkeys(("ecc_uncorrected", "ecc_corrected", "throttle_count"), (0.0, _MOST_COUNT)),
        "utilization_percent": (0.0, _MOST_PERCENT),
        "pcie_generation": (0.0, _LATEST_PCIE),
        "memory_used_bytes": (0.0, math.inf),
        "energy_joules": (0.0, math.inf),
        **{key: (0.0, MARGIN * most) for key, most in known.items() if most},
    }


def believable(points: Points, gpu: Device | None) -> tuple[Points, dict[str, Lost]]:
    """Return the readings of a device without those that it can't have, and how many of each kind these are."""
    bad: dict[int, dict[str, float]] = {}
    read: dict[str, int] = {}
    limits = limits_of(gpu)
    for key in limits:
        values = [(place, reading[key]) for place, (_, reading) in enumerate(points) if reading.get(key) is not None]
        read[key] = len(values)
        for place, value in values:
            if not is_believable(key, value, limits):
                bad.setdefault(place, {})[key] = value
    for place, joules in _odd_counts(points, "energy_joules", most_watts(gpu)):
        bad.setdefault(place, {})["energy_joules"] = joules
    lost = {}
    for key in {key for values in bad.values() for key in values}:
        values_of_key = [values[key] for values in bad.values() if key in values]
        lost[key] = Lost(number=len(values_of_key), of=read[key], worst=max(values_of_key, key=abs))
    if not bad:
        return points, {}
    kept = (
        (at, {key: value for key, value in reading.items() if key not in bad.get(place, ())})
        for place, (at, reading) in enumerate(points)
    )
    return tuple(kept), lost


def _odd_counts(points: Points, key: str, most_per_second: float) -> list[tuple[int, float]]:
    """Return the readings of a counter that contradict their neighbours, which agree with each other, by their places."""
    counts = [(place, at, reading[key]) for place, (at, reading) in enumerate(points) if reading.get(key) is not None]

    def agree(first: int, second: int) -> bool:
        if not 0 <= first < second < len(counts):
            return False
        (_, begin, before), (_, end, after) = counts[first], counts[second]
        return bool(0 <= after - before <= most_per_second * (end - begin + _SLACK_SECONDS))

    return [
        (place, value)
        for number, (place, _, value) in enumerate(counts)
        if not agree(number - 1, number) and not agree(number, number + 1)
        if agree(number - 1, number + 1) or (number == 0 and agree(1, 2)) or agree(number - 2, number - 1)
    ]


def in_words(lost: Sequence[Mapping[str, Lost]]) -> str | None:
    """Describe the readings that devices lost, such as "20 of 60 readings of the power are impossible (4294967 W)"."""
    total: dict[str, Lost] = {}
    for of_device in lost:
        for key, some in of_device.items():
            total[key] = total[key].added(some) if key in total else some
    return "; ".join(_phrase(key, total[key]) for key in _NAMES if key in total) or None


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) < _MOST_COUNT else f"{value:.3g}"


def _phrase(key: str, lost: Lost) -> str:
    name, unit = _NAMES[key]
    return f"{lost.number} of {lost.of} readings of {name} are impossible (such as {_number(lost.worst)} {unit}".rstrip() + ")"
