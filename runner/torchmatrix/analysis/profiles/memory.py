"""The allocations of traced steps -> a line over time, short enough to be drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchmatrix.analysis.profiles.traces import Traced

MOST_POINTS = 600
"""A line of more points is drawn with the lowest and the highest of each stretch of time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes that tensors took, as (seconds since the steps began, bytes). On a CPU beyond what they took before.

    `peak`: the most of all points, also of those that are left out.
    """

    points: tuple[tuple[float, float], ...]
    peak: float
    of_device: bool


def memory_of(traced: Traced) -> Memory | None:
    """None where no allocation was traced."""
    if not traced.allocated:
        return None
    points = sorted(traced.allocated)
    least = 0.0 if traced.on_device else min(taken for _, taken in points)
    raised = [(seconds, taken - least) for seconds, taken in points]
    peak = max(taken for _, taken in raised)
    return Memory(points=tuple(_thinned(raised)), peak=peak, of_device=traced.on_device)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= MOST_POINTS:
        return list(points)
    size = -(-2 * len(points) // MOST_POINTS)
    parts = [points[first : first + size] for first in range(0, len(points), size)]
    ends = [(min(part, key=lambda one: one[1]), max(part, key=lambda one: one[1])) for part in parts]
    return [point for pair in ends for point in sorted(set(pair))]
