"""A cube: cells of one job whose settings were varied together. What does each setting do, which combination is the best?

In: the rows of launches (launch_row.py). Out: Cube, one for each job. Begin with points.py, which says what a cube is; then
effects.py (each setting alone), interactions.py (settings in pairs), path.py (the best, and the cheap way to it) and front.py
(what no other combination beats).

All ratios are of speed: of throughputs the ratio, of latencies its inverse, so that more than 1 is better.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torchmatrix.analysis.column import Row
from torchmatrix.analysis.cube.effects import Effect, effects_of
from torchmatrix.analysis.cube.interactions import Interactions, interactions_of
from torchmatrix.analysis.cube.path import Best, best_of
from torchmatrix.analysis.cube.points import Points, points_of
from torchmatrix.analysis.metrics import THROUGHPUT, Metric


@dataclass(frozen=True, kw_only=True, slots=True)
class Cube:
    """One job. `effects`: of each setting over the usual one; `best`: None if nothing was measured."""

    points: Points
    effects: tuple[Effect, ...]
    interactions: Interactions
    best: Best | None


def cubes_of(rows: Iterable[Row], metric: Metric = THROUGHPUT) -> list[Cube]:
    """The cubes among the launches of one machine, in the order in which their jobs first appear."""
    return [
        Cube(points=one, effects=effects_of(one), interactions=interactions_of(one), best=best_of(one))
        for one in points_of(rows, metric)
    ]
