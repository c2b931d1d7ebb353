"""Decide when a machine is steady, and so how long a launch warms up; pure Python, apart from what is timed (measure.py).

A device that gets warm slows down over seconds to minutes, and a figure taken meanwhile is too high. So the step times of the
warm-up and of the timed windows are one series, through which curves are fitted by least squares: none (the mean), one
exponential, two of them (a fast one may hide a slow one), and a step. If no curve fits better than the mean, the figure stands:
a machine that is flat from the start loses no time. Else more steps are run until a drift is no longer seen, or until it has
ended and a slower one can be excluded, or until the cap in seconds. If the windows lie in a drift, they become a part of the
warm-up and are timed anew. The drift that is left at the cap is reported.
"""

import collections
import math
import operator

POSSIBLE, STILL, CERTAIN = 1.8, 2.5, 4.0
"""Standard errors by which a curve is better than the mean if it may be a drift; if it may be one after more steps were run,
which show a drift better; if it is one. On a flat machine 13 % of launches of 16 s show 1.8, and none of 300 showed 4."""
TWO, STEP = 8.0, 9.0
"""Two exponentials, or a step, must lower chi squared by so much more: they have more freedom to fit noise."""
LONGEST = 300.0
"""Seconds: the slowest time constant of a warming machine that is looked for."""
SETTLED = 0.0025
"""A drift has ended if the step time would change by less than this ratio if it went on for ever."""
EXCLUDED = 0.007
"""A drift has ended only if, besides, no drift that fits the step times as well would change the step time by more than this
ratio, the slowest ones included."""
MORE = 0.25
"""Part of the time of all steps so far for which more steps are run at a time."""
FEWEST, MOST = 8, 40
"""Among fewer steps no drift is looked for; more points than this are averaged."""
AS_WELL = 2.71
"""A curve fits as well as the best one if chi squared grows by no more (90 %, one degree of freedom)."""
TOLD = (-0.5, 1.0)
"""Ratios between which a drift is reported. A ratio beyond them is the end of an exponential that a second or two of scattered
step times can't determine: seen were ends of 100 times the step time, and ends below 0."""
ALIKE = 1e-9
"""Two exponentials whose correlation is as near to 1 can't be told apart: in so short a time both are straight lines."""
TAUS = tuple(2.0 * 1.15**i for i in range(43))
"""Time constants that are tried, in seconds: 2 to 709."""
SLOW = (60.0, 100.0, 170.0, LONGEST)
"""Time constants of the slower of two exponentials; the faster one is at most a third of it."""

Decay = collections.namedtuple("Decay", "score left most at end begin")
"""`score`: by how many standard errors the best curve is better than the mean; `left`: by which ratio the step time still
changes after the last step; `most`: the largest such ratio of those curves that fit about as well; `at(t)`: the step time at
that time, in seconds; `end`: the step time in the end; `begin`: the time of the first step that the curve describes, since it
may describe only the newest ones."""

Steady = collections.namedtuple("Steady", "windows flat drift")
"""`windows` of the figure; `flat`: whether no drift was seen around them, or it has ended, None if the steps don't show it;
`drift`: the ratio by which the step time in them would still grow if the launch went on, None if they are flat, or if the steps
don't show it (TOLD)."""


class Series:
    """The step times so far: `points` are (monotonic seconds, seconds of a step: the mean over the ranks)."""

    def __init__(self):
        self.points = []

    def add(self, ranks):
        """Add the steps of a block. `ranks`: its records, as measure.window returns them."""
        now = min(rank["start_monotonic_seconds"] for rank in ranks)
        for together in zip(*(rank["step_seconds"] for rank in ranks)):
            seconds = sum(together) / len(together)
            self.points.append((now + seconds / 2, seconds))
            now += seconds

    @property
    def seconds(self):
        """Return the seconds from the first step to the last one."""
        return self.points[-1][0] - self.points[0][0] if self.points else 0.0


def measure(series, cap_seconds, time_windows, more, tell):
    """Time windows that no drift falsifies, as far as `cap_seconds` of warm-up allow. Return a Steady.

    `series`: the warm-up so far; all steps that are run are added. `time_windows()` times the windows and returns them, each as
    the records of its ranks. `more(seconds)` runs steps for about so long and returns their records, or None if it must not.
    `tell(records)` is called with the records of each block that belongs to the warm-up.
    """

    def go_on():
        left = cap_seconds - series.seconds
        ranks = more(min(MORE * series.seconds, left)) if left > 0 else None
        if ranks is not None:
            series.add(ranks)
            tell(ranks)
        return ranks is not None

    windows, are_last, limit = _add_windows(series, time_windows), True, POSSIBLE
    if len(series.points) < FEWEST:
        return Steady(windows, None, None)
    while True:
        curve = decay(series.points)
        is_over = abs(curve.left) <= SETTLED and curve.most <= EXCLUDED
        if curve.score < limit or (is_over and _are_settled(curve, windows)):
            return Steady(windows, True, None)
        if not is_over and go_on():
            are_last, limit = False, STILL
        elif are_last:
            return _judge_at_cap(curve, windows)
        else:
            for ranks in windows:
                tell(ranks)
            windows, are_last = _add_windows(series, time_windows), True


def _are_settled(curve, windows):
    """Check whether the step time in the windows is the step time in the end."""
    drift = _remaining_drift(curve, windows)
    return drift is not None and abs(drift) <= SETTLED


def _judge_at_cap(curve, windows):
    """Return a Steady of windows that may drift when nothing more can be run: a drift that is only possible isn't reported."""
    drift = _remaining_drift(curve, windows)
    is_left = drift is None or abs(drift) > SETTLED
    if curve.score > CERTAIN and is_left:
        return Steady(windows, False, drift)
    return Steady(windows, None if is_left or curve.most > EXCLUDED else True, None)


def _remaining_drift(curve, windows):
    """Return the ratio by which the step time in the windows would still grow; None if the curve doesn't determine it. Before
    the curve begins, the steps as timed stand for it."""
    during = _mean([curve.at(time) if time >= curve.begin else seconds for time, seconds in _list_points(windows)])
    ratio = curve.end / during - 1 if during > 0 else math.nan
    return ratio if TOLD[0] <= ratio <= TOLD[1] else None


def _add_windows(series, time_windows):
    windows = time_windows()
    for ranks in windows:
        series.add(ranks)
    return windows


def _list_points(windows):
    series = Series()
    for ranks in windows:
        series.add(ranks)
    return series.points


def decay(points):
    """Return the Decay of the curve through the step times; if none describes all of them, of the curve through the step times
    since the step, or through the newest half.
    """
    whole = _Fit(points)
    if whole.split is not None:
        since = [point for point in points if point[0] >= whole.split]
        curve = decay(since) if len(since) >= FEWEST else whole.decay._replace(most=math.inf)
        return curve._replace(score=max(whole.decay.score, curve.score))
    newest = points[len(points) // 2 :]
    if whole.decay.most > EXCLUDED or len(newest) < FEWEST:
        return whole.decay
    rest = _Fit(newest)
    curve, worse = rest.decay, rest.squares_from(whole.decay.at) - rest.squares
    if worse > CERTAIN**2 * rest.unit or (curve.score > POSSIBLE and abs(curve.left) > EXCLUDED):
        return curve._replace(score=max(whole.decay.score, curve.score), most=max(curve.most, abs(curve.left)))
    return whole.decay


_Curve = collections.namedtuple("_Curve", "squares fast slow left error")
"""`squares`: the sum of squares that the curve leaves; `fast` and `slow`: (time constant, size) of its exponentials; `left`:
the ratio by which it still changes after the last point; `error`: the standard error of `left` for scatter of 1."""

_Column = collections.namedtuple("_Column", "values mean last square product")
"""`values`: exp(-t / tau) of each point, less the `mean`; `last`: exp(-t / tau) of the last point; the sums of the squares of
`values` and of their products with the step times."""


class _Fit:
    """Some points and the curves through them. `decay`: the best curve, a Decay; `squares`: the sum of squares that it leaves.

    `split`: the time since which the step time is another, if a step describes the points best; else None. `unit`: the variance
    of a point, enlarged by the correlation of each residual with the next, since noise that lasts longer than a point is no
    drift (an AR(1) process; Wilks 1997, https://doi.org/10.1175/1520-0442(1997)010<0065:RHTFAF>2.0.CO;2).
    """

    def __init__(self, points):
        self._points = thinned(points)
        self._begin, self._mean = self._points[0][0], _mean([value for _, value in self._points])
        self._values = [value - self._mean for _, value in self._points]
        self._square = _dot(self._values, self._values)
        self._columns = {tau: self._column(tau) for tau in TAUS + SLOW}
        single = min(self._fit_one(tau) for tau in TAUS)
        pairs = [self._fit_two(fast, slow) for slow in SLOW for fast in TAUS[::2] if 3 * fast <= slow]
        pair, (step, place) = min(pairs), self._fit_step()
        _, at = self._evaluate(min(single, pair))
        rest = (
            self._residuals(place) if step < min(single, pair).squares else [value - at(time) for time, value in self._points]
        )
        self.unit = _dot(rest, rest) / (len(rest) - 3) * _variance_factor(rest)
        lower = self._gain(single.squares), self._gain(pair.squares) - TWO, self._gain(step) - STEP
        is_step = lower[2] == max(lower) and lower[2] > CERTAIN**2
        self.split = self._points[place][0] if is_step else None
        best = pair if lower[1] > lower[0] else single
        self.squares, (end, at) = best.squares, self._evaluate(best)
        most = max(self._most(other, pair) for other in pairs if other.squares <= pair.squares + AS_WELL * self.unit)
        self.decay = Decay(math.sqrt(max(0.0, *lower)), best.left, most, at, end, self._begin)

    def squares_from(self, at):
        """Return the sum of squares that another curve leaves of these points."""
        return sum((value - at(time)) ** 2 for time, value in self._points)

    def _gain(self, squares):
        return (self._square - squares) / self.unit if self.unit else 0.0

    def _most(self, pair, best):
        return abs(pair.left) + math.sqrt(AS_WELL * self.unit + best.squares - pair.squares) * pair.error

    def _column(self, tau):
        raw = [math.exp((self._begin - time) / tau) for time, _ in self._points]
        mean = _mean(raw)
        values = [value - mean for value in raw]
        return _Column(values, mean, raw[-1], _dot(values, values), _dot(values, self._values))

    def _fit_one(self, tau):
        """Fit one exponential."""
        x = self._columns[tau]
        size = x.product / x.square
        return _Curve(self._square - size * x.product, (tau, size), (LONGEST, 0.0), self._left((x, size)), 0.0)

    def _fit_two(self, fast, slow):
        """Fit two exponentials: solve the normal equations."""
        x, y = self._columns[fast], self._columns[slow]
        both = _dot(x.values, y.values)
        root = x.square * y.square - both * both
        if root <= ALIKE * x.square * y.square:
            return self._fit_one(fast)._replace(error=math.inf)
        a, b = (x.product * y.square - y.product * both) / root, (y.product * x.square - x.product * both) / root
        error = (
            math.sqrt(max(0.0, x.last**2 * y.square - 2 * x.last * y.last * both + y.last**2 * x.square) / root) / self._mean
        )
        squares = self._square - a * x.product - b * y.product
        return _Curve(squares, (fast, a), (slow, b), self._left((x, a), (y, b)), error)

    def _left(self, *parts):
        end = self._mean - sum(size * column.mean for column, size in parts)
        now = end + sum(size * column.last for column, size in parts)
        return end / now - 1 if now else math.inf

    def _evaluate(self, curve):
        """Return the end of a curve, and the curve as a function of the time."""
        (fast, a), (slow, b) = curve.fast, curve.slow
        end, begin = self._mean - a * self._columns[fast].mean - b * self._columns[slow].mean, self._begin
        return end, lambda time: end + a * math.exp((begin - time) / fast) + b * math.exp((begin - time) / slow)

    def _fit_step(self):
        """Fit a step with three points or more on each side; return the sum of squares that the best leaves, and its place."""
        number, total, gains = len(self._values), 0.0, []
        for place, value in enumerate(self._values[:-3], 1):
            total += value
            gains += [(total * total * number / (place * (number - place)), place)] if place >= 3 else []
        gain, place = max(gains)
        return self._square - gain, place

    def _residuals(self, place):
        """Return what a step at `place` leaves of each point."""
        parts = self._values[:place], self._values[place:]
        return [value - _mean(part) for part in parts for value in part]


def _variance_factor(rest):
    """Return the factor by which correlation with the next residual enlarges the variance. So few points estimate the
    correlation too low, which is corrected.
    """
    number, squares = len(rest), _dot(rest, rest)
    correlation = _dot(rest, rest[1:]) / squares if squares else 0.0
    correlation = max(0.0, (number * correlation + 1) / (number - 3))
    return (1 + correlation) / max(1 - correlation, 0.1)


def _dot(xs, ys):
    return sum(map(operator.mul, xs, ys))


def thinned(points):
    """Average the points to at most MOST, each the mean of neighbours without the lowest and the highest tenth."""
    size = max(1, math.ceil(len(points) / MOST))
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    parts = parts[:-1] if len(parts) > 1 and len(parts[-1]) < size else parts
    return [(_mean([t for t, _ in part]), _trimmed([v for _, v in part])) for part in parts]


def _trimmed(values):
    cut = len(values) // 10
    return _mean(sorted(values)[cut : len(values) - cut])


def _mean(values):
    return sum(values) / len(values)
