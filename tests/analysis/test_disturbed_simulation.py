"""Simulated on a machine that others use: the rule of repeating tells no equal stacks apart, and true differences stay told.

Disturbances hit all stacks alike, one stack alone, or slow stacks more often, as these run longer. A disturbed launch is made
once more, as running/rounds.py does, by the flag alone; what stays disturbed is judged by the real functions.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from support.rows import a_row
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.verdicts import judged

SCATTER, PAIRS, ROUNDS, RUNS = 0.01, 20, 3, 60
OFTEN = {"alike": (0.3, 0.3), "one stack alone": (0.0, 0.6), "slow stacks more often": (0.2, 0.4), "always": (1.0, 1.0)}
"""How often a launch of A and of B is disturbed; it then loses 5 to 60 %."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`repeats`: a disturbed launch is made once more; `knows`: which launches were disturbed is known."""

    repeats: bool = True
    knows: bool = True


RULE, NONE = Rule(), Rule(repeats=False, knows=False)


def launched(random: np.random.Generator, rate: float, often: float, rule: Rule) -> tuple[float, bool]:
    """Return the figure of the try that counts, and whether that was disturbed."""
    for _ in range(2 if rule.repeats else 1):
        figure, disturbed = rate * math.exp(random.normal(0, SCATTER)), bool(random.random() < often)
        if not disturbed:
            break
        figure *= 1 - random.uniform(0.05, 0.6)
    return figure, disturbed


def verdicts_of(random: np.random.Generator, often: tuple[float, float], faster: float, rule: Rule) -> list[str]:
    """Return the verdicts of one run's pairs."""
    rows = []
    for job in range(PAIRS):
        for stack, share, rate in zip("ab", often, (100.0, 100.0 * faster), strict=True):
            names = {"cell": f"{stack}/job{job}/gpu0", "stack": stack, "workload": f"job{job}"}
            for number in range(ROUNDS):
                figure, disturbed = launched(random, rate, share, rule)
                rows.append(a_row(**names, round=number + 1, throughput=figure, disturbed=disturbed if rule.knows else None))
    named = CellIndex(rows).named
    pairs = [named[f"b/job{job}/gpu0"].over(named[f"a/job{job}/gpu0"]) for job in range(PAIRS)]
    return [verdict.verdict for verdict in judged(pairs)]


def false_alarms(often: tuple[float, float], rule: Rule = RULE) -> float:
    """Return the share of runs of equal stacks in which any two are told apart."""
    random = np.random.default_rng(5)
    return sum(bool({"FASTER", "SLOWER"} & set(verdicts_of(random, often, 1.0, rule))) for _ in range(RUNS)) / RUNS


def told(often: tuple[float, float], faster: float, rule: Rule = RULE) -> Counter[str]:
    """Return how many pairs have which verdict, as a share of all."""
    random = np.random.default_rng(6)
    verdicts = Counter(verdict for _ in range(RUNS) for verdict in verdicts_of(random, often, faster, rule))
    return Counter({verdict: number / RUNS / PAIRS for verdict, number in verdicts.items()})


@pytest.mark.parametrize("often", OFTEN.values(), ids=OFTEN)
def test_equal_stacks_are_hardly_ever_told_apart(often: tuple[float, float]) -> None:
    assert false_alarms(often) <= 0.05 + 2 * math.sqrt(0.05 / RUNS)


@pytest.mark.parametrize("kind", ["alike", "slow stacks more often"])
def test_a_true_difference_is_told_where_it_was_quiet_and_not_without_the_rule(kind: str) -> None:
    with_rule, without = told(OFTEN[kind], 1.1), told(OFTEN[kind], 1.1, NONE)
    print(kind, dict(with_rule), dict(without), false_alarms(OFTEN[kind], NONE))
    assert with_rule["SLOWER"] == 0.0 and with_rule["FASTER"] > 0.4 > 2 * without["FASTER"]
