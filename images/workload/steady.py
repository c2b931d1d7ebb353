"""When is a machine steady? What decides how long a launch warms up; pure Python, apart from what is timed (measure.py).

A device that gets warm slows down over seconds to minutes, and a figure taken meanwhile is too high. So the step times of the
warm-up and of the timed windows are one series, through which curves are fitted by least squares: none (the mean), one
exponential, two of them (a fast one may hide a slow one), and a step. If no curve fits better than the mean, the figure stands:
a machine that is flat from the start loses no time. Else more steps are run until a drift is no longer seen, or until it has
ended and a slower one can be excluded, or until the cap in seconds. If the windows lie in a drift, they become a part of the
warm-up and are timed anew. What is left of a drift at the cap is told.
"""

import collections
import math
import operator

POSSIBLE, STILL, CERTAIN = 1.8, 2.5, 4.0
"""A curve that is so many standard errors better than the mean may be a drift; may be one after more was run, which shows a
drift better; is one. On a flat machine 13 % of launches of 16 s show 1.8, and none of 300 showed 4."""
TWO, STEP = 8.0, 9.0
"""By so much more must two exponentials, or a step, lower chi squared: they have more freedom to fit noise."""
LONGEST = 300.0
"""Seconds: the slowest time constant of a warming machine that is looked for."""
SETTLED = 0.0025
"""A drift has ended if the step time would change by less than this ratio if it went on for ever."""
EXCLUDED = 0.007
"""And if no drift that fits the step times as well would change it by more than this, the slowest ones included."""
MORE = 0.25
"""By this part of what was run, more is run at a time."""
FEWEST, MOST = 8, 40
"""Of fewer steps no drift is looked for; more points than this are averaged."""
AS_WELL = 2.71
"""A curve fits as well as the best one if chi squared grows by no more (90 %, one degree of freedom)."""
TOLD = (-0.5, 1.0)
"""Between these ratios a drift is told. Further away is the end of an exponential that a second or two of scattered step times
can't tell: seen were ends of 100 times the step time, and ends below 0."""
ALIKE = 1e-9
"""Two exponentials whose correlation is as near to 1 can't be told apart: in so short a time both are straight lines."""
TAUS = tuple(2.0 * 1.15**i for i in range(43))
"""Time constants that are tried, in seconds: 2 to 709."""
SLOW = (60.0, 100.0, 170.0, LONGEST)
"""Time constants of the slower of two exponentials; the faster one is at most a third of it."""

Decay = collections.namedtuple("Decay", "score left most at end begin")
"""`score`: by how many standard errors the best curve is better than the mean; `left`: by which ratio the step time still
changes after the last step; `most`: the largest such ratio of those curves that fit about as well; `at(t)`: the step time at
that time, in seconds; `end`: that in the end; `begin`: of the steps that the curve describes, the newest ones if not all."""

Steady = collections.namedtuple("Steady", "windows flat drift")
"""The windows of the figure. Was no drift seen around them, or has it ended? None: the steps don't tell. By which ratio the
step time in them would still grow if the launch went on; None if they are flat, or if the steps don't tell (TOLD)."""


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

    def go_on():
        left = cap_seconds - series.seconds
        ranks = more(min(MORE * series.seconds, left)) if left > 0 else None
        if ranks is not None:
            series.add(ranks)
            tell(ranks)
        return ranks is not None

    windows, are_last, limit = _timed(series, time_windows), True, POSSIBLE
    if len(series.points) < FEWEST:
        return Steady(windows, None, None)
    while True:
        found = decay(series.points)
        is_over = abs(found.left) <= SETTLED and found.most <= EXCLUDED
        if found.score < limit or (is_over and _are_after(found, windows)):
            return Steady(windows, True, None)
        if not is_over and go_on():
            are_last, limit = False, STILL
        elif are_last:
            return _drifting(found, windows)
        else:
            for ranks in windows:
                tell(ranks)
            windows, are_last = _timed(series, time_windows), True


def _are_after(found, windows):
    """Whether the step time in the windows is that in the end."""
    drift = _told(found, windows)
    return drift is not None and abs(drift) <= SETTLED


def _drifting(found, windows):
    """A Steady of what may drift when nothing more can be run: what is only possible isn't told."""
    drift = _told(found, windows)
    is_left = drift is None or abs(drift) > SETTLED
    if found.score > CERTAIN and is_left:
        return Steady(windows, False, drift)
    return Steady(windows, None if is_left or found.most > EXCLUDED else True, None)


def _told(found, windows):
    """By which ratio the step time in the windows would still grow; None if the curve doesn't tell. Before it begins, the steps
    as timed stand for it."""
    during = _mean([found.at(time) if time >= found.begin else seconds for time, seconds in _points_of(windows)])
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


def decay(points):
    """The curve through the step times; if none describes all, that through those since the step, or the newest half."""
    whole = _Fit(points)
    if whole.split is not None:
        since = [point for point in points if point[0] >= whole.split]
        found = decay(since) if len(since) >= FEWEST else whole.found._replace(most=math.inf)
        return found._replace(score=max(whole.found.score, found.score))
    newest = points[len(points) // 2 :]
    if whole.found.most > EXCLUDED or len(newest) < FEWEST:
        return whole.found
    rest = _Fit(newest)
    found, worse = rest.found, rest.squares_from(whole.found.at) - rest.squares
    if worse > CERTAIN**2 * rest.unit or (found.score > POSSIBLE and abs(found.left) > EXCLUDED):
        return found._replace(score=max(whole.found.score, found.score), most=max(found.most, abs(found.left)))
    return whole.found


_Curve = collections.namedtuple("_Curve", "squares fast slow left error")
"""The sum of squares that it leaves; (time constant, size) of its exponentials; by which ratio it still changes after the last
point, and that number's standard error for scatter of 1."""

_Column = collections.namedtuple("_Column", "values mean last square product")
"""exp(-t / tau) of each point, less the mean; that of the last point; the sums of its squares and of its products with the step
times."""


class _Fit:
    """Some points and the curves through them: `found` is what they show, a Decay; `squares`: what its curve leaves.

    `split`: since when the step time is another one, if a step describes the points best; else None. `unit`: the variance of a
    point, enlarged by the residuals' correlation with the next one, since noise that lasts longer than a point is no drift
    (an AR(1) process; Wilks 1997, https://doi.org/10.1175/1520-0442(1997)010<0065:RHTFAF>2.0.CO;2).
    """

    def __init__(self, points):
        self._points = thinned(points)
        self._begin, self._mean = self._points[0][0], _mean([value for _, value in self._points])
        self._values = [value - self._mean for _, value in self._points]
        self._square = _dot(self._values, self._values)
        self._columns = {tau: self._column(tau) for tau in TAUS + SLOW}
        one = min(self._one(tau) for tau in TAUS)
        pairs = [self._two(fast, slow) for slow in SLOW for fast in TAUS[::2] if 3 * fast <= slow]
        two, (step, place) = min(pairs), self._step()
        _, at = self._curve(min(one, two))
        rest = self._beside(place) if step < min(one, two).squares else [value - at(time) for time, value in self._points]
        self.unit = _dot(rest, rest) / (len(rest) - 3) * _widening(rest)
        lower = self._gain(one.squares), self._gain(two.squares) - TWO, self._gain(step) - STEP
        is_step = lower[2] == max(lower) and lower[2] > CERTAIN**2
        self.split = self._points[place][0] if is_step else None
        best = two if lower[1] > lower[0] else one
        self.squares, (end, at) = best.squares, self._curve(best)
        most = max(self._most(pair, two) for pair in pairs if pair.squares <= two.squares + AS_WELL * self.unit)
        self.found = Decay(math.sqrt(max(0.0, *lower)), best.left, most, at, end, self._begin)

    def squares_from(self, at):
        """What the points leave of another curve."""
        return sum((value - at(time)) ** 2 for time, value in self._points)

    def _gain(self, squares):
        return (self._square - squares) / self.unit if self.unit else 0.0

    def _most(self, pair, best):
        return abs(pair.left) + math.sqrt(AS_WELL * self.unit + best.squares - pair.squares) * pair.error

    def _column(self, tau):
        raw = [math.exp((self._begin - time) / tau) for time, _ in self._points]
        mean = _mean(raw)
        values = [one - mean for one in raw]
        return _Column(values, mean, raw[-1], _dot(values, values), _dot(values, self._values))

    def _one(self, tau):
        """One exponential."""
        x = self._columns[tau]
        size = x.product / x.square
        return _Curve(self._square - size * x.product, (tau, size), (LONGEST, 0.0), self._left((x, size)), 0.0)

    def _two(self, fast, slow):
        """Two exponentials: the normal equations, solved."""
        x, y = self._columns[fast], self._columns[slow]
        both = _dot(x.values, y.values)
        root = x.square * y.square - both * both
        if root <= ALIKE * x.square * y.square:
            return self._one(fast)._replace(error=math.inf)
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

    def _curve(self, curve):
        """Its end, and it as a function of the time."""
        (fast, a), (slow, b) = curve.fast, curve.slow
        end, begin = self._mean - a * self._columns[fast].mean - b * self._columns[slow].mean, self._begin
        return end, lambda time: end + a * math.exp((begin - time) / fast) + b * math.exp((begin - time) / slow)

    def _step(self):
        """The best step, with three points or more on each side: the sum of squares that it leaves, and where it is."""
        number, total, found = len(self._values), 0.0, []
        for place, value in enumerate(self._values[:-3], 1):
            total += value
            found += [(total * total * number / (place * (number - place)), place)] if place >= 3 else []
        gain, place = max(found)
        return self._square - gain, place

    def _beside(self, place):
        """What a step there leaves of each point."""
        parts = self._values[:place], self._values[place:]
        return [value - _mean(part) for part in parts for value in part]


def _widening(rest):
    """By which factor correlation with the next one enlarges the variance; what so few points tell of it is too low."""
    number, squares = len(rest), _dot(rest, rest)
    again = _dot(rest, rest[1:]) / squares if squares else 0.0
    again = max(0.0, (number * again + 1) / (number - 3))
    return (1 + again) / max(1 - again, 0.1)


def _dot(xs, ys):
    return sum(map(operator.mul, xs, ys))


def thinned(points):
    """At most MOST points, each the mean of neighbours without the lowest and the highest tenth."""
    size = max(1, math.ceil(len(points) / MOST))
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    parts = parts[:-1] if len(parts) > 1 and len(parts[-1]) < size else parts
    return [(_mean([t for t, _ in part]), _trimmed([v for _, v in part])) for part in parts]


def _trimmed(values):
    cut = len(values) // 10
    return _mean(sorted(values)[cut : len(values) - cut])


def _mean(values):
    return sum(values) / len(values)
