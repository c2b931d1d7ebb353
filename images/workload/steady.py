"""When is a machine steady? What decides how long a launch warms up; pure Python, apart from what is timed (measure.py).

A device that gets warm slows down over seconds to minutes, and a figure taken meanwhile is too high. So the step times of the
warm-up and of the timed windows together are tested for a trend over time. If there is none, the figure stands: a machine that
is flat from the start loses no time. If there may be one, more steps are run until it has gone or is certain. If it is certain,
the windows become a part of the warm-up, which goes on until the exponential a + b exp(-t / tau) through the step times has
nearly ended, or until its cap in seconds. Then the windows are timed anew, and the drift that is left is told.
"""

import collections
import math

POSSIBLE, CERTAIN = 1.5, 3.5
"""A slope of so many of its standard errors may be a drift, or is one."""
LONGEST = 300.0
"""Seconds: the slowest time constant of a warming machine that is looked for."""
MATERIAL = 0.002
"""A drift matters if it would change the step time by this ratio in LONGEST seconds at the pace it has."""
SETTLED = 0.0025
"""The warm-up ends if the step time would change by less than this ratio if it went on for ever."""
MORE = 0.25
"""By this part of what was run, more is run at a time."""
FEWEST, MOST = 8, 40
"""Of fewer steps no trend is tested; more points than this are averaged."""
AS_WELL = 3.84
"""A time constant fits as well as the best one if chi squared grows by no more (95 %, one degree of freedom)."""
TOLD = (-0.5, 1.0)
"""Between these ratios a drift is told. Further away is the end of an exponential that a second or two of scattered step times
can't tell: seen were ends of 100 times the step time, and ends below 0."""
TAUS = tuple(2.0 * 1.1**i for i in range(64))
"""Time constants that are tried, in seconds: 2 to 810."""

Trend = collections.namedtuple("Trend", "slope score")
"""Relative change of the step time per second, and how many of its standard errors it is."""

Decay = collections.namedtuple("Decay", "left most at end")
"""By which ratio the step time still changes after the last step; `most`: the largest such ratio of those time constants that
fit the step times about as well; `at(t)`: the step time at that time, in seconds; `end`: that in the end."""

Steady = collections.namedtuple("Steady", "windows flat drift")
"""The windows of the figure. Was no drift seen around them? None: too few steps to tell. By which ratio the step time in them
would still grow if the launch went on; None if no drift was seen, or if the steps don't tell (TOLD)."""


class Series:
    """The step times so far: `points` are (monotonic seconds, seconds of a step: the mean over the ranks)."""

    def __init__(self):
        self.points = []

    def add(self, ranks):
        """`ranks`: the records of a block, as measure.window gives them."""
        now = min(rank["start_monotonic_seconds"] for rank in ranks)
        for together in zip(*(rank["step_seconds"] for rank in ranks)):
            seconds = sum(together) / len(together)
            self.points.append((now + seconds / 2, seconds))
            now += seconds

    @property
    def seconds(self):
        """From the first step to the last one."""
        return self.points[-1][0] - self.points[0][0] if self.points else 0.0


def measure(series, cap_seconds, time_windows, more, tell):
    """Time windows that no drift falsifies, as far as `cap_seconds` of warm-up allow. Returns a Steady.

    `series`: the warm-up so far; all that is run is added. `time_windows()` times the windows and returns them, each as the
    records of its ranks. `more(seconds)` runs steps for about so long and returns their records, or None if it must not.
    `tell(records)` is called with all that belongs to the warm-up.
    """

    def go_on(seconds):
        ranks = more(min(seconds, cap_seconds - series.seconds)) if series.seconds < cap_seconds else None
        if ranks is not None:
            series.add(ranks)
            tell(ranks)
        return ranks is not None

    windows = _timed(series, time_windows)
    flat = _is_flat(series, go_on)
    if flat is not False:
        return Steady(windows, flat, None)
    if go_on(MORE * series.seconds):
        for ranks in windows:
            tell(ranks)
        while decay(series.points).most > SETTLED and go_on(MORE * series.seconds):
            pass
        windows = _timed(series, time_windows)
    found = decay(series.points)
    return Steady(windows, abs(found.left) <= SETTLED, _told(found, windows))


def _told(found, windows):
    """By which ratio the step time in the windows would still grow; None if the exponential doesn't tell."""
    during = _mean([found.at(time) for time, _ in _points_of(windows)])
    ratio = found.end / during - 1 if during > 0 else math.nan
    return ratio if TOLD[0] <= ratio <= TOLD[1] else None


def _timed(series, time_windows):
    windows = time_windows()
    for ranks in windows:
        series.add(ranks)
    return windows


def _points_of(windows):
    found = Series()
    for ranks in windows:
        found.add(ranks)
    return found.points


def _is_flat(series, go_on):
    """Runs more while a drift is possible but not certain; None if there are too few steps."""
    if len(series.points) < FEWEST:
        return None
    while True:
        found = trend(series.points)
        if abs(found.score) < POSSIBLE or abs(found.slope) * LONGEST < MATERIAL:
            return True
        if abs(found.score) > CERTAIN or not go_on(MORE * series.seconds):
            return False


def trend(points):
    """The straight line through the step times by least squares.

    Its standard error is that of the residuals, enlarged by their correlation with the next one: noise that lasts longer than
    a step is no trend (an AR(1) process; Wilks 1997, https://doi.org/10.1175/1520-0442(1997)010<0065:RHTFAF>2.0.CO;2).
    """
    points = thinned(points)
    times, values = [t for t, _ in points], [v for _, v in points]
    (_, slope), rest = _line(times, values)
    squares = sum(r * r for r in rest)
    middle = _mean(times)
    error = math.sqrt(squares / (len(points) - 2) / sum((t - middle) ** 2 for t in times))
    again = max(0.0, sum(a * b for a, b in zip(rest, rest[1:])) / squares) if squares else 0.0
    error *= math.sqrt((1 + again) / max(1 - again, 0.01))
    return Trend(slope / _mean(values), slope / error if error else math.copysign(math.inf, slope) if slope else 0.0)


def decay(points):
    """The exponential a + b exp(-t / tau) through the step times: least squares for each of TAUS, of which the best."""
    points = thinned(points)
    begin, last = points[0][0], points[-1][0]
    fits = []
    for tau in TAUS:
        (end, size), rest = _line([math.exp((begin - t) / tau) for t, _ in points], [v for _, v in points])
        left = end / (end + size * math.exp((begin - last) / tau)) - 1
        fits.append((sum(r * r for r in rest), left, tau, end, size))
    squares, left, tau, end, size = min(fits)
    limit = squares * (1 + AS_WELL / max(1, len(points) - 3))
    most = max(abs(one[1]) for one in fits if one[0] <= limit)
    return Decay(left, most, lambda time: end + size * math.exp((begin - time) / tau), end)


def thinned(points):
    """At most MOST points, each the mean of neighbours without the lowest and the highest tenth."""
    size = max(1, math.ceil(len(points) / MOST))
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    parts = parts[:-1] if len(parts) > 1 and len(parts[-1]) < size else parts
    return [(_mean([t for t, _ in part]), _trimmed([v for _, v in part])) for part in parts]


def _trimmed(values):
    cut = len(values) // 10
    return _mean(sorted(values)[cut : len(values) - cut])


def _line(xs, ys):
    """Least squares of y = a + b x: (a, b), and the residuals."""
    x, y = _mean(xs), _mean(ys)
    width = sum((one - x) ** 2 for one in xs)
    b = sum((one - x) * (other - y) for one, other in zip(xs, ys)) / width if width else 0.0
    return (y - b * x, b), [other - y - b * (one - x) for one, other in zip(xs, ys)]


def _mean(values):
    return sum(values) / len(values)
