"""Does a series of readings go up or down? A straight line through them, and whether scatter alone would give it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torchmatrix.analysis.centers import mean_of

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
