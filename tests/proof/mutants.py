"""Tests the proof: breaks, one after the other, each function that a row stands for, and sees the row fail.

    python -m proof.mutants [--seed N] [--only WORDS] [--jobs K], in tests/ with PYTHONPATH=bench:../images/workload

Each break is made in a process of its own, in every module that has the function. Ends with 1 if one goes unnoticed, or if no
break fails a row. Launches that are sabotaged (tests/support/sabotaged.py) are the breaks of the rows on the proof of work.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import get_context
from typing import Any, TypeAlias

import numpy as np

import steady
from proof.row import Row
from proof.table import CLAIMS, named, options
from torchmatrix.analysis import across, between_runs, centers, intervals, levels, pairs, scaling, verdicts
from torchmatrix.analysis.cells import Cell
from torchmatrix.analysis.centers import squared_error
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.pairs import Pair
from torchmatrix.nightly.gate import learned, noise

Break: TypeAlias = Callable[[Any], Any]
"""What stands in the place of what was there."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name` of `place`, a module or a class, is `broken`; `said`: how. Every claim that says one of `rows` must fail."""

    place: Any
    name: str
    said: str
    broken: Break
    rows: tuple[str, ...]


def after(change: Callable[[Any], Any]) -> Break:
    """Return a break that changes the function's result."""
    return lambda function: lambda *args, **more: change(function(*args, **more))


def answers(value: Any) -> Break:
    """Return a break whose function always says the same."""
    return lambda _: lambda *args, **more: value


def unchanged(_: Any) -> Any:
    """Return a function that gives back what it got first."""
    return lambda value, *args, **more: value


def narrow(interval: Interval) -> Interval:
    """Return the interval half as wide."""
    return replace(interval, low=(interval.value + interval.low) / 2, high=(interval.value + interval.high) / 2)


def surer(ratio: Pair) -> Pair:
    """Return the ratio with half the error."""
    return replace(ratio, error=ratio.error / 2)


def of_mean(function: Any) -> Any:
    return lambda values, *_: replace(function(values, "mean"), value=float(np.median(values)))


def of_medians(function: Any) -> Any:
    def broken(values: Sequence[float], *prior: Any) -> Any:
        error = squared_error([math.log(value) for value in values])
        return function(values, *prior)._replace(log=math.log(float(np.median(values))), squared_error=error)

    return broken


def overlaps(_: Any) -> Any:
    return lambda interval, low, high: "reproduced" if interval.low <= high and interval.high >= low else "ambiguous"


def by_value(_: Any) -> Any:
    return lambda interval: "SAME" if abs(interval.value - 1) < intervals.SAME_WITHIN else "AMBIGUOUS"


def at_full_level(function: Any) -> Any:
    return lambda figures, level=0.05: function(figures, level * max(1, len(figures) - 1))


def over_others_at_full_level(function: Any) -> Any:
    return lambda figure, others, level=0.05: function(figure, others, level * len(others))


def unshared(function: Any) -> Any:
    def broken(of: Sequence[Any], moments: Any, level: Any) -> Any:
        figures = {(place, side): moments[pair[side]] for place, pair in enumerate(of) for side in (0, 1)}
        return function([((place, 0), (place, 1), pair[2]) for place, pair in enumerate(of)], figures, level)

    return broken


def without_runs(function: Any) -> Any:
    return lambda ratios, *_: function(ratios)


def over_launches(function: Any) -> Any:
    return lambda of, level: function([replace(pair, machines=({}, {})) for pair in of], level)


def first_machines(_: Any) -> Any:
    return lambda machines, base: (machines[0].over(base[0]), across.LAUNCHES)


def smallest(_: Any) -> Any:
    return lambda alone: list(min(alone, key=lambda device: float(np.median(device))))


def one_more(function: Any) -> Any:
    def broken(speedup: Interval, count: int) -> Any:
        losses = function(speedup, count)
        less = {name: value * count / (count + 1) for name, value in losses.items() if name[0] in "SEs"}
        return losses | less

    return broken


def the_highest(_: Any) -> Any:
    return lambda figures, *_: [max(range(len(figures)), key=figures.__getitem__)]


def never_slow(panel: Any) -> Any:
    panel.regressed[:] = False
    return panel


def never_told(drift: Any) -> Any:
    return replace(drift, drifted=np.zeros_like(drift.drifted))


def drifting_on(fit: Any) -> Any:
    return fit._replace(score=10.0, left=0.1, most=0.1, end=1.1 * fit.end)


MUTANTS = (
    Mutant(intervals, "center_interval", "half as wide", after(narrow), ("figure: cover",)),
    Mutant(intervals, "center_interval", "the mean's interval", of_mean, ("figure: it lies",)),
    Mutant(intervals, "reproduction_verdict", "intervals overlap", overlaps, ("figure: a true",)),
    Mutant(intervals, "difference_verdict", "by the value alone", by_value, ("ratio: +2 %",)),
    Mutant(intervals, "moments", "half the variance", after(lambda m: m._replace(squared_error=m.squared_error / 2)),
           ("ratio: cover", "report: cover of a ratio", "of what two machines are", "report: 2 equal", "report: 6 equal")),
    Mutant(intervals, "moments", "of medians", of_medians,
           tuple(f"-5 %, scatter {scatter} %, n = {n}" for scatter in ("0.3", "1") for n in (5, 10))),
    Mutant(centers, "widening", "1", answers(1.0), ("figure: cover, Gaussian, n = 10",)),
    Mutant(intervals, "of_normal", "1", answers(1.0), ("of a figure among 40, Gaussian",)),
    Mutant(pairs, "pair", "four times the error", after(lambda r: replace(r, error=4 * r.error)), ("ratio: 5 % is",)),
    Mutant(pairs, "pair", "no freedom lost", after(lambda r: replace(r, freedom=math.inf)),
           ("ratio: cover", "-5 %, scatter 0.3 %, n = 3", "-5 %, scatter 1 %, n = 3")),
    Mutant(pairs, "pair_by_rounds", "unpaired", lambda _: pairs.pair, ("by rounds: equal cells are called",)),
    Mutant(pairs, "pair_by_rounds", "half the error", after(surer), ("by rounds: cover", "by rounds: equal cells are told")),
    Mutant(pairs, "pair_over_sum", "half the error", after(surer), ("sum:", "cover of E_star")),
    Mutant(intervals, "adjusted", "not at all", unchanged,
           ("ratios: a comparison", "fastest: Gaussian, n = 2", "40 equal cells, any false ratio or fastest: Gaussian, n = 3",
            "fastest: Gaussian, n = 5", "fastest: u", "fastest: half", "fastest: 5 %", "fastest: a machine", "report: 6 equal",
            "two levels, n = 2", "two levels, n = 5", "report: 400 equal", "any of 24")),
    Mutant(verdicts, "surviving", "all", unchanged, ("any of 24",)),
    Mutant(verdicts, "may_be_best", "no Bonferroni", at_full_level, ("best: one of 20",)),
    Mutant(verdicts, "may_be_best", "the highest", the_highest, ("best: the fastest of six",)),
    Mutant(verdicts, "may_be_best", "all", answers([0, 1]), ("best: a stack 5 % ahead",)),
    Mutant(verdicts, "of_picked", "not widened", unchanged, ("pick:",)),
    Mutant(verdicts, "over_the_others", "no Bonferroni", over_others_at_full_level, ("the fastest of 10 is ahead",)),
    Mutant(verdicts, "over_the_others", "half as wide", after(narrow), ("best: cover of how far",)),
    Mutant(verdicts, "mean_ratio", "a shared cell counts as several", unshared, ("five ratios over",)),
    Mutant(verdicts, "mean_of_pairs", "without what runs differ by", without_runs, ("geometric mean: cover, two runs",)),
    Mutant(across, "mean_over", "over launches", over_launches, ("two equal GPUs by three",)),
    Mutant(across, "over_baseline", "of the first machines", first_machines, ("machines: cover",)),
    Mutant(between_runs, "differ", "two runs are one", answers(False), ("two runs without",)),
    Mutant(between_runs, "widened", "not at all", unchanged, ("two runs: ",)),
    Mutant(between_runs, "_growth_over_lag", "as neighbours", answers(1.0),
           ("cover, each resembles the one before by 0.6, 11",)),
    Mutant(intervals, "learned_prior", "all scatter alike", after(lambda prior: replace(prior, freedom=1000.0)),
           ("fastest: unequal scatter, n = 3", "40 cells, unequal", "among 40, unequal", "-20 %, n = 3")),
    Mutant(intervals, "learned_prior", "nothing", answers(intervals.NO_PRIOR), ("4 % slower",)),
    Mutant(levels, "jump_of_run", "none", answers(0.0), ("two levels, n = 3",)),
    Mutant(Cell, "over", "half the error", after(surer), ("cover of S on",)),
    Mutant(scaling, "weakest_of", "the smallest", smallest, ("weakest:", "bias of E_hetero, eight")),
    Mutant(scaling, "weakest_of", "the first", lambda _: lambda alone: list(alone[0]), ("E_hetero, four",)),
    Mutant(scaling, "pair", "half the error", after(surer), ("cover of E_hetero",)),
    Mutant(scaling, "_scale_factors", "S, E and s by one device more", one_more, ("cover of S", "cover of E on", "cover of s")),
    Mutant(scaling, "is_impossible", "whatever its interval", lambda _: lambda efficiency, low: efficiency > 1.02,
           ("impossible: a true E",)),
    Mutant(learned, "factors", "half", after(lambda factors: factors / 2), ("new false regression",)),
    Mutant(learned, "likeness", "none", after(lambda likeness: 0.0 * likeness), ("correlation .6",)),
    Mutant(learned, "needed", "two in a row", answers((2, 10)), ("a bad night of each", "every other night")),
    Mutant(noise, "panel", "no night is slow", after(never_slow), ("gate: -5 %",)),
    Mutant(import_module("torchmatrix.nightly.gate.drift"), "drift", "never", after(never_told),
           ("gate: median", "gate: -2 %", "gate: -0.2 %")),
    Mutant(steady, "decay", "always flat", after(lambda fit: fit._replace(score=0.0, left=0.0, most=0.0)),
           ("steady: bias", "what launches don't tell", "called flat")),
    Mutant(steady, "decay", "never flat", after(drifting_on), ("steady: how much", "called not flat")),
)  # fmt: skip


def apply(mutant: Mutant) -> None:
    """Break the function for this process, wherever a module has imported it."""
    original = getattr(mutant.place, mutant.name)
    broken = mutant.broken(original)
    setattr(mutant.place, mutant.name, broken)
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] in ("torchmatrix", "proof")]:
        for name in [name for name, value in vars(module).items() if value is original]:
            setattr(module, name, broken)


def tried(task: tuple[int, int, int]) -> Row:
    """Return the row of a claim under a mutant (both by their places), with a seed."""
    mutant, claim, seed = task
    apply(MUTANTS[mutant])
    return CLAIMS[claim].found(seed)


def main() -> int:
    args = options(__doc__, "functions whose name has this").parse_args()
    begin, failed, unnoticed = time.monotonic(), set[str](), 0
    chosen = [place for place, mutant in enumerate(MUTANTS) if args.only in mutant.name]
    tasks = [(place, claim, args.seed) for place in chosen for words in MUTANTS[place].rows for claim in named(words)]
    with get_context("fork").Pool(args.jobs, maxtasksperchild=1) as pool:
        for (place, _, _), row in zip(tasks, pool.imap(tried, tasks, chunksize=1), strict=True):
            mutant = MUTANTS[place]
            print(f"{mutant.name + ': ' + mutant.said:<52} {row.what:<98} {row.found:>9}"
                  f"{'  UNNOTICED' if row.holds else ''}", flush=True)  # fmt: skip
            unnoticed += row.holds
            failed |= set() if row.holds else {row.what}
    without = [claim.what for claim in CLAIMS if claim.what not in failed and not claim.what.startswith("work:")]
    if not args.only:
        print(*(f"no break fails: {what}" for what in without), sep="\n")
    print(f"{len(tasks)} rows of {len(chosen)} breaks, {unnoticed} unnoticed; {time.monotonic() - begin:.0f} s")
    return int(unnoticed > 0 or bool(without and not args.only))


if __name__ == "__main__":
    sys.exit(main())
