"""Find the centre of a few figures (median or mean) and how far it may be off; without NumPy for few figures."""

import math
from collections.abc import Sequence

WIDENING = {
    2: 1.000, 3: 1.025, 4: 1.029, 5: 1.104, 6: 1.084, 7: 1.156, 8: 1.122, 9: 1.179, 10: 1.147, 11: 1.189,
    12: 1.160, 13: 1.212, 14: 1.174, 15: 1.214, 16: 1.178, 17: 1.216, 18: 1.188, 19: 1.221, 20: 1.190,
}  # fmt: skip
"""By n: the factor by which Student's 95 % interval must be wider for the median of n normal figures than for their mean.

(median - truth) / (s / √n) is (mean - truth) / (s / √n), which has Student's distribution, plus D = √n (median - mean) / s,
which is independent of it (D. Basu, Sankhyā 15 (1955), 377-380). The factor is the quantile of the sum over Student's; from
n = 5 on the slightly larger one of the difference of two medians (Welch). tests/analysis/test_simulation.py checks both.
"""


OF_NORMAL = {
    2: 1.000, 3: 1.160, 4: 1.092, 5: 1.198, 6: 1.135, 7: 1.214, 8: 1.160, 9: 1.223, 10: 1.176, 11: 1.228,
    12: 1.188, 13: 1.232, 14: 1.196, 15: 1.235, 16: 1.203, 17: 1.237, 18: 1.208, 19: 1.239, 20: 1.212,
}  # fmt: skip
"""By n: the standard deviation of the median of n normal figures over that of their mean (integrated). It widens an interval
whose scatter is not that of the n figures alone: then the median's distance from the mean says nothing about the scatter."""


WIDENING_AT_MOST = math.sqrt(math.pi / 2)
"""For large n (P. S. Laplace, 1818)."""


def central(values: Sequence[float], statistic: str = "median") -> float:
    """Return the median or the mean."""
    return mean_of(values) if statistic == "mean" else median_of(values)


_FEW = 8
"""For fewer values than this numpy adds one after the other, as Python does, but takes ten times as long."""


def mean_of(values: Sequence[float]) -> float:
    """Return the mean of one value or more, to the last bit as numpy computes it."""
    if len(values) < _FEW:
        return _total(values) / len(values)
    import numpy as np

    return float(np.mean(values))


def median_of(values: Sequence[float]) -> float:
    """Return the median of one value or more, to the last bit as numpy computes it."""
    if len(values) >= _FEW or not all(value == value for value in values):
        import numpy as np

        return float(np.median(values))
    ordered, middle = sorted(values), len(values) // 2
    return float(ordered[middle]) if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def variance_of(values: Sequence[float]) -> float:
    """Return the sample variance of two values or more, to the last bit as numpy computes it."""
    if len(values) >= _FEW:
        import numpy as np

        return float(np.var(values, ddof=1))
    mean = mean_of(values)
    return _total([(value - mean) * (value - mean) for value in values]) / (len(values) - 1)


def _total(values: Sequence[float]) -> float:
    """Add the values from left to right: since Python 3.12 `sum` rounds otherwise."""
    total = 0.0
    for value in values:
        total += value
    return total


def widening(n: int) -> float:
    """Return the error of the median of n figures over that of their mean (see WIDENING)."""
    return WIDENING.get(n, WIDENING_AT_MOST)


def of_normal(n: int) -> float:
    """Return the same ratio where the scatter is known from elsewhere (see OF_NORMAL)."""
    return OF_NORMAL.get(n, WIDENING_AT_MOST)


def squared_error(values: Sequence[float], statistic: str = "median") -> float:
    """Return the squared error of the centre of two values or more.

    It is the sample variance over n; for a median times the square of `widening`.
    """
    of_mean = variance_of(values) / len(values)
    return of_mean if statistic == "mean" else of_mean * widening(len(values)) ** 2
