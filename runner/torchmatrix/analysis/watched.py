"""Telemetry during a launch: temperature, clock, power, energy, slow-downs, other people's processes.

Readings and windows are joined on the monotonic clock, which the host and its containers share; a jump of the wall clock
moves nothing. Unknown is NaN or None, never 0.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any

from torchmatrix.analysis.centers import mean_of
from torchmatrix.facts import believable
from torchmatrix.facts.host_parts import Gpu
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.wire import Facts
from torchmatrix.machine.telemetry import SLOWDOWNS

# Trends: a straight line through a series of readings, and whether scatter alone would give it.

FEWEST = 6
"""The fewest readings that can show a trend."""
CERTAIN = 3.5
"""A slope of this many standard errors is a trend; images/workload/steady.py has the same limit for step times."""


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
        """Return the change from the first reading to the last, along the line."""
        return self.slope * self.seconds


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """Fit a line to (seconds, reading), in order of time; None for fewer than FEWEST, or all at one time.

    The standard error is that of the residuals, enlarged by their correlation with the next one (an AR(1) process; D. S. Wilks,
    Journal of Climate 10 (1997), 65-82): readings that resemble each other are no trend yet.
    """
    times, values = [time for time, _ in points], [value for _, value in points]
    if len(points) < FEWEST or times[0] == times[-1]:
        return None
    middle, mean = mean_of(times), mean_of(values)
    width = math.fsum((time - middle) ** 2 for time in times)
    slope = math.fsum((time - middle) * (value - mean) for time, value in points) / width
    residuals = [value - mean - slope * (time - middle) for time, value in points]
    error = math.sqrt(math.fsum(residual**2 for residual in residuals) / (len(residuals) - 2) / width) * _widening(residuals)
    return Trend(mean=mean, slope=slope, seconds=times[-1] - times[0], certain=abs(slope) > CERTAIN * error)


def _widening(residuals: Sequence[float]) -> float:
    """Return the factor by which the autocorrelation of residuals enlarges the standard error."""
    squares = math.fsum(residual**2 for residual in residuals)
    correlation = math.fsum(a * b for a, b in pairwise(residuals)) / squares if squares else 0.0
    correlation = min(0.9, max(0.0, correlation))
    return math.sqrt((1 + correlation) / (1 - correlation))


SHORTEST_ENERGY_SECONDS = 10.0
"""Below this the counter's own steps (20 to 100 ms) and the readings' distance (1 s) are too coarse for an energy."""
ENERGY_MUST_AGREE_WITHIN = 0.10
STEADY_CELSIUS = 2.0
STEADY_CLOCK = 0.005
STEADY_POWER = 0.03
"""A launch is steady unless a temperature, a clock or its power has a trend that changes it by this or more over the timed
windows. Less than 2 °C may be one step of a sensor of 1 °C; a clock's trend of 0.5 % falsifies the figure by half as much;
power that rises by 3 % at the same clock means a device that is getting warm."""
TEMPERATURES = ("temperature_celsius", "memory_temperature_celsius")
CLOCKS = ("sm_clock_mhz", "clock_mhz")
"""The clock of a GPU, of a CPU."""
AT_LIMIT = 0.98
"""From this share of its limit on, the limit decides a device's power, and so its clock."""
AS_BUSY = 0.9
"""After the windows a GPU's clock is judged while its utilization and its power are at least this share of those before."""
FEWEST_LATER = 3
"""The fewest such readings that are judged."""
CLOCK_JUMP_SECONDS = 2.0


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
    meanwhile. `quota_seconds`: how long a control group's quota made processes wait for CPUs, each counted.
    `impossible_readings`: in words those that no device can have, which are left out. `errors`: why devices could not be read.
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
    impossible_readings: str | None
    errors: tuple[str, ...]


_time = itemgetter(0)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One device's believable readings in order of time: (monotonic seconds, reading).

    `lost`: how many of each kind are not believable; `most_watts`: the power that it can't exceed.
    """

    points: believable.Points
    lost: Mapping[str, believable.Lost] = field(default_factory=dict)
    most_watts: float = believable.MOST_WATTS
    _found: dict[Any, list[tuple[float, Facts]]] = field(default_factory=dict, repr=False, compare=False)
    """A cache by windows: a dozen figures use the same ones."""

    @classmethod
    def of(cls, points: Iterable[tuple[float, Facts]], gpu: believable.Device | None) -> "Series":
        """Make the series of a device from its readings, in any order; `gpu`: None for CPUs."""
        kept, lost = believable.believable(tuple(sorted(points, key=_time)), gpu)
        return cls(points=kept, lost=lost, most_watts=believable.most_watts(gpu))

    def inside(self, windows: Iterable[tuple[float, float]]) -> list[Facts]:
        """Return the readings in the windows."""
        return [reading for _, reading in self._inside(windows)]

    def _inside(self, windows: Iterable[tuple[float, float]]) -> list[tuple[float, Facts]]:
        key = tuple(windows)
        if key not in self._found:
            times = [time for time, _ in self.points]
            spans = [range(bisect_left(times, start), bisect_right(times, stop)) for start, stop in key]
            self._found[key] = [self.points[place] for place in sorted({place for span in spans for place in span})]
        return self._found[key]

    def values(self, windows: Iterable[tuple[float, float]], *keys: str) -> list[float]:
        """Return the values in the windows' readings, each under the first key that the reading has."""
        return [value for _, value in self.timed(windows, *keys)]

    def timed(self, windows: Iterable[tuple[float, float]], *keys: str) -> list[tuple[float, float]]:
        """Return (time, value) of the windows' readings, each under the first key that the reading has."""
        points = self._inside(windows)
        if len(keys) == 1:
            (key,) = keys
            return [(time, float(value)) for time, reading in points if (value := reading.get(key)) is not None]
        values = ((time, next((reading[key] for key in keys if key in reading), None)) for time, reading in points)
        return [(time, float(value)) for time, value in values if value is not None]

    def at(self, time: float, key: str) -> float:
        """Return a counter's value at `time`, interpolated between the readings around it; NaN outside, or if it went back."""
        counted = [(moment, float(reading[key])) for moment, reading in self.points if key in reading]
        before = [point for point in counted if point[0] <= time]
        after = [point for point in counted if point[0] >= time]
        if not before or not after:
            return math.nan
        (t0, v0), (t1, v1) = before[-1], after[0]
        if v1 < v0:
            return math.nan
        return v0 if t1 == t0 else v0 + (v1 - v0) * (time - t0) / (t1 - t0)


def summarize(launch: Launch) -> Watched:
    """Return what the telemetry shows of `launch`."""
    series = _series(launch)
    windows = edges(launch)
    temperatures = [device.values(windows, "temperature_celsius") for device in series]
    hosts = ["cpu", *(f"cpu@{node.number}" for node in launch.other_nodes)]
    energy, problem = energy_of(series, windows)
    inside = [reading for device in series for reading in device.inside(windows)]
    return Watched(
        temperature_first=max((celsius[0] for celsius in temperatures if celsius), default=math.nan),
        temperature_last=max((celsius[-1] for celsius in temperatures if celsius), default=math.nan),
        clock_mhz=min((_mean(clocks) for device in series if (clocks := device.values(windows, *CLOCKS))), default=math.nan),
        power_watts=_power(series, windows),
        reasons=reason_shares(inside),
        throttled=_is_throttled(series, windows),
        energy_joules=energy,
        energy_problem=problem,
        **_steadiness(launch, series, windows),
        foreign=foreign_in(launch),
        ecc_errors=sum(_counter_growth(device, windows, "ecc_uncorrected") for device in series),
        quota_seconds=sum(_counter_growth(device, windows, "quota_seconds") for device in series_of(launch, hosts)),
        impossible_readings=believable.in_words([device.lost for device in series]),
        errors=tuple(sorted({str(r["error"]) for _, r in _points(series) if "error" in r})),
    )


def foreign_in(launch: Launch) -> tuple[str, ...]:
    """Return other people's processes that were seen on the devices in the timed windows."""
    if not any("foreign" in reading for sample in launch.telemetry for reading in sample.readings):
        return ()  # nearly always: most readers want nothing else of the telemetry
    windows = edges(launch)
    inside = (reading for device in _series(launch) for reading in device.inside(windows))
    return tuple(sorted({str(phrase) for reading in inside for phrase in reading.get("foreign", ())}))


def _is_throttled(series: Sequence["Series"], windows: list[tuple[float, float]]) -> bool:
    """Check whether the devices report a slow-down, or count one."""
    inside = [reading for device in series for reading in device.inside(windows)]
    return bool(SLOWDOWNS & set(reason_shares(inside))) or any(
        _counter_growth(device, windows, "throttle_count") > 0 for device in series
    )


def _steadiness(launch: Launch, series: Sequence["Series"], windows: list[tuple[float, float]]) -> dict[str, Any]:
    """Return whether the devices stayed as they were in the windows and, as far as they went on working, after them."""
    heat = [trend for key in TEMPERATURES for trend in _trends(series, windows, key)]
    clock = [*_trends(series, windows, *CLOCKS), *_trends(series, windows, "memory_clock_mhz")]
    power = _trends(series, windows, "power_watts")
    warmer = [60 * trend.slope for trend in heat if _changes(trend, STEADY_CELSIUS)]
    slower = [trend.change / 2 / trend.mean for trend in clock if _changes(trend, STEADY_CLOCK * trend.mean)]
    drawn = [trend.change / trend.mean for trend in power if _changes(trend, STEADY_POWER * trend.mean)]
    after = [(max(stop for _, stop in windows), math.inf)] if windows else []
    later = [fall for device in series if (fall := _fall(device, windows, after)) <= -STEADY_CLOCK]
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
    """Return the spans up to the last reading, so that a counter can be read there."""
    last = max((time for time, _ in _points(series)), default=-math.inf)
    return [(start, last) for start, _ in after if last > start]


def _fall(device: "Series", windows: list[tuple[float, float]], after: list[tuple[float, float]]) -> float:
    """Return the ratio - 1 of a GPU's clock after the windows to that in them, at equal use and no more power; else NaN."""
    clock, power = (_mean(device.values(windows, key)) for key in ("sm_clock_mhz", "power_watts"))

    def is_as_busy(reading: Facts) -> bool:
        watts = reading.get("power_watts", math.nan)
        return bool(reading.get("utilization_percent", 0.0) >= 100 * AS_BUSY and AS_BUSY * power <= watts <= power / AT_LIMIT)

    clocks = [float(later["sm_clock_mhz"]) for later in device.inside(after) if "sm_clock_mhz" in later and is_as_busy(later)]
    return _mean(clocks) / clock - 1 if len(clocks) >= FEWEST_LATER else math.nan


def _at_limit(series: Sequence["Series"], windows: list[tuple[float, float]]) -> float:
    """Return the share of readings with the power at its limit, of the device with the largest share."""
    keys = ("power_watts", "power_limit_watts")
    by_device = [[reading for reading in device.inside(windows) if all(reading.get(key) for key in keys)] for device in series]
    shares = [
        _mean([float(reading[keys[0]] >= AT_LIMIT * reading[keys[1]]) for reading in readings])
        for readings in by_device
        if readings
    ]
    return max(shares, default=math.nan)


def _under_load_seconds(launch: Launch, windows: list[tuple[float, float]]) -> float:
    """Return the seconds from the first block of the warm-up to the windows' end; NaN if unknown."""
    starts = [block.edges[0] for block in launch.warm_up_blocks if block.edges]
    return windows[-1][1] - min(starts) if windows and starts else math.nan


def edges(launch: Launch) -> list[tuple[float, float]]:
    """Return begin and end of each timed window on the monotonic clock; empty where the workload didn't report them."""
    return [window.edges for window in launch.windows if window.edges]


def clock_jump_seconds(launch: Launch) -> float:
    """Return how far the wall clock moved against the monotonic one during the launch; 0 if by less than CLOCK_JUMP_SECONDS."""
    end = launch.exit.unix_seconds if launch.exit else None
    jump = math.nan if end is None else (end - launch.unix_seconds) - launch.seconds
    return float(jump) if abs(jump) > CLOCK_JUMP_SECONDS else 0.0


def _series(launch: Launch) -> list[Series]:
    """Return one series per device that the launch used; on CPUs one per node."""
    return series_of(launch, [*([gpu.uuid for gpu in launch.devices.gpus] or ["cpu"]), *launch.devices_of_other_nodes])


def series_of(launch: Launch, devices: Sequence[str | None]) -> list[Series]:
    """Return the series of these devices; empty ones where a device's name is ambiguous."""
    by_device: dict[str | None, list[tuple[float, Facts]]] = {}
    for sample in launch.telemetry:
        for reading in sample.readings:
            by_device.setdefault(reading["device"], []).append((sample.monotonic_seconds, reading))
    gpus = _gpus_of(launch)
    return [
        Series.of(by_device.get(device, []) if device not in launch.ambiguous_devices else [], gpus.get(device))
        for device in devices
    ]


def _gpus_of(launch: Launch) -> dict[str | None, Gpu | None]:
    """Return the GPU of each name in readings; None for CPUs."""
    others = [gpu for node in launch.other_nodes for gpu in node.gpus or (None,)]
    return {gpu.uuid: gpu for gpu in launch.devices.gpus} | dict(zip(launch.devices_of_other_nodes, others, strict=True))


def _points(series: Sequence[Series]) -> list[tuple[float, Facts]]:
    return [point for s in series for point in s.points]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _power(series: Sequence[Series], windows: list[tuple[float, float]]) -> float:
    """Return the sum over the devices of their mean power; NaN unless every device has a reading."""
    means = [_mean(device.values(windows, "power_watts")) for device in series]
    return sum(means) if means else math.nan


def reason_shares(readings: Sequence[Facts]) -> dict[str, float]:
    """Return the share of the readings in which each clock-event reason was set."""
    recorded = [reading["reasons"] for reading in readings if reading.get("reasons") is not None]
    words = sorted({word for reasons in recorded for word in reasons})
    return {word: sum(word in reasons for reasons in recorded) / len(recorded) for word in words}


def _counter_growth(series: Series, windows: list[tuple[float, float]], key: str) -> float:
    """Return by how much a counter grew in the windows, as far as the readings around them show; 0 otherwise, or where it went
    back.
    """
    total = 0.0
    for start, stop in windows:
        before = [r[key] for t, r in series.points if t <= start and key in r]
        after = [r[key] for t, r in series.points if t >= stop and key in r]
        total += max(after[0] - before[-1], 0.0) if before and after else 0.0
    return total


def energy_of(series: Sequence[Series], windows: list[tuple[float, float]]) -> tuple[float, str | None]:
    """Return joules from the devices' counters at the windows' edges, and what is wrong with them."""
    if not series or not all(any("energy_joules" in reading for _, reading in device.points) for device in series):
        return math.nan, "no energy counter can be read" + (" on some of the devices" if len(series) > 1 else "")
    if not windows or min(stop - start for start, stop in windows) < SHORTEST_ENERGY_SECONDS:
        return math.nan, f"the timed windows are shorter than {SHORTEST_ENERGY_SECONDS:g} s"
    joules = sum(
        device.at(stop, "energy_joules") - device.at(start, "energy_joules") for device in series for start, stop in windows
    )
    if not joules > 0:
        return math.nan, "the energy counter could not be read around every window, or did not advance"
    if joules > sum(device.most_watts for device in series) * sum(stop - start for start, stop in windows):
        return math.nan, "the energy counter jumped"
    if any(later < earlier for device in series for earlier, later in pairwise(device.values(windows, "energy_joules"))):
        return math.nan, "the energy counter went back"
    power = _power(series, windows)
    by_power = power * sum(stop - start for start, stop in windows)
    if not math.isnan(by_power) and abs(by_power / joules - 1) > ENERGY_MUST_AGREE_WITHIN:
        return joules, f"the power readings say {by_power:.0f} J, the counter {joules:.0f} J"
    return joules, None


def _trends(series: Sequence[Series], windows: list[tuple[float, float]], *keys: str) -> list[Trend]:
    """Return the trend of each device's readings in the windows, where there are enough of them."""
    trends = (trend(device.timed(windows, *keys)) for device in series)
    return [line for line in trends if line is not None]


def _changes(trend: Trend, least: float) -> bool:
    """Check whether a trend is certain and changes by `least` or more."""
    return trend.certain and abs(trend.change) >= least


def first_third(values: Sequence[float]) -> float:
    """Return the mean of the first third of a series, of its first value at least."""
    return _mean(values[: max(1, len(values) // 3)])


def last_third(values: Sequence[float]) -> float:
    """Return the mean of the last third of a series, of its last value at least."""
    return _mean(values[-max(1, len(values) // 3) :])
