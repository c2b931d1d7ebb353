"""Who is the fastest, in a sentence that names all who may be; reports/templates/scripts/fastest.js says the same.

The pick of the highest of several figures is corrected for the picking (analysis.best).
"""

import math
from collections.abc import Sequence

from torchmatrix.analysis import best
from torchmatrix.analysis.intervals import Interval, Moments
from torchmatrix.analysis.verdicts import Significance
from torchmatrix.ground.numbers import figure
from torchmatrix.reporting import words
from torchmatrix.reporting.explorers.choosing import Dim, Row, named, said, telling
from torchmatrix.reporting.explorers.saying import WHO, confidence, context, name_of, shared_place

MOST_NAMED = 3
_SAID = (*WHO, "model", "mode")


def sentence(dims: Sequence[Dim], ranked: Sequence[Row], level: Significance) -> str:
    """Of rows with a figure, the highest first: the fastest and how far it is ahead, or all that may be the fastest."""
    figures = [_moments(row) for row in ranked]
    left = best.may_be_best(figures, level.differs)
    if len(ranked) == 1:
        return f"{_doing(dims, ranked, 1)} at {_rate(ranked[0])} ({_limits(ranked[0], 1)})"
    if len(left) == 1:
        return _alone(dims, ranked, best.over_the_others(figures[0], figures[1:], level.differs), level)
    if None in (figures[0], figures[left[1]]):
        return _untold(dims, [ranked[0], ranked[left[1]]])
    return _together(dims, [ranked[place] for place in left], len(ranked), level)


def _alone(dims: Sequence[Dim], ranked: Sequence[Row], found: Interval, level: Significance) -> str:
    two = ranked[:2]
    ahead = f"{words.times(found.value)} × as fast as {_names(dims, two)[1]} ({_span(found, level)})"
    return f"{_doing(dims, two, 1)} fastest: {_rate(two[0])} ({_limits(two[0], len(ranked))}), {ahead}"


def _untold(dims: Sequence[Dim], two: Sequence[Row]) -> str:
    ratio = f"{words.times(two[0]['rate'] / two[1]['rate'])} × {_names(dims, two)[1]}"
    return f"{_doing(dims, two, 1)} at {_rate(two[0])}, {ratio}; too few launches to tell them apart"


def _together(dims: Sequence[Dim], rows: Sequence[Row], candidates: int, level: Significance) -> str:
    """All that may be the fastest. Two of them with their ratio, of many the highest and the lowest figure."""
    figures = [_moments(row) for row in rows]
    same = best.chances_of_best(figures).same <= level.same
    rates = [_rate(row) for row in rows]
    told = f"{' and '.join(rates)}" if len(rows) == 2 else f"{rates[0]} to {rates[-1]}"
    if len(rows) == 2:
        found = best.over_the_others(figures[0], figures[1:], level.differs / (candidates - 1))
        told += f", {words.times(found.value)} × ({_span(found, level)})"
    others = candidates - len(rows)
    slower = f"; {others} more {'is' if others == 1 else 'are'} slower" if others else ""
    alike = "equally fast" if same else "and can't be told apart"
    return f"{_doing(dims, rows, len(rows))} {alike}: {told}{slower}"


def _doing(dims: Sequence[Dim], rows: Sequence[Row], subjects: int) -> str:
    """Such as "a and b train resnet50 with amp on 8 × H200 SXM"; `subjects`: how many of the rows do."""
    model, mode = said([named(dims, name) for name in ("model", "mode")], rows[0])
    names = _names(dims, rows)[:subjects]
    if len(names) > MOST_NAMED:
        names = [*names[: MOST_NAMED - 1], f"{len(names) - MOST_NAMED + 1} more"]
    who = " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
    return f"{who} {words.verb(mode, many=subjects > 1)} {model}{context(dims, rows)} on {shared_place(dims, rows)}"


def _names(dims: Sequence[Dim], rows: Sequence[Row]) -> list[str]:
    settings = telling(dims, rows, _SAID)
    return [name_of(dims, row, settings) for row in rows]


def _rate(row: Row) -> str:
    return f"{figure(row['rate'])} {row['unit']}/s"


def _moments(row: Row) -> Moments | None:
    return None if row.get("center") is None else (row["center"], row["error"], row["n"])


def _limits(row: Row, candidates: int) -> str:
    """The interval of the figure; of one that was picked of several it covers whichever was picked."""
    if row["low"] is None or row["high"] is None:
        return "one launch: no interval"
    own = Interval(value=row["rate"], low=row["low"], high=row["high"])
    found = best.of_picked(own, row["n"], candidates)
    picked = f", for a pick of {candidates}" if candidates > 1 else ""
    return f"95 % interval {figure(found.low)} to {figure(found.high)}{picked}"


def _span(found: Interval, level: Significance) -> str:
    """The interval of a ratio, at the level at which a difference is told."""
    if math.isnan(found.low):
        return "too few launches for an interval"
    return f"{confidence(level)} interval {words.span(found.low, found.high)}"
