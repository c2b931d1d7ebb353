"""Scatter of one cell, with what the other cells of its run tell of it.

Three launches hardly know how much they scatter; the forty cells of their run know it together. Empirical Bayes: the variances
of the cells' logarithms are taken to be drawn from s0² · d0 / χ²(d0), so that a sample variance with d degrees of freedom over
s0² has Fisher's F distribution with d and d0. A cell's moderated variance is (d0 s0² + d s²) / (d0 + d), and a test of it has
the d0 more degrees of freedom: G. K. Smyth, Statistical Applications in Genetics and Molecular Biology 3 (2004), article 3.

d0 is not the likeliest one, which is infinite in half of all runs whose cells scatter alike: how differently cells scatter is
averaged over what their variances leave possible, so that few cells count for little by themselves. `make proof` simulates it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from scipy.special import gammaln, polygamma

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
UNLIKE = np.linspace(0.05, 3.0, 30)
"""How differently cells may scatter: the standard deviation of the logarithm of their true variances, each as likely before."""
_AROUND = np.linspace(-3.0, 3.0, 49)
"""Where s0² is looked for: the logarithm of its ratio to the median of the variances."""
_LEAST = 1e-5
"""A variance counts for no less than this share of the median (as in limma's fitFDist): launches that are equal by rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """What the other cells tell of a cell's variance: it is about `variance` (of logarithms), as if `freedom` launches more had
    shown that. No freedom: nothing is known."""

    freedom: float = 0.0
    variance: float = math.nan

    def moderated(self, variance: float, freedom: float) -> float:
        """The variance of a cell whose own launches have shown this one, with so many degrees of freedom."""
        if not self.freedom:
            return variance
        return (self.freedom * self.variance + freedom * variance) / (self.freedom + freedom)


NO_PRIOR = Prior()


def learned(variances: Sequence[float], freedoms: Sequence[float]) -> Prior:
    """Of the sample variances of a run's cells. Of two cells or fewer, or where most don't scatter at all, nothing is learned.

    What a pair learns comes from the other cells: of G cells d0 counts (G - 2) / G, and never for more than all launches.
    """
    cells, middle = len(variances), float(np.median(variances)) if len(variances) else 0.0
    if cells <= 2 or middle <= 0.0:
        return NO_PRIOR
    found, freedom = np.maximum(variances, _LEAST * middle), np.asarray(freedoms, dtype=float)
    likely = _likelihood(np.log(found / middle), freedom)
    unlike = float(likely.sum(axis=1) @ UNLIKE)
    nearest = likely[int(np.abs(UNLIKE - unlike).argmin())]
    variance = middle * math.exp(float(nearest @ _AROUND) / float(nearest.sum()))
    d0 = min(_prior_freedom(unlike), float(freedom.sum()))
    return Prior(freedom=d0 * (cells - 2) / cells, variance=variance)


def _likelihood(logs: Numbers, freedom: Numbers) -> Numbers:
    """By UNLIKE and _AROUND, of all cells together; the sum is 1."""
    away = logs - _AROUND[:, None]
    found = np.empty((len(UNLIKE), len(_AROUND)))
    for place, d0 in enumerate(map(_prior_freedom, UNLIKE)):
        fixed = gammaln((freedom + d0) / 2) - gammaln(d0 / 2) + freedom / 2 * np.log(freedom / d0)
        each = fixed + freedom / 2 * away - (freedom + d0) / 2 * np.log1p(freedom / d0 * np.exp(away))
        found[place] = each.sum(axis=1)
    likely = np.exp(found - found.max())
    return np.asarray(likely / likely.sum())


@lru_cache(maxsize=256)
def _prior_freedom(unlike: float) -> float:
    """d0 of cells whose log variances have this standard deviation: the trigamma function of d0 / 2 is its square.

    By Newton's method on its inverse, which is nearly straight (Smyth 2004, appendix).
    """
    wanted = unlike**2
    half = 0.5 + 1 / wanted
    for _ in range(20):
        now = float(polygamma(1, half))
        half += now * (1 - now / wanted) / float(polygamma(2, half))
    return 2 * half
