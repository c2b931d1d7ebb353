"""Rows on what is inferred: cover, false alarms, power; simulated through the functions of reports."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from proof.row import Row, RowFunction, at_least, at_most

from torchmatrix.analysis import best, between_runs, scaling, verdicts
from torchmatrix.analysis.intervals import (
    around,
    center_interval,
    difference_verdict,
    moments,
    reproduction_verdict,
)
from torchmatrix.analysis.pairs import pair, pair_by_rounds

Random = np.random.Generator
TRUTH, PERCENT = 100.0, 0.01
DIFFERENT = ("FASTER", "SLOWER")


def gaussian(random: Random, n: int) -> list[float]:
    """Launches that scatter by 1 %."""
    return (TRUTH * random.normal(1.0, PERCENT, n)).tolist()


def lognormal(random: Random, n: int) -> list[float]:
    """Launches slowed by 1 % in the median and by much more at times; the median of all is TRUTH."""
    return (TRUTH / (1 - PERCENT) * (1 - PERCENT * random.lognormal(0.0, 1.0, n))).tolist()


def drifting(random: Random, n: int) -> list[float]:
    """Launches that scatter by 1 % on a machine that loses or gains up to 6 %; TRUTH is in the middle."""
    slope = random.uniform(-0.03, 0.03)
    return (TRUTH * (random.normal(1.0, PERCENT, n) + slope * np.linspace(-1, 1, n))).tolist()


def cover(noise_of: Callable[[Random, int], list[float]], name: str, n: int, goal: float) -> Row:
    random = np.random.default_rng(n)
    found = [center_interval(noise_of(random, n)) for _ in range(4000)]
    return at_least(
        f"cover of the headline's interval, {name}, n = {n}", np.mean([i.low <= TRUTH <= i.high for i in found]), goal
    )


def headline_inside() -> Row:
    random = np.random.default_rng(1)
    found = [center_interval(lognormal(random, n)) for n in (3, 5, 30) for _ in range(1000)]
    return at_least("the headline lies in its interval", np.mean([i.low <= i.value <= i.high for i in found]), 1.0)


def false_in_one_run() -> Row:
    random, told = np.random.default_rng(2), 0
    for _ in range(300):
        pairs = [(gaussian(random, 3), gaussian(random, 3)) for _ in range(40)]
        judged = verdicts.judged([pair(*two) for two in pairs])
        told += any(one.verdict in DIFFERENT for one in judged)
    return at_most("A/A in one run: comparisons of 40 equal cells with any false verdict", told / 300, 0.05)


def false_in_one_report() -> Row:
    """Four stacks at ten jobs: over the first stack, and which is the fastest; judged together as ratios.ratios_of does."""
    random, told = np.random.default_rng(10), 0
    for _ in range(400):
        jobs = [[gaussian(random, 3) for _ in range(4)] for _ in range(10)]
        pairs = [(other, first) for first, *others in jobs for other in others]
        figures = [[moments(one) for one in job] for job in jobs]
        compared = [pair(*two) for two in pairs]
        tests = [*(one.chances for one in compared), *map(best.chances_of_best, figures)]
        level = verdicts.significance_of(tests)
        found = [verdicts.verdict_at(one, level) for one in compared]
        alone = [len(best.may_be_best(one, level.differs)) < len(one) for one in figures]
        told += any(verdict in DIFFERENT for verdict in found) or any(alone)
    return at_most("A/A in one report: 40 equal cells, 10 jobs; any false ratio or fastest", told / 400, 0.05)


def _stacks(random: Random, n: int) -> list[list[float]]:
    """Six stacks, the first five up to 1 % apart, the last one 3 % slower."""
    return [[speed * rate for rate in gaussian(random, n)] for speed in (1.0, 1.0, 0.998, 0.995, 0.99, 0.97)]


def picked_cover(n: int) -> Row:
    """The highest of six figures is too high on average; does its interval cover what it is truly?"""
    random, covered = np.random.default_rng(11), 0
    truths = [speed * TRUTH for speed in (1.0, 1.0, 0.998, 0.995, 0.99, 0.97)]
    for _ in range(3000):
        found = [center_interval(one) for one in _stacks(random, n)]
        place = max(range(6), key=lambda place: found[place].value)
        interval = best.of_picked(found[place], n, 6)
        covered += interval.low <= truths[place] <= interval.high
    return at_least(f"cover of the figure of the fastest of six, n = {n}", covered / 3000, 0.93)


def best_is_named() -> Row:
    random, right = np.random.default_rng(12), 0
    for _ in range(1000):
        named = best.may_be_best([moments(one) for one in _stacks(random, 5)])
        right += 0 in named and named != [0]  # the second is as good
    return at_least("the fastest of six is among those named, and none of two alone", right / 1000, 0.95)


def ahead_cover() -> Row:
    random, covered = np.random.default_rng(13), 0
    for _ in range(1000):
        own, *others = ([speed * rate for rate in gaussian(random, 5)] for speed in (1.0, 0.95, 0.95, 0.94, 0.9))
        found = best.over_the_others(moments(own), [moments(one) for one in others])
        covered += found.low <= 1 / 0.95 <= found.high
    return at_least("cover of how far the fastest of five is ahead, n = 5", covered / 1000, 0.93)


def power_of_best() -> Row:
    random, named = np.random.default_rng(14), 0
    for _ in range(1000):
        figures = [moments([speed * rate for rate in gaussian(random, 5)]) for speed in (1.0, 0.95, 0.95, 0.94, 0.9)]
        named += best.may_be_best(figures) == [0]
    return at_least("power: a stack 5 % ahead of four others is named alone, n = 5", named / 1000, 0.9)


def false_in_two_runs() -> Row:
    random, told = np.random.default_rng(3), 0
    for _ in range(1000):
        runs = [[rate * math.exp(shift) for rate in gaussian(random, 5)] for shift in random.normal(0, PERCENT, 12)]
        known = between_runs.estimated({("cell", "work"): [between_runs.figure(rates) for rates in runs[2:]]})
        assert known is not None
        told += difference_verdict(between_runs.widened(pair(*runs[:2]), known).interval) in DIFFERENT
    return at_most("A/A of two runs that differ by 1 %, with 10 other runs", told / 1000, 0.05)


def false_while_drifting() -> Row:
    random, told = np.random.default_rng(4), 0
    for _ in range(1000):
        pace = np.linspace(1.0, 0.9, 12)
        told += (
            difference_verdict(pair_by_rounds(*((pace * gaussian(random, 12)).tolist() for _ in range(2))).interval)
            in DIFFERENT
        )
    return at_most("A/A, interleaved on a machine that loses 10 %, 12 rounds", told / 1000, 0.05)


def false_reproductions() -> Row:
    random = np.random.default_rng(5)
    found = [center_interval([0.9 * rate for rate in gaussian(random, 2)]) for _ in range(2000)]
    return at_most('a true -10 % is called "reproduced" at n = 2', np.mean([_reproduced(i) for i in found]), 0.05)


def _reproduced(found: object) -> bool:
    return reproduction_verdict(found, *around(TRUTH)) == "reproduced"  # type: ignore[arg-type]


def false_impossible() -> Row:
    random, told = np.random.default_rng(6), 0
    for _ in range(2000):
        found = pair(gaussian(random, 3), gaussian(random, 3)).interval
        told += scaling.is_impossible(found.value, found.low)
    return at_most("a true E = 1.0 is called impossible, three launches", told / 2000, 0.025)


def false_marks() -> Row:
    """Of a machine that scales perfectly: 24 cells with E = 1."""
    random, told = np.random.default_rng(15), 0
    for _ in range(400):
        pairs = [(gaussian(random, 3), gaussian(random, 3)) for _ in range(24)]
        found = [pair(*two) for two in pairs]
        marked = [scaling.is_impossible(one.value, one.interval.low) for one in found]
        told += any(verdicts.surviving(marked, [one.p_above() for one in found]))
    return at_most("a report of 24 cells with a true E = 1.0 calls one impossible", told / 400, 0.05)


def power() -> Row:
    random = np.random.default_rng(7)
    found = [
        difference_verdict(pair([1.05 * r for r in gaussian(random, 5)], gaussian(random, 5)).interval) for _ in range(1000)
    ]
    return at_least("power: 5 % is told with five launches that scatter by 1 %", np.mean([v == "FASTER" for v in found]), 0.9)


ROWS: tuple[RowFunction, ...] = (
    *(partial(cover, gaussian, "Gaussian", n, goal) for n, goal in ((3, 0.90), (5, 0.93), (10, 0.93))),
    *(partial(cover, lognormal, "lognormal tail", n, goal) for n, goal in ((3, 0.90), (5, 0.93), (30, 0.93))),
    *(partial(cover, drifting, "drifting", n, goal) for n, goal in ((3, 0.90), (5, 0.93), (10, 0.93))),
    headline_inside,
    false_in_one_run,
    false_in_one_report,
    false_in_two_runs,
    false_while_drifting,
    false_reproductions,
    false_impossible,
    false_marks,
    power,
    *(partial(picked_cover, n) for n in (3, 5)),
    best_is_named,
    ahead_cover,
    power_of_best,
)
