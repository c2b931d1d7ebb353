"""Whether successive launches of a cell resemble each other, beyond what the whole machine did from round to round.

The statistic is J. von Neumann's (Ann. Math. Statist. 12 (1941), 367-395): the sum of the squares of successive differences
over that of the deviations is 2 on average for n figures in random order, with a variance of 4 (n - 2) / (n² - 1) for normal
ones. It is added up over all cells of a run, once the effect of each round is taken out, which interleaved cells share and
which falls out of their ratios.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from torchmatrix.analysis.special import ndtri

CHANCE = 0.01
"""The chance that a run of independent launches is marked; simulated: 1 to 3 % (tests/analysis/test_successive.py)."""
FEWEST_CELLS, FEWEST_ROUNDS = 5, 3
_PASSES, _MOST = 3, 4.0
"""How often the rounds' effects are estimated, with cells weighted by their scatter, by so many times the median at most."""
_ROUNDING = 1e-20
"""A sum of squares below is no scatter."""


def resemble(cells: Sequence[Mapping[tuple[str, int], float]]) -> bool:
    """Check whether successive launches resemble each other. `cells`: the logarithm of each launch's figure by run and round.

    Only cells with the rounds that most cells have are looked at; fewer than FEWEST_CELLS or FEWEST_ROUNDS show nothing.
    """
    rounds = Counter(tuple(sorted(cell)) for cell in cells if len(cell) >= FEWEST_ROUNDS and len(set(cell.values())) > 1)
    if not rounds or rounds.most_common(1)[0][1] < FEWEST_CELLS:
        return False
    (common, number), n = rounds.most_common(1)[0], len(rounds.most_common(1)[0][0])
    logs = np.array([[cell[place] for place in common] for cell in cells if tuple(sorted(cell)) == common], dtype=float)
    logs -= logs.mean(axis=1, keepdims=True)
    effect = logs.mean(axis=0)
    for _ in range(_PASSES):
        weights = 1 / np.maximum(np.var(logs - effect, axis=1, keepdims=True), _ROUNDING)
        weights = np.minimum(weights, _MOST * np.median(weights))
        effect = (weights * logs).sum(axis=0) / weights.sum()
    rest = logs - effect
    squares = n * np.var(rest, axis=1)
    scatters = squares > _ROUNDING
    ratios = (np.diff(rest[scatters], axis=1) ** 2).sum(axis=1) / squares[scatters]
    z = float((2 - ratios).sum()) / math.sqrt(number * 4 * (n - 2) / (n**2 - 1))
    return z > float(-ndtri(CHANCE))
