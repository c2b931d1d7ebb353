"""What the telemetry of a launch shows: temperature, clock, power, energy, slow-downs, other people's processes.

Readings and windows are joined on the monotonic clock, which the host and its containers share; a jump of the wall clock
moves nothing. Unknown is NaN or None, never 0.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any

from torchmatrix.analysis.intervals import mean_of
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.wire import Facts
from torchmatrix.machine.telemetry import SLOWDOWNS

# Does a series of readings go up or down? A straight line through them, and whether scatter alone would give it.

FEWEST = 6
"""Of fewer readings no trend is told."""
CERTAIN = 3.5
"""So many standard errors of its slope are a trend; images/workload/steady.py has the same limit for step times."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """The line by least squares: `mean` of the readings, `slope` per second, `seconds` from the first reading to the last.

    `certain`: the slope is more than CERTAIN of its standard errors away from 0.
    """

    mean: float
    slope: float
    seconds: float
    certain: bool

    @property
    def change(self) -> float:
        """From the first reading to the last, along the line."""
        return self.slope * self.seconds


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """Of (seconds, reading), in order of time; None for fewer than FEWEST, or all at one time.

    The standard error is that of the residuals, enlarged by their correlation with the next one (an AR(1) process; D. S. Wilks,
    Journal of Climate 10 (1997), 65-82): readings that resemble each other are no trend yet.
    """
    times, values = [time for time, _ in points], [value for _, value in points]
    if len(points) < FEWEST or times[0] == times[-1]:
        return None
    middle, mean = mean_of(times), mean_of(values)
    width = math.fsum((time - middle) ** 2 for time in times)
    slope = math.fsum((time - middle) * (value - mean) for time, value in points) / width
    rest = [value - mean - slope * (time - middle) for time, value in points]
    error = math.sqrt(math.fsum(one**2 for one in rest) / (len(rest) - 2) / width) * _widening(rest)
    return Trend(mean=mean, slope=slope, seconds=times[-1] - times[0], certain=abs(slope) > CERTAIN * error)


def _widening(rest: Sequence[float]) -> float:
    squares = math.fsum(one**2 for one in rest)
    again = math.fsum(a * b for a, b in pairwise(rest)) / squares if squares else 0.0
    again = min(0.9, max(0.0, again))
    return math.sqrt((1 + again) / (1 - again))


SHORTEST_ENERGY_SECONDS = 10.0
"""Below this the counter's own steps (20 to 100 ms) and the readings' distance (1 s) are too coarse for an energy."""
ENERGY_MUST_AGREE_WITHIN = 0.10
STEADY_CELSIUS = 2.0
STEADY_CLOCK = 0.005
STEADY_POWER = 0.03
"""A launch is steady unless a temperature, a clock or its power has a trend which changes it by this or more over the timed
windows. Less than 2 °C may be one step of a sensor of 1 °C; a clock's trend of 0.5 % falsifies the figure by half as much;
power that rises by 3 % at the same clock is that of a device which gets warm."""
TEMPERATURES = ("temperature_celsius", "memory_temperature_celsius")
CLOCKS = ("sm_clock_mhz", "clock_mhz")
"""Of a GPU, of a CPU."""
AT_LIMIT = 0.98
"""From this part of its limit on, the limit decides a device's power, and so its clock."""
AS_BUSY = 0.9
"""After the windows a GPU's clock is judged while it is in use for so much of the time and draws so much of the power."""
FEWEST_LATER = 3
"""Of fewer such readings nothing is said."""
CLOCK_JUMP_SECONDS = 2.0
BUSY_BESIDE = 0.1
"""A launch on a CPU counts as disturbed if others used more than this share of what it has itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """One launch during its timed windows. Temperatures in °C: the hottest device; power in W: all devices together.

    `reasons`: the share of readings in which each clock-event reason stood. `throttled`: a thermal or hardware slow-down was
    seen; `throttled_later`: after the windows. `energy_joules`: of all devices in all windows; `energy_problem` says why it is
    NaN, or that it disagrees with the power readings. `steady`: None where it can't be told. `warming`: °C per minute, of the
    device whose temperature (of memory too) has the steepest trend; `clock_change`: the ratio - 1 of the clock at the windows'
    end to its mean, of the device whose clock (of memory too) changes most; `power_change`: by which ratio power changes from
    their begin to their end; all NaN without a trend. `later_clock`: the ratio - 1 of a GPU's clock after the windows, while it
    was as busy, to that in them, if it is lower by STEADY_CLOCK or more; else NaN. `at_limit`: the share of readings in which
    the power was at its limit; NaN if unknown. `under_load_seconds`: from the first block of the warm-up to the windows' end.
    `foreign`: other people's processes that were seen on the devices. `ecc_errors`: uncorrected ones that were counted
    meanwhile. `quota_seconds`: how long a control group's quota made processes wait for CPUs, each counted. `errors`: why
    devices could not be read.
    """

    temperature_first: float
    temperature_last: float
    clock_mhz: float
    power_watts: float
    reasons: dict[str, float]
    throttled: bool
    throttled_later: bool
    energy_joules: float
    energy_problem: str | None
    steady: bool | None
    warming: float
    clock_change: float
    power_change: float
    later_clock: float
    at_limit: float
    under_load_seconds: float
    foreign: tuple[str, ...]
    ecc_errors: float
    quota_seconds: float
    errors: tuple[str, ...]


_time = itemgetter(0)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One device's readings in order of time: (monotonic seconds, reading)."""

    points: tuple[tuple[float, Facts], ...]
    _found: dict[Any, list[tuple[float, Facts]]] = field(default_factory=dict, repr=False, compare=False)
    """By the windows that were asked for: a dozen figures are of the same."""

    def inside(self, windows: Iterable[tuple[float, float]]) -> list[Facts]:
        return [reading for _, reading in self._inside(windows)]

    def _inside(self, windows: Iterable[tuple[float, float]]) -> list[tuple[float, Facts]]:
        asked = tuple(windows)
        if asked not in self._found:
            times = [time for time, _ in self.points]
            spans = [range(bisect_left(times, start), bisect_right(times, stop)) for start, stop in asked]
            self._found[asked] = [self.points[place] for place in sorted({place for span in spans for place in span})]
        return self._found[asked]

    def values(self, windows: Iterable[tuple[float, float]], *keys: str) -> list[float]:
        """The values in the windows' readings, each under the first key that the reading has."""
        return [value for _, value in self.timed(windows, *keys)]

    def timed(self, windows: Iterable[tuple[float, float]], *keys: str) -> list[tuple[float, float]]:
        """The same, each with its time."""
        found = self._inside(windows)
        if len(keys) == 1:
            (key,) = keys
            return [(time, float(value)) for time, r in found if (value := r.get(key)) is not None]
        each = ((time, next((r[key] for key in keys if key in r), None)) for time, r in found)
        return [(time, float(value)) for time, value in each if value is not None]

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
    return Watched(
        temperature_first=max((t[0] for t in temperatures if t), default=math.nan),
        temperature_last=max((t[-1] for t in temperatures if t), default=math.nan),
        clock_mhz=min((_mean(c) for s in series if (c := s.values(windows, *CLOCKS))), default=math.nan),
        power_watts=_power(series, windows),
        reasons=reason_shares(inside),
        throttled=_is_throttled(series, windows),
        energy_joules=energy,
        energy_problem=problem,
        **_steadiness(launch, series, windows),
        foreign=(
            *sorted({str(phrase) for r in inside for phrase in r.get("foreign", ())}),
            *_beside(launch, series, windows),
        ),
        ecc_errors=sum(_counted(s, windows, "ecc_uncorrected") for s in series),
        quota_seconds=sum(_counted(s, windows, "quota_seconds") for s in _read_of(launch, _hosts(launch))),
        errors=tuple(sorted({str(r["error"]) for _, r in _points(series) if "error" in r})),
    )


def _is_throttled(series: Sequence["Series"], windows: list[tuple[float, float]]) -> bool:
    """By what the devices say of themselves, or count."""
    inside = [reading for s in series for reading in s.inside(windows)]
    return bool(SLOWDOWNS & set(reason_shares(inside))) or any(_counted(s, windows, "throttle_count") > 0 for s in series)


def _steadiness(launch: Launch, series: Sequence["Series"], windows: list[tuple[float, float]]) -> dict[str, Any]:
    """Whether the devices stayed as they were in the windows and, as far as they went on working, after them."""
    heat = [one for key in TEMPERATURES for one in _trends(series, windows, key)]
    clock = [*_trends(series, windows, *CLOCKS), *_trends(series, windows, "memory_clock_mhz")]
    power = _trends(series, windows, "power_watts")
    warmer = [60 * one.slope for one in heat if _changes(one, STEADY_CELSIUS)]
    slower = [one.change / 2 / one.mean for one in clock if _changes(one, STEADY_CLOCK * one.mean)]
    drawn = [one.change / one.mean for one in power if _changes(one, STEADY_POWER * one.mean)]
    after = [(max(stop for _, stop in windows), math.inf)] if windows else []
    later = [fall for s in series if (fall := _fall(s, windows, after)) <= -STEADY_CLOCK]
    throttled = _is_throttled(series, _until_the_end(series, after))
    farthest = partial(max, key=abs, default=math.nan)
    return {
        "steady": not (warmer or slower or drawn or later or throttled) if heat or clock or later or throttled else None,
        "warming": farthest(warmer),
        "clock_change": farthest(slower),
        "power_change": farthest(drawn),
        "later_clock": farthest(later),
        "throttled_later": throttled,
        "at_limit": _at_limit(series, windows),
        "under_load_seconds": _under_load_seconds(launch, windows),
    }


def _until_the_end(series: Sequence["Series"], after: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same up to the last reading, so that a counter can be read there."""
    last = max((time for time, _ in _points(series)), default=-math.inf)
    return [(start, last) for start, _ in after if last > start]


def _fall(s: "Series", windows: list[tuple[float, float]], after: list[tuple[float, float]]) -> float:
    """The ratio - 1 of a GPU's clock after the windows to that in them, at as much use and no more power; else NaN."""
    clock, power = (_mean(s.values(windows, key)) for key in ("sm_clock_mhz", "power_watts"))

    def is_as_busy(reading: Facts) -> bool:
        watts = reading.get("power_watts", math.nan)
        return bool(reading.get("utilization_percent", 0.0) >= 100 * AS_BUSY and AS_BUSY * power <= watts <= power / AT_LIMIT)

    found = [float(r["sm_clock_mhz"]) for r in s.inside(after) if "sm_clock_mhz" in r and is_as_busy(r)]
    return _mean(found) / clock - 1 if len(found) >= FEWEST_LATER else math.nan


def _at_limit(series: Sequence["Series"], windows: list[tuple[float, float]]) -> float:
    """Of the device of which it is the most."""
    keys = ("power_watts", "power_limit_watts")
    known = [[r for r in s.inside(windows) if all(r.get(key) for key in keys)] for s in series]
    shares = [_mean([float(r[keys[0]] >= AT_LIMIT * r[keys[1]]) for r in readings]) for readings in known if readings]
    return max(shares, default=math.nan)


def _under_load_seconds(launch: Launch, windows: list[tuple[float, float]]) -> float:
    begun = [block.edges[0] for block in launch.warm_up_blocks if block.edges]
    return windows[-1][1] - min(begun) if windows and begun else math.nan


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


def _changes(one: Trend, least: float) -> bool:
    return one.certain and abs(one.change) >= least


def first_third(values: Sequence[float]) -> float:
    """The mean of the first third of a series, of its first value at least."""
    return _mean(values[: max(1, len(values) // 3)])


def last_third(values: Sequence[float]) -> float:
    """The mean of its last third."""
    return _mean(values[-max(1, len(values) // 3) :])
