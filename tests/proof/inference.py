"""Rows on single figures and ratios: cover, false alarms, power; through the functions that reports and comparisons use."""

from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np

from proof.draws import (
    PERCENT,
    TRUTH,
    Noise,
    drifting,
    gaussian,
    launches,
    lognormal,
    resembling,
    scattering,
    slowing,
    two_levels,
    unequal,
)
from proof.row import Claim, Random, at_least, at_most, bias_within
from torchmatrix.analysis import between_runs, intervals, scaling, verdicts
from torchmatrix.analysis.between_runs import BetweenRuns
from torchmatrix.analysis.pairs import Pair, pair, pair_by_rounds, pair_of_moments, pair_over_sum
from torchmatrix.analysis.verdicts import Significance

DIFFERENT = ("FASTER", "SLOWER")
COVER = at_least(0.93)
FEW = at_least(0.90)
"""Of three launches, or two."""
SIX, FIVE = (1.0, 1.0, 0.998, 0.995, 0.99, 0.97), (1.0, 0.95, 0.95, 0.94, 0.9)
TWENTY, TEN = (1.0,) * 20, (1.0, *(0.95,) * 9)
"""How fast stacks are."""
OTHER_RUNS = 10


def covers(interval: intervals.Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def differ(ratio: Pair) -> bool:
    return intervals.difference_verdict(ratio.interval) in DIFFERENT


def headline_covers(noise: Noise, n: int, random: Random) -> bool:
    return covers(intervals.center_interval(launches(random, noise, n)), TRUTH)


def headline_is_inside(random: Random) -> bool:
    center = intervals.center_interval(launches(random, lognormal, int(random.choice((3, 5, 30)))))
    return center.low <= center.value <= center.high


def is_reproduced(random: Random) -> bool:
    """Return whether two launches that are 10 % too slow are called a reproduction."""
    return (
        intervals.reproduction_verdict(intervals.center_interval(launches(random, gaussian, 2, 0.9)), *intervals.around(TRUTH))
        == "reproduced"
    )


def equal(noise: Noise, random: Random, *counts: int) -> Pair:
    """Return the ratio of two equal cells with so many launches, or so many each."""
    return pair(*(launches(random, noise, n) for n in (counts if len(counts) > 1 else 2 * counts)))


def pair_covers(noise: Noise, counts: tuple[int, ...], random: Random) -> bool:
    return covers(equal(noise, random, *counts).interval, 1.0)


def pair_differs(noise: Noise, n: int, random: Random) -> bool:
    return differ(equal(noise, random, n))


def is_told(random: Random) -> bool:
    """Return whether five launches each tell a difference of 5 %."""
    interval = pair(launches(random, gaussian, 5, 1.05), launches(random, gaussian, 5)).interval
    return intervals.difference_verdict(interval) == "FASTER"


def is_same(random: Random) -> bool:
    """Return whether two cells at the edge of SAME are called that."""
    return (
        intervals.difference_verdict(pair(launches(random, gaussian, 5, 1.02), launches(random, gaussian, 5)).interval)
        == "SAME"
    )


def by_rounds(random: Random, rounds: int, scatter: float = PERCENT) -> Pair:
    """Return the ratio of two equal cells that were interleaved, on a machine that loses 10 %."""
    return pair_by_rounds(*(launches(random, slowing(scatter), rounds) for _ in range(2)))


def rounds_cover(rounds: int, random: Random) -> bool:
    return covers(by_rounds(random, rounds).interval, 1.0)


def rounds_differ(rounds: int, random: Random) -> bool:
    return differ(by_rounds(random, rounds, 0.03))


def rounds_are_same(random: Random) -> bool:
    return intervals.difference_verdict(by_rounds(random, 12).interval) == "SAME"


def any_of_40(random: Random) -> bool:
    """Return whether any of the 40 ratios of a comparison of two runs tells a difference."""
    judged = verdicts.judged([equal(gaussian, random, 3) for _ in range(40)])
    return any(verdict.verdict in DIFFERENT for verdict in judged)


def two_runs(random: Random, runs: Noise, lag: int) -> tuple[list[Pair], BetweenRuns]:
    """Return five cells of two runs `lag` apart, five launches each, by these launches; and what OTHER_RUNS tell. `runs`: by
    how much a run is off what is true, all of its cells alike (with unequal scatter, each cell by itself).
    """
    number, jobs = OTHER_RUNS + 2, range(5)
    shared = runs(random, number)
    shifts = [runs(random, number) if runs is unequal else shared for _ in jobs]
    rates = [[launches(random, gaussian, 5, shift) for shift in launched] for launched in shifts]
    sides = (number - 1 - lag, number - 1)
    estimate = between_runs.estimated({
        (str(job), "work"): [between_runs.figure(of, place) for place, of in enumerate(launched) if place not in sides]
        for job, launched in enumerate(rates)
    }, lag)  # fmt: skip
    assert estimate is not None
    return [pair(*(launched[place] for place in sides)) for launched in rates], estimate


def of_runs(runs: Noise, lag: int, random: Random) -> Pair:
    (ratio, *_), estimate = two_runs(random, runs, lag)
    return between_runs.widened(ratio, estimate.cells[("0", "work")])


def runs_differ(runs: Noise, lag: int, random: Random) -> bool:
    return differ(of_runs(runs, lag, random))


def runs_cover(runs: Noise, lag: int, random: Random) -> bool:
    return covers(of_runs(runs, lag, random).interval, 1.0)


def runs_mean_covers(random: Random) -> bool:
    ratios, estimate = two_runs(random, gaussian, 1)
    return covers(verdicts.mean_of_pairs(ratios, estimate.variance_of_both, estimate.freedom).interval, 1.0)


def is_impossible(random: Random) -> bool:
    """Return whether a true E = 1 is called impossible, with launches that scatter by 3 %."""
    interval = equal(scattering(0.03), random, 3).interval
    return scaling.is_impossible(interval.value, interval.low)


def figures(random: Random, n: int, speeds: Sequence[float], noise: Noise = gaussian) -> list[intervals.Moments]:
    """Draw the figures of stacks that are so fast."""
    return [intervals.moments(launches(random, noise, n, speed)) for speed in speeds]


def picked_covers(speeds: Sequence[float], n: int, random: Random) -> bool:
    """Return whether the interval of the highest of several figures, too high on average, covers what it is truly."""
    centers = [intervals.center_interval(launches(random, gaussian, n, speed)) for speed in speeds]
    place = max(range(len(speeds)), key=lambda place: centers[place].value)
    return covers(verdicts.of_picked(centers[place], n - 1, len(speeds)), speeds[place] * TRUTH)


def best_is_named(random: Random) -> bool:
    """Return whether the best is named, and not alone: the second is as good."""
    named = verdicts.may_be_best(figures(random, 5, SIX))
    return 0 in named and named != [0]


def best_is_out(random: Random) -> bool:
    """Return whether one of twenty that are as good is left out."""
    return 0 not in verdicts.may_be_best(figures(random, 5, TWENTY, scattering(0.03)))


def is_named_alone(random: Random) -> bool:
    return verdicts.may_be_best(figures(random, 5, FIVE)) == [0]


def ahead_covers(speeds: Sequence[float], random: Random) -> bool:
    first, *others = figures(random, 5, speeds)
    return covers(verdicts.over_the_others(first, others), speeds[0] / speeds[1])


def mean_covers(n: int, random: Random) -> bool:
    """Return whether the geometric mean of the ratios of five equal stacks to a sixth, which all share, covers 1."""
    base, *others = figures(random, n, [1.0] * 6)
    moments: dict[Hashable, intervals.Moments | None] = dict(enumerate((base, *others)))
    pairs = [(place, 0, pair_of_moments(other, base).value) for place, other in enumerate(others, 1)]
    return covers(verdicts.mean_ratio(pairs, moments, Significance()).interval, 1.0)


def sum_covers(random: Random) -> bool:
    """Return whether one figure over the sum of eight others, three launches each, covers the truth."""
    speeds = np.linspace(0.9, 1.0, 8)
    total, *parts = (intervals.moments(launches(random, gaussian, 3, speed)) for speed in (7.0, *speeds))
    return covers(pair_over_sum(total, parts).interval, 7.0 / speeds.sum())


def weakest(random: Random) -> float:
    """Return how far launches of the weakest of eight equal devices, three launches each, are off what they are truly."""
    return float(np.mean(scaling.weakest_of([launches(random, gaussian, 3) for _ in range(8)])) / TRUTH - 1)


RUNS = (
    ("they differ by 1 %", gaussian, 1, COVER), ("each cell by its own 0.3 to 3 %", unequal, 1, COVER),
    ("each resembles the one before by 0.6", resembling(0.6), 1, COVER),
    ("each resembles the one before by 0.6", resembling(0.6), 11, COVER),
)  # fmt: skip
CLAIMS = (
    *(
        Claim(what=f"figure: cover, {name}, n = {n}", goal=at_least(least),
              trial=partial(headline_covers, noise, n), trials=6000)
        for noise, name, counts, least in (
            (gaussian, "Gaussian", (3, 5, 10), 0.94), (lognormal, "lognormal tail", (3, 5, 30), 0.93),
            (drifting, "drifting", (3, 5, 10), 0.95), (unequal, "unequal scatter", (3,), 0.94),
        )
        for n in counts
    ),
    *(
        Claim(what=f"figure: cover, launches that resemble the one before by {again:g}, n = {n}", goal=at_least(goal),
              trial=partial(headline_covers, resembling(again), n), trials=6000)
        for again, goal in ((0.3, 0.88), (0.6, 0.72)) for n in (3, 10)
    ),
    Claim(what="figure: it lies in its interval", goal=at_least(1), trial=headline_is_inside, trials=3000),
    Claim(what='figure: a true -10 % is called "reproduced", n = 2', goal=at_most(0.05), trial=is_reproduced, trials=3000),
    *(
        Claim(what=f"ratio: cover, {name}, n = {counts[0]} beside {counts[-1]}", goal=goal,
              trial=partial(pair_covers, noise, counts), trials=6000)
        for noise, name, counts, goal in (
            (gaussian, "Gaussian", (3, 3), COVER), (gaussian, "Gaussian", (2, 10), FEW),
            (unequal, "unequal scatter", (3, 3), COVER), (unequal, "unequal scatter", (5, 5), COVER),
        )
    ),
    *(
        Claim(what=f"ratio: equal cells are told apart, {100 * share:g} % of launches at -5 %, scatter {100 * scatter:g} %, "
              f"n = {n}", goal=at_most(0.05), trial=partial(pair_differs, two_levels(share, scatter), n), trials=3000)
        for share in (0.3, 0.5) for scatter in (0.003, 0.01) for n in (3, 5, 10)
    ),
    Claim(what="ratio: 5 % is told, n = 5", goal=at_least(0.9), trial=is_told, trials=2000),
    Claim(what="ratio: +2 % is called SAME, n = 5", goal=at_most(0.05), trial=is_same, trials=3000),
    Claim(what="ratios: a comparison of 40 equal cells tells any apart, n = 3", goal=at_most(0.05), trial=any_of_40,
          trials=1000),
    *(
        Claim(what=f"by rounds: cover, a machine that loses 10 %, {rounds} rounds", goal=COVER,
              trial=partial(rounds_cover, rounds), trials=4000) for rounds in (10, 12)
    ),
    *(
        Claim(what=f"by rounds: equal cells are told apart, a machine that loses 10 %, scatter 3 %, {rounds} rounds",
              goal=at_most(0.05), trial=partial(rounds_differ, rounds), trials=4000) for rounds in (10, 12)
    ),
    Claim(what="by rounds: equal cells are called SAME, a machine that loses 10 %, 12 rounds", goal=at_least(0.9),
          trial=rounds_are_same, trials=2000),
    *(
        Claim(what=f"two runs: cover, {name}, {lag} apart, 10 other runs, n = 5", goal=goal,
              trial=partial(runs_cover, runs, lag), trials=1500)
        for name, runs, lag, goal in RUNS
    ),
    *(
        Claim(what=f"two runs: equal cells are told apart, {name}, {lag} apart, 10 other runs, n = 5", goal=at_most(0.05),
              trial=partial(runs_differ, runs, lag), trials=1500)
        for name, runs, lag, _ in RUNS
    ),
    Claim(what="geometric mean: cover, two runs that differ by 1 %, 10 other runs, 5 jobs, n = 5", goal=COVER,
          trial=runs_mean_covers, trials=1500),
    *(
        Claim(what=f"pick: cover of the highest of {len(speeds)} figures, n = {n}", goal=at_least(0.95),
              trial=partial(picked_covers, speeds, n), trials=3000)
        for speeds, n in ((SIX, 3), (SIX, 5), (TWENTY, 5))
    ),
    Claim(what="best: the fastest of six is among those named, and none of two alone, n = 5", goal=at_least(0.95),
          trial=best_is_named, trials=2000),
    Claim(what="best: one of 20 equal stacks that scatter by 3 % is out, n = 5", goal=at_most(0.05), trial=best_is_out,
          trials=2000),
    Claim(what="best: a stack 5 % ahead of four others is named alone, n = 5", goal=at_least(0.9), trial=is_named_alone,
          trials=2000),
    *(
        Claim(what=f"best: cover of how far the fastest of {len(speeds)} is ahead, n = 5", goal=at_least(0.95),
              trial=partial(ahead_covers, speeds), trials=2000) for speeds in (FIVE, TEN)
    ),
    *(
        Claim(what=f"geometric mean: cover, five ratios over one cell, n = {n}", goal=FEW if n == 3 else COVER,
              trial=partial(mean_covers, n), trials=3000) for n in (3, 5)
    ),
    Claim(what="sum: cover of a figure over the sum of eight, n = 3", goal=FEW, trial=sum_covers, trials=3000),
    Claim(what="weakest: bias of the weakest of eight equal devices, n = 3", goal=bias_within(0.001), trial=weakest,
          trials=3000),
    Claim(what="impossible: a true E = 1 is called so, scatter 3 %, n = 3", goal=at_most(0.025), trial=is_impossible,
          trials=4000),
)  # fmt: skip
