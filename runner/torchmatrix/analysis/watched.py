"""What the telemetry of a launch shows: temperature, clock, power, energy, slow-downs, other people's processes.

Readings and windows are joined on the monotonic clock, which the host and its containers share; a jump of the wall clock
moves nothing. Unknown is NaN or None, never 0.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from torchmatrix.analysis.trends import Trend, trend
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.parts import Facts
from torchmatrix.machine.telemetry import SLOWDOWNS

SHORTEST_ENERGY_SECONDS = 10.0
"""Below this the counter's own steps (20 to 100 ms) and the readings' distance (1 s) are too coarse for an energy."""
ENERGY_MUST_AGREE_WITHIN = 0.10
STEADY_CELSIUS = 2.0
STEADY_CLOCK = 0.005
"""A launch is steady unless its temperature or clock has a trend which changes it by this or more over the timed windows. Less
than 2 °C may be one step of a sensor of 1 °C; a clock's trend of 0.5 % falsifies the figure by half as much."""
CLOCKS = ("sm_clock_mhz", "clock_mhz")
"""Of a GPU, of a CPU."""
CLOCK_JUMP_SECONDS = 2.0
BUSY_BESIDE = 0.1
"""A launch on a CPU counts as disturbed if others used more than this share of what it has itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """One launch during its timed windows. Temperatures in °C: the hottest device; power in W: all devices together.

    `reasons`: the share of readings in which each clock-event reason stood. `throttled`: a thermal or hardware slow-down was
    seen. `energy_joules`: of all devices in all windows; `energy_problem` says why it is NaN, or that it disagrees with the
    power readings. `steady`: None where it can't be told. `warming`: °C per minute, of the device whose temperature has
    the steepest trend; `clock_change`: the ratio - 1 of the clock at the windows' end to its mean, of the device whose clock
    changes most; both NaN without a trend. `foreign`: other people's processes that were seen on the devices.
    `ecc_errors`: uncorrected ones that were counted meanwhile. `quota_seconds`: how long a control group's quota made processes
    wait for CPUs, each counted. `errors`: why devices could not be read.
    """

    temperature_first: float
    temperature_last: float
    clock_mhz: float
    power_watts: float
    reasons: dict[str, float]
    throttled: bool
    energy_joules: float
    energy_problem: str | None
    steady: bool | None
    warming: float
    clock_change: float
    foreign: tuple[str, ...]
    ecc_errors: float
    quota_seconds: float
    errors: tuple[str, ...]


_time = itemgetter(0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One device's readings in order of time: (monotonic seconds, reading)."""

    points: tuple[tuple[float, Facts], ...]

    def inside(self, windows: Iterable[tuple[float, float]]) -> list[Facts]:
        return [reading for _, reading in self._inside(windows)]

    def _inside(self, windows: Iterable[tuple[float, float]]) -> list[tuple[float, Facts]]:
        spans = [
            (bisect_left(self.points, start, key=_time), bisect_right(self.points, stop, key=_time)) for start, stop in windows
        ]
        return [self.points[place] for place in sorted({place for span in spans for place in range(*span)})]

    def values(self, windows: Iterable[tuple[float, float]], *keys: str) -> list[float]:
        """The values in the windows' readings, each under the first key that the reading has."""
        return [value for _, value in self.timed(windows, *keys)]

    def timed(self, windows: Iterable[tuple[float, float]], *keys: str) -> list[tuple[float, float]]:
        """The same, each with its time."""
        found = ((time, next((r[key] for key in keys if key in r), None)) for time, r in self._inside(windows))
        return [(time, float(value)) for time, value in found if value is not None]

    def at(self, time: float, key: str) -> float:
        """A counter's value at `time`, linear between the readings around it; NaN outside of them, or if it went back."""
        known = [(t, float(r[key])) for t, r in self.points if key in r]
        before = [point for point in known if point[0] <= time]
        after = [point for point in known if point[0] >= time]
        if not before or not after:
            return math.nan
        (t0, v0), (t1, v1) = before[-1], after[0]
        if v1 < v0:
            return math.nan
        return v0 if t1 == t0 else v0 + (v1 - v0) * (time - t0) / (t1 - t0)


def summarize(launch: Launch) -> Watched:
    """What was seen while `launch` measured."""
    series = _series(launch)
    windows = edges(launch)
    temperatures = [s.values(windows, "temperature_celsius") for s in series]
    energy, problem = energy_of(series, windows)
    inside = [reading for s in series for reading in s.inside(windows)]
    reasons = reason_shares(inside)
    heat, clock = _trends(series, windows, "temperature_celsius"), _trends(series, windows, *CLOCKS)
    warmer, slower = [one for one in heat if _is_warmer(one)], [one for one in clock if _is_slower(one)]
    return Watched(
        temperature_first=max((t[0] for t in temperatures if t), default=math.nan),
        temperature_last=max((t[-1] for t in temperatures if t), default=math.nan),
        clock_mhz=min((_mean(c) for s in series if (c := s.values(windows, *CLOCKS))), default=math.nan),
        power_watts=_power(series, windows),
        reasons=reasons,
        throttled=bool(SLOWDOWNS & set(reasons)) or any(_counted(s, windows, "throttle_count") > 0 for s in series),
        energy_joules=energy,
        energy_problem=problem,
        steady=not warmer and not slower if heat or clock else None,
        warming=max((60 * one.slope for one in warmer), key=abs, default=math.nan),
        clock_change=max((one.change / 2 / one.mean for one in slower), key=abs, default=math.nan),
        foreign=(
            *sorted({str(phrase) for r in inside for phrase in r.get("foreign", ())}),
            *_beside(launch, series, windows),
        ),
        ecc_errors=sum(_counted(s, windows, "ecc_uncorrected") for s in series),
        quota_seconds=sum(_counted(s, windows, "quota_seconds") for s in _read_of(launch, _hosts(launch))),
        errors=tuple(sorted({str(r["error"]) for _, r in _points(series) if "error" in r})),
    )


def _beside(launch: Launch, series: Sequence["Series"], windows: list[tuple[float, float]]) -> list[str]:
    """On CPUs: how many CPUs' worth of work others did meanwhile, if that was much; of several nodes their mean."""
    if not launch.devices.is_cpu:
        return []
    own = len(launch.devices.indices) * launch.devices.threads
    busy = _mean([value for s in series for value in s.values(windows, "busy_cpus")])
    return [f"other programs, {busy - own:.1f} CPUs' worth"] if busy - own > BUSY_BESIDE * own else []


def edges(launch: Launch) -> list[tuple[float, float]]:
    """Begin and end of each timed window on the monotonic clock; empty where the box didn't say."""
    return [window.edges for window in launch.windows if window.edges]


def clock_jump_seconds(launch: Launch) -> float:
    """How far the wall clock moved against the monotonic one during the launch; 0 if by less than CLOCK_JUMP_SECONDS."""
    end = launch.exit.unix_seconds if launch.exit else None
    jump = math.nan if end is None else (end - launch.unix_seconds) - launch.seconds
    return float(jump) if abs(jump) > CLOCK_JUMP_SECONDS else 0.0


def _series(launch: Launch) -> list[Series]:
    """One per device that the launch used; on CPUs one per node."""
    return _read_of(launch, [*([gpu.uuid for gpu in launch.devices.gpus] or ["cpu"]), *launch.devices_of_other_nodes])


def _hosts(launch: Launch) -> list[str]:
    """What telemetry calls the CPU of each node."""
    return ["cpu", *(f"cpu@{node.number}" for node in launch.other_nodes)]


def _read_of(launch: Launch, devices: Sequence[str | None]) -> list[Series]:
    by_device: dict[str | None, list[tuple[float, Facts]]] = {}
    for told in launch.telemetry:
        for reading in told.readings:
            by_device.setdefault(reading["device"], []).append((told.monotonic_seconds, reading))
    known = [by_device.get(device, []) if device not in launch.ambiguous_devices else [] for device in devices]
    return [Series(points=tuple(sorted(points, key=_time))) for points in known]


def _points(series: Sequence[Series]) -> list[tuple[float, Facts]]:
    return [point for s in series for point in s.points]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _power(series: Sequence[Series], windows: list[tuple[float, float]]) -> float:
    """The sum over the devices of their mean power; NaN unless every device has a reading."""
    means = [_mean(s.values(windows, "power_watts")) for s in series]
    return sum(means) if means else math.nan


def reason_shares(readings: Sequence[Facts]) -> dict[str, float]:
    """In which share of the readings each clock-event reason stood."""
    told = [reading["reasons"] for reading in readings if reading.get("reasons") is not None]
    words = sorted({word for reasons in told for word in reasons})
    return {word: sum(word in reasons for reasons in told) / len(told) for word in words}


def _counted(series: Series, windows: list[tuple[float, float]], key: str) -> float:
    """By how much a counter grew in the windows, as far as the readings around them tell; else, or where it went back, 0."""
    found = 0.0
    for start, stop in windows:
        before = [r[key] for t, r in series.points if t <= start and key in r]
        after = [r[key] for t, r in series.points if t >= stop and key in r]
        found += max(after[0] - before[-1], 0.0) if before and after else 0.0
    return found


def energy_of(series: Sequence[Series], windows: list[tuple[float, float]]) -> tuple[float, str | None]:
    """Joules from the devices' counters at the windows' edges, and what is wrong with them."""
    if not series or not all(any("energy_joules" in reading for _, reading in s.points) for s in series):
        return math.nan, "no energy counter can be read" + (" on some of the devices" if len(series) > 1 else "")
    if not windows or min(stop - start for start, stop in windows) < SHORTEST_ENERGY_SECONDS:
        return math.nan, f"the timed windows are shorter than {SHORTEST_ENERGY_SECONDS:g} s"
    joules = sum(s.at(stop, "energy_joules") - s.at(start, "energy_joules") for s in series for start, stop in windows)
    if not joules > 0:
        return math.nan, "the energy counter could not be read around every window, or did not advance"
    if any(later < earlier for s in series for earlier, later in pairwise(s.values(windows, "energy_joules"))):
        return math.nan, "the energy counter went back"
    power = _power(series, windows)
    by_power = power * sum(stop - start for start, stop in windows)
    if not math.isnan(by_power) and abs(by_power / joules - 1) > ENERGY_MUST_AGREE_WITHIN:
        return joules, f"the power readings say {by_power:.0f} J, the counter {joules:.0f} J"
    return joules, None


def _trends(series: Sequence[Series], windows: list[tuple[float, float]], *keys: str) -> list[Trend]:
    """Of each device's readings in the windows, where there are enough of them."""
    found = (trend(one.timed(windows, *keys)) for one in series)
    return [one for one in found if one is not None]


def _is_warmer(one: Trend) -> bool:
    return one.certain and abs(one.change) >= STEADY_CELSIUS


def _is_slower(one: Trend) -> bool:
    return one.certain and abs(one.change) >= STEADY_CLOCK * one.mean


def first_third(values: Sequence[float]) -> float:
    """The mean of the first third of a series, of its first value at least."""
    return _mean(values[: max(1, len(values) // 3)])


def last_third(values: Sequence[float]) -> float:
    """The mean of its last third."""
    return _mean(values[-max(1, len(values) // 3) :])
