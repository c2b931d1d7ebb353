"""Computes how soon any gate could tell a slow-down: a bound for the gate of `make proof`.

    .venv/bin/python tests/bench/gate_bound.py --drop 0.02 --within 8

For a cell whose nights are independent and scatter by 1 %, after so many nights without a change, and with a false regression
beginning on 1 % of nights of 40 cells. Three answers: a test that knows the night of the change beforehand (Neyman and Pearson:
two-sample t), whose false alarms within these nights are those of as many nights; a rule that doesn't know it, but the level
and the scatter (CUSUM, optimal: G. V. Moustakides, Annals of Statistics 14 (1986), 1379-1387); and one that knows neither
(Shiryaev and Roberts' sum of likelihood ratios over all nights of a change, invariant in level and scatter).
"""

import argparse
from functools import cache

import numpy as np
from scipy.stats import nct, t

CELLS, FALSE = 40, 0.01
HAZARD = 1 - (1 - FALSE) ** (1 / CELLS)
"""Of a cell and night."""
OLDEST = 20
"""Nights that a change may be old, of those that are summed."""


def neyman_pearson(earlier: int, drop: float, within: int) -> float:
    """Power of the t test of `within` nights against the `earlier` ones; `drop` in standard deviations."""
    freedom = earlier + within - 2
    limit = t.isf(HAZARD * within, freedom)
    return float(nct.sf(limit, freedom, drop / np.sqrt(1 / earlier + 1 / within)))


def known_level(drop: float, within: int, cells: int, random: np.random.Generator) -> float:
    """Return the share that a CUSUM tells whose limit has the allowed false alarms."""
    quiet = _sums(random.normal(0, 1, (cells, 128)), drop)
    changed = random.normal(0, 1, (cells, 28 + within))
    changed[:, 28:] += drop
    return _share_above(quiet[:, 28:], _sums(changed, drop)[:, 28:])


def _sums(scores: np.ndarray, drop: float) -> np.ndarray:
    sums = np.zeros(scores.shape)
    for night in range(scores.shape[1]):
        sums[:, night] = np.maximum(0.0, (sums[:, night - 1] if night else 0.0) + scores[:, night] - drop / 2)
    return sums


def shiryaev_roberts(earlier: int, drop: float, within: int, cells: int, random: np.random.Generator) -> float:
    quiet = random.normal(0, 1, (cells, earlier + 32))
    changed = random.normal(0, 1, (cells, earlier + within))
    changed[:, earlier:] += drop
    return _share_above(_likelihoods(quiet, earlier, drop), _likelihoods(changed, earlier, drop))


def _likelihoods(nights: np.ndarray, earlier: int, drop: float) -> np.ndarray:
    """Return the logarithm of the sum for each night from `earlier` on."""
    columns = []
    for n in range(earlier + 1, nights.shape[1] + 1):
        each = [_ratio(nights[:, : n - m], nights[:, n - m : n], drop) for m in range(1, min(OLDEST, n - 2) + 1)]
        columns.append(np.logaddexp.reduce(each, axis=0))
    return np.stack(columns, axis=1)


def _ratio(before: np.ndarray, since: np.ndarray, drop: float) -> np.ndarray:
    """Return the density of the two-sample t if it lies `drop` higher since then, over that without a change; logarithm."""
    k, m = before.shape[1], since.shape[1]
    squares = before.var(axis=1) * k + since.var(axis=1) * m
    statistic = (since.mean(axis=1) - before.mean(axis=1)) / np.sqrt(squares / (k + m - 2) * (1 / k + 1 / m))
    scaled, logarithms = _table(k + m - 2, drop / np.sqrt(1 / k + 1 / m))
    interpolated: np.ndarray = np.interp(statistic / np.sqrt(statistic**2 + k + m - 2), scaled, logarithms)
    return interpolated


@cache
def _table(freedom: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Return, by w = t / √(t² + freedom), log E exp(shift · w · χ) - shift² / 2, χ of freedom + 1 degrees."""
    scaled, chi = np.linspace(-1, 1, 161), np.linspace(0.01, np.sqrt(freedom + 1) + 12, 1200)
    weights = freedom * np.log(chi) - chi**2 / 2
    sums = np.logaddexp.reduce(weights + shift * scaled[:, None] * chi, axis=1)
    return scaled, sums - np.logaddexp.reduce(weights) - shift**2 / 2


def _share_above(quiet: np.ndarray, changed: np.ndarray) -> float:
    """Return the share of `changed` that is ever above the lowest limit that false alarms exceed as rarely as allowed."""
    limits = np.quantile(quiet, np.linspace(0.99, 1.0, 400))
    rates = [np.mean((quiet[:, 1:] > limit) & (quiet[:, :-1] <= limit)) for limit in limits]
    limit = next(limit for limit, rate in zip(limits, rates, strict=True) if rate <= HAZARD)
    return float(np.mean((changed > limit).any(axis=1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--drop", type=float, default=0.02, help="at a scatter of 0.01")
    parser.add_argument("--within", type=int, default=8)
    parser.add_argument("--cells", type=int, default=8000)
    args = parser.parse_args()
    drop, random = args.drop / 0.01, np.random.default_rng(1)
    print(f"told within {args.within} nights:")
    print(f"level and scatter known: {known_level(drop, args.within, args.cells, random):.1%}")
    for earlier in (28, 56, 100):
        best = neyman_pearson(earlier, drop, args.within)
        summed = shiryaev_roberts(earlier, drop, args.within, args.cells, random)
        print(f"after {earlier} nights: {summed:.1%}; if the night of the change were known: {best:.1%}")


if __name__ == "__main__":
    main()
