"""What no other combination beats: the cells for which none is faster at no more latency, memory or energy (V. Pareto)."""

import math

from torchmatrix.analysis.cube.points import Point, Points
from torchmatrix.analysis.metrics import Metric


def front_of(points: Points, cost: Metric) -> list[Point]:
    """Of the measured cells whose cost is known, those that no other beats in one without being worse in the other.

    The cheapest first; each is faster than the one before.
    """
    known = [point for point in points.measured if not math.isnan(point.costs[cost.column])]
    found: list[Point] = []
    for point in sorted(known, key=lambda one: (one.costs[cost.column], -one.speed)):
        if not found or point.speed > found[-1].speed:
            found.append(point)
    return found
