"""Learn from the nights of all cells: how alike neighbouring nights are, how far limits lie, how many slow nights count."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from torchmatrix.analysis import intervals
from torchmatrix.analysis.special import bdtrc, ndtr

Array = np.ndarray[Any, Any]
"""Numbers or flags: a row is a cell's figure, a column a night."""

FALSE = 1 / 375
"""The chance that any judged cell lies below its limit on two nights in a row although none changed.

For one of 40 cells 1 / 15,000, more for one of fewer: C. E. Bonferroni's bound."""
RECENT, LEAST = 10, 4
"""Slow nights that are not in a row are counted among the last RECENT nights; fewer than LEAST are never a regression."""
_SLOW_BEFORE, _SLACK = 100, 4.0
"""The share of slow nights is learned as if _SLOW_BEFORE more nights had been slow as rarely as the limits intend. A
regression needs so many in a row that chance makes them less than _SLACK times as often as two nights below the limits."""
_ALIKE, _TOO_LOW, _FEW, _MOST_ALIKE = 1.1, 3.0, 10, 0.8
"""n pairs of neighbours show a correlation that is too low by 1 / (_ALIKE (1 + _TOO_LOW / n)): simulated, since what a night
is off contains the median of the seven before it. _FEW independent pairs are added; more than _MOST_ALIKE is not
believed."""
_NOTHING = 1e-20
"""A part of an integral that is smaller than this share of the largest is left out: a sum of numbers doesn't see it."""
_FREEDOMS = np.geomspace(1.0, 1000.0, 25)
_LOGS = np.log(_FREEDOMS)


def moderate(variances: Array, freedoms: Array, enough: Array) -> tuple[Array, Array]:
    """Return each cell's variance, moderated by those of the cells with `enough` nights, and its degrees of freedom.

    See analysis/intervals.py. `freedoms`: at least 1.
    """
    prior = intervals.learned_prior(variances[enough].tolist(), freedoms[enough].tolist())
    return np.array(list(map(prior.moderated, variances, freedoms)), dtype=float), freedoms + prior.freedom


def likeness(errors: Array, kept: Array) -> Array:
    """Estimate how much a night resembles the next one: each cell's correlation (r of an AR(1) process), 0 to _MOST_ALIKE.

    A cell's correlation is drawn to that of all cells as far as cells differ by no more than n pairs of nights scatter by
    themselves (by the variance 1 / n; M. S. Bartlett, Journal of the Royal Statistical Society B 8 (1946), 27-41). `errors`:
    how far each night was off; `kept`: which of them count.
    """
    both, each = kept[:, 1:] & kept[:, :-1], np.where(kept, errors, 0.0)
    squares = (each**2).sum(axis=1) / np.maximum(1, kept.sum(axis=1))
    measurable = both.any(axis=1) & (squares > 0)
    pairs = np.maximum(1, both.sum(axis=1))
    scale = _ALIKE * (1 + _TOO_LOW / pairs)
    products = scale * (each[:, 1:] * each[:, :-1] * both).sum(axis=1) / np.where(measurable, squares, np.inf)
    of_all, error = float(products.sum()) / (float(pairs[measurable].sum()) + _FEW), scale**2 / pairs
    differences = np.where(measurable, products / pairs - of_all, 0.0)
    spread = max(0.0, float((differences**2 - error)[measurable].mean())) if measurable.sum() > 2 else 0.0
    return np.asarray(of_all + differences * spread / (spread + error)).clip(0.0, _MOST_ALIKE)


def factors(freedoms: Array, v: Array, alike: Array, cells: int) -> Array:
    """Return `factor` for each cell, with its correlation in steps of 0.1, interpolated between degrees of freedom."""
    limits, alike, logs = np.empty(len(v)), alike.round(1), np.log(freedoms)
    for variance, correlation in set(zip(v.tolist(), alike.tolist(), strict=True)):
        alike_rows, table = (v == variance) & (alike == correlation), np.full(len(_FREEDOMS), math.nan)
        after = np.searchsorted(_LOGS, logs[alike_rows], "right")
        for place in set(np.clip([after - 1, after], 0, len(table) - 1).ravel().tolist()):  # only those interpolated between
            table[place] = factor(float(_FREEDOMS[place]), variance, correlation, FALSE / cells)
        limits[alike_rows] = np.exp(np.interp(logs[alike_rows], _LOGS, np.log(table)))
    return limits


@lru_cache(maxsize=8192)
def factor(freedom: float, v: float, alike: float = 0.0, chance: float = FALSE) -> float:
    """Return k such that two nights in a row both lie below m - k · s · √(1 + v) by `chance`.

    m is off the true value by the root of v, s is the root of a chi-square over its `freedom`, both are the same on the two
    nights, and these resemble each other by `alike`: Student's t in two dimensions with the correlation (v + alike) / (1 + v)
    (C. W. Dunnett, M. Sobel, Biometrika 41 (1954), 153-169), integrated over s and what the nights share.
    """
    log_s, shared = np.linspace(-7, 1.6, 201)[:, None], np.linspace(-6, 6, 31)[None, :]
    s, correlation = np.exp(log_s), (v + alike) / (1 + v)
    weights = np.exp(freedom * (log_s - s**2 / 2) - shared**2 / 2)
    counts = weights.max(axis=1) > _NOTHING * weights.max()
    s, weights = s[counts], weights[counts]
    low, high = 0.0, 1000.0
    for _ in range(30):
        k = (low + high) / 2
        both = ndtr((shared * math.sqrt(correlation) - k * s) / math.sqrt(1 - correlation)) ** 2
        low, high = (k, high) if float((weights * both).sum() / weights.sum()) > chance else (low, k)
    return high


def needed(slow: int, nights: int, cells: int) -> tuple[int, int]:
    """Return how many slow nights in a row make a regression, and how many of RECENT ones that are not in a row.

    Two, and LEAST; more where single nights were slow and passed so often (`slow` of `nights`, of all cells together) that
    these come by chance, too.
    """
    chance = FALSE / cells
    share = (slow + _SLOW_BEFORE * math.sqrt(chance)) / (nights + _SLOW_BEFORE)
    in_a_row = max(2, math.ceil(math.log(_SLACK * chance) / math.log(share)))
    return in_a_row, next((k for k in range(LEAST, RECENT) if bdtrc(k - 1, RECENT, share) <= chance), RECENT)
